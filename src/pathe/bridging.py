"""Scores with what the paths between a question and its answers add, where a model has bridges."""

from __future__ import annotations

import torch
from torch import Tensor

from pathe.encoding import Describer
from pathe.known import Side
from pathe.machine import free_memory
from pathe.model import PathE

CACHE = 4 << 20  # bytes of states


def bridge_links(
    model: PathE,
    describe: Describer,
    scores: Tensor,
    fixed_B: Tensor,
    relations_B: Tensor,
    side: Side,
    answers_BN: Tensor | None = None,
) -> Tensor:
    """Scores of all entities (B, E), or of the answers given (B, N), as answers on `side`.

    Questions are (entity, relation); a question asked twice is looked at once, and no more of them
    together than memory allows.
    """
    if model.bridge is None:
        return scores
    assert describe.edges is not None
    kinds_B = relations_B if side == "tail" else relations_B + model.n_relations
    codes_U, rows_B = (fixed_B * 2 * model.n_relations + kinds_B).unique(return_inverse=True)
    sources_U, kinds_U = codes_U // (2 * model.n_relations), codes_U % (2 * model.n_relations)
    keep_M, few = describe.edges.without(), _at_once(model, describe)
    scores = scores.clone()
    for first in range(0, len(codes_U), few):
        part = slice(first, first + few)
        found_FE = model.bridge.links(describe.edges, keep_M, sources_U[part], kinds_U[part])
        rows_K = ((rows_B >= first) & (rows_B < first + few)).nonzero().squeeze(1)
        places_K = rows_B[rows_K] - first
        if answers_BN is None:
            scores[rows_K] += found_FE[places_K]
        else:
            scores[rows_K] += found_FE[places_K[:, None], answers_BN[rows_K]]
    return scores


def bridge_relations(
    model: PathE,
    describe: Describer,
    scores_BR: Tensor,
    heads_B: Tensor,
    tails_B: Tensor,
) -> Tensor:
    """Scores of all relations between heads and tails."""
    if model.bridge is None:
        return scores_BR
    assert describe.edges is not None
    keep_M, few = describe.edges.without(), _at_once(model, describe)
    found = [
        model.bridge.pairs(describe.edges, keep_M, heads, tails)
        for heads, tails in zip(heads_B.split(few), tails_B.split(few), strict=True)
    ]
    return scores_BR + torch.cat(found)


def _at_once(model: PathE, describe: Describer) -> int:
    """How many questions to look at together: on a CPU those whose states stay in its cache."""
    assert model.bridge is not None
    device = describe.graph.device
    room = CACHE if device.type == "cpu" else free_memory(device) // 40  # with what is in between
    states = 4 * describe.graph.n_entities * model.bridge.asked.embedding_dim  # at most
    return int(max(room // states, 1))


def sorted_questions(triples_M3: Tensor, side: Side) -> Tensor:
    """An order of triples in which equal questions follow each other."""
    column = 0 if side == "tail" else 2
    top = int(triples_M3[:, 1].max()) + 1 if len(triples_M3) else 1
    return torch.argsort(triples_M3[:, column] * top + triples_M3[:, 1], stable=True)
