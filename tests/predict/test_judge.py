"""The probability that triples are true; known facts are judged without themselves."""

from __future__ import annotations

import pytest
import torch
from support.films import films
from support.graphs import knowledge_graph, toy
from support.models import any_graph_predictor, predictor
from support.places import ROOT

from pathe import Predictor
from pathe.evaluation.truth import side_ranks
from pathe.graph.growth import holds
from pathe.predict.judge import doubts, hidden, negatives, rivals, without_own

MAKERS = [predictor, any_graph_predictor]


def named(kg, ids):
    return [(kg.entities[h], kg.relations[r], kg.entities[t]) for h, r, t in ids.tolist()]


def test_a_share_of_each_relation_is_hidden():
    rows = [(i, 0, i + 1) for i in range(50)] + [(i, 1, i + 2) for i in range(29)]
    rows += [(0, 2, i) for i in range(9)]
    triples = torch.tensor(rows)
    ids = hidden(triples, seed=3)
    assert torch.bincount(triples[ids, 1], minlength=3).tolist() == [5, 2, 0]
    assert len(set(ids.tolist())) == len(ids)
    assert torch.equal(ids, hidden(triples, seed=3))
    assert not torch.equal(ids, hidden(triples, seed=4))


@pytest.mark.parametrize("make", MAKERS)
def test_false_triples_fit_the_relation_and_are_not_known(make):
    kg = toy()
    p = make(kg)
    true = kg.train[:40].long()
    false = negatives(p.prepared, p.prepared.known(), true, 0)
    assert 30 <= len(false) <= 40
    assert not p.prepared.known().contains(false).any()
    for row in false.tolist():  # one end differs from some true triple
        ends = [(row[0] == t[0]) + (row[2] == t[2]) for t in true.tolist() if t[1] == row[1]]
        assert 1 in ends


def test_the_chance_that_a_drawn_triple_is_true_by_hand():
    """Relation 0 has heads 0 to 3 and tails 4 to 7; head 0 has three tails, tail 4 two heads."""
    facts = [(0, 0, 4), (0, 0, 5), (0, 0, 6), (1, 0, 4), (2, 0, 7), (3, 0, 7), (4, 1, 0)]
    p = any_graph_predictor(knowledge_graph(facts))
    drawn, known = torch.tensor([[0, 0, 7], [2, 0, 4], [0, 1, 4]]), p.prepared.known()
    ranks = {s: side_ranks(p.scorer, known, drawn, s, 1.0) for s in ("tail", "head")}
    found = doubts(p.prepared, drawn, ranks, 0.1)
    # (0, 0, ?): 3 of 4 known, so 0.3 among 1 other; (?, 0, 7): 2 of 4 known, 0.2 among 2 others
    assert found[0].item() == pytest.approx((0.3 / 1 + 0.2 / 2) / 2)
    assert found[1].item() == pytest.approx((0.1 / 3 + 0.2 / 2) / 2)
    assert found[2].item() == 0  # nothing is known of these queries
    assert doubts(p.prepared, drawn, ranks, 0.9).max() <= 0.5


@pytest.mark.parametrize("make", MAKERS)
def test_groups_cover_all_triples_once_and_lack_their_edges(make):
    kg = toy()
    p = make(kg)
    triples = torch.cat([kg.train[:30], kg.test]).long()
    own = holds(p.prepared.graph, triples)
    assert own.tolist() == [True] * 30 + [False] * len(kg.test)
    rows, config = [], p.artifact.config
    for scorer, group in without_own(p.scorer, config, triples, own):
        rows += group.tolist()
        if own[group].any():
            assert own[group].all()
            assert len(group) == 1  # a hundredth of 144 triples
            alone = make(kg)
            alone.remove(named(kg, triples[group]))
            scores = (s.scores(triples[group], "tail") for s in (scorer, alone.scorer))
            assert torch.allclose(*scores, atol=1e-5)
    assert sorted(rows) == list(range(len(triples)))


@pytest.mark.parametrize("make", MAKERS)
def test_a_known_fact_is_scored_and_judged_as_if_it_were_new(make):
    kg = toy()
    fact = named(kg, kg.train[5:6])[0]
    p, without = make(kg), make(kg)
    without.remove([fact])
    known, new = p.score([fact])[0], without.score([fact])[0]
    assert (known.known, new.known) == (True, False)
    assert (known.rank, known.score) == (new.rank, pytest.approx(new.score, abs=1e-5))
    [ours], [theirs] = p.classify([fact]), without.classify([fact])
    for name in ("tail_rank", "tail_probability", "head_rank", "head_probability"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=1e-5)
    assert ours.known
    assert p.explain(*fact).score == pytest.approx(known.score, abs=1e-4)


def test_triples_are_judged_in_their_order_and_one_by_one():
    kg = toy()
    p = any_graph_predictor(kg)
    facts = [*named(kg, kg.test[:4]), *named(kg, kg.train[:3]), ("e0001", "r0", "e0030")]
    together = p.classify(facts)
    assert [(c.head, c.relation, c.tail) for c in together] == facts
    for fact, judged in zip(facts, together, strict=True):
        assert p.classify([fact])[0].probability == pytest.approx(judged.probability, abs=1e-4)
        assert judged.true == (judged.probability >= judged.threshold)
    assert p.classify([]) == []


