"""What all readers share: options, report, suffixes, streams, and collecting batches."""

from __future__ import annotations

import lzma
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pathe.core.errors import DataError, lacks_memory
from pathe.core.files import check_new_folder, check_place
from pathe.core.types import PARTS, Fact, chunks, is_fact
from pathe.data.compressed import open_compressed
from pathe.data.room import Room

TEXT = {".tsv": "\t", ".txt": "\t", ".csv": ","}
RDF = {
    ".nt": "N_TRIPLES", ".nq": "N_QUADS", ".ttl": "TURTLE", ".trig": "TRIG", ".n3": "N3",
    ".rdf": "RDF_XML", ".owl": "RDF_XML", ".xml": "RDF_XML",
}  # fmt: skip
WRITABLE_RDF = (".nt", ".ttl")
SPARQL = "sparql:"  # before the address of an endpoint
BOLT = ("bolt://", "bolt+s://", "bolt+ssc://", "neo4j://", "neo4j+s://", "neo4j+ssc://")
EXAMPLES = ("europe", "films")  # graphs in the package, by name
_EXAMPLES = Path(__file__).parent / "examples"
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
_SUFFIXES = (*TEXT, ".parquet", *RDF)
READABLE = f"{', '.join(_SUFFIXES)}; all but .parquet also with {', '.join(COMPRESSIONS)}"

# Column names that mark a first row as a header, in lower case; letters only in these pairs.
_HEAD = ("head", "subject", "subj", "source", "src", "from")
_TAIL = ("tail", "object", "obj", "target", "destination", "dest", "dst", "to")
_LETTERS = (("h", "t"), ("s", "o"))
_RELATION = ("relation", "rel", "r", "predicate", "pred", "p", "property", "edge", "type", "label")

_BATCH = 1 << 16  # rows per batch of the readers in Python,
_BATCH_BYTES = 64 << 20  # and bytes of its names: a prefix may be long
_LOOK = 64  # rows between looks at the bytes
_UNIFY_AT = 1 << 22  # new names after which dictionaries are merged
BROKEN = (OSError, EOFError, lzma.LZMAError, pa.ArrowException)
SKIP_HINT = "Correct it, or skip such lines with --on-error skip."


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file; `columns` are positions from 1, or names in the header."""

    columns: tuple[str, str, str] | None = None
    header: bool | None = None
    delimiter: str | None = None
    on_error: Literal["raise", "skip"] = "raise"
    language: str | None = None  # of labels: tags in order of preference, as in "de,en"
    prefixes: tuple[tuple[str, str], ...] = ()  # more prefixes of IRIs: (prefix, IRI)
    base_iri: str | None = None  # IRIs that start with it stand for plain names
    sparql_query: Path | None = None  # a file with a CONSTRUCT or SELECT query

    def reject(self, names: Sequence[str], where: str) -> None:
        """Raises DataError if one of these options is set: this data has no use for it."""
        for name in names:
            if getattr(self, name) is not None:
                option = name.replace("_", "-")
                raise DataError(f"{where}: --{option} doesn't apply to it. Drop the option.")


@dataclass
class ReadReport:
    """Counts of what was read and left out, notes for the user, and prefixes and labels."""

    rows: int = 0
    duplicates: int = 0
    literals: int = 0
    quoted: int = 0  # triples about triples, as in RDF-star
    skipped: int = 0
    unknown_relations: int = 0
    notes: list[str] = field(default_factory=list)
    first_skipped: str = ""
    odd_first_rows: dict[Path, Fact] = field(default_factory=dict)  # they may be headers
    prefixes: list[tuple[str, str]] = field(default_factory=list)
    n_labels: int = 0
    # both until the graph is built: the label that is shown, and all as (name, label)
    labels: dict[str, tuple[Any, str]] = field(default_factory=dict)
    all_labels: set[tuple[str, str]] = field(default_factory=set)

    def add_label(self, name: str, order: Any, label: str, *, shown: bool = True) -> None:
        """Keeps a name's label; the first of those `shown` in the given order is shown."""
        if label:
            self.all_labels.add((name, label))
        if label and shown:
            self.labels[name] = min(self.labels.get(name, (order, label)), (order, label))
            self.n_labels = len(self.labels)

    def skip(self, problem: str, options: ReadOptions, n: int = 1) -> None:
        """Counts n bad lines; raises DataError unless the options say to skip them."""
        if options.on_error == "raise":
            raise DataError(f"{problem} {SKIP_HINT}")
        self.skipped += n
        self.first_skipped = self.first_skipped or problem


def split_suffix(path: Path) -> tuple[str, str, str]:
    """Splits `a.b.tsv.gz` into ("a.b", ".tsv", ".gz"); a missing or unknown suffix is ""."""
    name, compression = path.name, ""
    if path.suffix.lower() in COMPRESSIONS:
        name, compression = path.stem, path.suffix.lower()
    suffix = Path(name).suffix
    if suffix.lower() not in _SUFFIXES:
        return name, "", compression
    return name[: -len(suffix)], suffix.lower(), compression


