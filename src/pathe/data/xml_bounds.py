"""Bounds of RDF/XML that keep a small file from taking all memory or hours."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from pathe.core.errors import DataError

DEEPEST = 1000  # elements within each other; RDF/XML needs a few
LONGEST = 10_000  # bytes of an entity's value, an abbreviation of IRIs as a rule
_START = 1 << 20  # bytes that a document type may take
_ENTITY = re.compile(rb"<!ENTITY\s+(%\s+)?([^\s\"']+)\s+(\"[^\"]*\"|'[^']*'|[A-Z]+)")
_NESTED = re.compile(rb"&(?!#|amp;|lt;|gt;|quot;|apos;)|%")


class BoundedXml(io.RawIOBase):
    """A stream of XML; ends with an error at nested or long entities and at deep elements."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream, self._path = stream, path
        self._depth, self._last = 0, b""
        self._start = self._read_start()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(1 << 16), b""))
        if self._start:
            block, self._start = self._start[:size], self._start[size:]
        else:
            block = self._stream.read(size)
        self._count(block)
        return block

    def _read_start(self) -> bytes:
        """Reads up to the end of the document type and checks its entities."""
        start: bytes = self._stream.read(1 << 16)
        if b"<!DOCTYPE" not in start:
            return start
        while b"]" not in start.partition(b"<!DOCTYPE")[2] and (more := self._stream.read(1 << 16)):
            start += more
            if len(start) > _START:
                raise DataError(f"{self._path}: its document type is longer than {_START:,} bytes.")
        for parameter, name, value in _ENTITY.findall(start):
            shown = name[:50].decode(errors="replace")
            if parameter or _NESTED.search(value):
                raise DataError(
                    f"{self._path}: the entity {shown!r} refers to others; expected plain text: "
                    "a few such entities can stand for gigabytes."
                )
            if len(value) > LONGEST:
                raise DataError(
                    f"{self._path}: the entity {shown!r} has {len(value):,} bytes; expected at "
                    f"most {LONGEST:,}."
                )
        return start

    def _count(self, block: bytes) -> None:
        """Counts how many elements are open; approximately, as text may look like their ends."""
        text = self._last + block
        self._last = text[-1:]
        body = text[:-1] if block else text  # a mark of two bytes may continue in the next block
        pairs = {mark: text.count(mark) for mark in (b"</", b"<!", b"<?", b"/>")}
        opened = body.count(b"<") - pairs[b"</"] - pairs[b"<!"] - pairs[b"<?"]
        self._depth = max(self._depth + opened - pairs[b"</"] - pairs[b"/>"], 0)
        if self._depth > DEEPEST:
            raise DataError(f"{self._path}: more than {DEEPEST:,} elements within each other.")
