"""Arrays and names as .npy files: written piece by piece, opened as read-only memory maps."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from pathe.core.errors import DataError
from pathe.core.files import replacing

Append = Callable[[npt.NDArray[Any]], None]
_HEADER = 128  # bytes before the values; enough for any shape of ours


@contextmanager
def array_writer(path: Path, kind: type[np.generic], width: int | None = None) -> Iterator[Append]:
    """Yields a function that appends rows; the file appears at the end, complete or not at all.

    `width` is the number of columns, None for an array of one dimension.
    """
    n_rows = 0
    with replacing(path) as aside, aside.open("wb") as file:
        file.write(bytes(_HEADER))

        def append(values: npt.NDArray[Any]) -> None:
            nonlocal n_rows
            rows = np.ascontiguousarray(values, kind)
            assert rows.shape[1:] == (() if width is None else (width,)), rows.shape
            file.write(rows.data)
            n_rows += len(rows)

        yield append
        file.seek(0)
        file.write(_header(kind, (n_rows,) if width is None else (n_rows, width)))


def _header(kind: type[np.generic], shape: tuple[int, ...]) -> bytes:
    """Returns the header of a .npy file (format 1.0), padded to a fixed size."""
    about = {"descr": np.lib.format.dtype_to_descr(np.dtype(kind)), "fortran_order": False}
    text = repr(about | {"shape": shape}).encode()
    start = np.lib.format.magic(1, 0) + (_HEADER - 10).to_bytes(2, "little")
    return start + text.ljust(_HEADER - 11) + b"\n"


def write_array(path: Path, values: npt.NDArray[Any]) -> None:
    """Writes a whole array."""
    width = values.shape[1] if values.ndim == 2 else None
    with array_writer(path, values.dtype.type, width) as append:
        append(values)


def writable_map(path: Path, kind: type[np.generic], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Creates an array file and maps it for writing; its room on the disk is reserved.

    Otherwise, a full disk would end the process without a word once a page can't be written.
    """
    header = _header(kind, shape)
    size = len(header) + int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
    with path.open("wb") as file:
        file.write(header)
        file.truncate(size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
    array: npt.NDArray[Any] = np.load(path, mmap_mode="r+", allow_pickle=False)
    return array


def mapped(path: Path) -> npt.NDArray[Any]:
    """Returns the array in a file as a read-only memory map."""
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, TypeError, OverflowError):
        raise DataError(f"{path}: not a readable .npy file; it may be damaged") from None
    return array


def mapped_tensor(path: Path) -> Tensor:
    """Returns the array in a file as a tensor over a memory map; writing to it is an error."""
    array = mapped(path)
    return read_only_tensor(array)


def read_only_tensor(array: npt.NDArray[Any]) -> Tensor:
    """Returns a tensor over an array that may be read-only; don't write to it."""
    if not array.size:
        return torch.from_numpy(np.array(array))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


@contextmanager
def text_writer(stem: Path) -> Iterator[Callable[[Any], None]]:
    """Yields a function that appends arrays of names; `mapped_text` opens them as one array."""
    ends, text = text_files(stem)
    end = 0
    with array_writer(ends, np.int64) as add_ends, array_writer(text, np.uint8) as add_text:
        add_ends(np.zeros(1, np.int64))

        def append(names: Any) -> None:
            nonlocal end
            own, data = text_buffers(names)
            add_text(data)
            add_ends(own[1:] + end)
            end += int(own[-1])

        yield append


def text_files(stem: Path) -> tuple[Path, Path]:
    """Returns the files of an array of names: where each name ends, and their bytes."""
    return stem.with_name(f"{stem.name}.ends.npy"), stem.with_name(f"{stem.name}.text.npy")


def text_buffers(names: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Returns the ends of a pa.LargeStringArray's names, after a 0, and their bytes."""
    if not len(names):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offsets, data = names.buffers()
    ends = np.frombuffer(offsets, np.int64, len(names) + 1, 8 * names.offset)
    first, last = int(ends[0]), int(ends[-1])
    return ends - first, np.frombuffer(data or b"", np.uint8)[first:last]


def mapped_text(stem: Path) -> Any:
    """Returns the names in files of `text_writer` as one pa.LargeStringArray over memory maps."""
    ends, text = (mapped(path) for path in text_files(stem))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text if text.size else b"")]
    return pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers)
