"""The relation graph: how the kinds of edges of a graph meet.

An edge has a kind: relation r into its tail, or r + R into its head. Two kinds meet if they arrive
at, or leave from, the same entities, or if they connect the same two entities. The meetings
describe a relation without its name, so a model that reads them works on any graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pathe.core.tensors import Tensors, expand
from pathe.graph.edges import Edges
from pathe.kernels.dispatch import kernel

N_MEETINGS = 14  # matrices of a relation graph, see `relation_graph`
DENSE = 1 << 25  # most entries of a relation graph that is stored densely: about 1,500 kinds
AT_ONCE = 1 << 24  # pairs that are listed at once
COUNTED = 1 << 22  # most codes that are counted in an array instead of sorted
MOST = 1 << 20  # pairs of a sparse relation graph; with more, large groups of kinds are left out
SMALL = 64  # kinds of a group that is never left out


@dataclass(frozen=True)
class Arrivals(Tensors):
    """Which kinds of edges arrive at each entity, as sparse rows sorted by (entity, kind)."""

    n_kinds: int
    n_entities: int
    starts_E: Tensor  # the first entry of each entity
    entities_P: Tensor
    kinds_P: Tensor
    entry_M: Tensor  # the entry of each slot of the edges
    kinds_M: Tensor  # the kind of each slot
    pair_M: Tensor  # the number of its ordered pair of entities
    by_pair_M: Tensor  # the slots, sorted by pair

    def counts(self, keep_M: Tensor) -> Tensor:
        """Returns the number of kept edges per entry."""
        counts_P = torch.zeros(len(self.kinds_P), device=keep_M.device)
        return counts_P.index_add_(0, self.entry_M, keep_M.float())


def arrivals(edges: Edges) -> Arrivals:
    """Indexes the edges of a graph by entity and kind, and by pair of entities."""
    n_kinds, owners_M = 2 * edges.n_relations, edges.owners_M.long()
    kinds_M, sources_M = edges.relations_M.long(), edges.neighbours_M.long()
    codes_P, entry_M = (owners_M * n_kinds + kinds_M).unique(return_inverse=True)
    sizes_E = torch.bincount(codes_P // n_kinds, minlength=edges.n_entities)
    pair_M = (owners_M * edges.n_entities + sources_M).unique(return_inverse=True)[1]
    return Arrivals(
        n_kinds,
        edges.n_entities,
        sizes_E.cumsum(0) - sizes_E,
        codes_P // n_kinds,
        codes_P % n_kinds,
        entry_M,
        kinds_M,
        pair_M,
        pair_M.argsort(stable=True),
    )


def relation_graph(index: Arrivals, keep_M: Tensor) -> Tensor:
    """Returns the meetings of kinds along kept edges as a (T * K, K) matrix, sparse if it is large.

    Block t has K x K values; row a describes how kind a meets each kind b. Four blocks are about
    the entities at which a and b arrive or leave (both arrive, b leaves, a leaves, both leave): met
    or not. Four are shared entities, four the share of b's entities that are shared; rows of these
    twelve sum to 1. The last two are edges between the same two entities: the share of a's edges
    that have one of kind b beside them, and the share of b's edges.

    Where thousands of kinds would make too many meetings, the entities with the most kinds are
    ignored: at a hub, every kind would meet every other.
    """
    n, entries_P = index.n_kinds, index.counts(keep_M) > 0
    at = index.entities_P[entries_P], index.kinds_P[entries_P]
    a_S, b_S, shared_S = _meet(*at, n)
    sizes_K = torch.bincount(at[1], minlength=n)
    rows, columns, values = [], [], []
    for leaves_a, leaves_b in ((0, 0), (0, 1), (1, 0), (1, 1)):
        # kind k leaves from where its inverse arrives
        rows.append((a_S + leaves_a * n // 2) % n)
        columns.append((b_S + leaves_b * n // 2) % n)
        each = torch.ones_like(shared_S), shared_S, shared_S / sizes_K[b_S]
        values.append([_normalised(v, rows[-1], n) for v in each])
    slots_N = index.by_pair_M[keep_M[index.by_pair_M]]
    a_J, b_J, shared_J = _meet(index.pair_M[slots_N], index.kinds_M[slots_N], n)
    edges_K = torch.bincount(index.kinds_M[slots_N], minlength=n)
    blocks = [
        *((rows[i], columns[i], values[i][v]) for v in range(3) for i in range(4)),
        (a_J, b_J, shared_J / edges_K[a_J]),
        (a_J, b_J, shared_J / edges_K[b_J]),
    ]
    return _stack(blocks, n)


def _meet(groups_N: Tensor, kinds_N: Tensor, n_kinds: int) -> tuple[Tensor, Tensor, Tensor]:
    """Counts the groups that two kinds share; returns (kind, kind, count) where there are any.

    Groups are sorted, and have each kind at most once.
    """
    sizes_G = groups_N.unique_consecutive(return_counts=True)[1]
    if n_kinds * n_kinds * N_MEETINGS > DENSE:
        small_G = sizes_G <= _largest(sizes_G)
        kinds_N, sizes_G = kinds_N[small_G.repeat_interleave(sizes_G)], sizes_G[small_G]
    run = kernel("relation_graph.pairs", kinds_N.device.type)
    if run and n_kinds * n_kinds <= COUNTED:
        counts_N = run(kinds_N, sizes_G, n_kinds).flatten()
        codes_S = counts_N.nonzero().squeeze(1)
        return codes_S // n_kinds, codes_S % n_kinds, counts_N[codes_S].float()
    found: list[tuple[Tensor, Tensor]] = []
    for first, last, sizes_F in _blocks(sizes_G):
        starts_F = (sizes_F.cumsum(0) - sizes_F + first).repeat_interleave(sizes_F)
        rows_J, others_J = expand(starts_F, sizes_F.repeat_interleave(sizes_F))
        codes_J = kinds_N[first:last][rows_J] * n_kinds + kinds_N[others_J]
        if n_kinds * n_kinds <= COUNTED:
            counts = torch.bincount(codes_J, minlength=n_kinds * n_kinds)
            found.append((counts.nonzero().squeeze(1), counts[counts > 0]))
        else:
            found.append(codes_J.unique(return_counts=True))
    if not found:
        return kinds_N, kinds_N, kinds_N.float()
    codes_S, row_N = torch.cat([codes for codes, _ in found]).unique(return_inverse=True)
    counts_S = torch.zeros_like(codes_S).index_add_(0, row_N, torch.cat([c for _, c in found]))
    return codes_S // n_kinds, codes_S % n_kinds, counts_S.float()


def _largest(sizes_G: Tensor) -> int:
    """Returns the size up to which groups have MOST pairs together; at least SMALL."""
    sorted_G = sizes_G.sort().values
    fits_G = (sorted_G * sorted_G).cumsum(0) <= MOST
    if bool(fits_G.all()):
        return int(sorted_G[-1]) if len(sorted_G) else SMALL
    return max(int(sorted_G[int(fits_G.sum())]) - 1, SMALL)


def _blocks(sizes_G: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """Yields the first and last entry and the sizes of groups whose pairs are listed at once."""
    pairs_G = (sizes_G * sizes_G).cumsum(0)
    if not len(sizes_G) or int(pairs_G[-1]) <= AT_ONCE:
        if len(sizes_G):
            yield 0, int(sizes_G.sum()), sizes_G
        return
    block_G, first = pairs_G // AT_ONCE, 0
    for sizes_F in sizes_G.split(block_G.unique_consecutive(return_counts=True)[1].tolist()):
        last = first + int(sizes_F.sum())
        yield first, last, sizes_F
        first = last


def _normalised(values_S: Tensor, rows_S: Tensor, n_rows: int) -> Tensor:
    """Returns the values divided by the sum of their row."""
    sums = torch.zeros(n_rows, device=values_S.device).index_add_(0, rows_S, values_S)
    return values_S / sums[rows_S]


def _stack(blocks: list[tuple[Tensor, Tensor, Tensor]], n: int) -> Tensor:
    """Returns blocks of (row, column, value) as one matrix, a block below the other."""
    rows = torch.cat([block * n + a for block, (a, _, _) in enumerate(blocks)])
    columns, values = (torch.cat([block[i] for block in blocks]) for i in (1, 2))
    shape = len(blocks) * n, n
    if shape[0] * shape[1] > DENSE:
        places = torch.stack([rows, columns])
        return torch.sparse_coo_tensor(places, values, shape, check_invariants=True).coalesce()
    dense = values.new_zeros(shape[0] * shape[1])
    return dense.index_put_((rows * n + columns,), values).view(shape)
