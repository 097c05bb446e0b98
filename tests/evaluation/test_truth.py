from __future__ import annotations

import pytest
import torch
from support.graphs import knowledge_graph, toy
from support.models import any_graph_predictor, predictor
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from pathe.core.types import PARTS
from pathe.evaluation.truth import (
    FEATURES,
    Examples,
    Truth,
    _fit,
    background,
    calibration_error,
    candidate_ranks,
    features,
    side_ranks,
)
from pathe.predict.missing import Queries, View, best_answers


@pytest.mark.parametrize("make", [predictor, any_graph_predictor])
@pytest.mark.parametrize("side", ["head", "tail"])
def test_sides_are_ranked_as_by_hand(make, side):
    kg = toy()
    p = make(kg)
    known, triples = p.prepared.known(), torch.cat([kg.test, kg.valid]).long()
    triples = torch.cat([triples, torch.tensor([[5, 2, 40], [5, 2, 41], [9, 0, 10]])])
    found = side_ranks(p.scorer, known, triples, side, 1.7)
    column = PARTS.index(side)
    facts = {tuple(row) for row in torch.cat([kg.train, kg.valid, kg.test]).tolist()}
    for i, triple in enumerate(triples.tolist()):
        scores = p.scorer.scores(triples[i : i + 1], side)[0].tolist()
        others = []
        for e in range(kg.n_entities):
            other = [*triple]
            other[column] = e
            if e != triple[column] and tuple(other) not in facts:
                others.append(scores[e])
        own = scores[triple[column]]
        higher, equal = sum(s > own for s in others), sum(s == own for s in others)
        total = torch.tensor([*others, own]).div(1.7).logsumexp(0)
        assert found.scores_B[i].item() == pytest.approx(own, abs=1e-5)
        assert found.ranks_B[i].item() == pytest.approx(1 + higher + equal / 2)
        assert found.log_chances_B[i].item() == pytest.approx(own / 1.7 - total.item(), abs=1e-4)
        assert found.margins_B[i].item() == pytest.approx(own - max(others), abs=1e-4)
        keys = [f for f in facts if f[1] == triple[1] and f[2 - column] == triple[2 - column]]
        assert found.known_B[i].item() == len([f for f in keys if f != tuple(triple)])


@pytest.mark.parametrize("n", [1, 2, 7])
def test_candidates_are_ranked_as_by_hand(n):
    """With ties, candidates that nothing rivals, known candidates and excluded entities."""
    draw = torch.Generator().manual_seed(n)
    scores = torch.randint(-2, 3, (60, n), generator=draw) / 2
    scores[torch.rand(60, n, generator=draw) < 0.1] = float("-inf")
    known = torch.rand(60, n, generator=draw) < 0.3
    every = torch.arange(n).expand(60, n)
    found = candidate_ranks(scores.clone(), known.nonzero().unbind(1), every, 1.7)
    for row in range(60):
        for own in range(n):
            if scores[row, own].isneginf():
                continue
            others = [float(scores[row, e]) for e in range(n) if e != own and not known[row, e]]
            score = float(scores[row, own])
            higher, equal = sum(s > score for s in others), sum(s == score for s in others)
            total = torch.tensor([*others, score]).div(1.7).logsumexp(0)
            ranks = [float(column[row, own]) for column in found]
            assert ranks[0] == score
            assert ranks[1] == pytest.approx(score / 1.7 - total.item(), abs=1e-6)
            assert ranks[2] == 1 + higher + equal / 2
            assert ranks[3] == score - max(others, default=float("-inf"))
            assert ranks[4] == int(known[row].sum()) - int(known[row, own])


