"""Vectors of entities that need no model: a random projection of an entity's neighbourhood.

An entity is described by the kinds of its edges and by the entities at their other ends. Each name
stands for a vector of random signs that depends on nothing but the name. So vectors have the same
width for every graph, and entities with the same surroundings have the same vector in every graph.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.randomness import draw, keyed
from pathe.graph.prepared import PreparedGraph

WIDTH = 128  # numbers per half of a vector
OWN = 2.0  # weight of a neighbour's own signs, beside those that all entities share
SLOTS = 1 << 13  # edges that are added at once
ANY, ENTITY, INTO, OUT_OF = range(4)  # purposes of signs


@torch.no_grad()
def context_vectors(
    prepared: PreparedGraph, entity_keys_E: Tensor, relation_keys_R: Tensor
) -> Tensor:
    """Returns (E, 2 * WIDTH) vectors of length 1; zeros for entities without training triples.

    Keys stand for names, see `name_keys`. The first half of a vector says which kinds of edges
    arrive at the entity, and from where; the second says the same of its neighbours.
    """
    first_EW = arriving(prepared, own_signs(entity_keys_E), relation_keys_R)
    second_EW = arriving(prepared, first_EW, relation_keys_R)
    return both_halves(first_EW, second_EW)


def both_halves(first_UW: Tensor, second_UW: Tensor) -> Tensor:
    """Returns vectors of length 1 of what arrives from neighbours, and from theirs."""
    return torch.cat([first_UW, second_UW], 1) / 2**0.5


def own_signs(entity_keys_E: Tensor) -> Tensor:
    """Returns (E, WIDTH) what entities send first: signs of their own and signs of all."""
    any_1W = signs(keyed(ANY)[None].to(entity_keys_E.device))
    return any_1W + OWN * signs(keyed(ENTITY, entity_keys_E))


def signs(states_N: Tensor) -> Tensor:
    """Returns (N, WIDTH) random signs."""
    words_NV = draw(states_N[:, None], torch.arange(WIDTH // 64, device=states_N.device))
    bits_NVB = words_NV[..., None] >> torch.arange(64, device=states_N.device) & 1
    return (2 * bits_NVB.flatten(1) - 1).float()


@torch.no_grad()
def arriving(
    prepared: PreparedGraph,
    sent_EW: Tensor,
    relation_keys_R: Tensor,
    entities: tuple[int, int] | None = None,
) -> Tensor:
    """Returns what arrives at each entity, or at a range of them, at length 1.

    For each kind of edge, the mean message of its sources is multiplied by the kind's signs and by
    log1p(count). Rotating messages distinguishes paths with the same kinds in another order.
    """
    edges, index = prepared.edges, prepared.arrivals
    kinds_KW = torch.cat([signs(keyed(way, relation_keys_R)) for way in (INTO, OUT_OF)])
    first, last = entities or (0, edges.n_entities)
    begin, end = edges.offsets_E1[[first, last]].tolist()
    entries_N = index.entry_M[begin:end]  # those of an entity follow each other
    entry = int(entries_N.min()) if len(entries_N) else 0
    counts_P = torch.bincount(entries_N - entry).float()
    found_UW = sent_EW.new_zeros(last - first, sent_EW.shape[1])
    for slots in torch.arange(begin, end, device=sent_EW.device).split(SLOTS):
        counts_N = counts_P[index.entry_M[slots] - entry]
        weights_N1 = (counts_N.log1p() / counts_N)[:, None]
        sent_NW = sent_EW[edges.neighbours_M[slots].long()].roll(1, 1) * weights_N1
        sent_NW *= kinds_KW[edges.relations_M[slots].long()]
        found_UW.index_add_(0, edges.owners_M[slots].long() - first, sent_NW)
    return F.normalize(found_UW, dim=1)
