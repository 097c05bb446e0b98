"""Entities -> z: sample their paths, gather the contexts on them, run the encoder once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pathe.graph import Contexts, Graph, Tensors, expand
from pathe.model import Bag, EntityBatch, PathE
from pathe.paths import Form, Paths, PathStore, Positions, mine_paths, sample_paths
from pathe.propagation import Edges, both_ways

CPU_TOKENS, GPU_TOKENS = 1 << 17, 1 << 20  # encoded at once: bounds the memory, suits the caches
PROJECTED = 1 << 16  # entities projected at once
TABLE_BYTES = 4 << 30  # a table of all entities takes at most this; else each chunk has its own
Progress = Callable[[int, int], None]  # (done, total)


@dataclass(frozen=True)
class ContextSlots(Tensors):
    """The context entry in which each training triple is counted, as an out- and as an in-edge."""

    outgoing_M: Tensor
    incoming_M: Tensor


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

    def on(self, graph: Graph) -> Describer:
        """The same for a graph that has grown; mined paths are for the old one."""
        return replace(self, graph=graph, edges=both_ways(graph) if self.edges else None)

    def paths(
        self, entities_U: Tensor, seed: int | Tensor, held_out_ids: Tensor | None = None
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
            held_out=held_out_ids,
        )

    def projects_all(self, n_tokens: int) -> bool:
        """Whether projecting every entity costs less than finding those on the paths.

        A GPU would wait for their number, so there it takes a larger graph.
        """
        per_token = 2 if self.graph.device.type == "cuda" else 1 / 8
        return n_tokens * per_token >= self.graph.n_entities

    def contexts(
        self, entities_V: Tensor | None, held_out_ids: Tensor | None = None
    ) -> tuple[Bag, Bag]:
        """Contexts of some entities, sorted, or of all: incoming, outgoing."""
        without: tuple[Tensor | None, Tensor | None] = (None, None)
        if held_out_ids is not None:
            assert self.slots is not None
            without = (self.slots.incoming_M[held_out_ids], self.slots.outgoing_M[held_out_ids])
        return (
            _bag(self.graph.in_contexts, entities_V, without[0]),
            _bag(self.graph.out_contexts, entities_V, without[1]),
        )

    def batch(
        self,
        entities_U: Tensor,
        seed: int | Tensor,
        held_out_ids: Tensor | None = None,
        *,
        with_contexts: bool = True,
    ) -> EntityBatch:
        """Paths of the entities and the contexts of all entities on them, tokens as table rows.

        Without contexts the table is that of all entities.
        """
        paths = self.paths(entities_U, seed, held_out_ids)
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
            self.contexts(entities_V, held_out_ids) if with_contexts else None,
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
) -> Describer:
    """A describer with the store (n_mined > 0), slots (hold_out) and edges that it needs."""
    store = mine_paths(graph, n_mined, max_hops, seed=seed, form=form) if n_mined else None
    slots = context_slots(graph) if hold_out else None
    edges = both_ways(graph) if bridges else None
    return Describer(graph, n_paths, max_hops, form, positions, store, slots, edges)


def context_slots(graph: Graph) -> ContextSlots:
    """The context entry of each training triple, in both directions."""

    def slots(contexts: Contexts, triples_M: Tensor) -> Tensor:
        entries_P = torch.arange(len(contexts.counts_P), device=triples_M.device)
        entry_M = entries_P.repeat_interleave(contexts.counts_P)
        return torch.empty_like(entry_M).index_copy_(0, triples_M.long(), entry_M)

    return ContextSlots(
        slots(graph.out_contexts, graph.outgoing.triples_M),
        slots(graph.in_contexts, graph.incoming.triples_M),
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


def _bag(contexts: Contexts, entities_V: Tensor | None, without: Tensor | None) -> Bag:
    """The contexts of some entities, sorted, or of all, less one count for each entry `without`."""
    if entities_V is None:
        counts_P = contexts.counts_P.float()
        if without is not None:
            counts_P.index_add_(0, without, counts_P.new_full((len(without),), -1.0))
        return Bag(contexts.offsets_E1, contexts.relations_P.long(), counts_P)
    starts_V = contexts.offsets_E1[entities_V]
    sizes_V = contexts.offsets_E1[entities_V + 1] - starts_V
    _, slots_N = expand(starts_V, sizes_V)
    counts_N = contexts.counts_P[slots_N].float()
    if without is not None and len(slots_N):
        place = torch.searchsorted(slots_N, without).clamp(max=len(slots_N) - 1)
        here = (slots_N[place] == without).float()  # or of an entity that isn't asked for
        counts_N.index_add_(0, place, -here)
    offsets_V1 = torch.cat([sizes_V.new_zeros(1), sizes_V.cumsum(0)])
    return Bag(offsets_V1, contexts.relations_P[slots_N].long(), counts_N)
