"""Finds the paths between a query's entity and an answer that add most to the bridges' score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from pathe.graph.edges import Edges
from pathe.model.bridge import Trace
from pathe.model.left_out import BridgeScore, Ids, Run

EDGES = 512  # candidate edges per hop
BEAM = 16  # paths kept per entity


class Partial(NamedTuple):
    """A path from the query's entity, as far as it got."""

    size: float = 0.0  # sum of its edges' |contributions|
    worth: float = 0.0  # sum of their contributions
    slots: tuple[int, ...] = ()
    entities: frozenset[int] = frozenset()

    @property
    def mean(self) -> float:
        """The mean |contribution| of its edges."""
        return self.size / max(len(self.slots), 1)


@dataclass(frozen=True)
class Connection:
    """A path from a query's entity to an answer.

    `kinds` are its relations (r, or r + R if followed backwards); `worth` is what an edge of it
    contributes to the score on average, to first order.
    """

    steps: tuple[Ids, ...]  # triples of the graph, from the query's entity on
    kinds: tuple[int, ...]
    triples: tuple[int, ...]  # ids of the steps' training triples
    worth: float


def connections(
    score: BridgeScore, k: int, hops: Sequence[Tensor] | None = None
) -> list[Connection]:
    """Returns up to k paths to the answer with the largest contributions, largest first.

    An edge's contribution is its message times the gradient of the score; a path's is the mean over
    its edges, as each of them carries the whole path. A beam search finds the best paths hop by hop
    among each hop's best edges. `hops` are the `contributions`, if known.
    """
    start = Partial(entities=frozenset([score.source]))
    best: dict[int, list[Partial]] = {score.source: [start]}
    for worth_M in contributions(score) if hops is None else hops:
        slots = worth_M.abs().topk(min(EDGES, len(worth_M))).indices
        slots = slots[worth_M[slots] != 0]
        best = _extend(score.edges, best, slots, worth_M[slots].tolist())
    found: dict[tuple[int, ...], float] = {}
    for path in best.get(score.target, []):
        if path.slots:  # an entity is its own answer without any
            # a path may appear at several hops
            found.setdefault(path.slots, path.worth / len(path.slots))
    return [connection(score.edges, slots, worth) for slots, worth in islice(found.items(), k)]


def contributions(score: BridgeScore) -> list[Tensor]:
    """Returns what each slot's edge contributes to the score, per hop that reaches the answer."""
    run = score.whole
    if not run.score.requires_grad:
        return []
    arrived = [trace.arrived_AD for trace in run.traces]
    grads = torch.autograd.grad(run.score, arrived, allow_unused=True, retain_graph=True)
    return [
        _whole(score.edges, run, _contributions(run.edges, run, trace, grad_AD))
        for trace, grad_AD in zip(run.traces, grads, strict=True)
        if grad_AD is not None
    ]


def _whole(edges: Edges, run: Run, worth_N: Tensor) -> Tensor:
    """Returns contributions at the slots of the whole graph."""
    if run.slots_N is None:
        return worth_N
    return worth_N.new_zeros(len(edges.relations_M)).index_put_((run.slots_N,), worth_N)


@torch.no_grad()
def _contributions(edges: Edges, run: Run, trace: Trace, grad_AD: Tensor) -> Tensor:
    """Returns what each slot's edge contributes to the score in this hop."""
    row_E = run.reached.row_BE[0]
    from_M, to_M = row_E[edges.neighbours_M.long()], row_E[edges.owners_M.long()]
    live_M = run.keep_M & (from_M >= 0) & (to_M >= 0)
    live_M &= (from_M < len(trace.x_AD)) & (to_M < len(grad_AD))
    slots_K = live_M.nonzero().squeeze(1)
    messages_KD = trace.x_AD[from_M[slots_K].long()]
    messages_KD = messages_KD * trace.weights_BRD[0, edges.relations_M[slots_K].long()]
    worth_M = torch.zeros(len(live_M), device=live_M.device)
    worth_M[slots_K] = (messages_KD * grad_AD[to_M[slots_K].long()]).sum(1)
    return worth_M


def _extend(
    edges: Edges, best: dict[int, list[Partial]], slots_N: Tensor, worths: list[float]
) -> dict[int, list[Partial]]:
    """Returns the best paths to each entity after one more hop; a path may also stop earlier."""
    longer = {entity: list(paths) for entity, paths in best.items()}
    sources, targets = edges.neighbours_M[slots_N].tolist(), edges.owners_M[slots_N].tolist()
    for slot, source, target, worth in zip(
        slots_N.tolist(), sources, targets, worths, strict=True
    ):  # fmt: skip
        for path in best.get(source, ()):
            if target not in path.entities:
                size, slots = path.size + abs(worth), (*path.slots, slot)
                extended = Partial(size, path.worth + worth, slots, path.entities | {target})
                longer.setdefault(target, []).append(extended)
    return {
        entity: nlargest(BEAM, paths, key=lambda path: path.mean)
        for entity, paths in longer.items()
    }


def connection(edges: Edges, slots: tuple[int, ...], worth: float) -> Connection:
    """Returns a path by its slots, from the query's entity on."""
    steps, kinds = [], []
    for slot in slots:
        source, target = int(edges.neighbours_M[slot]), int(edges.owners_M[slot])
        kind = int(edges.relations_M[slot])
        kinds.append(kind)
        forward = kind < edges.n_relations
        steps.append(
            (source, kind, target) if forward else (target, kind - edges.n_relations, source)
        )
    triples = tuple(int(edges.triples_M[slot]) for slot in slots)
    return Connection(tuple(steps), tuple(kinds), triples, worth)
