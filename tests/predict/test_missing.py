"""Missing facts: gaps are found, and queries that have all their answers are left alone."""

from __future__ import annotations

import pytest
import torch
from support.films import films
from support.graphs import kg_of, knowledge_graph, toy
from support.models import any_graph_predictor, predictor
from support.places import ROOT

from pathe import Predictor
from pathe.core.errors import ConfigError, PatheError, UnknownNameError
from pathe.evaluation.truth import background
from pathe.graph.prepared import prepare
from pathe.predict.missing import Wanted, _first_of_each, _one_per_functional, open_queries

MAKERS = [predictor, any_graph_predictor]


def people(n=40, without=range(30, 40)):
    """People are born in cities of a country and have its nationality, but for some."""
    rows = [f"city{i} in country{i % 4}" for i in range(12)]
    rows += [f"person{i} born city{i % 12}" for i in range(n)]
    rows += [f"person{i} nationality country{i % 12 % 4}" for i in range(n) if i not in without]
    return kg_of("; ".join(rows))


def names(found):
    return [(m.head, m.relation, m.tail) for m in found]


def test_gaps_are_found_and_complete_facts_are_not_touched():
    p = Predictor(people())
    found = p.missing(30)
    gaps = {(f"person{i}", "nationality", f"country{i % 12 % 4}") for i in range(30, 40)}
    assert set(names(found[:10])) == gaps
    assert min(m.probability for m in found[:10]) > max(m.probability for m in found[10:])
    born = {m.head for m in found if m.relation == "born"}
    assert not born & {f"person{i}" for i in range(40)}  # everyone has a birthplace, and one only


def test_a_complete_graph_lacks_nothing():
    """Every entity of the ring has one tail and one head of each relation, in some split."""
    assert predictor(toy()).missing(100) == []


def test_queries_of_functional_relations_that_have_their_answer_are_not_asked():
    kg = people()
    graph = prepare(kg).graph
    born, nationality = kg.relations.id("born"), kg.relations.id("nationality")
    queries = open_queries(background(graph), Wanted([born, nationality]))
    asked = {
        (kg.entities[e], k)
        for e, k in zip(queries.entities_N.tolist(), queries.kinds_N.tolist(), strict=True)
    }
    for i in range(40):
        assert (f"person{i}", born) not in asked
        assert ((f"person{i}", nationality) in asked) == (i >= 30)
    assert ("country0", nationality + kg.n_relations) in asked  # has many, may have more
    several = open_queries(background(graph, {(nationality, "tail"): False}), Wanted([nationality]))
    assert len(several.kinds_N) > (queries.kinds_N % kg.n_relations == nationality).sum()


def test_what_is_functional_can_be_said():
    p = Predictor(people())
    p.use_functional(one_tail={"nationality": False})
    assert any(m.head == "person0" for m in p.missing(1000, relations="nationality"))
    p.use_functional(one_tail={"nationality": True})
    assert not any(m.head == "person0" for m in p.missing(1000, relations="nationality"))
    with pytest.raises(UnknownNameError, match="nationality"):
        p.use_functional(one_tail={"nationalty": True})


@pytest.mark.parametrize("make", MAKERS)
def test_no_known_fact_no_duplicate_no_self_loop(make):
    more = [(i, 2, (a * i + a) % 60) for i in range(60) for a in (5, 7, 11)]
    kg = toy()
    kg = knowledge_graph([*kg.train.tolist(), *more], kg.valid.tolist(), kg.test.tolist())
    found = make(kg).missing(10**6)
    facts = {tuple(row) for row in torch.cat([kg.train, kg.valid, kg.test]).tolist()}
    ids = [(kg.entities.id(h), kg.relations.id(r), kg.entities.id(t)) for h, r, t in names(found)]
    assert found
    assert not set(ids) & facts
    assert len(set(ids)) == len(ids)
    assert kg.train[kg.train[:, 0] == kg.train[:, 2]].tolist() == []
    assert not any(h == t for h, _, t in ids)
    assert [m.rank for m in found] == list(range(1, len(found) + 1))
    chances = [m.probability for m in found]
    assert chances == sorted(chances, reverse=True)
    assert all(0 <= chance <= 1 for chance in chances)


def test_filters():
    p = Predictor(people())
    assert {m.relation for m in p.missing(50, relations=["nationality"])} == {"nationality"}
    one = p.missing(50, entities="person33")
    assert one[0].tail == "country1"
    assert all("person33" in (m.head, m.tail) for m in one)
    p.use_types({f"person{i}": "person" for i in range(40)} | {"country0": "country"})
    assert all(m.head.startswith("person") for m in p.missing(50, type="person"))
    every = p.missing(1000)
    half = p.missing(1000, min_probability=every[5].probability)
    assert names(half) == names(every[: len(half)])
    assert len(p.missing(3)) == 3
    assert p.missing(3, relations=[]) == p.missing(3, entities=[]) == []
    with pytest.raises(UnknownNameError, match="Closest"):
        p.missing(entities="person333")
    with pytest.raises(TypeError, match="entity"):
        p.missing(entity="person33")
    with pytest.raises(ConfigError):
        p.missing(0)