def is_store(data: str | Path) -> bool:
    """Whether this is the address of a SPARQL endpoint or of a Neo4j server."""
    return str(data).startswith((SPARQL, *BOLT))


def existing_path(data: str | Path) -> Path | None:
    """Returns the path if it exists, or that of an example graph of the package.

    None if `data` is an address or the name of another data set.
    """
    if is_store(data):
        return None
    try:
        path = Path(data).expanduser()
        if path.exists():
            return path
    except (RuntimeError, OSError, ValueError) as error:  # ~nobody, a name too long, a zero byte
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{str(data)[:200]}: not a path that can be read ({why})") from None
    if os.sep in str(data) or split_suffix(path)[1]:
        raise DataError(f"{data}: no such file or folder")
    return _EXAMPLES / f"{data}.csv" if str(data) in EXAMPLES else None


def writable_suffix(path: Path) -> tuple[str, str]:
    """Returns (suffix, compression) of a file to write; DataError for other formats."""
    _, suffix, compression = split_suffix(path)
    text = (*TEXT, *WRITABLE_RDF)
    if suffix not in (*text, ".parquet") or (suffix == ".parquet" and compression):
        raise DataError(
            f"{path}: expected a name that ends in {', '.join(text)} (also with "
            f"{', '.join(COMPRESSIONS)}) or .parquet"
        )
    return suffix, compression


def check_target(target: Path, suffix: str | None) -> str:
    """Checks that `target` can be written; returns its files' suffix, "" for a single file."""
    if split_suffix(target)[1] and not target.is_dir():
        if suffix is not None:
            raise DataError(f"{target}: --suffix is for the files of a folder; this names a file.")
        if target.exists():
            raise DataError(f"{target}: expected a new file or folder, but it exists.")
        writable_suffix(target)
        check_place(target)
        return ""
    suffix = f".{(suffix or 'txt').removeprefix('.')}"
    writable_suffix(target / f"train{suffix}")
    check_new_folder(target)
    return suffix


def check_fractions(fractions: Sequence[float]) -> None:
    """Raises DataError unless these are three shares: of train, valid and test."""
    if not isinstance(fractions, tuple | list) or not all(isinstance(f, Real) for f in fractions):
        raise DataError(f"split: expected a tuple of floats, as (0.8, 0.1, 0.1); got {fractions!r}")
    ok = len(fractions) == 3 and all(f >= 0 for f in fractions) and fractions[0] > 0
    if not ok or abs(sum(fractions) - 1) > 1e-6:
        raise DataError(
            "split: expected three numbers that sum to 1, none negative and the first above 0, "
            f"as in 0.8,0.1,0.1; got {','.join(str(f) for f in fractions)}"
        )


@contextmanager
def reading(path: Path, where: Callable[[], str] = str) -> Iterator[None]:
    """Raises DataError if the file's bytes can't be read; `where` adds to the message."""
    try:
        yield
    except PermissionError as error:
        raise DataError(f"{path}: can't be read (no permission).") from error
    except BROKEN as error:
        if lacks_memory(error):
            raise
        raise DataError(
            f"{path}: can't be read{where()} ({error}). "
            "The file is truncated or corrupt: download or write it again."
        ) from error


def collect_rows(rows: Iterable[Sequence[bytes | str]]) -> Any:
    """Returns a table of (head, relation, tail) rows."""
    return collect(checked(row_batches(rows)))


def row_batches(rows: Iterable[Sequence[bytes | str]]) -> Iterator[list[Any]]:
    """Yields batches of three arrays from (head, relation, tail) rows."""
    # Flat, as a list of row objects would keep the garbage collector busy.
    flat: list[bytes | str] = []
    size = 0
    for cells in chunks(chain.from_iterable(rows), 3 * _LOOK):
        flat += cells
        size += sum(map(len, cells))
        if len(flat) >= 3 * _BATCH or size > _BATCH_BYTES:
            yield _columns(flat)
            flat, size = [], 0
    if flat:
        yield _columns(flat)


def _columns(flat: list[bytes | str]) -> list[Any]:
    return [pa.array(flat[k::3], pa.large_binary()) for k in range(3)]


def checked(
    batches: Iterable[list[Any]], skip: Callable[[int, int], None] | None = None
) -> Iterator[list[Any]]:
    """Yields batches of three arrays as dictionary columns of good names.

    Bad rows call `skip(row, count)` and are left out, or raise ArrowInvalid.
    """
    n_rows = 0
    for batch in batches:
        columns = [c.cast(pa.large_binary()).dictionary_encode() for c in batch]
        bad = _bad_rows(columns)
        if bad is not None:
            first = n_rows + pc.index(bad, True).as_py()
            if skip is None:
                raise pa.ArrowInvalid(f"row {first + 1}: a name is empty or not in UTF-8")
            skip(first, pc.sum(bad).as_py())
            # Encode again, as a dictionary must not keep names that no row uses.
            good = pc.invert(bad)
            columns = [c.dictionary_decode().filter(good).dictionary_encode() for c in columns]
        n_rows += len(batch[0])
        yield [
            pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(pa.large_string()))
            for c in columns
        ]


