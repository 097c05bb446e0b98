"""Relation names that differ: how much of a graph's schema a model knows, and putting it right."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import torch
from torch import Tensor

from pathe.datasets import SPLITS, KnowledgeGraph
from pathe.delimited import small_table
from pathe.errors import ConfigError, DataError, UnknownNameError, nearest
from pathe.triples import Vocabulary, unique_triples

INVERSE = "^"  # before the model's name in a map: the graph's relation points the other way
RelationMap = Mapping[str, str]  # the graph's name -> the model's
Unknown = Literal["raise", "drop"]


@dataclass(frozen=True)
class Match:
    """One relation of the graph, and the model's relation for it, if there is one."""

    name: str
    triples: int
    model: str | None
    inverse: bool = False


@dataclass(frozen=True)
class Coverage:
    """How much of a graph's schema a model knows."""

    matches: list[Match]  # most frequent first
    unused: list[str]  # the model's relations that the graph has no triple of

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
    """The model's relation for each of the graph's: of the map, or of the same name."""
    names = relation_map or {}
    counts_R = sum(torch.bincount(getattr(kg, s)[:, 1], minlength=kg.n_relations) for s in SPLITS)
    assert isinstance(counts_R, Tensor)
    matches = []
    for name, count in zip(kg.relations, counts_R.tolist(), strict=True):
        wanted = names.get(name, name)
        inverse = wanted not in relations and wanted.startswith(INVERSE)
        wanted = wanted.removeprefix(INVERSE) if inverse else wanted
        if wanted not in relations and name in names:
            raise UnknownNameError(
                f"The relation map gives {names[name]!r} for {name!r}, which the model doesn't "
                f"know.{nearest(wanted, relations)}"
            )
        matches.append(Match(name, count, wanted if wanted in relations else None, inverse))
    used = {match.model for match in matches if match.triples}
    matches.sort(key=lambda match: -match.triples)
    return Coverage(matches, [name for name in relations if name not in used])


def align(
    kg: KnowledgeGraph,
    relations: Vocabulary,
    relation_map: RelationMap | None = None,
    unknown: Unknown = "raise",
) -> KnowledgeGraph:
    """The graph in the model's relations; triples of others raise, or are dropped and counted.

    Without the inference graph that may lie beside it.
    """
    if unknown not in typing.get_args(Unknown):
        raise ConfigError(f"unknown is raise or drop; got {unknown!r}.")
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
    splits = {s: _translate(getattr(kg, s), new_R, turned_R) for s in SPLITS}
    if relation_map:  # what it makes equal to a triple of an earlier split would be given away
        splits["valid"] = _without(splits["valid"], splits["train"])
        splits["test"] = _without(splits["test"], torch.cat([splits["train"], splits["valid"]]))
    report = replace(kg.report, notes=[*kg.report.notes, *_unused(kg, relation_map)])
    report.unknown_relations += found.triples - found.known_triples
    report.duplicates += found.known_triples - sum(map(len, splits.values()))
    entities = kg.entities
    if lost:  # entities of dropped triples alone go with them
        rows = torch.cat([split[:, [0, 2]].flatten() for split in splits.values()])
        kept, places = rows.unique(return_inverse=True)
        entities = Vocabulary(kg.entities.array.take(pa.array(kept.numpy())))
        ends = iter(places.int().view(-1, 2).split([len(split) for split in splits.values()]))
        for split in splits.values():
            split[:, [0, 2]] = next(ends)
    train, valid, test = (splits[split] for split in SPLITS)
    return KnowledgeGraph(kg.name, entities, relations, train, valid, test, report)


def _translate(triples_M3: Tensor, new_R: Tensor, turned_R: Tensor) -> Tensor:
    old_M = triples_M3[:, 1].long()
    turned_M1 = turned_R[old_M][:, None]
    rows_M3 = torch.where(turned_M1, triples_M3.flip(1), triples_M3)
    rows_M3[:, 1] = new_R[old_M].int()
    return unique_triples(rows_M3[rows_M3[:, 1] >= 0])[0]


def _without(triples_M3: Tensor, others_N3: Tensor) -> Tensor:
    """The triples that aren't among the others."""
    _, codes, counts = torch.cat([others_N3, triples_M3]).unique(
        dim=0, return_inverse=True, return_counts=True
    )
    return triples_M3[counts[codes[len(others_N3) :]] == 1]


def _unused(kg: KnowledgeGraph, relation_map: RelationMap | None) -> list[str]:
    names = [name for name in relation_map or {} if name not in kg.relations]
    return [f"not in the graph, though the relation map names it: {_some(names)}"] if names else []


def _unknown_words(
    kg: KnowledgeGraph, found: Coverage, lost: list[Match], relations: Vocabulary
) -> str:
    n = sum(match.triples for match in lost)
    one = len(lost) == 1
    closest = nearest(lost[0].name, relations)
    return (
        f"{kg.name}: the model doesn't know {len(lost)} of its {len(found.matches)} relations "
        f"({n:,} of {found.triples:,} triples): {_some([m.name for m in lost])}."
        f"{closest.replace('Closest:', 'Closest:' if one else f'Closest to {lost[0].name!r}:')} "
        "Name their counterparts in a relation map (--relation-map FILE), or leave such triples "
        "out (--on-error skip, in Python unknown='drop')."
    )


def _some(names: list[str], n: int = 5) -> str:
    more = f" and {len(names) - n} more" if len(names) > n else ""
    return ", ".join(repr(name) for name in names[:n]) + more


def read_relation_map(path: Path | str) -> dict[str, str]:
    """A file of two columns, the graph's name and the model's: tabs, or commas for .csv.

    `^` before the model's name says that the graph's relation points the other way.
    """
    path = Path(path)
    mark = "comma" if path.suffix.lower() == ".csv" else "tab"
    names: dict[str, str] = {}
    for number, row in small_table(path, "the relation map"):
        if len(row) != 2 or not all(row):
            raise DataError(
                f"{path}, line {number}: expected two columns, the graph's relation and the "
                f"model's, between them a {mark}; got "
                f"{len(row)}."
            )
        if names.setdefault(row[0], row[1]) != row[1]:
            raise DataError(
                f"{path}, line {number}: {row[0]!r} stands for {names[row[0]]!r} above already"
            )
    return names
