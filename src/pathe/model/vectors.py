"""A cache of the vectors of a graph's entities, encoded when first needed."""

from __future__ import annotations

import threading
from copy import copy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pathe.core.types import Progress, Side
from pathe.model.featurizer import Featurizer, encode
from pathe.model.pathe import PathE


@dataclass(frozen=True)
class _Rows:
    """Vectors that were encoded so far. Never changed: a later state is another one."""

    z: Tensor  # a row per entity that was needed
    row_E: Tensor  # its row, or -1
    fresh_U: Tensor | None = None  # which rows are fresh; None: all
    candidates: dict[Side, Tensor] = field(default_factory=dict)  # of the same rows
    complete: bool = False  # every entity has a row, in order
    all_fresh: bool = False  # and it is fresh

    def stale(self, entities: Tensor) -> Tensor:
        """Returns those of the entities that have no fresh row, sorted; ignores negative ids."""
        ids_B = entities.flatten()
        ids_B = ids_B[ids_B >= 0]
        rows_B = self.row_E[ids_B]
        stale_B = rows_B < 0
        if self.fresh_U is not None:
            stale_B = ~self.fresh_U[rows_B] | stale_B
        stale: Tensor = ids_B[stale_B].unique()
        return stale

    def in_order(self) -> _Rows:
        """Returns the rows of all entities, in the order of their ids."""
        order_E = self.row_E
        return _Rows(
            self.z[order_E],
            _numbers(order_E),
            None if self.fresh_U is None else self.fresh_U[order_E],
            {side: rows[order_E] for side, rows in self.candidates.items()},
        )


