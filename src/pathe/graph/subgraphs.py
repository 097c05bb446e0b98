"""Random connected subgraphs, to train on graphs of many sizes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pathe.graph.adjacency import Graph

Ids = npt.NDArray[np.int64]
NEIGHBOURS = 50  # of an entity that are followed at most, so that hubs don't fill a subgraph


def sample_subgraph(graph: Graph, n_entities: int, seed: int) -> Tensor:
    """Returns the triples among about n_entities entities around a random one.

    Neighbourhoods grow hop by hop, from another random entity where they end early. Entities and
    relations keep their ids.
    """
    rng = np.random.default_rng(seed)
    degrees_E = graph.degrees_E.numpy()
    present_N = degrees_E.nonzero()[0]
    chosen_E = np.zeros(len(degrees_E), dtype=bool)
    wanted, frontier = min(n_entities, len(present_N)), np.empty(0, dtype=np.int64)
    while (room := wanted - int(chosen_E.sum())) > 0:
        found = _neighbours(graph, frontier, rng)
        found = np.unique(found[~chosen_E[found]])
        if not len(found):
            found = rng.choice(present_N[~chosen_E[present_N]], 1)
        frontier = rng.permutation(found)[:room]
        chosen_E[frontier] = True
    inside_E, triples_M3 = torch.from_numpy(chosen_E), graph.triples_M3
    return triples_M3[inside_E[triples_M3[:, [0, 2]].long()].all(1)]


def _neighbours(graph: Graph, entities_F: Ids, rng: np.random.Generator) -> Ids:
    """Returns neighbours of entities in both directions, a random part of those of a hub."""
    found = [np.empty(0, dtype=np.int64)]
    for side in (graph.outgoing, graph.incoming):
        offsets_E1, neighbours_M = side.offsets_E1.numpy(), side.neighbours_M.numpy()
        starts_F, sizes_F = (
            offsets_E1[entities_F],
            offsets_E1[entities_F + 1] - offsets_E1[entities_F],
        )
        few_F = sizes_F <= NEIGHBOURS
        slots = np.repeat(
            starts_F[few_F] - sizes_F[few_F].cumsum() + sizes_F[few_F], sizes_F[few_F]
        )
        found.append(neighbours_M[slots + np.arange(len(slots))])
        picks = rng.random((int((~few_F).sum()), NEIGHBOURS)) * sizes_F[~few_F, None]
        found.append(neighbours_M[starts_F[~few_F, None] + picks.astype(np.int64)].ravel())
    return np.concatenate(found).astype(np.int64)


def vary_relations(triples_M3: Tensor, seed: int) -> Tensor:
    """Returns the triples with other relations: a similar graph with another schema.

    Half of the relations are flipped. Some are split in two, merged with another one, or left out;
    some get a copy, flipped or not, with a part of their triples. Triples are unsorted, and may
    repeat.
    """
    rng = np.random.default_rng((seed, 1))
    triples = triples_M3.numpy().astype(np.int64)
    n = int(triples[:, 1].max()) + 1
    relations = triples[:, 1].copy()

    def chosen(share: float) -> npt.NDArray[np.bool_]:
        """Whether the relation of each triple is among a random share of them."""
        among: npt.NDArray[np.bool_] = (rng.random(n) < share)[relations]
        return among

    kept = ~chosen(0.1)
    merged = rng.permutation(n)
    new = np.where(chosen(0.1), merged[relations], relations)
    new = np.where(chosen(0.15) & (rng.random(len(triples)) < 0.5), new + n, new)  # split
    copied = chosen(0.2) & (rng.random(len(triples)) < rng.uniform(0.2, 1.0, n)[relations])
    flips = chosen(0.5)
    heads, tails = np.where(flips, triples[:, [2, 0]].T, triples[:, [0, 2]].T)
    copies = np.stack([heads, relations + 2 * n, tails], 1)
    turned = (rng.random(n) < 0.7)[relations]
    copies[turned] = copies[turned][:, [2, 1, 0]]
    varied = np.concatenate([np.stack([heads, new, tails], 1)[kept], copies[copied]])
    return torch.from_numpy(varied if len(varied) else triples)
