"""States carried one hop further along all edges at once, in both directions.

A question has a state of a few numbers at every entity it has reached; each edge multiplies what it
carries by its relation's weights, and an entity adds up what arrives. So L hops sum over all paths
of up to L edges, without naming one. Only what is reached takes room: rows of (question, entity),
those of the first hops first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pathe.graph import Graph, Tensors, expand, merge, owners
from pathe.twins import ONE_AT_A_TIME, twin


@dataclass(frozen=True)
class Chunks(Tensors):
    """Slots by relation, in chunks of a size at most; relation r has chunks offsets_R1[r:r + 2]."""

    size: int
    order_M: Tensor  # int32
    starts_C1: Tensor  # int64, in the order
    offsets_R1: Tensor


@dataclass(frozen=True)
class Edges(Tensors):
    """Every triple as two edges that arrive: by its relation r at the tail, by r + R at the head.

    Entity e owns slots offsets_E1[e] to offsets_E1[e + 1]. Of a sample each edge counts for
    `each` of the whole.
    """

    n_relations: int
    offsets_E1: Tensor
    owners_M: Tensor  # int32: where a slot's edge arrives
    neighbours_M: Tensor  # int32: where it comes from
    relations_M: Tensor  # int32, below 2 R
    triples_M: Tensor  # int64: the row of the training triple behind each slot
    slots_N2: Tensor  # int64: the two slots of each training triple
    by_relation: Chunks
    each: float = 1.0

    def without(self, held_out: Tensor | None = None) -> Tensor:
        """keep_M: False for both slots of the training triples that are held out: mask or ids."""
        if held_out is not None and held_out.dtype == torch.bool:
            return ~held_out[self.triples_M]
        keep_M = torch.ones(len(self.relations_M), dtype=torch.bool, device=self.offsets_E1.device)
        if held_out is not None:
            keep_M[self.slots_N2[held_out].flatten()] = False
        return keep_M

    def sample(self, share: float, held_out: Tensor | None = None) -> Edges:
        """A random share of the triples, those held out not among them, both their edges.

        Its training triples have no numbers: nothing more can be held out of it.
        """
        keep_N = torch.rand(len(self.slots_N2), device=self.offsets_E1.device) < share
        keep_M = self.without(held_out) & keep_N[self.triples_M]
        before_M1 = F.pad(keep_M.cumsum(0), (1, 0))
        by_relation_M = self.by_relation.order_M.long()
        by_relation_M = before_M1[by_relation_M[keep_M[by_relation_M]]]
        slots_K = keep_M.nonzero().squeeze(1)
        relations_K = self.relations_M[slots_K]
        sizes_R = torch.bincount(relations_K, minlength=2 * self.n_relations)
        return Edges(
            self.n_relations,
            before_M1[self.offsets_E1],
            self.owners_M[slots_K],
            self.neighbours_M[slots_K],
            relations_K,
            self.triples_M[slots_K],
            self.slots_N2[:0],
            _chunks(by_relation_M, sizes_R, self.by_relation.size),
            self.each / share,
        )


def both_ways(graph: Graph) -> Edges:
    """The edges of a graph in both directions."""
    n = graph.n_relations
    arriving = merge(graph.incoming, graph.outgoing, n)
    relations_M, triples_M = arriving.relations_M, arriving.triples_M.long()
    return Edges(
        n,
        arriving.offsets_E1,
        owners(arriving.offsets_E1).int(),
        arriving.neighbours_M,
        relations_M,
        triples_M,
        triples_M.argsort(stable=True).view(-1, 2),
        _chunks(relations_M.argsort(stable=True), torch.bincount(relations_M, minlength=2 * n)),
    )


def _chunks(order_M: Tensor, sizes_R: Tensor, size: int = 128) -> Chunks:
    n_chunks_R = (sizes_R + size - 1) // size
    offsets_R1 = F.pad(n_chunks_R.cumsum(0), (1, 0))
    first_R = sizes_R.cumsum(0) - sizes_R
    owner_C = torch.repeat_interleave(n_chunks_R)
    within_C = torch.arange(len(owner_C), device=order_M.device) - offsets_R1[owner_C]
    starts_C = first_R[owner_C] + within_C * size
    starts_C1 = torch.cat([starts_C, starts_C.new_tensor([len(order_M)])])
    return Chunks(size, order_M.int(), starts_C1, offsets_R1)


@dataclass(frozen=True)
class Reach(Tensors):
    """The rows of (question, entity) that questions reach, those of earlier hops first.

    After hop l the first sizes[l] rows have been reached; row_BE is -1 for what never is. A row
    may be there without being reached: its state then is 0, and stays so.
    """

    row_BE: Tensor  # int32
    questions_A: Tensor  # int32
    entities_A: Tensor  # int32; -1 for a row of nothing
    sizes: tuple[int, ...]
    order_A: Tensor | None = None  # rows by question, each question's from starts_B1 on: for GPUs
    starts_B1: Tensor | None = None

    def padded(self, sizes: tuple[int, ...]) -> Reach:
        """The same with room for more after each hop: rows of later hops, then of nothing."""
        more = sizes[-1] - self.sizes[-1]
        return replace(
            self,
            questions_A=F.pad(self.questions_A, (0, more)),
            entities_A=F.pad(self.entities_A, (0, more), value=-1),
            sizes=sizes,
            order_A=None if self.order_A is None else F.pad(self.order_A, (0, more)),
        )


def reach(edges: Edges, sources_B: Tensor, n_hops: int, keep_M: Tensor) -> Reach:
    """What can be reached from each question's source in up to n_hops kept edges."""
    n, device = len(edges.offsets_E1) - 1, sources_B.device
    places_F = torch.arange(len(sources_B), device=device) * n + sources_B
    row_N = torch.full((len(sources_B) * n,), -1, dtype=torch.int32, device=device)
    found, sizes = [places_F], [len(places_F)]
    degrees_E = edges.offsets_E1.diff()
    row_N[places_F] = torch.arange(len(places_F), dtype=torch.int32, device=device)
    for _ in range(n_hops):
        entities_F = places_F % n
        degrees_F = degrees_E[entities_F]
        if int(degrees_F.sum()) > len(row_N) // 2:  # looking costs more than taking all
            new_N = row_N < 0
        else:
            new_N = _next_to(places_F, edges, keep_M, n, row_N) & (row_N < 0)
        places_F = new_N.nonzero().squeeze(1)
        sizes.append(sizes[-1] + len(places_F))
        row_N[places_F] = torch.arange(sizes[-2], sizes[-1], dtype=torch.int32, device=device)
        found.append(places_F)
    places_A = torch.cat(found)
    return _reach(row_N.view(-1, n), (places_A // n).int(), (places_A % n).int(), tuple(sizes))


def _reach(
    row_BE: Tensor, questions_A: Tensor, entities_A: Tensor, sizes: tuple[int, ...]
) -> Reach:
    if row_BE.device.type == "cpu":
        return Reach(row_BE, questions_A, entities_A, sizes)
    here_BE = row_BE >= 0
    starts_B1 = F.pad(here_BE.sum(1).cumsum(0), (1, 0))
    return Reach(row_BE, questions_A, entities_A, sizes, row_BE[here_BE], starts_B1)


def _next_to(places_F: Tensor, edges: Edges, keep_M: Tensor, n: int, like_N: Tensor) -> Tensor:
    """Which places (question * n + entity) kept edges lead to from some."""
    found_N = torch.zeros_like(like_N, dtype=torch.bool)
    compiled = twin("propagation", places_F.device.type)
    if places_F.device.type == "cuda" and compiled is not None:
        compiled.mark(places_F, edges, keep_M, n, found_N)
        return found_N
    entities_F = places_F % n
    starts_F = edges.offsets_E1[entities_F]
    rows_K, slots_K = expand(starts_F, edges.offsets_E1[entities_F + 1] - starts_F)
    kept_K = keep_M[slots_K]
    bases_K = (places_F - entities_F)[rows_K[kept_K]]
    found_N[bases_K + edges.neighbours_M[slots_K[kept_K]]] = True
    return found_N


def between(
    edges: Edges, sources_B: Tensor, targets_B: Tensor, n_hops: int, keep_M: Tensor
) -> Reach:
    """Of what is reached, the rows on paths of up to n_hops edges to each question's target.

    What arrives there after all hops is the same; the sources are always among the rows.
    """
    there, back = (reach(edges, ends_B, n_hops, keep_M) for ends_B in (sources_B, targets_B))
    left_BE = torch.full_like(there.row_BE, n_hops + 1, dtype=torch.int16)
    left_BE[back.questions_A.long(), back.entities_A.long()] = _hops(back)
    questions_A, entities_A, hops_A = there.questions_A, there.entities_A, _hops(there)
    near_A = hops_A + left_BE[questions_A.long(), entities_A.long()] <= n_hops
    rows_A = (near_A | (hops_A == 0)).nonzero().squeeze(1)
    questions_A, entities_A = questions_A[rows_A], entities_A[rows_A]
    numbers_A = torch.arange(len(rows_A), dtype=torch.int32, device=rows_A.device)
    row_BE = torch.full_like(there.row_BE, -1)
    row_BE[questions_A.long(), entities_A.long()] = numbers_A
    counts = torch.bincount(hops_A[rows_A].long(), minlength=n_hops + 1).cumsum(0)
    return _reach(row_BE, questions_A, entities_A, tuple(counts.tolist()))


def _hops(reached: Reach) -> Tensor:
    """After how many hops each row was reached."""
    counts = torch.tensor((0, *reached.sizes), device=reached.row_BE.device).diff()
    hops = torch.arange(len(counts), dtype=torch.int16, device=counts.device)
    return hops.repeat_interleave(counts)


def propagate(
    x_AD: Tensor, weights_BRD: Tensor, edges: Edges, keep_M: Tensor, reached: Reach, n_out: int
) -> Tensor:
    """The first n_out rows: each the sum over its entity's edges of state times weights.

    x_AD are the states of the first A rows; weights_BRD are each question's own, for all 2 R
    relations; slots where keep_M is False carry nothing.
    """
    if twin("propagation", x_AD.device.type) is None or x_AD.dtype != torch.float32:
        return propagate_plain(x_AD, weights_BRD, edges, keep_M, reached, n_out)
    parts = x_AD, weights_BRD, edges, keep_M, reached, n_out
    found: Tensor = _Propagate.apply(*parts)  # type: ignore[no-untyped-call]
    return found


def propagate_plain(
    x_AD: Tensor, weights_BRD: Tensor, edges: Edges, keep_M: Tensor, reached: Reach, n_out: int
) -> Tensor:
    """The same, written out: every edge of every row at once."""
    entities_O, questions_O = reached.entities_A[:n_out].long(), reached.questions_A[:n_out].long()
    degrees_O = edges.offsets_E1.diff()[entities_O] * (entities_O >= 0)
    rows_K, slots_K = expand(edges.offsets_E1[entities_O], degrees_O)
    questions_K = questions_O[rows_K]
    from_K = reached.row_BE[questions_K, edges.neighbours_M[slots_K].long()].long()
    live_K = keep_M[slots_K] & (from_K >= 0) & (from_K < len(x_AD))
    rows_K, slots_K, questions_K = rows_K[live_K], slots_K[live_K], questions_K[live_K]
    weights_KD = weights_BRD[questions_K, edges.relations_M[slots_K].long()]
    carried_KD = x_AD[from_K[live_K]] * weights_KD
    return x_AD.new_zeros(n_out, x_AD.shape[1]).index_add(0, rows_K, carried_KD)


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_AD: Tensor, weights_BRD: Tensor, edges: Edges, keep_M: Tensor,
        reached: Reach, n_out: int,
    ) -> Tensor:  # fmt: skip
        x_AD, weights_BRD = x_AD.contiguous(), weights_BRD.contiguous()
        ctx.save_for_backward(x_AD, weights_BRD, keep_M)
        ctx.rest = edges, reached
        with ONE_AT_A_TIME:
            kernel = _kernel(x_AD)
            found: Tensor = kernel.spread(x_AD, weights_BRD, edges, keep_M, reached, n_out)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_OD: Tensor) -> tuple[Tensor | None, ...]:
        x_AD, weights_BRD, keep_M = ctx.saved_tensors
        edges, reached = ctx.rest
        grad_OD, kernel = grad_OD.contiguous(), _kernel(grad_OD)
        grad_x = grad_weights = None
        with ONE_AT_A_TIME:
            if ctx.needs_input_grad[0]:  # back along each edge, by the weights it came with
                back_BRD = weights_BRD.roll(edges.n_relations, 1)
                grad_x = kernel.spread(grad_OD, back_BRD, edges, keep_M, reached, len(x_AD))
            if ctx.needs_input_grad[1]:
                grad_weights = kernel.spread_weights(x_AD, grad_OD, edges, keep_M, reached)
        return grad_x, grad_weights, None, None, None, None


def _kernel(tensor: Tensor) -> Any:
    return twin("propagation", tensor.device.type)
