from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.graphs import knowledge_graph, toy
from support.models import artifact_of, predictor

from pathe.core.errors import ConfigError, DataError, UnknownNameError
from pathe.core.types import open_part
from pathe.evaluation.ranking import evaluate_links
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import Artifact
from pathe.model.builder import build_featurizer
from pathe.model.featurizer import encode
from pathe.predict.predictor import Predictor


def plain_scores(p: Predictor, kg, query) -> dict[str, float]:
    """Every answer's score by itself: all entities encoded, one triple at a time."""
    featurizer = build_featurizer(p.artifact.config, PreparedGraph(kg), 3)
    model = p.artifact.model
    z = encode(model, featurizer, torch.arange(kg.n_entities), seed=p.scorer.seed)
    place = query.index(None)
    names = kg.relations if place == 1 else kg.entities
    found = {}
    for name in names:
        h, r, t = (name if part is None else part for part in query)
        zs = z[[kg.entities.id(h)]], z[[kg.entities.id(t)]]
        r = kg.relations.id(r)
        with torch.no_grad():
            score = (
                model.relation_scores(*zs)[0, r]
                if place == 1
                else model.link_scores(zs[0], torch.tensor([r]), zs[1])
            )
        found[name] = float(score)
    return found


def facts_of(kg) -> set[tuple[str, str, str]]:
    return {
        (kg.entities[h], kg.relations[r], kg.entities[t])
        for h, r, t in torch.cat([kg.train, kg.valid, kg.test]).tolist()
    }


QUERIES = [("e0005", "r1", None), (None, "r2", "e0007"), ("e0003", None, "e0004")]


@pytest.mark.parametrize("aggregator", ["mean", "transformer", "transformer-joint"])
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("filter_known", [True, False])
def test_answers_are_those_of_a_plain_loop(query, filter_known, aggregator):
    kg = toy()
    p = predictor(kg, aggregator=aggregator)
    scores = plain_scores(p, kg, query)
    known = {
        name
        for name in scores
        if tuple(name if part is None else part for part in query) in facts_of(kg)
    }
    assert known
    assert sorted(p.known_answers(query)) == sorted(known)
    open_names = [n for n in scores if not (filter_known and n in known)]
    answers = next(p.answer([query], 100, filter_known=filter_known))
    assert [a.rank for a in answers] == list(range(1, len(open_names) + 1))
    assert {a.name for a in answers} == set(open_names)
    assert [a.score for a in answers] == sorted((a.score for a in answers), reverse=True)
    warmth = p.artifact.temperatures["relation" if query[1] is None else "link"]
    total = sum(math.exp(scores[n] / warmth) for n in open_names)
    for answer in answers:
        assert answer.score == pytest.approx(scores[answer.name], abs=1e-4)
        chance = math.exp(scores[answer.name] / warmth) / total
        assert answer.probability == pytest.approx(chance, rel=1e-3)
        assert answer.known == (answer.name in known)
    assert sum(a.probability for a in answers) == pytest.approx(1, abs=1e-4)


def test_known_answers_of_many_queries_are_those_of_each():
    p = predictor()
    queries = [
        *QUERIES, ("e0001", "r0", None), {"head": "e0003", "tail": "e0004"}, (None, "r2", "e0001"),
    ]  # fmt: skip
    found = p.known_answers_to(queries)
    assert found == [p.known_answers(query) for query in queries]
    assert any(found)
    assert found[2] == found[4]
    assert p.known_answers_to([]) == []


def test_facts_of_an_entity():
    kg = toy()
    p = predictor(kg)
    names = [(kg.entities[h], kg.relations[r], kg.entities[t]) for h, r, t in kg.train.tolist()]
    out, into = p.facts_of("e0003")
    assert out == [fact for fact in names if fact[0] == "e0003"]
    assert into == [fact for fact in names if fact[2] == "e0003"]
    assert out
    assert into


def test_one_by_one_and_in_bulk_are_the_same():
    kg = toy()
    p = predictor(kg)
    rows = torch.cat([kg.test, kg.valid]).tolist()
    querys = []
    for i, (h, r, t) in enumerate(rows * 3):
        names = [kg.entities[h], kg.relations[r], kg.entities[t]]
        names[i % 3] = None
        querys.append(tuple(names))
    bulk = list(p.answer(iter(querys), 4))
    for query, answers in zip(querys, bulk, strict=True):
        h, r, t = query
        alone = {
            "head": lambda r=r, t=t: p.heads(r, t, 4),
            "relation": lambda h=h, t=t: p.relations(h, t, 4),
            "tail": lambda h=h, r=r: p.tails(h, r, 4),
        }[open_part(query)]()
        assert [a.name for a in answers] == [a.name for a in alone]
        assert [a.score for a in answers] == pytest.approx([a.score for a in alone], abs=1e-5)


