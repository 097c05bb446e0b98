"""Sorting what doesn't fit in memory: names in sorted runs, and rows of ids in buckets."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pathe.core.types import Progress
from pathe.data.array_files import mapped_text, text_buffers, text_writer
from pathe.data.name_order import sorted_codes

Rows = npt.NDArray[np.int32]
Keys = npt.NDArray[np.int64]

NAMES = 1 << 20  # names that are merged at once
NAME_BYTES = 64 << 20  # and their bytes
ROWS = 1 << 21  # rows that are sorted at once
_SAMPLE = 64  # one of so many names or rows is looked at to choose ranges of equal size


def merge_names(runs: list[Path], target: Path, progress: Progress) -> int:
    """Merges runs of sorted names to one sorted array at `target`; returns their number.

    Beside each run, RUN.ids holds the new ids of its names as int32.
    """
    arrays = [mapped_text(run) for run in runs]
    for run in runs:
        ids_file(run).unlink(missing_ok=True)
    cuts, n_names = _cuts(arrays), 0
    with text_writer(target) as append:
        for k in range(len(cuts[0]) - 1):
            progress(k, len(cuts[0]) - 1)
            pieces = [a[own[k] : own[k + 1]] for a, own in zip(arrays, cuts, strict=True)]
            whole = pa.chunked_array(pieces, pa.large_string()).combine_chunks()
            ids, names = sorted_codes(whole.dictionary_encode())
            append(names)
            ends = np.cumsum([len(piece) for piece in pieces])[:-1]
            for run, own_ids in zip(runs, np.split(ids + n_names, ends), strict=True):
                append_rows(ids_file(run), own_ids.astype(np.int32))
            n_names += len(names)
    return n_names


def ids_file(run: Path) -> Path:
    """Returns the file that `merge_names` writes beside a run."""
    return run.with_name(f"{run.name}.ids")


def _cuts(arrays: list[Any]) -> list[list[int]]:
    """Returns where to cut each sorted array, so that pieces with the same number fit memory."""
    n = sum(map(len, arrays))
    n_bytes = sum(int(text_buffers(array)[0][-1]) for array in arrays)
    n_ranges = max(math.ceil(n / NAMES), math.ceil(n_bytes / NAME_BYTES), 1)
    step = max(min(_SAMPLE, n // (n_ranges * _SAMPLE)), 1)
    sample = pa.chunked_array([_every(array, step) for array in arrays], pa.large_string())
    places = np.arange(1, n_ranges) * len(sample) // n_ranges
    pivots: list[str] = []
    if n_ranges > 1:
        sample = sample.take(pc.sort_indices(sample))
        pivots = sorted(set(sample.take(pa.array(places)).to_pylist()))

    def place(array: Any, name: str) -> int:
        return bisect_left(range(len(array)), name, key=lambda i: array[i].as_py())

    return [[0, *(place(array, name) for name in pivots), len(array)] for array in arrays]


def _every(array: Any, step: int) -> Any:
    return array.take(pa.array(np.arange(0, len(array), step)))


def append_rows(path: Path, rows: npt.NDArray[Any]) -> None:
    """Appends the bytes of an array to a file."""
    with path.open("ab") as file:
        file.write(np.ascontiguousarray(rows).data)


def choose_pivots(sample: Keys, n_rows: int) -> Keys:
    """Returns keys that divide rows into buckets of about ROWS; `sample` has some of their keys.

    A key that alone fills a bucket or more gets one of its own.
    """
    n_buckets = math.ceil(n_rows / ROWS)
    if n_buckets < 2 or not len(sample):
        return np.zeros(0, np.int64)
    sample = np.sort(sample)
    pivots = sample[np.arange(1, n_buckets) * len(sample) // n_buckets]
    values, counts = np.unique(pivots, return_counts=True)
    return np.unique(np.concatenate([values, values[counts > 1] + 1]))


def sampled(keys: Keys) -> Keys:
    """Returns a copy of some of the keys, for `choose_pivots`; a view would keep all of them."""
    some: Keys = keys[::_SAMPLE].copy()
    return some


def in_buckets(
    chunks: Iterable[Rows], key: Callable[[Rows], Keys], pivots: Keys, folder: Path
) -> Iterator[Rows]:
    """Yields all rows in buckets of rising keys; within a bucket, rows keep their order.

    Buckets are files in `folder`, each deleted once it has been yielded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    width = 0
    for rows in chunks:
        width = rows.shape[1]
        bucket = np.searchsorted(pivots, key(rows), side="right").astype(np.uint16)
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=len(pivots) + 1))[:-1]
        for b, own in enumerate(np.split(rows[order], ends)):
            if len(own):
                append_rows(folder / f"{b:06}", own)
    for b in range(len(pivots) + 1):
        if (path := folder / f"{b:06}").exists():
            yield np.fromfile(path, np.int32).reshape(-1, width)
            path.unlink()
