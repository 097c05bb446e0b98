"""Adds a few triples to a graph without rebuilding it."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.tensors import expand, insert
from pathe.data.triples import unique_triples
from pathe.graph.adjacency import Adjacency, Contexts, Graph, build_graph, check_triples
from pathe.graph.known import KnownTriples

FEW = 300  # up to this many triples are inserted one by one; for more, rebuilding is faster


def extend_graph(graph: Graph, triples_N3: Tensor, n_entities: int) -> Graph:
    """Returns the graph with more triples (sorted, unique and new to it) and entities.

    Equals `build_graph` of all triples, but avoids the sort: it inserts edges into the rows of
    their entities and recounts only the contexts of those.
    """
    if len(triples_N3) > FEW:
        every_M3 = torch.cat([graph.triples_M3, triples_N3.int()])
        all_M3 = unique_triples(every_M3.cpu())[0].to(graph.device)
        return build_graph(all_M3, n_entities, graph.n_relations)
    check_triples(triples_N3, n_entities, graph.n_relations)
    edges_N3 = triples_N3.int()
    outgoing, rows_N = _add_edges(graph.outgoing, edges_N3, n_entities)
    reversed_N3 = edges_N3[:, [2, 1, 0]]
    order = sorted(range(len(edges_N3)), key=reversed_N3.tolist().__getitem__)
    order_N = torch.tensor(order, dtype=torch.long, device=graph.device)
    incoming, slots_N = _add_edges(graph.incoming, reversed_N3[order_N], n_entities)
    # a triple's id is its outgoing slot, so old ids shift by the new triples before them
    old_rows_M = graph.incoming.triples_M
    before_N = rows_N - torch.arange(len(rows_N), device=graph.device)
    old_rows_M = old_rows_M + torch.bucketize(old_rows_M, before_N, right=True).int()
    in_rows_M = insert(old_rows_M, slots_N, rows_N[order_N].int())
    out_rows_M = torch.arange(len(in_rows_M), dtype=torch.int32, device=graph.device)
    outgoing = replace(outgoing, triples_M=out_rows_M)
    incoming = replace(incoming, triples_M=in_rows_M)
    return Graph(
        n_entities,
        graph.n_relations,
        outgoing,
        incoming,
        _recount(graph.out_contexts, outgoing, edges_N3[:, 0]),
        _recount(graph.in_contexts, incoming, edges_N3[:, 2]),
    )


def _add_edges(adjacency: Adjacency, edges_N3: Tensor, n_entities: int) -> tuple[Adjacency, Tensor]:
    """Returns the adjacency with sorted (owner, relation, neighbour) edges, and their slots."""
    offsets_E1 = _lengthen(adjacency.offsets_E1, n_entities)
    slots = []
    for i, (owner, relation, neighbour) in enumerate(edges_N3.tolist()):
        row = slice(int(offsets_E1[owner]), int(offsets_E1[owner + 1]))
        relations, neighbours = adjacency.relations_M[row], adjacency.neighbours_M[row]
        before = (relations < relation) | ((relations == relation) & (neighbours < neighbour))
        slots.append(row.start + int(before.sum()) + i)
    slots_N = torch.tensor(slots, dtype=torch.long, device=edges_N3.device)
    added_E = torch.bincount(edges_N3[:, 0], minlength=n_entities)
    made = Adjacency(
        offsets_E1 + F.pad(added_E.cumsum(0), (1, 0)),
        insert(adjacency.neighbours_M, slots_N, edges_N3[:, 2]),
        insert(adjacency.relations_M, slots_N, edges_N3[:, 1]),
        adjacency.triples_M,
    )
    return made, slots_N


def _recount(contexts: Contexts, adjacency: Adjacency, changed_N: Tensor) -> Contexts:
    """Recounts the contexts of the entities whose edges have changed."""
    offsets_E1 = _lengthen(contexts.offsets_E1, adjacency.n_entities)
    sizes_E = offsets_E1.diff()
    relations, counts, end = [], [], 0
    for entity in changed_N.unique().tolist():
        start, after = offsets_E1[entity : entity + 2].tolist()
        row = slice(*adjacency.offsets_E1[entity : entity + 2].tolist())
        fresh = adjacency.relations_M[row].unique_consecutive(return_counts=True)
        relations += [contexts.relations_P[end:start], fresh[0]]
        counts += [contexts.counts_P[end:start], fresh[1].int()]
        sizes_E[entity], end = len(fresh[0]), after
    return Contexts(
        F.pad(sizes_E.cumsum(0), (1, 0)),
        torch.cat([*relations, contexts.relations_P[end:]]),
        torch.cat([*counts, contexts.counts_P[end:]]),
    )


def _lengthen(offsets_E1: Tensor, n_entities: int) -> Tensor:
    """Returns offsets for more entities, the new ones with empty rows."""
    more = n_entities + 1 - len(offsets_E1)
    return torch.cat([offsets_E1, offsets_E1[-1:].expand(more)])


def holds(graph: Graph, ids_B3: Tensor) -> Tensor:
    """Whether the graph holds each triple; entities beyond its own are in none."""
    inside_B = (ids_B3[:, [0, 2]] < graph.n_entities).all(1)
    rows_K, edges = inside_B.nonzero().squeeze(1), graph.outgoing
    heads_K, relations_K, tails_K = ids_B3[rows_K].long().unbind(1)
    degrees_K = edges.degrees_E[heads_K]
    found_B = torch.zeros_like(inside_B)
    if int(degrees_K.sum()) <= graph.n_triples:  # looking at the heads' edges costs less
        of_N, slots_N = expand(edges.offsets_E1[heads_K], degrees_K)
        same_N = edges.relations_M[slots_N] == relations_K[of_N]
        same_N &= edges.neighbours_M[slots_N] == tails_K[of_N]
        found_B[rows_K[of_N[same_N]]] = True
    else:
        found_B[rows_K] = KnownTriples(graph.triples_M3).contains(ids_B3[rows_K])
    return found_B