def test_ranks_of_triples_are_those_of_evaluation():
    kg = toy()
    p = predictor(kg)
    report = evaluate_links(p.scorer, kg.test.long(), p.prepared.known())
    triples = [(kg.entities[h], kg.relations[r], kg.entities[t]) for h, r, t in kg.test.tolist()]
    judged = p.score(iter(triples))
    assert [(j.head, j.relation, j.tail) for j in judged] == triples
    assert np.mean([1 / j.rank for j in judged]) == pytest.approx(report["tail"]["mrr"])
    assert all(j.known for j in judged)
    first = judged[0]
    [answer] = [a for a in p.tails(first.head, first.relation, 100, filter_known=False)
                if a.name == first.tail]  # fmt: skip
    assert first.score == pytest.approx(answer.score, abs=1e-5)
    assert 0 < first.probability <= 1
    assert p.score([]) == []


def test_a_model_of_relations_judges_the_relation():
    kg = toy()
    p = predictor(kg, task="relation")
    [judged] = p.score([("e0001", "r1", "e0002")])
    best = p.relations("e0001", "e0002", filter_known=False)
    assert judged.rank in (a.rank for a in best if a.name == "r1")
    with pytest.raises(ConfigError, match="trained for task relation"):
        p.tails("e0001", "r1")
    with pytest.raises(ConfigError, match="trained for task relation"):
        p.missing(3)


def test_entities_are_encoded_once_and_a_query_about_two_encodes_two(encoded):
    p = predictor()
    p.relations("e0001", "e0002")
    assert encoded == [2]
    for _ in range(3):
        p.tails("e0001", "r1")
        p.heads("r1", "e0003")
        p.relations("e0001", "e0002")
        p.similar("e0001")
        p.embed(["e0001"])
    assert encoded == [2, 58]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda p: p.tails("e00011", "r1"), "unknown entity 'e00011'. Closest: 'e0011'"),
        (lambda p: p.tails("e0001", "r11"), "unknown relation 'r11'. Closest: 'r1'"),
        (lambda p: p.similar("nobody at all"), "unknown entity"),
        (lambda p: p.embed(["e0001", "x"]), "unknown entity 'x'"),
        (lambda p: p.score([("e0001", "nope", "e0002")]), "unknown relation 'nope'"),
        (lambda p: p.explain("e0001", "r1", "e9999"), "unknown entity 'e9999'"),
        (lambda p: p.add([("new", "nope", "e0001")]), "unknown relation 'nope'"),
        (lambda p: list(p.missing(3, relations=["nope"])), "unknown relation 'nope'"),
        (lambda p: p.tails("e0001", "r1", 0), "k must be a whole number"),
        (lambda p: p.missing(0), "k must be a whole number"),
        (lambda p: p.similar("e0001", -1), "k must be a whole number"),
        (lambda p: p.tails(5, "r1"), "as text; got 5"),
        (lambda p: p.tails("\udcff", "r1"), "unknown entity"),
        (lambda p: next(p.answer([("e0001", None)])), "Give two of"),
        (lambda p: p.tails("e0001", "next"), "renames 'next' to '\\^r0': use that name"),
        (lambda p: next(p.answer([("e0001", None, None)])), "Give two of"),
        (lambda p: next(p.answer([("e0001", "r1", "e0002")])), "Give two of"),
        (lambda p: p.score([("e0001", "r1")]), "three names"),
        (lambda p: p.add([("a", "r1", "")]), "three names"),
        (lambda p: p.add([("a", "r1", 5)]), "three names"),
        (lambda p: p.add([("a", "r1", "\udcff")]), "three names"),
        (lambda p: p.add([None]), "three names"),
        (lambda p: p.explain("e0001", "r1", "e0002", "foo"), "head, relation or tail"),
    ],
)
def test_what_is_wrong_is_said(ask, words):
    kg = toy()
    p = Predictor(artifact_of(kg), kg, relation_map={"next": "^r0"})
    with pytest.raises((UnknownNameError, ConfigError, DataError), match=words.replace("?", r"\?")):
        ask(p)
    assert "new" not in p.entity_names  # and nothing has changed
    assert p.prepared.graph.n_triples == len(toy().train)


def test_settings_of_a_predictor_are_checked():
    kg = toy()
    with pytest.raises(ConfigError, match="n_paths"):
        Predictor(artifact_of(kg), kg, n_paths=-1)
    assert Predictor(artifact_of(kg), kg, device="auto").tails("e0001", "r1")


@pytest.mark.parametrize("part", ["head", "relation", "tail"])
def test_a_triple_is_judged_as_the_answer_that_it_is(part):
    """Score, rank and probability of an answer, of the triple, and of its explanation agree."""
    kg = toy()
    p = predictor(kg)
    query = {"head": (None, "r2", "e0007"), "relation": ("e0003", None, "e0050"),
                "tail": ("e0005", "r1", None)}[part]  # fmt: skip
    for answer in next(p.answer([query], 5)):
        triple = tuple(answer.name if name is None else name for name in query)
        [judged] = p.score([triple], part)
        why = p.explain(*triple, part)
        for found in (judged, why):
            assert found.rank == answer.rank
            assert found.score == pytest.approx(answer.score, abs=1e-5)
            assert found.probability == pytest.approx(answer.probability, abs=1e-5)


