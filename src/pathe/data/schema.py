"""Matches a graph's relation names with a model's: coverage, relation maps, alignment."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import torch
from torch import Tensor

from pathe.core.errors import ConfigError, DataError, UnknownNameError, nearest
from pathe.data.delimited import small_table
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.triples import unique_triples
from pathe.data.vocabulary import Vocabulary

INVERSE = "^"  # prefix of a model's relation in a map: the graph's points the other way
RelationMap = Mapping[str, str]  # the graph's name -> the model's
Unknown = Literal["raise", "drop"]


@dataclass(frozen=True)
class Match:
    """A relation of the graph and the model's relation for it, if it has one."""

    name: str
    triples: int
    model: str | None
    inverse: bool = False


@dataclass(frozen=True)
class Coverage:
    """How much of a graph's schema a model knows."""

    matches: list[Match]  # most frequent first
    unused: list[str]  # the model's relations without a triple in the graph

    @property
    def unknown(self) -> list[Match]:
        return [match for match in self.matches if match.model is None]

    @property
    def triples(self) -> int:
        return sum(match.triples for match in self.matches)

    @property
    def known_triples(self) -> int:
        return self.triples - sum(match.triples for match in self.unknown)

    def as_dict(self) -> dict[str, Any]:
        return {
            "relations": len(self.matches),
            "known_relations": len(self.matches) - len(self.unknown),
            "triples": self.triples,
            "known_triples": self.known_triples,
            "matches": [vars(match) for match in self.matches],
            "unused": self.unused,
        }


def coverage(
    kg: KnowledgeGraph, relations: Vocabulary, relation_map: RelationMap | None = None
) -> Coverage:
    """Finds the model's relation for each of the graph's: by the map, or by the same name.

    The map may use the graph's prefixes and labels.
    """
    names, matches = _exact(kg, relation_map or {}), []
    theirs = relations.with_spellings(kg.names)
    used_M = torch.cat([triples[:, 1] for triples in kg.splits.values()])
    counts_R = torch.bincount(used_M, minlength=kg.n_relations)
    for name, count in zip(kg.relations, counts_R.tolist(), strict=True):
        wanted = names.get(name, name)
        found = theirs.find(wanted)
        inverse = found is None and wanted.startswith(INVERSE)
        if inverse:
            found = theirs.find(wanted.removeprefix(INVERSE))
        if found is None and name in names:
            raise UnknownNameError(
                f"The relation map gives {names[name]!r} for {name!r}, but the model has no such "
                f"relation.{nearest(wanted.removeprefix(INVERSE), relations)}"
            )
        model = None if found is None else relations[found]
        matches.append(Match(name, count, model, inverse and model is not None))
    used = {match.model for match in matches if match.triples}
    matches.sort(key=lambda match: -match.triples)
    return Coverage(matches, [name for name in relations if name not in used])


def _exact(kg: KnowledgeGraph, relation_map: RelationMap) -> dict[str, str]:
    """Returns the map with the graph's exact names; names that it lacks stay as they are."""
    places = {name: kg.relations.find(name) for name in relation_map}
    return {
        name if (i := places[name]) is None else kg.relations[i]: theirs
        for name, theirs in relation_map.items()
    }


def with_train_relations(kg: KnowledgeGraph) -> tuple[KnowledgeGraph, int]:
    """Drops valid and test triples whose relations train lacks; returns their number, too."""
    seen = sorted(set(kg.train[:, 1].tolist()))
    if len(seen) == len(kg.relations):
        return kg, 0
    relations = Vocabulary([kg.relations[i] for i in seen], kind="relation")
    found = align(kg, relations, unknown="drop")
    if kg.inference is not None:
        found = replace(found, inference=align(kg.inference, relations, unknown="drop"))
    return found, found.report.unknown_relations - kg.report.unknown_relations


