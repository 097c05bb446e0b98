"""The paths between a pair that a model shows, and the rules it has learned."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from support.commands import pathe
from support.graphs import knowledge_graph, sorted_triples, toy
from support.models import BRIDGE, artifact_of, predictor
from support.runs import train

from pathe.core.errors import ConfigError
from pathe.data.row_files import columns_of
from pathe.graph.adjacency import build_graph
from pathe.graph.edges import both_ways
from pathe.graph.held_out import HeldOut
from pathe.graph.prepared import PreparedGraph
from pathe.model.builder import build_scorer
from pathe.model.left_out import BridgeScore
from pathe.model.scorer import Scorer
from pathe.predict.connections import _contributions, connections
from pathe.predict.predictor import Predictor
from pathe.predict.results import Rule
from pathe.predict.rules import count, count_plain, learned_rules


def scorer_of(kg, **more) -> Scorer:
    artifact = artifact_of(kg, **BRIDGE | more)
    return build_scorer(artifact.model, artifact.config, PreparedGraph(kg))


def bridge_score(facts, triple, part="tail", hops=3) -> BridgeScore:
    """What bridges add to the score of one triple of a small graph."""
    scorer = scorer_of(knowledge_graph(facts), bridge_hops=hops)
    return scorer.bridge_score(torch.tensor(triple), part)


@pytest.mark.parametrize("part", ["tail", "head", "relation"])
def test_the_only_path_between_two_entities_is_found_and_is_all_there_is(part):
    facts = [(0, 0, 1), (2, 1, 1), (2, 2, 3), (4, 0, 5), (0, 1, 4)]
    score = bridge_score(facts, (0, 0, 3), part)
    assert score.without() != 0
    [path] = connections(score, 5)
    steps = ((0, 0, 1), (2, 1, 1), (2, 2, 3))
    assert path.steps == (steps[::-1] if part == "head" else steps)
    assert score.without(path.triples) == 0
    kinds = (3 + 2, 1, 3 + 0) if part == "head" else (0, 3 + 1, 2)
    assert path.kinds == kinds


def test_worth_is_what_the_score_loses_to_first_order():
    """The sum over a hop's edges is the derivative by a factor on all that arrives in it."""
    facts = [(0, 0, 1), (0, 1, 2), (1, 2, 3), (2, 0, 3), (1, 1, 2)]
    score = bridge_score(facts, (0, 0, 3), hops=2)
    run = score.whole
    arrived = [trace.arrived_AD for trace in run.traces]
    grads = torch.autograd.grad(run.score, arrived, allow_unused=True)
    for trace, grad in zip(run.traces, grads, strict=True):
        total = _contributions(score.edges, run, trace, grad).sum()
        torch.testing.assert_close(total, (trace.arrived_AD * grad).sum())


def test_a_path_is_worth_the_mean_of_its_edges():
    """Or a longer path would come first for its length alone."""
    score = bridge_score([(0, 0, 1), (2, 1, 1), (2, 2, 3)], (0, 0, 3))
    run, edges = score.whole, score.edges
    arrived = [trace.arrived_AD for trace in run.traces]
    grads = torch.autograd.grad(run.score, arrived, retain_graph=True)
    [path] = connections(score, 5)
    worths = []
    for trace, grad, kind in zip(run.traces, grads, path.kinds, strict=True):
        [slot] = (edges.relations_M == kind).nonzero()[:, 0].tolist()
        worths.append(float(_contributions(edges, run, trace, grad)[slot]))
    assert path.worth == pytest.approx(sum(worths) / 3, rel=1e-5)


def test_paths_do_not_cross_themselves_and_hide_what_is_held_out():
    kg = toy()
    scorer = scorer_of(kg)
    for row in range(0, len(kg.train), 17):
        held_out = HeldOut(ids_B=torch.tensor([row]))
        score = scorer.bridge_score(kg.train[row].long(), "tail", held_out)
        for path in connections(score, 10):
            here = [int(kg.train[row, 0])]
            for (h, _, t), kind in zip(path.steps, path.kinds, strict=True):
                source, target = (h, t) if kind < kg.n_relations else (t, h)
                assert source == here[-1]
                here.append(target)
            assert here[-1] == int(kg.train[row, 2])
            assert len(set(here)) == len(here)
            assert row not in path.triples
            assert all(
                kg.train[i].tolist() == list(step)
                for i, step in zip(path.triples, path.steps, strict=True)
            )


def test_an_explanation_names_the_paths_between():
    kg = knowledge_graph([(0, 0, 1), (2, 1, 1), (2, 2, 3), (4, 0, 5), (0, 1, 4)])
    p = predictor(kg, **BRIDGE)
    reason = p.explain("e0000", "r0", "e0003")
    [bridge] = reason.bridges
    assert bridge.effect == pytest.approx(reason.bridged)
    whole = p.score_without("e0000", "r0", "e0003", reason.paths)
    assert reason.alone == pytest.approx(whole - reason.bridged, abs=1e-5)  # no path of any kind
    words = "e0000 -r0-> e0001 <-r1- e0002 -r2-> e0003"
    assert f"{bridge.effect:+.3f} between: {words}" in reason.words(paths=True)
    [pattern] = reason.patterns
    assert pattern.relations == ["r0", "^r1", "r2"]
    assert pattern.instances == [bridge.steps]
    assert words in reason.words()
    assert reason.as_dict()["bridges"][0]["effect"] == bridge.effect
    assert p.explain("e0000", "r0", "e0005").bridges[0].effect != 0
    backwards = p.explain("e0000", "r0", "e0003", "head")
    assert "e0003 <-r2- e0002 -r1-> e0001 <-r0- e0000" in backwards.words(paths=True)
    assert backwards.patterns[0].relations == pattern.relations  # from head to tail all the same
    assert words in backwards.words()


