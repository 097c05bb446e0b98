"""Files of triples -> sorted vocabularies and triples on disk, in bounded memory.

Each file is read once. A chunk of its rows becomes a run: the chunk's sorted names, and its rows as
ids among these. Merging the runs' names gives every name its id in the graph.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from pathe.core.errors import DataError
from pathe.core.files import write_json
from pathe.core.types import Progress
from pathe.data.array_files import (
    array_writer,
    mapped,
    mapped_text,
    text_writer,
    write_array,
)
from pathe.data.columns import ReadOptions, ReadReport, text_array, unify
from pathe.data.external_sort import (
    NAMES,
    Keys,
    Rows,
    choose_pivots,
    ids_file,
    in_buckets,
    merge_names,
    sampled,
)
from pathe.data.name_order import sorted_codes
from pathe.data.readers import read_batches
from pathe.data.triples import unique_triples

CHUNK = 1 << 20  # rows of a run
CHUNK_BYTES = 128 << 20  # bytes of the names of a chunk's batches
LABELS = 1 << 18  # labels that are kept before they are written
_COUNTED = ("rows", "literals", "skipped", "unknown_relations")


@dataclass(frozen=True)
class Part:
    """A file of a split, and where its runs go; `number` counts all files."""

    number: int
    split: str
    path: Path
    work: Path

    @property
    def about(self) -> Path:
        """The file that says that the part is done, and what was read."""
        return self.work / f"{self.number:05}.json"

    def run(self, k: int) -> Path:
        """Returns the start of the names of a run's files."""
        return self.work / f"{self.number:05}-{k:05}"

    def runs(self) -> list[Path]:
        """Returns the runs of a part that is done."""
        n = json.loads(self.about.read_text(encoding="utf-8"))["runs"]
        return [self.run(k) for k in range(n)]


def file_stamp(path: Path) -> list[int]:
    """Returns numbers that differ once a file has been changed."""
    return [path.stat().st_size, path.stat().st_mtime_ns]


def changed_meanwhile(data: Path | str) -> DataError:
    """Returns the error for data that has changed while it was read."""
    return DataError(f"{data}: has changed while it was read. Run the command again.")


def read_part(part: Part, options: ReadOptions, known: Any | None) -> None:
    """Reads a file into runs, unless that is done; drops rows whose relation isn't in `known`."""
    stamp = file_stamp(part.path)
    if part.about.exists():
        if json.loads(part.about.read_text(encoding="utf-8"))["stamp"] != stamp:
            raise DataError(
                f"{part.path}: has changed since it was read. Delete the folder to begin again."
            )
        return
    report, labels, n_runs = ReadReport(), _LabelRuns(part), 0
    for batches in _chunks(read_batches(part.path, options, report)):
        labels.take(report)
        if known is not None:
            batches = [_with_known(columns, known, report) for columns in batches]
        if any(len(columns[0]) for columns in batches):
            _write_run(part.run(n_runs), batches)
            n_runs += 1
    labels.take(report, last=True)
    if file_stamp(part.path) != stamp:
        raise changed_meanwhile(part.path)
    if not n_runs:
        raise DataError(f"{part.path}: no triple in it has a training relation.")
    about: dict[str, Any] = {name: getattr(report, name) for name in _COUNTED}
    about["stamp"] = stamp
    about |= {"notes": report.notes, "first_skipped": report.first_skipped}
    about |= {"prefixes": report.prefixes, "runs": n_runs, "label_runs": labels.n_runs}
    write_json(part.about, about)


def _chunks(batches: Iterator[list[Any]]) -> Iterator[list[list[Any]]]:
    """Yields lists of batches that have about CHUNK rows together."""
    pending: list[list[Any]] = []
    n_rows = n_bytes = 0
    for columns in batches:
        for start in range(0, len(columns[0]), CHUNK):
            pending.append([column[start : start + CHUNK] for column in columns])
            n_rows += len(pending[-1][0])
            n_bytes += sum(column.dictionary.nbytes for column in columns)
            if n_rows >= CHUNK or n_bytes >= CHUNK_BYTES:
                yield pending
                pending, n_rows, n_bytes = [], 0, 0
    if pending:
        yield pending


def _with_known(columns: list[Any], known: Any, report: ReadReport) -> list[Any]:
    """Returns the rows with known relations; counts the others."""
    good = pc.is_in(columns[1].dictionary, value_set=known).take(columns[1].indices)
    n_dropped = len(good) - pc.sum(good.cast(pa.int64())).as_py()
    if not n_dropped:
        return columns
    report.unknown_relations += n_dropped
    return [c.dictionary_decode().filter(good).dictionary_encode() for c in columns]


def _write_run(stem: Path, batches: list[list[Any]]) -> None:
    """Writes a chunk's sorted entities and relations, and its rows as ids among these."""
    heads, relations, tails = zip(*batches, strict=True)
    n = sum(map(len, heads))
    entity_ids, entity_names = sorted_codes(unify([*heads, *tails]))
    relation_ids, relation_names = sorted_codes(unify(list(relations)))
    rows = np.stack([entity_ids[:n], relation_ids, entity_ids[n:]], 1)
    for kind, names in (("entities", entity_names), ("relations", relation_names)):
        with text_writer(names_of_run(stem, kind)) as append:
            append(names)
    write_array(_rows_of_run(stem), rows.astype(np.int32))


def names_of_run(run: Path, kind: str) -> Path:
    """Returns the start of the names of the files with a run's names."""
    return run.with_name(f"{run.name}-{kind}")


def _rows_of_run(run: Path) -> Path:
    return run.with_name(f"{run.name}-rows.npy")


