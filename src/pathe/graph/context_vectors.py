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
    any_1W = signs(keyed(ANY)[None].to(prepared.device))
    own_EW = signs(keyed(ENTITY, entity_keys_E))
    kinds_KW = torch.cat([signs(keyed(way, relation_keys_R)) for way in (INTO, OUT_OF)])
    first_EW = _arriving(prepared, any_1W + OWN * own_EW, kinds_KW)
    second_EW = _arriving(prepared, first_EW, kinds_KW)
    return torch.cat([first_EW, second_EW], 1) / 2**0.5


def signs(states_N: Tensor) -> Tensor:
    """Returns (N, WIDTH) random signs."""
    words_NV = draw(states_N[:, None], torch.arange(WIDTH // 64, device=states_N.device))
    bits_NVB = words_NV[..., None] >> torch.arange(64, device=states_N.device) & 1
    return (2 * bits_NVB.flatten(1) - 1).float()


def _arriving(prepared: PreparedGraph, sent_EW: Tensor, kinds_KW: Tensor) -> Tensor:
    """Returns what arrives at each entity, at length 1.

    For each kind of edge, the mean message of its sources is multiplied by the kind's signs and by
    log1p(count). Rotating messages distinguishes paths with the same kinds in another order.
    """
    edges, index = prepared.edges, prepared.arrivals
    counts_M = index.counts(edges.keep())[index.entry_M]
    weights_M, sent_EW = counts_M.log1p() / counts_M, sent_EW.roll(1, 1)
    found_EW = torch.zeros_like(sent_EW)
    for slots in torch.arange(len(counts_M), device=sent_EW.device).split(SLOTS):
        sent_NW = sent_EW[edges.neighbours_M[slots].long()] * weights_M[slots, None]
        sent_NW *= kinds_KW[edges.relations_M[slots].long()]
        found_EW.index_add_(0, edges.owners_M[slots].long(), sent_NW)
    return F.normalize(found_EW, dim=1)
