"""Temperature scaling: turns scores into probabilities, one temperature per task.

The probability of an answer is softmax(score / temperature) over the ranked candidates, assuming
one of them is correct.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from pathe.core.hardware import free_memory
from pathe.core.randomness import keyed
from pathe.core.types import PARTS, SIDES, Part
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.ranking import aligned
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import Artifact
from pathe.model.builder import build_scorer
from pathe.model.scorer import Scorer

QUERIES = 1000  # most triples per task
BYTES = 256 << 20  # memory limit for the scores,
ACROSS = 200  # most triples per task and graph, if there are several graphs
FEWEST = 100  # except that this many triples may exceed it
ROUNDS = 16  # of bisection, on a logarithmic scale
PRIOR = 0.7  # standard deviation of the prior of the temperature's logarithm
LOWEST, HIGHEST = 1e-2, 1e2
BINS = 10
Scored = tuple[Tensor, Tensor]  # scores_BC, -inf for other known answers; true column_B


def calibrate(
    artifact: Artifact,
    kg: KnowledgeGraph | PreparedGraph,
    *,
    device: torch.device | str = "cpu",
    at_most: int = 0,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Returns a temperature per task of the model, and a report of its effect on valid and test.

    It is fitted on validation triples, filtered by train and valid; `at_most` limits their number.
    Test triples are only reported.
    """
    prepared = aligned(artifact, kg, device)
    scorer = build_scorer(artifact.model, artifact.config, prepared)
    temperatures: dict[str, float] = {}
    report: dict[str, Any] = {}
    for task in artifact.config.tasks:
        valid = list(_scored(scorer, "valid", task, at_most))
        if not valid:
            continue
        temperatures[task] = fit(valid)
        report[task] = {"temperature": temperatures[task], "queries": sum(len(t) for _, t in valid)}
        report[task]["valid"] = _judge(valid, temperatures[task])
        if test := list(_scored(scorer, "test", task, at_most)):
            report[task]["test"] = _judge(test, temperatures[task])
    return temperatures, report


def fit_across(
    scorers: Mapping[str, Scorer], tasks: Iterable[str]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Returns a temperature per task for graphs by name, and a report of its effect on each.

    It is fitted on at most ACROSS validation triples per graph.
    """
    temperatures: dict[str, float] = {}
    report: dict[str, Any] = {}
    for task in tasks:
        able = {n: s for n, s in scorers.items() if task == "link" or s.prepared.n_relations > 1}
        valid = {name: list(_scored(able[name], "valid", task, ACROSS)) for name in able}
        if together := list(chain.from_iterable(valid.values())):
            found = temperatures[task] = fit(together)
            judged = {name: _judge(scored, found) for name, scored in valid.items() if scored}
            report[task] = {"temperature": found, "graphs": judged}
    return temperatures, report


def fit(scored: list[Scored]) -> float:
    """Returns the temperature with the lowest negative log-likelihood, under a weak prior.

    The prior (log-normal) matters only if there are few answers, or if all are right and the best
    temperature would be 0. Bisection finds where the slope is zero.
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
    """Returns d NLL / d beta, beta = 1 / temperature: expected score minus the true answer's."""
    total = 0.0
    for scores_BC, true_B in scored:
        weights_BC = (scores_BC * beta).softmax(1)
        expected_B = (weights_BC * scores_BC.masked_fill(scores_BC.isinf(), 0)).sum(1)
        total += float((expected_B - scores_BC.gather(1, true_B[:, None])[:, 0]).double().sum())
    return total


def nll(scored: list[Scored], temperature: float) -> float:
    """Returns the mean negative log-likelihood of the true answers."""
    losses = [
        -(scores_BC / temperature).log_softmax(1).gather(1, true_B[:, None])
        for scores_BC, true_B in scored
    ]
    return float(torch.cat(losses).double().mean())


def calibration_error(scored: list[Scored], temperature: float) -> float:
    """Returns the expected calibration error of top answers: mean |probability - accuracy|."""
    bests, rights = [], []
    for scores_BC, true_B in scored:
        best = (scores_BC / temperature).softmax(1).max(1)
        bests.append(best.values)
        rights.append(best.indices == true_B)
    best_B, right_B = torch.cat(bests).double(), torch.cat(rights).double()
    bin_B = (best_B * BINS).long().clamp(max=BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.double, device=best_B.device)
    return float(gaps.index_add_(0, bin_B, best_B - right_B).abs().sum() / len(best_B))


def reliability(scorer: Scorer, split: str, task: str, temperature: float) -> dict[str, float]:
    """Returns how well probabilities with a given temperature hold on a split."""
    scored = list(_scored(scorer, split, task))
    return _judge(scored, temperature) if scored else {}


def _judge(scored: list[Scored], temperature: float) -> dict[str, float]:
    return {
        "nll_before": nll(scored, 1.0),
        "nll": nll(scored, temperature),
        "ece_before": calibration_error(scored, 1.0),
        "ece": calibration_error(scored, temperature),
    }


@torch.no_grad()
def _scored(scorer: Scorer, split: str, task: str, at_most: int | None = None) -> Iterator[Scored]:
    """Yields filtered scores of a sample of a split's queries, in chunks."""
    prepared = scorer.prepared
    triples_M3 = prepared.with_seen_relations(prepared.triples(split, "seen"))
    if not len(triples_M3):
        return
    known = prepared.known("train", "valid") if split == "valid" else prepared.known()
    chance_M = keyed(scorer.seed, torch.arange(len(triples_M3), device=prepared.device))
    n_scores = prepared.n_relations if task == "relation" else 2 * prepared.n_entities
    spare = free_memory(prepared.device) // 4
    at_most = min(at_most or QUERIES, QUERIES)
    fewest = min(FEWEST, at_most, spare // (4 * n_scores))
    most = max(min(at_most, BYTES // (4 * n_scores)), fewest, 1)
    triples_M3 = triples_M3[chance_M.argsort()[:most]]
    parts: tuple[Part, ...] = ("relation",) if task == "relation" else SIDES
    for part in parts:
        for ids_B3 in scorer.chunks(triples_M3, part):
            scores_BC = scorer.scores(ids_B3, part)
            yield _filtered(scores_BC, ids_B3[:, PARTS.index(part)], known.find(ids_B3, part))


def _filtered(scores_BC: Tensor, true_B: Tensor, known: tuple[Tensor, Tensor]) -> Scored:
    own_B1 = scores_BC.gather(1, true_B[:, None])
    scores_BC[known] = float("-inf")
    return scores_BC.scatter_(1, true_B[:, None], own_B1), true_B
