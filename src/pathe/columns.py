"""What every reader shares: options, report, suffixes, streams, and batches -> columns."""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pathe.errors import DataError

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

# Fields that mark a first row as a header; lower case.
_HEAD_AND_TAIL = (
    ("head", "tail"),
    ("h", "t"),
    ("subject", "object"),
    ("subj", "obj"),
    ("s", "o"),
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
)
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


@dataclass
class ReadReport:
    """What reading met: counts, and the first line that was skipped."""

    rows: int = 0
    duplicates: int = 0
    literals: int = 0
    skipped: int = 0
    header_lines: int = 0
    unknown_relations: int = 0
    first_skipped: str = ""

    def __add__(self, other: ReadReport) -> ReadReport:
        total = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)[:-1]}
        return ReadReport(**total, first_skipped=self.first_skipped or other.first_skipped)


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
        wrong = pc.equal(pc.binary_length(names), 0)
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
    ends = next(((h, t) for h, t in _HEAD_AND_TAIL if h in lower and t in lower), None)
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
