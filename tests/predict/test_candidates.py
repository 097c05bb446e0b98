"""Candidates by name, type and kind, and what answers say about their query."""

from __future__ import annotations

import math

import pytest
from support.graphs import toy
from support.models import any_graph_predictor, predictor

from pathe.core.errors import ConfigError, DataError, UnknownNameError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.predict.candidates import type_relation
from pathe.predict.results import Answer, Answers

N = 8
PEOPLE = [f"person {i}" for i in range(N)]
CITIES = [f"city {i}" for i in range(N)]
LANDS = [f"land {i}" for i in range(N)]
FACTS = [(p, "born_in", CITIES[i % 6]) for i, p in enumerate(PEOPLE)]
FACTS += [(c, "located_in", LANDS[i]) for i, c in enumerate(CITIES)]
FACTS += [(c, "capital_of", LANDS[i]) for i, c in enumerate(CITIES[:-1])]
FACTS += [(p, "knows", PEOPLE[(i + j) % N]) for i, p in enumerate(PEOPLE) for j in (1, 2)]
TYPES = {name: name.split()[0] for name in PEOPLE + CITIES + LANDS}


@pytest.fixture(scope="module")
def kg():
    return KnowledgeGraph.from_triples(FACTS)


def test_a_scored_triple_says_that_its_queries_have_their_answers(kg):
    p = any_graph_predictor(kg)
    second, known, odd = p.score(
        [
            ("city 7", "capital_of", "land 0"),
            ("city 0", "capital_of", "land 0"),
            ("land 1", "born_in", "city 1"),
        ]
    )
    assert second.complete
    assert second.notes == [
        "probably complete: nearly every tail of capital_of has one head; known: city 0"
    ]
    assert not known.complete  # its own answer is no other one
    assert known.notes == []
    assert odd.implausible
    assert odd.notes == ["implausible: no entity like land 1 is a head of born_in"]
    assert p.score([("city 1", "capital_of", "land 0")])[0].notes[0].endswith("known: land 1")


@pytest.fixture
def p(kg):
    return any_graph_predictor(kg)


def names(answers) -> set[str]:
    return {answer.name for answer in answers}


def test_implausible_candidates_are_left_out_unless_asked_for(p):
    found = p.tails(PEOPLE[0], "born_in", 100, filter_known=False)
    assert names(found) == set(CITIES)
    assert found.left_out == 2 * N
    everything = p.tails(PEOPLE[0], "born_in", 100, filter_known=False, plausible=False)
    assert names(everything) == {*PEOPLE, *CITIES, *LANDS}
    assert everything.left_out == 0
    score = {answer.name: answer.score for answer in everything}
    assert all(answer.score == pytest.approx(score[answer.name]) for answer in found)


def test_probabilities_are_shared_among_the_candidates(p):
    for which in ({}, {"plausible": False}, {"among": CITIES[:3]}, {"exclude": CITIES[1]}):
        found = p.tails(PEOPLE[0], "born_in", 100, filter_known=False, **which)
        assert math.fsum(answer.probability for answer in found) == pytest.approx(1, abs=1e-5)
        assert [answer.rank for answer in found] == list(range(1, len(found) + 1))


def test_among_and_exclude(p):
    found = p.tails(PEOPLE[0], "born_in", 100, among=[LANDS[0], CITIES[1], CITIES[2]])
    assert names(found) == {LANDS[0], CITIES[1], CITIES[2]}  # chosen by name: no kind decides
    found = p.tails(PEOPLE[0], "born_in", among=[LANDS[0], CITIES[1]], plausible=True)
    assert names(found) == {CITIES[1]}
    assert CITIES[1] not in names(p.heads("located_in", LANDS[0], 100, exclude=CITIES[1]))
    both = p.tails(PEOPLE[0], "born_in", among=CITIES[1:4], exclude=iter(CITIES[2:]))
    assert names(both) == {CITIES[1]}
    assert not p.tails(PEOPLE[0], "born_in", among=[], exclude=[])


