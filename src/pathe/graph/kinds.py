"""Which entities could be head or tail of a relation, learned from the graph.

An entity's traits are the relations that it has, as head or as tail, and its types if they are
given. A trait speaks for a place in a relation if entities with the trait take that place clearly
more often than others, and against it if they (almost) never do. An entity is implausible there if
some of its traits speak against it and none for it: films are no nationality, but a country that
nobody comes from yet may be one.
"""

from __future__ import annotations

from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.types import Side
from pathe.graph.adjacency import Graph, owners

FOR = 2.0  # times the expected number of entities that take the place, or
OFTEN = 0.5  # this share of the entities with the trait: speaks for it
AGAINST = 0.05  # times the expected number, or less: speaks against it
SEEN = 5  # entities that a trait or a place must have; with fewer, nothing is learned


class Kinds:
    """Answers which entities could take a place in a relation; what is counted is kept."""

    def __init__(self, graph: Graph, types_N2: Tensor | None = None) -> None:
        """Takes a graph, and types as rows of (entity, type), if there are any."""
        n, self.n_relations = graph.n_entities, graph.n_relations
        both = ((graph.out_contexts, 0), (graph.in_contexts, self.n_relations))
        entities = [owners(contexts.offsets_E1).long() for contexts, _ in both]
        traits = [contexts.relations_P.long() + first for contexts, first in both]
        if types_N2 is not None and len(types_N2):
            types_N2 = types_N2.to(graph.device).unique(dim=0)
            entities.append(types_N2[:, 0])
            traits.append(types_N2[:, 1] + 2 * self.n_relations)
        self.entities_P, self.traits_P = torch.cat(entities), torch.cat(traits)
        self.sizes_T = torch.bincount(self.traits_P, minlength=2 * self.n_relations)
        self.n_entities = n
        self._found: dict[tuple[int, Side], Tensor] = {}
        self._counted: dict[int, Tensor] = {}  # of traits, how many entities also have each place

    def plausible(self, relation: int, side: Side) -> Tensor:
        """Returns for each entity whether it could be the relation's head or tail.

        If fewer than `SEEN` entities are, all entities could be.
        """
        if (relation, side) not in self._found:
            self._found[relation, side] = self._learn(
                relation + self.n_relations * (side == "tail")
            )
        return self._found[relation, side]

    def relations(self, entity: int, side: Side) -> Tensor:
        """Returns for each relation whether an entity could be its head or tail: as `plausible`."""
        first = self.n_relations * (side == "tail")
        there_R = self.sizes_T[first : first + self.n_relations]
        offsets_E1, traits_P = self._by_entity
        for_R, against_R = torch.zeros_like(there_R).bool(), torch.zeros_like(there_R).bool()
        for trait in traits_P[offsets_E1[entity] : offsets_E1[entity + 1]].tolist():
            if trait not in self._counted:
                self._counted[trait] = self._together(trait)[: 2 * self.n_relations]
            both_R = self._counted[trait][first : first + self.n_relations]
            speaks_for_R, speaks_against_R = self._speaks(both_R, self.sizes_T[trait], there_R)
            for_R |= speaks_for_R
            against_R |= speaks_against_R
        return for_R | ~against_R | (there_R < SEEN)

    def _learn(self, place: int) -> Tensor:
        """Returns which entities could be at this end of the relation, judged by their traits."""
        n_there = self.sizes_T[place]
        if n_there < SEEN:
            return torch.ones(self.n_entities, dtype=torch.bool, device=self.traits_P.device)
        for_T, against_T = self._speaks(self._together(place), self.sizes_T, n_there)
        return self._any(for_T[self.traits_P]) | ~self._any(against_T[self.traits_P])

    def _together(self, trait: int) -> Tensor:
        """Returns for each trait how many entities have both."""
        has_E = self._any(self.traits_P == trait)
        return torch.bincount(self.traits_P[has_E[self.entities_P]], minlength=len(self.sizes_T))

    def _speaks(self, both_N: Tensor, with_N: Tensor, there_N: Tensor) -> tuple[Tensor, Tensor]:
        """Returns which traits are evidence for a place, and which against it.

        Takes how many entities have trait and place, the trait, and the place.
        """
        expected_N = with_N.double() * there_N / self.n_entities
        for_N = (both_N >= FOR * expected_N) & (both_N > 0)
        for_N |= both_N >= OFTEN * with_N.clamp(min=1)
        return for_N, (both_N <= AGAINST * expected_N) & (with_N >= SEEN)

    @cached_property
    def _by_entity(self) -> tuple[Tensor, Tensor]:
        """The traits in order of entities, and where those of each entity start."""
        sizes_E = torch.bincount(self.entities_P, minlength=self.n_entities)
        order_P = self.entities_P.argsort(stable=True)
        return F.pad(sizes_E.cumsum(0), (1, 0)), self.traits_P[order_P]

    def _any(self, chosen_P: Tensor) -> Tensor:
        """Returns for each entity whether one of its traits is chosen."""
        found_E = torch.zeros(self.n_entities, dtype=torch.bool, device=chosen_P.device)
        found_E[self.entities_P[chosen_P]] = True
        return found_E
