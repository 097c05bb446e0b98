from __future__ import annotations

import pytest
import torch
from support.graphs import knowledge_graph, toy
from torch import nn

from pathe.core.config import configure
from pathe.core.errors import ConfigError, DataError
from pathe.evaluation.metrics import compute
from pathe.evaluation.ranking import evaluate, evaluate_links, per_relation, read_protocol
from pathe.graph.adjacency import build_graph
from pathe.graph.known import KnownTriples
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import Artifact
from pathe.model.builder import build_model, build_scorer
from pathe.model.featurizer import encode
from pathe.model.ranks import rank

SETTINGS = {"dim": 8, "heads": 2, "feedforward": 8, "n_paths": 2, "max_hops": 3}


def parts(kg, **more):
    config = configure(settings=SETTINGS | more)
    model = build_model(config, kg.n_relations).eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4, generator=torch.Generator().manual_seed(1))
    artifact = Artifact(model, config, kg.relations)
    return artifact, build_scorer(model, config, PreparedGraph(kg), n_paths=2, seed=0)


@pytest.mark.parametrize("side", ["head", "tail"])
@pytest.mark.parametrize("aggregator", ["mean", "transformer-joint"])
def test_chunks_change_nothing_and_a_plain_loop_agrees(side, aggregator):
    kg = toy()
    artifact, scorer = parts(kg, aggregator=aggregator)
    z, known, triples = scorer.vectors.all(), scorer.prepared.known(), kg.test.long()
    whole = scorer.rank(triples, side, known)
    for budget in (1, 5_000, 60_000):
        again = scorer.rank(triples, side, known, budget=budget)
        assert torch.equal(again.realistic_B, whole.realistic_B)
        assert torch.equal(again.candidates_B, whole.candidates_B)
    facts = {tuple(x) for x in torch.cat([kg.train, kg.valid, kg.test]).tolist()}
    for i, (h, r, t) in enumerate(kg.test.tolist()):
        true = h if side == "head" else t
        better = ties = 0
        own = None
        answers = []
        for e in range(kg.n_entities):
            fact = (e, r, t) if side == "head" else (h, r, e)
            if fact in facts and e != true:
                continue
            pair = artifact.model.link_scores(z[[fact[0]]], torch.tensor([r]), z[[fact[2]]])
            answers.append((e, float(pair.detach())))
        own = dict(answers)[true]
        better = sum(s > own + 1e-6 for e, s in answers if e != true)
        ties = sum(abs(s - own) <= 1e-6 for e, s in answers if e != true)
        assert whole.optimistic_B[i] - 1 <= better + ties
        assert abs(float(whole.realistic_B[i]) - (1 + better + ties / 2)) <= max(ties, 0.01)
        assert whole.candidates_B[i] == len(answers)


def test_filters_know_every_split_and_both_sides():
    kg = knowledge_graph([(0, 0, 1), (0, 0, 2), (3, 0, 4)], [(0, 0, 3)], [(0, 0, 4)])
    _, scorer = parts(kg)
    test, known = kg.test.long(), scorer.prepared.known()
    found = evaluate_links(scorer, test, known)
    assert found["tail"]["count"] == found["head"]["count"] == 1
    assert scorer.rank(test, "tail", known).candidates_B.tolist() == [2]
    assert scorer.rank(test, "head", known).candidates_B.tolist() == [4]


def test_seen_and_all_test_sets():
    kg = knowledge_graph([(0, 0, 1), (1, 1, 2), (2, 0, 0)], [(0, 0, 2)], [(0, 1, 2), (0, 1, 3)])
    artifact, _ = parts(kg)
    assert evaluate(artifact, kg)["n_triples"] == 1
    assert evaluate(artifact, kg, test_set="all")["n_triples"] == 2
    only_new = knowledge_graph([(0, 0, 1), (0, 1, 1)], [], [(0, 1, 2)])
    with pytest.raises(DataError, match="no test triples"):
        evaluate(parts(only_new)[0], only_new)


def test_sampled_ranking_has_n_rivals_and_is_seeded():
    kg = toy()
    artifact, _ = parts(kg)
    first = evaluate(artifact, kg, protocol="sampled:20")
    assert first == evaluate(artifact, kg, protocol="sampled:20")
    assert first["n_candidates"] == 20
    assert first["mean_rank"] <= 21
    full = evaluate(artifact, kg)
    assert full["n_candidates"] == kg.n_entities
    assert full["count"] == 2 * full["n_triples"] == full["head"]["count"] * 2


