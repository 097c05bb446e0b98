"""The queries of a training step that use bridges, and the rows that they reach.

The number of rows needs a GPU synchronisation, so it is computed before the step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pathe.core.tensors import Tensors
from pathe.graph.edges import Edges
from pathe.model.bridge import Bridge
from pathe.model.propagation import Reach

SPARE = 1.25  # capacity for reached rows, relative to the most seen so far


@dataclass(frozen=True)
class BridgeQueries(Tensors):
    """K of a step's N queries, and the rows that they reach."""

    n: int
    rows_K: Tensor  # indices of the K among the N queries
    sources_K: Tensor
    others_K: Tensor  # kinds of relations for link queries, tails for relation queries
    reached: Reach

    def scatter(self, found_K: Tensor) -> Tensor:
        """Returns rows for all N queries, zero for those without bridges."""
        zeros_N = found_K.new_zeros(self.n, found_K.shape[1])
        return zeros_N.index_put((self.rows_K,), found_K)

    def padded(self, sizes: tuple[int, ...]) -> BridgeQueries:
        return replace(self, reached=self.reached.padded(sizes))


def link_queries(
    bridge: Bridge, edges: Edges, keep_M: Tensor, triples_B3: Tensor, share: float
) -> BridgeQueries:
    """Returns a random share of all link queries: (head, r) for tails, (tail, r + R) for heads."""
    heads_B, relations_B, tails_B = triples_B3.unbind(1)
    sources_N = torch.cat([heads_B, tails_B])
    kinds_N = torch.cat([relations_B, relations_B + edges.n_relations])
    rows_K = random_share(len(sources_N), share, sources_N.device)
    sources_K = sources_N[rows_K]
    reached = bridge.reach(edges, keep_M, sources_K)
    return BridgeQueries(len(sources_N), rows_K, sources_K, kinds_N[rows_K], reached)


def pair_queries(
    bridge: Bridge, edges: Edges, keep_M: Tensor, triples_B3: Tensor, share: float
) -> BridgeQueries:
    """Returns a random share of all relation queries (head, tail)."""
    rows_K = random_share(len(triples_B3), share, triples_B3.device)
    heads_K, _, tails_K = triples_B3[rows_K].unbind(1)
    reached = bridge.reach(edges, keep_M, heads_K, tails_K)
    return BridgeQueries(len(triples_B3), rows_K, heads_K, tails_K, reached)


def random_share(n: int, share: float, device: torch.device) -> Tensor:
    """Returns a random share of n rows, sorted; a fixed number, at least one."""
    chosen = torch.rand(n, device=device).argsort()[: max(round(n * share), 1)]
    return chosen.sort().values


@dataclass
class Capacity:
    """Rows per hop that a CUDA graph has memory for; hop 0, the sources, is exact."""

    limit: int
    seen: tuple[int, ...] = ()  # most rows per hop so far
    sizes: tuple[int, ...] = ()

    def fits(self, sizes: tuple[int, ...]) -> bool:
        return bool(self.sizes) and all(n <= m for n, m in zip(sizes, self.sizes, strict=True))

    def grow(self, sizes: tuple[int, ...]) -> None:
        """Increases the capacity to fit these sizes, with a margin."""
        self.seen = tuple(map(max, sizes, self.seen or sizes))
        later = (min(int(n * SPARE), self.limit) for n in self.seen[1:])
        self.sizes = (sizes[0], *later)
