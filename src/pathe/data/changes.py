"""Changes a graph by files of facts, without changing its own files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from pathe.core.errors import DataError, UnknownNameError
from pathe.core.types import PARTS
from pathe.data.columns import (
    RDF,
    ReadOptions,
    ReadReport,
    coded_table,
    split_suffix,
    text_array,
)
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.names import Names, names_of
from pathe.data.readers import locate_row, read_columns
from pathe.data.triples import encode, unique_triples
from pathe.data.vocabulary import Vocabulary

SHOWN = 3  # other facts of the same head and relation in an error


def without_facts(
    kg: KnowledgeGraph, path: Path, options: ReadOptions | None = None
) -> tuple[KnowledgeGraph, int]:
    """Removes a file's facts from all splits; returns how many were removed, too.

    A fact that the graph lacks is an error, or left out with `on_error="skip"`. Entities and
    relations stay, even those without other facts.
    """
    options = options or ReadOptions()
    facts_N3 = encode(_read(kg, path, options), kg.entities, kg.relations)
    keys = {split: _keys(triples, kg) for split, triples in kg.splits.items()}
    keys_N = _keys(facts_N3, kg).masked_fill((facts_N3 < 0).any(1), -1)
    known_N = torch.isin(keys_N, torch.cat(list(keys.values())))
    if options.on_error == "raise" and not known_N.all():
        row = int((~known_N).int().argmax())
        raise DataError(_unknown_words(kg, path, options, row, facts_N3[row]))
    kept = {s: triples[~torch.isin(keys[s], keys_N)] for s, triples in kg.splits.items()}
    if not len(kept["train"]):
        raise DataError(f"{path}: without its facts, {kg.name} has no training triples left.")
    train, valid, test = kept.values()
    n_removed = len(keys_N[known_N].unique())
    return replace(kg, train=train, valid=valid, test=test), n_removed


def with_facts(
    kg: KnowledgeGraph, path: Path, options: ReadOptions | None = None
) -> tuple[KnowledgeGraph, int]:
    """Adds a file's facts to train, also about new entities; returns how many were new."""
    report = ReadReport()
    table = _read(kg, path, options or ReadOptions(), report)
    entities = _larger(kg.entities, [table.column(part) for part in ("head", "tail")])
    relations = _larger(kg.relations, [table.column("relation")])
    new_E, new_R = (
        large.ids(small.array)
        for large, small in ((entities, kg.entities), (relations, kg.relations))
    )
    train, valid, test = (
        torch.stack([new_E[rows[:, 0]], new_R[rows[:, 1]], new_E[rows[:, 2]]], 1).int()
        for rows in (triples.long() for triples in kg.splits.values())
    )
    names = _names(kg.names, report, entities, relations)
    entities, relations = entities.with_spellings(names), relations.with_spellings(names)
    larger = KnowledgeGraph(kg.name, entities, relations, train, valid, test, kg.report)
    facts_N3, _ = unique_triples(encode(table, entities, relations))
    known = torch.cat([_keys(triples, larger) for triples in (train, valid, test)])
    facts_N3 = facts_N3[~torch.isin(_keys(facts_N3, larger), known)]
    train, _ = unique_triples(torch.cat([train, facts_N3]))
    return replace(larger, train=train), len(facts_N3)


def _read(
    kg: KnowledgeGraph, path: Path, options: ReadOptions, report: ReadReport | None = None
) -> Any:
    """Returns the columns of a file; a text file may use the graph's prefixes and labels."""
    options = replace(options, base_iri=kg.names.base)
    if split_suffix(path)[1] in RDF:
        return read_columns(path, options, report)
    table, columns = read_columns(path, replace(options, language=None), report), []
    for part, vocabulary in zip(PARTS, (kg.entities, kg.relations, kg.entities), strict=True):
        column = table.column(part).chunk(0)
        names = column.dictionary.to_pylist()
        new_N = vocabulary.ids(column.dictionary, missing="mark") < 0
        for i in new_N.nonzero().flatten().tolist():
            try:
                names[i] = vocabulary.spell(names[i])
            except UnknownNameError as error:  # it is ambiguous
                raise UnknownNameError(f"{path}: {error}") from None
        columns.append((column.indices.to_numpy(), text_array(names)))
    return coded_table(columns)


def _names(names: Names, report: ReadReport, *known: Vocabulary) -> Names:
    """Returns a graph's prefixes and labels with those of another file."""
    report.prefixes = [*names.prefixes, *report.prefixes]
    old = zip(names.labelled.to_pylist(), names.labels.to_pylist(), strict=True)
    report.labels |= {name: (0, label) for name, label in old}
    others = names.other_labelled.to_pylist(), names.other_labels.to_pylist()
    report.all_labels.update(zip(*others, strict=True))
    return names_of(report, names.base, *(vocabulary.array for vocabulary in known))


def _keys(triples_N3: Tensor, kg: KnowledgeGraph) -> Tensor:
    """Returns a number per triple."""
    rows = triples_N3.long()
    return (rows[:, 0] * kg.n_relations + rows[:, 1]) * kg.n_entities + rows[:, 2]


def _larger(vocabulary: Vocabulary, columns: list[pa.ChunkedArray]) -> Vocabulary:
    """Returns a vocabulary with the names of dictionary columns added."""
    names = [column.chunk(0).dictionary.cast(pa.large_string()) for column in columns]
    return Vocabulary(pa.chunked_array([vocabulary.array, *names]), vocabulary.kind)


def _unknown_words(
    kg: KnowledgeGraph, path: Path, options: ReadOptions, row: int, fact: Tensor
) -> str:
    """Says which fact can't be removed and what is close to it."""
    table = _read(kg, path, options)
    names = [str(table.column(part)[row].as_py()) for part in ("head", "relation", "tail")]
    where = f"{path}{locate_row(path, options, row)}"
    vocabularies = (kg.entities, kg.relations, kg.entities)
    try:
        head, relation, _ = (v.id(n) for v, n in zip(vocabularies, names, strict=True))
    except UnknownNameError as error:
        return f"{where}: {tuple(names)} can't be removed: {error}"
    triples = torch.cat(list(kg.splits.values()))
    same = triples[(triples[:, 0] == head) & (triples[:, 1] == relation)][:, 2]
    has = ", ".join(repr(kg.names.show(name)) for name in kg.entities.names(same[:SHOWN]))
    names = [kg.names.show(name) for name in names]
    more = f" and {len(same) - SHOWN:,} more" if len(same) > SHOWN else ""
    return f"{where}: {tuple(names)} can't be removed: the graph doesn't have it." + (
        f" Tails of {names[0]!r} and {names[1]!r}: {has}{more}." if has else
        f" {names[0]!r} has no fact with {names[1]!r}."
    )  # fmt: skip
