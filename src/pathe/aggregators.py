"""Aggregators: an entity's path vectors -> its vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pathe.encoder import EncoderLayer


class MeanAggregator(nn.Module):
    """The average of an entity's path vectors."""

    def forward(self, x_UKD: Tensor) -> Tensor:
        return x_UKD.mean(1)


class LSTMAggregator(nn.Module):
    """The last states of a bidirectional LSTM over an entity's path vectors."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(dim, dim // 2, batch_first=True, bidirectional=True)

    def forward(self, x_UKD: Tensor) -> Tensor:
        last = self.lstm(x_UKD)[1][0]
        return torch.cat([last[0], last[1]], -1)


class TransformerAggregator(nn.Module):
    """A learned token reads an entity's path vectors; its output is the entity's vector.

    With two tokens (`joint`) it reads the paths of a head and of a tail at once, each marked by
    its own token, and gives a vector for either.
    """

    def __init__(self, dim: int, n_layers: int, dropout: float, n_tokens: int = 1) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(n_tokens, dim) * 0.02)
        self.layers = nn.ModuleList(EncoderLayer(dim, 1, dim, dropout) for _ in range(n_layers))

    def forward(self, x_UKD: Tensor) -> Tensor:
        return self._read(x_UKD)[:, 0]

    def joint(self, heads_BKD: Tensor, tails_BKD: Tensor) -> tuple[Tensor, Tensor]:
        """(head, tail) vectors of pairs, each seen in the light of the other."""
        marked = torch.cat([heads_BKD + self.tokens[0], tails_BKD + self.tokens[1]], 1)
        head_BD, tail_BD = self._read(marked).unbind(1)
        return head_BD, tail_BD

    def _read(self, x_UKD: Tensor) -> Tensor:
        n_tokens = len(self.tokens)
        x = torch.cat([self.tokens.expand(len(x_UKD), -1, -1), x_UKD], 1)
        mask = x.new_ones(x.shape[:2], dtype=torch.bool)
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, EncoderLayer)
            asking = x[:, :n_tokens] if i == len(self.layers) - 1 else x
            x = layer(asking, layer.key(x), layer.value(x), mask)
        return x[:, :n_tokens]