def test_many_queries_get_the_same_candidates_as_one(p):
    queries = [(PEOPLE[0], "born_in", None), (None, "located_in", LANDS[3]),
               (PEOPLE[1], None, CITIES[2]), (LANDS[1], "born_in", None)]  # fmt: skip
    found = list(p.answer(queries, 5))
    assert [answers.query for answers in found] == queries
    assert names(found[0]) == names(p.tails(PEOPLE[0], "born_in", 5))
    assert names(found[1]) == names(p.heads("located_in", LANDS[3], 5))
    assert names(found[2]) <= {"born_in", "located_in", "capital_of", "knows"}
    assert [answers.implausible for answers in found] == [False, False, False, True]


def test_relations_that_head_or_tail_cannot_have_are_left_out(p):
    found = p.relations(CITIES[-1], LANDS[-1], filter_known=False)
    assert names(found) == {"located_in", "capital_of"}
    assert found.left_out == 2
    assert names(p.relations(CITIES[-1], LANDS[-1])) == {"capital_of"}
    assert names(p.relations(PEOPLE[0], CITIES[3])) == {"born_in"}  # one knows only people
    everything = p.relations(PEOPLE[0], CITIES[3], plausible=False)
    assert names(everything) == {"born_in", "located_in", "capital_of", "knows"}
    assert everything.left_out == 0
    assert p.relations(LANDS[0], CITIES[0]) == []
    assert p.relations(LANDS[0], CITIES[0]).left_out == 4
    several = list(p.answer([(PEOPLE[0], None, CITIES[3]), (CITIES[-1], None, LANDS[-1])]))
    assert [names(answers) for answers in several] == [{"born_in"}, {"capital_of"}]
    assert math.fsum(a.probability for a in several[1]) == pytest.approx(1, abs=1e-5)


def test_known_relations_are_never_left_out():
    kg = toy()
    p = predictor(kg, task="multi")
    for head, relation, tail in kg.test[:20].tolist():
        found = p.relations(kg.entities[head], kg.entities[tail], 99, filter_known=False)
        assert kg.relations[relation] in names(found)


def test_types_from_a_mapping(p):
    p.use_types(TYPES)
    assert names(p.tails(PEOPLE[0], "born_in", 100, type="land")) == set(LANDS)
    assert {row.name for row in p.similar(CITIES[0], 100, type="person")} == set(PEOPLE)
    p.use_types({**TYPES, PEOPLE[0]: ["person", "land"], "nobody": "land"})
    assert names(p.tails(PEOPLE[1], "born_in", 100, type="land")) == {*LANDS, PEOPLE[0]}
    with pytest.raises(UnknownNameError, match="unknown type 'lnd'"):
        p.tails(PEOPLE[0], "born_in", type="lnd")
    p.use_types({"nobody": "land"})
    with pytest.raises(DataError, match="None of the entities"):
        p.tails(PEOPLE[0], "born_in", type="land")


def test_entities_by_type(kg):
    p = any_graph_predictor(kg)
    assert p.types_of_entities() == {}
    assert p.entity_ids().tolist() == list(range(len(p.entity_names)))
    p.use_types({PEOPLE[0]: ["person", "poet"], PEOPLE[1]: "person"})
    found = p.types_of_entities()
    assert {name: sorted(types) for name, types in found.items()} == {
        PEOPLE[0]: ["person", "poet"], PEOPLE[1]: ["person"]}  # fmt: skip
    assert [p.entity_names[i] for i in p.entity_ids(type="poet")] == PEOPLE[:1]


def test_types_from_a_relation(p):
    with pytest.raises(ConfigError, match=r"no relation such as rdf:type"):
        p.tails(PEOPLE[0], "born_in", type="land")
    typed = [*FACTS, *((name, "instance of", own) for name, own in TYPES.items())]
    p = any_graph_predictor(KnowledgeGraph.from_triples(typed))
    assert names(p.tails(PEOPLE[0], "born_in", 100, type="land")) == set(LANDS)
    p.add([("a new land", "instance of", "land")])
    found = p.tails(PEOPLE[0], "born_in", 100, type="land")
    assert names(found) == {*LANDS, "a new land"}
    assert "a new land" not in names(p.tails(PEOPLE[0], "born_in", 100))
    p.use_types("located_in")
    assert names(p.tails(PEOPLE[0], "born_in", 100, type=LANDS[4])) == {CITIES[4]}
    with pytest.raises(UnknownNameError):
        p.use_types("lies_in")


