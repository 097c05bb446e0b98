"""A cache of the vectors of a graph's entities, encoded when first needed."""

from __future__ import annotations

import torch
from torch import Tensor

from pathe.core.types import Progress, Side
from pathe.model.featurizer import Featurizer, encode
from pathe.model.pathe import PathE

MISSING, STALE, FRESH = 0, 1, 2


class EntityVectors:
    """Caches z and the head's candidates for a graph that may grow.

    A row is fresh, stale (encoded before triples were added) or missing. A query's own entities are
    always fresh; candidates may be stale until `refresh`.
    """

    _z: Tensor | None
    _candidates: dict[Side, Tensor]
    _state_E: Tensor
    _complete: bool  # no row is missing
    _all_fresh: bool  # no row is missing or stale

    def __init__(self, model: PathE, featurizer: Featurizer, seed: int) -> None:
        self.model, self.featurizer, self.seed = model, featurizer, seed
        self._reset()

    def rows(self, entities: Tensor) -> Tensor:
        """Returns fresh z of some entities, in the shape of their ids."""
        self.ensure(entities)
        assert self._z is not None
        return self._z[entities]

    def ensure(self, entities: Tensor, progress: Progress | None = None) -> None:
        """Encodes those entities that are missing or stale."""
        if not self._all_fresh:
            flat_B = entities.flatten()
            self._encode(flat_B[self._state_E[flat_B] != FRESH].unique(), progress)

    def all(self, progress: Progress | None = None) -> Tensor:
        """Returns z of every entity; rows may be stale."""
        if not self._complete:
            self._encode((self._state_E == MISSING).nonzero().squeeze(1), progress)
            self._complete = True
            self._all_fresh = bool((self._state_E == FRESH).all())
        assert self._z is not None
        return self._z

    @torch.no_grad()
    def candidates(self, side: Side) -> Tensor:
        """Returns the head's candidates for a side; rows of missing entities are zero."""
        if side not in self._candidates:
            assert self._z is not None
            self._candidates[side] = self.model.head.candidates(self._z, side)
        return self._candidates[side]

    def flat(self, entities_U: Tensor | None = None) -> Tensor:
        """Returns one vector per entity, for some entities or for all."""
        z = self.all() if entities_U is None else self.rows(entities_U)
        return self.model.aggregator.vectors(z)

    @torch.no_grad()
    def nearest(self, entity: int, k: int) -> tuple[Tensor, list[float]]:
        """Returns the k other entities of highest cosine similarity, and their similarities."""
        z_E = self.flat()
        own_1D = self.flat(torch.tensor([entity], device=z_E.device)).to(z_E)
        near_E = torch.nn.functional.cosine_similarity(z_E, own_1D)
        near_E[entity] = float("-inf")
        best = near_E.topk(min(k, len(near_E) - 1))
        return best.indices.cpu(), best.values.tolist()

    def grow(self, featurizer: Featurizer, changed_U: Tensor) -> None:
        """Switches to a larger graph; encodes changed entities now, others when queried."""
        n, state_E = featurizer.prepared.n_entities, self._state_E
        self.featurizer = featurizer
        if self._z is None:
            self._reset()
            return
        self._state_E = _lengthen(state_E.clamp(max=STALE), n)
        self._z = _lengthen(self._z, n)
        self._candidates = {side: _lengthen(rows, n) for side, rows in self._candidates.items()}
        self._all_fresh = False
        if self._complete:  # new entities are among those that changed
            self._encode(changed_U)

    def refresh(self) -> None:
        """Clears the cache if any row is stale."""
        if bool((self._state_E == STALE).any()):
            self._reset()

    def _reset(self) -> None:
        prepared = self.featurizer.prepared
        self._z, self._candidates = None, {}
        self._state_E = torch.zeros(prepared.n_entities, dtype=torch.int8, device=prepared.device)
        self._complete = self._all_fresh = False

    @torch.no_grad()
    def _encode(self, entities_U: Tensor, progress: Progress | None = None) -> None:
        """Encodes some entities (unique and sorted) into their rows."""
        if self._z is not None and not len(entities_U):
            return
        z_U = encode(self.model, self.featurizer, entities_U, seed=self.seed, progress=progress)
        if len(entities_U) == len(self._state_E):
            self._z, self._candidates = z_U, {}
        else:
            if self._z is None:
                self._z = z_U.new_zeros(len(self._state_E), *z_U.shape[1:])
            self._z[entities_U] = z_U
            for side, rows in self._candidates.items():
                rows[entities_U] = self.model.head.candidates(z_U, side)
        self._state_E[entities_U] = FRESH


def _lengthen(rows_E: Tensor, n: int) -> Tensor:
    return torch.cat([rows_E, rows_E.new_zeros((n - len(rows_E), *rows_E.shape[1:]))])
