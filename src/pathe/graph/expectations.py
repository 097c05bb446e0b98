"""Which relations an entity should have, judged by its other relations.

An entity has a kind k < R if relation k leaves it, and R + k if relation k arrives at it. Each
kind is predicted from the entity's other kinds by ridge regression. The closed form for all kinds
at once is that of EASE (Steck, 2019), a recommender for sets: entities are users, kinds are items.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pathe.core.tensors import Tensors, expand
from pathe.graph.adjacency import Graph, merge

PENALTY = 10.0  # of the regression, in entities
ROWS = 8192  # entities at once
MOST = 4096  # kinds to predict from; in graphs with more, those of the most entities


@dataclass(frozen=True)
class Expectations(Tensors):
    """How strongly an entity's other kinds of edges predict a kind: about 1 if it should have it.

    `counts` and `predicted` take kinds of queries: r for (e, r, ?) and r + R for (?, r, e).
    """

    n_kinds: int
    offsets_E1: Tensor
    kinds_P: Tensor  # of each entity, sorted
    counts_P: Tensor  # edges per entity and kind
    weights_KK: Tensor  # column k predicts kind k; the diagonal is zero

    def predicted(self, entities_B: Tensor, kinds_B: Tensor) -> Tensor:
        """Returns the prediction for each entity and kind."""
        starts_B, sizes_B = self._rows(entities_B)
        rows_N, places_N = expand(starts_B, sizes_B)
        each_N = self.weights_KK[self.kinds_P[places_N], kinds_B[rows_N]]
        return each_N.new_zeros(len(entities_B)).index_add_(0, rows_N, each_N)

    def all_predicted(self, kind: int) -> Tensor:
        """Returns the prediction for every entity and one kind."""
        owners_P = torch.repeat_interleave(self.offsets_E1.diff())
        zeros_E = self.weights_KK.new_zeros(len(self.offsets_E1) - 1)
        return zeros_E.index_add_(0, owners_P, self.weights_KK[self.kinds_P, kind])

    def counts(self, entities_B: Tensor, kinds_B: Tensor) -> Tensor:
        """Returns how many edges of a kind each entity has."""
        rows_N, places_N = expand(*self._rows(entities_B))
        own_N = self.kinds_P[places_N] == kinds_B[rows_N]
        zeros_B = torch.zeros(len(entities_B), dtype=torch.long, device=entities_B.device)
        return zeros_B.index_add_(0, rows_N[own_N], self.counts_P[places_N[own_N]].long())

    def _rows(self, entities_B: Tensor) -> tuple[Tensor, Tensor]:
        starts_B = self.offsets_E1[entities_B]
        return starts_B, self.offsets_E1[entities_B + 1] - starts_B


def expectations(graph: Graph) -> Expectations:
    """Fits the predictions on all entities that have edges."""
    n_kinds, n_entities = 2 * graph.n_relations, graph.n_entities
    both = merge(graph.outgoing, graph.incoming, graph.n_relations)
    owners_M = torch.repeat_interleave(both.offsets_E1.diff())
    codes_P, counts_P = (owners_M * n_kinds + both.relations_M.long()).unique(return_counts=True)
    owners_P, kinds_P = codes_P // n_kinds, codes_P % n_kinds
    offsets_E1 = torch.searchsorted(owners_P, torch.arange(n_entities + 1, device=graph.device))
    weights_KK = _weights(owners_P, kinds_P, n_entities, n_kinds)
    return Expectations(n_kinds, offsets_E1, kinds_P, counts_P, weights_KK)


def _weights(owners_P: Tensor, kinds_P: Tensor, n_entities: int, n_kinds: int) -> Tensor:
    """Returns the ridge weights of all kinds: -P / diag(P) with P = (X'X + penalty)^-1."""
    sizes_K = torch.bincount(kinds_P, minlength=n_kinds)
    used = sizes_K.argsort(descending=True, stable=True)[:MOST].sort().values
    column_K = torch.full((n_kinds,), -1, device=kinds_P.device)
    column_K[used] = torch.arange(len(used), device=kinds_P.device)
    kept_P = column_K[kinds_P] >= 0
    owners_N, columns_N = owners_P[kept_P], column_K[kinds_P[kept_P]]
    gram_UU = torch.zeros(len(used), len(used), dtype=torch.double, device=kinds_P.device)
    for first in range(0, n_entities, ROWS):
        low, high = torch.searchsorted(
            owners_N, owners_N.new_tensor([first, first + ROWS])
        ).tolist()
        x_FU = torch.zeros(min(ROWS, n_entities - first), len(used), device=kinds_P.device)
        x_FU[owners_N[low:high] - first, columns_N[low:high]] = 1
        gram_UU += x_FU.t() @ x_FU
    gram_UU.diagonal().add_(PENALTY)
    inverse_UU = torch.linalg.inv(gram_UU)
    weights_UU = (-inverse_UU / inverse_UU.diagonal()).fill_diagonal_(0)
    weights_KK = torch.zeros(n_kinds, n_kinds, device=kinds_P.device)
    weights_KK[used[:, None], used] = weights_UU.float()
    return weights_KK