@pytest.mark.parametrize(
    ("relations", "expected"),
    [
        (["r", "Instance Of"], "Instance Of"),
        (["type", "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"],
         "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"),
        (["isa", "rdf:type"], "rdf:type"),
        (["http://www.wikidata.org/prop/direct/P31"], "http://www.wikidata.org/prop/direct/P31"),
        (["is_a"], "is_a"),
        (["prototype", "typed", "visa"], None),
    ],
)  # fmt: skip
def test_the_relation_of_types_is_found_by_name(relations, expected):
    assert type_relation(relations) == expected


def test_a_complete_query_says_so(p):
    found = p.tails(CITIES[0], "capital_of")
    assert found.complete == [LANDS[0]]
    assert found.notes == [
        "probably complete: nearly every head of capital_of has one tail; known: land 0"
    ]
    assert p.heads("capital_of", LANDS[0]).complete == [CITIES[0]]
    assert p.heads("capital_of", LANDS[0]).to_dicts()[0]["complete"] is True
    assert not p.tails(CITIES[-1], "capital_of").complete  # functional, but not known
    assert not p.tails(PEOPLE[0], "knows").complete  # known, but not functional
    assert not p.heads("born_in", CITIES[0]).complete
    assert not p.relations(CITIES[0], LANDS[0]).complete


def test_a_query_that_makes_no_sense_is_flagged(p):
    found = p.tails(LANDS[0], "born_in")
    assert found.implausible
    assert found.notes == ["implausible: no entity like land 0 is a head of born_in"]
    assert all(row["implausible"] for row in found.to_dicts())
    assert p.heads("born_in", PEOPLE[0]).implausible
    assert not p.tails(PEOPLE[0], "born_in").implausible
    assert not p.tails(CITIES[-1], "capital_of").implausible  # its kind has it


def test_facts_added_later_count(p):
    assert p.tails(CITIES[-1], "capital_of").complete == []
    p.add([(CITIES[-1], "capital_of", LANDS[-1]), ("someone", "born_in", CITIES[0])])
    assert p.tails(CITIES[-1], "capital_of").complete == [LANDS[-1]]
    assert "someone" in names(p.heads("knows", PEOPLE[0], 100))
    assert "someone" not in names(p.heads("located_in", LANDS[0], 100))


def test_known_answers_are_never_left_out():
    kg = toy()
    p = predictor(kg)
    for head, relation, tail in kg.test[:20].tolist():
        query = kg.entities[head], kg.relations[relation]
        assert kg.entities[tail] in names(p.tails(*query, kg.n_entities, filter_known=False))


def test_bad_candidates_are_refused(p):
    with pytest.raises(UnknownNameError, match="unknown entity 'city 99'"):
        p.tails(PEOPLE[0], "born_in", among=["city 99"])
    with pytest.raises(UnknownNameError, match="unknown entity 'city 99'"):
        p.similar(PEOPLE[0], exclude="city 99")
    with pytest.raises(TypeError, match="unexpected keyword argument 'amnog'"):
        p.tails(PEOPLE[0], "born_in", amnog=CITIES)


def test_answers_are_a_list():
    rows = [Answer(1, "a", 2.0, 0.5), Answer(2, "b", 1.0, 0.25, known=True)]
    found = Answers(rows, ("x", "r", None))
    assert found == rows
    assert isinstance(found, list)
    assert found.notes == []
    assert found.to_dicts()[1] == {
        "rank": 2, "name": "b", "score": 1.0, "probability": 0.25, "known": True,
        "complete": False, "implausible": False,
    }  # fmt: skip
