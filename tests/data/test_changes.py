"""Facts added to and removed from a graph by files."""

from __future__ import annotations

import pytest
from support.folders import SKIP, folder_of, rows_of

from pathe.core.errors import DataError
from pathe.data.changes import with_facts, without_facts
from pathe.data.knowledge_graph import KnowledgeGraph


@pytest.fixture
def kg(tmp_path):
    return KnowledgeGraph.read(folder_of(tmp_path / "graph"))


def file_of(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_added_facts_are_in_train_under_their_names(kg, tmp_path):
    path = file_of(tmp_path / "add.csv", 'zoë,r,a\n"d, e",new one,b\nb,r,a\nb,r,c\nzoë,r,a\n')
    larger, n = with_facts(kg, path)
    assert n == 2  # (b, r, a) is in train, (b, r, c) in valid, and one is there twice
    added = {("zoë", "r", "a"), ("d, e", "new one", "b")}
    assert rows_of(larger, "train") == rows_of(kg, "train") | added
    assert all(rows_of(larger, split) == rows_of(kg, split) for split in ("valid", "test"))
    assert set(larger.entities) == {*kg.entities, "zoë", "d, e"}
    assert larger.train.tolist() == sorted(larger.train.tolist())


def test_removed_facts_leave_every_split_and_entities_stay(kg, tmp_path):
    path = file_of(tmp_path / "remove.tsv", "a\ts\tc\nc\tr\tnew\na\ts\tc\n")
    smaller, n = without_facts(kg, path)
    assert n == 2
    assert rows_of(smaller, "train") == rows_of(kg, "train") - {("a", "s", "c")}
    assert rows_of(smaller, "test") == set()
    assert smaller.entities == kg.entities


def test_adding_and_removing_gives_the_graph_back(kg, tmp_path):
    path = file_of(tmp_path / "facts.csv", "c,r,b\nb,s,b\n")
    larger, n = with_facts(kg, path)
    back, m = without_facts(larger, path)
    assert n == m == 2
    assert back.fingerprint() == kg.fingerprint()


def test_an_unknown_fact_names_the_line_and_what_is_close(kg, tmp_path):
    for text, words in (
        ("a,s,c\nneww,r,a\n", r"remove\.csv, line 2: .*unknown entity 'neww'\. Closest: 'new'"),
        ("head,relation,tail\na,rr,c\n", r"line 2: .*unknown relation 'rr'"),
        ("a,r,c\n", r"line 1: .*doesn't have it\. Tails of 'a' and 'r': 'b'\.$"),
        ("new,r,c\n", r"line 1: .*'new' has no fact with 'r'"),
    ):
        path = file_of(tmp_path / "remove.csv", text)
        with pytest.raises(DataError, match=words):
            without_facts(kg, path)
    path = file_of(tmp_path / "remove.csv", "a,r,c\nb,r,a\n")
    smaller, n = without_facts(kg, path, SKIP)
    assert (n, len(smaller.train)) == (1, len(kg.train) - 1)
    everything = file_of(tmp_path / "all.csv", "b,r,a\na,r,b\na,s,c\nc,s,a\n")
    with pytest.raises(DataError, match="no training triples left"):
        without_facts(kg, everything)
