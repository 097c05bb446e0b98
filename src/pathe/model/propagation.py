"""Message passing from a query's entity along all edges, in both directions.

A query has a small state at every entity it has reached. Per hop, each edge multiplies its source's
state by its relation's weights, and its target sums these messages. So L hops sum over all paths of
up to L edges without listing them. Only reached entities take memory: states are rows of (query,
entity), sorted by the hop that first reached them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pathe.core.tensors import Tensors, expand
from pathe.graph.edges import Edges, chunks_of
from pathe.kernels.dispatch import compiled, kernel


@dataclass(frozen=True)
class Reach(Tensors):
    """The rows of (query, entity) that queries reach, those of earlier hops first.

    Hop l reaches the first sizes[l] rows; row_BE has the row of each entity, or -1. Rows may also
    include unreached entities, whose state stays zero.
    """

    row_BE: Tensor  # int32
    queries_A: Tensor  # int32
    entities_A: Tensor  # int32; -1 for a padding row
    sizes: tuple[int, ...]
    order_A: Tensor | None = None  # rows sorted by query, GPU only
    starts_B1: Tensor | None = None  # start of each query's rows in order_A

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries and of entities."""
        return self.row_BE.shape[0], self.row_BE.shape[1]

    def at(self, entities_B: Tensor) -> Tensor:
        """Returns the row of one entity per query, or -1."""
        return self.row_BE.gather(1, entities_B[:, None])[:, 0].long()

    def padded(self, sizes: tuple[int, ...]) -> Reach:
        """Returns the rows padded to larger `sizes`, the fixed shapes of a CUDA graph."""
        more = sizes[-1] - self.sizes[-1]
        return replace(
            self,
            queries_A=F.pad(self.queries_A, (0, more)),
            entities_A=F.pad(self.entities_A, (0, more), value=-1),
            sizes=sizes,
            order_A=None if self.order_A is None else F.pad(self.order_A, (0, more)),
        )

    def repeated(self, n: int) -> Reach:
        """Returns the rows of n queries in place of each, one after the other."""
        each_N = torch.arange(n, dtype=torch.int32, device=self.row_BE.device)
        row_BNE = torch.where(
            self.row_BE[:, None] >= 0, self.row_BE[:, None] * n + each_N[:, None], -1
        )
        queries_A = (self.queries_A[:, None] * n + each_N).flatten()
        entities_A = self.entities_A.repeat_interleave(n)
        sizes = tuple(size * n for size in self.sizes)
        return Reach(row_BNE.flatten(0, 1), queries_A, entities_A, sizes)


@dataclass(frozen=True)
class Unkept(Tensors):
    """Edges to rows from entities that a frontier doesn't keep, counted by row and relation.

    A sample of kept rows stands for these entities: each edge's message is that of the mean state
    over the sample's edges of the same relation, or over all of its edges where none of these has
    been reached. Relations are those of the joined graph, see `join_edges`.
    """

    n_queries: int
    relations_R: Tensor  # those that are used
    rows_U: Tensor  # ascending
    places_U: Tensor  # in relations_R
    counts_U: Tensor  # float32
    from_L: Tensor  # rows that stand for others, sorted by relation
    places_L: Tensor  # in relations_R

    def messages(self, x_AD: Tensor, weights_RD: Tensor, n_whole: int, n_rows: int) -> Tensor:
        """Returns the sums of messages at the first n_rows rows.

        Entities that aren't kept may not have been reached yet. From row `n_whole` on, messages are
        scaled by the share of sampled edges whose source has been reached.
        """
        live_L = self.from_L < len(x_AD)
        places_N = self.places_L[live_L]
        all_R, live_R = (self._counts(places) for places in (self.places_L, places_N))
        sums_RD = _sums_of(x_AD, self.from_L[live_L], live_R)
        queries_R = self.relations_R % self.n_queries
        order_R, counts_B = queries_R.argsort(stable=True), torch.bincount(queries_R)
        sums_BD = _sums_of(sums_RD, order_R, counts_B)
        all_B, live_B = (
            _sums_of(n_R[:, None].float(), order_R, counts_B)[:, 0] for n_R in (all_R, live_R)
        )
        lone_R = live_R == 0
        sums_RD = torch.where(lone_R[:, None], sums_BD[queries_R], sums_RD)
        mean_RD = sums_RD / torch.where(lone_R, live_B[queries_R], live_R).clamp(min=1)[:, None]
        share_R = torch.where(
            all_R > 0, live_R / all_R.clamp(min=1), (live_B / all_B.clamp(min=1))[queries_R]
        )
        messages_RD = mean_RD * weights_RD[self.relations_R]
        own_U = self.rows_U < n_rows
        rows_N, places_N, each_N = self.rows_U[own_U], self.places_U[own_U], self.counts_U[own_U]
        each_N = torch.where(rows_N < n_whole, each_N, each_N * share_R[places_N])
        return _sums_of(messages_RD, places_N, torch.bincount(rows_N, minlength=n_rows), each_N)

    def _counts(self, places_N: Tensor) -> Tensor:
        return torch.bincount(places_N, minlength=len(self.relations_R))