def test_relation_ranking_leaves_out_other_true_relations():
    kg = knowledge_graph([(0, 0, 1), (0, 1, 1), (1, 2, 0)], [], [(0, 2, 1)])
    artifact, _ = parts(kg, task="relation")
    found = evaluate(artifact, kg)
    assert found["mrr"] == 1  # relations 0 and 1 of the pair are known: nothing is left to rank by
    assert found["task"] == "relation"
    assert "head" not in found


def test_a_model_of_both_tasks_reports_both():
    kg = toy()
    artifact, _ = parts(kg, task="multi")
    found = evaluate(artifact, kg)
    assert 0 < found["mrr"] < 1
    assert 0 < found["relation"]["mrr"] <= 1
    assert evaluate(artifact, kg, task="relation")["mrr"] == found["relation"]["mrr"]
    with pytest.raises(ConfigError, match="trained for task link"):
        evaluate(parts(kg)[0], kg, task="relation")


def test_results_by_relation_add_up():
    scores, true = torch.randn(9, 5), torch.randint(5, (9,))
    ranks = rank(scores, true)
    relations = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 2])
    rows = per_relation({"tail": ranks}, relations, ["a", "b", "c"])
    assert [(r["relation"], r["triples"]) for r in rows] == [("c", 4), ("b", 3), ("a", 2)]
    total = sum(r["mrr"] * r["triples"] for r in rows) / 9
    assert total == pytest.approx(compute(ranks)["mrr"])


@pytest.mark.parametrize("protocol", ["", "all", "sampled", "sampled:0", "sampled:x", "full:3"])
def test_a_misspelt_protocol_is_refused(protocol):
    with pytest.raises(ConfigError, match="sampled:50"):
        read_protocol(protocol)


def test_more_negatives_than_entities_rank_all_of_them():
    kg = toy()
    artifact, _ = parts(kg)
    full = evaluate(artifact, kg)
    assert evaluate(artifact, kg, protocol="sampled:60") == full
    assert evaluate(artifact, kg, protocol="sampled:59")["protocol"] == "sampled:59"


@pytest.mark.parametrize("protocol", ["full", "sampled:20"])
def test_an_inference_graph_is_described_by_its_train_split_and_filtered_by_all(
    protocol, monkeypatch
):
    """The inductive benchmark's rules, with facts planted where they must not be read."""
    kg = toy()
    artifact, _ = parts(kg)
    graphs, filters = [], []

    def spy_encode(model, featurizer, entities, **more):
        graphs.append(featurizer.prepared.graph)
        return encode(model, featurizer, entities, **more)

    def spy_index(triples):
        filters.append({tuple(row) for row in triples.tolist()})
        return KnownTriples(triples)

    monkeypatch.setattr("pathe.model.vectors.encode", spy_encode)
    monkeypatch.setattr("pathe.graph.prepared.KnownTriples", spy_index)
    planted = [(i, 0, (i + 30) % 60) for i in range(60)]
    other = knowledge_graph(kg.train.tolist(), planted[:30], kg.test.tolist() + planted[30:])
    found = evaluate(artifact, other, protocol=protocol)
    assert found["n_triples"] == len(other.test)
    only_train = build_graph(other.train, other.n_entities, other.n_relations)
    for graph in graphs:
        assert torch.equal(graph.outgoing.neighbours_M, only_train.outgoing.neighbours_M)
        assert torch.equal(graph.in_contexts.counts_P, only_train.in_contexts.counts_P)
    assert graphs
    assert filters == [{tuple(r) for s in (other.train, other.valid, other.test)
                        for r in s.tolist()}]  # fmt: skip


def test_a_graph_with_some_of_the_models_relations_is_evaluated():
    kg = toy()
    artifact, _ = parts(kg)
    some = knowledge_graph([r for r in kg.train.tolist() if r[1] < 2], [], [(3, 1, 2)])
    assert some.n_relations == 2
    assert evaluate(artifact, some)["n_triples"] == 1


@pytest.mark.parametrize(
    "protocol", ["sampled:0", "sampled:" + "9" * 5000, "sampled:²", "sampled:"]
)
def test_odd_protocols_are_refused(protocol):
    with pytest.raises(ConfigError, match="protocol must be"):
        read_protocol(protocol)
