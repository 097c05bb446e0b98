"""Candidates by type, list and kind, from the command line, on the films graph."""

from __future__ import annotations

import csv
import json

import pytest
from support.commands import pathe, refused
from support.films import films
from support.models import any_graph_artifact
from support.places import ROOT

from pathe.model.artifact import save_model

FILMS = ROOT / "examples" / "films.csv"
TYPES = ROOT / "examples" / "films-types.csv"
GAP = next(gap for gap in films().gaps if gap[1] == "nationality")
QUERY = ("--head", GAP[0], "--relation", "nationality")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("candidates")
    save_model(folder / "model", any_graph_artifact())
    (folder / "some.txt").write_text("France\nIndia\nParis\n")
    (folder / "some.csv").write_text('entity,note\n"Washington, D.C.",x\nIndia,y\n')
    (folder / "unknown.txt").write_text("France\nAtlantis\n")
    (folder / "empty.txt").write_text("\n")
    (folder / "three.csv").write_text("entity,type\nFrance,Country,x\n")
    return folder


def found(place, *args) -> list[dict]:
    asked = ("predict", "model", "--data", FILMS, "--json", "-k", 1000, *args)
    answer = pathe(*asked, cwd=place)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def names(place, *args) -> set[str]:
    return {row["name"] for row in found(place, *args)}


def of_type(kind: str) -> set[str]:
    return {name for name, own in films().types.items() if own == kind}


def test_nationalities_are_countries(place):
    assert names(place, *QUERY) == of_type("Country")
    assert len(names(place, *QUERY, "--no-plausible")) > 600


def test_types_lists_and_exclusions(place):
    assert names(place, *QUERY, "--types", TYPES, "--type", "City") == of_type("City")
    by_relation = ("--type-relation", "part_of", "--type", "Oceania")
    assert names(place, *QUERY, *by_relation) == {"Australia", "New Zealand"}
    assert names(place, *QUERY, "--among", "some.txt") == {"France", "India", "Paris"}
    assert names(place, *QUERY, "--among", "some.csv") == {"Washington, D.C.", "India"}
    assert names(place, *QUERY, "--among", "some.txt", "--plausible") == {"France", "India"}
    less = names(place, *QUERY, "--exclude", "some.txt", "--exclude", "Japan")
    assert less == of_type("Country") - {"France", "India", "Japan"}
    skipped = ("--among", "unknown.txt", "--on-error", "skip")
    assert names(place, *QUERY, *skipped) == {"France"}


def test_similar_entities_of_a_type(place):
    asked = ("similar", "model", "--data", FILMS, "--entity", "Paris", "--json", "-k", 3)
    shown = pathe(*asked, "--types", TYPES, "--type", "Country", "--exclude", "France", cwd=place)
    rows = json.loads(shown.stdout)
    assert len(rows) == 3
    assert {row["name"] for row in rows} < of_type("Country") - {"France"}


def test_complete_and_implausible_queries_say_so(place):
    asked = ("predict", "model", "--data", FILMS, "-k", 2)
    shown = pathe(*asked, "--head", "Rome", "--relation", "capital_of", cwd=place).stdout
    assert "probably complete: nearly every head of capital_of has one tail; known: Italy" in shown
    shown = pathe(*asked, "--head", "India", "--relation", "born_in", cwd=place).stdout
    assert "implausible: no entity like India is a head of born_in" in shown
    assert "implausible left out; --no-plausible ranks them, too" in shown
    shown = pathe(*asked, *QUERY, cwd=place).stdout
    assert "complete" not in shown
    assert "implausible:" not in shown
    [row] = found(place, "--head", "Rome", "--relation", "capital_of", "--among", "some.txt")[:1]
    assert row["complete"] is True
    assert row["implausible"] is False
    (place / "q.csv").write_text("Rome,capital_of,?\nIndia,born_in,?\nRome,?,France\n")
    done = pathe(*asked, "--queries", "q.csv", "--out", "a.csv", cwd=place)
    assert done.returncode == 0, done.stderr
    with (place / "a.csv").open(newline="", encoding="utf-8") as file:
        rows = [(row["complete"], row["implausible"]) for row in csv.DictReader(file)]
    assert rows == [("True", "False")] * 2 + [("False", "True")] * 2 + [("False", "False")] * 2


def test_relations_suit_head_and_tail(place):
    asked = ("predict", "model", "--data", FILMS, "--head", "Rome", "--tail", "France", "--json")
    rows = json.loads(pathe(*asked, cwd=place).stdout)
    assert {row["name"] for row in rows} <= {"located_in", "capital_of"}
    more = json.loads(pathe(*asked, "--no-plausible", "-k", 99, cwd=place).stdout)
    assert len(more) > len(rows)
    shown = pathe(*asked[:-1], cwd=place).stdout
    assert "implausible left out; --no-plausible ranks them, too" in shown


def test_no_answer_is_left(place):
    asked = ("predict", "model", "--data", FILMS, "--head", "Rome", "--relation", "capital_of")
    (place / "italy.txt").write_text("Italy\n")
    shown = pathe(*asked, "--among", "italy.txt", cwd=place).stdout
    assert "no answers left: all are known or left out" in shown
    done = pathe(*asked, "--among", "italy.txt", "--json", cwd=place)
    assert json.loads(done.stdout) == []
    assert "probably complete" in done.stderr
    lines = pathe(*asked, "--among", "italy.txt", "--jsonl", cwd=place)
    assert (lines.returncode, lines.stdout) == (0, "")
    assert "no answers left" in lines.stderr


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--type", "Country"), "no relation such as rdf:type"),
        (("--types", TYPES, "--type", "Contry"), "unknown type 'Contry'. Closest: 'Country'"),
        (("--types", TYPES, "--type-relation", "part_of"), "--types or --type-relation, not both"),
        (("--types", "three.csv"), "line 2: expected two columns, entity and type; got 3"),
        (("--type-relation", "kind_of"), "unknown relation 'kind_of'"),
        (("--among", "unknown.txt"), "unknown.txt, line 2: unknown entity 'Atlantis'"),
        (("--among", "empty.txt"), "empty.txt: no names in it"),
        (("--among", "absent.txt"), "absent.txt: the names can't be read"),
        (("--exclude", "Atlantis"), "unknown entity 'Atlantis'"),
        (("--tail", "France", "--exclude", "Japan"), "no head or tail to predict"),
        (("--tail", "France", "--no-plausible"), "no head or tail to predict"),
    ],
)
def test_bad_options_are_refused(place, args, expected):
    told = refused("predict", "model", "--data", FILMS, *QUERY, *args, cwd=place)
    assert expected in told
