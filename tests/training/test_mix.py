"""A pre-training step: what it draws, what it hides from the model, and its loss."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from support.graphs import DEVICES, graph_of, sorted_triples

from pathe.core.errors import ConfigError
from pathe.graph.adjacency import Graph, build_graph
from pathe.graph.edges import both_ways
from pathe.graph.held_out import HeldOut
from pathe.graph.relation_graph import arrivals
from pathe.model import foundation
from pathe.model.foundation import BRIDGED, FoundationModel, Views, view
from pathe.training import mix as module
from pathe.training.mix import Mix, MixGraph, MixSettings, MixStep
from pathe.training.pretraining import step_loss, with_rows

SMALL = {
    "n_subgraphs": 6, "least_entities": 12, "most_entities": 30, "least_batch": 4, "most_batch": 12,
}  # fmt: skip
WHOLE = {"whole_share": 1.0, "drop_share": 0.0, "pair_share": 0.0, "relation_share": 0.0}
Edge = tuple[int, int, int]


def random_graph(n: int, n_entities: int, n_relations: int) -> Graph:
    made = torch.Generator().manual_seed(n)
    highest = torch.tensor([n_entities, n_relations, n_entities])
    rows = (torch.rand(n, 3, generator=made) * highest).long().tolist()
    return build_graph(sorted_triples(rows), n_entities, n_relations)


GRAPHS = {"dense": random_graph(400, 40, 4), "sparse": random_graph(100, 60, 2)}


def some_mix(graphs: dict[str, Graph] = GRAPHS, **changes) -> Mix:
    return Mix(graphs, MixSettings(**(SMALL | changes)), "cpu")


def some_model() -> FoundationModel:
    torch.manual_seed(0)
    return FoundationModel(8, 3, 2)


def all_edges(graph: MixGraph) -> list[Edge]:
    """(source, kind, target) of all slots."""
    edges = graph.edges
    parts = edges.neighbours_M, edges.relations_M, edges.owners_M
    return list(zip(*(part.tolist() for part in parts), strict=True))


def kept_edges(graph: MixGraph, step: MixStep) -> set[Edge]:
    kept = step.graph.keep_M.tolist()
    return {edge for edge, keep in zip(all_edges(graph), kept, strict=True) if keep}


def asked(graph: MixGraph, step: MixStep) -> set[Edge]:
    """The edges of the batch, in both directions."""
    parts, r = (step.sources_N, step.kinds_N, step.targets_N), graph.edges.n_relations
    one_way = set(zip(*(part.tolist() for part in parts), strict=True))
    return one_way | {(t, (k + r) % (2 * r), s) for s, k, t in one_way}


def same(one: MixStep, other: MixStep) -> bool:
    pairs = zip(one.tensors(), other.tensors(), strict=True)
    return one.part == other.part and all(torch.equal(a, b) for a, b in pairs)


def test_a_step_depends_on_the_seed_and_its_number_alone():
    forward = {i: some_mix().step(i) for i in range(12)}
    again = some_mix()
    found = [again.step(i) for i in (7, *reversed(range(12)))][1:][::-1]
    for i, (graph, step) in enumerate(found):
        assert (graph.name, graph.number) == (forward[i][0].name, forward[i][0].number)
        assert torch.equal(graph.triples_M3, forward[i][0].triples_M3)
        assert same(step, forward[i][1])
    assert len({step.sources_N.tolist().__repr__() for _, step in found}) == 12
    other = [some_mix(seed=1).step(i) for i in range(12)]
    assert not any(same(one, two) for (_, one), (_, two) in zip(found, other, strict=True))


@pytest.mark.parametrize("relation_share", [0.0, 1.0])
@pytest.mark.parametrize("pair_share", [0.0, 1.0])
def test_the_batch_is_held_out_and_nothing_else(relation_share, pair_share):
    """In both directions; where pairs are held out, with every edge between its entities."""
    shares = {"drop_share": 0.0, "pair_share": pair_share, "relation_share": relation_share}
    mix, more = some_mix(vary_share=0.0, **shares), 0
    for i in range(12):
        graph, step = mix.step(i)
        batch, everything = asked(graph, step), set(all_edges(graph))
        assert step.part == ("relation" if relation_share else "entity")
        assert batch <= everything  # real triples
        pairs = {frozenset((s, t)) for s, _, t in batch}
        between = {edge for edge in everything if frozenset((edge[0], edge[2])) in pairs}
        out = between if pair_share else batch
        assert kept_edges(graph, step) == everything - out
        more += len(between - batch)
    assert more >= 8  # edges beside the batch's


def test_dropped_edges_leave_a_graph_to_learn_from():
    mix, shares = some_mix({"dense": GRAPHS["dense"]}, **(WHOLE | {"drop_share": 1.0})), []
    for i in range(40):
        graph, step = mix.step(i)
        kept = kept_edges(graph, step)
        assert not kept & asked(graph, step)
        assert {(t, (k + 4) % 8, s) for s, k, t in kept} == kept  # both directions or none
        shares.append((len(kept) + len(asked(graph, step))) / len(all_edges(graph)))
    sparsest = module.SPARSEST / graph.degree
    assert 0.1 < sparsest < 0.2
    assert 0.7 * sparsest < min(shares) < 2 * sparsest
    assert 0.8 < max(shares) <= 1
    middle = sorted(shares)[20]  # evenly distributed on a logarithmic scale
    assert 0.6 < middle / math.sqrt(sparsest) < 1.6


def test_a_step_sees_nothing_of_held_out_edges():
    """All that the model gets equals what is computed from the kept triples alone."""
    mix = some_mix(drop_share=0.5, pair_share=0.5, relation_share=0.3)
    for i in range(15):
        graph, step = mix.step(i)
        n, r, keep = graph.edges.n_entities, graph.edges.n_relations, step.graph.keep_M
        left = [(s, k, t) for s, k, t in kept_edges(graph, step) if k < r]
        assert len(left) < len(graph.triples_M3)
        edges = both_ways(build_graph(sorted_triples(left), n, r))
        alone = view(arrivals(edges), edges.keep())
        assert int(keep.sum()) == len(edges.relations_M)
        torch.testing.assert_close(step.graph.meetings, alone.meetings)
        every, kinds = torch.arange(n), torch.arange(2 * r)
        one, other = step.graph.contexts, alone.contexts
        torch.testing.assert_close(one.at(every), other.at(every))
        torch.testing.assert_close(one.counts(kinds), other.counts(kinds))
        torch.testing.assert_close(one.degrees_E, other.degrees_E)
        torch.testing.assert_close(one.sums_E, other.sums_E)


@pytest.mark.parametrize("relation_share", [0.0, 1.0])
def test_the_loss_ranks_the_answer_among_candidates_that_are_not_known(monkeypatch, relation_share):
    """Known answers are closed, the batch's own too; the loss counts its own once."""
    monkeypatch.setattr(foundation, "BRIDGED", 1)  # bridges score the true relation
    mix, model = some_mix(vary_share=0.0, relation_share=relation_share), some_model()
    for i in range(6):
        graph, step = mix.step(i)
        assert step.part == ("relation" if relation_share else "entity")
        known, r = set(all_edges(graph)), graph.edges.n_relations
        ends = step.sources_N, step.kinds_N, step.targets_N
        queries = list(zip(*(part.tolist() for part in ends), strict=True))
        seen = graph.edges, step.graph
        if relation_share:
            closed = [[(s, c, t) in known for c in range(r)] for s, _, t in queries]
            with torch.no_grad():
                scores = model.relations(*seen, step.sources_N, step.targets_N, step.kinds_N)
        else:
            every = range(graph.edges.n_entities)
            closed = [[(s, k, c) in known for c in every] for s, k, _ in queries]
            with torch.no_grad():
                scores = model.links(*seen, step.sources_N, step.kinds_N)
        assert step.open_NC.tolist() == [[not c for c in row] for row in closed]
        losses = []
        for b, (_, kind, target) in enumerate(queries):
            answer = kind if relation_share else target
            assert closed[b][answer]
            rest = [float(s) for s, c in zip(scores[b], closed[b], strict=True) if not c]
            own = float(scores[b, answer])
            losses.append(math.log(sum(math.exp(s) for s in (own, *rest))) - own)
        model.zero_grad()
        loss = step_loss(model, graph, step)
        assert loss.item() == pytest.approx(sum(losses) / len(losses), rel=1e-4)
        loss.backward()
        unused = model.link_contexts if relation_share else model.relation_contexts
        idle = {id(p) for p in unused.parameters()}
        head = model.bridge.link_head if relation_share else model.bridge.relation_head
        idle |= {id(p) for p in head.parameters()}
        for p in model.parameters():
            assert (p.grad is None) == (id(p) in idle)
            assert p.grad is None or p.grad.isfinite().all()
        assert model.encoder.start.grad.any()


