"""Propagation against a sum over edges written as loops; bridges against paths written out."""

from __future__ import annotations

import pytest
import torch
from graphs import DEVICES, sorted_triples
from torch import Tensor

from pathe.bridge import Bridge
from pathe.graph import build_graph
from pathe.propagation import Reach, between, both_ways, propagate, propagate_plain, reach
from pathe.twins import twin


def example(n_entities=30, n_relations=3, n=120, device="cpu", dim=6, hops=2):
    """Edges with some triples held out, what five questions reach, and states of the first hop."""
    made = torch.Generator().manual_seed(n)
    highest = torch.tensor([n_entities - 2, n_relations, n_entities - 2])  # two have no edges
    triples = sorted_triples((torch.rand(n, 3, generator=made) * highest).long().tolist())
    edges = both_ways(build_graph(triples, n_entities, n_relations)).to(device)
    keep = edges.without(torch.arange(len(triples), device=device)[1::4])
    reached = reach(edges, torch.tensor([3, 0, 3, n_entities - 1, 7], device=device), hops, keep)
    x = torch.randn(reached.sizes[1], dim, generator=made).to(device)
    weights = torch.randn(5, 2 * n_relations, dim, generator=made).to(device)
    return triples, edges, keep, reached, x, weights


def by_hand(x: Tensor, weights: Tensor, triples: Tensor, reached: Reach) -> Tensor:
    """Every edge that isn't held out, one at a time, for all rows."""
    row, n_relations = reached.row_BE.tolist(), weights.shape[1] // 2
    out = torch.zeros(reached.sizes[-1], x.shape[1])
    for i, (h, r, t) in enumerate(triples.tolist()):
        for b in range(len(row) if i % 4 != 1 else 0):
            for source, target, kind in ((h, t, r), (t, h, r + n_relations)):
                if 0 <= row[b][source] < len(x):
                    out[row[b][target]] += x[row[b][source]] * weights[b, kind]
    return out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [0, 1, 40, 120, 600])
def test_what_arrives_is_the_sum_over_edges(device, n):
    triples, edges, keep, reached, x, weights = example(n=n, device=device)
    expected = by_hand(x.cpu(), weights.cpu(), triples, reached.to("cpu"))
    assert twin("propagation", device)
    for how in (propagate, propagate_plain):
        found = how(x, weights, edges, keep, reached, reached.sizes[-1])
        torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dim", [6, 32, 40])
def test_gradients_are_those_of_the_plain_one(device, dim):
    _, edges, keep, reached, x, weights = example(n=90, device=device, dim=dim)
    grad = torch.randn(reached.sizes[-1], dim, device=device)
    found = []
    for how in (propagate, propagate_plain):
        learned = [part.clone().requires_grad_() for part in (x, weights)]
        how(*learned, edges, keep, reached, reached.sizes[-1]).backward(grad)
        found.append([part.grad for part in learned])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_call_gives_the_same_bits(device):
    _, edges, keep, reached, x, weights = example(n=600, device=device)
    parts = x, weights, edges, keep, reached, reached.sizes[-1]
    assert torch.equal(propagate(*parts), propagate(*parts))


@pytest.mark.parametrize("n", [0, 25, 60])
def test_reached_is_what_kept_edges_lead_to(n):
    triples, _, _, reached, *_ = example(n=n, hops=3)
    near: dict[int, set[int]] = {}
    for i, (h, _, t) in enumerate(triples.tolist()):
        if i % 4 != 1:
            near.setdefault(h, set()).add(t)
            near.setdefault(t, set()).add(h)
    for b, source in enumerate([3, 0, 3, 29, 7]):
        here = {source}
        for size in reached.sizes:
            found = {e for e, row in enumerate(reached.row_BE[b].tolist()) if 0 <= row < size}
            assert found >= here
            if n == 25:  # sparse enough that nothing is taken on trust
                assert found == here
            here = here | {other for e in here for other in near.get(e, ())}
    rows = torch.arange(reached.sizes[-1])
    at = reached.questions_A.long(), reached.entities_A.long()
    assert torch.equal(reached.row_BE[at].long(), rows)


def test_both_slots_of_a_triple_are_known():
    triples, edges, *_ = example(n=50)
    for i, (h, r, t) in enumerate(triples.tolist()):
        parts = edges.neighbours_M, edges.relations_M, edges.owners_M
        found = {tuple(int(part[slot]) for part in parts) for slot in edges.slots_N2[i]}
        assert found == {(h, r, t), (t, r + 3, h)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [0, 20, 40, 90])
@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_towards_a_target_only_its_paths_are_looked_at(device, n, hops):
    _, edges, keep, _, _, _ = example(n=n, device=device)
    sources = torch.tensor([3, 0, 3, 29, 7, 5], device=device)
    targets = torch.tensor([8, 1, 3, 2, 28, 7], device=device)
    torch.manual_seed(hops)
    bridge = Bridge(3, 8, hops).to(device)
    kinds = torch.arange(6, device=device)
    whole, x = bridge.states(edges, keep, sources, kinds)
    some, y = bridge.states(edges, keep, sources, kinds, targets)
    assert some.sizes[-1] <= whole.sizes[-1]
    assert torch.equal(some.entities_A[:6].long(), sources)
    for b, target in enumerate(targets.tolist()):
        before, after = int(whole.row_BE[b, target]), int(some.row_BE[b, target])
        if before < 0 or not x[before].any():
            assert after < 0 or not y[after].any()
        else:
            torch.testing.assert_close(y[after], x[before])


def test_far_rows_are_left_out():
    """A chain of 6: from 1 to 3 in up to 2 edges lie 1, 2, 3; in up to 4 lie 0 to 4."""
    triples = sorted_triples([(i, 0, i + 1) for i in range(5)])
    edges = both_ways(build_graph(triples, 6, 1))
    for hops, expected in ((2, {1, 2, 3}), (4, {0, 1, 2, 3, 4})):
        ends = torch.tensor([1]), torch.tensor([3])
        found = between(edges, *ends, hops, edges.without())
        assert set(found.entities_A.tolist()) == expected
        assert found.entities_A[0] == 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("share", "n"), [(0.5, 600), (0.1, 600), (1.0, 600), (0.3, 3)])
def test_a_sample_is_the_graph_of_its_triples(device, share, n):
    """Edge for edge, none of those held out, each worth as many as it stands for."""
    triples, edges, *_ = example(n=n, device=device)
    held_out = torch.arange(len(triples), device=device)[1::4]
    torch.manual_seed(1)
    sample = edges.sample(share, held_out)
    kept = sample.triples_M.unique().cpu()
    assert not set(kept.tolist()) & set(held_out.tolist())
    assert len(sample.triples_M) == 2 * len(kept)
    n_left = len(triples) - len(held_out)
    spread = (share * (1 - share) * n_left) ** 0.5
    assert len(kept) == pytest.approx(share * n_left, abs=4 * spread)
    whole = both_ways(build_graph(triples[kept], 30, 3))
    for name in ("offsets_E1", "owners_M", "neighbours_M", "relations_M"):
        assert torch.equal(getattr(sample, name).cpu(), getattr(whole, name)), name
    for name in ("order_M", "starts_C1", "offsets_R1"):
        ours, theirs = getattr(sample.by_relation, name).cpu(), getattr(whole.by_relation, name)
        assert torch.equal(ours, theirs), name
    assert sample.each == pytest.approx(1 / share)
