"""Loop-free paths between two entities, and their patterns: the kinds of their edges in order.

A kind is a relation r that is followed forwards, or r + R for one that is followed backwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pathe.core.tensors import expand
from pathe.graph.edges import Edges

LONGEST = 3  # edges of the paths whose patterns are listed
MOST_EDGES = 1 << 20  # looked at per step
MOST_PATHS = 1 << 12  # of one pattern

Kinds = tuple[int, ...]


class Paths(NamedTuple):
    """Paths of equal length, a row each: their entities, and the slots of their edges.

    A slot leads from one entity of the path to the next. `complete` if none were left out.
    """

    entities_NK: Tensor
    slots_NL: Tensor
    complete: bool


@dataclass(frozen=True)
class Between:
    """Finds the loop-free paths from `source` to another entity, `target`, along kept edges."""

    edges: Edges
    keep_M: Tensor
    source: int
    target: int

    def patterns(self, worth_M: Tensor, longest: int = LONGEST) -> dict[Kinds, float]:
        """Returns the patterns of all paths of up to `longest` edges, each with a worth.

        It is the sum of its paths' worths; a path's is that of its weakest slot. Where a step would
        look at too many edges, entities with the most edges are left out.
        """
        found: dict[Kinds, float] = {}
        paths = self._start()
        for length in range(1, longest + 1):
            slots_NL = self._arrive(paths).slots_NL
            worth_NL = worth_M[slots_NL]
            worth_N = worth_NL.gather(1, worth_NL.abs().argmin(1, keepdim=True))[:, 0]
            codes_P, rows_N = self._codes(slots_NL).unique(return_inverse=True)
            worth_P = worth_M.new_zeros(len(codes_P)).index_add_(0, rows_N, worth_N)
            patterns = (self._kinds(code, length) for code in codes_P.tolist())
            found |= zip(patterns, worth_P.tolist(), strict=True)
            if length < longest:
                paths = self._extend(paths)
        return found

    def _codes(self, slots_NL: Tensor) -> Tensor:
        """Returns a number for the pattern of each path: sorting numbers is faster than rows.

        64 bits hold those of three edges and a million relations.
        """
        codes_N = slots_NL.new_zeros(len(slots_NL))
        for slots_N in slots_NL.unbind(1):
            codes_N = codes_N * (2 * self.edges.n_relations) + self.edges.relations_M[slots_N]
        return codes_N

    def _kinds(self, code: int, length: int) -> Kinds:
        """Returns the pattern of a number."""
        n = 2 * self.edges.n_relations
        return tuple(code // n**place % n for place in reversed(range(length)))

    def paths(self, kinds: Kinds, most: int = MOST_PATHS) -> Paths:
        """Returns the paths of a pattern; no more than `most` at any step."""
        paths = self._start()
        for kind, leads_E in zip(kinds[:-1], self._leads(kinds), strict=True):
            paths = self._extend(paths, kind, leads_E)
            complete = paths.complete and len(paths.slots_NL) <= most
            paths = Paths(paths.entities_NK[:most], paths.slots_NL[:most], complete)
        found = self._arrive(paths, kinds[-1])
        complete = found.complete and len(found.slots_NL) <= most
        return Paths(found.entities_NK[:most], found.slots_NL[:most], complete)

    def _start(self) -> Paths:
        device = self.keep_M.device
        no_slots = torch.empty((1, 0), dtype=torch.long, device=device)
        return Paths(torch.tensor([[self.source]], device=device), no_slots, True)

    def _extend(
        self, paths: Paths, kind: int | None = None, leads_E: Tensor | None = None
    ) -> Paths:
        """Returns the paths with one more edge, but not into the target."""
        edges, last_N = self.edges, paths.entities_NK[:, -1]
        starts_N, sizes_N = edges.offsets_E1[last_N], edges.offsets_E1.diff()[last_N]
        order_N = sizes_N.argsort(stable=True)
        fits_N = torch.empty_like(last_N, dtype=torch.bool)
        fits_N[order_N] = sizes_N[order_N].cumsum(0) <= MOST_EDGES
        rows_P, slots_P = expand(starts_N, sizes_N * fits_N)
        ends_P = edges.neighbours_M[slots_P].long()
        good_P = self.keep_M[slots_P] & (ends_P != self.target)
        good_P &= (paths.entities_NK[rows_P] != ends_P[:, None]).all(1)
        if leads_E is not None:
            good_P &= leads_E[ends_P]
        slots_P = edges.slots_N2[edges.triples_M[slots_P]].sum(1) - slots_P  # the other direction
        if kind is not None:
            good_P &= edges.relations_M[slots_P] == kind
        return _longer(paths, rows_P[good_P], slots_P[good_P], ends_P[good_P], bool(fits_N.all()))

    def _arrive(self, paths: Paths, kind: int | None = None) -> Paths:
        """Returns the paths with one more edge, into the target."""
        edges = self.edges
        first, end = edges.offsets_E1[self.target : self.target + 2].tolist()
        slots_A = torch.arange(first, end, device=self.keep_M.device)
        good_A = self.keep_M[slots_A] & (edges.neighbours_M[slots_A] != self.target)
        if kind is not None:
            good_A &= edges.relations_M[slots_A] == kind
        slots_A = slots_A[good_A]
        from_A, order_A = edges.neighbours_M[slots_A].long().sort(stable=True)
        last_N = paths.entities_NK[:, -1].contiguous()
        starts_N = torch.searchsorted(from_A, last_N)
        sizes_N = torch.searchsorted(from_A, last_N, right=True) - starts_N
        rows_P, at_P = expand(starts_N, sizes_N)
        slots_P = slots_A[order_A[at_P]]
        return _longer(paths, rows_P, slots_P, edges.owners_M[slots_P].long(), True)

    def _leads(self, kinds: Kinds) -> list[Tensor]:
        """Returns which entities lead to the target by the rest of a pattern, after each step."""
        edges, found = self.edges, list[Tensor]()
        leads_E = torch.zeros(edges.n_entities, dtype=torch.bool, device=self.keep_M.device)
        leads_E[self.target] = True
        for kind in kinds[:0:-1]:
            slots = (edges.relations_M == kind) & self.keep_M & leads_E[edges.owners_M.long()]
            leads_E = torch.zeros_like(leads_E)
            leads_E[edges.neighbours_M[slots].long()] = True
            found.insert(0, leads_E)
        return found


def _longer(paths: Paths, rows_P: Tensor, slots_P: Tensor, ends_P: Tensor, complete: bool) -> Paths:
    """Returns some of the paths, each with one more edge."""
    return Paths(
        torch.cat([paths.entities_NK[rows_P], ends_P[:, None]], 1),
        torch.cat([paths.slots_NL[rows_P], slots_P[:, None]], 1),
        paths.complete and complete,
    )
