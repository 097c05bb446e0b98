"""Which entities could take part in a relation, on graphs made by hand."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.films import films
from support.graphs import graph_of, triple_lists

from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.adjacency import build_graph
from pathe.graph.kinds import SEEN, Kinds
from pathe.graph.prepared import prepare

BORN, IN, TYPE = 0, 1, 2
PEOPLE, CITIES, COUNTRIES = range(0, 10), range(10, 20), range(20, 30)
FACTS = [(p, BORN, 10 + p) for p in PEOPLE] + [(c, IN, c + 10) for c in CITIES]


def members(kinds: Kinds, relation: int, side: str) -> set[int]:
    return set(kinds.plausible(relation, side).nonzero()[:, 0].tolist())


def test_each_kind_has_its_place():
    kinds = Kinds(graph_of(FACTS))
    assert members(kinds, BORN, "head") == set(PEOPLE)
    assert members(kinds, BORN, "tail") == members(kinds, IN, "head") == set(CITIES)
    assert members(kinds, IN, "tail") == set(COUNTRIES)


def test_an_entity_with_one_fact_belongs_to_its_kind():
    kinds = Kinds(graph_of([*FACTS, (30, IN, 20)]))  # 30: a city where nobody was born yet
    assert members(kinds, BORN, "tail") == {*CITIES, 30}
    assert 30 not in members(kinds, BORN, "head")


def test_an_entity_without_facts_could_be_anything():
    kinds = Kinds(graph_of(FACTS, n_entities=31))
    assert all(30 in members(kinds, r, side) for r in (BORN, IN) for side in ("head", "tail"))


def test_a_relation_with_few_facts_excludes_nothing():
    few = [(p, 2, 30) for p in range(SEEN - 1)]
    assert members(Kinds(graph_of([*FACTS, *few])), 2, "head") == set(range(31))
    enough = [*few, (SEEN, 2, 30)]
    assert members(Kinds(graph_of([*FACTS, *enough])), 2, "head") == {*PEOPLE, 30}


def test_a_relation_that_all_have_tells_no_kinds_apart():
    typed = [(e, TYPE, 30 + e // 10) for e in range(30)]
    kinds = Kinds(graph_of([*FACTS, *typed]))
    assert members(kinds, BORN, "tail") & set(range(30)) == set(CITIES)


def test_types_decide_for_an_entity_that_has_nothing_else():
    types = torch.tensor([(e, e // 10) for e in range(30)] + [(30, 0), (31, 1)])
    kinds = Kinds(graph_of(FACTS, n_entities=32), types)
    assert members(kinds, BORN, "head") == {*PEOPLE, 30}
    assert members(kinds, BORN, "tail") == {*CITIES, 31}


@settings(deadline=None)
@given(triple_lists(), st.booleans())
def test_relations_of_an_entity_are_those_in_which_it_is_plausible(drawn, typed):
    rows, n_entities, n_relations = drawn
    triples = torch.tensor(rows, dtype=torch.int32).view(-1, 3)
    types = torch.tensor([(e, e % 3) for e in range(n_entities)]) if typed else None
    kinds = Kinds(build_graph(triples, n_entities, n_relations), types)
    for side in ("head", "tail"):
        plausible = [kinds.plausible(relation, side) for relation in range(n_relations)]
        for entity in range(n_entities):
            expected = [bool(plausible_E[entity]) for plausible_E in plausible]
            assert kinds.relations(entity, side).tolist() == expected


def test_relations_of_each_kind():
    kinds = Kinds(graph_of(FACTS))
    assert kinds.relations(PEOPLE[0], "head").tolist() == [True, False]
    assert kinds.relations(CITIES[0], "tail").tolist() == [True, False]
    assert kinds.relations(CITIES[0], "head").tolist() == [False, True]
    assert kinds.relations(COUNTRIES[0], "head").tolist() == [False, False]


@settings(deadline=None)
@given(triple_lists())
def test_what_the_graph_has_is_always_plausible(drawn):
    rows, n_entities, n_relations = drawn
    triples = torch.tensor(rows, dtype=torch.int32).view(-1, 3)
    kinds = Kinds(build_graph(triples, n_entities, n_relations))
    for head, relation, tail in rows:
        assert kinds.plausible(relation, "head")[head]
        assert kinds.plausible(relation, "tail")[tail]


def test_films_kinds_are_their_types():
    graph = films()
    kg = KnowledgeGraph.from_triples(graph.triples)
    kinds = prepare(kg).kinds
    types = {kg.entities.id(name): own for name, own in graph.types.items() if name in kg.entities}
    for head, relation, tail in graph.gaps:
        for name, side in ((head, "head"), (tail, "tail")):
            found = members(kinds, kg.relations.id(relation), side)
            assert found == {e for e, own in types.items() if own == graph.types[name]}
