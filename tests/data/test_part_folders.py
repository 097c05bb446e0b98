"""Folders of part files are read as one graph, wherever data is read."""

from __future__ import annotations

import gzip
from unittest import mock

import pytest
from support.places import ROOT

from pathe.core.errors import DataError
from pathe.data import delimited
from pathe.data.columns import ReadOptions, ReadReport
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.readers import read_batches
from pathe.data.split_files import part_files, split_files
from pathe.data.triples import write_triples

WHOLE = KnowledgeGraph.read(ROOT / "examples" / "europe.csv")


def write_all(folder, suffix):
    """The same triples in three files of a format."""
    names = [(WHOLE.entities[h], WHOLE.relations[r], WHOLE.entities[t]) for h, r, t in WHOLE.train]
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(3):
        part = KnowledgeGraph.from_triples(names[i::3])
        path = folder / f"part-{i:05}-of-3{suffix}"
        write_triples(path, part.train, part.entities, part.relations)


@pytest.mark.parametrize("suffix", [".parquet", ".nt.gz", ".tsv", ".csv.zst", ".ttl"])
def test_parts_of_every_format_make_the_graph(tmp_path, suffix):
    write_all(tmp_path / "parts", suffix)
    (tmp_path / "parts" / "_SUCCESS").write_text("")
    (tmp_path / "parts" / ".part-00000.crc").write_text("")
    kg = KnowledgeGraph.read(tmp_path / "parts")
    assert kg.name == "parts"
    assert kg.fingerprint() == WHOLE.fingerprint()
    split = KnowledgeGraph.read(tmp_path / "parts", split=(0.8, 0.1, 0.1))
    other = KnowledgeGraph.read(ROOT / "examples" / "europe.csv", split=(0.8, 0.1, 0.1))
    assert split.fingerprint() == other.fingerprint()


def test_parts_may_be_compressed_or_not(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tr\tb\n")
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"b\tr\tc\n"))
    assert len(KnowledgeGraph.read(tmp_path).train) == 2


def test_subfolders_hold_the_parts_of_splits(tmp_path):
    for split, rows in (("train", "abc"), ("validation", "a"), ("test", "bc")):
        (tmp_path / split).mkdir()
        for row in rows:
            (tmp_path / split / f"part-{row}.tsv").write_text(f"{row}\tr\tx{split}\n")
    assert {split: len(files) for split, files in split_files(tmp_path).items()} == {
        "train": 3, "valid": 1, "test": 2,
    }  # fmt: skip
    kg = KnowledgeGraph.read(tmp_path)
    assert [len(triples) for triples in kg.splits.values()] == [3, 1, 2]
    assert len(KnowledgeGraph.read(tmp_path / "train").train) == 3
    (tmp_path / "valid.tsv").write_text("a\tr\tb\n")
    with pytest.raises(DataError, match=r"expected one valid file, found valid.tsv and validation"):
        KnowledgeGraph.read(tmp_path)
    (tmp_path / "valid.tsv").unlink()
    with pytest.raises(DataError, match="its own splits"):
        KnowledgeGraph.read(tmp_path, split=(0.8, 0.1, 0.1))


def test_a_bad_row_is_located_in_its_part(tmp_path):
    for split, relation in (("train", "r"), ("valid", "r"), ("test", "new")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.tsv").write_text("a\tr\tb\nb\tr\tc\n")
        (tmp_path / split / "b.tsv").write_text(f"a\tr\tb\nb\tr\tc\nc\t{relation}\ta\n")
    with pytest.raises(DataError, match=r"test/b.tsv, line 3: the relation 'new'"):
        KnowledgeGraph.read(tmp_path)
    kg = KnowledgeGraph.read(tmp_path, options=ReadOptions(on_error="skip"))
    assert kg.report.unknown_relations == 1
    (tmp_path / "train" / "b.tsv").write_text("a\tb\n")
    with pytest.raises(DataError, match=r"train/b.tsv, line 1: expected 3 columns"):
        KnowledgeGraph.read(tmp_path)


@pytest.mark.parametrize("note", ["README.md", "readme.txt", "LICENSE", "notes.v1.md", "_SUCCESS"])
def test_notes_beside_parts_are_not_read(tmp_path, note):
    (tmp_path / "part-0.tsv").write_text("a\tr\tb\n")
    (tmp_path / "part-1.tsv").write_text("b\tr\tc\n")
    (tmp_path / note).write_text("A graph of three entities.\n")
    assert len(KnowledgeGraph.read(tmp_path).train) == 2


def test_relations_may_have_names_of_notes(tmp_path):
    for name in ("citation", "license", "author"):
        (tmp_path / f"{name}.tsv").write_text(f"a\t{name}\tb\n")
    assert len(KnowledgeGraph.read(tmp_path).train) == 3


def test_files_of_several_formats_are_no_parts(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tr\tb\n")
    (tmp_path / "b.csv").write_text("a,r,b\n")
    assert part_files(tmp_path) == []
    with pytest.raises(DataError, match="unknown kind of folder"):
        KnowledgeGraph.read(tmp_path)
    (tmp_path / "b.csv").rename(tmp_path / "b.png")
    with pytest.raises(DataError, match="unknown kind of folder"):
        KnowledgeGraph.read(tmp_path)


def test_text_goes_on_slowly_from_the_first_problem(tmp_path):
    """The slow parser gives only rows that the fast one hasn't given."""
    rows = [f"e{i}\tr{i % 3}\te{i * 7 % 500}\n" for i in range(7000)]
    rows[6000] = "a line\tof two\n"
    path = tmp_path / "g.tsv"
    path.write_text("".join(rows))
    report = ReadReport()
    with mock.patch.object(delimited, "_BLOCK", 1 << 14):
        batches = list(read_batches(path, ReadOptions(on_error="skip"), report))
    assert len(batches) > 3
    heads = [name for columns in batches for name in columns[0].to_pylist()]
    assert heads == [f"e{i}" for i in range(7000) if i != 6000]
    assert (report.rows, report.skipped) == (6999, 1)
    assert "line 6001" in report.first_skipped
