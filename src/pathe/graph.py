"""The training graph as tensors: adjacency in both directions and sparse relational contexts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.answers import Part
from pathe.triples import unique_triples

FEW = 300  # new triples that are put in one by one

Holder = TypeVar("Holder", bound="Tensors")


class Tensors:
    """Frozen holders of tensors: move or copy them together, count their bytes."""

    def to(self: Holder, device: torch.device | str) -> Holder:
        return self.map(lambda tensor: tensor.to(device))

    def map(self: Holder, change: Callable[[Tensor], Tensor]) -> Holder:
        """The same with every tensor changed."""

        def changed(value: Any) -> Any:
            if isinstance(value, Tensors):
                return value.map(change)
            return change(value) if isinstance(value, Tensor) else value

        names = [f.name for f in fields(self)]  # type: ignore[arg-type]
        return type(self)(**{name: changed(getattr(self, name)) for name in names})

    def tensors(self) -> list[Tensor]:
        """Every tensor, in the order of the fields."""
        found: list[Tensor] = []
        self.map(lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
        return found

    @property
    def n_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors())


@dataclass(frozen=True)
class Adjacency(Tensors):
    """Edges grouped by the entity a walk stands on, sorted by (entity, relation, neighbour).

    Entity e owns slots offsets_E1[e] to offsets_E1[e + 1].
    """

    offsets_E1: Tensor  # int64
    neighbours_M: Tensor  # int32
    relations_M: Tensor  # int32
    triples_M: Tensor  # int32: the row of the training triple behind each slot

    @property
    def n_entities(self) -> int:
        return len(self.offsets_E1) - 1

    @property
    def degrees_E(self) -> Tensor:
        return self.offsets_E1.diff()


@dataclass(frozen=True)
class Contexts(Tensors):
    """How often each relation touches each entity in one direction, as sparse rows."""

    offsets_E1: Tensor  # int64
    relations_P: Tensor  # int32
    counts_P: Tensor  # int32


@dataclass(frozen=True)
class Graph(Tensors):
    """A directed multi-relational graph; built from training triples and nothing else.

    `both` has the edges of both directions, relation r turned being r + R: see `with_both`.
    """

    n_entities: int
    n_relations: int
    outgoing: Adjacency
    incoming: Adjacency
    out_contexts: Contexts
    in_contexts: Contexts
    both: Adjacency | None = None

    @property
    def n_triples(self) -> int:
        return len(self.outgoing.triples_M)

    @property
    def device(self) -> torch.device:
        return self.outgoing.offsets_E1.device


def build_graph(triples_M3: Tensor, n_entities: int, n_relations: int) -> Graph:
    """Adjacency and contexts of (head, relation, tail) triples, sorted and unique as read."""
    _check(triples_M3, n_entities, n_relations)
    heads_M, relations_M, tails_M = triples_M3.int().t().contiguous()
    order_M = sort_order(tails_M.long() * n_relations + relations_M, n_entities * n_relations)
    outgoing = Adjacency(
        _offsets(heads_M, n_entities),
        tails_M,
        relations_M,
        torch.arange(len(heads_M), dtype=torch.int32, device=heads_M.device),
    )
    incoming = Adjacency(
        _offsets(tails_M, n_entities), heads_M[order_M], relations_M[order_M], order_M.int()
    )
    return Graph(
        n_entities,
        n_relations,
        outgoing,
        incoming,
        _contexts(outgoing, n_relations),
        _contexts(incoming, n_relations),
    )


def merge(first: Adjacency, second: Adjacency, n_relations: int) -> Adjacency:
    """All edges of both, an entity's of the first one first; relations of the second plus R."""
    owners_M = torch.cat([owners(side.offsets_E1) for side in (first, second)])
    order_M = owners_M.argsort(stable=True)

    def merged(one_M: Tensor, other_M: Tensor) -> Tensor:
        return torch.cat([one_M, other_M])[order_M]

    return Adjacency(
        first.offsets_E1 + second.offsets_E1,
        merged(first.neighbours_M, second.neighbours_M),
        merged(first.relations_M, second.relations_M + n_relations),
        merged(first.triples_M, second.triples_M),
    )


def with_both(graph: Graph) -> Graph:
    """The graph with the edges that walks in mixed directions take."""
    if graph.both is not None:
        return graph
    return replace(graph, both=merge(graph.outgoing, graph.incoming, graph.n_relations))


