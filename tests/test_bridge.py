"""Bridges: what paths between a pair add, in training, evaluation, prediction and explanation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from graphs import DEVICES, knowledge_graph, sorted_triples, toy
from small import learner, train
from test_predict import artifact_of, predictor

from pathe.artifact import load_model
from pathe.bridge import Bridge, Round
from pathe.bridging import bridge_links, bridge_relations
from pathe.builder import build_describer
from pathe.config import configure
from pathe.encoding import encode
from pathe.errors import ConfigError
from pathe.evaluation import evaluate, evaluate_links
from pathe.graph import build_graph, by_pair
from pathe.known import index_triples
from pathe.predict import Predictor
from pathe.propagation import both_ways
from pathe.questions import Room, some

BRIDGE = {"bridge": "paths", "bridge_dim": 6, "bridge_hops": 3}


def by_hand(bridge: Bridge, triples, n_entities, n_relations, source, kind):
    """States of all entities for one question, edge by edge."""
    asked = bridge.asked.weight[kind]
    x = torch.zeros(n_entities, len(asked))
    x[source] = asked
    for hop in bridge.rounds:
        assert isinstance(hop, Round)
        weights = hop.weights(asked[None], bridge.relations)[0]
        arrived = torch.zeros_like(x)
        for h, r, t in triples.tolist():
            arrived[t] += x[h] * weights[r]
            arrived[h] += x[t] * weights[r + n_relations]
        size = (arrived.square().mean(-1, keepdim=True) + 1e-12).sqrt()
        taken = arrived * (size.log1p() / size)
        x = x + F.relu(hop.take(torch.cat([x, taken], -1)))
    return x


@pytest.mark.parametrize("device", DEVICES)
def test_scores_are_those_of_states_carried_edge_by_edge(device):
    kg = toy()
    torch.manual_seed(0)
    bridge = Bridge(kg.n_relations, 6, 3, link=True, relation=True)
    edges = both_ways(build_graph(kg.train, kg.n_entities, kg.n_relations)).to(device)
    sources, kinds = torch.tensor([2, 7, 2]), torch.tensor([0, kg.n_relations + 1, 1])
    moved = bridge.to(device)
    with torch.no_grad():
        links = moved.links(edges, edges.without(), sources.to(device), kinds.to(device)).cpu()
        pairs = moved.pairs(edges, edges.without(), sources.to(device), kinds.to(device)).cpu()
        bridge = bridge.to("cpu")
        parts = kg.train, kg.n_entities, kg.n_relations
        for row in range(3):
            x = by_hand(bridge, *parts, sources[row], kinds[row])
            asked, same = bridge.asked.weight[kinds[row]][None], torch.zeros(len(x))
            torch.testing.assert_close(links[row], bridge.link_head(x, asked, same)[:, 0])
            x = by_hand(bridge, *parts, sources[row], 2 * kg.n_relations)
            asked = bridge.asked.weight[-1:]
            expected = bridge.relation_head(x[kinds[row]][None], asked, same[:1])[0]
            torch.testing.assert_close(pairs[row], expected)


def test_where_no_path_leads_nothing_is_added():
    kg = knowledge_graph([(0, 0, 1), (1, 0, 2), (2, 0, 3), (4, 0, 5)])
    bridge = Bridge(1, 4, 2)
    edges = both_ways(build_graph(kg.train, kg.n_entities, 1))
    with torch.no_grad():
        [scores] = bridge.links(edges, edges.without(), torch.tensor([0]), torch.tensor([0]))
    assert scores.nonzero()[:, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("task", ["link", "relation", "multi"])
@pytest.mark.parametrize("sampling", ["each", "shared", "all"])
def test_every_task_and_sampling_trains_with_bridges(tmp_path, task, sampling):
    more = BRIDGE | {"task": task, "negative_sampling": sampling, "hold_out_batch": True,
                     "max_epochs": 2}  # fmt: skip
    result = train(toy(), tmp_path / "run", **more)
    assert 0 < result["mrr"] <= 1
    assert result["parameters_as_published"] is None
    again = evaluate(load_model(tmp_path / "run"), toy())
    assert again["mrr"] == pytest.approx(result["mrr"], abs=1e-6)


@pytest.mark.parametrize("pairs", [False, True])
def test_a_step_does_not_see_the_edges_it_is_about(pairs):
    """Scores and gradients are those of a graph without the batch's edges (or its pairs')."""
    kg = toy()
    more = BRIDGE | {"negative_sampling": "all", "hold_out_batch": True, "hold_out_pairs": pairs,
                     "dropout": 0.0, "context_dropout": 0.0}  # fmt: skip
    whole = learner(kg, **more)
    ids = torch.tensor([1, 4, 9])
    held = whole._held_out(ids)
    ends = {frozenset(row) for row in kg.train[ids][:, [0, 2]].tolist()}
    expected = {i for i, row in enumerate(kg.train[:, [0, 2]].tolist()) if frozenset(row) in ends}
    assert set(held.tolist()) == (expected if pairs else set(ids.tolist()))
    kept = [i for i in range(len(kg.train)) if i not in set(held.tolist())]
    less = build_graph(kg.train[kept], kg.n_entities, kg.n_relations)
    describe = build_describer(whole.config, less, whole.config.n_paths)
    none = torch.zeros(3, kg.n_entities)
    h, r, t = kg.train[ids].long().unbind(1)
    ours, _ = whole._bridges(whole.step(ids, 0))
    for side, fixed in (("tail", h), ("head", t)):
        theirs = bridge_links(whole.model, describe, none, fixed, r, side)
        torch.testing.assert_close(ours[side], theirs)


@pytest.mark.parametrize("task", ["link", "relation", "multi"])
def test_a_step_may_take_a_share_of_the_edges(task):
    """Scores are those of the smaller graph, what arrives counted for all that is missing."""
    kg = toy()
    made = learner(kg, **BRIDGE | {"task": task, "bridge_edges": 0.5, "hold_out_batch": True})
    whole, ids = made.describe.edges, torch.tensor([1, 4, 9])
    triples, bridge = kg.train[ids].long(), made.model.bridge
    torch.manual_seed(5)
    links, pairs = made._bridges(made.step(ids, 0))
    torch.manual_seed(5)
    sample = whole.sample(0.5, ids)  # one for both tasks
    assert len(sample.relations_M) < len(whole.relations_M)
    parts = sample, sample.without()
    if task != "relation":
        tails = bridge.links(*parts, triples[:, 0], triples[:, 1])
        torch.testing.assert_close(links["tail"], tails)
        once = replace(sample, each=1.0)
        other = bridge.links(once, once.without(), triples[:, 0], triples[:, 1])
        assert not torch.allclose(tails, other)
    if task != "link":
        torch.testing.assert_close(pairs, bridge.pairs(*parts, triples[:, 0], triples[:, 2]))


def test_questions_that_do_without_bridges_have_node_scores():
    kg = toy()
    made = learner(kg, **BRIDGE | {"bridge_dropout": 0.5, "negative_sampling": "all"})
    triples, edges = kg.train[:40].long(), made.describe.edges
    torch.manual_seed(3)
    found, _ = made._bridges(made.step(torch.arange(40), 0))
    keep, n_bare = edges.without(torch.arange(40)), 0
    for side, column, more in (("tail", 0, 0), ("head", 2, kg.n_relations)):
        bare = ~found[side].any(1)
        n_bare += int(bare.sum())
        full = made.model.bridge.links(edges, keep, triples[:, column], triples[:, 1] + more)
        torch.testing.assert_close(found[side][~bare], full[~bare])
    assert n_bare == 40


@pytest.mark.parametrize("task", ["link", "relation"])
def test_no_question_bridges_itself_even_where_its_edges_describe(task):
    """With mined paths the batch's edges stay in contexts and paths, never among the bridges."""
    kg = toy()
    made = learner(kg, **BRIDGE | {"task": task, "hold_out_batch": False})
    ids, seen = torch.tensor([1, 4, 9]), []
    name = "links" if task == "link" else "pairs"
    real = getattr(made.model.bridge, name)
    setattr(made.model.bridge, name, lambda *parts: seen.append(parts[1]) or real(*parts))
    made.loss(ids, torch.tensor(5))
    [keep] = seen
    assert set(made.describe.edges.triples_M[~keep].tolist()) == {1, 4, 9}


