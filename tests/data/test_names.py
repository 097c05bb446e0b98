"""Prefixes and labels: what a name may be written as, and how it is shown."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import pytest

from pathe.core.errors import ConfigError, UnknownNameError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.names import Names
from pathe.data.readers import ReadOptions
from pathe.data.schema import align
from pathe.data.vocabulary import GrowingVocabulary, Vocabulary

EX = "http://example.org/"
TURTLE = """
@prefix ex: <http://example.org/> .
@prefix exs: <http://example.org/stuff/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
ex:vienna ex:capitalOf ex:austria .
ex:wien-id ex:capitalOf ex:austria .
ex:graz ex:cityIn ex:austria .
exs:a ex:cityIn <http://elsewhere.org/b> .
ex:vienna rdfs:label "Vienna"@en , "Wien"@de , "Vienne"@fr , "Vienna City"@en-GB .
ex:graz rdfs:label "Graz" , "Gratz"@fr ; skos:prefLabel "Graz!"@fr .
ex:austria rdfs:label "Austria"@en ; skos:prefLabel "Republic of Austria"@en .
ex:capitalOf rdfs:label "capital of"@en .
exs:a rdfs:label "twice"@en .
<http://elsewhere.org/b> rdfs:label "twice"@en .
ex:nobody rdfs:label "not in the graph"@en .
ex:vienna ex:population 2000000 .
"""


@pytest.fixture
def kg(tmp_path: Path) -> KnowledgeGraph:
    return read(tmp_path)


def read(folder: Path, **options: object) -> KnowledgeGraph:
    (folder / "x.ttl").write_text(TURTLE, encoding="utf-8")
    return KnowledgeGraph.read(folder / "x.ttl", options=ReadOptions(**options))  # type: ignore[arg-type]


def test_an_entity_has_many_spellings(kg: KnowledgeGraph) -> None:
    same = ("http://example.org/vienna", "<http://example.org/vienna>", "ex:vienna", "Vienna")
    assert {kg.entities.exact(name) for name in same} == {f"{EX}vienna"}
    assert len(set(kg.entities.ids(list(same)).tolist())) == 1
    assert kg.relations.exact("ex:capitalOf") == kg.relations.exact("capital of")
    assert "ex:vienna" not in kg.entities  # only exact names are in a vocabulary


def test_all_labels_are_accepted_and_the_preferred_one_is_shown(tmp_path: Path) -> None:
    """In any language, and alternative ones; a label that is shown comes before others'."""
    more = """ex:vienna skos:altLabel "Vindobona", "the capital"@en .
    ex:graz skos:altLabel "the capital"@en , "Vienna"@en .
    ex:wien-id skos:altLabel "only this"@en ."""
    (tmp_path / "y.ttl").write_text(TURTLE + more, encoding="utf-8")
    kg = KnowledgeGraph.read(tmp_path / "y.ttl")
    for label in ("Vienna", "Wien", "Vienne", "Vienna City", "Vindobona"):
        assert kg.entities.exact(label) == f"{EX}vienna", label
    assert kg.entities.exact("Gratz") == kg.entities.exact("Graz!") == f"{EX}graz"
    assert kg.entities.exact("Austria") == kg.entities.exact("Republic of Austria")
    assert kg.entities.exact("only this") == f"{EX}wien-id"
    assert kg.names.show(f"{EX}vienna") == "Vienna"
    assert kg.names.show(f"{EX}wien-id") == "ex:wien-id"  # alternative labels are not shown
    with pytest.raises(UnknownNameError, match=r"can mean 2 entities: .*graz>, .*vienna>"):
        kg.entities.exact("the capital")
    with pytest.raises(UnknownNameError, match=r"Closest: .*'Vindobona'"):
        kg.entities.exact("Vindobonna")
    assert kg.report.all_labels == set()


