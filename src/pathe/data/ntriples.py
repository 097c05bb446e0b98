"""N-Triples -> three Arrow columns: links of ordinary IRIs at once, all other lines by the parser.

A large graph's file is mostly lines of three http IRIs. One regular expression finds these in a
block of lines; it accepts only what the parser accepts too, in ASCII.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pathe.core.errors import DataError
from pathe.data.columns import checked, open_stream, reading

_BLOCK = 4 << 20  # bytes
_SIGNS = r"\-A-Za-z0-9._~:@!$&'()*+,;="  # that need no escape in an IRI
_AFTER = rf"(?:/[{_SIGNS}/]*)?(?:[?][{_SIGNS}/?]*)?(?:#[{_SIGNS}/?]*)?"
_LINK = (
    "^"
    + " ".join(rf"<(?P<{name}>https?://[A-Za-z0-9.-]+{_AFTER})>" for name in "hrt")
    + r" \.\r?\n$"
)

# A line that is complete in itself: empty, a comment, or with a dot at its end.
_WHOLE = r"^[ \t]*(?:|#.*|.*\.[ \t]*)\r?\n$"

LONGEST = 16 << 20  # bytes of a line, as of a triple that the parser accepts
Parse = Callable[[Any, Callable[[int], int]], Iterator[list[Any]]]


def ntriples_batches(path: Path, parse: Parse) -> Iterator[list[Any]]:
    """Yields the file's triples as batches of three dictionary columns.

    `parse` yields batches of the names in other lines. It takes them as bytes or as a stream, and a
    function from a line's number among them to that in the file. From a line on that isn't complete
    in itself, all lines are parsed.
    """
    with reading(path):
        yield from checked(_batches(path, parse))


def _batches(path: Path, parse: Parse) -> Iterator[list[Any]]:
    before = 0
    with io.BufferedReader(open_stream(path)) as stream:
        while block := _read_lines(stream, path):
            lines = _lines(block)
            found = pc.extract_regex(lines, pattern=_LINK)
            link = found.is_valid()
            fields = found.filter(link).flatten()
            others = np.flatnonzero(~link.to_numpy(zero_copy_only=False))
            rest = lines.take(pa.array(others))
            if not pc.all(pc.match_substring_regex(rest, _WHOLE), min_count=0).as_py():
                yield from parse(_Rest(block, stream), partial(add, before))
                return
            if len(fields[0]):
                yield fields
            if len(others):
                number = partial(_number, others + before + 1)
                yield from parse(b"".join(rest.to_pylist()), number)
            before += len(lines)


def _number(numbers: Any, line: int) -> int:
    """Returns the number in the file of a line; the end belongs to the last one."""
    return int(numbers[min(line, len(numbers)) - 1])


class _Rest(io.RawIOBase):
    """A block that has been read, and the stream after it."""

    def __init__(self, block: bytes, stream: Any) -> None:
        self._block, self._stream = block, stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._block:
            return bytes(self._stream.read(size if size >= 0 else None))
        size = len(self._block) if size < 0 else size
        piece, self._block = self._block[:size], self._block[size:]
        return piece


def _read_lines(stream: Any, path: Path) -> bytes:
    """Reads a block of whole lines."""
    block = stream.read(_BLOCK)
    rest = stream.readline(LONGEST) if block else b""
    if len(rest) == LONGEST:
        raise too_long(path)
    return bytes(block + rest)


def too_long(path: Path) -> DataError:
    """Returns the error of a line or a triple that the parser can't hold."""
    return DataError(f"{path}: a line or a triple is longer than {LONGEST >> 20} MiB.")


def _lines(block: bytes) -> Any:
    """Returns the lines of a block, with their ends, as a pa.LargeBinaryArray over its bytes."""
    block = block if block.endswith(b"\n") else block + b"\n"
    ends = np.concatenate([[0], np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1])
    buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(block)]
    return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers)
