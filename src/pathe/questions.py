"""The questions of a training step that have bridges, and what they reach.

On a GPU that has to be waited for, so it is found before the step, which then waits for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pathe.bridge import Bridge
from pathe.graph import Tensors
from pathe.propagation import Edges, Reach

SPARE = 1.25  # room for what is reached, times the most there was so far


@dataclass(frozen=True)
class Questions(Tensors):
    """K of N questions: an entity and what is asked, or the other entity; and what is reached."""

    n: int
    rows_K: Tensor  # which of the N
    sources_K: Tensor
    others_K: Tensor
    reached: Reach

    def spread(self, found_K: Tensor) -> Tensor:
        """Rows for all N questions; those without bridges have none: 0."""
        none_N = found_K.new_zeros(self.n, found_K.shape[1])
        return none_N.index_put((self.rows_K,), found_K)

    def padded(self, room: tuple[int, ...]) -> Questions:
        return replace(self, reached=self.reached.padded(room))


def link_questions(
    bridge: Bridge, edges: Edges, keep_M: Tensor, triples_B3: Tensor, share: float
) -> Questions:
    """Both sides' questions, tails' first: (head, r), then (tail, r + R); a share has bridges."""
    heads_B, relations_B, tails_B = triples_B3.unbind(1)
    sources_N = torch.cat([heads_B, tails_B])
    kinds_N = torch.cat([relations_B, relations_B + edges.n_relations])
    rows_K = some(len(sources_N), share, sources_N.device)
    sources_K = sources_N[rows_K]
    reached = bridge.reach(edges, keep_M, sources_K)
    return Questions(len(sources_N), rows_K, sources_K, kinds_N[rows_K], reached)


def pair_questions(
    bridge: Bridge, edges: Edges, keep_M: Tensor, triples_B3: Tensor, share: float
) -> Questions:
    """How the two entities of each triple are related."""
    rows_K = some(len(triples_B3), share, triples_B3.device)
    heads_K, _, tails_K = triples_B3[rows_K].unbind(1)
    reached = bridge.reach(edges, keep_M, heads_K, tails_K)
    return Questions(len(triples_B3), rows_K, heads_K, tails_K, reached)


def some(n: int, share: float, device: torch.device) -> Tensor:
    """A random share of n rows, at least one, always as many."""
    chosen = torch.rand(n, device=device).argsort()[: max(round(n * share), 1)]
    return chosen.sort().values


@dataclass
class Room:
    """Rows that a recorded step has room for after each hop; those of the sources are exact."""

    most: int  # there can be
    seen: tuple[int, ...] = ()  # the most of each so far
    sizes: tuple[int, ...] = ()

    def fits(self, sizes: tuple[int, ...]) -> bool:
        return bool(self.sizes) and all(n <= m for n, m in zip(sizes, self.sizes, strict=True))

    def grow(self, sizes: tuple[int, ...]) -> None:
        """Room for these sizes too, and for somewhat more."""
        self.seen = tuple(map(max, sizes, self.seen or sizes))
        spared = (min(int(n * SPARE), self.most) for n in self.seen[1:])
        self.sizes = (sizes[0], *spared)
