"""The relation graph: how the kinds of edges of a graph meet.

An edge has a kind: relation r into its tail, or r + R into its head. Two kinds meet if they arrive
at, or leave from, the same entities, or if they connect the same two entities. The meetings
describe a relation without its name, so a model that reads them works on any graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from pathe.core.tensors import Tensors, expand
from pathe.graph.edges import Edges
from pathe.kernels.dispatch import kernel

N_MEETINGS = 14  # matrices of a relation graph, see `relation_graph`
DENSE = 1 << 25  # most entries of a relation graph that is stored densely: about 1,500 kinds
AT_ONCE = 1 << 24  # pairs that are listed at once
BLOCK = 1 << 22  # edges that are looked at at once
COUNTED = 1 << 22  # most codes that are counted in an array instead of sorted
MOST = 1 << 20  # pairs of a sparse relation graph; with more, large groups of kinds are left out
SMALL = 64  # kinds of a group that is never left out
Groups = tuple[Tensor, Tensor]  # the group and the kind of each entry; groups rise
# pairs of kinds, as codes that rise, and the groups that they share; groups that have each kind;
# groups of each size
Met = tuple[Tensor, Tensor, Tensor, Tensor]


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


@dataclass(frozen=True)
class Meetings(Tensors):
    """How often two kinds meet, in whole numbers: all that a relation graph is computed from.

    A pair of kinds is a code, a * K + b, ascending. Sizes are those of groups of kinds: groups of
    size s are counted at place s.
    """

    n_kinds: int
    codes_S: Tensor  # kinds that arrive at the same entities
    shared_S: Tensor  # entities that they share
    entities_K: Tensor  # entities that have each kind
    entity_sizes: Tensor  # entities by their number of kinds
    codes_J: Tensor  # kinds that connect the same ordered pairs of entities
    joined_J: Tensor  # pairs that they share
    edges_K: Tensor  # kept edges of each kind
    pair_sizes: Tensor  # pairs by their number of kinds


def relation_graph(index: Arrivals, keep_M: Tensor) -> Tensor:
    """Returns the meetings of kinds along kept edges, see `relation_matrix`."""
    return relation_matrix(count_meetings(index, keep_M))


def count_meetings(index: Arrivals, keep_M: Tensor) -> Meetings:
    """Counts the meetings of kinds along kept edges.

    Where thousands of kinds would make too many meetings, the entities with the most kinds are
    ignored: at a hub, every kind would meet every other.
    """
    n, kept_P = index.n_kinds, index.counts(keep_M) > 0
    at_entities = _meet(partial(_kinds_at_entities, index, kept_P), n)
    return Meetings(n, *at_entities, *_meet(partial(_kinds_of_pairs, index, keep_M), n))


def meetings_without(
    whole: Meetings, index: Arrivals, counts_P: Tensor, slots_H: Tensor
) -> Meetings | None:
    """Returns the meetings of a whole graph without some slots; looks only at what changes.

    counts_P are the edges per entry of the whole graph. Returns None if other hubs than before
    would be ignored: then all has to be counted again.
    """
    entries_U, lost_U = index.entry_M[slots_H].unique(return_counts=True)
    gone_G = entries_U[counts_P[entries_U] <= lost_U]
    entities_F = index.entities_P[gone_G].unique()
    rows_N, entries_N = expand(*rows_of(index.starts_E, len(index.kinds_P), entities_F))
    left_N = ~torch.isin(entries_N, gone_G)
    at_entities = whole.codes_S, whole.shared_S, whole.entities_K, whole.entity_sizes
    entities = _change(at_entities, (rows_N, index.kinds_P[entries_N]), left_N)
    pairs_F = index.pair_M[slots_H].unique()
    starts_F = _first_slots(index, pairs_F)
    rows_N, places_N = expand(starts_F, _first_slots(index, pairs_F + 1) - starts_F)
    slots_N = index.by_pair_M[places_N]
    left_N = ~torch.isin(slots_N, slots_H)
    of_pairs = whole.codes_J, whole.joined_J, whole.edges_K, whole.pair_sizes
    pairs = _change(of_pairs, (rows_N, index.kinds_M[slots_N]), left_N)
    return entities and pairs and Meetings(whole.n_kinds, *entities, *pairs)


def relation_matrix(found: Meetings) -> Tensor:
    """Returns meetings as a (T * K, K) matrix, sparse if it is large.

    Block t has K x K values; row a describes how kind a meets each kind b. Four blocks are about
    the entities at which a and b arrive or leave (both arrive, b leaves, a leaves, both leave): met
    or not. Four are shared entities, four the share of b's entities that are shared; rows of these
    twelve sum to 1. The last two are edges between the same two entities: the share of a's edges
    that have one of kind b beside them, and the share of b's edges.
    """
    n, a_S, b_S = found.n_kinds, found.codes_S // found.n_kinds, found.codes_S % found.n_kinds
    shared_S, rows, columns, values = found.shared_S.float(), [], [], []
    for leaves_a, leaves_b in ((0, 0), (0, 1), (1, 0), (1, 1)):
        # kind k leaves from where its inverse arrives
        rows.append((a_S + leaves_a * n // 2) % n)
        columns.append((b_S + leaves_b * n // 2) % n)
        each = torch.ones_like(shared_S), shared_S, shared_S / found.entities_K[b_S]
        values.append([_normalised(v, rows[-1], n) for v in each])
    a_J, b_J, joined_J = found.codes_J // n, found.codes_J % n, found.joined_J.float()
    blocks = [
        *((rows[i], columns[i], values[i][v]) for v in range(3) for i in range(4)),
        (a_J, b_J, joined_J / found.edges_K[a_J]),
        (a_J, b_J, joined_J / found.edges_K[b_J]),
    ]
    return _stack(blocks, n)


def rows_of(starts_E: Tensor, n_entries: int, entities_C: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the first entry and the number of entries of some entities in sparse rows."""
    last = len(starts_E) - 1
    ends_C = starts_E[(entities_C + 1).clamp(max=last)].masked_fill(entities_C == last, n_entries)
    starts_C = starts_E[entities_C]
    return starts_C, ends_C - starts_C


