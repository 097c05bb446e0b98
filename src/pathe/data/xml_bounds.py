"""Bounds of RDF/XML that keep a small file from taking all memory or hours."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from pathe.core.errors import DataError

DEEPEST = 1000  # elements within each other; RDF/XML needs a few
LONGEST = 10_000  # bytes of an entity's value, an abbreviation of IRIs as a rule
EXPANSION = 20  # bytes that entities may stand for, per byte read so far,
ALWAYS = 1 << 20  # and bytes that they may stand for anyway
_LONGEST_NAME = 100  # bytes of an entity's name
ATTRIBUTES = 10_000  # of an element: the parser compares each with all others
_DOCTYPE = 1 << 20  # bytes that a document type may take
_BLOCK = 1 << 16
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how a file in UTF-16 begins
_START = 9  # bytes that say what a token is: <![CDATA[

# Tokens that end in the same block: comments and the like, end tags, start tags. Others are cut.
_TOKEN = re.compile(
    rb"(<!--.*?-->|<!\[.*?\]\]>|<\?.*?\?>)|(</[^>\"']*>)"
    rb"|(<[^!?/>\"'][^>\"']*(?:\"[^\"]*\"[^>\"']*|'[^']*'[^>\"']*)*>)|(<)",
    re.DOTALL,
)
_END, _TAG, _CUT = 2, 3, 4  # groups
_SLASH = ord("/")
_IN_TAG = re.compile(rb"[>\"']")
_ENDS = {b"<!--": b"-->", b"<![": b"]]>", b"<?": b"?>"}  # of tokens that are skipped
_ENTITY = re.compile(
    r"<!ENTITY[ \t\r\n]+(%[ \t\r\n]+)?([\w.:-]+)[ \t\r\n]+"
    r"(\"[^\"<]*\"|'[^'<]*'|SYSTEM\b|PUBLIC\b)"
)
_NESTED = re.compile(r"&(?!#|amp;|lt;|gt;|quot;|apos;)|%")
_REFERENCE = re.compile(rb"&([^&;]{1,%d});" % _LONGEST_NAME)
_MARKUP = re.compile(
    rb"<!--(?:.*?-->|.*)|<\?(?:.*?\?>|.*)|\"[^\"]*\"?|'[^']*'?|[<>]", re.DOTALL
)  # of a document type


class BoundedXml(io.RawIOBase):
    """A stream of XML; ends with an error at entities and elements beyond the bounds.

    Entities may not refer to others, be long, or stand for much more than the file has; elements
    may not be deep. Tokens are those of the parser that reads the stream.
    """

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream, self._path = stream, path
        self._tail = b""  # of the last block: it may begin a token, or its end
        self._until = b""  # the end of the token that was cut; > is that of a tag
        self._closes = False  # whether that is an end tag
        self._quotes = 0  # in it
        self._doctype, self._level = b"", 0
        self._depth = self._read = self._expanded = 0
        self._entities: dict[bytes, int] = {}
        self._reference = b""  # that may continue in the next block

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(_BLOCK), b""))
        block: bytes = self._stream.read(size)
        if not self._read and block.startswith(_UTF_16):
            raise DataError(f"{self._path}: is in UTF-16; expected UTF-8. Convert it.")
        self._read += len(block)
        self._scan(self._tail + block)
        self._charge(block)
        return block

    def _scan(self, text: bytes) -> None:
        """Follows the tokens of the next block, counting how many elements are open."""
        self._tail, at = b"", 0
        while at < len(text):
            if self._level:
                at = self._read_doctype(text, at)
            elif self._until:
                at = self._finish(text, at)
            else:
                at = self._read_tokens(text, at)

    def _read_tokens(self, text: bytes, at: int) -> int:
        """Reads tokens up to the first that is cut; returns where to go on."""
        depth = self._depth
        for found in _TOKEN.finditer(text, at):
            kind = found.lastindex
            if kind == _TAG:
                if text[found.end() - 2] != _SLASH:
                    depth = self._deeper(depth)
            elif kind == _END:
                depth = max(depth - 1, 0)
            elif kind == _CUT:
                self._depth = depth
                return self._begin(text, found.start())
        self._depth = depth
        return len(text)

    def _begin(self, text: bytes, at: int) -> int:
        """Begins a token that has no end in this block; returns where to go on."""
        start = text[at : at + _START]
        if len(start) < _START:
            self._tail = start
            return len(text)
        if start[:3] in (b"<!D", b"<!d"):
            self._doctype, self._level = b"<", 1
            return at + 1
        for mark, end in _ENDS.items():
            if start.startswith(mark):
                self._until = end
                return at + len(mark)
        self._until, self._closes, self._quotes = b">", start.startswith(b"</"), 0
        return at + 1

    def _finish(self, text: bytes, at: int) -> int:
        """Looks for the end of a token; returns where to go on."""
        if self._until != b">":
            end = text.find(self._until, at)
            if end < 0:
                self._tail = text[max(at, len(text) - len(self._until) + 1) :]
                return len(text)
            end += len(self._until)
            self._until = b">" if self._until in (b'"', b"'") else b""
            return end
        found = _IN_TAG.search(text, at)
        if found is None:
            self._tail = text[max(at, len(text) - 1) :]
            return len(text)
        if found[0] != b">":
            if self._closes:
                raise self._error("an end tag with a quote")
            self._until, self._quotes = found[0], self._quotes + 1
            if self._quotes > ATTRIBUTES:
                raise self._error(f"an element with more than {ATTRIBUTES:,} attributes")
            return found.end()
        self._until = b""
        if self._closes:
            self._depth = max(self._depth - 1, 0)
        elif text[at : found.end()][-2:-1] != b"/":
            self._depth = self._deeper(self._depth)
        return found.end()

    def _deeper(self, depth: int) -> int:
        if depth >= DEEPEST:
            raise self._error(f"more than {DEEPEST:,} elements within each other")
        return depth + 1

    def _read_doctype(self, text: bytes, at: int) -> int:
        """Reads a document type up to the > of its first <; returns where to go on."""
        end = len(text)
        for found in re.finditer(b"[<>]", text[at:]):
            self._level += 1 if found[0] == b"<" else -1
            if not self._level:
                end = at + found.end()
                break
        self._doctype += text[at:end]
        if len(self._doctype) > _DOCTYPE:
            raise self._error(f"a document type of more than {_DOCTYPE:,} bytes")
        if not self._level:
            self._check_doctype(self._doctype)
            self._doctype = b""
        return end

    def _check_doctype(self, raw: bytes) -> None:
        """Checks the entities of a document type, and that it is no longer than it seems."""
        level = 0
        for found in _MARKUP.finditer(raw):
            level += {b"<": 1, b">": -1}.get(found[0], 0)
            if not level and found.end() < len(raw):
                break
        if level or found.end() < len(raw):
            raise DataError(  # the parser can't read these, either
                f"{self._path}: a document type with < or > in a comment or a value. Remove it "
                "from the document type."
            )
        text = raw.decode(errors="replace")
        for start in re.finditer("<!ENTITY", text):
            entity = _ENTITY.match(text, start.start())
            if entity is None:
                raise self._error('an entity that isn\'t declared as <!ENTITY name "text">')
            self._check_entity(*entity.groups())

    def _check_entity(self, parameter: str | None, name: str, value: str) -> None:
        shown, n_bytes = name[:50], len(value.encode()) - 2
        if parameter or _NESTED.search(value):
            raise DataError(
                f"{self._path}: the entity {shown!r} refers to others; expected plain text: "
                "a few such entities can stand for gigabytes."
            )
        if n_bytes > LONGEST:
            raise DataError(
                f"{self._path}: the entity {shown!r} has {n_bytes:,} bytes; expected at "
                f"most {LONGEST:,}."
            )
        key = name.encode()
        if len(key) > _LONGEST_NAME:
            raise self._error(f"an entity whose name has more than {_LONGEST_NAME} bytes")
        self._entities[key] = max(n_bytes, self._entities.get(key, 0))

    def _charge(self, block: bytes) -> None:
        """Adds up what the entities in a block stand for."""
        if not self._entities:
            return
        text = self._reference + block
        n_bytes = self._entities.get
        self._expanded += sum(n_bytes(name, 0) for name in _REFERENCE.findall(text))
        rest = text[max(text.rfind(b"&"), 0) :]
        cut = rest[:1] == b"&" and b";" not in rest and len(rest) <= _LONGEST_NAME
        self._reference = rest if cut else b""
        if self._expanded > ALWAYS + EXPANSION * self._read:
            raise self._error(f"entities that stand for more than {EXPANSION} times its size")

    def _error(self, what: str) -> DataError:
        return DataError(f"{self._path}: {what}. Such files can take all memory or hours.")
