"""The order of names by their UTF-8 bytes, several times faster than Arrow's sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pathe.data.array_files import text_buffers
from pathe.data.columns import numbers

_KEY = 8  # bytes that are compared as one number


def name_order(names: Any) -> npt.NDArray[np.int64]:
    """Returns the positions of a pa.LargeStringArray's names in sorted order; ties in any order.

    Names are sorted as numbers of eight bytes after the prefix that all share. Only those with
    equal numbers are compared as text.
    """
    if len(names) < 2:
        return np.arange(len(names))
    keys = _keys(names)
    order = np.argsort(keys)
    keys = keys[order]
    same = keys[1:] == keys[:-1]
    tied = np.concatenate([[False], same]) | np.concatenate([same, [False]])
    if tied.any():
        places = np.flatnonzero(tied)
        table = pa.table(
            {"key": pa.array(keys[places]), "name": names.take(pa.array(order[places]))}
        )
        within = pc.sort_indices(table, [("key", "ascending"), ("name", "ascending")])
        order[places] = order[places][numbers(within, np.uint64)]
    return order


def _keys(names: Any) -> npt.NDArray[np.uint64]:
    """Returns the eight bytes after the common prefix of all names, the first as the highest."""
    ends, text = text_buffers(names)
    starts, lasts = ends[:-1] + _shared(names), ends[1:]
    keys = np.zeros(len(names), np.uint64)
    padded = np.append(text, np.uint8(0))
    for k in range(_KEY):
        place = starts + k
        byte = np.where(place < lasts, padded[np.minimum(place, len(text))], np.uint8(0))
        keys = keys << np.uint64(8) | byte
    return keys


def _shared(names: Any) -> int:
    """Returns the number of bytes that all names begin with: those that first and last share."""
    ends = pc.min_max(names).as_py()
    first, last = ends["min"].encode(), ends["max"].encode()
    differ = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return next(differ, min(len(first), len(last)))


def sorted_codes(column: Any) -> tuple[npt.NDArray[np.int32], Any]:
    """Returns a dictionary column's ids among its sorted names, and these names."""
    order = name_order(column.dictionary)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank[numbers(column.indices, np.int32)], column.dictionary.take(pa.array(order))
