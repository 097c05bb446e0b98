from __future__ import annotations

from dataclasses import replace

import pytest
from support.folders import folder_of, rows_of

from pathe.core.errors import ConfigError, DataError, UnknownNameError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.schema import align, coverage, read_relation_map, with_train_relations
from pathe.data.vocabulary import Vocabulary

TRAIN = [("a", "likes", "b"), ("b", "hasCapital", "c"), ("c", "likes", "a"), ("x", "odd", "y")]
MODEL = Vocabulary(["capital of", "likes", "unused"], "relation")


@pytest.fixture
def kg(tmp_path):
    return KnowledgeGraph.read(
        folder_of(tmp_path / "g", train=TRAIN, valid=[("a", "likes", "c")],
                  test=[("c", "hasCapital", "b"), ("b", "capital of", "a")]),
        every_relation=True,
    )  # fmt: skip


def test_coverage_says_what_the_model_knows(kg):
    found = coverage(kg, MODEL, {"hasCapital": "^capital of", "not there": "likes"})
    assert [(m.name, m.triples, m.model, m.inverse) for m in found.matches] == [
        ("likes", 3, "likes", False),
        ("hasCapital", 2, "capital of", True),
        ("capital of", 1, "capital of", False),
        ("odd", 1, None, False),
    ]
    assert found.unused == ["unused"]
    assert (found.triples, found.known_triples) == (7, 6)
    assert [m.name for m in found.unknown] == ["odd"]
    assert found.as_dict()["known_relations"] == 3


def test_relations_that_train_lacks_are_dropped_and_counted(kg, tmp_path):
    found, n_dropped = with_train_relations(kg)
    assert n_dropped == 1
    assert list(found.relations) == ["hasCapital", "likes", "odd"]
    assert rows_of(found, "train") == set(TRAIN)
    assert rows_of(found, "test") == {("c", "hasCapital", "b")}
    assert with_train_relations(found) == (found, 0)
    pair = replace(kg, inference=kg)
    assert rows_of(with_train_relations(pair)[0].inference, "test") == {("c", "hasCapital", "b")}


def test_alignment_renames_turns_and_drops(kg):
    names = {"hasCapital": "^capital of"}
    found = align(kg, MODEL, names, "drop")
    assert found.relations == MODEL
    assert rows_of(found, "train") == {
        ("a", "likes", "b"), ("c", "capital of", "b"), ("c", "likes", "a")}  # fmt: skip
    assert rows_of(found, "valid") == {("a", "likes", "c")}
    assert rows_of(found, "test") == {("b", "capital of", "c"), ("b", "capital of", "a")}
    assert list(found.entities) == ["a", "b", "c"]  # x and y were in the dropped triple alone
    assert found.report.unknown_relations == 1
    assert kg.report.unknown_relations == 0
    assert align(found, MODEL) is found


def test_triples_stay_sorted_and_unique_when_two_relations_become_one(tmp_path):
    rows = [("a", "r", "b"), ("b", "s", "a"), ("a", "s", "c")]
    folder = folder_of(tmp_path / "g", train=rows, valid=rows[:1], test=rows[:1])
    kg = KnowledgeGraph.read(folder, every_relation=True)
    found = align(kg, Vocabulary(["r"], "relation"), {"s": "^r"})
    assert found.train.tolist() == [[0, 0, 1], [2, 0, 0]]


def test_unknown_relations_are_named_with_what_to_do(kg):
    with pytest.raises(DataError) as caught:
        align(kg, MODEL)
    text = str(caught.value)
    for words in ("2 of its 4 relations", "(3 of 7 triples)", "'hasCapital'", "--relation-map",
                  "--on-error skip"):  # fmt: skip
        assert words in text
    with pytest.raises(DataError, match=r"knows none of its 4 relations.*'other'"):
        align(kg, Vocabulary(["other"], "relation"))  # dropping them would leave nothing
    with pytest.raises(UnknownNameError, match=r"capital off'.*Closest: 'capital of'"):
        align(kg, MODEL, {"hasCapital": "^capital off"})