def test_equal_scores_share_the_middle_place():
    kg = knowledge_graph([(0, 0, 1)], [], [(0, 0, 9)])  # 2 to 9 are all alike
    p = predictor(kg, task="link")
    [judged] = p.score([("e0000", "r0", "e0009")])
    better = sum(a.score > judged.score + 1e-6 for a in p.tails("e0000", "r0", 20))
    assert judged.rank == 1 + better + 3  # among the eight, 1 + 7 / 2 in the middle


def test_a_model_is_not_moved_under_another_user():
    from pathe.model.pathe import on_device

    model = artifact_of(toy()).model
    assert on_device(model, "cpu") is model
    moved = on_device(model, "meta")
    assert moved is not model
    assert model.relations.weight.device.type == "cpu"


def test_one_name_alone_is_taken_as_a_list_of_one():
    p = predictor()
    assert p.embed("e0007").shape == (1, 8)
    p.use_functional(one_tail={"r1": False}, one_head={"r1": False})
    assert {m.relation for m in p.missing(5, relations="r1")} == {"r1"}


def test_a_graph_of_triples_in_memory():
    from pathe.data.knowledge_graph import KnowledgeGraph

    kg = KnowledgeGraph.from_triples([("b", "r0", "a"), ("a", "r1", "c"), ("b", "r0", "a")],
                                     test=[("c", "r0", "b")])  # fmt: skip
    assert (kg.n_entities, kg.n_relations, kg.report.duplicates) == (3, 2, 1)
    assert kg.train.tolist() == [[0, 1, 2], [1, 0, 0]]
    assert kg.test.tolist() == [[2, 0, 1]]
    assert Predictor(artifact_of(kg, task="link"), kg).tails("a", "r0")
    import pandas

    frame = pandas.DataFrame([("a", "r0", "b"), ("b", "r0", "c")], columns=["h", "r", "t"])
    assert len(KnowledgeGraph.from_triples(frame).train) == 2
    assert len(KnowledgeGraph.from_triples(frame.to_numpy()).train) == 2
    assert "3 entities, 1 relations, 2 / 0 / 0" in repr(KnowledgeGraph.from_triples(frame))
    with pytest.raises(DataError, match="three names"):
        KnowledgeGraph.from_triples(["abc"])
    with pytest.raises(DataError, match="train, triple 2: expected three names"):
        KnowledgeGraph.from_triples([("a", "r", "b"), ("a", "", "b")])
    with pytest.raises(DataError, match="triple 1: the relation 'x'"):
        KnowledgeGraph.from_triples([("a", "r", "b")], [("a", "x", "b")])


def test_folders_serve_as_well(tmp_path):
    from pathe.model.artifact import save_model

    kg = toy()
    kg.save(tmp_path / "graph")
    save_model(tmp_path / "model", artifact_of(kg))
    p = Predictor(tmp_path / "model", str(tmp_path / "graph"))
    assert p.tails("e0001", "r1") == predictor(kg).tails("e0001", "r1")


def test_a_graph_without_training_triples_is_refused():
    from pathe.data.knowledge_graph import KnowledgeGraph

    with pytest.raises(DataError, match="no training triples"):
        Predictor(artifact_of(toy()), KnowledgeGraph.from_triples([]))
    kg = knowledge_graph([], [(0, 0, 1)], [(1, 0, 2)])
    with pytest.raises(DataError, match="no training triples"):
        Predictor(artifact_of(kg), kg)


def test_vectors_and_neighbours():
    kg = toy()
    p = predictor(kg)
    z = p.embed()
    assert z.shape == (60, 8)
    assert z.dtype == np.float32
    assert np.allclose(p.embed(["e0007", "e0003", "e0007"]), z[[7, 3, 7]])
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    cosine = unit @ unit[7]
    near = p.similar("e0007", 5)
    assert "e0007" not in [n.name for n in near]
    expected = np.sort(np.delete(cosine, 7))[::-1][:5]
    assert [n.similarity for n in near] == pytest.approx(expected.tolist(), abs=1e-5)
    assert [n.rank for n in near] == [1, 2, 3, 4, 5]
    assert len(p.similar("e0007", 1000)) == 59
    assert predictor(kg, aggregator="transformer-joint").embed().shape == (60, 8)


def test_without_temperatures_probabilities_are_of_plain_scores():
    kg = toy()
    artifact = artifact_of(kg)
    p = Predictor(Artifact(artifact.model, artifact.config, kg.relations), kg)
    answers = p.tails("e0001", "r1", 100)
    weights = [math.exp(a.score) for a in answers]
    assert answers[0].probability == pytest.approx(weights[0] / sum(weights), rel=1e-4)
