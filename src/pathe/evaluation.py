"""Filtered ranking: encode every entity once, score in chunks, never triple by triple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from pathe.artifact import Artifact
from pathe.bridging import bridge_links, bridge_relations, sorted_questions
from pathe.builder import TEST, build_describer, derived_seed, paper_count
from pathe.datasets import KnowledgeGraph
from pathe.encoding import Describer, Progress, encode
from pathe.errors import ConfigError, DataError
from pathe.graph import build_graph
from pathe.known import KnownTriples, Lists, Side, index_triples
from pathe.machine import free_memory
from pathe.model import PathE, count_parameters, on_device
from pathe.negatives import corrupt
from pathe.ranking import Ranks, join, metrics, rank
from pathe.schema import align
from pathe.twins import ONE_AT_A_TIME, twin

SIDES: tuple[Side, Side] = ("tail", "head")
TestSet = Literal["seen", "unseen", "all"]  # by whether training knows both entities


def evaluate(
    artifact: Artifact,
    kg: KnowledgeGraph,
    *,
    split: str = "test",
    protocol: str = "full",
    test_set: TestSet = "seen",
    task: str | None = None,
    device: torch.device | str = "cpu",
    n_paths: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """A model's figures on a split of a graph whose train split describes the entities.

    Filters know train, valid and test. A multi-task model is judged by links, with the figures
    for relations under `relation`, unless `task` names one.
    """
    config = artifact.config
    n_negatives = read_protocol(protocol)
    if n_negatives >= kg.n_entities:  # fewer are there: all of them, none twice
        n_negatives, protocol = 0, "full"
    task = check_task(config.task, task)
    kg = align(kg, artifact.relations)
    device = torch.device(device)
    graph = build_graph(kg.train, kg.n_entities, kg.n_relations).to(device)
    triples_M3 = getattr(kg, split)
    if test_set != "all":
        degrees_E = graph.outgoing.degrees_E + graph.incoming.degrees_E
        seen_M = seen_mask(triples_M3, (degrees_E > 0).cpu())
        triples_M3 = triples_M3[seen_M == (test_set == "seen")]
    if not len(triples_M3):
        which = {"seen": " whose entities train has", "unseen": " with an entity that train lacks"}
        raise DataError(
            f"{kg.name}: no {split} triples{which.get(test_set, '')} to evaluate on"
            f" ({len(getattr(kg, split)):,} in all; the test set asked for is {test_set})."
        )
    known = index_triples(torch.cat([kg.train, kg.valid, kg.test]), kg.n_entities, kg.n_relations)
    seed = derived_seed(config.seed, TEST) if seed is None else seed
    describe = build_describer(config, graph, n_paths or config.eval_paths)
    settings: dict[str, Any] = {"seed": seed, "names": list(kg.relations), "progress": progress}
    parts = (on_device(artifact.model, device), describe, triples_M3.to(device), known.to(device))
    if task == "relation":
        report = evaluate_relations(*parts, **settings)
    else:
        report = evaluate_links(*parts, n_negatives=n_negatives, **settings)
        if task == "multi":
            report["relation"] = evaluate_relations(*parts, **settings)
    about: dict[str, Any] = {
        "task": task,
        "split": split,
        "test_set": test_set,
        "protocol": protocol,
        "n_triples": len(triples_M3),
        "n_candidates": kg.n_relations if task == "relation" else n_negatives or kg.n_entities,
        "n_paths": describe.n_paths,
        "evaluation_seed": seed,
        "parameters": count_parameters(artifact.model),
        "parameters_as_published": paper_count(config, kg.n_relations),
    }
    about["effi"] = report["mrr"] / (about["parameters"] / 1e6)
    return about | report


def read_protocol(protocol: str) -> int:
    """Negatives a side of `full` (0: all entities) or `sampled:N`."""
    kind, _, count = protocol.partition(":")
    if kind == "full" and not count:
        return 0
    if kind == "sampled" and count.isdecimal() and int(count) > 0:
        return int(count)
    raise ConfigError(f"The protocol is full or sampled:N, such as sampled:50; got {protocol!r}.")


def check_task(trained: str, wanted: str | None) -> str:
    """The task to evaluate, if the model was trained for it."""
    if wanted is None or wanted == trained or trained == "multi":
        return wanted or trained
    raise ConfigError(
        f"The model was trained for task {trained}; it can't do {wanted}. One that was trained "
        "with --task multi does both."
    )


def memory_budget(device: torch.device) -> int:
    """Bytes that scoring may hold at once: a share of what is free, on a CPU near its cache."""
    if device.type == "cuda":
        return free_memory(device) // 4
    return max(min(free_memory(device) // 8, 64 << 20), 1 << 20)


def rows_at_once(model: PathE, z_E: Tensor, budget: int | None = None) -> int:
    """How many questions to score at once against all entities."""
    per_query = 32 * len(z_E)
    if model.joint:  # every pair goes through the aggregator with all paths of both
        per_query = 24 * len(z_E) * z_E[0].numel()
    if model.bridge:  # what is added, too
        per_query += 12 * len(z_E)
    return max((budget or memory_budget(z_E.device)) // per_query, 1)


def seen_mask(triples_M3: Tensor, in_train_E: Tensor) -> Tensor:
    """True for triples whose head and tail both occur in training."""
    return in_train_E[triples_M3[:, 0].long()] & in_train_E[triples_M3[:, 2].long()]


def evaluate_links(
    model: PathE,
    describe: Describer,
    triples_M3: Tensor,
    known: KnownTriples,
    *,
    n_negatives: int = 0,
    seed: int = 0,
    names: list[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Metrics of link prediction on both sides and each; 0 negatives ranks all entities.

    With `names` of the relations, metrics of each relation too.
    """
    triples_M3 = triples_M3.long()
    n_entities = describe.graph.n_entities
    by_side: dict[str, Ranks] = {}
    if n_negatives:
        drawn = {
            side: _draw(known, triples_M3, side, n_entities, n_negatives, seed) for side in SIDES
        }
        wanted = [triples_M3[:, 0], triples_M3[:, 2], *(n.flatten() for n, _ in drawn.values())]
        entities_U, row_of = torch.cat(wanted).unique(return_inverse=True)
        z_U = encode(model, describe, entities_U, seed=seed, progress=progress)
        heads, tails, *picks = row_of.split([len(w) for w in wanted])
        rows_M3 = torch.stack([heads, triples_M3[:, 1], tails], 1)
        for (side, (negatives, mask)), pick in zip(drawn.items(), picks, strict=True):
            by_side[side] = rank_sampled(
                model, z_U, rows_M3, side, pick.view_as(negatives), mask, describe, entities_U
            )
    else:
        entities_E = torch.arange(n_entities, device=triples_M3.device)
        z_E = encode(model, describe, entities_E, seed=seed)
        for side in SIDES:
            by_side[side] = rank_links(
                model, z_E, triples_M3, side, known, describe, progress=progress
            )
    report: dict[str, Any] = metrics(join(list(by_side.values())))
    report |= {side: metrics(ranks) for side, ranks in by_side.items()}
    if names is not None:
        report["per_relation"] = per_relation(list(by_side.values()), triples_M3[:, 1], names)
    return report


