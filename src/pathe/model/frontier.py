"""The frontier: the entities that matter to a query, so that bridges need not pass every edge.

Mass starts at the query's entity. At each hop, an entity passes it on in equal shares along its
edges, so a hub passes little to each neighbour: this is personalised PageRank of a few steps. A hop
takes the largest shares first, within a budget of edges, and the entities with the most mass go on.
Of all entities found, `most` are kept: a quarter by their mass, as paths lead through them, and the
rest by the score that their context gives them as an answer, and by mass. Those that no path of
kept entities reaches give way to others with much mass. Messages then pass only between kept
entities. A small random sample is kept, too: its mean states, by relation, stand for those of the
entities that aren't. If no more than `most` entities are in reach, all of them are kept, and scores
are exact.

Masses are whole numbers, so that sums don't depend on their order, and ties go to smaller ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.randomness import keyed
from pathe.core.tensors import expand
from pathe.graph.edges import Edges
from pathe.kernels.dispatch import kernel
from pathe.model.propagation import Kept, Unkept, join_edges

WHOLE = 1 << 40  # the mass of a query
PASSED = 7, 8  # the share of its mass that an entity passes on
EDGES = 16  # edges per hop for each entity kept
NEAR = 0.25  # share of the entities kept that are chosen by their mass alone
WEIGHT = 10.0  # of a context's score, relative to the logarithm of the mass
SAMPLE = 0.05  # share of the entities kept that are a random sample
SLOTS = 1 << 26  # edges that are listed at once
LARGE = 1_000_000  # triples of a graph from which on a frontier is the default
MOST = 4096  # entities that it keeps
Found = tuple[Tensor, Tensor, Tensor]  # query, entity and mass, sorted by the first two
Chosen = tuple[Tensor, Tensor, Tensor]  # query, entity, whether it stands for others; also sorted


class Frontier(NamedTuple):
    """How many entities to keep per query.

    Candidates are those to score, ascending; None: all. Scores of contexts, if they are known, help
    to choose. A share is a random sample, which stands for all entities that aren't kept.
    """

    most: int
    candidates_C: Tensor | None = None
    context_BE: Tensor | None = None
    sample: float = SAMPLE


class Spread(NamedTuple):
    """How mass spreads: numbers for `spread_mass`."""

    n_hops: int
    most: int  # entities that go on at each hop
    budget: int  # edges per hop
    mass: int = WHOLE
    passed: int = PASSED[0]
    of: int = PASSED[1]

    @classmethod
    def within(cls, n_hops: int, most: int) -> Spread:
        """Returns the numbers for keeping `most` entities."""
        return cls(n_hops, most, EDGES * most)


def frontier_size(wanted: int | None, n_triples: int, n_entities: int) -> int:
    """Returns how many entities to keep per query on a graph; 0: all of them, which is exact.

    None decides by the size of the graph.
    """
    if wanted is None:
        wanted = MOST if n_triples >= LARGE else 0
    return wanted if wanted < n_entities else 0


def frontier_of(
    edges: Edges, keep_M: Tensor, sources_B: Tensor, n_hops: int, frontier: Frontier
) -> Kept:
    """Returns the entities to keep for each query, and the edges between them."""
    chosen = select_reachable(edges, keep_M, sources_B, n_hops, frontier)
    return completed(edges, keep_M, sources_B, chosen, n_hops)


def completed(edges: Edges, keep_M: Tensor, sources_B: Tensor, chosen: Chosen, n_hops: int) -> Kept:
    """Returns the graph of chosen entities, and the edges from others, counted by relation.

    Relations are those of the joined graph, where each query has its own.
    """
    queries_A, entities_A, stand_in_A = chosen
    kept, n = subgraph_of(edges, keep_M, sources_B, queries_A, entities_A, n_hops), edges.n_entities
    order_K, union = kept.order_A.long(), kept.edges
    queries_K, entities_K = kept.queries_A.long(), kept.entities_A.long()
    own = queries_K[order_K], entities_K[order_K], kept.starts_B1
    rows_U, relations_U, counts_U = _unkept(edges, keep_M, *own)
    if not len(rows_U):
        return kept
    rows_U, order_U = order_K[rows_U].sort(stable=True)
    relations_U = (relations_U[order_U] * len(sources_B)) + queries_K[rows_U]
    relations_R, places_U = relations_U.unique(return_inverse=True)
    codes_A, codes_K = (queries_A * n + entities_A), (queries_K * n + entities_K)
    stand_in_K = stand_in_A[torch.searchsorted(codes_A, codes_K)]
    all_M = union.relations_M.long()
    places_M = torch.searchsorted(relations_R, all_M).clamp(max=len(relations_R) - 1)
    used_M = relations_R[places_M] == all_M
    used_L = (stand_in_K[union.neighbours_M.long()] & used_M).nonzero().squeeze(1)
    places_L, order_L = places_M[used_L].sort(stable=True)
    from_L = union.neighbours_M[used_L[order_L]].long()
    counts_U = counts_U[order_U].float()
    parts = len(sources_B), relations_R, rows_U, places_U, counts_U, from_L, places_L
    return replace(kept, unkept=Unkept(*parts))


def frontier_between(
    edges: Edges, keep_M: Tensor, sources_B: Tensor, targets_B: Tensor, n_hops: int, most: int
) -> Kept:
    """Keeps only the entities on paths of up to n_hops edges from each source to its target.

    Each end keeps at most `most` entities, and paths lead through those that both keep.
    """
    n, ends, frontier = edges.n_entities, [], Frontier(most, sample=0.0)
    for ends_B in (sources_B, targets_B):
        queries_A, entities_A, _ = select_reachable(edges, keep_M, ends_B, n_hops, frontier)
        ends.append(subgraph_of(edges, keep_M, ends_B, queries_A, entities_A, n_hops))
    (codes_A, hops_A), (others_A, left_A) = (_by_code(rows) for rows in ends)
    places_A = torch.searchsorted(others_A, codes_A).clamp(max=len(others_A) - 1)
    both_A = (others_A[places_A] == codes_A) & (hops_A + left_A[places_A] <= n_hops)
    codes_A = codes_A[both_A | (hops_A == 0)]
    return subgraph_of(edges, keep_M, sources_B, codes_A // n, codes_A % n, n_hops)


def _by_code(rows: Kept) -> tuple[Tensor, Tensor]:
    """Returns the code of each row, query * E + entity, ascending, and the hop that reached it."""
    codes_A = rows.queries_A.long() * rows.shape[1] + rows.entities_A
    counts = torch.tensor((0, *rows.sizes), device=codes_A.device).diff()
    hops_A = torch.arange(len(counts), device=codes_A.device).repeat_interleave(counts)
    order_A = rows.order_A.long()
    return codes_A[order_A], hops_A[order_A]


def select_reachable(
    edges: Edges, keep_M: Tensor, sources_B: Tensor, n_hops: int, frontier: Frontier
) -> Chosen:
    """Returns the (query, entity) rows to keep, sorted; a random sample of the others is added.

    Rows that contexts chose, but no path of chosen ones reaches, give way to those with most mass.
    """
    n_sample = int(frontier.most * frontier.sample)
    found = spread_mass(edges, keep_M, sources_B, Spread.within(n_hops, frontier.most))
    queries_F, entities_F, mass_F = found
    most = frontier.most - n_sample
    chosen_A = select_entities(found, sources_B, frontier._replace(most=most))
    if frontier.context_BE is not None:
        rows = queries_F[chosen_A], entities_F[chosen_A]
        reached = subgraph_of(edges, keep_M, sources_B, *rows, n_hops)
        codes_A = reached.queries_A.long() * edges.n_entities + reached.entities_A
        places_A = torch.searchsorted(queries_F * edges.n_entities + entities_F, codes_A)
        first_F = mass_F.index_add(0, places_A, torch.full_like(places_A, WHOLE << 8))
        chosen_A = _top(queries_F, first_F, most)
    rest_F = torch.ones_like(queries_F, dtype=torch.bool).index_fill(0, chosen_A, False)
    others_A = rest_F.nonzero().squeeze(1)
    drawn_A = _top(queries_F[others_A], keyed(0, entities_F[others_A]), n_sample)
    chosen_A = torch.cat([chosen_A, others_A[drawn_A]]).sort().values
    return queries_F[chosen_A], entities_F[chosen_A], rest_F[chosen_A]


def spread_mass(edges: Edges, keep_M: Tensor, sources_B: Tensor, spread: Spread) -> Found:
    """Returns the entities that queries find, and their mass.

    A query that finds fewer than `most` entities, but has left out edges, searches again with a
    larger budget.
    """
    if run := kernel("frontier.spread_mass", sources_B.device.type):
        found: Found = run(edges, keep_M, sources_B, spread)
        return found
    return spread_mass_plain(edges, keep_M, sources_B, spread)


def spread_mass_plain(edges: Edges, keep_M: Tensor, sources_B: Tensor, spread: Spread) -> Found:
    """Computes `spread_mass` in plain PyTorch."""
    left_out_H = edges.owners_M[(~keep_M).nonzero().squeeze(1)].long()
    degrees_E = edges.offsets_E1.diff()
    degrees_E.index_add_(0, left_out_H, -torch.ones_like(left_out_H))
    open_B = torch.arange(len(sources_B), device=sources_B.device)
    parts: list[Found] = []
    while len(open_B):
        found, whole_B = _spread(edges, keep_M, degrees_E, sources_B[open_B], spread)
        counts_B = torch.bincount(found[0], minlength=len(open_B))
        done_B = whole_B | (counts_B >= spread.most)
        rows_F = done_B[found[0]].nonzero().squeeze(1)
        parts.append((open_B[found[0][rows_F]], found[1][rows_F], found[2][rows_F]))
        open_B, spread = open_B[~done_B], spread._replace(budget=4 * spread.budget)
    if not parts:
        return sources_B, sources_B, sources_B
    queries_F, entities_F, mass_F = (torch.cat([part[i] for part in parts]) for i in range(3))
    order_F = (queries_F * edges.n_entities + entities_F).argsort()
    return queries_F[order_F], entities_F[order_F], mass_F[order_F]


def _spread(
    edges: Edges, keep_M: Tensor, degrees_E: Tensor, sources_B: Tensor, spread: Spread
) -> tuple[Found, Tensor]:
    """Passes mass along edges; returns what was found, and which queries left out no edge."""
    n, b = edges.n_entities, len(sources_B)
    codes_A = torch.arange(b, device=sources_B.device) * n + sources_B
    mass_A = torch.full_like(codes_A, spread.mass)
    whole_B, found = torch.ones_like(codes_A, dtype=torch.bool), [(codes_A, mass_A)]
    for _ in range(spread.n_hops):
        entities_A = codes_A % n
        own_A = degrees_E[entities_A]
        share_A = mass_A * spread.passed // spread.of // own_A.clamp(min=1)
        order_A = _ranked(codes_A // n, share_A)
        spent_A = own_A[order_A].cumsum(0) - own_A[order_A]
        queries_A = (codes_A // n)[order_A]
        firsts_B = torch.searchsorted(queries_A, torch.arange(b, device=codes_A.device))
        spent_A = spent_A - F.pad(spent_A, (0, 1))[firsts_B][queries_A]
        whole_B[queries_A[spent_A >= spread.budget]] = False
        order_A = order_A[spent_A < spread.budget]
        entities_A = entities_A[order_A]
        starts_A = edges.offsets_E1[entities_A]
        rows_N, slots_N = expand(starts_A, edges.offsets_E1[entities_A + 1] - starts_A)
        live_N = keep_M[slots_N]
        rows_N, slots_N = order_A[rows_N[live_N]], slots_N[live_N]
        places_N = codes_A[rows_N] // n * n + edges.neighbours_M[slots_N]
        codes_A, mass_A = _sums(places_N, share_A[rows_N])
        found.append((codes_A, mass_A))
        best_A = _top(codes_A // n, mass_A, spread.most)
        codes_A, mass_A = codes_A[best_A], mass_A[best_A]
    codes_F, mass_F = _sums(*(torch.cat([part[i] for part in found]) for i in (0, 1)))
    return (codes_F // n, codes_F % n, mass_F), whole_B


def _sums(codes_N: Tensor, values_N: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the distinct codes, ascending, and the sum of each one's values."""
    codes_F, rows_N = codes_N.unique(return_inverse=True)
    return codes_F, torch.zeros_like(codes_F).index_add_(0, rows_N, values_N)