def collect(batches: Iterable[list[Any]], room: Room | None = None) -> Any:
    """Joins batches of three dictionary columns to one table, if there is `room` for it."""
    parts: list[list[Any]] = [[], [], []]
    pending, base = [0, 0, 0], [0, 0, 0]
    for columns in batches:
        if room is not None:
            room.check()
        for k, column in enumerate(columns):
            parts[k].append(column)
            pending[k] += len(column.dictionary)
            # Merging only when new names outnumber the merged ones keeps the memory close to
            # that of the distinct names, and the total cost linear.
            if pending[k] > max(_UNIFY_AT, base[k]):
                parts[k] = [unify(parts[k])]
                pending[k], base[k] = 0, len(parts[k][0].dictionary)
    kind = pa.dictionary(pa.int32(), pa.large_string())
    arrays = [unify(p) if p else pa.array([], kind) for p in parts]
    return pa.table(arrays, names=PARTS)


def unify(parts: list[Any]) -> Any:
    """Concatenates dictionary arrays; the result has one dictionary."""
    whole = pa.chunked_array(parts).unify_dictionaries().combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _bad_rows(columns: list[Any]) -> Any:
    """Returns a mask of rows with an empty or non-UTF-8 name, or None if there are none."""
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
    """Whether these bytes are UTF-8."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def open_stream(path: Path) -> Any:
    """Opens the file as a pa.NativeFile of its decompressed bytes."""
    _, _, compression = split_suffix(path)
    if compression:
        return open_compressed(path, COMPRESSIONS[compression])
    return pa.input_stream(str(path), compression=None)


def known_header(names: list[str]) -> tuple[int, int, int] | None:
    """Returns the positions of head, relation and tail if these are common column names."""
    lower = [n.lower() for n in names]
    relation = next((lower.index(r) for r in _RELATION if r in lower), None)
    words = ((h, t) for h in _HEAD for t in _TAIL)
    ends = next(((h, t) for h, t in (*words, *_LETTERS) if h in lower and t in lower), None)
    if relation is None or ends is None:
        return None
    return lower.index(ends[0]), relation, lower.index(ends[1])


def left_out_note(path: Path, names: list[str], picks: tuple[int, ...]) -> str:
    """Says which columns were read as head, relation and tail, and which were left out."""
    read = ", ".join(f"{names[i]} as {role}" for i, role in zip(picks, PARTS, strict=True))
    others = ", ".join(name for i, name in enumerate(names) if i not in picks)
    return f"columns of {path}: read {read}; left out {others}"


def positions(path: Path, wanted: tuple[str, str, str], names: list[str]) -> tuple[int, ...]:
    """Returns the positions of the wanted columns among the file's column names."""
    missing = [w for w in wanted if w not in names]
    if missing or len(set(wanted)) < 3:
        problem = f"no column {missing[0]!r}" if missing else "the same column twice"
        raise DataError(f"{path}: {problem} for --columns {','.join(wanted)}; it has {names}")
    return tuple(names.index(w) for w in wanted)


def coded_table(columns: Iterable[tuple[npt.NDArray[Any], Any]]) -> Any:
    """Returns a table from the (ids, names) of each column, without names that no id uses."""
    arrays = []
    for ids, names in columns:
        used, indices = np.unique(ids, return_inverse=True)
        codes = pa.array(indices.astype(np.int32))
        arrays.append(pa.DictionaryArray.from_arrays(codes, names.take(pa.array(used))))
    return pa.table(arrays, names=PARTS)


def named_table(rows: list[tuple[str, str, str]], where: str) -> Any:
    """Returns a table of dictionary columns from (head, relation, tail) names."""
    for i, row in enumerate(rows, 1):
        if not is_fact(row):
            raise DataError(
                f"{where}, triple {i}: expected three names, head, relation and tail; got {row!r}."
            )
    columns = [pa.array([row[k] for row in rows], pa.large_string()) for k in range(3)]
    return pa.table([column.dictionary_encode() for column in columns], names=PARTS)


def text_array(names: list[str]) -> Any:
    """Returns names as a pa.LargeStringArray, without pandas, which pa.array would import."""
    encoded = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(names), buffers)


def id_array(ids: npt.NDArray[np.int64]) -> Any:
    """Returns ids as a pa.Int64Array, without pandas."""
    values = np.ascontiguousarray(ids, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def numbers(array: Any, kind: type[np.generic]) -> npt.NDArray[Any]:
    """Returns a view of a primitive array's values, without pandas; nulls are undefined."""
    if not len(array):
        return np.empty(0, kind)
    start = np.dtype(kind).itemsize * array.offset
    return np.frombuffer(array.buffers()[1], kind, len(array), start)