def align(
    kg: KnowledgeGraph,
    relations: Vocabulary | None,
    relation_map: RelationMap | None = None,
    unknown: Unknown = "raise",
) -> KnowledgeGraph:
    """Returns the graph with the model's relations, without its inference graph.

    Triples of relations that the model doesn't know raise DataError, or are dropped and counted.
    With `relations` None the model works with any, and the graph is returned as it is.
    """
    if unknown not in typing.get_args(Unknown):
        raise ConfigError(f"unknown must be raise or drop; got {unknown!r}.")
    if relations is None:
        if relation_map:
            raise ConfigError(
                "A relation map is for models with relations of their own; this model works with "
                "the graph's relations as they are."
            )
        return kg
    if kg.relations == relations and not relation_map:
        return kg
    found = coverage(kg, relations, relation_map)
    lost = [match for match in found.unknown if match.triples]
    if found.triples and not found.known_triples:
        raise DataError(
            f"{kg.name}: the model knows none of its {len(found.matches)} relations "
            f"({_some([m.name for m in found.matches])}); the model's are "
            f"{_some(list(relations))}. Name the counterparts in a relation map."
        )
    if lost and unknown == "raise":
        raise DataError(_unknown_words(kg, found, lost, relations))
    ids = {name: i for i, name in enumerate(relations)}
    by_name = {match.name: match for match in found.matches}
    ordered = [by_name[name] for name in kg.relations]
    new = [ids[m.model] if m.model is not None else -1 for m in ordered]
    new_R = torch.tensor(new, dtype=torch.long)
    turned_R = torch.tensor([m.inverse for m in ordered], dtype=torch.bool)
    train, valid, test = (_translate(split, new_R, turned_R) for split in kg.splits.values())
    if relation_map:  # it may make triples of two splits equal: keep only the first
        valid = _without(valid, train)
        test = _without(test, torch.cat([train, valid]))
    unused = [name for name in relation_map or {} if kg.relations.find(name) is None]
    notes = [f"in the relation map but not in the graph: {_some(unused)}"] if unused else []
    report = replace(kg.report, notes=[*kg.report.notes, *notes])
    report.unknown_relations += found.triples - found.known_triples
    report.duplicates += found.known_triples - len(train) - len(valid) - len(test)
    entities = kg.entities
    if lost:  # drop entities that occur only in dropped triples
        rows = torch.cat([train, valid, test])
        kept, ends = rows[:, [0, 2]].unique(return_inverse=True)
        rows[:, [0, 2]] = ends.int()
        entities = Vocabulary(kg.entities.array.take(pa.array(kept.numpy())))
        train, valid, test = rows.split([len(train), len(valid), len(test)])
    entities, relations = (v.with_spellings(kg.names) for v in (entities, relations))
    return KnowledgeGraph(kg.name, entities, relations, train, valid, test, report)


def _translate(triples_M3: Tensor, new_R: Tensor, turned_R: Tensor) -> Tensor:
    """Replaces relation ids and turns inverse triples; drops those whose new id is -1."""
    old_M = triples_M3[:, 1].long()
    rows_M3 = torch.where(turned_R[old_M][:, None], triples_M3.flip(1), triples_M3)
    rows_M3[:, 1] = new_R[old_M].int()
    return unique_triples(rows_M3[rows_M3[:, 1] >= 0])[0]


def _without(triples_M3: Tensor, others_N3: Tensor) -> Tensor:
    """Returns the triples that aren't among the others."""
    rows = torch.cat([others_N3, triples_M3])
    _, codes, counts = rows.unique(dim=0, return_inverse=True, return_counts=True)
    return triples_M3[counts[codes[len(others_N3) :]] == 1]


def _unknown_words(
    kg: KnowledgeGraph, found: Coverage, lost: list[Match], relations: Vocabulary
) -> str:
    n = sum(match.triples for match in lost)
    closest = nearest(lost[0].name, relations)
    if len(lost) > 1:
        closest = closest.replace("Closest:", f"Closest to {lost[0].name!r}:")
    return (
        f"{kg.name}: the model doesn't know {len(lost)} of its {len(found.matches)} relations "
        f"({n:,} of {found.triples:,} triples): {_some([m.name for m in lost])}.{closest} "
        "Name their counterparts in a relation map (--relation-map FILE), or leave such triples "
        "out (--on-error skip, in Python unknown='drop')."
    )


def _some(names: list[str], n: int = 5) -> str:
    more = f" and {len(names) - n} more" if len(names) > n else ""
    return ", ".join(repr(name) for name in names[:n]) + more


def read_relation_map(path: Path | str) -> dict[str, str]:
    """Reads two columns, the graph's name and the model's, separated by a tab (.csv: a comma).

    `^` before the model's name says that the graph's relation points the other way.
    """
    path = Path(path)
    mark = "comma" if path.suffix.lower() == ".csv" else "tab"
    names: dict[str, str] = {}
    for number, row in small_table(path, "the relation map"):
        if len(row) != 2 or not all(row):
            raise DataError(
                f"{path}, line {number}: expected two columns, the graph's relation and the "
                f"model's, separated by a {mark}; got {len(row)}."
            )
        if names.setdefault(row[0], row[1]) != row[1]:
            problem = f"{row[0]!r} is already mapped to {names[row[0]]!r}"
            raise DataError(f"{path}, line {number}: {problem}.")
    return names