class EntityVectors:
    """Caches z and the head's candidates for a graph that may change.

    Only entities that were needed have a row, which is stale if the graph has changed since. The
    entities of a query are always fresh; candidates may be stale until `refresh`.

    Threads can share it: each works on the rows as they were when it asked. What is missing is
    encoded by one thread at a time; what is there is read without a lock.
    """

    def __init__(self, model: PathE, featurizer: Featurizer, seed: int) -> None:
        self.model, self.featurizer, self.seed = model, featurizer, seed
        self._encoding = threading.RLock()
        self._now = self._empty()

    def copy(self) -> EntityVectors:
        """Returns a cache with the same rows; changes of one don't change the other."""
        other = copy(self)
        other._encoding = threading.RLock()
        return other

    def rows(self, entities: Tensor) -> Tensor:
        """Returns fresh z of some entities, in the shape of their ids."""
        found = self._with(entities)
        return found.z[found.row_E[entities]]

    def ensure(self, entities: Tensor, progress: Progress | None = None) -> None:
        """Encodes those of the entities that are missing or stale; ignores negative ids."""
        self._with(entities, progress)

    def all(self, progress: Progress | None = None) -> Tensor:
        """Returns z of every entity, in the order of their ids; rows may be stale."""
        return self._all(progress).z

    def candidates(self, side: Side, entities: Tensor | None = None) -> Tensor:
        """Returns the head's candidates of all entities, or of some in the shape of their ids."""
        found = self._all() if entities is None else self._with(entities)
        if side not in found.candidates:  # two threads may both compute them
            with torch.no_grad():
                found.candidates[side] = self.model.head.candidates(found.z, side)
        rows = found.candidates[side]
        return rows if entities is None else rows[found.row_E[entities]]

    def flat(self, entities_U: Tensor | None = None) -> Tensor:
        """Returns one vector per entity, for some entities or for all."""
        z = self.all() if entities_U is None else self.rows(entities_U)
        return self.model.aggregator.vectors(z)

    def take(self, featurizer: Featurizer, changed_U: Tensor) -> None:
        """Takes a changed graph: rows become stale, but those of changed entities are encoded.

        New entities are among those that changed. No other thread may use it meanwhile.
        """
        self.featurizer, before = featurizer, self._now
        more = featurizer.prepared.n_entities - len(before.row_E)
        row_E = torch.cat([before.row_E, before.row_E.new_full((more,), -1)])
        stale_U = torch.zeros(len(before.z), dtype=torch.bool, device=before.z.device)
        fresh_U = stale_U if len(before.z) else before.fresh_U
        rows = replace(before, row_E=row_E, fresh_U=fresh_U, all_fresh=False)
        if not before.complete:  # the others are encoded when needed
            changed_U = changed_U[row_E[changed_U] >= 0]
        self._now = self._encode(rows, changed_U)

    def refresh(self) -> None:
        """Forgets the rows if any of them is stale."""
        with self._encoding:
            if self._now.fresh_U is not None and not bool(self._now.fresh_U.all()):
                self._now = self._empty()

    def _empty(self) -> _Rows:
        prepared, dim = self.featurizer.prepared, self.model.relations.embedding_dim
        z = torch.empty(0, dim, device=prepared.device)
        return _Rows(z, torch.full((prepared.n_entities,), -1, device=prepared.device))

    def _with(self, entities: Tensor, progress: Progress | None = None) -> _Rows:
        """Returns rows that are fresh for these entities."""
        found = self._now
        if found.all_fresh or not len(found.stale(entities)):
            return found
        with self._encoding:
            found = self._now  # another thread may have encoded them
            found = self._now = self._encode(found, found.stale(entities), progress)
            return found

    def _all(self, progress: Progress | None = None) -> _Rows:
        """Returns the rows of all entities, in the order of their ids."""
        if self._now.complete:
            return self._now
        with self._encoding:
            found = self._now
            if not found.complete:
                in_order = not len(found.z)  # all rows are encoded now: no copy
                found = self._encode(found, (found.row_E < 0).nonzero().squeeze(1), progress)
                found = found if in_order else found.in_order()
                found = replace(found, complete=True, all_fresh=found.fresh_U is None)
                self._now = found
            return found

    @torch.no_grad()
    def _encode(self, rows: _Rows, entities_U: Tensor, progress: Progress | None = None) -> _Rows:
        """Encodes some entities, distinct and sorted: new rows are appended, old ones replaced."""
        if not len(entities_U):
            return rows
        z_U = encode(self.model, self.featurizer, entities_U, seed=self.seed, progress=progress)
        row_E, n = rows.row_E.clone(), len(rows.z)
        new = entities_U[row_E[entities_U] < 0]
        row_E[new] = n + _numbers(new)
        rows_U = row_E[entities_U]
        candidates = {
            side: _put(old, self.model.head.candidates(z_U, side), rows_U, n)
            for side, old in list(rows.candidates.items())
        }
        fresh_U = rows.fresh_U
        if fresh_U is not None:
            fresh_U = _put(fresh_U, torch.ones_like(rows_U, dtype=torch.bool), rows_U, n)
        z = _put(rows.z, z_U, rows_U, n)
        return replace(rows, z=z, row_E=row_E, fresh_U=fresh_U, candidates=candidates)


@torch.no_grad()
def nearest(
    vectors_ED: Tensor, own_1D: Tensor, entity: int, k: int, allowed_E: Tensor | None = None
) -> tuple[Tensor, list[float]]:
    """Returns the k other entities with the highest cosine similarity, and that similarity.

    Entities whose vector is zero are left out, and those not allowed. `own_1D` is the vector of the
    entity itself.
    """
    near_E = torch.nn.functional.cosine_similarity(vectors_ED, own_1D.to(vectors_ED))
    wanted_E = vectors_ED.any(1)
    wanted_E[entity] = False
    if allowed_E is not None:
        wanted_E &= allowed_E.to(wanted_E.device)
    best = near_E.masked_fill(~wanted_E, float("-inf")).topk(min(k, int(wanted_E.sum())))
    return best.indices.cpu(), best.values.tolist()


def _numbers(like: Tensor) -> Tensor:
    return torch.arange(len(like), device=like.device)


def _put(old: Tensor, new_U: Tensor, rows_U: Tensor, n: int) -> Tensor:
    """Returns a copy of `old` with rows replaced, and those from n on appended."""
    if not n:
        return new_U
    appended_U = rows_U >= n
    made = torch.cat([old, new_U[appended_U]])
    made[rows_U[~appended_U]] = new_U[~appended_U]
    return made
