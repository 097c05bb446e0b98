"""Relation vectors from a relation graph instead of a table, so that they exist for any graph."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pathe.graph.relation_graph import N_MEETINGS
from pathe.model.bridge import QueryVectors

CACHE = 256 << 20  # bytes of vectors that are cached per graph
GROUP = 32  # kinds that are computed together in a dense relation graph


class RelationLayer(nn.Module):
    """One round of message passing between kinds, along all meetings."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.meetings = nn.Parameter(torch.randn(N_MEETINGS, dim).div_(N_MEETINGS**0.5))
        self.linear, self.norm = nn.Linear(2 * dim, dim), nn.LayerNorm(dim)

    def forward(self, x_QKD: Tensor, graph: Tensor) -> Tensor:
        arrived_QKD = self._messages(x_QKD, graph)
        update: Tensor = self.norm(self.linear(torch.cat([x_QKD, arrived_QKD], -1)))
        return x_QKD + F.relu(update)

    def _messages(self, x_QKD: Tensor, graph: Tensor) -> Tensor:
        """Returns the sum over meetings t of meetings[t] * (A_t @ x)."""
        q, k, d = x_QKD.shape
        if graph.is_sparse and (torch.is_grad_enabled() or graph.is_cuda):
            x_KN = x_QKD.transpose(0, 1).reshape(k, q * d)
            found = torch.sparse.mm(graph, x_KN).view(N_MEETINGS, k, q, d)
            return torch.einsum("tkqd,td->qkd", found, self.meetings)
        if graph.is_sparse:  # query by query: all T products of all queries would take much memory
            each = (_product(graph, x_KD).view(N_MEETINGS, k, d) for x_KD in x_QKD)
            return torch.stack([(x_TKD * self.meetings[:, None]).sum(0) for x_TKD in each])
        # one K x K matrix per dimension: T times fewer operations than one per meeting
        mixed_DKK = (self.meetings.t() @ graph.view(N_MEETINGS, k * k)).view(d, k, k)
        return torch.bmm(mixed_DKK, x_QKD.permute(2, 1, 0)).permute(2, 1, 0)


def _product(graph: Tensor, x_KD: Tensor) -> Tensor:
    """Computes `graph @ x` on a CPU without gradients, some five times faster than torch.sparse.

    The entries of the graph are sorted by row.
    """
    rows_N, columns_N = graph.indices()
    sizes = torch.bincount(rows_N, minlength=len(graph))
    starts = sizes.cumsum(0) - sizes
    return F.embedding_bag(columns_N, x_KD, starts, mode="sum", per_sample_weights=graph.values())


class RelationEncoder(nn.Module):
    """Encodes all kinds of edges as seen from a query's kind.

    Only the query's kind starts with a vector, the same for every query. Message passing over the
    relation graph then gives every kind a vector that says how it relates to the query's. With a
    table of `n_kinds`, each kind also starts with a vector of its own: for one set of relations.
    """

    def __init__(self, dim: int, n_layers: int, n_kinds: int = 0) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(dim))
        self.table = nn.Parameter(torch.zeros(n_kinds, dim)) if n_kinds else None
        self.layers = nn.ModuleList(RelationLayer(dim) for _ in range(n_layers))

    def forward(self, graph: Tensor, kinds_Q: Tensor) -> Tensor:
        """Returns (Q, K, D) vectors of all kinds, for each kind of query."""
        is_asked_QK = F.one_hot(kinds_Q, graph.shape[1]).to(self.start.dtype)
        x_QKD = is_asked_QK[:, :, None] * self.start
        if self.table is not None:
            x_QKD = x_QKD + self.table
        for layer in self.layers:
            x_QKD = layer(x_QKD, graph)
        return x_QKD


class KindVectors:
    """The relation vectors of one graph; computed when first needed, then cached.

    Kinds are computed in fixed groups. Sums are rounded by how many are computed together, so
    vectors would otherwise depend on which kinds were asked for before.
    """

    def __init__(self, encoder: RelationEncoder, meetings: Tensor) -> None:
        self.encoder, self.meetings = encoder, meetings
        self._cached: dict[int, Tensor] = {}  # replaced, never changed: threads can share it

    @property
    def most(self) -> int:
        """How many kinds' vectors are cached."""
        return max(CACHE // (4 * self.meetings.shape[1] * len(self.encoder.start)), 1)

    @torch.no_grad()
    def __call__(self, kinds_B: Tensor) -> QueryVectors:
        """Returns the vectors for queries of these kinds."""
        kinds_Q, rows_B = kinds_B.unique(return_inverse=True)
        kinds = kinds_Q.tolist()
        cached = dict(self._cached)
        n_kinds, size = self.meetings.shape[1], 1 if self.meetings.is_sparse else GROUP
        missing = {kind // size for kind in kinds if kind not in cached}
        for group in sorted(missing):
            some = range(group * size, min((group + 1) * size, n_kinds))
            vectors_FKD = self.encoder(self.meetings, kinds_Q.new_tensor(some))
            each = (vectors_KD.clone() for vectors_KD in vectors_FKD)  # so that each can be freed
            cached |= dict(zip(some, each, strict=True))
        shape = len(kinds), self.meetings.shape[1], len(self.encoder.start)
        vectors_QKD = self.encoder.start.new_empty(shape)
        for row, kind in enumerate(kinds):
            vectors_QKD[row] = cached[kind]
        if missing:
            self._cached = dict(list(cached.items())[-self.most :])  # without the oldest
        return QueryVectors(kinds_Q, vectors_QKD, rows_B)
