"""Propagation against a sum over edges written as loops; bridges against paths written out."""

from __future__ import annotations

import pytest
import torch
from support.graphs import DEVICES, sorted_triples
from support.kernels import backward
from support.propagation import example
from torch import Tensor

from pathe.graph.adjacency import build_graph
from pathe.graph.edges import both_ways
from pathe.model.bridge import TableBridge
from pathe.model.propagation import Reach, between, propagate, propagate_plain


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
    for how in (propagate, propagate_plain):
        found = how(x, weights, edges, keep, reached, reached.sizes[-1])
        torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_half_precision_rounds_messages_on_a_gpu_alone(device):
    """Sums are those of rounded states, weights and gradients, in float32; on a CPU, exact."""
    _, edges, keep, reached, x, weights = example(n=600, device=device)
    rest = edges, keep, reached, reached.sizes[-1]
    grads = [torch.randn(rest[-1], x.shape[1], device=device)]
    found = backward(propagate, [x, weights], grads, *rest, True)
    if device == "cuda":
        x, weights, *grads = (part.bfloat16().float() for part in (x, weights, *grads))
    expected = backward(propagate_plain, [x, weights], grads, *rest)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


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
    at = reached.queries_A.long(), reached.entities_A.long()
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
    bridge = TableBridge(3, 8, hops).to(device)
    given = bridge.condition(torch.arange(6, device=device), None)
    whole, x = bridge.states(edges, keep, sources, given)
    some, y = bridge.states(edges, keep, sources, given, targets)
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
        found = between(edges, *ends, hops, edges.keep())
        assert set(found.entities_A.tolist()) == expected
        assert found.entities_A[0] == 1


@pytest.mark.parametrize("device", DEVICES)
def test_repeated_rows_are_those_of_repeated_queries(device):
    """Query b becomes queries 3 b, 3 b + 1 and 3 b + 2; padding rows stay padding rows."""
    _, edges, keep, reached, x, weights = example(n=40, device=device)
    reached = reached.padded((*reached.sizes[:-1], reached.sizes[-1] + 4))
    found = reached.repeated(3)
    assert found.sizes == tuple(3 * size for size in reached.sizes)
    assert found.row_BE.dtype == found.queries_A.dtype == found.entities_A.dtype == torch.int32
    assert torch.equal(found.row_BE >= 0, (reached.row_BE >= 0).repeat_interleave(3, 0))
    real = found.entities_A >= 0
    assert int(real.sum()) == 3 * int((reached.entities_A >= 0).sum())
    rows = found.row_BE[found.queries_A[real].long(), found.entities_A[real].long()]
    assert torch.equal(rows.long(), real.nonzero().squeeze(1))
    assert torch.equal(found.queries_A[:15].cpu(), torch.arange(15, dtype=torch.int32))
    assert torch.equal(found.entities_A[:15], reached.entities_A[:5].repeat_interleave(3))
    size = reached.sizes[-1] - 4  # without padding
    expected = propagate(x, weights, edges, keep, reached, size)
    factors = torch.tensor([1.0, 2.0, -1.0], device=device)
    many = (weights[:, None] * factors[:, None, None]).flatten(0, 1)
    found_AD = propagate(x.repeat_interleave(3, 0), many, edges, keep, found, 3 * size)
    torch.testing.assert_close(
        found_AD.view(size, 3, -1), expected[:, None] * factors[:, None], atol=1e-5, rtol=1e-4
    )