def _first_slots(index: Arrivals, pairs_F: Tensor) -> Tensor:
    """Returns where the slots of pairs start in by_pair_M, by a binary search."""
    low_F = torch.zeros_like(pairs_F)
    high_F = torch.full_like(pairs_F, len(index.by_pair_M))
    for _ in range(len(index.by_pair_M).bit_length()):
        middle_F = (low_F + high_F) // 2
        open_F = low_F < high_F
        at_F = index.pair_M[index.by_pair_M[middle_F.clamp(max=len(index.by_pair_M) - 1)]]
        low_F = torch.where(open_F & (at_F < pairs_F), middle_F + 1, low_F)
        high_F = torch.where(open_F & (at_F >= pairs_F), middle_F, high_F)
    return low_F


def _change(counted: Met, groups: Groups, left_N: Tensor) -> Met | None:
    """Returns what `_meet` would count after some groups have lost kinds.

    Takes all kinds of these groups, and which are left. Returns None if the limit of sizes changes.
    """
    (codes_S, counts_S, kinds_K, sizes), (groups_N, kinds_N) = counted, groups
    n = len(kinds_K)
    before_G, before = _sizes(groups_N, n)
    after_G, after = _sizes(groups_N[left_N], n)
    limit, after = _limit(sizes, n), sizes - before + after
    if limit != _limit(after, n):
        return None
    lost, lost_counts = _pairs_of(kinds_N, before_G, n, limit)
    kept = _pairs_of(kinds_N[left_N], after_G, n, limit)
    codes_S, counts_S = _added_up([(codes_S, counts_S), (lost, -lost_counts), kept])
    kinds_K = kinds_K - torch.bincount(kinds_N[~left_N], minlength=n)
    return codes_S[counts_S > 0], counts_S[counts_S > 0], kinds_K, after


