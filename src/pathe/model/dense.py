"""Bridge scores of queries that reach most entities: states of all entities, without gradients.

Computes the same as `Bridge.links`, which lists the rows that each query has reached. On a CPU,
that costs more than it saves once most entities are reached.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pathe.graph.edges import Edges
from pathe.kernels.dispatch import compiled, kernel

STEP = 32  # dimensions that the kernels compute at once
MOST_NUMBERS = 1 << 25  # of the states of one query


def dense_scores(
    edges: Edges, keep_M: Tensor, sources_B: Tensor, begin_BD: Tensor, weights: Sequence[Tensor],
    takes: Sequence[Tensor], evidence: tuple[Tensor, Tensor, Tensor],
) -> Tensor | None:  # fmt: skip
    """Returns (B, E) scores of all entities; None if another way should be faster.

    `weights` and `takes` are the weights of messages and of updates, per hop; `evidence` is the
    query's part of the hidden layer, and the weights of both layers.
    """
    dim = begin_BD.shape[1]
    tensors = begin_BD, *weights, *takes, *evidence
    if (
        torch.is_grad_enabled()
        or kernel("dense.answer_scores", begin_BD.device.type) is None
        or any(tensor.dtype != torch.float32 for tensor in tensors)
        or dim % STEP
        or not len(sources_B)
        or len(weights) < 3
        or edges.n_entities * dim > MOST_NUMBERS
    ):
        return None
    runs = compiled("dense.runs", "cpu")(edges, keep_M)
    n_near = compiled("dense.near", "cpu")(runs, sources_B, len(weights) // 2)
    if 2 * n_near < len(sources_B) * edges.n_entities:
        return None
    found_BE: Tensor = compiled("dense.answer_scores", "cpu")(
        runs, sources_B, begin_BD, weights, takes, evidence
    )
    return found_BE
