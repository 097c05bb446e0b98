"""Answers without training: the pre-trained model of the package, and others like it."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from support.graphs import kg_of, toy
from support.models import any_graph_artifact, artifact_of

import pathe
from pathe.core.errors import ConfigError, DataError, UnknownNameError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.model.artifact import SHIPPED, load_model, save_model
from pathe.predict.predictor import Predictor


def family(n_families: int = 40) -> list[tuple[str, str, str]]:
    """Parents, children, siblings and homes: each fact follows from others."""
    draw, facts = random.Random(0), []
    for i in range(n_families):
        mother, father = f"mother {i}", f"father {i}"
        children = [f"child {i}.{j}" for j in range(draw.randint(2, 4))]
        town = f"town {draw.randrange(8)}"
        facts.append((mother, "married to", father))
        facts.append((father, "married to", mother))
        for person in (mother, father, *children):
            facts.append((person, "lives in", town))
        for child in children:
            for parent in (mother, father):
                facts.append((parent, "parent of", child))
                facts.append((child, "has parent", parent))
            facts += [(child, "sibling of", other) for other in children if other != child]
    return facts


def test_planted_facts_are_found_without_training():
    """Facts that follow from others are hidden: the shipped model finds them at first sight."""
    facts = family()
    wanted = [f for f in facts if f[0].endswith(" 7") or f[0].startswith("child 7.")]
    hidden = [f for f in wanted if f[1] in ("married to", "has parent", "sibling of")]
    assert len(hidden) >= 6
    p = Predictor(KnowledgeGraph.from_triples([f for f in facts if f not in hidden]))
    ranks = [p.score([fact])[0].rank for fact in hidden]
    # a person has two parents and up to three siblings, and all of them are hidden
    assert sum(rank <= 4 for rank in ranks) >= 0.8 * len(ranks)
    assert p.tails("child 9.0", "lives in", 1, filter_known=False)[0].name.startswith("town")


def test_an_answer_is_explained_by_the_path_that_was_planted():
    facts = [f for f in family() if f != ("mother 3", "parent of", "child 3.0")]
    p = Predictor(KnowledgeGraph.from_triples(facts))
    found = p.explain("mother 3", "parent of", "child 3.0")
    assert found.rank == 1
    assert found.paths == []
    assert found.score == pytest.approx(found.alone + found.bridged, abs=1e-3)
    assert found.bridges[0].steps == [("child 3.0", "has parent", "mother 3")]
    left = p.score_without("mother 3", "parent of", "child 3.0", found.bridges[:1])
    assert found.score - left == pytest.approx(found.bridges[0].effect, abs=1e-3)


def test_the_shipped_model_is_small_and_whole():
    artifact = load_model()
    assert artifact.relations is None
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 1.5e6
    assert sum(p.numel() for p in artifact.model.parameters()) <= 250_000
    assert pathe.load().config == artifact.config


def test_names_of_a_graph_do_not_matter():
    kg = kg_of("a r b; b r c; c s a; d r a; d s b", "", "")
    renamed = kg_of("za x zb; zb x zc; zc y za; zd x za; zd y zb", "", "")
    model = any_graph_artifact()
    one = Predictor(model, kg).score([("a", "s", "d"), ("b", "r", "d")])
    two = Predictor(model, renamed).score([("za", "y", "zd"), ("zb", "x", "zd")])
    for ours, theirs in zip(one, two, strict=True):
        assert ours.score == pytest.approx(theirs.score, abs=1e-5)
        assert ours.rank == theirs.rank


def test_added_facts_count_at_once_and_exactly():
    facts = family(6)
    p = Predictor(any_graph_artifact(), KnowledgeGraph.from_triples(facts[:-9]))
    p.tails("mother 1", "parent of")
    p.add(facts[-9:])
    whole = Predictor(any_graph_artifact(), KnowledgeGraph.from_triples(facts))
    for query in (("mother 1", "parent of", None), (None, "lives in", "town 7")):
        ours = {a.name: a.score for a in next(p.answer([query], 99, filter_known=False))}
        theirs = {a.name: a.score for a in next(whole.answer([query], 99, filter_known=False))}
        assert ours.keys() == theirs.keys()
        for name, score in ours.items():
            assert score == pytest.approx(theirs[name], abs=1e-5)


def test_relations_rules_and_missing_triples_work_without_a_table():
    p = Predictor(any_graph_artifact(), toy())
    assert len(p.relations("e0001", "e0002", filter_known=False)) == 3
    assert p.explain("e0001", "r0", "e0002", "relation").rank in (1, 2, 3)
    assert {rule.relation for rule in p.rules(k=1, facts=4)} <= {"r0", "r1", "r2"}
    assert p.missing(5, relations="r2") == []  # in a ring, every query has its answer


def test_a_saved_model_gives_the_same_answers(tmp_path):
    artifact = any_graph_artifact()
    save_model(tmp_path / "model", artifact, {"data": "none"})
    text = (tmp_path / "model" / "README.md").read_text()
    assert "any graph" in text
    again = load_model(tmp_path / "model")
    assert again.relations is None
    ours, theirs = (Predictor(model, toy()).tails("e0001", "r0") for model in (artifact, again))
    assert ours == theirs


@pytest.mark.parametrize("facts", ["a r b", "a r a", "a r b; b r c; c r d"])
def test_the_smallest_graphs_get_an_answer(facts):
    p = Predictor(kg_of(facts))
    assert all(0 <= answer.probability <= 1 for answer in p.tails("a", "r", filter_known=False))
    assert p.explain("a", "r", "a").score == pytest.approx(
        p.score_without("a", "r", "a", []), abs=1e-4
    )
    with pytest.raises(UnknownNameError, match="unknown relation"):
        p.tails("a", "s")


def test_a_graph_of_thousands_of_relations_gets_an_answer():
    draw = random.Random(0)
    facts = [
        (f"e{draw.randrange(300)}", f"r{i % 2000}", f"e{draw.randrange(300)}") for i in range(4000)
    ]
    p = Predictor(any_graph_artifact(), KnowledgeGraph.from_triples(facts))
    assert p.scorer.graph.meetings.is_sparse
    assert len(p.tails(facts[0][0], facts[0][1], 3)) == 3


def test_five_thousand_relations_and_a_hub_of_all_of_them_get_an_answer():
    draw = random.Random(0)
    facts = [
        (f"e{draw.randrange(6000)}", f"r{i % 5000}", f"e{draw.randrange(6000)}")
        for i in range(20_000)
    ]
    facts += [("e0", f"r{i}", f"e{i}") for i in range(5000)]
    p = Predictor(KnowledgeGraph.from_triples(facts))
    assert p.scorer.graph.meetings._nnz() < 20e6
    answers = p.tails("e1", "r10", 3)
    assert len(answers) == 3
    assert p.explain("e1", "r10", answers[0].name).rank == 1


def test_a_test_relation_that_train_lacks_is_dropped_and_counted():
    kg = kg_of("a r b; b r c; c s d; d s a", "", "a q c; a r c")
    found = pathe.evaluate(any_graph_artifact(task="link"), kg, test_set="all")
    assert found["n_triples"] == 1
    assert found["unknown_relations_dropped"] == 1


def test_vectors_come_from_the_graph():
    facts = family(12)
    p = Predictor(any_graph_artifact(), KnowledgeGraph.from_triples(facts))
    z = p.embed()
    assert z.shape == (len(p.entity_names), 256)
    assert z.dtype == np.float32
    ids = p.entity_names.ids(["mother 3", "town 2", "mother 3"])
    assert np.array_equal(p.embed(["mother 3", "town 2", "mother 3"]), z[ids])
    near = p.similar("child 3.0", 5)
    order = np.argsort(-(z @ z[p.entity_names.id("child 3.0")]))
    names = [p.entity_names[i] for i in order.tolist() if p.entity_names[i] != "child 3.0"]
    assert [n.similarity for n in near] == sorted((n.similarity for n in near), reverse=True)
    assert {n.name for n in near} == set(names[:5])
    assert [n.rank for n in near] == [1, 2, 3, 4, 5]
    assert len(p.similar("child 3.0", 10_000)) == len(z) - 1
    assert near[0].name.startswith("child 3.")  # a sibling first
    for name, like in (("child 3.0", "child"), ("mother 2", ("mother", "father"))):
        assert all(n.name.startswith(like) for n in p.similar(name, 10))
    shipped = Predictor(KnowledgeGraph.from_triples(facts))  # other weights, the same vectors
    assert np.array_equal(shipped.embed(), z)


def test_planted_twins_are_nearest_to_each_other():
    facts = family(12)
    twin = [(("twin" if h == "child 5.0" else h), r, t) for h, r, t in facts if "child 5.0" in h]
    twin += [(h, r, "twin") for h, r, t in facts if t == "child 5.0"]
    p = Predictor(any_graph_artifact(), KnowledgeGraph.from_triples(facts + twin))
    for one, other in (("twin", "child 5.0"), ("child 5.0", "twin")):
        [found] = p.similar(one, 1)
        assert found.name == other
        assert found.similarity == pytest.approx(1, abs=1e-5)


def test_vectors_after_added_facts_are_those_of_the_larger_graph():
    facts = [*family(6), ("aa new", "lives in", "town 1"), ("zz new", "parent of", "aa new")]
    p = Predictor(any_graph_artifact(), KnowledgeGraph.from_triples(facts[:-9]))
    before = p.embed("mother 1")
    p.add(facts[-9:-2])
    p.embed()
    p.add(facts[-2:])
    whole = Predictor(any_graph_artifact(), KnowledgeGraph.from_triples(facts))
    names = list(whole.entity_names.vocabulary)
    assert np.allclose(p.embed(names), whole.embed(names), atol=1e-6)
    assert p.entity_names.id("aa new") != whole.entity_names.id("aa new")
    for name in ("aa new", "child 5.0"):
        ours, theirs = ({n.name: n.similarity for n in x.similar(name, 999)} for x in (p, whole))
        assert ours == pytest.approx(theirs, abs=1e-5)
    p.add([("mother 1", "parent of", "aa new")])
    assert not np.allclose(p.embed("mother 1"), before, atol=1e-3)


def test_an_entity_without_facts_is_similar_to_none():
    p = Predictor(any_graph_artifact(), kg_of("a r b; b r c; c s a", "", "d r a"))
    assert not p.embed("d").any()
    with pytest.raises(DataError, match="'d' has no training triples"):
        p.similar("d")
    assert {n.name for n in p.similar("a")} == {"b", "c"}
    p.add([("d", "r", "b")])
    assert p.embed("d").any()
    assert p.similar("d", 1)[0].name == "a"
    assert {n.name for n in p.similar("a")} == {"b", "c", "d"}


def test_what_needs_a_relation_table_says_so():
    with pytest.raises(ConfigError, match="relations as they are"):
        Predictor(any_graph_artifact(), toy(), relation_map={"r0": "r1"})
    with pytest.raises(ConfigError, match="The model comes first"):
        Predictor(toy(), artifact_of(toy()))
    with pytest.raises(ConfigError, match="Give the graph, too"):
        Predictor(artifact_of(toy()))


def test_facts_of_valid_and_test_change_no_answer_and_no_reason():
    """They are known, so they aren't offered as answers; but nothing is concluded from them."""
    facts = family(8)
    inner = KnowledgeGraph.from_triples([("x", "lives in", "y"), ("y", "parent of", "x")])
    hidden = [("mother 2", "parent of", "child 3.0"), ("child 3.0", "has parent", "mother 2")]
    plain = KnowledgeGraph.from_triples(facts)
    leaky = KnowledgeGraph.from_triples(facts, hidden[:1], hidden[1:])
    ours, theirs = (Predictor(kg) for kg in (plain, replace(leaky, inference=inner)))
    assert ours.score(hidden, "head")[0].score == theirs.score(hidden, "head")[0].score
    assert ours.tails("mother 2", "parent of", 99, filter_known=False)[:5] == [
        replace(answer, known=answer.name != "child 3.0" and answer.known)
        for answer in theirs.tails("mother 2", "parent of", 99, filter_known=False)[:5]
    ]
    for fact in hidden:
        assert ours.explain(*fact).as_dict() == theirs.explain(*fact).as_dict()
    assert list(ours.rules("has parent", 3, facts=4)) == list(
        theirs.rules("has parent", 3, facts=4)
    )


def test_an_entity_without_edges_gets_an_answer():
    p = Predictor(kg_of("a r b; b r c; c s a", "", "x r y"))
    assert all(0 <= answer.probability <= 1 for answer in p.tails("x", "r"))
    assert p.explain("x", "r", "a").bridges == []


def test_a_relation_of_test_alone_is_known_once_a_fact_is_added():
    p = Predictor(any_graph_artifact(), kg_of("a r b; b r c; c s a", "", "a q c"))
    for ask in (
        lambda: p.tails("a", "q"),
        lambda: p.score([("a", "q", "b")]),
        lambda: p.explain("a", "q", "b"),
        lambda: list(p.missing(3, relations="q")),
    ):
        with pytest.raises(UnknownNameError, match="'q' occurs only in valid or test"):
            ask()
    p.add([("b", "q", "a")])
    assert p.tails("a", "q")


def test_nothing_is_missing_from_a_relation_with_all_pairs():
    facts = [("hub", "r", f"leaf {i}") for i in range(9)] + [("leaf 1", "s", "leaf 2")]
    p = Predictor(any_graph_artifact(), KnowledgeGraph.from_triples(facts))
    assert not any(m.head == "hub" and m.relation == "r" for m in p.missing(50))