def _sums_of(
    values_ND: Tensor, places_M: Tensor, sizes_S: Tensor, weights_M: Tensor | None = None
) -> Tensor:
    """Returns (S, D) sums over consecutive groups of places of these sizes."""
    starts_S = sizes_S.cumsum(0) - sizes_S
    return F.embedding_bag(places_M, values_ND, starts_S, mode="sum", per_sample_weights=weights_M)


@dataclass(frozen=True)
class Kept(Tensors):
    """The rows of (query, entity) that a frontier keeps, in the order of `Reach`, and their edges.

    `edges` is one graph whose entities are the rows: see `model.frontier`.
    """

    shape: tuple[int, int]  # queries and entities
    queries_A: Tensor  # int32
    entities_A: Tensor  # int32
    sizes: tuple[int, ...]
    order_A: Tensor  # rows sorted by query and entity
    starts_B1: Tensor  # start of each query's rows in order_A
    edges: Edges
    unkept: Unkept | None = None

    @classmethod
    def of(
        cls, shape: tuple[int, int], queries_A: Tensor, entities_A: Tensor,
        sizes: tuple[int, ...], edges: Edges,
    ) -> Kept:  # fmt: skip
        """Returns the rows with their order by query."""
        order_A = (queries_A * shape[1] + entities_A).argsort()
        starts_B1 = F.pad(torch.bincount(queries_A, minlength=shape[0]).cumsum(0), (1, 0))
        return cls(shape, queries_A.int(), entities_A.int(), sizes, order_A.int(), starts_B1, edges)

    def at(self, entities_B: Tensor) -> Tensor:
        """Returns the row of one entity per query, or -1."""
        b, n = self.shape
        codes_A = (self.queries_A.long() * n + self.entities_A)[self.order_A.long()]
        codes_B = torch.arange(b, device=codes_A.device) * n + entities_B
        places_B = torch.searchsorted(codes_A, codes_B).clamp(max=len(codes_A) - 1)
        return torch.where(codes_A[places_B] == codes_B, self.order_A.long()[places_B], -1)

    def among(self, candidates_C: Tensor) -> Kept:
        """Returns the rows with the place of each entity among candidates, which are ascending.

        Other entities have -1: messages pass through them, but they are no answers.
        """
        entities_A, queries_A = self.entities_A.long(), self.queries_A.long()
        places_A = torch.searchsorted(candidates_C, entities_A).clamp(max=len(candidates_C) - 1)
        places_A = torch.where(candidates_C[places_A] == entities_A, places_A, -1)
        order_A = self.order_A[places_A[self.order_A.long()] >= 0]
        counts_B = torch.bincount(queries_A[order_A.long()], minlength=self.shape[0])
        return replace(
            self,
            shape=(self.shape[0], len(candidates_C)),
            entities_A=places_A.int(),
            order_A=order_A,
            starts_B1=F.pad(counts_B.cumsum(0), (1, 0)),
        )

    def repeated(self, n: int) -> Kept:
        """Returns the rows of n queries in place of each, one after the other."""
        (b, n_entities), edges, each_N = self.shape, self.edges, torch.arange(n)
        each_N = each_N.to(self.order_A.device)
        sizes_A = edges.offsets_E1.diff().repeat_interleave(n)
        rows_K, at_K = expand(edges.offsets_E1[:-1].repeat_interleave(n), sizes_A)
        queries_A = (self.queries_A[:, None].long() * n + each_N).flatten()
        entities_A = self.entities_A.repeat_interleave(n).long()
        union = join_edges(
            b * n, edges.n_relations // b, edges.relations_M[at_K].long() // b, queries_A, rows_K,
            edges.neighbours_M[at_K].long() * n + rows_K % n, edges.triples_M[at_K],
        )  # fmt: skip
        sizes = tuple(size * n for size in self.sizes)
        return Kept.of((b * n, n_entities), queries_A, entities_A, sizes, union)

    def with_unkept(self, arrived_OD: Tensor, x_AD: Tensor, weights_RD: Tensor, hop: int) -> Tensor:
        """Adds the messages of entities that aren't kept to those of one hop.

        If a row was reached at hop h, all of its neighbours are reached by hop h + 1, kept or not.
        So all their messages arrive from hop h + 2 on, and a share of them before.
        """
        if self.unkept is None or hop < 2:
            return arrived_OD
        sizes = self.sizes[hop - 2], len(arrived_OD)
        return arrived_OD + self.unkept.messages(x_AD, weights_RD, *sizes)

    @property
    def rows(self) -> Reach:
        """All rows as the entities of one query, for message passing along `edges`."""
        numbers_A = torch.arange(len(self.queries_A), dtype=torch.int32, device=self.order_A.device)
        return Reach(numbers_A[None], torch.zeros_like(numbers_A), numbers_A, self.sizes)

    @property
    def keep_M(self) -> Tensor:
        """All of the edges, as a mask."""
        return torch.ones_like(self.edges.relations_M, dtype=torch.bool)