def test_probabilities_do_not_depend_on_what_is_asked_for():
    """What is learned, and how a candidate is ranked, is the same from either side."""
    found = Predictor(people()).missing(60)
    whole = {name: m.probability for name, m in zip(names(found), found, strict=True)}
    for of in (
        {"relations": "nationality"},
        {"relations": ["born", "in"]},
        {"entities": ["person31", "country2"]},
        {"entities": "country3", "queries": 3},
        {"k": 5},
    ):
        some = Predictor(people()).missing(**of)
        shared = [x for x in zip(names(some), some, strict=True) if x[0] in whole]
        assert shared, of
        for name, m in shared:
            assert m.probability == pytest.approx(whole[name], abs=1e-5), (of, name)


def test_facts_of_entities_can_be_excluded():
    p = any_graph_predictor(people())
    for found in (p.check(100, exclude="person31"), p.missing(100, exclude=["person31", "city2"])):
        assert found
        assert "person31" not in {name for row in found for name in (row.head, row.tail)}


def test_a_graph_is_learned_from_once(monkeypatch):
    import pathe.predict.predictor as module

    learned, calls = module.learn, []
    monkeypatch.setattr(module, "learn", lambda *args: calls.append(1) or learned(*args))
    p = Predictor(people())
    p.missing(5), p.missing(5, relations="nationality")
    assert len(calls) == 1
    p.remove([("person1", "born", "city1")])
    p.missing(5)
    assert len(calls) == 2


def test_reasons_stand_beside_the_facts():
    p = Predictor(people())
    [best] = p.missing(1, relations="nationality", reasons=True)
    assert "born something in " in best.reason
    assert not p.missing(1, relations="nationality")[0].reason


def test_few_queries_are_the_most_promising_ones():
    p = Predictor(people())
    found = p.missing(1000, queries=20)
    assert {m.head for m in found if m.relation == "nationality"} >= {
        f"person{i}" for i in range(30, 38)
    }
    seen: list[tuple[int, int]] = []
    p.missing(5, queries=40, progress=lambda done, total: seen.append((done, total)))
    assert seen
    assert all(0 <= done <= total for done, total in seen)
    assert seen[-1][0] > 0.8 * seen[-1][1]


def test_it_looks_at_the_graph_as_it_is_now():
    p = Predictor(people())
    p.add([("person30", "nationality", "country2")])
    found = names(p.missing(1000))
    assert not any(head == "person30" for head, r, _ in found if r == "nationality")
    p.remove([("person0", "nationality", "country0")])
    assert ("person0", "nationality", "country0") in names(p.missing(12))


def test_the_smallest_graphs_get_an_answer():
    found = Predictor(kg_of("a r b; a r c; b r c; c r d; d r a; b s a; c s b")).missing(50)
    assert found
    assert all(0 < m.probability < 1 for m in found)
    assert Predictor(kg_of("a r b")).missing(5) is not None


DEGENERATE = {
    "pairs": [(i, 0, 40 + i) for i in range(40)],  # every query has its answer, and needs one only
    "loops": [(i, 0, i) for i in range(40)],
    "star": [(0, 0, i) for i in range(1, 40)],
    "chain": [(i, 0, i + 1) for i in range(40)],
    "symmetric": [(i, 0, i ^ 1) for i in range(40)],
    "everything": [(i, 0, j) for i in range(12) for j in range(12)],
    "a relation each": [(i, i, 40 + i) for i in range(40)],
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_graphs_with_nothing_to_learn_from_get_an_answer(name):
    p = Predictor(knowledge_graph(DEGENERATE[name]))
    found = p.missing(5)
    assert all(0 <= m.probability <= 1 for m in found)
    if name in ("pairs", "loops", "everything"):
        assert found == []
    assert len(p.check(5)) == 5


def test_one_answer_per_functional_query():
    about = background(prepare(people()).graph)
    kg = people()
    nationality = kg.relations.id("nationality")
    rows = [[1, nationality, 5], [1, nationality, 6], [2, nationality, 5], [1, nationality, 7]]
    assert _one_per_functional(about, torch.tensor(rows)).tolist() == [0, 2]
    assert _first_of_each(torch.tensor([4, 2, 4, 9, 2])).tolist() == [0, 1, 3]


def test_models_of_relations_only_say_so():
    p = predictor(toy(), task="relation")
    for ask in (p.missing, p.check, lambda: p.classify([("e0001", "r0", "e0002")])):
        with pytest.raises(PatheError, match="link"):
            ask()


@pytest.mark.slow
def test_gaps_of_the_films_graph_are_found_by_the_pretrained_model():
    made, p = films(), Predictor(ROOT / "examples" / "films.csv")
    right = set(names(p.missing(len(made.gaps)))) & set(made.gaps)
    assert len(right) >= 0.9 * len(made.gaps)  # recall, and precision: as many are listed
    nationalities = {gap for gap in made.gaps if gap[1] == "nationality"}
    assert len(right & nationalities) >= 0.8 * len(nationalities)
