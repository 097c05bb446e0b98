"""Recomputes one triple's score with paths or edges left out, for explanations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from pathe.core.types import Part, Side
from pathe.graph.edges import Edges
from pathe.graph.held_out import HeldOut
from pathe.graph.paths import path_steps
from pathe.model.bridge import Bridge, Conditions, RelationVectors, Trace
from pathe.model.featurizer import Featurizer
from pathe.model.frontier import (
    Chosen,
    Frontier,
    completed,
    frontier_between,
    select_reachable,
    subgraph_of,
)
from pathe.model.pathe import EntityBatch, PathE
from pathe.model.propagation import Kept, Reach, between

Ids = tuple[int, int, int]
ENDS: tuple[Side, Side] = ("head", "tail")


@dataclass(frozen=True)
class DrawnPath:
    """A distinct path of the head or the tail, and its indices among the sampled paths."""

    of: Side
    steps: tuple[Ids, ...]
    numbers: tuple[int, ...]


class PathScore:
    """One triple's score from the vectors of head and tail; `part` is the one that is predicted.

    Equal paths are left out together. An entity without any paths left is represented by its
    context alone, like one without edges.
    """

    def __init__(
        self, model: PathE, featurizer: Featurizer, triple_3: Tensor, part: Part, seed: int
    ) -> None:
        ends_2 = triple_3[[0, 2]]
        drawn = featurizer.paths(ends_2, seed)
        self.model, self.part, self.relation_1 = model, part, triple_3[1:2]
        with torch.no_grad():
            self.x_2KD = model.read(featurizer.batch(ends_2, seed))
            self.bare_21D = _without_paths(model, featurizer, ends_2)
        self.paths: list[DrawnPath] = []
        for u, side in enumerate(ENDS):
            numbers: dict[tuple[Ids, ...], list[int]] = {}
            for k in range(drawn.tokens_UKT.shape[1]):
                numbers.setdefault(tuple(path_steps(drawn, u, k)), []).append(k)
            self.paths += [DrawnPath(side, steps, tuple(ks)) for steps, ks in numbers.items()]

    @torch.no_grad()
    def without(self, paths: Iterable[DrawnPath] = ()) -> float:
        """Returns the score without these paths."""
        paths, z = list(paths), []
        for u, side in enumerate(ENDS):
            left_out = {k for path in paths if path.of == side for k in path.numbers}
            kept = [k for k in range(self.x_2KD.shape[1]) if k not in left_out]
            x_1KD = self.x_2KD[u, kept][None] if kept else self.bare_21D[u][None]
            z.append(self.model.aggregator(x_1KD))
        if self.part == "relation":
            return float(self.model.relation_scores(*z)[0, self.relation_1])
        return float(self.model.link_scores(z[0], self.relation_1, z[1]))


def _without_paths(model: PathE, featurizer: Featurizer, entities_U: Tensor) -> Tensor:
    """Returns x of entities without paths: one path of a single token each."""
    entities_V, rows_U = entities_U.unique(return_inverse=True)
    first = torch.ones(1, dtype=torch.long, device=entities_U.device)
    tokens_U11 = rows_U.int().view(-1, 1, 1)
    return model.read(EntityBatch(featurizer.contexts(entities_V), tokens_U11, first, focus=0))


@dataclass(frozen=True)
class ContextScore:
    """One triple's score from the contexts of head and tail; there are no paths to leave out."""

    score: float
    paths: tuple[DrawnPath, ...] = ()

    def without(self, paths: Iterable[DrawnPath] = ()) -> float:
        return self.score


class Run(NamedTuple):
    """One run of the bridges: reached rows, a trace per hop, kept edges, score.

    With a frontier, `edges` are those between the rows, which are its entities; `slots` are their
    slots in the whole graph.
    """

    reached: Reach
    traces: list[Trace]
    keep_M: Tensor
    score: Tensor
    edges: Edges
    slots_N: Tensor | None = None


