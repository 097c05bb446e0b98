"""Why a score is what it is: the paths of head and tail, each left out in turn and scored again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pathe.encoding import Describer
from pathe.known import Side
from pathe.model import EntityBatch, PathE
from pathe.paths import Paths, path_steps

Ids = tuple[int, int, int]
Effect = tuple[Side, list[Ids], int, float]  # whose path, its steps, how often drawn, effect
SIDES: tuple[Side, Side] = ("head", "tail")
Score = Callable[[Tensor, Tensor], Tensor]  # z of heads, z of tails -> scores


@torch.inference_mode()
def path_effects(
    model: PathE, describe: Describer, pair: tuple[int, int], score: Score, seed: int
) -> tuple[float, list[Effect]]:
    """The score of a pair, and (side, steps, count, effect) of each distinct path of either.

    Paths that were drawn more than once are left out together. An entity whose paths are all left
    out is described by itself alone, as one without edges is.
    """
    ends = torch.tensor(pair, device=describe.graph.device)
    paths = describe.paths(ends, seed)
    x_2KD = model.read(describe.batch(ends, seed))
    bare_2KD = _bare(model, describe, ends)
    whole = float(score(model.aggregate(x_2KD[:1]), model.aggregate(x_2KD[1:])))
    found: list[Effect] = []
    for end, side in enumerate(SIDES):
        other = model.aggregate(x_2KD[1 - end : 2 - end])
        for group in same_paths(paths, end):
            kept = [k for k in range(x_2KD.shape[1]) if k not in group]
            x_1KD = x_2KD[end, kept][None] if kept else bare_2KD[end : end + 1]
            z = model.aggregate(x_1KD)
            without = float(score(z, other) if side == "head" else score(other, z))
            steps = path_steps(paths, end, group[0])
            found.append((side, steps, len(group), whole - without))
    found.sort(key=lambda item: -abs(item[3]))
    return whole, found


def same_paths(paths: Paths, u: int) -> list[list[int]]:
    """The numbers of an entity's paths, equal ones together."""
    groups: dict[tuple[Ids, ...], list[int]] = {}
    for k in range(paths.tokens_UKT.shape[1]):
        groups.setdefault(tuple(path_steps(paths, u, k)), []).append(k)
    return list(groups.values())


def _bare(model: PathE, describe: Describer, entities_U: Tensor) -> Tensor:
    """x of entities by themselves: one path of one token each."""
    entities_V, rows_U = entities_U.unique(return_inverse=True)
    first = torch.ones(1, dtype=torch.long, device=entities_U.device)
    tokens_U11 = rows_U.int().view(-1, 1, 1)
    return model.read(EntityBatch(describe.contexts(entities_V), tokens_U11, first, focus=0))