def test_what_was_fitted_is_kept_until_the_graph_changes():
    p = any_graph_predictor()
    p.classify([("e0001", "r0", "e0030")])
    judge = p._judge()
    assert p._judge() is judge
    p.add([("new", "r0", "e0003")])
    assert p._judge() is not judge


def test_test_triples_never_reach_the_fit():
    """With other test triples, the same triple gets the same probability."""
    kg = toy()
    other = knowledge_graph(kg.train.tolist(), kg.valid.tolist(), [(0, 0, 59)])
    fact = ("e0001", "r0", "e0030")
    [ours], [theirs] = (any_graph_predictor(g).classify([fact]) for g in (kg, other))
    assert ours.probability == pytest.approx(theirs.probability, abs=1e-5)


@pytest.mark.parametrize("make", MAKERS)
def test_given_negatives_are_learned_from(make):
    kg = toy()
    p = make(kg)
    false = named(kg, negatives(p.prepared, p.prepared.known(), kg.train[:40].long(), 0))
    fact, chance = named(kg, kg.test[:1]), lambda **more: p.classify(fact, **more)[0].probability
    before = chance()
    told = chance(negatives=false)
    assert told != before
    assert chance() == before  # they count in their own call only
    assert chance(negatives=false) == told
    assert p.check(1)[0] == make(kg).check(1)[0]


class Stopped(Exception):
    pass


def test_a_call_that_is_stopped_during_the_fit_does_not_stop_later_ones():
    p, facts = any_graph_predictor(), [("e0001", "r0", "e0030")]

    def stop(done, total):
        raise Stopped

    for ask in (lambda **more: p.classify(facts, **more), p.check):
        with pytest.raises(Stopped):
            ask(progress=stop)
    assert p.classify(facts) == any_graph_predictor().classify(facts)
    assert p.check(2)


def test_progress_covers_the_fit():
    p, facts = any_graph_predictor(), [("e0001", "r0", "e0030")]
    for ask in (lambda tell: p.check(2, sample=3, progress=tell),
                lambda tell: p.classify(facts, progress=tell)):  # fmt: skip
        p.add([("new", "r0", f"e000{len(p.entity_names) % 10}")])  # to be fitted again
        seen = []
        ask(lambda done, total, seen=seen: seen.append((done, total)))
        assert len(seen) > 2
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        assert len({total for _, total in seen}) == 1
        assert seen[0][1] > 6  # more than both sides of three facts
        assert seen[-1][0] == seen[-1][1]


def test_two_facts_are_enough_for_a_judgement():
    p = any_graph_predictor(knowledge_graph([(0, 0, 1), (1, 0, 2)]))
    [found] = p.classify([("e0000", "r0", "e0002")])
    assert 0 < found.probability < 1
    assert found.threshold == 0.5


@pytest.mark.slow
def test_planted_gaps_are_true_and_planted_errors_are_suspicious(tmp_path):
    made = films(seed=1)
    path = tmp_path / "films.tsv"
    path.write_text("".join("\t".join(fact) + "\n" for fact in made.triples), encoding="utf-8")
    p = Predictor(path)
    gaps = p.classify(made.gaps[::4])
    wrong = p.classify(made.wrong)
    assert sum(c.true for c in gaps) >= 0.9 * len(gaps)
    assert sum(c.true for c in wrong) <= 0.2 * len(wrong)
    relations = ["nationality", "born_in", "capital_of"]
    wrong_ones = {fact for fact in made.wrong if fact[1] in relations}
    # a tenth of the people aren't nationals of where they were born: that looks as odd as an error
    suspects = p.check(2 * len(wrong_ones), relations=relations)
    found = {(s.head, s.relation, s.tail) for s in suspects} & wrong_ones
    assert len(found) >= 0.5 * len(wrong_ones)
    best = [s for s in suspects if (s.head, s.relation, s.tail) in found]
    assert (
        sum(made.instead[s.head, s.relation, s.tail][2] in s.expected for s in best)
        >= len(best) / 2
    )


def test_a_second_answer_is_false_where_one_is_enough():
    p = Predictor(ROOT / "examples" / "europe.csv", device="cpu")
    capitals = [("Paris", "capital of", "France"), ("Rome", "capital of", "Italy")]
    others = [("Lyon", "capital of", "France"), ("Milan", "capital of", "Italy")]
    assert all(c.true for c in p.classify(capitals))
    for c in p.classify(others):
        assert not c.true
        assert c.probability < 0.3


def test_rivals_are_unknown_second_answers_of_functional_relations():
    p = Predictor(ROOT / "examples" / "europe.csv", device="cpu")
    judge, facts_M3 = p._judge(), p.prepared.train_M3
    found = rivals(p.scorer, judge.about, p.prepared.known(), facts_M3, 20)
    assert 20 < len(found) <= 40
    assert not p.prepared.known().contains(found).any()
    assert (found[:, 0] != found[:, 2]).all()
    for h, r, t in found.tolist():
        same = facts_M3[facts_M3[:, 1] == r]
        sides = {"tail": (same[:, 0] == h).any(), "head": (same[:, 2] == t).any()}
        functional = judge.about.functional
        assert any(has and functional[side].functional_R[r] for side, has in sides.items())


def test_a_graph_of_two_entities_has_no_rivals():
    p = any_graph_predictor(knowledge_graph([(0, 0, 1), (1, 0, 0)]))
    about = p._judge().about
    for side in about.functional.values():
        side.functional_R[:] = True
    assert not len(rivals(p.scorer, about, p.prepared.known(), p.prepared.train_M3, 5))
