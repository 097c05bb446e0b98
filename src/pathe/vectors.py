"""The vectors of a graph's entities: made once, kept, and made anew where new facts touch them."""

from __future__ import annotations

import torch
from torch import Tensor

from pathe.encoding import Describer, Progress, encode
from pathe.known import Side
from pathe.model import PathE

FEW = 64  # entities that are encoded by themselves, before all are


class Vectors:
    """z of all entities, and what they bring as answers, for a graph that may grow."""

    def __init__(self, model: PathE, describe: Describer, seed: int) -> None:
        self.model, self.describe, self.seed = model, describe, seed
        self._z: Tensor | None = None
        self._candidates: dict[Side, Tensor] = {}
        self._stale: Tensor | None = None  # which rows are older than the graph; None: none

    @property
    def all(self) -> Tensor:
        """z_E as it is kept, encoded when first asked for."""
        if self._z is None:
            self.warm()
        assert self._z is not None
        return self._z

    def warm(self, progress: Progress | None = None) -> None:
        """Encodes every entity now."""
        graph = self.describe.graph
        everyone_E = torch.arange(graph.n_entities, device=graph.device)
        self._z, self._candidates = self._encode(everyone_E, progress), {}
        self._stale = None

    def refresh(self) -> None:
        """Forgets what is older than the graph, if anything is."""
        if self._stale is not None:
            self._z, self._candidates, self._stale = None, {}, None

    @torch.no_grad()
    def candidates(self, side: Side) -> Tensor:
        """What all entities bring as answers on a side."""
        if side not in self._candidates:
            self._candidates[side] = self.model.candidates(self.all, side)
        return self._candidates[side]

    def current(self, entities_B: Tensor) -> Tensor:
        """z of entities that are asked about, up to date."""
        if self._z is None and len(entities_B) <= FEW:
            some_U, rows_B = entities_B.unique(return_inverse=True)
            return self._encode(some_U)[rows_B]
        z_E = self.all
        if self._stale is not None:
            self._update(entities_B[self._stale[entities_B]].unique())
        return z_E[entities_B]

    def flat(self, entities_U: Tensor | None = None) -> Tensor:
        """One row of numbers an entity, for some that are asked about or for all."""
        z = self.all if entities_U is None else self.current(entities_U)
        return z.mean(1) if self.model.joint else z

    @torch.no_grad()
    def nearest(self, entity: int, k: int) -> tuple[Tensor, list[float]]:
        """The k others whose vectors point most nearly the same way, and how nearly (cosine)."""
        z_E = self.flat()
        own_1D = self.flat(torch.tensor([entity], device=z_E.device)).to(z_E)
        near_E = torch.nn.functional.cosine_similarity(z_E, own_1D)
        near_E[entity] = float("-inf")
        best = near_E.topk(min(k, len(near_E) - 1))
        return best.indices.cpu(), best.values.tolist()

    def grow(self, describe: Describer, changed_U: Tensor) -> None:
        """Takes a larger graph; entities that changed are encoded at once, others if asked."""
        self.describe, n = describe, describe.graph.n_entities
        if self._z is None:
            return
        self._z = _lengthen(self._z, n)
        self._candidates = {side: _lengthen(rows, n) for side, rows in self._candidates.items()}
        self._stale = torch.ones(n, dtype=torch.bool, device=self._z.device)
        self._update(changed_U)

    @torch.no_grad()
    def _update(self, entities_U: Tensor) -> None:
        assert self._z is not None
        assert self._stale is not None
        if len(entities_U):
            self._z[entities_U] = self._encode(entities_U)
            for side, rows in self._candidates.items():
                rows[entities_U] = self.model.candidates(self._z[entities_U], side)
            self._stale[entities_U] = False

    def _encode(self, entities_U: Tensor, progress: Progress | None = None) -> Tensor:
        return encode(self.model, self.describe, entities_U, seed=self.seed, progress=progress)


def _lengthen(rows_E: Tensor, n: int) -> Tensor:
    return torch.cat([rows_E, rows_E.new_zeros((n - len(rows_E), *rows_E.shape[1:]))])
