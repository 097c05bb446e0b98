"""How many answers a relation's queries have: which relations are functional, learned by counting.

A relation is functional if a head has one tail (`born_in`), and inverse-functional if a tail has
one head. Both are `functional` here, for the queries of one side: (head, relation, ?) is the side
`tail`, and (?, relation, tail) is the side `head`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pathe.core.tensors import Tensors
from pathe.core.types import Side
from pathe.graph.adjacency import Contexts, Graph

SINGLE = 0.9  # share of queries with exactly one answer from which on a relation is functional;
QUERIES = 5  # with fewer queries, no relation is
Overrides = Mapping[tuple[int, Side], bool]  # verdicts by (relation id, side) that aren't learned


@dataclass(frozen=True)
class Functionality(Tensors):
    """Counts per relation, for the queries of one side that have an answer in the graph."""

    queries_R: Tensor  # int64: number of such queries
    mean_R: Tensor  # answers per query; 0 without queries
    single_R: Tensor  # share of queries with exactly one answer; 0 without queries
    functional_R: Tensor  # bool: the verdict


def functionality(graph: Graph, overrides: Overrides | None = None) -> dict[Side, Functionality]:
    """Counts the answers per query of each relation, by side.

    A relation is functional if at least `SINGLE` of at least `QUERIES` queries have exactly one
    answer, unless `overrides` says otherwise.
    """
    contexts: dict[Side, Contexts] = {"tail": graph.out_contexts, "head": graph.in_contexts}
    found = {side: _count(own, graph.n_relations) for side, own in contexts.items()}
    for (relation, side), verdict in (overrides or {}).items():
        found[side].functional_R[relation] = verdict
    return found


def _count(contexts: Contexts, n_relations: int) -> Functionality:
    """Counts context entries: each is a query, and its count is the number of answers."""
    relations_P, answers_P = contexts.relations_P.long(), contexts.counts_P
    queries_R = torch.bincount(relations_P, minlength=n_relations)
    ones_R = torch.bincount(relations_P[answers_P == 1], minlength=n_relations)
    triples_R = torch.bincount(relations_P, answers_P.double(), minlength=n_relations)
    n_R = queries_R.clamp(min=1)
    single_R = ones_R / n_R
    functional_R = (single_R >= SINGLE) & (queries_R >= QUERIES)
    return Functionality(queries_R, (triples_R / n_R).float(), single_R, functional_R)
