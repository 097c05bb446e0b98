"""Entities -> z: sample their paths, gather the contexts on them, run the encoder once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.graph import Adjacency, Contexts, Graph, Tensors, expand, owners, with_both
from pathe.model import Bag, EntityBatch, Neighbours, PathE, Surroundings
from pathe.paths import Form, Paths, PathStore, Positions, mine_paths, sample_paths
from pathe.propagation import Edges, both_ways

CPU_TOKENS, GPU_TOKENS = 1 << 17, 1 << 20  # encoded at once: bounds the memory, suits the caches
PROJECTED = 1 << 16  # entities projected at once
TABLE_BYTES = 4 << 30  # a table of all entities takes at most this; else each chunk has its own
Progress = Callable[[int, int], None]  # (done, total)


@dataclass(frozen=True)
class ContextSlots(Tensors):
    """Where each training triple is, as an out- and as an in-edge."""

    outgoing_M: Tensor  # the context entry that counts it
    incoming_M: Tensor
    out_places_M: Tensor  # its slot in the adjacency
    in_places_M: Tensor

    def of(self, held_out: Tensor) -> tuple[_Gone, _Gone]:
        """Where some triples are (a mask over all, or ids): as in-edges, as out-edges."""
        sides = (self.incoming_M, self.in_places_M), (self.outgoing_M, self.out_places_M)
        if held_out.dtype == torch.bool:
            incoming, outgoing = (_Gone(*side, held_out.float()) for side in sides)
        else:
            once = torch.ones_like(held_out, dtype=torch.float32)
            incoming, outgoing = (_Gone(e[held_out], s[held_out], once) for e, s in sides)
        return incoming, outgoing


class _Gone(NamedTuple):
    """Context entries and adjacency slots of triples, and how often each is held out: 0 or 1."""

    entries: Tensor
    slots: Tensor
    times: Tensor


@dataclass(frozen=True)
class Describer:
    """How entities of one graph are described: fresh paths, or draws from a mined store."""

    graph: Graph
    n_paths: int = 4
    max_hops: int = 10
    form: Form = "joined"
    positions: Positions = "focused"
    store: PathStore | None = None
    slots: ContextSlots | None = None  # needed to hold triples out
    edges: Edges | None = None  # needed for bridges
    refine: bool = False  # contexts take in those of the neighbours

    def on(self, graph: Graph) -> Describer:
        """The same for a graph that has grown; mined paths are for the old one."""
        if self.form == "mixed":
            graph = with_both(graph)
        return replace(self, graph=graph, edges=both_ways(graph) if self.edges else None)

    def paths(
        self, entities_U: Tensor, seed: int | Tensor, held_out: Tensor | None = None
    ) -> Paths:
        """Paths of the entities that avoid the held-out training triples."""
        if self.store is not None:
            return self.store.draw(entities_U, self.n_paths, seed=seed)
        return sample_paths(
            self.graph,
            entities_U,
            self.n_paths,
            self.max_hops,
            seed=seed,
            form=self.form,
            held_out=held_out,
        )

    def projects_all(self, n_tokens: int) -> bool:
        """Whether projecting every entity costs less than finding those on the paths.

        A GPU would wait for their number, so there it takes a larger graph.
        """
        per_token = 2 if self.graph.device.type == "cuda" else 1 / 8
        return n_tokens * per_token >= self.graph.n_entities

    def contexts(self, entities_V: Tensor | None, held_out: Tensor | None = None) -> Surroundings:
        """Contexts of some entities, sorted, or of all; refined, those of their neighbours, too."""
        graph = self.graph
        gone_in = gone_out = None
        if held_out is not None:
            assert self.slots is not None
            if held_out.dtype == torch.bool and entities_V is not None:
                held_out = held_out.nonzero().squeeze(1)
            gone_in, gone_out = self.slots.of(held_out)

        def bags(entities: Tensor | None) -> tuple[Bag, Bag]:
            incoming = _bag(graph.in_contexts, entities, gone_in)
            return incoming, _bag(graph.out_contexts, entities, gone_out)

        if not self.refine:
            return Surroundings(*bags(entities_V))
        before = _neighbours(graph.incoming, entities_V, gone_in)
        after = _neighbours(graph.outgoing, entities_V, gone_out)
        if entities_V is None:
            return Surroundings(*bags(None), None, (before, after))
        ids = torch.cat([entities_V, before.rows_P, after.rows_P])
        entities_W, rows = ids.unique(return_inverse=True)
        sizes = [len(entities_V), len(before.rows_P), len(after.rows_P)]
        own_V, rows_before, rows_after = rows.split(sizes)
        sides = replace(before, rows_P=rows_before), replace(after, rows_P=rows_after)
        return Surroundings(*bags(entities_W), own_V, sides)

    def batch(
        self,
        entities_U: Tensor,
        seed: int | Tensor,
        held_out: Tensor | None = None,
        *,
        with_contexts: bool = True,
    ) -> EntityBatch:
        """Paths of the entities and the contexts of all entities on them, tokens as table rows.

        Without contexts the table is that of all entities. `held_out`: training triples that are
        not to be read, as a mask over all of them or as their ids.
        """
        paths = self.paths(entities_U, seed, held_out)
        if entities_U.device.type == "cpu":  # elsewhere it would wait for the device
            paths = paths.trim()
        tokens = paths.tokens_UKT
        columns = torch.arange(tokens.shape[-1], device=tokens.device)
        is_relation_T = (columns - paths.focus) % 2 == 1
        n_nodes, entities_V, rows = self.graph.n_entities, None, tokens
        if with_contexts and not self.projects_all(tokens.numel()):
            entities_V, inverse = torch.where(is_relation_T, 0, tokens).unique(return_inverse=True)
            n_nodes, rows = len(entities_V), inverse.int()
        rows = torch.where(is_relation_T, tokens + n_nodes, rows)
        return EntityBatch(
            self.contexts(entities_V, held_out) if with_contexts else None,
            rows.masked_fill_(~paths.mask_UKT, -1),
            paths.positions(self.positions),
            paths.focus,
        )


def describer(
    graph: Graph,
    *,
    n_paths: int,
    max_hops: int,
    form: Form,
    positions: Positions,
    n_mined: int = 0,
    seed: int = 0,
    hold_out: bool = False,
    bridges: bool = False,
    refine: bool = False,
) -> Describer:
    """A describer with the store (n_mined > 0), slots (hold_out) and edges that it needs."""
    if form == "mixed":
        graph = with_both(graph)
    store = mine_paths(graph, n_mined, max_hops, seed=seed, form=form) if n_mined else None
    slots = context_slots(graph) if hold_out else None
    edges = both_ways(graph) if bridges else None
    return Describer(graph, n_paths, max_hops, form, positions, store, slots, edges, refine)


def context_slots(graph: Graph) -> ContextSlots:
    """The context entry of each training triple, in both directions."""

    def slots(contexts: Contexts, triples_M: Tensor) -> Tensor:
        entries_P = torch.arange(len(contexts.counts_P), device=triples_M.device)
        entry_M = entries_P.repeat_interleave(contexts.counts_P)
        return torch.empty_like(entry_M).index_copy_(0, triples_M.long(), entry_M)

    def places(triples_M: Tensor) -> Tensor:
        slots_M = torch.arange(len(triples_M), device=triples_M.device)
        return torch.empty_like(slots_M).index_copy_(0, triples_M.long(), slots_M)

    return ContextSlots(
        slots(graph.out_contexts, graph.outgoing.triples_M),
        slots(graph.in_contexts, graph.incoming.triples_M),
        places(graph.outgoing.triples_M),
        places(graph.incoming.triples_M),
    )


@torch.no_grad()
def encode(
    model: PathE,
    describe: Describer,
    entities_U: Tensor,
    *,
    seed: int,
    chunk: int | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """z of the entities for use, not for training: a chunk at a time, without gradients."""
    model.eval()
    graph = describe.graph
    per_entity = describe.n_paths * (4 if describe.form == "joined" else 2) * describe.max_hops
    tokens = CPU_TOKENS if graph.device.type == "cpu" else GPU_TOKENS
    chunk = chunk or max(tokens // per_entity, 1)
    table = None
    small = 12 * graph.n_entities * model.relations.embedding_dim <= TABLE_BYTES
    if small and describe.projects_all(len(entities_U) * per_entity):  # once for all chunks
        everyone_E = torch.arange(graph.n_entities, device=graph.device)
        nodes = [model.projector(*describe.contexts(e)) for e in everyone_E.split(PROJECTED)]
        table = model.encoder.table(torch.cat([*nodes, model.relations.weight]))
    parts = []
    for part in entities_U.split(chunk):
        batch = describe.batch(part, seed, with_contexts=table is None)
        parts.append(model.encode(batch, table))
        if progress:
            progress(sum(map(len, parts)), len(entities_U))
    return torch.cat(parts)


def _neighbours(side: Adjacency, entities_V: Tensor | None, gone: _Gone | None) -> Neighbours:
    """Neighbours of some entities or of all, by their ids, each with an equal share.

    Those behind slots that are gone have none.
    """
    n_slots = len(side.neighbours_M)
    kept_M = torch.ones(n_slots, device=side.offsets_E1.device)
    if gone is not None:
        kept_M[gone.slots] = 1.0 - gone.times
    before_M1 = F.pad(kept_M.cumsum(0, dtype=torch.float64), (1, 0))
    share_E = 1 / before_M1[side.offsets_E1].diff().clamp(min=1)
    if entities_V is None:
        weights_M = kept_M * share_E.float()[owners(side.offsets_E1, n_slots)]
        return Neighbours(side.offsets_E1, side.neighbours_M.long(), weights_M)
    sizes_V = side.degrees_E[entities_V]
    rows_P, slots_P = expand(side.offsets_E1[entities_V], sizes_V)
    weights_P = kept_M[slots_P] * share_E.float()[entities_V][rows_P]
    offsets_V1 = F.pad(sizes_V.cumsum(0), (1, 0))
    return Neighbours(offsets_V1, side.neighbours_M[slots_P].long(), weights_P)


def _bag(contexts: Contexts, entities_V: Tensor | None, gone: _Gone | None) -> Bag:
    """The contexts of some entities, sorted, or of all, less what is gone."""
    if entities_V is None:
        counts_P = contexts.counts_P.float()
        if gone is not None:
            counts_P.index_add_(0, gone.entries, -gone.times)
        return Bag(contexts.offsets_E1, contexts.relations_P.long(), counts_P)
    starts_V = contexts.offsets_E1[entities_V]
    sizes_V = contexts.offsets_E1[entities_V + 1] - starts_V
    _, slots_N = expand(starts_V, sizes_V)
    counts_N = contexts.counts_P[slots_N].float()
    if gone is not None and len(slots_N):
        place = torch.searchsorted(slots_N, gone.entries).clamp(max=len(slots_N) - 1)
        here = slots_N[place] == gone.entries  # or of an entity that isn't asked for
        counts_N.index_add_(0, place, -gone.times * here)
    offsets_V1 = torch.cat([sizes_V.new_zeros(1), sizes_V.cumsum(0)])
    return Bag(offsets_V1, contexts.relations_P[slots_N].long(), counts_N)
