from __future__ import annotations

import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from pathe.core.errors import ConfigError, DataError, PatheError
from pathe.data.row_files import read_queries, row_writer, write_vectors

COLUMNS = {"head": str, "rank": int, "score": float, "known": bool}
ROWS = [
    {"head": 'say "hi", you', "rank": 1, "score": 0.5, "known": False},
    {"head": "größer als", "rank": 2, "score": -1.25, "known": True},
]


def test_questions_are_read_with_their_lines(tmp_path):
    path = tmp_path / "q.tsv"
    path.write_text('head\trelation\ttail\na "b"\tr\t?\n\n\tr\tc\r\na\t?\tc')
    assert read_queries(path) == [
        (2, ('a "b"', "r", None)), (4, (None, "r", "c")), (5, ("a", None, "c"))]  # fmt: skip
    path = tmp_path / "q.csv"
    path.write_text('\ufeff"a, b",r,?\n?,r,"c ""d"""\n')
    assert read_queries(path) == [(1, ("a, b", "r", None)), (2, (None, "r", 'c "d"'))]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\tr\t?\na\tr\n", "line 2: expected head, relation and tail.*got 2 columns"),
        ("a\tr\tb\n", "line 1: expected one .*got 0"),
        ("a\t?\t?\n", "line 1: expected one .*got 2"),
        ("\n\n", "no queries"),
    ],
)
def test_bad_questions_are_refused_with_the_line(tmp_path, text, words):
    path = tmp_path / "q.tsv"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_queries(path)
    with pytest.raises(DataError, match="can't be read"):
        read_queries(tmp_path / "none.tsv")


def test_rows_are_written_in_every_format(tmp_path):
    for suffix in (".tsv", ".csv", ".jsonl", ".parquet"):
        path = tmp_path / f"rows{suffix}"
        with row_writer(path, COLUMNS) as write:
            write(ROWS[:1])
            assert not path.exists()
            write(ROWS[1:])
        if suffix == ".parquet":
            assert pq.read_table(path).to_pylist() == ROWS
        elif suffix == ".jsonl":
            assert [json.loads(line) for line in path.read_text().splitlines()] == ROWS
        elif suffix == ".csv":
            found = list(csv.DictReader(path.read_text().splitlines()))
            assert [row["head"] for row in found] == [row["head"] for row in ROWS]
        else:  # as names are read: no quotes
            assert path.read_text().splitlines() == [
                "head\trank\tscore\tknown",
                'say "hi", you\t1\t0.5\tFalse',
                "größer als\t2\t-1.25\tTrue",
            ]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "rows.csv", "rows.jsonl", "rows.parquet", "rows.tsv"]  # fmt: skip


def test_a_tab_in_a_name_has_no_place_in_tab_separated_rows(tmp_path):
    rows = [ROWS[0] | {"head": "a\tb"}]

    def write_to(name):
        with row_writer(tmp_path / name, COLUMNS) as write:
            write(rows)

    with pytest.raises(DataError, match=r"tab or a line end.*\.jsonl"):
        write_to("rows.tsv")
    write_to("rows.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["rows.csv"]


def test_a_failure_keeps_the_old_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("old\n")

    def fail():
        with row_writer(path, COLUMNS) as write:
            write(ROWS)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old\n"
    assert [p.name for p in tmp_path.iterdir()] == ["rows.jsonl"]


def test_what_could_not_be_written_is_refused_first(tmp_path):
    with pytest.raises(ConfigError, match=r"ends in .tsv, .csv, .json, .jsonl, .parquet"):
        row_writer(tmp_path / "x.xlsx", COLUMNS).__enter__()
    with pytest.raises(ConfigError, match=r"ends in .parquet, .npy, .tsv, .vec"):
        write_vectors(tmp_path / "x.bin", ["a"], np.zeros((1, 2), np.float32))
    with pytest.raises(PatheError, match="no folder"):
        write_vectors(tmp_path / "none" / "x.npy", ["a"], np.zeros((1, 2), np.float32))


def test_vectors_come_back_from_every_format(tmp_path):
    names = ["a b", 'c"d', "größe"]
    vectors = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    for suffix in (".parquet", ".npy", ".tsv", ".vec"):
        path = tmp_path / f"v{suffix}"
        written = write_vectors(path, names, vectors)
        assert all(p.exists() for p in written)
        match suffix:
            case ".parquet":
                table = pq.read_table(path)
                assert table.column("entity").to_pylist() == names
                found = np.array(table.column("vector").to_pylist(), np.float32)
                assert np.array_equal(found, vectors)
            case ".npy":
                assert np.array_equal(np.load(path), vectors)
                assert (tmp_path / "v.names.txt").read_text().splitlines() == names
            case ".tsv":
                rows = [line.split("\t") for line in path.read_text().splitlines()]
                assert [row[0] for row in rows] == names
                assert np.allclose(np.array([row[1:] for row in rows], float), vectors, rtol=1e-6)
            case ".vec":
                first, *lines = path.read_text().splitlines()
                assert first == "3 4"
                rows = [line.split(" ") for line in lines]
                assert [row[0] for row in rows] == ["a_b", 'c"d', "größe"]
                assert np.allclose(np.array([row[1:] for row in rows], float), vectors, rtol=1e-6)


def test_names_that_a_format_cannot_hold_are_refused(tmp_path):
    two = np.zeros((2, 2), np.float32)
    with pytest.raises(DataError, match=r"'a_b'.*parquet"):
        write_vectors(tmp_path / "v.vec", ["a b", "a_b"], two)
    for suffix in (".tsv", ".vec"):
        with pytest.raises(DataError, match="tab or a line end"):
            write_vectors(tmp_path / f"v{suffix}", ["a\tb", "c"], two)
    with pytest.raises(DataError, match="line end"):
        write_vectors(tmp_path / "v.npy", ["a\nb", "c"], two)
    assert list(tmp_path.iterdir()) == []


def test_many_rows_of_vectors(tmp_path, monkeypatch):
    monkeypatch.setattr("pathe.data.row_files.CHUNK", 7)
    names = [f"e{i}" for i in range(40)]
    vectors = np.arange(120, dtype=np.float32).reshape(40, 3)
    write_vectors(tmp_path / "v.parquet", names, vectors)
    table = pq.read_table(tmp_path / "v.parquet")
    assert table.column("entity").to_pylist() == names
    assert np.array_equal(np.array(table.column("vector").to_pylist(), np.float32), vectors)
    write_vectors(tmp_path / "v.vec", names, vectors)
    assert len((tmp_path / "v.vec").read_text().splitlines()) == 41
