"""Paths through many entities, as named triples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pathe.core.types import Fact
from pathe.graph.paths import Form, Paths, mine_paths, path_steps, sample_paths
from pathe.graph.prepared import PreparedGraph

PATH_ROW: dict[str, type] = {"entity": str, "path": str}
AT_ONCE = 1 << 14  # paths


@dataclass(frozen=True)
class PathSettings:
    """Which paths: how many per entity, how long, and whether sampled or mined."""

    n: int
    max_hops: int
    form: Form
    unique: bool
    seed: int

    @property
    def at_once(self) -> int:
        """How many entities to do at a time."""
        return max(AT_ONCE // self.n, 1)


def paths_of_range(
    prepared: PreparedGraph, settings: PathSettings, first: int, stop: int
) -> Iterator[tuple[str, list[Fact]]]:
    """Yields the name and a path of each of a range of entities, all paths of one in turn.

    Paths of an entity don't depend on the others.
    """
    kg, entities_U = prepared.kg, torch.arange(first, stop, device=prepared.device)
    paths, owners_P = _paths(prepared, settings, entities_U)
    places_T = (torch.arange(paths.tokens_UKT.shape[-1]) - paths.focus) % 2 == 0  # of entities
    used_N = paths.tokens_UKT[..., places_T.to(prepared.device)].unique().cpu()
    names = dict(zip(used_N.tolist(), kg.entities.names(used_N), strict=True))
    relations = list(kg.relations)
    for number, entity in enumerate(owners_P.tolist()):
        steps = path_steps(paths, 0, number)
        yield names[entity], [(names[h], relations[r], names[t]) for h, r, t in steps]


def _paths(
    prepared: PreparedGraph, settings: PathSettings, entities_U: Tensor
) -> tuple[Paths, Tensor]:
    """Returns paths in one row, and the entity of each."""
    n, max_hops, form, seed = settings.n, settings.max_hops, settings.form, settings.seed
    if settings.unique:
        store = mine_paths(prepared.graph, n, max_hops, seed=seed, form=form, entities_E=entities_U)
        owners_P = entities_U.repeat_interleave(store.offsets_E1.diff())
        tokens_1PT = store.tokens_PT[None]
        mask_1PT = tokens_1PT >= 0
        paths = Paths(tokens_1PT.clamp(min=0), mask_1PT, store.focus, store.incoming_P[None])
        return paths, owners_P
    found = sample_paths(prepared.graph, entities_U, n, max_hops, seed=seed, form=form)
    tokens_1PT, mask_1PT = (x.flatten(0, 1)[None] for x in (found.tokens_UKT, found.mask_UKT))
    incoming_1P = found.incoming_UK.flatten()[None]
    paths = Paths(tokens_1PT, mask_1PT, found.focus, incoming_1P)
    return paths, entities_U.repeat_interleave(n)