@pytest.mark.parametrize("make", [predictor, any_graph_predictor])
def test_the_best_answers_are_ranked_as_their_triples(make):
    """What `missing` says of its candidates is what `side_ranks` says of the same triples."""
    kg = toy()
    p = make(kg)
    about, known = background(p.prepared.graph), p.prepared.known()
    view = View(p.scorer, p.prepared, about, 1.3)
    for side, first in (("tail", 0), ("head", kg.n_relations)):
        entities = torch.arange(20)
        kinds = torch.full_like(entities, first + 1)
        queries = Queries(entities, kinds, torch.ones(20), torch.zeros(20).long())
        best = best_answers(view, queries, torch.ones(20), side, lambda done, of: None)
        assert len(best.triples_C3) > 100
        again = side_ranks(
            p.scorer, known, best.triples_C3, side, 1.3, None, view.scores_of_triples
        )
        for ours, theirs in zip(best.ranks, again, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_a_fact_of_the_graph_does_not_count_itself():
    """The features of a fact, without its edge, are those in a graph that lacks it."""
    kg = toy()
    p = predictor(kg)
    fact = kg.train[10:11].long()
    smaller = p.prepared.remove(fact)
    ranks = {
        side: side_ranks(p.scorer, p.prepared.known(), fact, side, 1.0) for side in ("tail", "head")
    }
    with_it = features(background(p.prepared.graph), fact, ranks, torch.tensor([True]))
    without = features(background(smaller.graph), fact, ranks, torch.tensor([False]))
    assert with_it.shape == (1, FEATURES)
    counts = [8, 18]  # edges of the answer: those of the graph without the fact
    assert torch.equal(with_it[:, counts], without[:, counts])


def planted(n, seed=0, noise=1.0):
    """Examples whose log odds are a known function of two features; relation 1 is shifted."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=draw)
    relations = torch.randint(0, 3, (n,), generator=draw)
    logits = 2 * x[:, 0] - x[:, 1].abs() + 1.5 * (relations == 1) - 0.3
    true = torch.rand(n, generator=draw) < (noise * logits).sigmoid()
    return Examples(x, relations, true), (noise * logits).sigmoid()


def test_probabilities_are_those_that_were_planted():
    truth = Truth(planted(3000)[0], 3)
    fresh, chances = planted(2000, seed=1)
    found = truth(fresh.features_BF, fresh.relations_B)
    assert (found - chances).abs().mean() < 0.06
    assert calibration_error(found, fresh.true_B) < 0.05
    assert ((found > 0.5) == fresh.true_B).float().mean() > 0.75


def test_few_examples_give_no_certainty():
    examples, _ = planted(40)
    found = Truth(examples, 3)(examples.features_BF, examples.relations_B)
    assert found.isfinite().all()
    wrong = Examples(examples.features_BF, examples.relations_B, torch.arange(40) % 2 == 0)
    noise = Truth(wrong, 3)(planted(500, seed=2)[0].features_BF, torch.zeros(500).long())
    assert noise.quantile(0.9) < 0.95


def test_a_fit_is_repeatable():
    examples, _ = planted(300)
    first, second = Truth(examples, 3), Truth(examples, 3)
    assert torch.equal(*(t(examples.features_BF, examples.relations_B) for t in (first, second)))


def fitted_alone(examples, n_relations):
    """The logits of one member, fitted by autograd and the Adam of torch."""
    x, relations, true, _ = examples
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inner, outer, linear = nn.Linear(x.shape[1], 16), nn.Linear(16, 1), nn.Linear(x.shape[1], 1)
    nn.init.zeros_(linear.weight)
    shifts, offsets = (nn.Parameter(torch.zeros(n_relations, size)) for size in (16, 1))
    weights = [*inner.parameters(), *outer.parameters(), *linear.parameters(), shifts, offsets]

    def logits(x, relations):
        hidden = (inner(x) + shifts[relations]).relu()
        return (outer(hidden) + linear(x) + offsets[relations])[:, 0]

    optimizer = torch.optim.Adam(weights, lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)
    for _ in range(300):
        optimizer.zero_grad()
        loss = binary_cross_entropy_with_logits(logits(x, relations), true.float())
        loss = loss + 1e-3 * max(1, 1000 / len(x)) * sum(w.square().sum() for w in weights)
        loss.backward()
        optimizer.step()
        schedule.step()
    return logits


@pytest.mark.parametrize("n", [31, 300])
def test_members_are_those_that_autograd_fits_on_all_folds_but_one(n):
    (x, relations, true, _), _ = planted(n)
    fold = torch.arange(n) % 3
    examples = Examples(x, relations, true)
    members = _fit(examples, true.float(), fold, 4)  # one relation has no examples
    found = members(x, relations)
    for member in range(3):
        rows = fold != member
        alone = fitted_alone(Examples(x[rows], relations[rows], true[rows]), 4)
        with torch.no_grad():
            torch.testing.assert_close(found[:, member], alone(x, relations), atol=1e-3, rtol=1e-3)


def test_relations_with_enough_examples_have_their_own_threshold():
    """Relation 0's true triples look like relation 1's false ones; relation 2 has few examples."""
    x = torch.linspace(-2, 2, 120)[:, None].repeat(2, 1)
    relations = torch.cat([torch.zeros(120), torch.ones(118), torch.full((2,), 2.0)]).long()
    true = torch.where(relations == 0, x[:, 0] > -1, x[:, 0] > 1)
    truth = Truth(Examples(x, relations, true), 3)
    right = (truth(x, relations) >= truth.thresholds_R[relations]) == true
    assert right.float().mean() > 0.95
    assert truth.thresholds_R[2] == 0.5


def test_calibration_error_by_hand():
    chances = torch.tensor([0.95, 0.95, 0.15, 0.15])
    assert calibration_error(chances, torch.tensor([True, True, False, False])) == pytest.approx(
        0.1
    )
    assert calibration_error(chances, torch.tensor([True, False, False, False])) == pytest.approx(
        0.5 * 0.45 + 0.5 * 0.15
    )


def test_one_relation_and_one_entity_are_enough_for_features():
    kg = knowledge_graph([(0, 0, 0), (0, 0, 1)])
    p = any_graph_predictor(kg)
    triple = torch.tensor([[1, 0, 0]])
    ranks = {s: side_ranks(p.scorer, p.prepared.known(), triple, s, 1.0) for s in ("tail", "head")}
    found = features(background(p.prepared.graph), triple, ranks, torch.tensor([False]))
    assert not found.isnan().any()


def test_true_examples_without_a_label_are_allowed_for():
    """Half of what is true is labelled so: probabilities are still those of being true."""
    (x, relations, true, _), chances = planted(4000, noise=4.0)
    labelled = true & (torch.arange(4000) % 2 == 0)
    plain, corrected = (
        Truth(Examples(x, relations, labelled), 3, unlabelled=u)(x, relations)
        for u in (False, True)
    )
    assert (plain - chances).abs().mean() > 0.15
    assert (corrected - chances).abs().mean() < 0.1
    assert corrected.max() <= 1


def test_examples_that_were_drawn_as_false_but_are_true_are_allowed_for():
    """A quarter of the false examples are true ones in fact; that is known, not which ones."""
    (x, relations, true, _), _ = planted(3000, noise=4.0)
    doubt = torch.full((3000,), 0.25)
    n_swapped = int((~true).sum()) // 3  # one true one for three false ones
    labels = true.clone()
    labels[true.nonzero()[:n_swapped, 0]] = False
    fresh, _ = planted(4000, seed=1, noise=4.0)
    plain, revised = (
        Truth(Examples(x, relations, labels, d), 3)(fresh.features_BF, fresh.relations_B)
        for d in (None, doubt)
    )
    assert calibration_error(plain, fresh.true_B) > 0.08
    assert calibration_error(revised, fresh.true_B) < 0.05
