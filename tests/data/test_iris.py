"""Triples as N-Triples and Turtle: names survive, and other programs read the files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathe.core.errors import ConfigError, DataError
from pathe.data.iris import check_base, from_iri, rdf_lines, to_iri
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.names import BASE, Names
from pathe.data.readers import ReadOptions
from pathe.data.row_files import row_writer
from pathe.data.triples import write_triples

ODD = [
    "plain", "two words", 'a "quote"', "it's", "東京", "Zürich", "<b>&amp;</b>", "a\\b", "a%20b",
    "tab\tand\nline", "http://x.org/a", "http://x.org/a b", "urn:pathe:x", "urn:pathe:%41", "_:b0",
    "_:not a label", "Alien: Covenant", "12:30", "a.", ".", "..", "-", "🎬", "e\u0301", "\ufeffx",
    "?", "#", "/", "a/b#c?d=e", "[x]", "{y}", "|", "^", "`", "نص",
]  # fmt: skip


def terms(path: Path) -> list[tuple[str, str, str]]:
    """The triples of a file, as pyoxigraph reads them."""
    quads = ox.parse(path=str(path))
    return [(q.subject.value, q.predicate.value, q.object.value) for q in quads]


@pytest.mark.parametrize("suffix", [".nt", ".ttl"])
@pytest.mark.parametrize("base", [None, "http://example.org/data/"])
def test_odd_names_come_back(tmp_path: Path, suffix: str, base: str | None) -> None:
    facts = [(a, b, c) for a, b, c in zip(ODD, ODD[1:], ODD[2:], strict=False)]
    kg = KnowledgeGraph.from_triples(facts)
    path = tmp_path / f"x{suffix}"
    names = Names(base=base or BASE)
    entities = kg.entities.with_spellings(names)
    write_triples(path, kg.train, entities, kg.relations)
    assert len(set(terms(path))) == len(facts)
    again = KnowledgeGraph.read(path, options=ReadOptions(base_iri=base))
    assert again.fingerprint() == kg.fingerprint()


@given(st.text(st.characters(codec="utf-8"), min_size=1), st.sampled_from([BASE, "http://x.org/"]))
def test_a_name_and_its_iri(name: str, base: str) -> None:
    iri = to_iri(name, base)
    assert ox.NamedNode(iri).value == iri
    assert from_iri(iri, base) == name


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(*[st.text(st.characters(codec="utf-8"), min_size=1)] * 3), min_size=1))
def test_any_names_come_back(facts: list[tuple[str, str, str]]) -> None:
    kg = KnowledgeGraph.from_triples(facts)
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".nt", ".ttl"):
            path = Path(folder) / f"x{suffix}"
            write_triples(path, kg.train, kg.entities, kg.relations)
            assert KnowledgeGraph.read(path).fingerprint() == kg.fingerprint()


def test_iris_that_the_base_did_not_make_stay() -> None:
    for iri in ("http://x/a", "urn:pathe:", "urn:pathe:a/b", "urn:pathe:%41", "urn:pathe:%FF"):
        assert from_iri(iri, BASE) == iri
    assert from_iri("urn:pathe:a%2Fb", BASE) == "a/b"


def test_turtle_has_the_prefixes_of_the_graph(tmp_path: Path) -> None:
    text = """@prefix ex: <http://x.org/> . @prefix in: <http://x.org/in/> . @prefix : <http://y/> .
    ex:a ex:r in:b . :c ex:r <http://x.org/in/b/c> . ex:a ex:r <http://x.org/a.> , [] ."""
    (tmp_path / "x.ttl").write_text(text)
    kg = KnowledgeGraph.read(tmp_path / "x.ttl")
    write_triples(tmp_path / "y.ttl", kg.train, kg.entities, kg.relations)
    assert (tmp_path / "y.ttl").read_text().splitlines() == [
        "@prefix : <http://y/> .",
        "@prefix ex: <http://x.org/> .",
        "@prefix in: <http://x.org/in/> .",
        "",
        "ex:a ex:r _:x-0 .",
        "ex:a ex:r <http://x.org/a.> .",
        "ex:a ex:r in:b .",
        ":c ex:r <http://x.org/in/b/c> .",
    ]
    assert KnowledgeGraph.read(tmp_path / "y.ttl").fingerprint() == kg.fingerprint()


def test_plain_names_have_an_empty_prefix() -> None:
    start, line = rdf_lines(".ttl", Names())
    assert start == "@prefix : <urn:pathe:> .\n\n"
    assert line("New York", "located in", "USA") == ":New%20York :located%20in :USA .\n"
    start, line = rdf_lines(".nt", Names())
    assert start == ""
    assert line("_:a", "_:r", "b") == "_:a <urn:pathe:_%3Ar> <urn:pathe:b> .\n"


def test_prefixes_that_turtle_cannot_hold_are_left_out() -> None:
    bad = (("a b", "http://x/"), ("r", "#relative"), ("s", "http://x/> ."), ("1", "http://y/"))
    start, line = rdf_lines(".ttl", Names((*bad, ("ok", "http://z/"), ("ok", "http://again/"))))
    assert start == "@prefix ok: <http://z/> .\n\n"
    assert line("http://x/a", "http://z/r", "http://again/b").startswith("<http://x/a> ok:r <")


@pytest.mark.parametrize("suffix", [".nt", ".ttl"])
def test_rows_are_written_as_their_triples(tmp_path: Path, suffix: str) -> None:
    columns = {"rank": int, "head": str, "relation": str, "tail": str, "score": float}
    names = Names((("ex", "http://x.org/"),))
    path = tmp_path / f"rows{suffix}"
    row = {"rank": 1, "head": "http://x.org/a", "relation": "r s", "tail": "_:b", "score": 0.5}
    with row_writer(path, columns, names) as write:
        write([row])
    assert terms(path) == [("http://x.org/a", "urn:pathe:r%20s", "b")]
    assert (suffix == ".ttl") == ("ex:a" in path.read_text())
    with pytest.raises(ConfigError, match="is for triples"), row_writer(path, {"name": str}):
        pass


def test_splits_as_turtle(tmp_path: Path) -> None:
    kg = KnowledgeGraph.from_triples([("a b", "r", "c")], [("c", "r", "a b")], [("c", "r", "c")])
    kg.save(tmp_path / "g", ".ttl.gz")
    assert KnowledgeGraph.read(tmp_path / "g").fingerprint() == kg.fingerprint()


def test_bad_bases(tmp_path: Path) -> None:
    for base in ("", "x", "http://a b/", "http://x/%41", "1:"):
        with pytest.raises(ConfigError, match="--base-iri: expected the start of an IRI"):
            check_base(base)
    (tmp_path / "x.csv").write_text("a,b,c\n")
    with pytest.raises(ConfigError, match="--base-iri"):
        KnowledgeGraph.read(tmp_path / "x.csv", options=ReadOptions(base_iri="nonsense"))
    with pytest.raises(DataError, match="--language doesn't apply"):
        KnowledgeGraph.read(tmp_path / "x.csv", options=ReadOptions(language="en"))
