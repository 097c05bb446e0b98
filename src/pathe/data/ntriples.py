"""N-Triples -> three Arrow columns: links of ordinary IRIs at once, all other lines by the parser.

A large graph's file is mostly lines of three http IRIs. One regular expression finds these in a
block of lines; it accepts only what the parser accepts too, in ASCII.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pathe.data.columns import checked, open_stream, reading

_BLOCK = 4 << 20  # bytes
_SIGNS = r"\-A-Za-z0-9._~:@!$&'()*+,;="  # that need no escape in an IRI
_AFTER = rf"(?:/[{_SIGNS}/]*)?(?:[?][{_SIGNS}/?]*)?(?:#[{_SIGNS}/?]*)?"
_LINK = (
    "^"
    + " ".join(rf"<(?P<{name}>https?://[A-Za-z0-9.-]+{_AFTER})>" for name in "hrt")
    + r" \.\r?\n$"
)

Parse = Callable[[bytes, Callable[[int], int]], Iterator[list[Any]]]


def ntriples_batches(path: Path, parse: Parse) -> Iterator[list[Any]]:
    """Yields the file's triples as batches of three dictionary columns.

    `parse` yields batches of the names in other lines. It takes their bytes, and a function from a
    line's number among them to that in the file.
    """
    with reading(path):
        yield from checked(_batches(path, parse))


def _batches(path: Path, parse: Parse) -> Iterator[list[Any]]:
    before = 0
    with open_stream(path) as stream:
        for block in _blocks(stream):
            lines = _lines(block)
            found = pc.extract_regex(lines, pattern=_LINK)
            link = found.is_valid()
            fields = found.filter(link).flatten()
            if len(fields[0]):
                yield fields
            others = np.flatnonzero(~link.to_numpy(zero_copy_only=False))
            if len(others):
                rest = b"".join(lines.take(pa.array(others)).to_pylist())
                yield from parse(rest, _numbering(others + before + 1))
            before += len(lines)


def _numbering(numbers: Any) -> Callable[[int], int]:
    return lambda line: int(numbers[min(line, len(numbers)) - 1])


def _blocks(stream: Any) -> Iterator[bytes]:
    """Yields blocks of whole lines."""
    carry = b""
    while block := stream.read(_BLOCK):
        whole, end, rest = (carry + block).rpartition(b"\n")
        if end:
            yield whole + end
        carry = rest
    if carry:
        yield carry


def _lines(block: bytes) -> Any:
    """Returns the lines of a block, with their ends, as a pa.LargeBinaryArray over its bytes."""
    block = block if block.endswith(b"\n") else block + b"\n"
    ends = np.concatenate([[0], np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1])
    buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(block)]
    return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, buffers)
