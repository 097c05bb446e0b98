"""Vocabularies, unique triples, splits, and round trips through files."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pathe.core.errors import DataError, PatheError, UnknownNameError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.readers import read_columns
from pathe.data.triples import encode, split_triples, unique_triples, write_triples
from pathe.data.vocabulary import Vocabulary

names = st.text(min_size=1, max_size=6)
odd_names = st.one_of(
    names, st.sampled_from(["head", "relation", "tail", "\ufeffx", '"', ",", " ", "NA", "\x00"])
)
plain_names = odd_names.filter(lambda name: not set(name) & set("\t\r\n"))
some = settings(max_examples=40, deadline=None)


def triples_of(rows: list[tuple[int, int, int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int32).view(-1, 3)


@some
@given(st.lists(names, max_size=30))
def test_vocabulary_is_sorted_by_bytes_and_unique(given: list[str]) -> None:
    vocab = Vocabulary(given)
    assert list(vocab) == sorted(set(given), key=str.encode)
    assert [vocab.id(name) for name in vocab] == list(range(len(vocab)))
    assert all(name in vocab for name in given)
    assert vocab.names(vocab.ids(given)) == given
    assert vocab == Vocabulary(pa.array(given[::-1] * 2, pa.string()))
    assert vocab.buffers() == Vocabulary(given[::-1]).buffers()
    assert pickle.loads(pickle.dumps(vocab)) == vocab


def test_vocabulary_lookups() -> None:
    vocab = Vocabulary(["b", "a", "c", "a"], "relation")
    assert (len(vocab), vocab[0], vocab[2]) == (3, "a", "c")
    assert vocab.ids(["c", "?", "a"], missing="mark").tolist() == [2, -1, 0]
    assert vocab.ids(["c"]).dtype == torch.int64
    assert vocab.ids([]).shape == (0,)
    assert "?" not in vocab
    assert vocab != Vocabulary(["a", "b", "c"], "entity")
    for i in (3, -1):
        with pytest.raises(IndexError):
            vocab[i]
    with pytest.raises(AttributeError):
        vocab.kind = "entity"
    with pytest.raises(UnknownNameError, match="unknown relation '\\?'"):
        vocab.ids(["a", "?"])
    with pytest.raises(UnknownNameError):
        vocab.id("\ud800")


def test_slices_of_arrow_arrays_are_taken_at_their_offset() -> None:
    whole = pa.array(["a", "b", "c", "d"], pa.large_string())
    assert Vocabulary(whole[1:3]).buffers() == Vocabulary(["b", "c"]).buffers()
    assert Vocabulary([]).buffers() == Vocabulary(whole[2:2]).buffers()


def test_unknown_names_get_the_closest() -> None:
    few = Vocabulary(["Barack Obama", "Michelle Obama", "Berlin"])
    with pytest.raises(UnknownNameError, match=r"unknown entity 'Barak Obama'.*'Barack Obama'"):
        few.id("Barak Obama")
    with pytest.raises(UnknownNameError, match=r"unknown entity 'BERLIN'\. Closest: 'Berlin'\."):
        few.id("BERLIN")
    many = Vocabulary([*(f"/m/{i:06x}" for i in range(50_000)), "zebra_finch", "Zürich"])
    for wrong, right in [
        ("zebra_fnch", "zebra_finch"),
        ("Xebra_finch", "zebra_finch"),
        ("zürich", "Zürich"),
        ("/m/00abcdd", "/m/00abcd"),
    ]:
        with pytest.raises(UnknownNameError, match=f"Closest: .*{right}"):
            many.id(wrong)
    assert many.ids(["zebra_finch", "none"], missing="mark").tolist() == [
        many.id("zebra_finch"),
        -1,
    ]


ids = st.integers(0, 6)
big_ids = st.one_of(ids, st.integers(2**31 - 4, 2**31 - 1))


@some
@given(
    st.one_of(
        st.lists(st.tuples(ids, ids, ids), max_size=60),
        st.lists(st.tuples(big_ids, big_ids, big_ids), max_size=30),
    )
)
def test_unique_triples_is_a_sorted_set(rows: list[tuple[int, int, int]]) -> None:
    unique, n_duplicates = unique_triples(triples_of(rows))
    assert unique.dtype == torch.int32
    assert list(map(tuple, unique.tolist())) == sorted(set(rows))
    assert n_duplicates == len(rows) - len(set(rows))


def test_unique_triples_takes_both_ways() -> None:
    top = 2**31 - 1
    rows = [(top, 9, 0), (0, 0, top), (top, 9, 0)]  # 2**31 * 10 * 2**31 > 2**63
    assert unique_triples(triples_of(rows))[0].tolist() == [[0, 0, top], [top, 9, 0]]
    rows = [(5, 1, 0), (0, 0, 5), (5, 1, 0)]
    assert unique_triples(triples_of(rows))[0].tolist() == [[0, 0, 5], [5, 1, 0]]


@st.composite
def splits(draw: st.DrawFn) -> tuple[Tensor, tuple[float, float, float], int]:
    rows = draw(st.lists(st.tuples(ids, st.integers(0, 3), ids), min_size=1, max_size=80))
    parts = draw(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)))
    train, valid, test = (p / sum(parts) for p in parts)
    return unique_triples(triples_of(rows))[0], (train, valid, test), draw(st.integers(0, 99))


@some
@given(splits(), st.booleans())
def test_split_properties(case: tuple[Tensor, tuple[float, float, float], int], keep: bool) -> None:
    triples, fractions, seed = case
    parts = split_triples(triples, fractions, seed, keep)
    assert unique_triples(torch.cat(parts))[0].equal(triples)
    assert sum(map(len, parts)) == len(triples)
    for part in parts:
        assert unique_triples(part)[0].equal(part)  # the order is kept
    train = parts[0]
    assert set(triples[:, 1].tolist()) == set(train[:, 1].tolist())
    if keep:
        assert set(triples[:, [0, 2]].flatten().tolist()) == set(
            train[:, [0, 2]].flatten().tolist()
        )
    again = split_triples(triples, fractions, seed, keep)
    assert all(a.equal(b) for a, b in zip(parts, again, strict=True))
    for part, fraction in zip(parts[1:], fractions[1:], strict=True):
        assert len(part) <= round(fraction * len(triples))


def test_split_sizes_and_seeds() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, [50, 5, 50], (2000, 3)).astype(np.int32)
    triples, _ = unique_triples(torch.from_numpy(rows))
    n = len(triples)
    train, valid, test = split_triples(triples, (0.8, 0.1, 0.1), 0)
    assert (len(valid), len(test)) == (round(0.1 * n), round(0.1 * n))
    assert not split_triples(triples, (0.8, 0.1, 0.1), 1)[1].equal(valid)
    assert len(train) + len(valid) + len(test) == n


def test_split_shrinks_valid_and_test_alike() -> None:
    chain = triples_of([(i, 0, i + 1) for i in range(20)] + [(0, 0, i) for i in range(2, 20)])
    _, valid, test = split_triples(unique_triples(chain)[0], (0.1, 0.6, 0.3), 3)
    assert len(valid) < round(0.6 * len(chain))
    assert abs(len(valid) - 2 * len(test)) <= 2
    star = triples_of([(i, 0, i + 1) for i in range(0, 20, 2)])  # no triple can be spared
    assert [len(part) for part in split_triples(star, (0.8, 0.1, 0.1), 0)] == [10, 0, 0]
    free = split_triples(star, (0.8, 0.1, 0.1), 0, keep_entities_in_train=False)
    assert [len(part) for part in free] == [8, 1, 1]


@pytest.mark.parametrize(
    "fractions",
    [(0.8, 0.1), (0.8, 0.1, 0.2), (0.0, 0.5, 0.5), (1.2, -0.1, -0.1), (float("nan"),) * 3],
)
def test_split_fractions_are_checked(fractions: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match="sum to 1"):
        split_triples(triples_of([(0, 0, 1)]), fractions, 0)


def test_split_seed_is_checked() -> None:
    with pytest.raises(DataError, match="--cut-seed"):
        split_triples(triples_of([(0, 0, 1)]), (0.8, 0.1, 0.1), -1)


def round_trip(rows: list[tuple[str, str, str]], suffix: str) -> None:
    entities = Vocabulary([row[k] for row in rows for k in (0, 2)])
    relations = Vocabulary([row[1] for row in rows], "relation")
    heads, tails = (entities.ids([row[k] for row in rows]) for k in (0, 2))
    triples = torch.stack([heads, relations.ids([row[1] for row in rows]), tails], 1).int()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        write_triples(path, triples, entities, relations)
        assert encode(read_columns(path), entities, relations).equal(triples)
        assert [p.name for p in Path(folder).iterdir()] == [path.name]
        back = KnowledgeGraph.read(path)
        assert back.entities == entities
        assert back.relations == relations


@pytest.mark.parametrize("suffix", [".tsv", ".txt.gz", ".tsv.zst", ".tsv.xz", ".tsv.bz2"])
@some
@given(rows=st.lists(st.tuples(plain_names, plain_names, plain_names), min_size=1, max_size=8))
def test_tsv_round_trip(suffix: str, rows: list[tuple[str, str, str]]) -> None:
    round_trip(rows, suffix)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
@some
@given(rows=st.lists(st.tuples(odd_names, odd_names, odd_names), min_size=1, max_size=8))
def test_csv_and_parquet_round_trip(suffix: str, rows: list[tuple[str, str, str]]) -> None:
    round_trip(rows, suffix)


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".parquet", ".txt.xz"])
@pytest.mark.parametrize(
    "row",
    [("head", "relation", "tail"), ("O", "p", "S"), ("\ufeffa", "r", "b"), ("\ufeff", "r", "b")],
)
def test_first_rows_that_look_like_something_else(suffix: str, row: tuple[str, str, str]) -> None:
    round_trip([row], suffix)
    round_trip([row, ("x", "y", "z")], suffix)


def test_round_trip_over_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathe.data.triples._CHUNK", 7)
    for suffix in (".tsv", ".csv", ".parquet"):
        round_trip([(f"e{i}", f"r{i % 3}", f"e{i * i}") for i in range(40)], suffix)


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "a\rb"])
def test_tsv_refuses_what_it_cannot_hold(tmp_path: Path, name: str) -> None:
    entities, relations = Vocabulary([name, "b", "unused\t"]), Vocabulary(["r"], "relation")
    path = tmp_path / "x.tsv"
    with pytest.raises(DataError, match=r"x\.tsv.*\.csv or \.parquet"):
        write_triples(path, triples_of([(0, 0, 1)]), entities, relations)
    assert not list(tmp_path.iterdir())
    write_triples(path, triples_of([(1, 0, 1)]), entities, relations)  # unused names don't matter


def test_failed_writes_leave_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entities, relations = Vocabulary(["a", "b"]), Vocabulary(["r"], "relation")
    path = tmp_path / "x.tsv"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("pathe.data.triples._write_text", fail)
    with pytest.raises(PatheError, match="disk full"):
        write_triples(path, triples_of([(0, 0, 1)]), entities, relations)
    assert [p.name for p in tmp_path.iterdir()] == ["x.tsv"]
    assert path.read_text() == "old"
    with pytest.raises(DataError, match="expected a name that ends in"):
        write_triples(tmp_path / "x.nq", triples_of([(0, 0, 1)]), entities, relations)
