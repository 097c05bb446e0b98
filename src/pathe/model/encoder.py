"""The path encoder: a Transformer over a path's tokens that returns its focus token's vector."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pathe.graph.paths import N_POSITIONS
from pathe.model.attention import attend
from pathe.model.packed import Packing, attend_among, pack, pick


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Applies dropout; on a CPU faster than F.dropout: four masks per 64-bit random number."""
    if not training or p == 0 or x.device.type != "cpu":
        return F.dropout(x, p, training)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
    keep = bits.view(torch.int16)[: x.numel()].view(x.shape) >= round(p * (1 << 16)) - (1 << 15)
    return x * (keep * (1 / (1 - p)))


class EncoderLayer(nn.Module):
    """A post-norm Transformer encoder layer that may have fewer queries than keys."""

    def __init__(self, dim: int, n_heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, feedforward), nn.Linear(feedforward, dim)
        for linear in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        nn.init.zeros_(self.out.bias)

    def forward(self, x_NQD: Tensor, key_NTD: Tensor, value_NTD: Tensor, mask_NT: Tensor) -> Tensor:
        """Returns Q tokens after attention over T keys and values; mask_NT is False for padding."""
        # not F.scaled_dot_product_attention, whose fused kernels don't suit many short paths
        query, key, value = (
            self.split(y).transpose(1, 2) for y in (self.query(x_NQD), key_NTD, value_NTD)
        )
        scores = query @ key.transpose(-1, -2) * self.scale
        scores = scores.masked_fill(~mask_NT[:, None, None, :], float("-inf"))
        read = self.drop(scores.softmax(-1)) @ value
        return self.finish(x_NQD, read.transpose(1, 2).flatten(2))

    def among(self, x_QD: Tensor, tokens_MD: Tensor, asking_N1: Tensor, packing: Packing) -> Tensor:
        """Computes `forward` for packed paths: each query attends to its own path's tokens."""
        read_QHS = attend_among(
            self.split(self.query(x_QD)),
            self.split(self.key(tokens_MD)),
            self.split(self.value(tokens_MD)),
            asking_N1,
            packing,
            self.dropout if self.training else 0.0,
        )
        return self.finish(x_QD, read_QHS.flatten(1))

    def finish(self, x: Tensor, read: Tensor) -> Tensor:
        """Applies the rest of the layer: residual connections, norms and the feed-forward part."""
        x = self.norm_1(x + self.drop(self.out(read)))
        fed = self.down(self.drop(F.relu(self.up(x))))
        normed: Tensor = self.norm_2(x + self.drop(fed))
        return normed

    @property
    def scale(self) -> float:
        return float((self.query.out_features // self.n_heads) ** -0.5)

    def split(self, y: Tensor) -> Tensor:
        """Returns (..., D) as (..., heads, width of a head)."""
        return y.view(*y.shape[:-1], self.n_heads, y.shape[-1] // self.n_heads)

    def drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)


@dataclass(frozen=True)
class Table:
    """Vectors of all tokens with the first layer's keys and values, computed once."""

    rows_VD: Tensor
    keys_VHS: Tensor
    values_VHS: Tensor


class PathEncoder(nn.Module):
    """Encodes paths as their focus token's vector.

    Two shortcuts leave the result the same: the first layer's keys and values are linear in token +
    position, so they are computed once per distinct token and position; the last layer's only
    query is the focus.
    """

    def __init__(
        self, dim: int, n_heads: int, n_layers: int, feedforward: int, dropout: float
    ) -> None:
        super().__init__()
        self.positions = nn.Embedding(N_POSITIONS, dim)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.layers = nn.ModuleList(
            EncoderLayer(dim, n_heads, feedforward, dropout) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(dim)

    def table(self, rows_VD: Tensor) -> Table:
        """Returns the table of these token vectors."""
        layer = self.layers[0]
        assert isinstance(layer, EncoderLayer)
        keys, values = (
            layer.split(F.linear(rows_VD, part.weight)) for part in (layer.key, layer.value)
        )
        return Table(rows_VD, keys, values)

    def forward(self, table: Table, tokens_NT: Tensor, positions: Tensor, focus: int) -> Tensor:
        """Returns (N, D) focus vectors.

        tokens_NT are rows of the table, -1 for padding; positions (T, or N x T) count from 1.
        """
        places = positions.clamp(min=1) - 1  # any value will do for padding, which is masked
        if len(self.layers) == 1:
            encoded_ND = self._single(table, tokens_NT, places, focus)
        else:
            encoded_ND = self._stacked(table, tokens_NT, places, focus)
        normed: Tensor = self.norm(encoded_ND)
        return normed

    def _single(self, table: Table, tokens_NT: Tensor, places: Tensor, focus: int) -> Tensor:
        """Computes one layer: attention over table rows, with positions as a bias."""
        layer = self.layers[0]
        assert isinstance(layer, EncoderLayer)
        own = places.dim() > 1  # each path has its own positions
        at = self.positions.weight if own else self.positions(places)
        # one block-diagonal product for all heads
        keys, values = (
            torch.block_diag(*layer.split(part(at)).unbind(1)) for part in (layer.key, layer.value)
        )
        x_ND = F.embedding(tokens_NT[:, focus].long(), table.rows_VD)
        x_ND = x_ND + self.positions(places[..., focus])
        query_ND = layer.query(x_ND) * layer.scale
        bias_NHT = layer.split(F.linear(query_ND, keys))
        if own:
            own_NHT = places[:, None].expand(-1, layer.n_heads, -1)
            bias_NHT = bias_NHT.gather(2, own_NHT)
        keep_NHT = layer.drop(torch.ones_like(bias_NHT))
        read_NHS, weights_NHT = attend(
            layer.split(query_ND), table.keys_VHS, table.values_VHS, tokens_NT, bias_NHT, keep_NHT
        )
        if own:
            by_place = weights_NHT.new_zeros(*weights_NHT.shape[:2], N_POSITIONS)
            weights_NHT = by_place.scatter_add(2, own_NHT, weights_NHT)
        read_ND = read_NHS.flatten(1) + weights_NHT.flatten(1) @ values
        return layer.finish(x_ND, read_ND)

    def _stacked(self, table: Table, tokens_NT: Tensor, places: Tensor, focus: int) -> Tensor:
        """Computes several layers: all tokens are queries, except in the last layer."""
        mask_NT = tokens_NT >= 0
        packing = pack(mask_NT)
        x_MD = pick(table.rows_VD, tokens_NT[mask_NT].long())
        x_MD = x_MD + pick(self.positions.weight, places.expand_as(tokens_NT)[mask_NT])
        focus_N = packing.offsets_N1[:-1] + mask_NT[:, :focus].sum(1)
        each_N1 = torch.arange(len(tokens_NT) + 1, device=tokens_NT.device)
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, EncoderLayer)
            last = i == len(self.layers) - 1
            asking_QD = x_MD[focus_N] if last else x_MD
            x_MD = layer.among(asking_QD, x_MD, each_N1 if last else packing.offsets_N1, packing)
        return x_MD
