"""Scores entities by their relational context, read with the query's relation vectors.

Bridges can't tell apart the entities that no path reaches. A context, the kinds of edges at an
entity, says what the entity is: every entity gets a score, reached or not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pathe.core.tensors import Tensors, expand
from pathe.graph.relation_graph import Arrivals, rows_of
from pathe.kernels.dispatch import kernel
from pathe.model.scores import relu_dot

FLOAT = torch.float32
DENSE = 1 << 27  # most entries of a dense matrix of contexts, on a GPU
AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 28}  # numbers of candidates' vectors, without gradients


@dataclass(frozen=True)
class EntityContexts(Tensors):
    """The kinds of edges that arrive at each entity: log1p(count), divided by their sum.

    Stored as sparse rows, and on a GPU also as a dense matrix unless it is large.
    """

    n_kinds: int
    starts_E: Tensor
    entities_P: Tensor
    kinds_P: Tensor
    shares_P: Tensor
    sums_E: Tensor  # of log1p(count)
    degrees_E: Tensor  # log1p of the number of edges
    dense_EK: Tensor | None

    def part(self, first: int, last: int) -> EntityContexts:
        """Returns the contexts of the entities first to last - 1, numbered from 0."""
        start = int(self.starts_E[first]) if first < len(self.starts_E) else len(self.kinds_P)
        end = int(self.starts_E[last]) if last < len(self.starts_E) else len(self.kinds_P)
        return EntityContexts(
            self.n_kinds,
            self.starts_E[first:last] - start,
            self.entities_P[start:end] - first,
            self.kinds_P[start:end],
            self.shares_P[start:end],
            self.sums_E[first:last],
            self.degrees_E[first:last],
            None if self.dense_EK is None else self.dense_EK[first:last],
        )

    def all(self) -> EntityContexts:
        """Returns the contexts of all entities."""
        return self

    def only(self, entities_C: Tensor) -> EntityContexts:
        """Returns the contexts of some entities, numbered in their order."""
        starts_C, sizes_C = rows_of(self.starts_E, len(self.kinds_P), entities_C)
        rows_N, entries_N = expand(starts_C, sizes_C)
        return EntityContexts(
            self.n_kinds,
            sizes_C.cumsum(0) - sizes_C,
            rows_N,
            self.kinds_P[entries_N],
            self.shares_P[entries_N],
            self.sums_E[entities_C],
            self.degrees_E[entities_C],
            None if self.dense_EK is None else self.dense_EK[entities_C],
        )

    def read(self, x_KN: Tensor) -> Tensor:
        """Returns (E, N): the rows of x of an entity's kinds, weighted by their shares."""
        if self.dense_EK is not None:
            return self.dense_EK @ x_KN
        return F.embedding_bag(
            self.kinds_P, x_KN, self.starts_E, mode="sum", per_sample_weights=self.shares_P
        )

    def at(self, entities_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns (B, K) shares of all kinds at some entities; their sums and degrees."""
        if self.dense_EK is not None:
            return self.dense_EK[entities_B], self.sums_E[entities_B], self.degrees_E[entities_B]
        own = self.only(entities_B)
        shares_BK = own.shares_P.new_zeros(len(entities_B), self.n_kinds)
        shares_BK[own.entities_P, own.kinds_P] = own.shares_P
        return shares_BK, own.sums_E, own.degrees_E

    def counts(self, kinds_Q: Tensor) -> Tensor:
        """Returns (E, Q): log1p of the number of edges of these kinds at each entity."""
        if self.dense_EK is not None:
            return self.dense_EK.index_select(1, kinds_Q) * self.sums_E[:, None]
        found_EQ = self.sums_E.new_zeros(len(self.sums_E), len(kinds_Q))
        for column, kind in enumerate(kinds_Q.tolist()):
            own_N = (self.kinds_P == kind).nonzero().squeeze(1)
            found_EQ[self.entities_P[own_N], column] = self.shares_P[own_N]
        return found_EQ * self.sums_E[:, None]


@dataclass(frozen=True)
class HeldOutContexts(Tensors):
    """The contexts of a whole graph without a few edges, computed for the entities asked for."""

    index: Arrivals
    counts_P: Tensor  # edges of the whole graph, per entry
    entries_H: Tensor  # entries that lose edges, ascending
    lost_H: Tensor  # how many

    @property
    def n_kinds(self) -> int:
        return self.index.n_kinds

    def all(self) -> EntityContexts:
        """Returns the contexts of all entities."""
        return self.only(torch.arange(self.index.n_entities, device=self.counts_P.device))

    def only(self, entities_C: Tensor) -> EntityContexts:
        """Returns the contexts of some entities, numbered in their order."""
        starts_C, sizes_C = rows_of(self.index.starts_E, len(self.counts_P), entities_C)
        rows_N, entries_N = expand(starts_C, sizes_C)
        counts_N = self.counts_P[entries_N]
        if len(self.entries_H):
            places_N = torch.searchsorted(self.entries_H, entries_N)
            places_N = places_N.clamp(max=len(self.entries_H) - 1)
            same_N = self.entries_H[places_N] == entries_N
            counts_N = counts_N - self.lost_H[places_N] * same_N
        starts_C = sizes_C.cumsum(0) - sizes_C
        return _of_counts(self.n_kinds, starts_C, rows_N, self.index.kinds_P[entries_N], counts_N)

    def at(self, entities_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns (B, K) shares of all kinds at some entities; their sums and degrees."""
        numbers_B = torch.arange(len(entities_B), device=entities_B.device)
        return self.only(entities_B).at(numbers_B)


def entity_contexts(index: Arrivals, keep_M: Tensor) -> EntityContexts:
    """Returns the contexts of all entities, made of kept edges."""
    counts_P, n, k = index.counts(keep_M), index.n_entities, index.n_kinds
    found = _of_counts(k, index.starts_E, index.entities_P, index.kinds_P, counts_P)
    if counts_P.is_cuda and n * k <= DENSE:
        dense_EK = counts_P.new_zeros(n * k)
        dense_EK[index.entities_P * k + index.kinds_P] = found.shares_P
        found = replace(found, dense_EK=dense_EK.view(n, k))
    return found


def contexts_without(index: Arrivals, counts_P: Tensor, slots_H: Tensor) -> HeldOutContexts:
    """Returns the contexts without some slots; counts_P are the edges of the whole graph."""
    entries_H, lost_H = index.entry_M[slots_H].unique(return_counts=True)
    return HeldOutContexts(index, counts_P, entries_H, lost_H)


def _of_counts(
    n_kinds: int, starts_E: Tensor, entities_P: Tensor, kinds_P: Tensor, counts_P: Tensor
) -> EntityContexts:
    """Returns contexts as sparse rows, from the number of edges per entry."""
    zeros_E, logs_P = counts_P.new_zeros(len(starts_E)), counts_P.log1p()
    degrees_E = zeros_E.index_add(0, entities_P, counts_P).log1p()
    sums_E = zeros_E.index_add(0, entities_P, logs_P)
    shares_P = logs_P / sums_E.clamp(min=1e-6)[entities_P]
    return EntityContexts(n_kinds, starts_E, entities_P, kinds_P, shares_P, sums_E, degrees_E, None)


class ContextHead(nn.Module):
    """Scores w . relu(context of the candidate + context of the query's entity + query)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.candidate, self.source = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
        # log1p of an entity's edges: of the query's kind (its inverse for the source), and of all
        self.candidate_counts = nn.Linear(2, hidden, bias=False)
        self.source_counts = nn.Linear(2, hidden, bias=False)
        self.asked, self.second = nn.Linear(dim, hidden), nn.Linear(hidden, 1, bias=False)

    def links(
        self, contexts: EntityContexts | HeldOutContexts, vectors_QKD: Tensor, kinds_Q: Tensor,
        rows_B: Tensor, sources_B: Tensor, candidates_C: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Returns (B, E) scores of all entities as answers, or (B, C) of some.

        Without gradients, the vectors of many candidates are computed in chunks, or never stored.
        """
        query_BH = self.queries(contexts, vectors_QKD, kinds_Q, rows_B, sources_B)
        among = contexts.all() if candidates_C is None else contexts.only(candidates_C)
        n, width = len(among.sums_E), len(kinds_Q) * query_BH.shape[1]
        if query_BH.is_cuda:
            width += query_BH.numel()
        size = n if torch.is_grad_enabled() else max(AT_ONCE[query_BH.device.type] // width, 1)
        if size >= n:
            return self.score(query_BH, self.candidates(among, vectors_QKD, kinds_Q), rows_B)
        found_BE = query_BH.new_empty(len(rows_B), n)
        if (run := kernel("contexts.scores", query_BH.device.type)) and query_BH.dtype == FLOAT:
            counts_H2, second_H = self.candidate_counts.weight, self.second.weight[0]
            for row, kind in enumerate(kinds_Q.tolist()):
                own_N = (rows_B == row).nonzero().squeeze(1)
                given_KH = self.candidate(vectors_QKD[row])
                parts = among, given_KH, counts_H2, kind, query_BH[own_N], second_H
                found_BE[own_N] = run(*parts)
            return found_BE
        for first in range(0, n, size):
            part = among.part(first, min(first + size, n))
            candidates_QFH = self.candidates(part, vectors_QKD, kinds_Q)
            found_BE[:, first : first + size] = self.score(query_BH, candidates_QFH, rows_B)
        return found_BE

    def candidates(self, contexts: EntityContexts, vectors_QKD: Tensor, kinds_Q: Tensor) -> Tensor:
        """Returns (Q, E, H): all entities as candidates, for each kind of query."""
        n, (q, k, _) = len(contexts.sums_E), vectors_QKD.shape
        given_KN = self.candidate(vectors_QKD).transpose(0, 1).reshape(k, -1)
        features = contexts.counts(kinds_Q), contexts.degrees_E[:, None].expand(n, q)
        found_EQH: Tensor = contexts.read(given_KN).view(n, q, -1)
        found_EQH = found_EQH + self.candidate_counts(torch.stack(features, -1))
        return found_EQH.transpose(0, 1)

    def queries(
        self, contexts: EntityContexts | HeldOutContexts, vectors_QKD: Tensor, kinds_Q: Tensor,
        rows_B: Tensor, sources_B: Tensor,
    ) -> Tensor:  # fmt: skip
        """Returns (B, H) queries; rows_B is the row of each one's kind."""
        n, k = len(kinds_Q), contexts.n_kinds
        shares_BK, sums_B, degrees_B = contexts.at(sources_B)
        inverse_Q = (kinds_Q + k // 2) % k
        read_BH = torch.bmm(shares_BK[:, None], self.source(vectors_QKD)[rows_B])[:, 0]
        counts_B = shares_BK.gather(1, inverse_Q[rows_B][:, None])[:, 0] * sums_B
        features_B2 = torch.stack([counts_B, degrees_B], -1)
        asked_QH = self.asked(vectors_QKD[torch.arange(n, device=kinds_Q.device), kinds_Q])
        found_BH: Tensor = read_BH + self.source_counts(features_B2) + asked_QH[rows_B]
        return found_BH

    def score(self, query_BH: Tensor, candidates_QEH: Tensor, rows_B: Tensor) -> Tensor:
        """Returns (B, E) scores of all candidates of each query's kind."""
        if query_BH.is_cuda:
            hidden_BEH = F.relu(candidates_QEH[rows_B] + query_BH[:, None])
            return self.second(hidden_BEH).squeeze(-1)  # type: ignore[no-any-return]
        order_B = rows_B.argsort(stable=True)
        sizes = torch.bincount(rows_B, minlength=len(candidates_QEH)).tolist()
        parts = zip(query_BH[order_B].split(sizes), candidates_QEH, strict=True)
        found = [relu_dot(query, own_EH, self.second.weight[0]) for query, own_EH in parts]
        return torch.cat(found)[order_B.argsort()]

    def pairs(
        self, contexts: EntityContexts | HeldOutContexts, vectors_RKD: Tensor, kinds_R: Tensor,
        heads_B: Tensor, tails_B: Tensor,
    ) -> Tensor:  # fmt: skip
        """Returns (B, R) scores of some relations between heads and tails."""
        r, k, _ = vectors_RKD.shape
        rows_R = torch.arange(r, device=heads_B.device)
        hidden_BRH = self.asked(vectors_RKD[rows_R, kinds_R])
        for entities_B, kinds, read, count in (
            (heads_B, (kinds_R + k // 2) % k, self.source, self.source_counts),
            (tails_B, kinds_R, self.candidate, self.candidate_counts),
        ):
            shares_BK, sums_B, degrees_B = contexts.at(entities_B)
            degrees_BR = degrees_B[:, None].expand(-1, r)
            features = torch.stack([shares_BK[:, kinds] * sums_B[:, None], degrees_BR], -1)
            read_BRH = torch.einsum("bk,rkh->brh", shares_BK, read(vectors_RKD))
            hidden_BRH = hidden_BRH + read_BRH + count(features)
        return self.second(F.relu(hidden_BRH)).squeeze(-1)  # type: ignore[no-any-return]
