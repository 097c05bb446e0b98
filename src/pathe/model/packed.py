"""Self-attention within paths of different lengths, packed without padding.

Most paths are far shorter than the longest, so padded layers would mostly compute padding. Here the
M tokens of N paths are concatenated; path n has tokens offsets_N1[n] to offsets_N1[n + 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pathe.kernels.dispatch import compiled, kernel

LENGTHS = (8, 16, 32, 64)  # upper bounds of the groups of similar length
COPIED_ROWS = 1 << 18  # rows of the copied table in `pick`


@dataclass(frozen=True)
class Packing:
    """The offsets of each path's tokens, and the paths in groups of similar length."""

    offsets_N1: Tensor
    groups: list[tuple[Tensor, int]]  # (paths, greatest length among them)


def pack(mask_NT: Tensor) -> Packing:
    """Returns the packing of the tokens where the mask is True."""
    lengths_N = mask_NT.sum(1)
    offsets_N1 = F.pad(lengths_N.cumsum(0), (1, 0))
    kinds_N = torch.bucketize(lengths_N, lengths_N.new_tensor(LENGTHS))
    order_N = kinds_N.argsort(stable=True)
    longest_K = lengths_N.new_zeros(len(LENGTHS) + 1).scatter_reduce(0, kinds_N, lengths_N, "amax")
    sizes_K = torch.bincount(kinds_N, minlength=len(LENGTHS) + 1)
    sizes, longest = torch.stack([sizes_K, longest_K]).tolist()  # one synchronisation
    parts = order_N.split(sizes)
    groups = [(p, n) for p, n in zip(parts, longest, strict=True) if len(p)]
    return Packing(offsets_N1, groups)


def pick(table_VD: Tensor, rows_M: Tensor) -> Tensor:
    """Returns table[rows]; on a GPU from several copies of the table.

    The backward pass sums the gradients of a row one by one, so a relation on a million tokens
    would hold up all others. Copies share that work.
    """
    copies = COPIED_ROWS // max(len(table_VD), COPIED_ROWS >> 8)
    if table_VD.device.type == "cpu" or copies < 2:
        return F.embedding(rows_M, table_VD)
    copy_M = torch.arange(len(rows_M), device=rows_M.device) % copies
    return F.embedding(rows_M + len(table_VD) * copy_M, table_VD.repeat(copies, 1))


def attend_among(
    query_QHS: Tensor, key_MHS: Tensor, value_MHS: Tensor, asking_N1: Tensor, packing: Packing,
    dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """Returns the attention outputs (Q, H, S) of each query over the tokens of its path.

    Path n has the queries asking_N1[n] to asking_N1[n + 1].
    """
    parts = (query_QHS, key_MHS, value_MHS)
    if kernel("packed.read", query_QHS.device.type) is None or query_QHS.dtype == torch.float64:
        return attend_among_plain(*parts, asking_N1, packing, dropout)
    # large, so that Triton always compiles it as a 64-bit number
    seed = int(torch.randint(1 << 33, 1 << 62, ())) if dropout else 1 << 33
    read: Tensor = _AttendAmong.apply(*parts, asking_N1, packing, dropout, seed)  # type: ignore[no-untyped-call]
    return read


def attend_among_plain(
    query_QHS: Tensor, key_MHS: Tensor, value_MHS: Tensor, asking_N1: Tensor, packing: Packing,
    dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """Computes `attend_among` in plain PyTorch, each group padded to its longest path."""
    scale = query_QHS.shape[-1] ** -0.5
    found, places = [query_QHS[:0]], [asking_N1[:0]]
    for paths_G, longest in packing.groups:
        asks_GT, asked_GT = _spans(asking_N1, paths_G, longest)
        reads_GT, real_GT = _spans(packing.offsets_N1, paths_G, longest)
        query, key, value = query_QHS[asks_GT], key_MHS[reads_GT], value_MHS[reads_GT]
        scores = torch.einsum("gqhs,gths->ghqt", query, key) * scale
        scores = scores.masked_fill(~real_GT[:, None, None, :], float("-inf"))
        weights = F.dropout(scores.softmax(-1), dropout)
        found.append(torch.einsum("ghqt,gths->gqhs", weights, value)[asked_GT])
        places.append(asks_GT[asked_GT])
    return torch.cat(found)[torch.cat(places).argsort()]


def _spans(offsets_N1: Tensor, paths_G: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Returns each path's indices, padded with the first, and a mask that is False for padding."""
    first_G, last_G = offsets_N1[paths_G], offsets_N1[paths_G + 1]
    longest = min(longest, int((last_G - first_G).max()))
    places_GT = first_G[:, None] + torch.arange(longest, device=first_G.device)
    real_GT = places_GT < last_G[:, None]
    return torch.where(real_GT, places_GT, first_G[:, None]), real_GT


class _AttendAmong(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, asking_N1: Tensor, packing: Packing,
        dropout: float, seed: int,
    ) -> Tensor:  # fmt: skip
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        read: Tensor = compiled("packed.read", query.device.type)(
            query, key, value, asking_N1, packing.offsets_N1, packing.groups, dropout, seed
        )
        ctx.save_for_backward(query, key, value, asking_N1, packing.offsets_N1)
        ctx.rest = packing.groups, dropout, seed
        return read

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_QHS: Tensor) -> tuple[Tensor | None, ...]:
        read_backward = compiled("packed.read_backward", grad_QHS.device.type)
        grads = read_backward(grad_QHS.contiguous(), *ctx.saved_tensors, *ctx.rest)
        return (*grads, None, None, None, None)
