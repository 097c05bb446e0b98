"""Which entities are ranked as answers: by name, by type, and by what the graph shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict

import torch
from torch import Tensor

from pathe.core.errors import ConfigError, DataError
from pathe.core.types import PARTS, Part, Query, Side
from pathe.data.vocabulary import Vocabulary
from pathe.graph.kinds import Kinds

if TYPE_CHECKING:
    from pathe.data.vocabulary import GrowingVocabulary
    from pathe.graph.prepared import PreparedGraph
    from pathe.predict.results import Answers

# names of relations that give an entity's type, without spaces, signs, case and namespace
TYPE_RELATIONS = ("rdftype", "type", "instanceof", "p31", "isa")
TypesOf = Mapping[str, str | Iterable[str]]  # by entity


class Candidates(TypedDict, total=False):
    """The entities to choose from; without any of these, all of them."""

    among: Iterable[str]  # only these
    type: str  # only those of this type
    exclude: str | Iterable[str]  # not these


class QueryCandidates(Candidates, total=False):
    """The entities to rank as answers to a query."""

    plausible: bool  # only those that could be answers; default: unless `among` or `type` is given


class FactsOf(TypedDict, total=False):
    """Which facts to look at; without any of these, all of them."""

    relations: str | Iterable[str] | None  # only of these
    entities: str | Iterable[str] | None  # only those that one of these takes part in
    type: str | None  # only those that an entity of this type takes part in
    exclude: str | Iterable[str] | None  # none that one of these takes part in


@dataclass(frozen=True)
class Ranked:
    """The candidates of some queries, for one device."""

    allowed_E: Tensor | None  # None: all
    kinds: Kinds | None  # None: implausible candidates are ranked, too

    def leave_out(
        self, scores_BC: Tensor, ids_B3: Tensor, part: Part, known_BC: Tensor
    ) -> list[int]:
        """Sets the scores of other candidates to minus infinity; returns how many are implausible.

        Known answers are never implausible. A relation is if its head or tail couldn't be.
        """
        n_B = [0] * len(ids_B3)
        if self.kinds is not None and len(ids_B3):
            plausible = [_plausible(self.kinds, ids, part) for ids in ids_B3.tolist()]
            out_BC = torch.stack(plausible).logical_or_(known_BC).logical_not_()
            scores_BC.masked_fill_(out_BC, float("-inf"))
            n_B = out_BC.sum(1).tolist()
        if self.allowed_E is not None and part != "relation":
            scores_BC.masked_fill_(~self.allowed_E, float("-inf"))
        return n_B


def _plausible(kinds: Kinds, ids: list[int], part: Part) -> Tensor:
    """Returns for each candidate whether it could be the missing part of a triple."""
    head, relation, tail = ids
    if part == "relation":
        return kinds.relations(head, "head") & kinds.relations(tail, "tail")
    return kinds.plausible(relation, part)


class Choices:
    """Chooses candidates in one graph, by their names, types and relations."""

    def __init__(
        self,
        prepared: PreparedGraph,
        entity_names: GrowingVocabulary,
        relation_names: Vocabulary,
        types: str | TypesOf | None = None,
    ) -> None:
        """`types` are the types of entities, or the name of the relation that gives them."""
        self.prepared, self._types = prepared, types
        self.entity_names, self.relation_names = entity_names, relation_names

    def ranked(self, which: QueryCandidates) -> Ranked:
        """Returns the candidates for queries."""
        named = "among" in which or "type" in which
        kinds = self.kinds if which.get("plausible", not named) else None
        return Ranked(self.allowed(which), kinds)

    def allowed(self, which: Candidates) -> Tensor | None:
        """Returns for each entity whether it is a candidate by name and type; None if all are."""
        if unknown := set(which) - {"among", "type", "exclude", "plausible"}:
            raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
        if not {"among", "type", "exclude"} & set(which):
            return None
        allowed_E = torch.ones(self.prepared.n_entities, dtype=torch.bool)
        if "among" in which:
            allowed_E &= self._mask(self._ids(which["among"]))
        if "type" in which:
            allowed_E &= self._mask(self._of_type(which["type"]))
        if "exclude" in which:
            allowed_E &= ~self._mask(self._ids(which["exclude"]))
        return allowed_E.to(self.prepared.device)

    def describe(
        self, found: list[Answers], queries: list[Query], ids_B3: Tensor, part: Part
    ) -> None:
        """Adds to answers what the graph says about their queries."""
        for answers, query in zip(found, queries, strict=True):
            answers.query = query
        if part == "relation":
            return
        about = self.about(ids_B3, part)
        for answers, (complete, implausible) in zip(found, about, strict=True):
            answers.complete, answers.implausible = complete, implausible

    def about(self, ids_B3: Tensor, side: Side) -> list[tuple[list[str], bool]]:
        """Returns what the graph says about queries for a side of triples.

        These are the known answers other than the triple's own, if there should be no others, and
        whether no entity like the query's has the relation.
        """
        own: Side = "head" if side == "tail" else "tail"
        entities_B = ids_B3[:, PARTS.index(own)].tolist()
        relations_B, complete = ids_B3[:, 1].tolist(), [list[str]() for _ in entities_B]
        rows_N, known_N = self.prepared.known().find(ids_B3, side)
        single_N = self.prepared.functionality[side].functional_R[ids_B3[rows_N, 1]]
        single_N &= known_N != ids_B3[rows_N, PARTS.index(side)]
        names = self.entity_names.names(known_N[single_N].cpu())
        for row, name in zip(rows_N[single_N].tolist(), names, strict=True):
            complete[row].append(name)
        plausible = (
            bool(self.kinds.plausible(relation, own)[entity])
            for entity, relation in zip(entities_B, relations_B, strict=True)
        )
        return [(names, not fits) for names, fits in zip(complete, plausible, strict=True)]

    @cached_property
    def kinds(self) -> Kinds:
        """Which entities could take part in which relation."""
        return Kinds(self.prepared.graph, self.types[1]) if self._source else self.prepared.kinds

    @cached_property
    def types(self) -> tuple[list[str], Tensor]:
        """The names of types, and rows of (entity, type)."""
        source = self._source
        if source is None:
            raise ConfigError(
                "The graph has no relation such as rdf:type, type, instance of or isa, so entities "
                "have no types. Name the relation that gives them (use_types, --type-relation) or "
                "give them (use_types, --types)."
            )
        if isinstance(source, str):
            is_type_M = self.prepared.train_M3[:, 1] == self.relation_names.id(source)
            rows_N2 = self.prepared.train_M3[is_type_M][:, [0, 2]].cpu()
            types_K, type_N = rows_N2[:, 1].unique(return_inverse=True)
            names = self.entity_names.names(types_K)
            return names, torch.stack([rows_N2[:, 0], type_N], 1)
        spellings = self.entity_names.vocabulary.spellings
        pairs = [
            (i, spellings.full(type))
            for entity, own in source.items()
            if (i := self.entity_names.find(entity)) is not None
            for type in ([own] if isinstance(own, str) else own)
        ]
        if not pairs:
            raise DataError("None of the entities that types are given for is in the graph.")
        names = sorted({type for _, type in pairs})
        number = {name: i for i, name in enumerate(names)}
        return names, torch.tensor([(entity, number[type]) for entity, type in pairs])

    def shared_type(self, entities: Iterable[str]) -> str:
        """Returns the rarest type that all of these entities have, or nothing."""
        if self._source is None:
            return ""
        own = [self._types_of.get(self.entity_names.id(name), set()) for name in entities]
        sizes = torch.bincount(self.types[1][:, 1]).tolist()
        shared = sorted(set.intersection(*own), key=lambda type: (sizes[type], type))
        return self.types[0][shared[0]] if shared else ""

    @cached_property
    def _types_of(self) -> dict[int, set[int]]:
        """The types by entity, in ids."""
        found: dict[int, set[int]] = {}
        for entity, type in self.types[1].tolist():
            found.setdefault(entity, set()).add(type)
        return found

    @property
    def has_types(self) -> bool:
        """Whether types are given, or the graph has a relation that gives them."""
        return self._source is not None

    @cached_property
    def _source(self) -> str | TypesOf | None:
        return self._types if self._types is not None else type_relation(self.relation_names)

    def _of_type(self, name: str) -> Tensor:
        names, rows_N2 = self.types
        exact = Vocabulary(names, "type", self.entity_names.vocabulary.spellings).exact(name)
        return rows_N2[rows_N2[:, 1] == names.index(exact), 0]

    def _ids(self, names: str | Iterable[str]) -> Tensor:
        return self.entity_names.ids([names] if isinstance(names, str) else names)

    def _mask(self, ids_N: Tensor) -> Tensor:
        mask_E = torch.zeros(self.prepared.n_entities, dtype=torch.bool)
        mask_E[ids_N] = True
        return mask_E


def type_relation(relations: Iterable[str]) -> str | None:
    """Returns the relation whose name says that it gives an entity's type, if there is one."""
    by_word = {_word(name): name for name in relations}
    return next((by_word[word] for word in TYPE_RELATIONS if word in by_word), None)


def _word(name: str) -> str:
    """Returns a relation's name in lower case, without namespace, spaces and signs."""
    name = name.lower().rstrip(">/")
    if "rdf-syntax-ns#" in name or name == "rdf:type":
        name = "rdf" + name[-4:]
    local = name.replace("#", "/").replace(":", "/").rsplit("/", 1)[-1]
    return "".join(c for c in local if c.isalnum())
