"""Checkpoints with a digest: a damaged one is refused instead of trained on."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
from pathlib import Path
from typing import Any

import torch

from pathe.core.errors import ModelError, PatheError
from pathe.core.files import FULL, replacing

MARK = b"sha256:"  # starts the comment at the end of the file, which torch writes as a ZIP archive
COMMENT = len(MARK) + 64
END, END_SIZE = b"PK\x05\x06", 22  # the last record of a ZIP archive without a comment
UNREADABLE = (
    RuntimeError, EOFError, pickle.UnpicklingError, KeyError, ValueError, TypeError, IndexError,
    AttributeError, UnicodeDecodeError, OverflowError,
)  # fmt: skip


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Writes a checkpoint atomically, with the digest of its contents."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    raw = buffer.getvalue()
    raw = raw[:-2] + struct.pack("<H", COMMENT)  # torch leaves the comment empty
    before = "is intact" if path.exists() else "doesn't exist yet"
    try:
        with replacing(path) as aside:
            aside.write_bytes(raw + _comment(raw))
    except PatheError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in FULL:
            raise
        raise PatheError(
            f"{path}: the disk is full ({cause.strerror}): {len(raw):,} bytes are needed. The "
            f"checkpoint saved before {before}. Free some space, then go on with --resume."
        ) from cause


def read_checkpoint(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """Reads a checkpoint; raises ModelError unless it is as it was written."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}.") from None
    is_whole = raw[-COMMENT:] == _comment(raw[:-COMMENT])
    is_older = raw[-END_SIZE:][:4] == END and raw[-2:] == b"\0\0"  # written without a digest
    if not is_whole and not is_older:
        raise ModelError(f"{path}: {_damaged()}")
    try:
        state = torch.load(io.BytesIO(raw), map_location=map_location, weights_only=True)
    except UNREADABLE as error:
        raise ModelError(f"{path}: {_damaged()} ({str(error)[:200]})") from error
    if not isinstance(state, dict):
        raise ModelError(f"{path}: {_damaged()}")
    return state


def _comment(raw: bytes) -> bytes:
    return MARK + hashlib.sha256(raw).hexdigest().encode()


def _damaged() -> str:
    return (
        "can't resume: differs from the checkpoint that was saved: truncated, modified, or not "
        "written by PathE. Restore it from a copy, or start again in another folder."
    )
