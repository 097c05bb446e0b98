"""Commands without a model of one's own: any graph gets an answer, or an error in words."""

from __future__ import annotations

import json
import re

import pytest
from support.commands import pathe, refused
from support.graphs import toy
from support.models import any_graph_artifact, artifact_of

from pathe.model.artifact import save_model

TRAIN = "a r b; b r c; c s d; d s a; b s d"
SPLITS = {"train": TRAIN, "valid": "a r d; a q d", "test": "a r c; a q c; x r y"}
GRAPHS = {
    "one.tsv": "a r b",
    "loops.tsv": "a r a; b r b; c r c",
    "twice.tsv": "a r b; a r b; b s c; b s c",
    "star.tsv": "; ".join(f"a r e{i}" for i in range(2000)),
    "parts.tsv": "a r b; " + "; ".join(f"x{i} {'rs'[i % 2]} y{i}" for i in range(2000)),
}
ODD = ["has part", 'say "hi"', "it's", "出身地", "-r", "?"]


def lines(text: str) -> str:
    return "".join("\t".join(row.split()) + "\n" for row in text.split(";"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    for name, text in GRAPHS.items():
        (folder / name).write_text(lines(text))
    (folder / "empty.tsv").write_text("")
    (folder / "header.csv").write_text("head,relation,tail\n")
    (folder / "unnamed.tsv").write_text("a\tr\tb\nb\t\tc\n")
    odd = [f"a\t{r}\tb\nb\t{r}\t東京\n" for r in ODD]
    (folder / "odd.tsv").write_text("".join(odd), encoding="utf-8")
    for name, test in (("split", SPLITS["test"]), ("unseen", "x r y; y s z"), ("other", "a q b")):
        (folder / name).mkdir()
        for split, text in (SPLITS | {"test": test}).items():
            (folder / name / f"{split}.tsv").write_text(lines(text))
    save_model(folder / "any", any_graph_artifact())
    save_model(folder / "table", artifact_of(toy()))
    return folder


def answered(*args, cwd) -> str:
    found = pathe(*args, cwd=cwd)
    assert found.returncode == 0, found.stderr
    assert "error" not in found.stderr
    return found.stdout


@pytest.mark.parametrize("graph", GRAPHS)
def test_any_graph_gets_answers(place, graph):
    given = ("--data", graph)
    asked = ("predict", *given, "--head", "a", "--relation", "r", "--known", "-k", 3)
    rows = json.loads(answered(*asked, "--explain", "--json", cwd=place))
    assert 2 <= len(rows) <= 3
    assert all(0 <= row["probability"] <= 1 for row in rows)
    answered("rules", *given, "-k", 1, "--facts", 2, cwd=place)
    if graph != "parts.tsv":
        shown = answered("missing", *given, "-k", 2, "--jsonl", cwd=place)
        assert len(shown.splitlines()) <= 2


def test_names_of_relations_may_be_odd(place):
    for relation in ODD:
        asked = ("predict", "--data", "odd.tsv", "--head", "a", f"--relation={relation}")
        rows = json.loads(answered(*asked, "--known", "--json", cwd=place))
        assert {row["name"] for row in rows if row["known"]} == {"b"}
    found = {row["relation"] for row in json.loads(
        answered("rules", "--data", "odd.tsv", "-k", 1, "--json", cwd=place))}  # fmt: skip
    assert found == set(ODD)


def test_test_triples_of_relations_that_train_lacks_are_left_out_and_counted(place):
    shown = answered("evaluate", "--data", "split", "--test-set", "all", cwd=place)
    assert "2 triples, ranked" in shown
    assert "1 triple left out" in shown
    shown = answered("evaluate", "--data", "unseen", "--test-set", "unseen", cwd=place)
    assert "2 triples, ranked" in shown


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("evaluate --data other", r"1 left out as their relations have no training triple"),
        ("evaluate --data unseen", r"2 in total; test set: seen\)\. --test-set all includes"),
        ("evaluate --data one.tsv", r"0 in total.*--split 0\.8,0\.1,0\.1"),
        ("predict --data split --head a --relation q", r"'q' occurs only in valid or test.* train"),
        ("missing --data split --relation q", r"'q' occurs only in valid or test"),
        ("rules --data split --relation q", r"'q' occurs only in valid or test"),
        ("predict --data split --head a --relation R", r"unknown relation 'R'\. Closest: 'r'"),
        ("predict --data one.tsv --head zz --relation r", r"entity 'zz'\. Known: 'a', 'b'\."),
        ("predict --data star.tsv --head ? --relation r", r"'a', 'e0', .* and 1,996 more\."),
        ("missing --data one.tsv --relation zz", r"unknown relation 'zz'\. Known: 'r'\."),
        ("predict --data empty.tsv --head a --relation r", r"no triples; expected at least one"),
        ("missing --data header.csv", r"no triples; expected at least one"),
        ("rules --data unnamed.tsv", r"line 2: expected a relation in column 2"),
        ("predict --data one.tsv --head a --relation r -k 0", r"k must be .* at least 1; got 0\."),
        ("missing --data one.tsv -k -1", r"k must be a whole number of at least 1; got -1\."),
        ("rules --data one.tsv -k 0", r"k must be a whole number of at least 1; got 0\."),
        ("evaluate table --data split", r"knows none of its 3 relations"),
        ("pretrain one.tsv --out none", r"at least two training triples, got 1"),
        ("pretrain empty.tsv --out none", r"no triples; expected at least one"),
        ("train empty.tsv --set init=pretrained", r"no triples; expected at least one"),
    ],
)
def test_what_cannot_be_answered_is_an_error_that_says_what_to_do(place, args, words):
    assert re.search(words, refused(*args.split(), cwd=place))


COMMANDS = {
    "predict": ("--head", "a", "--relation", "r"), "missing": (), "rules": (), "evaluate": (),
    "similar": ("--entity", "a"), "embed": ("--out", "vectors.tsv"),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_graph_in_the_place_of_the_model_is_recognised(place, command):
    more = COMMANDS[command]
    for model in ("one.tsv", "split", "nowhere"):
        said = refused(command, model, "--data", "one.tsv", *more, cwd=place)
        assert f"{model}: no" in said
        assert "If it is a graph, give it as --data" in said
    assert "nowhere" in refused(command, "nowhere", *more, cwd=place)
    asked = (*more, "--debug" if command == "embed" else "--json")
    alone, named = (
        pathe(command, *graph, *asked, cwd=place) for graph in (["split"], ["--data", "split"])
    )
    assert alone.returncode == named.returncode == 0
    if command != "evaluate":  # it has times
        assert alone.stdout == named.stdout
    for model in ((), ("any",)):
        assert "Give the graph: --data DATA" in refused(command, *model, *more, cwd=place)


def test_training_leaves_out_triples_of_relations_that_train_lacks(place):
    settings = ("--set", "init=pretrained", "--set", "max_epochs=1", "--set", "accelerator=cpu")
    told = pathe("train", "split", *settings, "--out", "run", cwd=place)
    assert told.returncode == 0, told.stderr
    assert "2 valid and test triples left out: train lacks their relations" in told.stderr
    again = pathe("train", "split", "--resume", "--out", "run", cwd=place)  # the same data
    assert again.returncode == 0, again.stderr
    words = refused("train", "split", "--preset", "tiny", "--out", "no", cwd=place)
    assert "'q'" in words
