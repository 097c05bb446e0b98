"""Names and rows that are sorted piece by piece come out as if they had been sorted at once."""

from __future__ import annotations

from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathe.core.errors import PatheError
from pathe.data import external_sort
from pathe.data.array_files import (
    array_writer,
    mapped,
    mapped_tensor,
    mapped_text,
    text_writer,
    write_array,
)
from pathe.data.columns import text_array
from pathe.data.external_sort import choose_pivots, ids_file, in_buckets, merge_names, sampled


def ignore(done: int, total: int) -> None:
    assert 0 <= done <= total


names = st.text(alphabet="abé\U0001f600\u0800", min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(
    runs=st.lists(st.sets(names, max_size=30), min_size=1, max_size=5), at_once=st.integers(1, 9)
)
def test_merged_runs_are_the_sorted_unique_names(tmp_path_factory, runs, at_once):
    folder = tmp_path_factory.mktemp("runs")
    places = [folder / f"run{i}" for i in range(len(runs))]
    ordered = [sorted(run, key=str.encode) for run in runs]
    for place, run in zip(places, ordered, strict=True):
        with text_writer(place) as append:
            append(text_array(run[:2]))
            append(text_array(run[2:]))
        assert mapped_text(place).to_pylist() == run
    with mock.patch.multiple(external_sort, NAMES=at_once, _SAMPLE=2):
        n = merge_names(places, folder / "all", ignore)
    expected = sorted(set().union(*runs), key=str.encode)
    assert mapped_text(folder / "all").to_pylist() == expected
    assert n == len(expected)
    for place, run in zip(places, ordered, strict=True):
        ids = np.fromfile(ids_file(place), np.int32) if run else []
        assert [expected[i] for i in ids] == run


def test_many_bytes_are_merged_in_several_pieces(tmp_path):
    with text_writer(tmp_path / "run") as append:
        append(text_array([f"{i:04}" * 10 for i in range(100)]))
    with mock.patch.multiple(external_sort, NAME_BYTES=400, _SAMPLE=1):
        cuts = external_sort._cuts([mapped_text(tmp_path / "run")])
    assert cuts == [[0, *range(10, 100, 10), 100]]


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 99)), max_size=80),
    chunk=st.integers(1, 20),
    at_once=st.integers(1, 20),
)
def test_buckets_are_a_stable_partition_by_key(tmp_path_factory, rows, chunk, at_once):
    whole = np.array(rows, np.int32).reshape(-1, 2)
    chunks = [whole[i : i + chunk] for i in range(0, len(whole), chunk)]

    def key(some):
        return some[:, 0].astype(np.int64)

    folder = tmp_path_factory.mktemp("buckets")
    with mock.patch.multiple(external_sort, ROWS=at_once, _SAMPLE=1):
        pivots = choose_pivots(sampled(key(whole)), len(whole))
        buckets = list(in_buckets(chunks, key, pivots, folder))
    found = [bucket[np.argsort(key(bucket), kind="stable")] for bucket in buckets]
    expected = whole[np.argsort(key(whole), kind="stable")]
    assert np.array_equal(np.concatenate([expected[:0], *found]), expected)
    for one, other in pairwise(buckets):
        assert key(one).max() < key(other).min()
    for bucket in buckets:  # one larger than asked for has few keys
        assert len(bucket) <= 3 * at_once or len(set(key(bucket))) <= 2
    assert not list(folder.iterdir())


def test_a_key_that_fills_a_bucket_has_its_own():
    with mock.patch.multiple(external_sort, ROWS=10):
        pivots = choose_pivots(np.array([1] * 10 + [5] * 50 + [9] * 10), 70)
    assert {5, 6} <= set(pivots.tolist())


def test_a_file_appears_only_when_it_is_complete(tmp_path):
    path = tmp_path / "a.npy"
    with pytest.raises(AssertionError), array_writer(path, np.int32) as append:
        append(np.zeros((2, 2)))  # it has one column
    assert not list(tmp_path.iterdir())
    with array_writer(path, np.int32, 2) as append:
        append(np.arange(6).reshape(3, 2))
        append(np.arange(2).reshape(1, 2))
    assert np.load(path).tolist() == [[0, 1], [2, 3], [4, 5], [0, 1]]
    assert np.load(path).dtype == np.int32
    assert mapped_tensor(path).tolist() == np.load(path).tolist()
    with pytest.raises(ValueError, match="read-only"):
        mapped(path)[0] = 1


def test_a_file_that_cannot_be_written_is_an_error_of_the_user(tmp_path):
    with pytest.raises(PatheError, match="can't be written"):
        write_array(tmp_path / "nowhere" / "a.npy", np.arange(3))


def test_empty_arrays_are_arrays(tmp_path):
    write_array(tmp_path / "a.npy", np.zeros((0, 3), np.int32))
    assert mapped_tensor(tmp_path / "a.npy").shape == (0, 3)
    with text_writer(tmp_path / "t"):
        pass
    assert mapped_text(tmp_path / "t").to_pylist() == []


def test_a_sample_of_keys_does_not_keep_the_others_in_memory():
    """Samples of all chunks live at once: views would hold every key of a large graph."""
    keys = np.arange(1000)
    some = sampled(keys)
    assert not np.shares_memory(some, keys)
    assert 0 < len(some) < len(keys)