def test_a_step_about_relations_sees_neither_its_edges_nor_bridges_everywhere():
    kg = toy()
    more = {"task": "relation", "bridge_dropout": 0.5, "hold_out_batch": True}
    made = learner(kg, **BRIDGE | more)
    ids = torch.arange(40)
    triples = kg.train[:40].long()
    torch.manual_seed(3)
    _, found = made._bridges(made.step(ids, 0))
    kept = kg.train[40:]
    edges = both_ways(build_graph(kept, kg.n_entities, kg.n_relations))
    full = made.model.bridge.pairs(edges, edges.without(), triples[:, 0], triples[:, 2])
    bare = ~found.any(1)
    assert (bare & full.any(1)).any()
    assert not bare.all()
    torch.testing.assert_close(found[~bare], full[~bare])


@pytest.mark.parametrize("cache", [1, 1 << 30])
def test_few_questions_at_once_or_all_score_the_same(cache, monkeypatch):
    kg = toy()
    made = learner(kg, **BRIDGE)
    none = torch.zeros(40, kg.n_entities)
    h, r, _ = kg.train[:40].long().unbind(1)
    expected = made.model.bridge.links(made.describe.edges, made.describe.edges.without(), h, r)
    monkeypatch.setattr("pathe.bridging.CACHE", cache)
    found = bridge_links(made.model, made.describe, none, h, r, "tail")
    torch.testing.assert_close(found, expected)
    none = bridge_links(made.model, made.describe, none[:0], h[:0], r[:0], "tail")
    assert none.shape == (0, kg.n_entities)


