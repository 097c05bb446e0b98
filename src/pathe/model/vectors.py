"""A cache of the vectors of a graph's entities, encoded when first needed."""

from __future__ import annotations

import torch
from torch import Tensor

from pathe.core.types import Progress, Side
from pathe.model.featurizer import Featurizer, encode
from pathe.model.pathe import PathE


class EntityVectors:
    """Caches z and the head's candidates for a graph that may change.

    Only entities that were needed have a row, which is stale if the graph has changed since. The
    entities of a query are always fresh; candidates may be stale until `refresh`.
    """

    _z: Tensor  # a row per entity that was needed
    _row_E: Tensor  # its row, or -1
    _fresh_U: Tensor | None  # which rows are fresh; None: all
    _candidates: dict[Side, Tensor]  # of the same rows
    _complete: bool  # every entity has a row, in order
    _all_fresh: bool  # and it is fresh

    def __init__(self, model: PathE, featurizer: Featurizer, seed: int) -> None:
        self.model, self.featurizer, self.seed = model, featurizer, seed
        self._reset()

    def rows(self, entities: Tensor) -> Tensor:
        """Returns fresh z of some entities, in the shape of their ids."""
        self.ensure(entities)
        return self._z[self._row_E[entities]]

    def ensure(self, entities: Tensor, progress: Progress | None = None) -> None:
        """Encodes those of the entities that are missing or stale; ignores negative ids."""
        if self._all_fresh:
            return
        ids_B = entities.flatten()
        ids_B = ids_B[ids_B >= 0]
        rows_B = self._row_E[ids_B]
        stale_B = rows_B < 0 if self._fresh_U is None else ~self._fresh_U[rows_B] | (rows_B < 0)
        self._encode(ids_B[stale_B].unique(), progress)

    def all(self, progress: Progress | None = None) -> Tensor:
        """Returns z of every entity, in the order of their ids; rows may be stale."""
        if not self._complete:
            in_order = not len(self._z)  # all rows are encoded now: no copy
            self._encode((self._row_E < 0).nonzero().squeeze(1), progress)
            if not in_order:
                order_E, self._row_E = self._row_E, _numbers(self._row_E)
                self._z = self._z[order_E]
                self._candidates = {side: rows[order_E] for side, rows in self._candidates.items()}
                self._fresh_U = None if self._fresh_U is None else self._fresh_U[order_E]
            self._complete, self._all_fresh = True, self._fresh_U is None
        return self._z

    def candidates(self, side: Side, entities: Tensor | None = None) -> Tensor:
        """Returns the head's candidates of all entities, or of some in the shape of their ids."""
        if entities is None:
            self.all()
        else:
            self.ensure(entities)
        if side not in self._candidates:
            with torch.no_grad():
                self._candidates[side] = self.model.head.candidates(self._z, side)
        found = self._candidates[side]
        return found if entities is None else found[self._row_E[entities]]

    def flat(self, entities_U: Tensor | None = None) -> Tensor:
        """Returns one vector per entity, for some entities or for all."""
        z = self.all() if entities_U is None else self.rows(entities_U)
        return self.model.aggregator.vectors(z)

    def take(self, featurizer: Featurizer, changed_U: Tensor) -> None:
        """Takes a changed graph: rows become stale, but those of changed entities are encoded.

        New entities are among those that changed.
        """
        self.featurizer, self._all_fresh = featurizer, False
        more = featurizer.prepared.n_entities - len(self._row_E)
        self._row_E = torch.cat([self._row_E, self._row_E.new_full((more,), -1)])
        if len(self._z):
            self._fresh_U = torch.zeros(len(self._z), dtype=torch.bool, device=self._z.device)
        if not self._complete:  # the others are encoded when needed
            changed_U = changed_U[self._row_E[changed_U] >= 0]
        self._encode(changed_U)

    def refresh(self) -> None:
        """Forgets the rows if any of them is stale."""
        if self._fresh_U is not None and not bool(self._fresh_U.all()):
            self._reset()

    def _reset(self) -> None:
        prepared, dim = self.featurizer.prepared, self.model.relations.embedding_dim
        self._z = torch.empty(0, dim, device=prepared.device)
        self._row_E = torch.full((prepared.n_entities,), -1, device=prepared.device)
        self._fresh_U, self._candidates = None, {}
        self._complete = self._all_fresh = False

    @torch.no_grad()
    def _encode(self, entities_U: Tensor, progress: Progress | None = None) -> None:
        """Encodes some entities, distinct and sorted: new rows are appended, old ones replaced."""
        if not len(entities_U):
            return
        z_U = encode(self.model, self.featurizer, entities_U, seed=self.seed, progress=progress)
        new_U = self._row_E[entities_U] < 0
        n, new = len(self._z), entities_U[new_U]
        self._row_E[new] = n + _numbers(new)
        rows_U = self._row_E[entities_U]
        self._z = _put(self._z, z_U, rows_U, n)
        for side, rows in self._candidates.items():
            made = self.model.head.candidates(z_U, side)
            self._candidates[side] = _put(rows, made, rows_U, n)
        if self._fresh_U is not None:
            fresh = torch.ones_like(rows_U, dtype=torch.bool)
            self._fresh_U = _put(self._fresh_U, fresh, rows_U, n)


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
    """Returns `old` with rows replaced, and those from n on appended; replaces in place."""
    if not n:
        return new_U
    appended_U = rows_U >= n
    old[rows_U[~appended_U]] = new_U[~appended_U]
    return torch.cat([old, new_U[appended_U]]) if bool(appended_U.any()) else old