@pytest.mark.parametrize("relation_share", [0.0, 1.0])
def test_rows_found_before_a_step_change_no_loss(relation_share):
    mix, model = some_mix(drop_share=0.5, relation_share=relation_share), some_model()
    for i in range(6):
        graph, step = mix.step(i)
        ready = with_rows(model, graph, step)
        assert step.reached is None
        assert ready.reached is not None
        assert torch.equal(step_loss(model, graph, step), step_loss(model, graph, ready))


def test_where_every_candidate_is_known_nothing_is_learned():
    """Two entities connected by both relations: there is no wrong relation."""
    rows = [(2 * i, r, 2 * i + 1) for i in range(6) for r in range(2)]
    mix = some_mix({"both": graph_of(rows)}, whole_share=1.0, relation_share=1.0)
    graph, step = mix.step(0)
    model = some_model()
    assert step.part == "relation"
    assert not step.open_NC.any()
    loss = step_loss(model, graph, step)
    loss.backward()
    assert loss.item() == 0
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert grads
    assert not any(grad.any() for grad in grads)  # NaN would be True


@pytest.mark.parametrize(
    ("n", "expected"),
    [(1, 1), (3, 1), (4, 1), (7, 1), (40, 10), (100, 20), (250, 20), (500, 10), (2000, 5)],
)
def test_larger_graphs_get_smaller_batches(n, expected):
    """Work 10,000: 5,000 / n triples, from 5 to 20, at most a quarter of all but at least one."""
    mix = some_mix(work=10_000, least_batch=5, most_batch=20)
    graph = replace(mix.get(0), triples_M3=torch.zeros(n, 3))
    assert mix.batch_size(graph) == expected


