"""Files read in the tests: what came of them, and how they were refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pathe.core.errors import DataError
from pathe.data.readers import ReadOptions, ReadReport, read_columns

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda raw: pa.compress(raw, "zstd", asbytes=True),
}
Rows = list[tuple[str, str, str]]


def rows_of(table: Any) -> Rows:
    return list(zip(*(table.column(i).to_pylist() for i in range(3)), strict=True))


def read(path: Path, raw: bytes, **options: Any) -> tuple[Rows, ReadReport]:
    path.write_bytes(raw)
    report = ReadReport()
    return rows_of(read_columns(path, ReadOptions(**options), report)), report


def refused(path: Path, raw: bytes, **options: Any) -> str:
    path.write_bytes(raw)
    with pytest.raises(DataError) as caught:
        read_columns(path, ReadOptions(**options))
    assert str(path) in str(caught.value)
    return str(caught.value)