@pytest.mark.parametrize("sampling", ["each", "shared", "all"])
def test_a_loss_adds_each_answer_its_own_bridges(sampling, monkeypatch):
    """Planted: 100 e + 1 at tail e, 100 e + 2 at head e."""
    kg = toy()
    made = learner(kg, **BRIDGE | {"negative_sampling": sampling, "negatives": kg.n_entities})
    ids, seen = torch.tensor([1, 4, 9]), []
    monkeypatch.setattr(
        "pathe.training.link_loss",
        lambda name, right, wrong, mask, **more: seen.append((right, wrong)) or right.sum(),
    )
    planted = (100.0 * torch.arange(kg.n_entities)).expand(3, -1)
    for there in (0.0, 1.0):
        sides = {"tail": there * (planted + 1), "head": there * (planted + 2)}
        monkeypatch.setattr(made, "_bridges", lambda *_, sides=sides: (sides, 0.0))
        torch.manual_seed(0)
        made.loss(ids, torch.tensor(5))
    picks = made._answers(kg.train[ids].long(), torch.tensor(5))
    for i, (side, column) in enumerate((("tail", 2), ("head", 0))):
        right, wrong = (after - before for before, after in zip(seen[i], seen[2 + i], strict=True))
        torch.testing.assert_close(right, 100.0 * kg.train[ids, column] + 1 + i, atol=0.1, rtol=0)
        expected = (100.0 * picks[side][0] + 1 + i).expand_as(wrong)
        torch.testing.assert_close(wrong, expected, atol=0.1, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_room_for_more_rows_changes_nothing(device, dtype):
    """Scores and gradients, of answers and of relations, with rows of nothing after each hop."""
    kg = toy()
    graph = build_graph(kg.train, kg.n_entities, kg.n_relations).to(device)
    edges = both_ways(graph)
    keep = edges.without(torch.arange(0, len(kg.train), 3, device=device))
    torch.manual_seed(0)
    bridge = Bridge(kg.n_relations, 16, 3, relation=True).to(device, dtype)
    heads, relations, tails = kg.train[:20].long().to(device).unbind(1)
    for how, others, ends in ((bridge.links, relations, ()), (bridge.pairs, tails, (tails,))):
        exact = bridge.reach(edges, keep, heads, *ends)
        room = (exact.sizes[0], *(n + 7 * (i + 1) for i, n in enumerate(exact.sizes[1:])))
        found = []
        for reached in (exact, exact.padded(room)):
            bridge.zero_grad()
            scores = how(edges, keep, heads, others, reached)
            weigh = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1))
            (scores * weigh.to(scores)).sum().backward()
            grads = [p.grad for p in bridge.parameters() if p.grad is not None]
            found.append([scores.detach(), *grads])
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other)


