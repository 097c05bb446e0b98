"""Scores with what the paths between a question and its answers add, where a model has bridges."""

from __future__ import annotations

import torch
from torch import Tensor

from pathe.encoding import Describer
from pathe.known import Side
from pathe.model import PathE


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

    Questions are (entity, relation); a question asked twice is looked at once.
    """
    if model.bridge is None:
        return scores
    assert describe.edges is not None
    kinds_B = relations_B if side == "tail" else relations_B + model.n_relations
    codes_U, rows_B = (fixed_B * 2 * model.n_relations + kinds_B).unique(return_inverse=True)
    sources_U, kinds_U = codes_U // (2 * model.n_relations), codes_U % (2 * model.n_relations)
    keep_M = describe.edges.without()
    found_UE = model.bridge.links(describe.edges, keep_M, sources_U, kinds_U)
    if answers_BN is None:
        return scores + found_UE[rows_B]
    return scores + found_UE.flatten()[rows_B[:, None] * found_UE.shape[1] + answers_BN]


def bridge_relations(
    model: PathE,
    describe: Describer,
    scores_BR: Tensor,
    heads_B: Tensor,
    tails_B: Tensor,
    held_out_ids: Tensor | None = None,
) -> Tensor:
    """Scores of all relations between heads and tails."""
    if model.bridge is None:
        return scores_BR
    assert describe.edges is not None
    keep_M = describe.edges.without(held_out_ids)
    return scores_BR + model.bridge.pairs(describe.edges, keep_M, heads_B, tails_B)


def bridge_bytes(model: PathE, n_entities: int) -> int:
    """Memory that one question takes at most, when nothing is learned from it."""
    if model.bridge is None:
        return 0
    return 4 * n_entities * 10 * model.bridge.asked.embedding_dim


def sorted_questions(triples_M3: Tensor, side: Side) -> Tensor:
    """An order of triples in which equal questions follow each other."""
    column = 0 if side == "tail" else 2
    top = int(triples_M3[:, 1].max()) + 1 if len(triples_M3) else 1
    return torch.argsort(triples_M3[:, column] * top + triples_M3[:, 1], stable=True)
