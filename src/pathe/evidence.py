"""Why a score is what it is: the paths of head and tail, left out and scored again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from pathe.answers import Part
from pathe.bridging import bridge_links, bridge_relations
from pathe.encoding import Describer
from pathe.known import Side
from pathe.model import EntityBatch, PathE
from pathe.paths import path_steps

Ids = tuple[int, int, int]
SIDES: tuple[Side, Side] = ("head", "tail")


@dataclass(frozen=True)
class DrawnPath:
    """A path of the head or the tail, and the numbers under which it was drawn."""

    of: Side
    steps: tuple[Ids, ...]
    numbers: tuple[int, ...]


class Pair:
    """A triple whose head's and tail's paths can be left out, scored as an answer for a `part`.

    Equal paths are one and go together. An entity whose paths are all left out is described by
    itself alone, as one without edges is. What bridges add stays.
    """

    def __init__(
        self, model: PathE, describe: Describer, triple_3: Tensor, part: Part, seed: int
    ) -> None:
        ends_2 = triple_3[[0, 2]]
        drawn = describe.paths(ends_2, seed)
        self.model, self.part, self.triple_3 = model, part, triple_3
        self.relation_1 = triple_3[1:2]
        with torch.no_grad():
            self.bridged = _bridged(model, describe, triple_3, part)
            self.x_2KD = model.read(describe.batch(ends_2, seed))
            self.bare_21D = _bare(model, describe, ends_2)
        self.paths = []
        for u, side in enumerate(SIDES):
            numbers: dict[tuple[Ids, ...], list[int]] = {}
            for k in range(drawn.tokens_UKT.shape[1]):
                numbers.setdefault(tuple(path_steps(drawn, u, k)), []).append(k)
            self.paths += [DrawnPath(side, steps, tuple(ks)) for steps, ks in numbers.items()]

    @torch.no_grad()
    def without(self, paths: Iterable[DrawnPath] = ()) -> float:
        """The score when these paths are left out."""
        paths = list(paths)
        z = []
        for u, side in enumerate(SIDES):
            gone = {k for path in paths if path.of == side for k in path.numbers}
            kept = [k for k in range(self.x_2KD.shape[1]) if k not in gone]
            x_1KD = self.x_2KD[u, kept][None] if kept else self.bare_21D[u][None]
            z.append(self.model.aggregate(x_1KD))
        if self.part == "relation":
            score = self.model.relation_scores(*z)[0, self.relation_1]
        else:
            score = self.model.link_scores(z[0], self.relation_1, z[1])
        return float(score.float() + self.bridged)


def _bridged(model: PathE, describe: Describer, triple_3: Tensor, part: Part) -> Tensor:
    """What bridges add to the triple's score."""
    h_1, r_1, t_1 = triple_3.split(1)
    if part == "relation":
        none_1R = torch.zeros(1, model.n_relations, device=triple_3.device)
        return bridge_relations(model, describe, none_1R, h_1, t_1)[0, r_1]
    fixed_1, answer_1 = (h_1, t_1) if part == "tail" else (t_1, h_1)
    none_11 = torch.zeros(1, 1, device=triple_3.device)
    return bridge_links(model, describe, none_11, fixed_1, r_1, part, answer_1[None])[0]


def _bare(model: PathE, describe: Describer, entities_U: Tensor) -> Tensor:
    """x of entities by themselves: one path of one token each."""
    entities_V, rows_U = entities_U.unique(return_inverse=True)
    first = torch.ones(1, dtype=torch.long, device=entities_U.device)
    tokens_U11 = rows_U.int().view(-1, 1, 1)
    return model.read(EntityBatch(describe.contexts(entities_V), tokens_U11, first, focus=0))