class BridgeScore:
    """What bridges add to one triple's score; `part` is the one that is predicted.

    With relation vectors that are computed from the graph, these stay as they are when edges are
    left out.
    """

    def __init__(
        self, bridge: Bridge, edges: Edges, triple_3: Tensor, part: Part,
        held_out: HeldOut | None = None, relations: RelationVectors | None = None,
        frontier: Frontier | None = None,
    ) -> None:  # fmt: skip
        self.frontier = frontier
        self.bridge, self.edges, self.relations = bridge, edges, relations
        self.held_out_ids = [] if held_out is None else held_out.ids().tolist()
        h, r, t = triple_3.tolist()
        self.backwards = part == "head"  # from the tail to the head
        self.source, self.target = (t, h) if self.backwards else (h, t)
        self.of_relation, n = part == "relation", edges.n_relations
        self.kind, self.column = (r + n if part == "head" else r), 0
        if self.of_relation and relations is None:  # one query for all relations
            self.kind, self.column = 2 * n, r
        self._scores: dict[tuple[frozenset[int], bool], float] = {}

    @property
    def hops(self) -> int:
        """The most edges of a path that counts."""
        return self.bridge.pair_hops if self.of_relation else len(self.bridge.rounds)

    @cached_property
    def kept_M(self) -> Tensor:
        """Which slots are in the graph: all but those of held-out triples."""
        device = self.edges.offsets_E1.device
        return self.edges.keep(
            HeldOut(torch.tensor(self.held_out_ids, dtype=torch.long, device=device))
        )

    @cached_property
    def whole(self) -> Run:
        """The run with nothing left out, with gradients; cached."""
        with torch.enable_grad():
            return self._run(self.kept_M)

    def without(self, triples: Iterable[int] = ()) -> float:
        """Returns the score without the edges of these training triples."""
        ids = frozenset(triples)
        if not ids:
            return float(self.whole.score.detach())
        return self._score(ids, alone=False)

    def only(self, triples: Iterable[int]) -> float:
        """Returns the score with the edges of these training triples alone."""
        return self._score(frozenset(triples), alone=True)

    def _score(self, ids: frozenset[int], *, alone: bool) -> float:
        """Returns the score without the edges of these triples, or with them alone; kept."""
        if (ids, alone) not in self._scores:
            ids_N = torch.tensor(sorted(ids), dtype=torch.long, device=self.kept_M.device)
            others_M = self.edges.keep(HeldOut(ids_N))
            with torch.no_grad():
                run = self._run((~others_M if alone else others_M) & self.kept_M)
            self._scores[ids, alone] = float(run.score)
        return self._scores[ids, alone]

    @cached_property
    def _given(self) -> Conditions:
        """The conditions of the query, without gradients; cached."""
        return self._conditions()

    def _conditions(self) -> Conditions:
        kind_1 = torch.tensor([self.kind], device=self.edges.offsets_E1.device)
        return self.bridge.condition(kind_1, self.relations)

    @cached_property
    def _kept(self) -> Chosen:
        """The rows that the frontier keeps, whatever is left out."""
        assert self.frontier is not None
        device = self.kept_M.device
        source_1, target_1 = (torch.tensor([i], device=device) for i in (self.source, self.target))
        parts = self.edges, self.kept_M, source_1
        if self.of_relation:
            rows = frontier_between(*parts, target_1, self.hops, self.frontier.most)
            order_A = rows.order_A.long()
            chosen = rows.queries_A.long()[order_A], rows.entities_A.long()[order_A]
            return *chosen, torch.zeros_like(order_A, dtype=torch.bool)
        return select_reachable(*parts, self.hops, self.frontier)

    def _run(self, keep_M: Tensor) -> Run:
        device, traces = keep_M.device, list[Trace]()
        source_1, target_1 = (torch.tensor([i], device=device) for i in (self.source, self.target))
        given = self._given if not torch.is_grad_enabled() else self._conditions()
        reached: Reach | Kept
        if self.frontier is None:
            reached = between(self.edges, source_1, target_1, self.hops, keep_M)
            rest = reached, traces, keep_M
            at: tuple[Edges, Tensor | None] = self.edges, None
        else:
            parts = self.edges, keep_M, source_1
            if self.of_relation:
                reached = subgraph_of(*parts, *self._kept[:2], self.hops)
            else:
                reached = completed(*parts, self._kept, self.hops)
            rest = reached.rows, traces, reached.keep_M
            at = reached.edges, reached.edges.triples_M
        _, x_AD = self.bridge.states(
            self.edges, keep_M, source_1, given, reached=reached, traces=traces
        )
        row = int(reached.at(target_1))
        if row < 0:
            return Run(*rest, torch.zeros((), device=device), *at)
        head = self.bridge.relation_head if self.of_relation else self.bridge.link_head
        assert head is not None
        scores_1S = head(x_AD[row : row + 1], given.asked_BD, torch.zeros_like(source_1))
        return Run(*rest, scores_1S[0, self.column], *at)


@dataclass(frozen=True)
class TripleScore:
    """A triple's whole score: from its entities' vectors or contexts, plus the bridges."""

    vectors: PathScore | ContextScore
    bridge: BridgeScore | None

    @property
    def paths(self) -> Sequence[DrawnPath]:
        """The paths of head and tail that their vectors were encoded from."""
        return self.vectors.paths

    @property
    def own_left_out(self) -> bool:
        """Whether the graph has the triple, and bridges don't use its edge."""
        return self.bridge is not None and bool(self.bridge.held_out_ids)

    @property
    def bridged(self) -> float:
        """What bridges add."""
        return self.bridge.without() if self.bridge else 0.0

    def without(self, paths: Iterable[DrawnPath] = (), triples: Iterable[int] = ()) -> float:
        """Returns the score without these paths, and without these triples' edges."""
        return self.vectors.without(paths) + (self.bridge.without(triples) if self.bridge else 0.0)