def extend_graph(graph: Graph, triples_N3: Tensor, n_entities: int) -> Graph:
    """The graph with a few more triples (sorted, unique, none of them in it) and entities.

    Equals `build_graph` of all, but sorts nothing: edges are put into their entities' rows, and
    contexts counted for those entities only.
    """
    if len(triples_N3) > FEW:  # building from all costs less
        edges = graph.outgoing
        old_M3 = torch.stack(
            [owners(edges.offsets_E1).int(), edges.relations_M, edges.neighbours_M], 1
        )
        all_M3 = unique_triples(torch.cat([old_M3, triples_N3.int()]).cpu())[0].to(graph.device)
        return build_graph(all_M3, n_entities, graph.n_relations)
    _check(triples_N3, n_entities, graph.n_relations)
    edges_N3 = triples_N3.int()
    outgoing, rows_N = _add_edges(graph.outgoing, edges_N3, n_entities)
    turned_N3 = edges_N3[:, [2, 1, 0]]
    order = sorted(range(len(edges_N3)), key=turned_N3.tolist().__getitem__)
    order_N = torch.tensor(order, dtype=torch.long, device=graph.device)
    incoming, slots_N = _add_edges(graph.incoming, turned_N3[order_N], n_entities)
    # a triple's row is its outgoing slot: an old one's moves by the new ones before it
    old_rows_M = graph.incoming.triples_M
    before_N = rows_N - torch.arange(len(rows_N), device=graph.device)
    old_rows_M = old_rows_M + torch.bucketize(old_rows_M, before_N, right=True).int()
    in_rows_M = _put(old_rows_M, slots_N, rows_N[order_N].int())
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
    """Sorted (owner, relation, neighbour) edges put where they belong, and the slots they got."""
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
        _put(adjacency.neighbours_M, slots_N, edges_N3[:, 2]),
        _put(adjacency.relations_M, slots_N, edges_N3[:, 1]),
        adjacency.triples_M,
    )
    return made, slots_N


def _recount(contexts: Contexts, adjacency: Adjacency, changed_N: Tensor) -> Contexts:
    """Contexts that are right again after the edges of some entities have changed."""
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
    """Offsets of more entities; the new ones own nothing."""
    more = n_entities + 1 - len(offsets_E1)
    return torch.cat([offsets_E1, offsets_E1[-1:].expand(more)])


def _put(old_M: Tensor, slots_N: Tensor, new_N: Tensor) -> Tensor:
    """The new values at their slots, which rise, the old ones in order around them."""
    places = (slots_N - torch.arange(len(slots_N), device=slots_N.device)).tolist()
    pieces = old_M.tensor_split(places)
    each = new_N.split(1) if len(new_N) else ()
    between = [piece for pair in zip(pieces[:-1], each, strict=True) for piece in pair]
    return torch.cat([*between, pieces[-1]])


def known_answers(graph: Graph, ids_B3: Tensor, part: Part) -> tuple[Tensor, Tensor]:
    """(row, answer) of the answers that the graph holds; the asked column is not read."""
    if part == "relation":
        parts = [_relations_between(graph, ids_B3, rows) for rows in _few_edges(graph, ids_B3)]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
    incoming = part == "head"
    adjacency = graph.incoming if incoming else graph.outgoing
    contexts = graph.in_contexts if incoming else graph.out_contexts
    owners_B = ids_B3[:, 2 if incoming else 0]
    # a row of the adjacency is sorted by relation, and its contexts say how many each has
    starts_B = contexts.offsets_E1[owners_B]
    rows_N, entries_N = expand(starts_B, contexts.offsets_E1[owners_B + 1] - starts_B)
    counts_N = contexts.counts_P[entries_N].long()
    before_N = counts_N.cumsum(0) - counts_N
    edges_B = adjacency.degrees_E[owners_B]
    slots_N = (
        adjacency.offsets_E1[owners_B][rows_N] + before_N - (edges_B.cumsum(0) - edges_B)[rows_N]
    )
    here_N = contexts.relations_P[entries_N] == ids_B3[rows_N, 1]
    found_N, slots = expand(slots_N[here_N], counts_N[here_N])
    return rows_N[here_N][found_N], adjacency.neighbours_M[slots].long()


def _few_edges(graph: Graph, ids_B3: Tensor, most: int = 1 << 20) -> tuple[Tensor, ...]:
    """Rows in groups whose heads have about `most` edges in all, so that no look is too large."""
    edges_B = graph.outgoing.degrees_E[ids_B3[:, 0]]
    group_B = (edges_B.cumsum(0) - edges_B) // most
    sizes = torch.bincount(group_B).tolist() if len(group_B) else []
    rows_B = torch.arange(len(ids_B3), device=ids_B3.device)
    groups: tuple[Tensor, ...] = rows_B.split([n for n in sizes if n] or [0])
    return groups


def _relations_between(graph: Graph, ids_B3: Tensor, rows_R: Tensor) -> tuple[Tensor, Tensor]:
    edges, heads_R = graph.outgoing, ids_B3[rows_R, 0]
    rows_N, slots_N = expand(edges.offsets_E1[heads_R], edges.degrees_E[heads_R])
    here_N = edges.neighbours_M[slots_N] == ids_B3[rows_R, 2][rows_N]
    return rows_R[rows_N[here_N]], edges.relations_M[slots_N[here_N]].long()