def _ranked(queries_A: Tensor, values_A: Tensor) -> Tensor:
    """Returns the order by query, then by the largest value; equal ones stay in their order."""
    order_A = values_A.argsort(descending=True, stable=True)
    return order_A[queries_A[order_A].argsort(stable=True)]


def _top(queries_A: Tensor, values_A: Tensor, most: int) -> Tensor:
    """Returns the rows of each query's `most` largest values, ascending; queries rise."""
    if run := kernel("frontier.top", values_A.device.type):
        found: Tensor = run(queries_A, values_A, most)
        return found
    order_A = _ranked(queries_A, values_A)
    sorted_A = queries_A[order_A]
    first_A = torch.searchsorted(sorted_A, sorted_A)
    numbers_A = torch.arange(len(order_A), device=order_A.device)
    return order_A[numbers_A - first_A < most].sort().values


def select_entities(found: Found, sources_B: Tensor, frontier: Frontier) -> Tensor:
    """Returns which rows have the most mass, or are chosen by contexts, ascending.

    The query's own entity is among them.
    """
    (queries_F, entities_F, mass_F), (most, _, context_BE, _) = found, frontier
    mass_F = mass_F + (entities_F == sources_B[queries_F]) * (WHOLE << 8)
    n_near = most if context_BE is None else max(round(most * NEAR), 1)
    near_A = _top(queries_F, mass_F, n_near)
    if context_BE is not None:
        left_F = torch.ones_like(queries_F, dtype=torch.bool)
        left_F[near_A] = False
        rest_F = left_F.nonzero().squeeze(1)
        queries_C = queries_F[rest_F]
        worth_C = WEIGHT * context_BE[queries_C, entities_F[rest_F]].double()
        worth_C = worth_C + mass_F[rest_F].clamp(min=1).double().log()
        more_A = rest_F[_top(queries_C, worth_C, most - n_near)]
        near_A = torch.cat([near_A, more_A]).sort().values
    return near_A