def _kinds_at_entities(index: Arrivals, kept_P: Tensor) -> Iterator[Groups]:
    """Yields the kinds of entries that are kept, in blocks of whole entities."""
    last = len(index.kinds_P)
    ends: list[int] = []
    if last > BLOCK:
        ends = index.starts_E[index.entities_P[BLOCK::BLOCK]].tolist()
    for start, end in pairwise([0, *ends, last]):
        kept_N = kept_P[start:end]
        yield index.entities_P[start:end][kept_N], index.kinds_P[start:end][kept_N]


def _kinds_of_pairs(index: Arrivals, keep_M: Tensor) -> Iterator[Groups]:
    """Yields the kinds of kept edges between pairs of entities, in blocks of whole pairs."""
    last = len(index.by_pair_M)
    ends: list[int] = []
    if last > BLOCK:
        ends = _first_slots(index, index.pair_M[index.by_pair_M[BLOCK::BLOCK]]).tolist()
    for start, end in pairwise([0, *ends, last]):
        slots_N = index.by_pair_M[start:end]
        slots_N = slots_N[keep_M[slots_N]]
        yield index.pair_M[slots_N], index.kinds_M[slots_N]


def _meet(blocks: Callable[[], Iterator[Groups]], n_kinds: int) -> Met:
    """Counts the groups that two kinds share. Groups have each kind at most once."""
    limit, found = None, []
    if n_kinds * n_kinds * N_MEETINGS > DENSE:
        each = [_sizes(groups_N, n_kinds)[1] for groups_N, _ in blocks()]
        limit = _limit(torch.stack(each).sum(0), n_kinds)
    kinds_K = sizes = torch.zeros(n_kinds + 1, dtype=torch.long)
    for groups_N, kinds_N in blocks():
        sizes_G, own = _sizes(groups_N, n_kinds)
        found.append(_pairs_of(kinds_N, sizes_G, n_kinds, limit))
        sizes = sizes.to(own) + own
        kinds_K = kinds_K.to(own) + torch.bincount(kinds_N, minlength=n_kinds + 1)
    return *_added_up(found), kinds_K[:-1], sizes


def _sizes(groups_N: Tensor, n_kinds: int) -> tuple[Tensor, Tensor]:
    """Returns the size of each group, and the groups of each size."""
    sizes_G = groups_N.unique_consecutive(return_counts=True)[1]
    return sizes_G, torch.bincount(sizes_G, minlength=n_kinds + 1)


def _added_up(found: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Returns the distinct codes, ascending, and the sum of each one's counts."""
    if len(found) == 1:
        return found[0]
    codes_S, row_N = torch.cat([codes for codes, _ in found]).unique(return_inverse=True)
    return codes_S, torch.zeros_like(codes_S).index_add_(0, row_N, torch.cat([c for _, c in found]))


def _limit(sizes: Tensor, n_kinds: int) -> int | None:
    """Returns the largest size of groups that count, given the groups of each size; None: all."""
    return _largest(sizes) if n_kinds * n_kinds * N_MEETINGS > DENSE else None


def _pairs_of(
    kinds_N: Tensor, sizes_G: Tensor, n_kinds: int, limit: int | None
) -> tuple[Tensor, Tensor]:
    """Returns the codes of kinds that share groups of up to `limit` kinds, and how many groups."""
    if limit is not None:
        small_G = sizes_G <= limit
        kinds_N, sizes_G = kinds_N[small_G.repeat_interleave(sizes_G)], sizes_G[small_G]
    run = kernel("relation_graph.pairs", kinds_N.device.type)
    if run and n_kinds * n_kinds <= COUNTED:
        counts_N = run(kinds_N, sizes_G, n_kinds).flatten()
        codes_S = counts_N.nonzero().squeeze(1)
        return codes_S, counts_N[codes_S]
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
    return _added_up(found or [(kinds_N, kinds_N)])


def _largest(sizes: Tensor) -> int:
    """Returns the size up to which groups have MOST pairs together; at least SMALL."""
    each = torch.arange(len(sizes), device=sizes.device)
    over = (sizes * each * each).cumsum(0) > MOST
    if bool(over.any()):
        return max(int(over.nonzero()[0]) - 1, SMALL)
    return int(sizes.nonzero()[-1]) if bool(sizes.any()) else SMALL


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
