"""Aggregators, which combine an entity's path vectors into its vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pathe.model.encoder import EncoderLayer


class Aggregator(nn.Module):
    """The interface: `forward` turns x_UKD, a vector per path, into z, a row per entity."""

    pairwise = False  # whether it needs the paths of both entities of a pair together

    def pair(self, heads: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the (B, D) vectors of pairs from their rows of z."""
        return heads, tails

    def vectors(self, z: Tensor) -> Tensor:
        """Returns one vector per entity from rows of z."""
        return z


class MeanAggregator(Aggregator):
    """The average of an entity's path vectors."""

    def forward(self, x_UKD: Tensor) -> Tensor:
        return x_UKD.mean(1)


class LSTMAggregator(Aggregator):
    """The last states of a bidirectional LSTM over an entity's path vectors."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(dim, dim // 2, batch_first=True, bidirectional=True)

    def forward(self, x_UKD: Tensor) -> Tensor:
        last = self.lstm(x_UKD)[1][0]
        return torch.cat([last[0], last[1]], -1)


class TransformerAggregator(Aggregator):
    """A learned token attends to an entity's path vectors; its output is the entity's vector."""

    def __init__(self, dim: int, n_layers: int, dropout: float, n_tokens: int = 1) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(n_tokens, dim).mul_(0.02))
        self.layers = nn.ModuleList(EncoderLayer(dim, 1, dim, dropout) for _ in range(n_layers))

    def forward(self, x_UKD: Tensor) -> Tensor:
        return self._read(x_UKD)[:, 0]

    def _read(self, x_UKD: Tensor) -> Tensor:
        n_tokens = len(self.tokens)
        x = torch.cat([self.tokens.expand(len(x_UKD), -1, -1), x_UKD], 1)
        mask = x.new_ones(x.shape[:2], dtype=torch.bool)
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, EncoderLayer)
            queries = x[:, :n_tokens] if i == len(self.layers) - 1 else x
            x = layer(queries, layer.key(x), layer.value(x), mask)
        return x[:, :n_tokens]


class JointAggregator(TransformerAggregator):
    """Two learned tokens attend to the paths of head and tail together (as in the paper's text).

    So z keeps a vector per path, and entities get vectors only as a pair.
    """

    pairwise = True

    def __init__(self, dim: int, n_layers: int, dropout: float) -> None:
        super().__init__(dim, n_layers, dropout, n_tokens=2)

    def forward(self, x_UKD: Tensor) -> Tensor:
        return x_UKD

    def pair(self, heads: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
        marked = torch.cat([heads + self.tokens[0], tails + self.tokens[1]], 1)
        head_BD, tail_BD = self._read(marked).unbind(1)
        return head_BD, tail_BD

    def vectors(self, z: Tensor) -> Tensor:
        return z.mean(1)
