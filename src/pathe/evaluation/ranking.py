"""Evaluation by filtered ranking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pathe.core.errors import ConfigError, DataError
from pathe.core.hardware import as_device
from pathe.core.randomness import keyed
from pathe.core.types import SIDES, Part, Progress, Side, check_frontier, whole_number
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.schema import align
from pathe.evaluation.metrics import HEADLINE, compute
from pathe.graph.known import KnownTriples
from pathe.graph.negatives import corrupt
from pathe.graph.prepared import PreparedGraph, TestSet, prepare
from pathe.model.artifact import Artifact, load_model
from pathe.model.builder import build_scorer, paper_count
from pathe.model.pathe import count_parameters
from pathe.model.ranks import Ranks, join
from pathe.model.scorer import Scorer

# ranks these parts of triples among all candidates
RankParts = Callable[[Scorer, Tensor, tuple[Part, ...]], dict[Part, Ranks]]


def evaluate(
    artifact: Artifact | str | Path,
    kg: KnowledgeGraph | PreparedGraph | str | Path,
    *,
    split: str = "test",
    protocol: str = "full",
    test_set: TestSet = "seen",
    task: str | None = None,
    device: torch.device | str = "auto",
    n_paths: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
    at_most: int = 0,
    frontier: int | None = None,
    rank: RankParts | None = None,
) -> dict[str, Any]:
    """Evaluates a model on a split of a graph; entities are encoded from the graph's train split.

    Both may be given as paths; `device` is auto (a GPU if there is one), cpu, gpu or torch's name.
    Known triples of train, valid and test are filtered. A multi-task model is evaluated on links,
    with the metrics of relations under `relation`, unless `task` is given. `at_most` limits the
    number of triples to a fixed sample. `frontier` is described in `Predictor`. `rank` ranks among
    all candidates in the scorer's stead.
    """
    check_frontier(frontier)
    artifact = artifact if isinstance(artifact, Artifact) else load_model(artifact)
    n_negatives, config = read_protocol(protocol), artifact.config
    task = check_task(config.task, task)
    prepared = aligned(artifact, kg, device)
    kg = prepared.kg
    if n_negatives >= kg.n_entities:  # there are fewer entities: rank all
        n_negatives, protocol = 0, "full"
    triples_M3, n_dropped = _chosen(artifact, prepared, split, test_set)
    triples_M3 = sampled(triples_M3, at_most)
    scorer = build_scorer(
        artifact.model, config, prepared, n_paths=n_paths, seed=seed, frontier=frontier
    )
    if rank is not None and not n_negatives:
        ranks = rank(scorer, triples_M3, parts_of(task))
    else:
        ranks = rank_parts(scorer, triples_M3, parts_of(task), n_negatives, progress)
    report = report_of(ranks, triples_M3[:, 1], list(kg.relations))
    about: dict[str, Any] = {
        "task": task,
        "split": split,
        "test_set": test_set,
        "protocol": protocol,
        "n_triples": len(triples_M3),
        "unknown_relations_dropped": n_dropped,
        "n_candidates": kg.n_relations if task == "relation" else n_negatives or kg.n_entities,
        "n_paths": scorer.n_paths,
        "frontier": scorer.frontier,
        "evaluation_seed": scorer.seed,
        "parameters": count_parameters(artifact.model),
        "parameters_as_published": paper_count(config, kg.n_relations),
    }
    about["effi"] = report["mrr"] / (about["parameters"] / 1e6)
    return about | report


def _chosen(
    artifact: Artifact, prepared: PreparedGraph, split: str, test_set: TestSet
) -> tuple[Tensor, int]:
    """Returns the triples to evaluate on, and the number left out: the model can't know them."""
    triples_M3, n_dropped = prepared.triples(split, test_set), 0
    if artifact.relations is None:  # it knows relations by their training triples
        n_all, triples_M3 = len(triples_M3), prepared.with_seen_relations(triples_M3)
        n_dropped = n_all - len(triples_M3)
    if not len(triples_M3):
        raise DataError(_none_left(prepared.kg, split, test_set, n_dropped))
    return triples_M3, n_dropped


def sampled(triples_M3: Tensor, at_most: int) -> Tensor:
    """Returns a fixed sample of triples, in their order; all of them if `at_most` is 0."""
    if not at_most:
        return triples_M3
    order_M = keyed(0, torch.arange(len(triples_M3), device=triples_M3.device)).argsort()
    return triples_M3[order_M[:at_most].sort().values]


def _none_left(kg: KnowledgeGraph, split: str, test_set: TestSet, n_dropped: int) -> str:
    """Says why there is nothing to evaluate on, and what to do."""
    which = {"seen": " with both entities in train", "unseen": " with an entity not in train"}
    n = len(getattr(kg, split))
    found = f"{kg.name}: no {split} triples{which.get(test_set, '')} to evaluate on ({n:,} in total"
    if n_dropped:
        found += f", {n_dropped:,} left out as their relations have no training triple"
    found += f"; test set: {test_set})."
    if not n:
        return f"{found} Split a file into train,valid,test with --split 0.8,0.1,0.1."
    return found if test_set == "all" else f"{found} --test-set all includes the others."


def aligned(
    artifact: Artifact,
    kg: KnowledgeGraph | PreparedGraph | str | Path,
    device: torch.device | str,
) -> PreparedGraph:
    """Returns the prepared graph on the device, with the model's relation ids; reads a path."""
    device = as_device(device)
    if isinstance(kg, str | Path):
        kg = KnowledgeGraph.read(kg, every_relation=True)
    if isinstance(kg, PreparedGraph):
        same = artifact.relations is None or kg.kg.relations == artifact.relations
        return kg.on(device) if same else prepare(align(kg.kg, artifact.relations), device)
    return prepare(align(kg, artifact.relations), device)


