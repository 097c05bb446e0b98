"""Numba kernels of `model.attention`: one pass per path, which reads table rows in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

PARTS = 4  # partial sums of key and value gradients: fixed, so results don't depend on threads
_FAST = {"contract", "reassoc", "nsz", "arcp"}


@njit(parallel=True, nogil=True, cache=True, fastmath=_FAST)
def _read(
    query: Any, keys: Any, values: Any, tokens: Any, bias: Any, keep: Any, out: Any, weights: Any
) -> None:
    n_paths, n_heads, size = query.shape
    n_tokens = tokens.shape[1]
    for n in prange(n_paths):
        for h in range(n_heads):
            top = np.float32(-np.inf)
            for t in range(n_tokens):
                if tokens[n, t] >= 0:
                    key = keys[tokens[n, t], h]
                    score = np.float32(0)
                    for s in range(size):
                        score += query[n, h, s] * key[s]
                    score += bias[n, h, t]
                    weights[n, h, t] = score
                    top = max(top, score)
            total = np.float32(0)
            for t in range(n_tokens):
                if tokens[n, t] >= 0:
                    weights[n, h, t] = np.exp(weights[n, h, t] - top)
                    total += weights[n, h, t]
            for t in range(n_tokens):
                if tokens[n, t] >= 0:
                    weights[n, h, t] /= total
                    share = weights[n, h, t] * keep[n, h, t]
                    value = values[tokens[n, t], h]
                    for s in range(size):
                        out[n, h, s] += share * value[s]


@njit(parallel=True, nogil=True, cache=True, fastmath=_FAST)
def _read_backward(
    query: Any, keys: Any, values: Any, tokens: Any, keep: Any, weights: Any,
    grad_read: Any, grad_weights: Any,
    grad_query: Any, grad_score: Any, grad_keys: Any, grad_values: Any,
) -> None:  # fmt: skip
    n_paths, n_heads, size = query.shape
    n_tokens, n_parts = tokens.shape[1], grad_keys.shape[0]
    for part in prange(n_parts):
        for n in range(part * n_paths // n_parts, (part + 1) * n_paths // n_parts):
            for h in range(n_heads):
                dot = np.float32(0)
                for t in range(n_tokens):
                    if tokens[n, t] >= 0:
                        value = values[tokens[n, t], h]
                        sums = grad_values[part, tokens[n, t], h]
                        share = weights[n, h, t] * keep[n, h, t]
                        grad = np.float32(0)
                        for s in range(size):
                            grad += grad_read[n, h, s] * value[s]
                            sums[s] += share * grad_read[n, h, s]
                        grad = grad * keep[n, h, t] + grad_weights[n, h, t]
                        grad_score[n, h, t] = grad
                        dot += grad * weights[n, h, t]
                for t in range(n_tokens):
                    if tokens[n, t] >= 0:
                        grad = weights[n, h, t] * (grad_score[n, h, t] - dot)
                        grad_score[n, h, t] = grad
                        key = keys[tokens[n, t], h]
                        sums = grad_keys[part, tokens[n, t], h]
                        for s in range(size):
                            grad_query[n, h, s] += grad * key[s]
                            sums[s] += grad * query[n, h, s]


def read(
    query_NHS: Tensor, keys_VHS: Tensor, values_VHS: Tensor, tokens_NT: Tensor,
    bias_NHT: Tensor, keep_NHT: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns (read_NHS, weights_NHT), the weights before dropout by `keep`."""
    read_NHS, weights_NHT = torch.zeros_like(query_NHS), torch.zeros_like(bias_NHT)
    given = (query_NHS, keys_VHS, values_VHS, tokens_NT, bias_NHT, keep_NHT)
    _read(*(x.detach().numpy() for x in (*given, read_NHS, weights_NHT)))
    return read_NHS, weights_NHT


def read_backward(
    query_NHS: Tensor, keys_VHS: Tensor, values_VHS: Tensor, tokens_NT: Tensor, keep_NHT: Tensor,
    weights_NHT: Tensor, grad_read_NHS: Tensor, grad_weights_NHT: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Returns the gradients of query, keys, values and bias, summed in a fixed order."""
    grad_query_NHS, grad_score_NHT = torch.zeros_like(query_NHS), torch.zeros_like(weights_NHT)
    grad_keys, grad_values = query_NHS.new_zeros(2, PARTS, *keys_VHS.shape)
    given = (query_NHS, keys_VHS, values_VHS, tokens_NT, keep_NHT, weights_NHT)
    grads = (grad_read_NHS, grad_weights_NHT)
    found = (grad_query_NHS, grad_score_NHT, grad_keys, grad_values)
    _read_backward(*(x.detach().numpy() for x in (*given, *grads, *found)))
    return grad_query_NHS, grad_keys.sum(0), grad_values.sum(0), grad_score_NHT
