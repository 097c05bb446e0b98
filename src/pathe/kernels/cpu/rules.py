"""Numba kernel of `predict.rules`: a breadth-first search from each head, one relation per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

PARTS = 16


@njit(parallel=True, nogil=True, cache=True)
def _count(starts: Any, offsets: Any, targets: Any, bases: Any, found: Any) -> None:
    """Counts pairs per part: the last of `offsets` is the rule's own relation, from the heads."""
    n, n_steps = offsets.shape[1] - 1, offsets.shape[0] - 1
    for part in prange(PARTS):
        mark, stamp = np.zeros(n, np.int64), 0
        current, following = np.empty(n, np.int64), np.empty(n, np.int64)
        for i in range(part, len(starts), PARTS):
            current[0], size = starts[i], 1
            for step in range(n_steps):
                stamp += 1
                n_new = 0
                for at in range(size):
                    e = current[at]
                    for slot in range(offsets[step, e], offsets[step, e + 1]):
                        target = targets[bases[step] + slot]
                        if mark[target] != stamp:
                            mark[target] = stamp
                            following[n_new] = target
                            n_new += 1
                current, following, size = following, current, n_new
            head = starts[i]
            found[part, 1] += size - (mark[head] == stamp)
            for slot in range(offsets[n_steps, head], offsets[n_steps, head + 1]):
                target = targets[bases[n_steps] + slot]
                found[part, 0] += mark[target] == stamp and target != head


def count(
    edges: Any, kinds: Sequence[int], relation: int, known_heads: bool = False
) -> tuple[int, int]:
    """Returns how many pairs a relation sequence connects that also have the relation, and all."""
    n = len(edges.offsets_E1) - 1
    steps = [_step(edges, kind, n) for kind in (*kinds, relation)]
    sizes = torch.tensor([0, *(len(targets) for _, targets in steps)])
    offsets, targets = torch.stack([o for o, _ in steps]), torch.cat([t for _, t in steps])
    starts_E = steps[0][0].diff() > 0
    if known_heads:
        starts_E &= steps[-1][0].diff() > 0
    starts = starts_E.nonzero().squeeze(1)
    found = np.zeros((PARTS, 2), np.int64)
    _count(starts.numpy(), offsets.numpy(), targets.numpy(), sizes.cumsum(0).numpy(), found)
    support, connected = found.sum(0).tolist()
    return support, connected


def _step(edges: Any, kind: int, n: int) -> tuple[Tensor, Tensor]:
    """Returns offsets and targets of the edges of one kind, by source entity.

    Edges are stored by target, so these are the inverse relation's, followed backwards.
    """
    inverse = (kind + edges.n_relations) % (2 * edges.n_relations)
    slots = edges.relations_M == inverse
    counts_E = torch.bincount(edges.owners_M[slots], minlength=n)
    offsets_E1 = torch.nn.functional.pad(counts_E.cumsum(0), (1, 0))
    return offsets_E1, edges.neighbours_M[slots].long()
