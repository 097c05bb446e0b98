"""Scores -> probabilities: a temperature a task, fitted where the answers are known.

The probability of an answer is softmax(score / temperature) over the answers that compete: how
likely it is, given that one of them is what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pathe.artifact import Artifact
from pathe.bridging import bridge_links, bridge_relations
from pathe.builder import TEST, build_describer, derived_seed
from pathe.datasets import KnowledgeGraph
from pathe.encoding import Describer, encode
from pathe.evaluation import SIDES, rows_at_once, seen_mask
from pathe.graph import build_graph
from pathe.known import KnownTriples, index_triples
from pathe.machine import free_memory
from pathe.model import PathE, on_device
from pathe.randomness import keyed

QUERIES = 1000  # triples at most, of each task
BYTES = 256 << 20  # of scores held for the fit
FEWEST = 100  # triples, though they take more memory than that
ROUNDS = 16  # of halving the interval, in logarithms
PRIOR = 0.7  # standard deviation of the temperature's logarithm before anything is seen
LOWEST, HIGHEST = 1e-2, 1e2
BINS = 10
Scored = tuple[Tensor, Tensor]  # scores_BC, -inf where an answer is known; the true column_B


def calibrate(
    artifact: Artifact, kg: KnowledgeGraph, *, device: torch.device | str = "cpu"
) -> tuple[dict[str, float], dict[str, Any]]:
    """A temperature for each task of the model, and what it does on validation and test.

    Fitted on validation triples, with filters that know train and valid. The test figures say how
    far to trust it; nothing is fitted on them.
    """
    tasks = ("link", "relation") if artifact.config.task == "multi" else (artifact.config.task,)
    temperatures: dict[str, float] = {}
    report: dict[str, Any] = {}
    for task in tasks:
        valid = list(_scored(artifact, kg, "valid", task, device))
        if not valid:
            continue
        temperatures[task] = fit(valid)
        report[task] = {"temperature": temperatures[task], "queries": sum(len(t) for _, t in valid)}
        report[task]["valid"] = _judge(valid, temperatures[task])
        if test := list(_scored(artifact, kg, "test", task, device)):
            report[task]["test"] = _judge(test, temperatures[task])
    return temperatures, report


def fit(scored: list[Scored]) -> float:
    """The temperature of the least negative log-likelihood, less a pull towards 1.

    The pull (a normal prior on its logarithm) matters only where there are few answers, or where
    all are right: no finite temperature would be the best. The slope is searched for zero by
    halving.
    """
    low, high = 1 / HIGHEST, 1 / LOWEST
    for _ in range(ROUNDS):
        beta = (low * high) ** 0.5
        if _slope(scored, beta) + math.log(beta) / (PRIOR**2 * beta) > 0:
            high = beta
        else:
            low = beta
    return float(1 / (low * high) ** 0.5)


def _slope(scored: list[Scored], beta: float) -> float:
    """Of the negative log-likelihood in beta: expected score less the true answer's."""
    total = 0.0
    for scores_BC, true_B in scored:
        weights_BC = (scores_BC * beta).softmax(1)
        expected_B = (weights_BC * scores_BC.masked_fill(scores_BC.isinf(), 0)).sum(1)
        total += float((expected_B - scores_BC.gather(1, true_B[:, None])[:, 0]).double().sum())
    return total


def nll(scored: list[Scored], temperature: float) -> float:
    """Mean negative log-likelihood of the true answers."""
    losses = [
        -(scores_BC / temperature).log_softmax(1).gather(1, true_B[:, None])
        for scores_BC, true_B in scored
    ]
    return float(torch.cat(losses).double().mean())