def test_batches_have_the_size_of_the_rule():
    mix = some_mix(relation_share=0.5)
    sizes = Counter()
    for i in range(30):
        graph, step = mix.step(i)
        size, n = mix.batch_size(graph), len(step.sources_N)
        assert n == (max(size // 4, 1) if step.part == "relation" else 2 * size)
        columns = graph.edges.n_relations if step.part == "relation" else graph.edges.n_entities
        assert step.open_NC.shape == (n, columns)
        assert len(step.kinds_N) == len(step.targets_N) == n
        if step.part == "entity":  # tails, then heads of the same triples
            assert torch.equal(step.sources_N, step.targets_N.roll(size))
            assert torch.equal(step.kinds_N[size:], step.kinds_N[:size] + graph.edges.n_relations)
        assert len(asked(graph, step)) == (2 * n if step.part == "relation" else n)  # no repeats
        sizes[step.part] += 1
    assert min(sizes["entity"], sizes["relation"]) > 5


def test_a_relation_is_asked_for_where_there_is_more_than_one_and_it_fits(monkeypatch):
    one = {"one": random_graph(100, 20, 1)}
    mix = some_mix(one, **(WHOLE | {"relation_share": 1.0}))
    assert {mix.step(i)[1].part for i in range(5)} == {"entity"}
    mix = some_mix({"dense": GRAPHS["dense"]}, **(WHOLE | {"relation_share": 1.0}))
    assert {mix.step(i)[1].part for i in range(5)} == {"relation"}
    monkeypatch.setattr(module, "ROWS", BRIDGED * 40)  # of a single pair
    assert {mix.step(i)[1].part for i in range(5)} == {"entity"}


def test_shares_of_steps_are_those_of_the_settings():
    graphs = {"large": random_graph(3000, 200, 3), "small": random_graph(300, 200, 3)}
    mix = some_mix(graphs, whole_share=0.4, n_subgraphs=5)
    drawn = Counter(mix.draw(i).number for i in range(1500))
    assert set(drawn) == set(range(7))
    assert abs((drawn[0] + drawn[1]) / 1500 - 0.4) < 0.05
    sizes = [graph.n_triples for graph in graphs.values()]
    expected = 1 / (1 + math.sqrt(sizes[0] / sizes[1]))
    assert abs(drawn[1] / (drawn[0] + drawn[1]) - expected) < 0.07
    for number in range(2, 7):
        assert abs(drawn[number] / 1500 - 0.6 / 5) < 0.04
    assert [mix.get(number).name for number in (0, 1)] == ["large", "small"]


@pytest.mark.parametrize("vary_share", [0.0, 1.0])
@pytest.mark.parametrize("thin_share", [0.0, 1.0])
def test_subgraphs_of_the_mix(thin_share, vary_share):
    """Every id occurs; without changes, a subgraph has all triples among its entities."""
    changes = {"thin_share": thin_share, "vary_share": vary_share, "n_subgraphs": 12}
    mix, sizes, degrees = some_mix({"dense": GRAPHS["dense"]}, **changes), [], []
    for number in range(1, 13):
        graph = mix.get(number)
        triples, n = graph.triples_M3, graph.edges.n_entities
        assert graph.name == f"dense/{number}"
        assert triples[:, [0, 2]].unique().tolist() == list(range(n))
        assert triples[:, 1].unique().tolist() == list(range(graph.edges.n_relations))
        sizes.append(n)
        degrees.append(graph.degree)
    assert 8 <= min(sizes) < max(sizes) <= 30
    assert min(sizes) >= 12 or thin_share or vary_share
    if not vary_share:
        assert min(degrees) >= 0.9 * module.SPARSEST
        # of 20 edges per entity of the whole graph, 5 to 15 lead into a part of that size
        assert (min(degrees) < 4) == bool(thin_share)


def test_a_draw_close_to_one_is_the_last_graph():
    """The chances of these three add up to less than one in single precision."""
    rows = [[(0, 0, 1)], [(0, 0, 1), (1, 0, 0)], [(0, 0, 1), (1, 0, 0)]]
    mix = some_mix({f"{i}": graph_of(part) for i, part in enumerate(rows)})
    assert mix._pick(0.0) == 0
    assert mix._pick(1 - 2**-53) == 2


def test_settings_that_contradict_each_other_are_refused():
    for least, most in (("least_entities", "most_entities"), ("least_batch", "most_batch")):
        with pytest.raises(ConfigError, match=f"{least} must be at most {most}; got 9 and 5"):
            MixSettings(**{least: 9, most: 5})
    with pytest.raises(ConfigError, match="whole_share"):
        MixSettings(whole_share=1.5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("part", ["entity", "relation"])
def test_a_view_without_a_few_triples_is_that_of_the_graph_without_them(device, part):
    """What is subtracted from the whole graph gives the same loss and gradients, bit for bit."""
    mix = Mix(GRAPHS, MixSettings(**(SMALL | WHOLE)), device)
    model = some_model().to(device)
    graph = mix.get(0)
    views = Views(graph.edges, graph.index)
    for ids_B in (torch.arange(6), torch.tensor([9, 2, 2]), torch.arange(0, 60, 3)):
        ids_B = ids_B.to(device)
        batch_B3, found = graph.triples_M3[ids_B], []
        whole = view(graph.index, graph.edges.keep(HeldOut(ids_B)))
        for seen in (whole, views.without(ids_B)):
            if part == "entity":
                step = module.sampled_link_step(graph, seen, batch_B3, 7, 3)
            else:
                step = replace(module.relation_step(graph, seen, batch_B3), frontier=7)
            model.zero_grad()
            loss = step_loss(model, graph, step)
            loss.backward()
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            found.append([seen.keep_M, seen.meetings, loss.detach(), *(g.clone() for g in grads)])
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other)
        assert torch.equal(found[0][1], found[1][1])
    assert torch.equal(views.edges.keep(), graph.edges.keep())  # the whole graph is as it was


def test_a_step_on_a_large_graph_scores_a_sample_of_the_same_candidates(monkeypatch):
    """A frontier that covers everything changes no score; known answers stay closed."""
    monkeypatch.setattr(module, "SAMPLED", 8)
    mix, model = some_mix(**WHOLE), some_model()
    graph = mix.get(0)
    batch_B3 = graph.triples_M3[:6]
    seen = view(graph.index, graph.edges.keep(HeldOut(torch.arange(6))))
    whole = module.link_step(graph, seen, batch_B3)
    some = module.sampled_link_step(graph, seen, batch_B3, graph.edges.n_entities, 3)
    assert some.candidates_C is not None
    assert len(some.candidates_C) <= 8 + 12 < graph.edges.n_entities
    assert torch.equal(some.candidates_C[some.targets_N], whole.targets_N)
    assert torch.equal(some.open_NC, whole.open_NC[:, some.candidates_C])
    asked, distinct = (whole.sources_N, whole.kinds_N), (whole.kinds_Q, whole.rows_N)
    scores_NE = model.links(graph.edges, seen, *asked, None, distinct)
    expected = [
        scores_N[open_N].logsumexp(0) - positive
        for scores_N, open_N, positive in zip(
            scores_NE[:, some.candidates_C].detach(),
            some.open_NC | F.one_hot(some.targets_N, some.open_NC.shape[1]).bool(),
            scores_NE.gather(1, whole.targets_N[:, None])[:, 0],
            strict=True,
        )
    ]
    loss = step_loss(model, graph, some)
    torch.testing.assert_close(loss, torch.stack(expected).mean())
    loss.backward()
    assert model.encoder.start.grad.abs().sum() > 0