def subgraph_of(
    edges: Edges, keep_M: Tensor, sources_B: Tensor, queries_A: Tensor, entities_A: Tensor,
    n_hops: int,
) -> Kept:  # fmt: skip
    """Returns the rows among the given ones that n_hops edges between them reach, with these edges.

    Rows are sorted by query and entity, and include the queries' own entities.
    """
    b, n, device = len(sources_B), edges.n_entities, sources_B.device
    starts_B1 = F.pad(torch.bincount(queries_A, minlength=b).cumsum(0), (1, 0))
    degrees_A, from_N, slots_N = _edges_between(edges, keep_M, queries_A, entities_A, starts_B1)
    rows_N = torch.arange(len(queries_A), device=device).repeat_interleave(degrees_A)
    codes_A = queries_A * n + entities_A
    hops_A = torch.full_like(codes_A, n_hops + 1)
    hops_A[torch.searchsorted(codes_A, torch.arange(b, device=device) * n + sources_B)] = 0
    for hop in range(1, n_hops + 1):
        next_N = rows_N[hops_A[from_N] == hop - 1]
        hops_A[next_N] = hops_A[next_N].clamp(max=hop)
    order_A = hops_A.argsort(stable=True)
    sizes = torch.bincount(hops_A, minlength=n_hops + 2).cumsum(0)[: n_hops + 1].tolist()
    order_A = order_A[: sizes[-1]]
    row_A = torch.full_like(codes_A, -1)
    row_A[order_A] = torch.arange(len(order_A), device=device)
    firsts_A = degrees_A.cumsum(0) - degrees_A
    rows_K, at_K = expand(firsts_A[order_A], degrees_A[order_A])
    from_K, slots_K = row_A[from_N[at_K]], slots_N[at_K]
    live_K = from_K >= 0
    union = join_edges(
        b, edges.n_relations, edges.relations_M[slots_K[live_K]].long(),
        queries_A[order_A], rows_K[live_K], from_K[live_K], slots_K[live_K],
    )  # fmt: skip
    return Kept.of((b, n), queries_A[order_A], entities_A[order_A], tuple(sizes), union)