def calibration_error(scored: list[Scored], temperature: float) -> float:
    """Expected calibration error of the best answers: |probability - share that is right|."""
    bests, rights = [], []
    for scores_BC, true_B in scored:
        best = (scores_BC / temperature).softmax(1).max(1)
        bests.append(best.values)
        rights.append(best.indices == true_B)
    best_B, right_B = torch.cat(bests).double(), torch.cat(rights).double()
    bin_B = (best_B * BINS).long().clamp(max=BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.double, device=best_B.device)
    return float(gaps.index_add_(0, bin_B, best_B - right_B).abs().sum() / len(best_B))


def _judge(scored: list[Scored], temperature: float) -> dict[str, float]:
    return {
        "nll_before": nll(scored, 1.0),
        "nll": nll(scored, temperature),
        "ece_before": calibration_error(scored, 1.0),
        "ece": calibration_error(scored, temperature),
    }


@torch.inference_mode()
def _scored(
    artifact: Artifact, kg: KnowledgeGraph, split: str, task: str, device: torch.device | str
) -> Iterator[Scored]:
    """Filtered scores of a sample of a split's questions, a chunk at a time."""
    config, model = artifact.config, on_device(artifact.model, device)
    graph = build_graph(kg.train, kg.n_entities, kg.n_relations).to(device)
    degrees_E = graph.outgoing.degrees_E + graph.incoming.degrees_E
    triples_M3 = getattr(kg, split)
    triples_M3 = triples_M3[seen_mask(triples_M3, (degrees_E > 0).cpu())].to(device).long()
    if not len(triples_M3):
        return
    filters = [kg.train, kg.valid] + ([kg.test] if split == "test" else [])
    known = index_triples(torch.cat(filters), kg.n_entities, kg.n_relations).to(device)
    seed = derived_seed(config.seed, TEST)
    chance_M = keyed(seed, torch.arange(len(triples_M3), device=triples_M3.device))
    answers = kg.n_relations if task == "relation" else 2 * kg.n_entities
    spare = free_memory(torch.device(device)) // 4
    most = max(min(QUERIES, BYTES // (4 * answers)), min(FEWEST, spare // (4 * answers)), 1)
    triples_M3 = triples_M3[chance_M.argsort()[:most]]
    describe = build_describer(config, graph, config.eval_paths)
    yield from _questions(model, describe, triples_M3, known, task, seed)


def _questions(
    model: PathE,
    describe: Describer,
    triples_M3: Tensor,
    known: KnownTriples,
    task: str,
    seed: int,
) -> Iterator[Scored]:
    if task == "relation":
        pairs, rows = triples_M3[:, [0, 2]].unique(return_inverse=True)
        z_U = encode(model, describe, pairs, seed=seed)
        chunk = 4096
        for part, at in zip(triples_M3.split(chunk), rows.split(chunk), strict=True):
            scores_BR = model.relation_scores(z_U[at[:, 0]], z_U[at[:, 1]]).float()
            scores_BR = bridge_relations(model, describe, scores_BR, part[:, 0], part[:, 2])
            yield _filtered(scores_BR, part[:, 1], known.relations(part[:, 0], part[:, 2]))
        return
    z_E = encode(
        model, describe, torch.arange(known.n_entities, device=triples_M3.device), seed=seed
    )
    for side in SIDES:
        answers_E = model.candidates(z_E, side)
        for part in triples_M3.split(rows_at_once(model, z_E)):
            heads, relations, tails = part.unbind(1)
            fixed, true = (tails, heads) if side == "head" else (heads, tails)
            lists, keys = known.answers(part, side)
            scores_BE = model.candidate_scores(z_E[fixed], relations, answers_E, side).float()
            scores_BE = bridge_links(model, describe, scores_BE, fixed, relations, side)
            yield _filtered(scores_BE, true, lists.find(keys))


def _filtered(scores_BC: Tensor, true_B: Tensor, known: tuple[Tensor, Tensor]) -> Scored:
    own_B1 = scores_BC.gather(1, true_B[:, None])
    scores_BC[known] = float("-inf")
    return scores_BC.scatter_(1, true_B[:, None], own_B1).float(), true_B
