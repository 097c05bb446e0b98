"""RDF on the command line and in Python: prefixes, labels, and triples as Turtle."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyoxigraph as ox
import pytest
from support.commands import pathe, refused
from support.places import ROOT

from pathe import Predictor
from pathe.data.knowledge_graph import KnowledgeGraph

EX = "http://example.org/"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with europe.ttl: the example graph with prefixes and labels."""
    folder = tmp_path_factory.mktemp("rdf")
    label = ox.NamedNode("http://www.w3.org/2000/01/rdf-schema#label")
    triples = []
    with (ROOT / "examples" / "europe.csv").open(encoding="utf-8") as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    for row in rows:
        triples.append(ox.Triple(*(ox.NamedNode(EX + name.replace(" ", "_")) for name in row)))
    for name in sorted({name for head, _, tail in rows for name in (head, tail)}):
        node, text = ox.NamedNode(EX + name.replace(" ", "_")), ox.Literal(name, language="en")
        triples.append(ox.Triple(node, label, text))
    path = str(folder / "europe.ttl")
    ox.serialize(triples, path, format=ox.RdfFormat.TURTLE, prefixes={"ex": EX})
    return folder


def answered(*args: str | Path, cwd: Path) -> str:
    found = pathe(*args, cwd=cwd)
    assert found.returncode == 0, found.stderr
    assert "291 labels read" in found.stderr
    return str(found.stdout)


@pytest.mark.parametrize("head", ["ex:New_Vienna", "Viena", "exa:Vienna", "<http://x/>"])
def test_unknown_names_exit_with_suggestions(place: Path, head: str) -> None:
    data = ("--data", "europe.ttl", "--relation", "ex:capital_of")
    message = refused("predict", *data, "--head", head, cwd=place)
    assert f"unknown entity '{head}'" in message
    assert ("The prefix 'exa' isn't known. Closest: 'ex'." in message) == (head[:4] == "exa:")


@pytest.mark.parametrize("head", ["ex:Vienna", "<http://example.org/Vienna>", "Vienna"])
def test_a_query_with_any_spelling(place: Path, head: str) -> None:
    asked = ("predict", "--data", "europe.ttl", "--head", head, "--relation", "ex:capital_of")
    shown = answered(*asked, "--known", "-k", "1", "--explain", cwd=place)
    assert "Vienna  -ex:capital_of->  ?" in shown
    assert " 1  Austria" in shown
    assert EX not in shown
    [answer] = json.loads(answered(*asked, "--known", "-k", "1", "--json", cwd=place))
    assert answer["name"] == f"{EX}Austria"  # exact names for programs
    shown = answered(*asked, "--tail", "ex:Austria", cwd=place)
    assert "Vienna  -ex:capital_of->  Austria" in shown


def test_other_commands(place: Path) -> None:
    assert "Vienna" in answered("similar", "--data", "europe.ttl", "--entity", "Vienna", cwd=place)
    shown = answered("paths", "europe.ttl", "--entity", "ex:Vienna", cwd=place)
    assert "-ex:capital_of-> Austria" in shown
    assert "ex:member_of" in answered("analyze", "europe.ttl", cwd=place)
    asked = ("rules", "--data", "europe.ttl", "--relation", "ex:capital_of", "--facts", "2")
    assert "-ex:city_in->" in answered(*asked, cwd=place)


@pytest.mark.parametrize("suffix", [".ttl", ".nt"])
def test_answers_as_triples(place: Path, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "q.csv").write_text(
        "Danube,?,ex:Austria\n<http://example.org/Estonia>,ex:currency,?\n"
    )
    out = tmp_path / f"answers{suffix}"
    asked = ("predict", "--data", "europe.ttl", "--queries", tmp_path / "q.csv", "-k", "1")
    answered(*asked, "--known", "--out", out, cwd=place)
    found = [(q.subject.value, q.predicate.value, q.object.value) for q in ox.parse(path=str(out))]
    assert found == [
        (f"{EX}Danube", f"{EX}flows_through", f"{EX}Austria"),
        (f"{EX}Estonia", f"{EX}currency", f"{EX}Euro"),
    ]
    assert ("ex:Danube ex:flows_through ex:Austria ." in out.read_text()) == (suffix == ".ttl")
    out = tmp_path / f"missing{suffix}"
    answered("missing", "--data", "europe.ttl", "--relation", "ex:borders", "-k", "3",
             "--n-queries", "20", "--no-reasons", "--out", out, cwd=place)  # fmt: skip
    assert len(KnowledgeGraph.read(out).train) == 3


def test_one_answer_as_a_triple(place: Path, tmp_path: Path) -> None:
    query = ("predict", "--data", "europe.ttl", "--head", "Vienna", "--relation", "ex:capital_of")
    for more in (("--known", "-k", "1"), ("--tail", "ex:Austria")):
        out = tmp_path / "answer.ttl"
        answered(*query, *more, "--out", out, cwd=place)
        assert out.read_text().splitlines()[-1] == "ex:Vienna ex:capital_of ex:Austria ."
    message = refused("similar", "--data", "europe.ttl", "--entity", "Vienna", "--out", out,
                      cwd=place)  # fmt: skip
    assert "answer.ttl: expected a name that ends in .tsv" in message


