"""Streams of a file's decompressed bytes: all of them or an error, and bounded in size."""

from __future__ import annotations

import io
import lzma
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from pathe.core.errors import DataError
from pathe.data.room import Room

MOST = "PATHE_MAX_EXPANSION"  # the environment variable that lifts the bound
EXPANSION = 200  # times its compressed size that a file may have,
ALWAYS = 1 << 30  # and bytes that it may have anyway
_BLOCK = 1 << 20
_LOOK = 16 << 20  # bytes between looks at the memory
_PADDING = 4  # .xz streams may be followed by zeros, a multiple of these bytes


def open_compressed(path: Path, compression: str) -> Any:
    """Opens a compressed file (gzip, zstd, bz2 or xz) as a pa.NativeFile of its contents."""
    if compression == "xz":
        inner: Any = XzFile(path)
    else:
        inner = pa.input_stream(str(path), compression=compression)
    return pa.PythonFile(Bounded(inner, path), mode="r")


class XzFile(io.RawIOBase):
    """Reads .xz files of one or several streams.

    Python's own reader takes anything after the first stream that isn't one for padding, and loses
    it without a word.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._decoder: lzma.LZMADecompressor | None = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        self._raw = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(_BLOCK), b""))
        while size:
            if self._decoder is None and not self._starts_again():
                return b""
            assert self._decoder is not None
            if self._decoder.needs_input and not self._raw:
                self._raw = self._file.read(_BLOCK)
                if not self._raw:
                    raise EOFError("the last .xz stream has no end")
            block = self._decoder.decompress(self._raw, size)
            self._raw = b""
            if self._decoder.eof:
                self._raw, self._decoder = self._decoder.unused_data, None
            if block:
                return block
        return b""

    def _starts_again(self) -> bool:
        """Skips padding; returns whether there is another stream."""
        n_zeros = 0
        while True:
            rest = self._raw.lstrip(b"\0")
            n_zeros += len(self._raw) - len(rest)
            if rest:
                break
            self._raw = self._file.read(_BLOCK)
            if not self._raw:
                break
        if n_zeros % _PADDING:
            raise lzma.LZMAError("expected a multiple of four zeros between .xz streams")
        self._raw = rest
        if not rest:
            return False
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


class Bounded(io.RawIOBase):
    """Ends with an error where a file is much larger than its compressed size allows for.

    Or before what is made of it fills the memory.
    """

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream, self._path, self._n = stream, path, 0
        self._room, self._checked = Room(path), 0
        self._expansion = _expansion()
        self._most = max(ALWAYS, int(self._expansion * path.stat().st_size))

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(_BLOCK), b""))
        block: bytes = self._stream.read(size)
        self._n += len(block)
        if self._n > self._most:
            raise DataError(
                f"{self._path}: more than {self._most:,} bytes when decompressed, over "
                f"{self._expansion:g} times its size. This may be a decompression bomb. To read "
                f"it anyway, raise the limit with the environment variable {MOST}."
            )
        if self._n - self._checked > _LOOK:
            self._checked = self._n
            self._room.check()
        return block

    def close(self) -> None:
        self._stream.close()
        super().close()


def _expansion() -> float:
    text = os.environ.get(MOST, str(EXPANSION))
    try:
        return max(float(text), 1.0)
    except ValueError:
        raise DataError(f"{MOST}: expected a number; got {text!r}.") from None