def test_a_name_that_begins_with_the_mark_is_itself_if_the_model_has_it(tmp_path):
    folder = folder_of(tmp_path / "g", train=[("a", "r", "b")], valid=[("a", "r", "b")],
                       test=[("a", "r", "b")])  # fmt: skip
    kg = KnowledgeGraph.read(folder)
    found = align(kg, Vocabulary(["^q", "q"], "relation"), {"r": "^q"})
    assert rows_of(found, "train") == {("a", "^q", "b")}


def test_an_inference_graph_beside_it_does_not_matter(tmp_path):
    rows = [("a", "likes", "b"), ("b", "likes", "c")]
    folder_of(tmp_path / "g_ind", train=[("u", "odd", "v")], valid=[("u", "odd", "v")],
              test=[("v", "odd", "u")])  # fmt: skip
    pair = folder_of(tmp_path / "g", train=rows, valid=rows[:1], test=rows[1:])
    kg = KnowledgeGraph.read(pair, every_relation=True)
    assert align(kg, MODEL).inference is None


def test_a_map_gives_nothing_of_the_test_set_away(tmp_path):
    folder = folder_of(
        tmp_path / "g", train=[("a", "hasCapital", "b"), ("c", "likes", "a")],
        valid=[("b", "capital of", "a"), ("a", "likes", "b")],
        test=[("b", "capital of", "a"), ("a", "likes", "b"), ("c", "likes", "b")],
    )  # fmt: skip
    kg = KnowledgeGraph.read(folder, every_relation=True)
    found = align(kg, MODEL, {"hasCapital": "^capital of"})
    assert rows_of(found, "train") == {("b", "capital of", "a"), ("c", "likes", "a")}
    assert rows_of(found, "valid") == {("a", "likes", "b")}
    assert rows_of(found, "test") == {("c", "likes", "b")}
    assert found.report.duplicates == 3


def test_a_misspelt_name_in_a_map_is_told(kg):
    found = align(kg, MODEL, {"hasCapitl": "likes", "hasCapital": "^capital of"}, "drop")
    assert found.report.notes == ["in the relation map but not in the graph: 'hasCapitl'"]
    with pytest.raises(ConfigError, match="raise or drop; got 'skip'"):
        align(kg, MODEL, unknown="skip")


def test_maps_are_read_from_tsv_and_csv(tmp_path):
    (tmp_path / "m.tsv").write_text("has, capital\t^capital of\n\nb\tlikes\nb\tlikes\n")
    assert read_relation_map(tmp_path / "m.tsv") == {"has, capital": "^capital of", "b": "likes"}
    (tmp_path / "q.tsv").write_text('"opens\tlikes\nb\u2028c\tlikes\n')
    assert read_relation_map(tmp_path / "q.tsv") == {'"opens': "likes", "b\u2028c": "likes"}
    (tmp_path / "m.CSV").write_text('"has, capital",likes\n')
    assert read_relation_map(tmp_path / "m.CSV") == {"has, capital": "likes"}
    (tmp_path / "bad.csv").write_text('"a,b\n')
    with pytest.raises(DataError, match="can't be read"):
        read_relation_map(tmp_path / "bad.csv")
    (tmp_path / "m.csv").write_text('\ufeff"has, capital",^capital of\nb,likes\n')
    assert read_relation_map(tmp_path / "m.csv") == {"has, capital": "^capital of", "b": "likes"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\tb\nc\n", "line 2: expected two columns.*tab; got 1"),
        ("a\tb\tc\n", "line 1: expected two columns.*got 3"),
        ("a\t\n", "line 1: expected two columns"),
        ("a\tb\na\tc\n", "line 2: 'a' is already mapped to 'b'"),
    ],
)
def test_bad_maps_are_refused_with_the_line(tmp_path, text, words):
    path = tmp_path / "m.tsv"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_relation_map(path)
    with pytest.raises(DataError, match="can't be read"):
        read_relation_map(tmp_path / "none.tsv")