def read_protocol(protocol: str) -> int:
    """Returns the number of negatives per side: 0 (all entities) for `full`, N for `sampled:N`."""
    kind, _, count = protocol.partition(":")
    if kind == "full" and not count:
        return 0
    if kind == "sampled" and (n := whole_number(count)):
        return n
    raise ConfigError(f"protocol must be full or sampled:N, as in sampled:50; got {protocol!r}.")


def check_task(trained: str, wanted: str | None) -> str:
    """Returns the task to run (default: the trained one); raises an error if it isn't trained."""
    if wanted is None or wanted == trained or trained == "multi":
        return wanted or trained
    raise ConfigError(
        f"The model was trained for task {trained}; it can't do {wanted}. Train with --task multi "
        "for both."
    )


def parts_of(task: str) -> tuple[Part, ...]:
    """Returns the parts of triples that are ranked for a task."""
    links: tuple[Part, ...] = () if task == "relation" else SIDES
    return links if task == "link" else (*links, "relation")


def rank_parts(
    scorer: Scorer,
    triples_M3: Tensor,
    parts: tuple[Part, ...],
    n_negatives: int = 0,
    progress: Progress | None = None,
) -> dict[Part, Ranks]:
    """Ranks parts of triples: among all candidates, or heads and tails among n_negatives."""
    known, found = scorer.prepared.known(), dict[Part, Ranks]()
    for part in parts:
        if part == "relation":
            scorer.ensure(triples_M3[:, [0, 2]], progress)
        if part == "relation" or not n_negatives:
            found[part] = scorer.rank(triples_M3, part, known, progress=progress)
        else:
            found[part] = _rank_sampled(scorer, triples_M3, part, known, n_negatives, progress)
    return found


def _rank_sampled(
    scorer: Scorer,
    triples_M3: Tensor,
    side: Side,
    known: KnownTriples,
    n_negatives: int,
    progress: Progress | None,
) -> Ranks:
    pool_C = torch.arange(scorer.prepared.n_entities, device=triples_M3.device)
    drawn = corrupt(known, triples_M3, side, pool_C, n_negatives, seed=scorer.seed)
    return scorer.rank_sampled(triples_M3, side, *drawn, progress)


def report_of(
    ranks: Mapping[Part, Ranks], relations_M: Tensor, names: list[str] | None = None
) -> dict[str, Any]:
    """Returns metrics of ranks: of both sides together and each, those of relations apart.

    `names` of relations add metrics per relation.
    """
    by_side: dict[Part, Ranks] = {side: ranks[side] for side in SIDES if side in ranks}
    report: dict[str, Any] = {}
    if by_side:
        report |= compute(join(list(by_side.values())))
        report |= {side: compute(own) for side, own in by_side.items()}
        if names is not None:
            report["per_relation"] = per_relation(by_side, relations_M, names)
    if "relation" in ranks:
        found: dict[str, Any] = compute(ranks["relation"])
        if names is not None:
            only: dict[Part, Ranks] = {"relation": ranks["relation"]}
            found["per_relation"] = per_relation(only, relations_M, names)
        report = report | {"relation": found} if by_side else found
    return report


def evaluate_links(
    scorer: Scorer,
    triples_M3: Tensor,
    known: KnownTriples,
    *,
    n_negatives: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Returns metrics of link prediction, of both sides together and each.

    Ranks among n_negatives samples, or all entities if 0.
    """
    ranks: dict[Part, Ranks] = {}
    for side in SIDES:
        if n_negatives:
            ranks[side] = _rank_sampled(scorer, triples_M3, side, known, n_negatives, progress)
        else:
            ranks[side] = scorer.rank(triples_M3, side, known, progress=progress)
    return report_of(ranks, triples_M3[:, 1])


def evaluate_relations(
    scorer: Scorer,
    triples_M3: Tensor,
    known: KnownTriples,
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Returns metrics of relation prediction."""
    scorer.ensure(triples_M3[:, [0, 2]], progress)
    ranks = scorer.rank(triples_M3, "relation", known, progress=progress)
    return report_of({"relation": ranks}, triples_M3[:, 1])


def per_relation(
    by_part: Mapping[Part, Ranks], relations_M: Tensor, names: list[str]
) -> list[dict[str, Any]]:
    """Returns metrics per relation, most frequent first; if there are two sides, of each, too."""
    present, counts = relations_M.unique(return_counts=True)
    rows = []
    for relation in present[counts.argsort(descending=True, stable=True)].tolist():
        own = (relations_M == relation).nonzero().squeeze(1)
        parts = {part: ranks[own] for part, ranks in by_part.items()}
        row = {"relation": names[relation], "triples": len(own), **compute(join([*parts.values()]))}
        if len(parts) > 1:
            for part in parts:
                found = compute(parts[part])
                row[part] = {key: found[key] for key in HEADLINE}
        rows.append(row)
    return rows


RELATION_ROW: dict[str, type] = {"relation": str, "triples": int} | dict.fromkeys(
    [f"{part}{key}" for part in ("", "head_", "tail_") for key in HEADLINE], float
)


def relation_rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the metrics per relation of an evaluation as rows of RELATION_ROW's columns."""
    rows = []
    for found in report["per_relation"]:
        row = dict.fromkeys(RELATION_ROW) | {key: found[key] for key in ("relation", "triples")}
        for part in ("", *SIDES):
            own = found if part == "" else found.get(part, {})
            row |= {f"{part}_{key}".removeprefix("_"): own.get(key) for key in HEADLINE}
        rows.append(row)
    return rows