def test_candidates_with_any_spelling(place: Path, tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("ex:Vienna\nParis\n<http://example.org/Graz>\nBerlin\n")
    (tmp_path / "types.csv").write_text("Vienna,ex:Town\nex:Graz,ex:Town\nBerlin,ex:City\n")
    query = ("predict", "--data", "europe.ttl", "--relation", "ex:capital_of", "--tail", "Austria",
             "--known", "--json")  # fmt: skip
    among = ("--among", tmp_path / "some.txt", "--exclude", "Paris", "--exclude", "ex:Berlin")
    typed = ("--types", tmp_path / "types.csv", "--type", f"{EX}Town")
    for more in (among, typed, (*typed[:-1], "ex:Town")):
        found = json.loads(answered(*query, *more, cwd=place))
        assert {row["name"] for row in found} == {f"{EX}Vienna", f"{EX}Graz"}
    message = refused(*query, *typed[:-1], "ex:Twon", cwd=place)
    assert "unknown type 'ex:Twon'. Closest: 'ex:Town'" in message
    shown = " ".join(answered(*query[:-1], cwd=place).split())
    assert "nearly every tail of ex:capital_of has one head; known: Vienna" in shown  # as labels


def test_changed_facts_with_any_spelling(place: Path, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("Vienna,ex:capital_of,<http://example.org/Austria>\n")
    (tmp_path / "new.csv").write_text("ex:New_Town,ex:city_in,Austria\n")
    (tmp_path / "new.ttl").write_text(
        "@prefix ex: <http://example.org/> . @prefix n: <http://new.org/> .\n"
        "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
        'n:town ex:city_in ex:Austria ; rdfs:label "Neustadt"@de, "Newtown"@en .\n'
    )
    query = ("predict", "--data", "europe.ttl", "--relation", "ex:city_in", "--tail", "Austria",
             "--known", "--json", "-k", "20")  # fmt: skip
    for name, iri in (("new.csv", f"{EX}New_Town"), ("new.ttl", "http://new.org/town")):
        found = json.loads(answered(*query, "--add", tmp_path / name, cwd=place))
        assert iri in {row["name"] for row in found if row["known"]}
    asked = ("predict", "--data", "europe.ttl", "--relation", "ex:city_in", "--head", "Neustadt")
    shown = answered(*asked, "--add", tmp_path / "new.ttl", "--language", "de", cwd=place)
    assert "Neustadt  -ex:city_in->  ?" in shown
    asked = ("predict", "--data", "europe.ttl", "--relation", "ex:capital_of", "--head", "Vienna",
             "--remove", tmp_path / "old.csv")  # fmt: skip
    assert " 1  Austria" in answered(*asked, cwd=place)
    (tmp_path / "old.csv").write_text("Vienna,ex:capital_of,ex:Estonia\n")
    message = refused(*asked, cwd=place)
    assert "Tails of 'Vienna' and 'ex:capital_of': 'Austria'." in message


def test_metrics_per_relation(place: Path) -> None:
    asked = ("evaluate", "--data", "europe.ttl", "--split", "0.8,0.1,0.1")
    shown = answered(*asked, "--per-relation", cwd=place)
    assert "ex:borders" in shown
    assert EX not in shown
    [row, *_] = json.loads(answered(*asked, "--json", cwd=place))["per_relation"]
    assert row["relation"].startswith(EX)


def test_plain_names_become_iris_and_back(tmp_path: Path) -> None:
    csv_file = ROOT / "examples" / "europe.csv"
    printed = []
    for source, target, more in (
        (csv_file, "a.ttl", ()),
        ("a.ttl", "a.csv", ()),
        (csv_file, "b.nt.gz", ("--base-iri", "http://x.org/")),
        ("b.nt.gz", "b.csv", ("--base-iri", "http://x.org/")),
    ):
        done = pathe("convert", source, target, *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        printed.append(done.stderr.split("fingerprint ")[1])
    assert len(set(printed)) == 1
    assert "<urn:pathe:>" in (tmp_path / "a.ttl").read_text()


def test_options(place: Path) -> None:
    for bad in ("ex", "ex=", "ex=nonsense", "a:b=http://x/"):
        assert "--prefix: expected prefix=IRI" in refused(
            "analyze", "europe.ttl", "--prefix", bad, cwd=place
        )
    shown = answered("paths", "europe.ttl", "--entity", "e:Vienna", "--prefix", f"e:=<{EX}>",
                     cwd=place)  # fmt: skip
    assert "Vienna" in shown
    assert "--language" in refused("analyze", "europe.ttl", "--language", "e n", cwd=place)


def test_python(place: Path) -> None:
    p = Predictor(place / "europe.ttl")
    same = [p.tails(head, "ex:capital_of", 1, filter_known=False) for head in
            ("ex:Vienna", "Vienna", f"<{EX}Vienna>", f"{EX}Vienna")]  # fmt: skip
    assert all(other == same[0] for other in same)
    assert same[0][0].name == f"{EX}Austria"
    assert p.names.shown(same[0])[0].name == "Austria"
    assert "known: Austria" in p.names.shown(same[0]).notes[0]  # still Answers
    [scored] = p.score([("Vienna", "ex:capital_of", "ex:Austria")])
    assert (scored.head, scored.relation) == (f"{EX}Vienna", f"{EX}capital_of")
    assert p.explain("Vienna", "ex:capital_of", "Austria").head == f"{EX}Vienna"
    assert p.exact(("Vienna", "ex:capital_of", None)) == (f"{EX}Vienna", f"{EX}capital_of", None)
    assert p.add([("ex:New_Town", "ex:city_in", "Austria")]) == 1
    assert p.add([(f"{EX}New_Town", "ex:city_in", "ex:Austria")]) == 0
    assert p.tails("ex:New_Town", "ex:located_in", 1)