def evaluate_relations(
    model: PathE,
    describe: Describer,
    triples_M3: Tensor,
    known: KnownTriples,
    *,
    seed: int = 0,
    names: list[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Metrics of relation prediction; with `names`, of each relation too."""
    triples_M3 = triples_M3.long()
    pairs = triples_M3[:, [0, 2]].flatten()
    entities_U, row_of = pairs.unique(return_inverse=True)
    z_U = encode(model, describe, entities_U, seed=seed, progress=progress)
    ranks = rank_relations(model, z_U, row_of.view(-1, 2), triples_M3, known, describe)
    report: dict[str, Any] = metrics(ranks)
    if names is not None:
        report["per_relation"] = per_relation([ranks], triples_M3[:, 1], names)
    return report


@torch.inference_mode()
def rank_links(
    model: PathE,
    z_E: Tensor,
    triples_M3: Tensor,
    side: Side,
    known: KnownTriples,
    describe: Describer,
    *,
    budget: int | None = None,
    progress: Progress | None = None,
) -> Ranks:
    """Ranks each triple's head or tail among all entities, known answers left out."""
    answers_E = model.candidates(z_E, side)
    count = _counter(model, answers_E, side)
    rows = rows_at_once(model, z_E, budget)
    if count:  # holds no scores
        rows = max((budget or memory_budget(z_E.device)) // (64 * z_E.shape[-1]), 1)
    found = []
    order_M = None
    if model.bridge:  # looks at equal questions once
        order_M = sorted_questions(triples_M3, side)
        triples_M3 = triples_M3[order_M]
    for part in triples_M3.long().split(rows):
        heads, relations, tails = part.unbind(1)
        fixed, true = (tails, heads) if side == "head" else (heads, tails)
        lists, keys = known.answers(part, side)
        if count:
            found.append(count(z_E[fixed], relations, true, lists, keys))
        else:
            scores = model.candidate_scores(z_E[fixed], relations, answers_E, side).float()
            scores = bridge_links(model, describe, scores, fixed, relations, side)
            found.append(rank(scores, true, lists.find(keys)))
        if progress:
            progress(sum(len(r.optimistic_B) for r in found), len(triples_M3))
    return join(found) if order_M is None else join(found)[order_M.argsort()]


def _counter(model: PathE, answers_E: Tensor, side: Side) -> Callable[..., Ranks] | None:
    """Ranks without a score matrix, where the CPU has its compiled twin."""
    kernel = twin("scores", answers_E.device.type)
    head = model.link_head
    if (
        model.joint
        or model.bridge
        or answers_E.dtype != torch.float32
        or not hasattr(kernel, "rank")
    ):
        return None
    assert kernel is not None
    assert head is not None
    tiled = kernel.tiles(answers_E)

    def count(
        fixed_BD: Tensor, relations_B: Tensor, true_B: Tensor, lists: Lists, keys_B: Tensor
    ) -> Ranks:
        with ONE_AT_A_TIME:
            better_B, equal_B, others_B = kernel.rank(
                head.query(fixed_BD, relations_B, side), tiled, head.second.weight[0],
                len(answers_E), true_B, *lists.locate(keys_B), lists.codes_V1, lists.n_values,
            )  # fmt: skip
        return Ranks(1 + better_B, 1 + better_B + equal_B, 1 + others_B)

    return count


@torch.inference_mode()
def rank_sampled(
    model: PathE,
    z_U: Tensor,
    rows_M3: Tensor,
    side: Side,
    negatives_MN: Tensor,
    mask_MN: Tensor,
    describe: Describer,
    entities_U: Tensor,
) -> Ranks:
    """Ranks each triple's head or tail among its own negatives; entities are rows of z_U."""
    answers_U = model.candidates(z_U, side)
    chunk = 1024
    found = []
    for part, negatives, mask in zip(
        rows_M3.split(chunk), negatives_MN.split(chunk), mask_MN.split(chunk), strict=True
    ):
        heads, relations, tails = part.unbind(1)
        fixed, true = (tails, heads) if side == "head" else (heads, tails)
        answers = torch.cat([true[:, None], negatives], 1)
        scores = model.candidate_scores(z_U[fixed], relations, answers_U[answers], side).float()
        ids = entities_U[fixed], relations, side, entities_U[answers]
        scores = bridge_links(model, describe, scores, *ids)
        excluded = torch.nn.functional.pad(~mask, (1, 0)).nonzero(as_tuple=True)
        found.append(rank(scores, torch.zeros_like(true), (excluded[0], excluded[1])))
    return join(found)


@torch.inference_mode()
def rank_relations(
    model: PathE,
    z_U: Tensor,
    pairs_M2: Tensor,
    triples_M3: Tensor,
    known: KnownTriples,
    describe: Describer,
) -> Ranks:
    """Ranks each triple's relation among all; pairs_M2 are its (head, tail) as rows of z_U."""
    chunk = 4096
    found = []
    for part, pairs in zip(triples_M3.split(chunk), pairs_M2.split(chunk), strict=True):
        heads, relations, tails = part.unbind(1)
        scores = model.relation_scores(z_U[pairs[:, 0]], z_U[pairs[:, 1]]).float()
        scores = bridge_relations(model, describe, scores, heads, tails)
        found.append(rank(scores, relations, known.relations(heads, tails)))
    return join(found)


def per_relation(ranks: list[Ranks], relations_M: Tensor, names: list[str]) -> list[dict[str, Any]]:
    """Metrics of each relation in the test set, most frequent first."""
    present, counts = relations_M.unique(return_counts=True)
    rows = []
    for relation in present[counts.argsort(descending=True, stable=True)].tolist():
        here = (relations_M == relation).nonzero().squeeze(1)
        found = metrics(join([r[here] for r in ranks]))
        rows.append({"relation": names[relation], "triples": len(here), **found})
    return rows


def _draw(
    known: KnownTriples,
    triples_M3: Tensor,
    side: Side,
    n_entities: int,
    n_negatives: int,
    seed: int,
) -> tuple[Tensor, Tensor]:
    pool_C = torch.arange(n_entities, device=triples_M3.device)
    return corrupt(known, triples_M3, side, pool_C, n_negatives, seed=seed)