def holds(graph: Graph, ids_B3: Tensor) -> Tensor:
    """Whether the graph holds each triple; entities beyond its own are in none."""
    inside_B = (ids_B3[:, [0, 2]] < graph.n_entities).all(1)
    if len(ids_B3) <= FEW:  # look at their own edges
        some_B3 = ids_B3[inside_B].long()
        rows_N, tails_N = known_answers(graph, some_B3, "tail")
        found_B = torch.zeros(len(some_B3), dtype=torch.bool, device=ids_B3.device)
        found_B[rows_N[tails_N == some_B3[rows_N, 2]]] = True
        return torch.zeros_like(inside_B).masked_scatter(inside_B, found_B)
    heads_M, edges = owners(graph.outgoing.offsets_E1), graph.outgoing
    if not len(heads_M):
        return torch.zeros_like(inside_B)

    def codes(heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
        return (heads.long() * graph.n_relations + relations) * graph.n_entities + tails

    own_M = codes(heads_M, edges.relations_M, edges.neighbours_M)  # sorted, as edges are
    asked_B = codes(*ids_B3.unbind(1))
    place_B = torch.searchsorted(own_M, asked_B).clamp(max=len(own_M) - 1)
    return inside_B & (own_M[place_B] == asked_B)


def _check(triples_M3: Tensor, n_entities: int, n_relations: int) -> None:
    bounds = torch.tensor([n_entities, n_relations, n_entities], device=triples_M3.device)
    if not ((triples_M3 >= 0) & (triples_M3 < bounds)).all():
        raise ValueError(f"ids out of range for {n_entities} entities, {n_relations} relations")
    (h, r, t), (h2, r2, t2) = triples_M3[:-1].unbind(1), triples_M3[1:].unbind(1)
    if not ((h < h2) | (h == h2) & ((r < r2) | (r == r2) & (t < t2))).all():
        raise ValueError("triples must be sorted and unique: see triples.unique_triples")


def sort_order(keys_M: Tensor, bound: int) -> Tensor:
    """The stable order of keys in [0, bound); one plain sort where key and row fit 63 bits."""
    n = len(keys_M)
    if bound * max(n, 1) >= 1 << 63:
        return keys_M.argsort(stable=True)
    codes_M = keys_M * n + torch.arange(n, device=keys_M.device)
    if codes_M.device.type == "cpu":  # numpy's sort uses the CPU's vector units
        return torch.from_numpy(np.sort(codes_M.numpy())) % max(n, 1)
    return codes_M.sort().values % max(n, 1)


def owners(offsets_E1: Tensor, n_slots: int | None = None) -> Tensor:
    """The entity that owns each slot; where their number is given, no device is waited for."""
    entities_E = torch.arange(len(offsets_E1) - 1, device=offsets_E1.device)
    return entities_E.repeat_interleave(offsets_E1.diff(), output_size=n_slots)


def expand(starts_B: Tensor, sizes_B: Tensor) -> tuple[Tensor, Tensor]:
    """Slots start, start + 1, ... of every row: (row, slot) pairs in row order."""
    rows_N = torch.arange(len(sizes_B), device=sizes_B.device).repeat_interleave(sizes_B)
    ends_B = sizes_B.cumsum(0)
    slots_N = (
        torch.arange(len(rows_N), device=sizes_B.device) + (starts_B - ends_B + sizes_B)[rows_N]
    )
    return rows_N, slots_N


def _offsets(owners_M: Tensor, n_entities: int) -> Tensor:
    counts_E = torch.bincount(owners_M, minlength=n_entities)
    return torch.cat([counts_E.new_zeros(1), counts_E.cumsum(0)])


def _contexts(adjacency: Adjacency, n_relations: int) -> Contexts:
    keys_M = owners(adjacency.offsets_E1) * n_relations + adjacency.relations_M
    keys_P, counts_P = keys_M.unique_consecutive(return_counts=True)
    offsets_E1 = _offsets(keys_P // n_relations, len(adjacency.offsets_E1) - 1)
    return Contexts(offsets_E1, (keys_P % n_relations).int(), counts_P.int())


@dataclass(frozen=True)
class Pairs:
    """Triples by their two entities: pair p has those of order_M from offsets_P1[p] on."""

    pair_M: Tensor  # of each triple
    order_M: Tensor
    offsets_P1: Tensor

    def of_same(self, ids_B: Tensor) -> Tensor:
        """All triples between the entities of these, each once."""
        pairs_B = self.pair_M[ids_B].unique()
        starts_B = self.offsets_P1[pairs_B]
        return self.order_M[expand(starts_B, self.offsets_P1[pairs_B + 1] - starts_B)[1]]

    def flag_same(self, ids_B: Tensor) -> Tensor:
        """The same as a mask over all triples: waits for no device."""
        gone_P = torch.zeros_like(self.offsets_P1[1:], dtype=torch.bool)
        return gone_P.index_fill_(0, self.pair_M[ids_B], True)[self.pair_M]


def by_pair(triples_M3: Tensor, n_entities: int) -> Pairs:
    """Which triples have the same two entities, whichever is the head."""
    ends_M2 = triples_M3[:, [0, 2]].long().sort(1).values
    codes_M = ends_M2[:, 0] * n_entities + ends_M2[:, 1]
    _, pair_M, counts_P = codes_M.unique(return_inverse=True, return_counts=True)
    return Pairs(pair_M, pair_M.argsort(stable=True), F.pad(counts_P.cumsum(0), (1, 0)))
