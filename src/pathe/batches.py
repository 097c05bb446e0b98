"""Batches of training triples that resume exactly, and the distinct entities of a batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pathe.builder import BATCHES
from pathe.randomness import keyed


class Batches:
    """Ids of training triples in batches, shuffled anew each epoch, with (epoch, place) of each.

    A batch is cut into equal shares for `world` processes. What counts as done is what was trained
    on (`finish`), not what was fetched: so a run resumes exactly, within an epoch and between two.
    """

    def __init__(
        self,
        n_triples: int,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        self.n_triples, self.batch_size, self.seed = n_triples, batch_size, seed
        self.rank, self.world, self.device = rank, world, device
        self.epoch, self.done = 0, 0

    def __len__(self) -> int:
        return -(-self.n_triples // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, int, int]]:
        over = self.done >= len(self)
        epoch, first = (self.epoch + 1, 0) if over else (self.epoch, self.done)
        order = keyed(self.seed, BATCHES, epoch, torch.arange(self.n_triples)).argsort()
        order = order.to(self.device)
        for place in range(first, len(self)):
            batch = order[place * self.batch_size :][: self.batch_size]
            share = batch[self.rank :: self.world]
            yield share if len(share) else batch[:1], epoch, place  # no process may sit it out

    def finish(self, epoch: int, place: int) -> None:
        """Remembers that this batch was trained on."""
        self.epoch, self.done = epoch, place + 1

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.done = state["epoch"], state["done"]


def distinct_exactly(ids_N: Tensor) -> tuple[Tensor, Tensor]:
    """(distinct ids, each one's row among them)."""
    ids_U, rows_N = ids_N.unique(return_inverse=True)
    return ids_U, rows_N


def distinct_padded(ids_N: Tensor) -> tuple[Tensor, Tensor]:
    """The same, filled up with id 0 to the length of ids_N, so that no GPU waits for a count."""
    sorted_N, order_N = ids_N.sort()
    is_first_N = torch.ones_like(sorted_N)
    is_first_N[1:] = sorted_N[1:] != sorted_N[:-1]
    row_N = is_first_N.cumsum(0) - 1
    ids_U = torch.zeros_like(ids_N).scatter_(0, row_N, sorted_N)
    return ids_U, torch.empty_like(row_N).scatter_(0, order_N, row_N)