def join_edges(
    n_queries: int, n_relations: int, kinds_K: Tensor, queries_A: Tensor, rows_K: Tensor,
    from_K: Tensor, slots_K: Tensor,
) -> Edges:  # fmt: skip
    """Returns edges between rows as one graph, whose entities are the rows of all queries.

    Each query has relations of its own, kind * n_queries + query, as its weights are its own. The
    ids of triples are the slots of the edges in the whole graph.
    """
    sizes_A = torch.bincount(rows_K, minlength=len(queries_A))
    relations_K = kinds_K * n_queries + queries_A[rows_K]
    counts_R = torch.bincount(relations_K, minlength=2 * n_relations * n_queries)
    return Edges(
        n_relations * n_queries,
        F.pad(sizes_A.cumsum(0), (1, 0)),
        rows_K.int(),
        from_K.int(),
        relations_K.int(),
        slots_K,
        slots_K.new_empty(0, 2),
        chunks_of(relations_K.argsort(stable=True), counts_R),
    )


def reach(edges: Edges, sources_B: Tensor, n_hops: int, keep_M: Tensor) -> Reach:
    """Finds the entities that each query's source reaches in up to n_hops kept edges."""
    n, device = edges.n_entities, sources_B.device
    places_F = torch.arange(len(sources_B), device=device) * n + sources_B
    row_N = torch.full((len(sources_B) * n,), -1, dtype=torch.int32, device=device)
    found, sizes = [places_F], [len(places_F)]
    degrees_E = edges.offsets_E1.diff()
    row_N[places_F] = torch.arange(len(places_F), dtype=torch.int32, device=device)
    for _ in range(n_hops):
        entities_F = places_F % n
        degrees_F = degrees_E[entities_F]
        if int(degrees_F.sum()) > len(row_N) // 2:  # listing all is cheaper
            new_N = row_N < 0
        else:
            new_N = _next_to(places_F, edges, keep_M, n, row_N) & (row_N < 0)
        places_F = new_N.nonzero().squeeze(1)
        sizes.append(sizes[-1] + len(places_F))
        row_N[places_F] = torch.arange(sizes[-2], sizes[-1], dtype=torch.int32, device=device)
        found.append(places_F)
    places_A = torch.cat(found)
    return _reach(row_N.view(-1, n), (places_A // n).int(), (places_A % n).int(), tuple(sizes))


def _reach(row_BE: Tensor, queries_A: Tensor, entities_A: Tensor, sizes: tuple[int, ...]) -> Reach:
    if row_BE.device.type == "cpu":
        return Reach(row_BE, queries_A, entities_A, sizes)
    reached_BE = row_BE >= 0
    starts_B1 = F.pad(reached_BE.sum(1).cumsum(0), (1, 0))
    return Reach(row_BE, queries_A, entities_A, sizes, row_BE[reached_BE], starts_B1)


def _next_to(places_F: Tensor, edges: Edges, keep_M: Tensor, n: int, like_N: Tensor) -> Tensor:
    """Returns a mask of the places (query * n + entity) one kept edge away from the given ones."""
    found_N = torch.zeros_like(like_N, dtype=torch.bool)
    if mark := kernel("propagation.mark", places_F.device.type):
        mark(places_F, edges, keep_M, n, found_N)
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
    """Finds only the rows on paths of up to n_hops edges from each source to its target.

    The target's final state is the same as with all rows. Sources are always included.
    """
    there, back = (reach(edges, ends_B, n_hops, keep_M) for ends_B in (sources_B, targets_B))
    left_BE = torch.full_like(there.row_BE, n_hops + 1, dtype=torch.int16)
    left_BE[back.queries_A.long(), back.entities_A.long()] = _hops(back)
    queries_A, entities_A, hops_A = there.queries_A, there.entities_A, _hops(there)
    near_A = hops_A + left_BE[queries_A.long(), entities_A.long()] <= n_hops
    rows_A = (near_A | (hops_A == 0)).nonzero().squeeze(1)
    queries_A, entities_A = queries_A[rows_A], entities_A[rows_A]
    numbers_A = torch.arange(len(rows_A), dtype=torch.int32, device=rows_A.device)
    row_BE = torch.full_like(there.row_BE, -1)
    row_BE[queries_A.long(), entities_A.long()] = numbers_A
    counts = torch.bincount(hops_A[rows_A].long(), minlength=n_hops + 1).cumsum(0)
    return _reach(row_BE, queries_A, entities_A, tuple(counts.tolist()))


def _hops(reached: Reach) -> Tensor:
    """Returns the hop that first reached each row."""
    counts = torch.tensor((0, *reached.sizes), device=reached.row_BE.device).diff()
    hops = torch.arange(len(counts), dtype=torch.int16, device=counts.device)
    return hops.repeat_interleave(counts)


def propagate(
    x_AD: Tensor, weights_BRD: Tensor, edges: Edges, keep_M: Tensor, reached: Reach, n_out: int,
    half: bool = False,
) -> Tensor:  # fmt: skip
    """Returns one hop's messages at the first n_out rows: sums over edges of state times weights.

    x_AD are the states of the first A rows, weights_BRD the weights per query and relation (R and
    their inverses). Slots where keep_M is False are left out. With `half`, a GPU reads states,
    weights and gradients rounded to bfloat16, and sums in float32: half the memory traffic.
    """
    device = x_AD.device.type
    if kernel("propagation.propagate", device) is None or x_AD.dtype != torch.float32:
        return propagate_plain(x_AD, weights_BRD, edges, keep_M, reached, n_out)
    dtype = torch.bfloat16 if half and device == "cuda" else torch.float32
    parts = x_AD, weights_BRD, edges, keep_M, reached, n_out, dtype
    found: Tensor = _Propagate.apply(*parts)  # type: ignore[no-untyped-call]
    return found


def propagate_plain(
    x_AD: Tensor, weights_BRD: Tensor, edges: Edges, keep_M: Tensor, reached: Reach, n_out: int
) -> Tensor:
    """Computes `propagate` in plain PyTorch, all edges of all rows at once."""
    entities_O, queries_O = reached.entities_A[:n_out].long(), reached.queries_A[:n_out].long()
    degrees_O = edges.offsets_E1.diff()[entities_O] * (entities_O >= 0)
    rows_K, slots_K = expand(edges.offsets_E1[entities_O], degrees_O)
    queries_K = queries_O[rows_K]
    from_K = reached.row_BE[queries_K, edges.neighbours_M[slots_K].long()].long()
    live_K = keep_M[slots_K] & (from_K >= 0) & (from_K < len(x_AD))
    rows_K, slots_K, queries_K = rows_K[live_K], slots_K[live_K], queries_K[live_K]
    weights_KD = weights_BRD[queries_K, edges.relations_M[slots_K].long()]
    messages_KD = x_AD[from_K[live_K]] * weights_KD
    return x_AD.new_zeros(n_out, x_AD.shape[1]).index_add(0, rows_K, messages_KD)


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_AD: Tensor, weights_BRD: Tensor, edges: Edges, keep_M: Tensor,
        reached: Reach, n_out: int, dtype: torch.dtype,
    ) -> Tensor:  # fmt: skip
        x_AD, weights_BRD = x_AD.to(dtype).contiguous(), weights_BRD.to(dtype).contiguous()
        ctx.save_for_backward(x_AD, weights_BRD, keep_M)
        ctx.rest = edges, reached
        run = compiled("propagation.propagate", x_AD.device.type)
        found: Tensor = run(x_AD, weights_BRD, edges, keep_M, reached, n_out)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_OD: Tensor) -> tuple[Tensor | None, ...]:
        x_AD, weights_BRD, keep_M = ctx.saved_tensors
        edges, reached = ctx.rest
        grad_OD, device = grad_OD.to(x_AD.dtype).contiguous(), grad_OD.device.type
        grad_x = grad_weights = None
        if ctx.needs_input_grad[0]:  # the same along inverse edges
            run = compiled("propagation.propagate", device)
            back_BRD = weights_BRD.roll(edges.n_relations, 1)
            grad_x = run(grad_OD, back_BRD, edges, keep_M, reached, len(x_AD))
        if ctx.needs_input_grad[1]:
            run = compiled("propagation.propagate_weights", device)
            grad_weights = run(x_AD, grad_OD, edges, keep_M, reached)
        return grad_x, grad_weights, None, None, None, None, None