def family():
    """Everybody's mother's mother is their granny; some grannies are left to be found."""
    facts = [(2 * i, 0, 2 * i + 1) for i in range(40)]  # child -mother-> mother
    facts += [(2 * i + 1, 0, 80 + i) for i in range(40)]  # -mother-> grandmother
    facts += [(2 * i, 1, 80 + i) for i in range(40)]  # child -granny-> grandmother
    facts += [(2 * i, 2, (2 * i + 7) % 80) for i in range(40)]  # noise
    return knowledge_graph(facts, facts[80:84], facts[84:88])


def test_a_planted_rule_is_learned_and_counted(tmp_path):
    kg = family()
    more = BRIDGE | {"bridge_dim": 8, "negative_sampling": "all", "hold_out_batch": True,
                     "max_epochs": 30, "batch_size": 32}  # fmt: skip
    train(kg, tmp_path / "run", **more)
    p = Predictor(tmp_path / "run", kg)
    found = list(p.rules("r1", 3))
    assert found[0].path == ["r0", "r0"]
    assert found[0].words() == "-r0-> -r0->"
    assert (found[0].support, found[0].connected) == (40, 40)
    assert found[0].trust > 0.5
    kept = {(2 * i, 2 * i + 1, 80 + i) for i in range(40)}
    assert len(found[0].instances) == 3
    assert {tuple(int(name[1:]) for name in own) for own in found[0].instances} <= kept
    assert len({own[0] for own in found[0].instances}) == 3  # of different facts
    [first, *_] = found[0].instance_words()
    assert first == "{} -r0-> {} -r0-> {}".format(*found[0].instances[0])
    assert {rule.relation for rule in p.rules(k=1)} <= {"r0", "r1", "r2"}


def test_support_is_counted_over_distinct_pairs():
    # two ways from 0 to 3, one from 0 to 4, one from 1 to 3; 0 and 3 have the relation
    facts = [(0, 0, 1), (0, 0, 2), (1, 1, 3), (2, 1, 3), (2, 1, 4), (0, 2, 3), (3, 0, 0)]
    edges = both_ways(build_graph(sorted_triples(facts), 5, 3))
    for how in (count, count_plain):
        assert how(edges, (0, 1), 2) == (1, 2)  # (0, 3), (0, 4)
        assert how(edges, (0, 0), 2) == (0, 2)  # (3, 1), (3, 2)
        assert how(edges, (0, 3 + 0), 2) == (0, 0)  # there and back again counts for nothing
        assert how(edges, (3 + 2,), 0) == (1, 1)  # (3, 0) against the arrow
        assert how(edges, (0, 1), 1) == (0, 2)  # 0 has no edge of relation 1,
        assert how(edges, (0, 1), 1, True) == (0, 0)  # so its pairs don't count
        assert how(edges, (0, 1), 2, True) == (1, 2)


def test_instances_are_paths_of_the_graph_between_entities_that_have_the_relation():
    kg = toy()
    facts = {tuple(row) for row in kg.train.tolist()}
    n, seen = kg.n_relations, 0
    for rules in learned_rules(scorer_of(kg), range(n), k=4, n_facts=8):
        for rule in rules:
            assert 1 <= len(rule.instances) <= 3
            for entities in rule.instances:
                assert (entities[0], rule.relation, entities[-1]) in facts
                for kind, (a, b) in zip(rule.kinds, pairwise(entities), strict=True):
                    assert ((a, kind, b) if kind < n else (b, kind - n, a)) in facts
                    seen += kind >= n
    assert seen  # also backwards


def test_rules_need_bridges():
    with pytest.raises(ConfigError, match="bridge=paths"):
        list(predictor().rules())


def test_the_commands(tmp_path):
    kg = family()
    train(kg, tmp_path / "run", **BRIDGE | {"max_epochs": 1, "hold_out_batch": True})
    kg.save(tmp_path / "kg")
    use = ("run", "--data", "kg", "--device", "cpu")
    told = pathe("rules", *use, "--relation", "r1", "-k", 2, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "confidence" in told.stdout
    found = json.loads(pathe("rules", *use, "--relation", "r1", "--json", cwd=tmp_path).stdout)
    assert set(columns_of(Rule)) == set(found[0])
    own = found[0]["instances"][0]
    assert own[-1] not in told.stdout
    told = pathe("rules", *use, "--relation", "r1", "-k", 2, "--instances", cwd=tmp_path)
    assert Rule(**found[0]).instance_words()[0] in told.stdout
    asked = ("predict", *use, "--head", "e0000", "--relation", "r1", "--tail", "e0080")
    told = pathe(*asked, "--paths", "--plot", "why.svg", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "between e0000" in told.stdout
    assert "between" in (tmp_path / "why.svg").read_text()
    told = pathe("rules", *use, "--relation", "nothing", cwd=tmp_path)
    assert told.returncode == 2
    assert "unknown relation 'nothing'" in told.stderr


def test_relations_without_facts_have_no_rules():
    kg = toy()
    gone = kg.train[kg.train[:, 1] != 1]
    fewer = replace(kg, train=gone, valid=kg.valid[:0], test=kg.test[:0])
    rules = list(Predictor(artifact_of(kg, **BRIDGE), fewer).rules())
    assert all(rule.relation != kg.relations[1] for rule in rules)