def test_a_share_of_the_questions_is_always_as_many():
    for n, share, expected in ((10, 0.5, 5), (10, 1.0, 10), (7, 0.05, 1), (9, 0.3, 3)):
        rows = some(n, share, torch.device("cpu"))
        assert len(rows) == len(set(rows.tolist())) == expected
        assert rows.tolist() == sorted(rows.tolist())
    many = torch.stack([torch.bincount(some(8, 0.25, torch.device("cpu")), minlength=8)
                        for _ in range(4000)]).sum(0)  # fmt: skip
    assert (many - 1000).abs().max() < 150  # 5.5 standard deviations


def test_room_grows_by_what_did_not_fit():
    room = Room(110)
    assert not room.fits((4, 40, 80))
    room.grow((4, 40, 80))
    assert room.sizes == (4, 50, 100)
    assert room.fits((4, 50, 100))
    assert not room.fits((4, 51, 60))
    room.grow((4, 60, 70))
    assert room.sizes == (4, 75, 100)  # what did fit has no more than before
    room.grow((4, 60, 101))
    assert room.sizes == (4, 75, 110)


def test_pairs_are_found_in_either_direction():
    triples = sorted_triples([(0, 0, 1), (1, 2, 0), (0, 1, 2), (3, 0, 3), (2, 1, 3)])
    found = by_pair(triples, 4)
    here = {tuple(row): i for i, row in enumerate(triples.tolist())}
    same = found.of_same(torch.tensor([here[0, 0, 1], here[3, 0, 3]])).tolist()
    assert sorted(same) == sorted([here[0, 0, 1], here[1, 2, 0], here[3, 0, 3]])
    flags = found.flag_same(torch.tensor([here[0, 0, 1], here[3, 0, 3]]))
    assert flags.nonzero().squeeze(1).tolist() == sorted(same)


def test_validation_and_test_triples_are_no_edges():
    kg = toy()
    edges = learner(kg, **BRIDGE).describe.edges
    fewer = learner(replace(kg, valid=kg.valid[:0], test=kg.test[:0]), **BRIDGE).describe.edges
    assert len(edges.relations_M) == 2 * len(kg.train)
    for key in ("offsets_E1", "neighbours_M", "relations_M", "owners_M"):
        assert torch.equal(getattr(edges, key), getattr(fewer, key))


@pytest.mark.parametrize("more", [BRIDGE, {"refine": True}, BRIDGE | {"refine": True}])
def test_prediction_equals_evaluation_and_explanation(more):
    kg = toy()
    p = predictor(kg, **more)
    known = index_triples(torch.cat([kg.train, kg.valid, kg.test]), kg.n_entities, kg.n_relations)
    report = evaluate_links(p.model, p.vectors.describe, kg.test, known, seed=p.seed)
    names = kg.entities, kg.relations, kg.entities
    facts = [tuple(of[i] for of, i in zip(names, row, strict=True)) for row in kg.test.tolist()]
    for side in ("head", "tail"):
        ranks = [judged.rank for judged in p.score(facts, side)]
        assert sum(1 / r for r in ranks) / len(ranks) == pytest.approx(
            report[side]["mrr"], abs=0.02
        )
    for asked in ("head", "tail", "relation"):
        [judged] = p.score(facts[:1], asked)
        explained = p.explain(*facts[0], asked)
        assert explained.score == pytest.approx(judged.score, abs=1e-5)
        without = p.score_without(*facts[0], [], asked)
        assert without == pytest.approx(judged.score, abs=1e-4)