def test_labels_are_no_triples(kg: KnowledgeGraph) -> None:
    assert len(kg.train) == 4
    assert kg.report.literals == 1
    assert not [name for name in kg.relations if "label" in name.lower()]
    assert kg.names.with_label("not in the graph") == []
    plain = KnowledgeGraph.from_triples(
        [
            (f"{EX}vienna", f"{EX}capitalOf", f"{EX}austria"),
            (f"{EX}wien-id", f"{EX}capitalOf", f"{EX}austria"),
            (f"{EX}graz", f"{EX}cityIn", f"{EX}austria"),
            (f"{EX}stuff/a", f"{EX}cityIn", "http://elsewhere.org/b"),
        ]
    )
    assert kg.fingerprint() == plain.fingerprint()


def test_how_names_are_shown(kg: KnowledgeGraph) -> None:
    show = kg.names.show
    assert show(f"{EX}vienna") == "Vienna"
    assert show(f"{EX}wien-id") == "ex:wien-id"
    assert show(f"{EX}stuff/a") == "twice (exs:a)"  # the longest IRI of a prefix, a shared label
    assert show("http://elsewhere.org/b") == "twice (http://elsewhere.org/b)"
    assert show(f"^{EX}capitalOf") == "^capital of"
    assert show("plain") == "plain"
    assert show(EX) == EX  # a prefix alone is no name
    shown = {kg.names.show(name) for name in kg.entities}
    assert len(shown) == kg.n_entities


@dataclass(frozen=True)
class Row:
    rank: int
    name: str
    steps: list[tuple[str, str, str]]


class Rows(list[Row]):
    """Rows of a query."""

    def __init__(self, rows: list[Row], query: tuple[str, str, None]) -> None:
        super().__init__(rows)
        self.query = query


def test_lists_with_attributes_keep_them(kg: KnowledgeGraph) -> None:
    rows = Rows([Row(1, f"{EX}austria", [])], (f"{EX}graz", f"{EX}cityIn", None))
    shown = kg.names.shown(rows)
    assert isinstance(shown, Rows)
    assert shown == [Row(1, "Republic of Austria", [])]
    assert shown.query == ("Graz", "ex:cityIn", None)
    assert rows.query[0] == rows[0].name.replace("austria", "graz") == f"{EX}graz"


def test_results_are_shown_as_copies(kg: KnowledgeGraph) -> None:
    row = Row(1, f"{EX}graz", [(f"{EX}graz", f"{EX}cityIn", f"{EX}austria")])
    assert kg.names.shown((row, None, 0.5)) == (
        Row(1, "Graz", [("Graz", "ex:cityIn", "Republic of Austria")]), None, 0.5,
    )  # fmt: skip
    assert kg.names.shown({f"{EX}graz": [f"{EX}graz"]}) == {f"{EX}graz": ["Graz"]}
    assert Names().shown(row) is row


@pytest.mark.parametrize(
    ("language", "vienna", "graz"),
    [
        (None, "Vienna", "Graz"),
        ("en", "Vienna", "Graz"),
        ("de", "Wien", "Graz"),
        ("fr,en", "Vienne", "Graz!"),  # skos:prefLabel comes before rdfs:label
        ("en-GB", "Vienna City", "Graz"),
        ("it,DE", "Wien", "Graz"),
    ],
)
def test_languages(tmp_path: Path, language: str | None, vienna: str, graz: str) -> None:
    names = read(tmp_path, language=language).names
    assert (names.label(f"{EX}vienna"), names.label(f"{EX}graz")) == (vienna, graz)


def test_any_label_is_better_than_none(tmp_path: Path) -> None:
    assert read(tmp_path, language="ja").names.label(f"{EX}capitalOf") == "capital of"
    with pytest.raises(ConfigError, match="--language: expected language tags"):
        read(tmp_path, language="en_GB")