class _LabelRuns:
    """Writes a part's labels before there are too many to keep."""

    def __init__(self, part: Part) -> None:
        self.part, self.n_runs = part, 0

    def take(self, report: ReadReport, last: bool = False) -> None:
        """Takes the labels out of the report if there are many, or for the last time."""
        if not report.labels or (len(report.labels) < LABELS and not last):
            return
        values = list(report.labels.values())
        table = {
            "name": text_array(list(report.labels)),
            "language": pa.array([order[0] for order, _ in values], pa.int64()),
            "kind": pa.array([order[1] for order, _ in values], pa.int64()),
            "label": text_array([label for _, label in values]),
        }
        path = label_file(self.part, self.n_runs)
        with pa.OSFile(str(path), "wb") as sink:
            batch = pa.record_batch(table)
            with pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)
        self.n_runs += 1
        report.labels = {}


def label_file(part: Part, k: int) -> Path:
    """Returns the file of a part's labels, from the k-th time that they were written."""
    return part.work / f"{part.number:05}-{k:05}-labels.arrow"


def joined_report(parts: list[Part]) -> ReadReport:
    """Returns one report of all parts."""
    whole = ReadReport()
    for part in parts:
        about = json.loads(part.about.read_text(encoding="utf-8"))
        for name in _COUNTED:
            setattr(whole, name, getattr(whole, name) + about[name])
        whole.notes += about["notes"]
        whole.first_skipped = whole.first_skipped or about["first_skipped"]
        whole.prefixes += [(prefix, iri) for prefix, iri in about["prefixes"]]
    return whole


def joined_labels(parts: list[Part], known: list[Any]) -> tuple[Any, Any, int]:
    """Returns the sorted names in `known` that have labels, the best label of each.

    Also returns how many names have labels, known or not. `known` are sorted arrays.
    """
    tables = []
    for part in parts:
        about = json.loads(part.about.read_text(encoding="utf-8"))
        for k in range(about["label_runs"]):
            with pa.memory_map(str(label_file(part, k))) as source:
                tables.append(pa.ipc.open_file(source).read_all())
    if not tables:
        return text_array([]), text_array([]), 0
    table = pa.concat_tables(tables)
    keys = [(name, "ascending") for name in ("name", "language", "kind", "label")]
    table = table.take(pc.sort_indices(table, keys)).combine_chunks()
    names, labels = (_one_chunk(table.column(column)) for column in ("name", "label"))
    first = np.ones(len(names), np.bool_)
    first[1:] = pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)
    names, labels = (array.filter(pa.array(first)) for array in (names, labels))
    found = _in_sorted(names, known[0])
    for array in known[1:]:
        found = pc.or_(found, _in_sorted(names, array))
    return names.filter(found), labels.filter(found), len(names)


def _one_chunk(column: Any) -> Any:
    """Returns a table's column as one array."""
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _in_sorted(names: Any, array: Any) -> Any:
    """Whether each of some sorted names is in a sorted array, which is looked at in pieces."""
    found, start = [], 0
    for piece in (array[i : i + NAMES] for i in range(0, len(array), NAMES)):
        last = piece[len(piece) - 1].as_py()
        end = bisect_right(range(len(names)), last, lo=start, key=lambda i: names[i].as_py())
        found.append(pc.is_in(names[start:end], value_set=piece))
        start = end
    found.append(pa.array(np.zeros(len(names) - start, np.bool_)))
    return pa.concat_arrays(found)


def merge_vocabularies(parts: list[Part], folder: Path, progress: Progress) -> None:
    """Writes the entities and relations of all parts."""
    runs = [run for part in parts for run in part.runs()]
    merge_names([names_of_run(run, "relations") for run in runs], folder / "relations", progress)
    merge_names([names_of_run(run, "entities") for run in runs], folder / "entities", progress)


def sort_split(parts: list[Part], folder: Path, split: str, progress: Progress) -> int:
    """Writes the sorted unique triples of a split; returns the number of duplicates."""
    runs = [run for part in parts if part.split == split for run in part.runs()]
    n_relations = len(mapped_text(folder / "relations"))
    n_rows = sum(len(mapped(_rows_of_run(run))) for run in runs)
    n_unique = done = 0

    def key(rows: Rows) -> Keys:
        return rows[:, 0].astype(np.int64) * n_relations + rows[:, 1]

    def translated() -> Iterator[Rows]:
        for k, run in enumerate(runs):
            progress(k, 2 * len(runs))
            yield _translated(run)

    keys = [sampled(key(_translated(run, step=7))) for run in runs]
    pivots = choose_pivots(np.concatenate([*keys, np.zeros(0, np.int64)]), n_rows)
    with array_writer(folder / f"{split}.npy", np.int32, 3) as append:
        for bucket in in_buckets(translated(), key, pivots, parts[0].work / f"{split}-buckets"):
            rows = unique_triples(torch.from_numpy(bucket))[0].numpy()
            append(rows)
            n_unique, done = n_unique + len(rows), done + len(bucket)
            progress(n_rows + done, 2 * n_rows)
    return n_rows - n_unique


def _translated(run: Path, step: int = 1) -> npt.NDArray[np.int32]:
    """Returns a run's rows with the ids of the graph."""
    rows = mapped(_rows_of_run(run))[::step]
    entities, relations = (
        np.fromfile(ids_file(names_of_run(run, kind)), np.int32)
        for kind in ("entities", "relations")
    )
    return np.stack([entities[rows[:, 0]], relations[rows[:, 1]], entities[rows[:, 2]]], 1)


def relations_of(parts: list[Part]) -> Any:
    """Returns the relations of parts that are done, each once, in any order."""
    runs = [run for part in parts for run in part.runs()]
    names = [mapped_text(names_of_run(run, "relations")) for run in runs]
    return pa.chunked_array(names, pa.large_string()).unique()
