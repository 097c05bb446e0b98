"""Using a model from the command line, in one process: reading, asking, writing."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.commands import pathe
from support.graphs import toy
from support.models import BRIDGE, artifact_of

from pathe.model.artifact import save_model
from pathe.predict.predictor import Predictor


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("use")
    kg = toy()
    kg.save(folder / "graph")
    save_model(folder / "model", artifact_of(kg))
    return folder


@pytest.fixture
def ask(place):
    """Runs a command in the folder: (exit code, stdout, stderr)."""

    def run(*args):
        found = pathe(*args, cwd=place)
        return found.returncode, found.stdout, found.stderr

    return run


USE = ("model", "--data", "graph")


@pytest.fixture(scope="module")
def python():
    kg = toy()
    return Predictor(artifact_of(kg), kg)


def test_a_query_in_words_and_as_json(ask, python):
    code, shown, _ = ask("predict", *USE, "--head", "e0001", "--relation", "r1", "-k", 3)
    assert code == 0
    expected = python.tails("e0001", "r1", 3)
    for answer in expected:
        assert answer.name in shown
        assert f"{100 * answer.probability:.1f} %" in shown
    assert "1 known left out" in shown
    _, shown, _ = ask("predict", *USE, "--head", "e0001", "--relation", "r1", "-k", 3, "--json")
    found = json.loads(shown)
    assert [row["name"] for row in found] == [a.name for a in expected]
    assert [row["score"] for row in found] == pytest.approx([a.score for a in expected], abs=1e-4)
    assert not any(row["known"] for row in found)
    _, shown, _ = ask("predict", *USE, "--head", "e0001", "--tail", "e0002", "--known", "--json")
    assert {row["name"] for row in json.loads(shown)} == {"r0", "r1", "r2"}
    assert any(row["known"] for row in json.loads(shown))


def test_known_answers_say_that_their_fact_counts(ask):
    for more, known in (((), False), (("--known",), True)):
        _, shown, _ = ask("predict", *USE, "--head", "e0001", "--relation", "r1", "-k", 60, *more)
        assert ("scored with their own fact in the graph" in shown) == known


def test_a_triple_is_judged(ask, python):
    given = ("--head", "e0001", "--relation", "r0", "--tail", "e0002")
    code, shown, _ = ask("predict", *USE, *given)
    [judged] = python.score([("e0001", "r0", "e0002")])
    assert code == 0
    assert f"rank {judged.rank}" in shown
    assert "known already" in shown
    _, shown, _ = ask("predict", *USE, *given, "--json", "--explain")
    found = json.loads(shown)
    assert found["rank"] == judged.rank
    assert {path["of"] for path in found["paths"]} == {"head", "tail"}


def test_reasons_in_words_as_json_and_drawn(ask, place, python):
    given = ("--head", "e0001", "--relation", "r1", "-k", 2)
    code, shown, said = ask("predict", *USE, *given, "--explain", "--plot", "why.svg")
    assert code == 0
    assert "drawn to why.svg" in said
    best = python.tails("e0001", "r1", 2)
    why = python.explain("e0001", "r1", best[0].name)
    assert f"{why.paths[0].effect:+.3f}" in shown
    assert best[0].name in (place / "why.svg").read_text()
    _, shown, _ = ask("predict", *USE, *given, "--explain", "--json")
    for row, answer in zip(json.loads(shown), best, strict=True):
        why = python.explain("e0001", "r1", answer.name)
        assert [p["effect"] for p in row["paths"]] == pytest.approx(
            [p.effect for p in why.paths], abs=1e-4
        )
    assert ask("predict", *USE, *given, "--plot", "why.gif")[0] == 2
    assert ask("predict", *USE, *given, "--plot", "why.png")[0] == 0


def test_json_evidence_holds_bridges_and_scores_without_paths(ask, place):
    kg = toy()
    artifact = artifact_of(kg, **BRIDGE)
    save_model(place / "bridged", artifact)
    given = ("--head", "e0001", "--relation", "r0", "--tail", "e0002", "--explain", "--json")
    _, shown, _ = ask("predict", "bridged", "--data", "graph", *given)
    found = json.loads(shown)
    why = Predictor(artifact, kg).explain("e0001", "r0", "e0002")
    assert why.bridges
    assert [[tuple(step) for step in b["steps"]] for b in found["bridges"]] == [
        b.steps for b in why.bridges]  # fmt: skip
    parts = [pattern["added"] for pattern in found["patterns"]]
    assert found["bridged"] == pytest.approx(sum(parts) + found["rest"], abs=1e-4)
    assert found["patterns"][0]["relations"] == why.patterns[0].relations
    _, shown, _ = ask("predict", "bridged", "--data", "graph", *given[:-1])
    assert why.patterns[0].words() in shown
    assert "other paths" in shown
    _, shown, _ = ask("predict", "bridged", "--data", "graph", *given[:-2], "--paths")
    assert " between e0001 " in shown
    assert "other paths" not in shown
    assert found["bridged"] == pytest.approx(why.bridged, abs=1e-4)
    assert found["alone"] == pytest.approx(why.alone, abs=1e-4)


def test_without_a_model_the_pretrained_one_answers(ask, place):
    query = ("--data", "graph", "--head", "e0001", "--relation", "r1", "--json")
    code, shown, told = ask("predict", *query, "--explain", "--device", "cpu")
    assert code == 0, told
    expected = Predictor(str(place / "graph")).tails("e0001", "r1")
    found = json.loads(shown)
    assert [row["name"] for row in found] == [a.name for a in expected]
    assert found[0]["bridges"]
    for command in (
        ("evaluate",),
        ("missing", "-k", 3),
        ("rules", "--facts", 2, "--relation", "r0"),
    ):
        code, _, told = ask(*command, "--data", "graph", "--device", "cpu")
        assert code == 0, told
    (place / "map.tsv").write_text("r0\tr1\n")
    code, _, told = ask("predict", *query, "--relation-map", "map.tsv")
    assert code == 2
    assert "relations as they are" in told


def test_similar_and_embed_without_a_model(ask, place):
    p = Predictor(str(place / "graph"))
    code, shown, told = ask("similar", "--data", "graph", "--entity", "e0001", "-k", 3, "--json")
    assert code == 0, told
    expected = [n.name for n in p.similar("e0001", 3)]
    assert [row["name"] for row in json.loads(shown)] == expected
    code, _, said = ask("embed", "--data", "graph", "--out", "contexts.npy")
    assert code == 0
    assert "60 entities, 256 dimensions" in said
    assert "zeros" not in said
    assert np.allclose(np.load(place / "contexts.npy"), p.embed(), atol=1e-6)
    (place / "split").mkdir()
    (place / "split" / "train.txt").write_text("a\tr\tb\nb\tr\tc\n")
    (place / "split" / "valid.txt").write_text("a\tr\tc\n")
    (place / "split" / "test.txt").write_text("d\tr\ta\n")
    _, _, said = ask("embed", "--data", "split", "--out", "zeros.tsv")
    assert "zeros for 1 of 4 entities: they have no training triples" in said
    code, _, said = ask("similar", "--data", "split", "--entity", "d")
    assert code == 2
    assert "no training triples" in said


def test_embed_tells_of_names_that_it_changes(ask, place):
    (place / "spaces.tsv").write_text("New York\tin\tUnited States\nBoston\tin\tUnited States\n")
    for name, told in (("v.vec", True), ("v.tsv", False)):
        code, shown, said = ask("embed", "--data", "spaces.tsv", "--out", name)
        assert (code, shown) == (0, "")
        assert ("spaces became _ in 2 of 3 names" in said) == told
    lines = (place / "v.vec").read_text().splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["Boston", "New_York", "United_States"]
    (place / "plain.tsv").write_text("a\tin\tb\n")
    assert "became" not in ask("embed", "--data", "plain.tsv", "--out", "w.vec")[2]


def test_many_queries(ask, place, python):
    rows = [("e0001", "r1", "?"), ("?", "r2", "e0003"), ("e0004", "?", "e0005")] * 2
    (place / "q.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    code, shown, _ = ask("predict", *USE, "--queries", "q.tsv", "-k", 2)
    assert code == 0
    header, *lines = shown.splitlines()
    assert header.split("\t") == [
        "head", "relation", "tail", "asked", "rank", "score", "probability", "known",
        "complete", "implausible"]  # fmt: skip
    queries = [tuple(None if part == "?" else part for part in row) for row in rows]
    expected = [a for found in python.answer(queries, 2) for a in found]
    assert len(lines) == len(expected) == 12
    for name in ("answers.parquet", "answers.jsonl", "answers.csv"):
        code, shown, said = ask("predict", *USE, "--queries", "q.tsv", "-k", 2, "--out", name)
        assert (code, shown) == (0, "")
        assert "answers to 6 queries" in said
    table = pq.read_table(place / "answers.parquet").to_pylist()
    assert [row[row["asked"]] for row in table] == [a.name for a in expected]
    lines = (place / "answers.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == table
    _, shown, _ = ask("predict", *USE, "--queries", "q.tsv", "-k", 2, "--json")
    assert json.loads(shown) == table
    _, shown, _ = ask("predict", *USE, "--queries", "q.tsv", "-k", 2, "--jsonl")
    assert [json.loads(line) for line in shown.splitlines()] == table


def test_queries_with_unknown_names_may_be_skipped(ask, place):
    (place / "q3.tsv").write_text("e0001\tr1\t?\nnobody\tr1\t?\n")
    code, shown, said = ask("predict", *USE, "--queries", "q3.tsv", "-k", 1, "--on-error", "skip")
    assert code == 0
    assert len(shown.splitlines()) == 2
    assert "1 query with unknown names skipped" in said


def test_similar_missing_and_embed(ask, place, python):
    code, shown, _ = ask("similar", *USE, "--entity", "e0007", "-k", 3)
    assert code == 0
    assert all(n.name in shown for n in python.similar("e0007", 3))
    _, shown, _ = ask("similar", *USE, "--entity", "e0007", "-k", 3, "--json")
    assert [row["name"] for row in json.loads(shown)] == [
        n.name for n in python.similar("e0007", 3)]  # fmt: skip
    python.use_functional(one_tail={"r1": False}, one_head={"r1": False})
    expected = [vars(m) for m in python.missing(4, relations=["r1"])]
    many = ("missing", *USE, "-k", 4, "--many", "r1")
    _, shown, _ = ask(*many, "--relation", "r1", "--jsonl")
    assert [json.loads(line)["tail"] for line in shown.splitlines()] == [
        m["tail"] for m in expected]  # fmt: skip
    assert "probability" in ask(*many)[1]
    assert ask(*many, "--out", "missing.parquet")[0] == 0
    assert pq.read_table(place / "missing.parquet").num_rows == 4
    code, _, said = ask("embed", *USE, "--out", "v.npy")
    assert code == 0
    assert "60 entities, 8 dimensions" in said
    assert np.allclose(np.load(place / "v.npy"), python.embed(), atol=1e-5)


def test_a_graph_that_calls_relations_otherwise(ask, place):
    other = place / "other"
    other.mkdir()
    (other / "train.txt").write_text("a\tnext\tb\nb\tnext\tc\nc\tleads back to\td\nd\tr2\ta\n")
    (other / "valid.txt").write_text("a\tr2\tc\n")
    (other / "test.txt").write_text("b\tr2\td\n")
    use = ("model", "--data", "other")
    code, shown, _ = ask("schema", *use)
    assert code == 0
    assert "knows 1 of 3 relations, 50.0 % of the triples" in shown
    code, _, said = ask("similar", *use, "--entity", "a")
    assert code == 2
    assert "--relation-map" in said
    (place / "map.tsv").write_text("next\tr0\nleads back to\t^r1\n")
    _, shown, _ = ask("schema", *use, "--relation-map", "map.tsv", "--json")
    found = json.loads(shown)
    assert found["known_relations"] == 3
    assert found["matches"][-1]["inverse"] or found["matches"][-2]["inverse"]
    code, shown, _ = ask("predict", *use, "--relation-map", "map.tsv",
                         "--head", "a", "--relation", "r0", "--json")  # fmt: skip
    assert code == 0
    assert "b" not in [row["name"] for row in json.loads(shown)]  # next is r0: known
    _, shown, _ = ask("predict", *use, "--relation-map", "map.tsv", "--tail", "c",
                      "--relation", "r1", "--known", "--json")  # fmt: skip
    assert [row["name"] for row in json.loads(shown) if row["known"]] == ["d"]  # turned round
    code, _, said = ask("predict", *use, "--relation-map", "map.tsv", "--head", "a",
                        "--relation", "leads back to")  # fmt: skip
    assert code == 2
    assert "renames 'leads back to' to '^r1': use that name" in said
    code, _, said = ask("similar", *use, "--entity", "a", "--on-error", "skip")
    assert code == 0
    assert "3 triples with an unknown relation dropped" in said
    code, shown, _ = ask("evaluate", *use, "--relation-map", "map.tsv", "--json")
    assert json.loads(shown)["n_triples"] == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("predict", *USE, "--head", "e0001"), "Give two of"),
        (("predict", *USE), "Give two of"),
        (("predict", *USE, "--head", "e00011", "--relation", "r1"), "Closest: 'e0011'"),
        (("predict", *USE, "--head", "e0001", "--relation", "r11"), "Closest: 'r1'"),
        (("predict", *USE, "--queries", "none.tsv"), "can't be read"),
        (("predict", *USE, "--queries", "q2.tsv"), "q2.tsv, line 2: unknown entity 'nobody'"),
        (("predict", *USE, "--queries", "q2.tsv", "--head", "a"), "leave --head"),
        (("predict", *USE, "--queries", "q2.tsv", "--out", "x.doc"), "ends in"),
        (("predict", *USE, "--head", "a", "--relation", "b", "--out", "x.doc"), "ends in"),
        (("predict", "graph", "--data", "graph", "--head", "a", "--tail", "b"), "not a model"),
        (("similar", *USE, "--entity", "nobody"), "unknown entity 'nobody'"),
        (("missing", *USE, "--relation", "nope"), "unknown relation 'nope'"),
        (("missing", *USE, "--out", "x.doc"), "ends in"),
        (("embed", *USE, "--out", "x.doc"), "ends in"),
        (("embed", *USE, "--out", "none/x.npy"), "no folder"),
        (("schema", *USE, "--relation-map", "none.tsv"), "can't be read"),
    ],
)
def test_invalid_input_exits_with_code_2(ask, place, args, words):
    (place / "q2.tsv").write_text("e0001\tr1\t?\nnobody\tr1\t?\n")
    code, shown, said = ask(*args)
    assert (code, shown) == (2, "")
    assert words in said
    assert "Traceback" not in said
