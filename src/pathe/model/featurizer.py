"""Turns entities into model inputs: their paths, and the contexts of all entities on the paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.tensors import expand
from pathe.core.types import Progress
from pathe.graph.adjacency import Adjacency, Contexts, owners
from pathe.graph.held_out import HeldOut, HeldOutSlots
from pathe.graph.paths import Form, Paths, PathStore, Positions, sample_paths
from pathe.graph.prepared import PreparedGraph
from pathe.model.pathe import EntityBatch, PathE
from pathe.model.projector import Bag, Neighbours, Surroundings

CPU_TOKENS, GPU_TOKENS = 1 << 17, 1 << 20  # tokens per chunk: limits memory, fits CPU caches
PROJECTED = 1 << 16  # entities projected per chunk
TABLE_BYTES = 4 << 30  # limit for one table of all entities; above it, each chunk builds its own


@dataclass(frozen=True)
class Featurizer:
    """Builds model inputs for a graph's entities, from random paths or a store of mined ones."""

    prepared: PreparedGraph
    n_paths: int = 4
    max_hops: int = 10
    form: Form = "joined"
    positions: Positions = "focused"
    store: PathStore | None = None
    neighbour_contexts: bool = False  # also gather the contexts of the entities' neighbours

    def paths(
        self, entities_U: Tensor, seed: int | Tensor, held_out: HeldOut | None = None
    ) -> Paths:
        """Returns paths of the entities that don't use held-out training triples."""
        if self.store is not None:
            return self.store.draw(entities_U, self.n_paths, seed=seed)
        graph, size = self.prepared.graph, (self.n_paths, self.max_hops)
        return sample_paths(graph, entities_U, *size, seed=seed, form=self.form, held_out=held_out)

    def projects_all(self, n_tokens: int) -> bool:
        """Whether to project all entities rather than find those on the paths.

        On a GPU, finding them needs a synchronisation, so projecting all pays for larger graphs.
        """
        per_token = 2 if self.prepared.device.type == "cuda" else 1 / 8
        return n_tokens * per_token >= self.prepared.n_entities

    def contexts(self, entities_V: Tensor | None, held_out: HeldOut | None = None) -> Surroundings:
        """Returns the contexts of sorted entities (None: all), and of neighbours if enabled."""
        graph = self.prepared.graph
        held_in = held_out_ = None
        if held_out is not None:
            if entities_V is not None:
                held_out = HeldOut(held_out.ids())
            held_in, held_out_ = self.prepared.slots.of(held_out)

        def bags(entities: Tensor | None) -> tuple[Bag, Bag]:
            incoming = _bag(graph.in_contexts, entities, held_in)
            return incoming, _bag(graph.out_contexts, entities, held_out_)

        if not self.neighbour_contexts:
            return Surroundings(*bags(entities_V))
        before = _neighbours(graph.incoming, entities_V, held_in)
        after = _neighbours(graph.outgoing, entities_V, held_out_)
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
        held_out: HeldOut | None = None,
        *,
        with_contexts: bool = True,
    ) -> EntityBatch:
        """Returns paths of the entities, and the contexts of all entities on them.

        Tokens index a table of these entities; without contexts, the table of all entities.
        """
        paths = self.paths(entities_U, seed, held_out)
        if entities_U.device.type == "cpu":  # on a GPU it would synchronise
            paths = paths.trim()
        tokens = paths.tokens_UKT
        columns = torch.arange(tokens.shape[-1], device=tokens.device)
        is_relation_T = (columns - paths.focus) % 2 == 1
        n_nodes, entities_V, rows = self.prepared.n_entities, None, tokens
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


@torch.no_grad()
def encode(
    model: PathE,
    featurizer: Featurizer,
    entities_U: Tensor,
    *,
    seed: int,
    chunk: int | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """Encodes the entities for inference, in chunks and without gradients; returns their z."""
    encode_some = chunk_encoder(model, featurizer, len(entities_U), seed=seed)
    parts = []
    for part in entities_U.split(chunk or entities_at_once(featurizer)):
        parts.append(encode_some(part))
        if progress:
            progress(sum(map(len, parts)), len(entities_U))
    return torch.cat(parts)


def entities_at_once(featurizer: Featurizer) -> int:
    """Returns how many entities to encode per chunk."""
    tokens = CPU_TOKENS if featurizer.prepared.device.type == "cpu" else GPU_TOKENS
    return max(tokens // _tokens_each(featurizer), 1)


def _tokens_each(featurizer: Featurizer) -> int:
    """Returns the most tokens that an entity's paths may have."""
    per_path = (4 if featurizer.form == "joined" else 2) * featurizer.max_hops
    return featurizer.n_paths * per_path


@torch.no_grad()
def chunk_encoder(
    model: PathE, featurizer: Featurizer, n_entities: int, *, seed: int
) -> Callable[[Tensor], Tensor]:
    """Returns a function that encodes a chunk of entities, of n_entities in all chunks together."""
    model.eval()
    prepared, table = featurizer.prepared, None
    small = 12 * prepared.n_entities * model.relations.embedding_dim <= TABLE_BYTES
    if small and featurizer.projects_all(n_entities * _tokens_each(featurizer)):  # for all chunks
        entities_E = torch.arange(prepared.n_entities, device=prepared.device)
        nodes = [model.projector(*featurizer.contexts(e)) for e in entities_E.split(PROJECTED)]
        table = model.encoder.table(torch.cat([*nodes, model.relations.weight]))

    @torch.no_grad()
    def encode_some(entities_U: Tensor) -> Tensor:
        batch = featurizer.batch(entities_U, seed, with_contexts=table is None)
        return model.encode(batch, table)

    return encode_some


def _neighbours(
    side: Adjacency, entities_V: Tensor | None, held: HeldOutSlots | None
) -> Neighbours:
    """Returns the neighbours of some entities (None: all) with equal weights, 0 if held out."""
    n_slots = len(side.neighbours_M)
    kept_M = torch.ones(n_slots, device=side.offsets_E1.device)
    if held is not None:
        kept_M[held.slots] = 1.0 - held.times
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


def _bag(contexts: Contexts, entities_V: Tensor | None, held: HeldOutSlots | None) -> Bag:
    """Returns the contexts of sorted entities (None: all) without held-out triples."""
    if entities_V is None:
        counts_P = contexts.counts_P.float()
        if held is not None:
            counts_P.index_add_(0, held.entries, -held.times)
        return Bag(contexts.offsets_E1, contexts.relations_P.long(), counts_P)
    starts_V = contexts.offsets_E1[entities_V]
    sizes_V = contexts.offsets_E1[entities_V + 1] - starts_V
    _, slots_N = expand(starts_V, sizes_V)
    counts_N = contexts.counts_P[slots_N].float()
    if held is not None and len(slots_N):
        place = torch.searchsorted(slots_N, held.entries).clamp(max=len(slots_N) - 1)
        found = slots_N[place] == held.entries  # False: of an entity not requested
        counts_N.index_add_(0, place, -held.times * found)
    offsets_V1 = torch.cat([sizes_V.new_zeros(1), sizes_V.cumsum(0)])
    return Bag(offsets_V1, contexts.relations_P[slots_N].long(), counts_N)
