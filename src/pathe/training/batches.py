"""Batches of training triples that can be resumed exactly, and the unique entities of a batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pathe.core.config import Config
from pathe.core.randomness import keyed
from pathe.model.builder import BATCHES


class Batches:
    """Yields (triple ids, epoch, batch number), shuffled every epoch.

    A batch is split evenly among `world` processes. It counts as done once it was trained on
    (`finish`), not once it was fetched, so a run resumes exactly, even within an epoch.
    """

    def __init__(
        self,
        n_triples: int,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        device: torch.device | str = "cpu",
        *,
        limit: int = 0,
    ) -> None:
        """Takes the triples per epoch as `limit`; 0 stands for all."""
        self.limit = min(limit, n_triples) or n_triples
        self.n_triples, self.batch_size, self.seed = n_triples, batch_size, seed
        self.rank, self.world, self.device = rank, world, device
        self.epoch, self.done = 0, 0
        self._order = -1, torch.empty(0, dtype=torch.long)  # of an epoch

    def __len__(self) -> int:
        return -(-self.limit // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, int, int]]:
        over = self.done >= len(self)
        epoch, first = (self.epoch + 1, 0) if over else (self.epoch, self.done)
        for place in range(first, len(self)):
            batch = self.whole(epoch, place)
            share = batch[self.rank :: self.world]
            share = share if len(share) else batch[:1]  # every process needs at least one
            yield share, epoch, place

    def whole(self, epoch: int, place: int) -> Tensor:
        """Returns a batch before it is split among processes."""
        if self._order[0] != epoch:
            order = keyed(self.seed, BATCHES, epoch, torch.arange(self.n_triples)).argsort()
            self._order = epoch, order[: self.limit].to(self.device)
        return self._order[1][place * self.batch_size :][: self.batch_size]

    def finish(self, epoch: int, place: int) -> None:
        """Marks this batch as trained on."""
        self.epoch, self.done = epoch, place + 1

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.done = state["epoch"], state["done"]


def n_steps(config: Config, n_triples: int) -> int:
    """Returns the batches per epoch."""
    return -(-(min(config.epoch_triples, n_triples) or n_triples) // config.batch_size)


def distinct_exactly(ids_N: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the unique ids, and the row of each id among them."""
    ids_U, rows_N = ids_N.unique(return_inverse=True)
    return ids_U, rows_N


def distinct_padded(ids_N: Tensor) -> tuple[Tensor, Tensor]:
    """Returns `distinct_exactly`, padded with id 0 to a fixed length: no GPU synchronisation."""
    sorted_N, order_N = ids_N.sort()
    is_first_N = torch.ones_like(sorted_N)
    is_first_N[1:] = sorted_N[1:] != sorted_N[:-1]
    row_N = is_first_N.cumsum(0) - 1
    ids_U = torch.zeros_like(ids_N).scatter_(0, row_N, sorted_N)
    return ids_U, torch.empty_like(row_N).scatter_(0, order_N, row_N)
