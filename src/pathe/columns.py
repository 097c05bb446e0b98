"""What every reader shares: options, report, suffixes, streams, and batches -> columns."""

from __future__ import annotations

import lzma
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pathe.answers import is_fact
from pathe.errors import DataError
from pathe.files import check_new_folder, check_place

ROLES = ("head", "relation", "tail")
TEXT = {".tsv": "\t", ".txt": "\t", ".csv": ","}
RDF = {
    ".nt": "N_TRIPLES",
    ".nq": "N_QUADS",
    ".ttl": "TURTLE",
    ".trig": "TRIG",
    ".n3": "N3",
    ".rdf": "RDF_XML",
    ".owl": "RDF_XML",
    ".xml": "RDF_XML",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
KNOWN_SUFFIXES = (*TEXT, ".parquet", *RDF)

# Words that mark a first row as a header; lower case. Letters count only in these pairs.
_HEAD = ("head", "subject", "subj", "source", "src", "from")
_TAIL = ("tail", "object", "obj", "target", "destination", "dest", "dst", "to")
_LETTERS = (("h", "t"), ("s", "o"))
_RELATION = ("relation", "rel", "r", "predicate", "pred", "p", "property", "edge", "type", "label")

BATCH = 1 << 16  # rows at a time for Parquet and RDF
_UNIFY_AT = 1 << 22  # names held twice or more before dictionaries are merged
BROKEN = (OSError, EOFError, lzma.LZMAError, pa.ArrowException)
SKIP_HINT = "Put it right, or skip such lines with --on-error skip."


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file; `columns` are 1-based positions or header names."""

    columns: tuple[str, str, str] | None = None
    header: bool | None = None
    delimiter: str | None = None
    on_error: Literal["raise", "skip"] = "raise"

    def refuse(self, names: Sequence[str], where: str) -> None:
        """DataError for an option that is given but has no meaning for this data."""
        for name in names:
            if getattr(self, name) is not None:
                raise DataError(f"{where}: --{name} doesn't apply to it. Drop the option.")


@dataclass
class ReadReport:
    """What reading met: counts, the first line that was skipped, and remarks."""

    rows: int = 0
    duplicates: int = 0
    literals: int = 0
    skipped: int = 0
    unknown_relations: int = 0
    notes: list[str] = field(default_factory=list)
    first_skipped: str = ""


class BadRowError(Exception):
    """Row number `args[0]` (from 0, of those read) has an empty or undecodable name."""


def split_suffix(path: Path) -> tuple[str, str, str]:
    """`a.b.tsv.gz` -> ("a.b", ".tsv", ".gz"); an absent or unknown suffix is ""."""
    name, compression = path.name, ""
    if path.suffix.lower() in COMPRESSIONS:
        name, compression = path.stem, path.suffix.lower()
    suffix = Path(name).suffix
    if suffix.lower() not in KNOWN_SUFFIXES:
        return name, "", compression
    return name[: -len(suffix)], suffix.lower(), compression


def existing_path(data: str | Path) -> Path | None:
    """The file or folder that is meant; None where `data` can only be a data set's name."""
    path = Path(data).expanduser()
    if path.exists():
        return path
    if os.sep in str(data) or split_suffix(path)[1]:
        raise DataError(f"{data}: no such file or folder")
    return None


def writable_suffix(path: Path) -> tuple[str, str]:
    """(suffix, compression) of a file to write; DataError for a format that isn't written."""
    _, suffix, compression = split_suffix(path)
    if suffix not in (*TEXT, ".parquet") or (suffix == ".parquet" and compression):
        raise DataError(
            f"{path}: expected a name that ends in {', '.join(TEXT)} (also with "
            f"{', '.join(COMPRESSIONS)}) or .parquet"
        )
    return suffix, compression


def check_target(target: Path, suffix: str | None) -> str:
    """Refuse a place that couldn't be written; gives its files' suffix, "" for a single file."""
    if split_suffix(target)[1] and not target.is_dir():
        if suffix is not None:
            raise DataError(f"{target}: --suffix is for the files of a folder; this names a file.")
        if target.exists():
            raise DataError(f"{target}: expected a new file or folder, it exists already.")
        writable_suffix(target)
        check_place(target)
        return ""
    suffix = f".{(suffix or 'txt').removeprefix('.')}"
    writable_suffix(target / f"train{suffix}")
    check_new_folder(target)
    return suffix


def check_fractions(fractions: Sequence[float]) -> None:
    """DataError unless these are shares of train, valid and test."""
    listed = isinstance(fractions, tuple | list) and all(isinstance(f, Real) for f in fractions)
    if not listed:
        raise DataError(f"split: expected a tuple of floats, as (0.8, 0.1, 0.1); got {fractions!r}")
    ok = len(fractions) == 3 and all(f >= 0 for f in fractions) and fractions[0] > 0
    if not ok or abs(sum(fractions) - 1) > 1e-6:
        raise DataError(
            "--split: expected three numbers from 0 that sum to 1, the first above 0, as in "
            f"0.8,0.1,0.1; got {','.join(str(f) for f in fractions)}"
        )


def unreadable(path: Path, error: BaseException, where: str = "") -> DataError:
    """The error for a file whose bytes can't be had."""
    if isinstance(error, PermissionError):
        return DataError(f"{path}: can't be read (no permission).")
    return DataError(
        f"{path}: can't be read{where} ({error}). "
        "The file is truncated or corrupt: fetch or write it again."
    )


def collect(batches: Iterable[list[Any]], skip: Callable[[int, int], None] | None) -> Any:
    """Batches of three arrays -> one table; bad rows go to `skip(row, count)` or are raised."""
    parts: list[list[Any]] = [[], [], []]
    pending, base, n_rows = [0, 0, 0], [0, 0, 0], 0
    for batch in batches:
        columns = [c.cast(pa.large_binary()).dictionary_encode() for c in batch]
        bad = _bad_rows(columns)
        if bad is not None:
            first = n_rows + pc.index(bad, True).as_py()
            if skip is None:
                raise BadRowError(first)
            skip(first, pc.sum(bad).as_py())
            # Encode again: a dictionary must not keep names that no row uses.
            good = pc.invert(bad)
            columns = [c.dictionary_decode().filter(good).dictionary_encode() for c in columns]
        n_rows += len(columns[0])
        for k, column in enumerate(columns):
            names = column.dictionary.cast(pa.large_string())
            parts[k].append(pa.DictionaryArray.from_arrays(column.indices, names))
            pending[k] += len(names)
            # Merging only when the new names outweigh the merged ones keeps both the memory
            # near the distinct names and the whole cost linear.
            if pending[k] > max(_UNIFY_AT, base[k]):
                parts[k] = [_unify(parts[k])]
                pending[k], base[k] = 0, len(parts[k][0].dictionary)
    kind = pa.dictionary(pa.int32(), pa.large_string())
    arrays = [_unify(p) if p else pa.array([], kind) for p in parts]
    return pa.table(arrays, names=list(ROLES))


def _unify(parts: list[Any]) -> Any:
    """Dictionary arrays end to end, with one dictionary."""
    whole = pa.chunked_array(parts).unify_dictionaries().combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _bad_rows(columns: list[Any]) -> Any:
    """Boolean mask of rows with an empty or non-UTF-8 name, or None when there is none."""
    bad = None
    for column in columns:
        names = column.dictionary
        wrong = pc.invert(pc.binary_length(names).cast(pa.bool_()))
        try:
            names.cast(pa.large_string())
        except pa.ArrowInvalid:
            broken = pa.array([not is_utf8(name) for name in names.to_pylist()])
            wrong = pc.or_(wrong, broken)
        if pc.any(wrong).as_py():
            rows = wrong.take(column.indices)
            bad = rows if bad is None else pc.or_(bad, rows)
    return bad


def is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def open_stream(path: Path) -> Any:
    """A pa.NativeFile of the decompressed bytes."""
    _, _, compression = split_suffix(path)
    if compression == ".xz":
        return pa.PythonFile(lzma.open(path), mode="r")
    return pa.input_stream(str(path), compression=COMPRESSIONS.get(compression))


def known_header(names: list[str]) -> tuple[int, int, int] | None:
    """Positions of head, relation and tail among well-known column names, or None."""
    lower = [n.lower() for n in names]
    relation = next((lower.index(r) for r in _RELATION if r in lower), None)
    words = ((h, t) for h in _HEAD for t in _TAIL)
    ends = next(((h, t) for h, t in (*words, *_LETTERS) if h in lower and t in lower), None)
    if relation is None or ends is None:
        return None
    return lower.index(ends[0]), relation, lower.index(ends[1])


def named_positions(path: Path, wanted: tuple[str, str, str], names: list[str]) -> tuple[int, ...]:
    missing = [w for w in wanted if w not in names]
    if missing or len(set(wanted)) < 3:
        problem = f"no column {missing[0]!r}" if missing else "the same column twice"
        raise DataError(f"{path}: {problem} for --columns {','.join(wanted)}; it has {names}")
    return tuple(names.index(w) for w in wanted)


def used_names(column: Any) -> Any:
    """The same pa.DictionaryArray with only the names that its rows use."""
    indices = column.indices.to_numpy()
    used, indices = np.unique(indices, return_inverse=True)
    names = column.dictionary.take(pa.array(used))
    return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), names)


def named_table(rows: list[tuple[str, str, str]], where: str) -> Any:
    """(head, relation, tail) names in memory as dictionary columns."""
    for i, row in enumerate(rows, 1):
        if not is_fact(row):
            raise DataError(
                f"{where}, triple {i}: expected three names, head, relation and tail; got {row!r}."
            )
    columns = [pa.array([row[k] for row in rows], pa.large_string()) for k in range(3)]
    return pa.table([column.dictionary_encode() for column in columns], names=list(ROLES))


def text_array(names: list[str]) -> Any:
    """Names as a pa.LargeStringArray; without pandas, which pa.array imports."""
    encoded = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(names), buffers)


def id_array(ids: npt.NDArray[np.int64]) -> Any:
    """Ids as a pa.Int64Array, likewise."""
    values = np.ascontiguousarray(ids, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def numbers(array: Any, kind: type[np.generic]) -> npt.NDArray[Any]:
    """A primitive array's values, nulls as they come, where they lie; likewise."""
    size = np.dtype(kind).itemsize
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), size * array.offset)
