from __future__ import annotations

import itertools
import math

import pytest
import torch
from support.graphs import knowledge_graph, toy
from support.models import predictor

from pathe.predict.missing import most_plausible


def plain(p, kg, relations=None):
    """Every absent triple of a relation's heads and tails with its plausibility, by brute force."""
    z, model = p.scorer.vectors.all(), p.artifact.model
    facts = {tuple(row) for row in torch.cat([kg.train, kg.valid, kg.test]).tolist()}
    warmth = p.artifact.temperatures["link"]
    found = {}
    for r in relations if relations is not None else range(kg.n_relations):
        rows = kg.train[kg.train[:, 1] == r]
        heads, tails = rows[:, 0].unique().tolist(), rows[:, 2].unique().tolist()
        loops = bool((rows[:, 0] == rows[:, 2]).any())
        score = {}
        every = range(kg.n_entities)
        for h, t in itertools.chain(
            itertools.product(heads, every), itertools.product(every, tails)
        ):
            if (h, r, t) not in facts and (h, t) not in score:
                with torch.no_grad():
                    one = model.link_scores(z[[h]], torch.tensor([r]), z[[t]])
                score[h, t] = float(one) / warmth
        by_head = {h: math.log(sum(math.exp(score[h, t]) for t in every if (h, t) in score))
                   for h in heads}  # fmt: skip
        by_tail = {t: math.log(sum(math.exp(score[h, t]) for h in every if (h, t) in score))
                   for t in tails}  # fmt: skip
        for h, t in itertools.product(heads, tails):
            if (h, t) in score and (loops or h != t):
                found[h, r, t] = math.exp(score[h, t] - (by_head[h] + by_tail[t]) / 2)
    return found


@pytest.mark.parametrize("with_loops", [False, True])
def test_the_best_absent_triples_are_those_of_brute_force(with_loops):
    kg = toy()
    if with_loops:
        rows = [*kg.train.tolist(), (3, 1, 3)]
        kg = knowledge_graph(rows, kg.valid.tolist(), kg.test.tolist())
    p = predictor(kg)
    expected = plain(p, kg)
    found = list(p.missing(50))
    assert [m.rank for m in found] == list(range(1, 51))
    best = sorted(expected.values(), reverse=True)[:50]
    assert [m.plausibility for m in found] == pytest.approx(best, rel=1e-3)
    for m in found:
        ids = kg.entities.id(m.head), kg.relations.id(m.relation), kg.entities.id(m.tail)
        assert m.plausibility == pytest.approx(expected[ids], rel=1e-3)
        assert m.score == pytest.approx(p.score([(m.head, m.relation, m.tail)])[0].score, abs=1e-4)
    everything = list(p.missing(10**6))
    assert len(everything) == len(expected)
    assert any(m.head == m.tail for m in everything) == with_loops


def test_one_relation_alone():
    kg = toy()
    p = predictor(kg)
    found = list(p.missing(10**6, relations=["r2", "r2"]))
    assert {m.relation for m in found} == {"r2"}
    assert len(found) == len(plain(p, kg, [2]))


def test_memory_is_bounded_by_the_rows_and_they_change_nothing(monkeypatch):
    kg = toy()
    scorer = predictor(kg).scorer
    sizes, real = [], scorer.links

    def spy(*given):
        scores = real(*given)
        sizes.append(len(scores))
        return scores

    monkeypatch.setattr(scorer, "links", spy)
    results = []
    seen: list[tuple[int, int]] = []
    for rows in (1, 7, 1000):
        sizes.clear()
        monkeypatch.setattr(scorer, "rows_at_once", lambda rows=rows: rows)
        results.append(
            most_plausible(
                scorer, scorer.prepared.known(), [0, 1, 2], 30, 1.0,
                lambda done, total: seen.append((done, total)),
            )
        )  # fmt: skip
        assert max(sizes) <= rows
        assert seen[-1][0] == seen[-1][1] == sum(sizes)
    for best in results[1:]:
        assert torch.equal(best.triples_K3, results[0].triples_K3)
        assert torch.allclose(best.scores_K, results[0].scores_K, atol=1e-5)
        assert torch.allclose(best.plausible_K, results[0].plausible_K, atol=1e-6)


def test_where_every_answer_is_known_there_is_none_to_find():
    """Every entity is a known head of (r0, e0): that query has no open answer at all."""
    rows = [(i, 0, 0) for i in range(6)] + [(i, 1, (i + 1) % 6) for i in range(5)]
    kg = knowledge_graph([*rows, (0, 0, 3), (2, 0, 4)])
    p = predictor(kg)
    facts = {(kg.entities[h], kg.relations[r], kg.entities[t]) for h, r, t in kg.train.tolist()}
    found = list(p.missing(50))
    assert found
    assert not any((m.head, m.relation, m.tail) in facts for m in found)
    assert all(0 < m.plausibility <= 1 for m in found)
    assert len(list(p.missing(5, relations="r0"))) == 5


def test_it_looks_at_the_graph_as_it_is_now():
    kg = toy()
    p = predictor(kg)
    p.warm()
    p.add([("e0001", "r1", "e0030"), ("new", "r0", "e0040")])
    found = list(p.missing(30))
    p.refresh()
    assert found == list(p.missing(30))