def test_the_order_of_labels_does_not_matter(tmp_path: Path) -> None:
    lines = [f'<{EX}a> <http://www.w3.org/2000/01/rdf-schema#label> "{x}"@en .' for x in "cab"]
    found = set()
    for order in (lines, lines[::-1]):
        path = tmp_path / "x.nt.gz"
        text = "\n".join([f"<{EX}a> <{EX}r> <{EX}b> .", *order])
        path.write_bytes(gzip.compress(text.encode()))
        found.add(KnowledgeGraph.read(path).names.label(f"{EX}a"))
    assert found == {"a"}


def problem(kg: KnowledgeGraph, name: str) -> str:
    with pytest.raises(UnknownNameError) as caught:
        kg.entities.id(name)
    return str(caught.value)


def test_unknown_and_ambiguous_names(kg: KnowledgeGraph) -> None:
    message = problem(kg, "twice")
    assert "can mean 2 entities" in message
    assert "<http://example.org/stuff/a>" in message
    assert "<http://elsewhere.org/b>" in message
    assert "Closest: 'ex:vienna'" in problem(kg, "ex:viena")
    assert "Closest: 'ex:vienna'" in problem(kg, "http://example.org/viena")
    assert "'Vienna'" in problem(kg, "Viena")
    message = problem(kg, "exx:vienna")
    assert "The prefix 'exx' isn't known. Closest: 'ex', 'exs'." in message
    assert "ex: <http://example.org/>" in message
    assert "prefix" not in problem(kg, "http://nowhere.org/x")
    assert "prefix" not in problem(kg, "Alien: Covenant")


def test_files_that_disagree_on_a_prefix(tmp_path: Path) -> None:
    for split, iri in (("train", EX), ("valid", "http://other.org/"), ("test", EX)):
        text = f"@prefix p: <{iri}> . @prefix own: <{iri}own/> . @prefix r: <http://r/> .\n"
        text += "p:a r:r p:b . p:a r:r p:c ." if split != "valid" else "p:a r:r p:d ."
        (tmp_path / f"{split}.ttl").write_text(text)
    kg = KnowledgeGraph.read(tmp_path)
    assert kg.entities.exact("p:b") == f"{EX}b"  # only one of both is in the graph
    assert kg.entities.exact("p:d") == "http://other.org/d"
    assert "<http://example.org/a>, <http://other.org/a>" in problem(kg, "p:a")
    assert kg.names.show(f"{EX}b") == f"{EX}b"  # `p:b` would be no answer


def test_more_prefixes(tmp_path: Path) -> None:
    (tmp_path / "x.nt").write_text(f"<{EX}a> <{EX}r> <{EX}b> .\n")
    options = ReadOptions(prefixes=(("e", EX),))
    kg = KnowledgeGraph.read(tmp_path / "x.nt", options=options)
    assert kg.entities.exact("e:a") == f"{EX}a"
    assert kg.names.show(f"{EX}r") == "e:r"


def test_new_names_are_expanded(kg: KnowledgeGraph) -> None:
    names = GrowingVocabulary(kg.entities)
    assert names.add("ex:vienna") == names.id("Vienna") == kg.entities.id(f"{EX}vienna")
    new = names.add("ex:linz")
    assert names[new] == f"{EX}linz"
    assert names.id("ex:linz") == names.id(f"<{EX}linz>") == names.add(f"{EX}linz") == new
    assert names.exact("ex:linz") == f"{EX}linz"
    with pytest.raises(UnknownNameError, match=r"can mean 2"):
        names.add("twice")
    assert len(names) == kg.n_entities + 1


def test_names_stay_with_an_aligned_graph(kg: KnowledgeGraph) -> None:
    model = Vocabulary([f"{EX}capitalOf", f"{EX}other"], "relation")
    found = align(kg, model, unknown="drop")
    assert found.relations.exact("capital of") == f"{EX}capitalOf"
    assert found.entities.exact("ex:vienna") == f"{EX}vienna"
    assert found.names.show(f"{EX}vienna") == "Vienna"
