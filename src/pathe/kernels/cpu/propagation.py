"""Numba kernels of `model.propagation`: each row gathers messages along its edges."""

from __future__ import annotations

from typing import Any

from numba import njit, prange
from torch import Tensor

from pathe.kernels.cpu.rows import add_product, arrays

_FAST = {"contract", "reassoc", "nsz", "arcp"}


@njit(parallel=True, nogil=True, cache=True, fastmath=_FAST)
def _propagate(
    x: Any, weights: Any, row: Any, queries: Any, entities: Any, offsets: Any, neighbours: Any,
    relations: Any, keep: Any, out: Any,
) -> None:  # fmt: skip
    n_rows = len(x)
    for a in prange(out.shape[0]):
        b, v, total = queries[a], entities[a], out[a]
        if v < 0:
            continue
        for slot in range(offsets[v], offsets[v + 1]):
            source = row[b, neighbours[slot]]
            if keep[slot] and 0 <= source < n_rows:
                add_product(total, x[source], weights[b, relations[slot]])


@njit(parallel=True, nogil=True, cache=True, fastmath=_FAST)
def _propagate_weights(
    x: Any, grad: Any, row: Any, offsets: Any, neighbours: Any, relations: Any, keep: Any, out: Any
) -> None:
    n_rows = len(x)
    for b in prange(out.shape[0]):
        for v in range(row.shape[1]):
            a = row[b, v]
            if not 0 <= a < grad.shape[0]:
                continue
            target_grad = grad[a]
            for slot in range(offsets[v], offsets[v + 1]):
                source = row[b, neighbours[slot]]
                if keep[slot] and 0 <= source < n_rows:
                    add_product(out[b, relations[slot]], x[source], target_grad)


def propagate(
    x_AD: Tensor, weights_BRD: Tensor, edges: Any, keep_M: Tensor, reached: Any, n_out: int
) -> Tensor:
    """Returns the messages summed at each of the first n_out rows."""
    out_OD = x_AD.new_zeros(n_out, x_AD.shape[1])
    _propagate(
        *arrays(x_AD, weights_BRD, reached.row_BE, reached.queries_A, reached.entities_A),
        *arrays(edges.offsets_E1, edges.neighbours_M, edges.relations_M, keep_M, out_OD),
    )
    return out_OD


def propagate_weights(
    x_AD: Tensor, grad_OD: Tensor, edges: Any, keep_M: Tensor, reached: Any
) -> Tensor:
    """Returns the gradient of the weights, from that of the summed messages."""
    shape = len(reached.row_BE), 2 * edges.n_relations, x_AD.shape[1]
    out_BRD = x_AD.new_zeros(shape)
    _propagate_weights(
        *arrays(x_AD, grad_OD, reached.row_BE, edges.offsets_E1, edges.neighbours_M),
        *arrays(edges.relations_M, keep_M, out_BRD),
    )
    return out_BRD
