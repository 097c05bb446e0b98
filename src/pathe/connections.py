"""The paths between a question's entity and an answer that a bridge relies on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from pathe.answers import Part
from pathe.bridge import Trace
from pathe.encoding import Describer
from pathe.model import PathE
from pathe.propagation import Reach

Ids = tuple[int, int, int]
EDGES = 512  # of each hop that are looked at
BEAM = 16  # paths kept at each entity
SHOWN = 10  # connections of a triple that are looked at
Partial = tuple[float, float, tuple[int, ...]]  # how much its edges matter, their worth, slots


@dataclass(frozen=True)
class Connection:
    """A path from a question's entity to an answer.

    `kinds` are its relations on the way, r or r + R against the arrow; `worth` is what its edges
    bring to the score, to first order.
    """

    steps: tuple[Ids, ...]  # triples of the graph, from the question's entity on
    kinds: tuple[int, ...]
    triples: tuple[int, ...]  # their rows among the training triples
    worth: float


class Connected:
    """A triple as an answer for a `part`, and what bridges say of it."""

    def __init__(
        self,
        model: PathE,
        describe: Describer,
        triple_3: Tensor,
        part: Part,
        held_out_ids: Tensor | None = None,
    ) -> None:
        assert model.bridge is not None
        assert describe.edges is not None
        self.bridge, self.edges, self.held_out_ids = model.bridge, describe.edges, held_out_ids
        h, r, t = triple_3.tolist()
        self.source, self.target = (t, h) if part == "head" else (h, t)
        self.column = r if part == "relation" else 0
        self.kind = {"tail": r, "head": r + model.n_relations, "relation": 2 * model.n_relations}[
            part
        ]
        self.of_relation = part == "relation"

    def score(self, left_out: Iterable[Connection] = ()) -> float:
        """What bridges add, without the edges of some connections."""
        gone = sorted({row for path in left_out for row in path.triples})
        with torch.no_grad():
            return float(self._run(gone)[2])

    def _run(self, gone: list[int]) -> tuple[Reach, list[Trace], Tensor]:
        device = self.edges.offsets_E1.device
        gone_ids = torch.tensor(gone, dtype=torch.long, device=device)
        if self.held_out_ids is not None:
            gone_ids = torch.cat([gone_ids, self.held_out_ids])
        self.keep_M = self.edges.without(gone_ids)
        ends = self.source, self.kind, self.target
        source_1, kind_1, target_1 = (torch.tensor([i], device=device) for i in ends)
        traces: list[Trace] = []
        asked = source_1, kind_1, target_1
        reached, x_AD = self.bridge.states(self.edges, self.keep_M, *asked, traces=traces)
        row = int(reached.row_BE[0, self.target])
        head = self.bridge.relation_head if self.of_relation else self.bridge.link_head
        assert head is not None
        if row < 0:
            return reached, traces, torch.zeros((), device=device)
        scores_1S = head(x_AD[row : row + 1], self.bridge.asked(kind_1), torch.zeros_like(kind_1))
        return reached, traces, scores_1S[0, self.column]

    def paths(self, k: int) -> list[Connection]:
        """Up to k paths to the answer whose edges carry most of the score, most first.

        An edge is worth what the score would lose or win with it, to first order; a path is worth
        the sum of its edges. The best are searched for hop by hop, among each hop's best edges.
        """
        with torch.enable_grad():
            reached, traces, score = self._run([])
            if not score.requires_grad:
                return []
            arrived = [trace.arrived_AD for trace in traces]
            grads = torch.autograd.grad(score, arrived, allow_unused=True)
        best: dict[int, list[Partial]] = {self.source: [(0.0, 0.0, ())]}
        for trace, grad_AD in zip(traces, grads, strict=True):
            if grad_AD is None:
                continue
            worth_M = self._worths(reached, trace, grad_AD)
            slots = worth_M.abs().topk(min(EDGES, len(worth_M))).indices
            slots = slots[worth_M[slots] != 0]
            best = self._extend(best, slots.tolist(), worth_M[slots].tolist())
        found: dict[tuple[int, ...], float] = {}
        for _, worth, path in best.get(self.target, []):
            found.setdefault(path, worth)  # taken at other hops, it is the same path
        return [self._connection(path, worth) for path, worth in islice(found.items(), k)]

    @torch.no_grad()
    def _worths(self, reached: Reach, trace: Trace, grad_AD: Tensor) -> Tensor:
        """What each slot's edge carried of the score in this hop."""
        edges, row_E = self.edges, reached.row_BE[0]
        from_M, to_M = row_E[edges.neighbours_M.long()], row_E[edges.owners_M.long()]
        live_M = self.keep_M & (from_M >= 0) & (to_M >= 0)
        live_M &= (from_M < len(trace.x_AD)) & (to_M < len(grad_AD))
        slots_K = live_M.nonzero().squeeze(1)
        carried_KD = trace.x_AD[from_M[slots_K].long()]
        carried_KD = carried_KD * trace.weights_BRD[0, edges.relations_M[slots_K].long()]
        worth_M = torch.zeros(len(live_M), device=live_M.device)
        worth_M[slots_K] = (carried_KD * grad_AD[to_M[slots_K].long()]).sum(1)
        return worth_M

    def _extend(
        self, best: dict[int, list[Partial]], slots: list[int], worths: list[float]
    ) -> dict[int, list[Partial]]:
        """The best paths to each entity after one more hop; a path may also wait."""
        longer = {entity: list(paths) for entity, paths in best.items()}
        for slot, worth in zip(slots, worths, strict=True):
            source, target = int(self.edges.neighbours_M[slot]), int(self.edges.owners_M[slot])
            for size, before, path in best.get(source, ()):
                been = {self.source, *(int(self.edges.owners_M[s]) for s in path)}
                if target not in been:
                    taken = (size + abs(worth), before + worth, (*path, slot))
                    longer.setdefault(target, []).append(taken)
        return {
            entity: sorted(paths, key=lambda p: -p[0])[:BEAM] for entity, paths in longer.items()
        }

    def _connection(self, slots: tuple[int, ...], worth: float) -> Connection:
        edges, steps, kinds = self.edges, [], []
        for slot in slots:
            source, target = int(edges.neighbours_M[slot]), int(edges.owners_M[slot])
            kind = int(edges.relations_M[slot])
            kinds.append(kind)
            forward = kind < edges.n_relations
            steps.append(
                (source, kind, target) if forward else (target, kind - edges.n_relations, source)
            )
        return Connection(tuple(steps), tuple(kinds), self._rows(slots), worth)

    def _rows(self, slots: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(int(self.edges.triples_M[slot]) for slot in slots)


def effects(
    model: PathE, describe: Describer, triple_3: Tensor, part: Part
) -> tuple[float, list[tuple[Connection, float]]]:
    """What bridges add to a triple's score, and what it loses without each of some connections."""
    if model.bridge is None:
        return 0.0, []
    connected = Connected(model, describe, triple_3, part)
    whole = connected.score()
    found = [(path, whole - connected.score([path])) for path in connected.paths(SHOWN)]
    return whole, sorted(found, key=lambda pair: -abs(pair[1]))


def joint_effect(
    model: PathE, describe: Describer, triple_3: Tensor, part: Part,
    wanted: Callable[[Connection], bool],
) -> float:  # fmt: skip
    """What a triple's score loses without those of its connections that are wanted, together."""
    if model.bridge is None:
        return 0.0
    connected = Connected(model, describe, triple_3, part)
    left_out = [path for path in connected.paths(SHOWN) if wanted(path)]
    return connected.score() - connected.score(left_out) if left_out else 0.0