def _edges_between(
    edges: Edges, keep_M: Tensor, queries_A: Tensor, entities_A: Tensor, starts_B1: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the kept edges between rows of the same query: degrees, source rows and slots."""
    if run := kernel("frontier.edges_between", queries_A.device.type):
        found: tuple[Tensor, Tensor, Tensor] = run(edges, keep_M, entities_A, starts_B1)
        return found
    parts = []
    for rows_N, from_N, slots_N in _listed(edges, keep_M, queries_A, entities_A):
        live_N = from_N >= 0
        parts.append((rows_N[live_N], from_N[live_N], slots_N[live_N]))
    rows_N, from_N, slots_N = (torch.cat([part[i] for part in parts]) for i in range(3))
    return torch.bincount(rows_N, minlength=len(queries_A)), from_N, slots_N


def _unkept(
    edges: Edges, keep_M: Tensor, queries_A: Tensor, entities_A: Tensor, starts_B1: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Counts the kept edges from entities without a row: their rows, relations and numbers."""
    if run := kernel("frontier.unkept", queries_A.device.type):
        found: tuple[Tensor, Tensor, Tensor] = run(edges, keep_M, entities_A, starts_B1)
        return found
    parts, k = [], 2 * edges.n_relations
    for rows_N, from_N, slots_N in _listed(edges, keep_M, queries_A, entities_A):
        others_N = from_N < 0
        codes_N = rows_N[others_N] * k + edges.relations_M[slots_N[others_N]]
        parts.append(codes_N.unique(return_counts=True))
    codes_U, counts_U = (torch.cat([part[i] for part in parts]) for i in range(2))
    return codes_U // k, codes_U % k, counts_U


def _listed(
    edges: Edges, keep_M: Tensor, queries_A: Tensor, entities_A: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Lists the kept edges at rows in blocks: row, row of the neighbour or -1, slot."""
    n, codes_A = edges.n_entities, queries_A * edges.n_entities + entities_A
    degrees_A, first = edges.offsets_E1.diff()[entities_A], 0
    for block_F in _blocks(degrees_A):
        rows_N, slots_N = expand(edges.offsets_E1[entities_A[block_F]], degrees_A[block_F])
        rows_N, slots_N = rows_N[keep_M[slots_N]], slots_N[keep_M[slots_N]]
        places_N = queries_A[block_F][rows_N] * n + edges.neighbours_M[slots_N]
        from_N = torch.searchsorted(codes_A, places_N).clamp(max=len(codes_A) - 1)
        from_N = torch.where(codes_A[from_N] == places_N, from_N, -1)
        yield rows_N + first, from_N, slots_N
        first += len(block_F)


def _blocks(degrees_A: Tensor) -> list[Tensor]:
    """Returns consecutive rows in blocks with about SLOTS edges each."""
    rows_A = torch.arange(len(degrees_A), device=degrees_A.device)
    block_A = degrees_A.cumsum(0) // SLOTS
    return list(rows_A.split(block_A.unique_consecutive(return_counts=True)[1].tolist()))