def test_sampled_ranking_reads_the_same_scores():
    """With all entities as negatives, the sampled protocol is the full one."""
    kg = toy()
    p = predictor(kg, **BRIDGE)
    known = index_triples(kg.train, kg.n_entities, kg.n_relations)
    z = encode(p.model, p.vectors.describe, torch.arange(kg.n_entities), seed=p.seed)
    h, r, _ = kg.test[:4].long().unbind(1)
    everyone = torch.arange(kg.n_entities).expand(4, -1)
    nodes = p.model.candidate_scores(z[h], r, p.model.candidates(z, "tail"), "tail")
    full = bridge_links(p.model, p.vectors.describe, nodes, h, r, "tail")
    some = bridge_links(p.model, p.vectors.describe, nodes, h, r, "tail", everyone)
    torch.testing.assert_close(full, some)
    assert known.n_entities == kg.n_entities


def test_new_facts_are_bridges_at_once():
    kg = toy()
    p = predictor(kg, **BRIDGE)
    question = kg.entities[0], kg.relations[0]
    before = {a.name: a.score for a in p.tails(*question, 100)}
    p.add([(kg.entities[0], kg.relations[1], kg.entities[40])])
    p.refresh()
    larger = knowledge_graph([*kg.train.tolist(), [0, 1, 40]], kg.valid.tolist(), kg.test.tolist())
    fresh = Predictor(artifact_of(kg, **BRIDGE), larger)
    ours, theirs = ({a.name: a.score for a in q.tails(*question, 100)} for q in (p, fresh))
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert ours != pytest.approx(before, abs=1e-4)


def test_relations_between_a_pair_see_its_paths():
    kg = toy()
    p = predictor(kg, **BRIDGE)
    none = torch.zeros(1, kg.n_relations)
    h, t = kg.train[0, [0, 2]].long().split(1)
    with_path = bridge_relations(p.model, p.vectors.describe, none, h, t)
    edges = p.vectors.describe.edges
    nothing_kept = edges.without(torch.arange(len(kg.train)))
    without = p.model.bridge.pairs(edges, nothing_kept, h, t)
    assert with_path.abs().sum() > 0
    assert without.abs().sum() == 0


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="hold_out_pairs needs"):
        configure(settings={"hold_out_pairs": True, "hold_out_batch": False})
    with pytest.raises(ConfigError, match="bridge is one of none, paths"):
        configure(settings={"bridge": "walk"})


def test_questions_are_few_at_once_where_bridges_take_memory(monkeypatch):
    """The same answers, however little memory there is."""
    kg = toy()
    p = predictor(kg, **BRIDGE)
    pairs = [(kg.entities[h], None, kg.entities[t]) for h, _, t in kg.test[:6].tolist()]
    whole = [[a.score for a in found] for found in p.answer(pairs)]
    sizes, real = [], p.model.bridge.pairs
    p.model.bridge.pairs = lambda *parts: sizes.append(len(parts[2])) or real(*parts)
    monkeypatch.setattr("pathe.bridging.CACHE", 1)
    again = [[a.score for a in found] for found in p.answer(pairs)]
    assert sizes == [1] * 6
    assert [len(row) for row in again] == [len(row) for row in whole]
    for ours, theirs in zip(again, whole, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("kept", [1, 40, 1 << 27])
def test_missing_triples_are_as_plausible_as_both_their_questions_say(kept, monkeypatch):
    """Asked for the head, a triple has another score than asked for the tail: both count."""
    kg = toy()
    p = predictor(kg, **BRIDGE)
    for parameter in p.model.bridge.parameters():  # so that bridges matter
        parameter.data *= 1.5
    monkeypatch.setattr("pathe.missing.KEPT", kept)
    found = list(p.missing(10**6))
    assert max(m.plausibility for m in found) <= 1
    for m in found[:20]:
        tails, heads = p.tails(m.head, m.relation, 100), p.heads(m.relation, m.tail, 100)
        [tail] = [a for a in tails if a.name == m.tail]
        [head] = [a for a in heads if a.name == m.head]
        both = (tail.probability * head.probability) ** 0.5
        assert m.plausibility == pytest.approx(both, rel=1e-3)
        assert m.score == pytest.approx(tail.score, abs=1e-4)
    assert len({(m.head, m.relation, m.tail) for m in found}) == len(found)
