"""Rank metrics: each is declared once, with its key, its title and how it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathe.model.ranks import Ranks


class Metric(NamedTuple):
    """A metric: `key` in results and files, `title` in tables and plots, `of` computes it."""

    key: str
    title: str
    of: Callable[[Ranks], float]
    digits: int = 3


def _mrr(ranks: Ranks) -> float:
    return float((1 / ranks.realistic_B).mean())


def _hits(k: int) -> Metric:
    def share(ranks: Ranks) -> float:
        return float((ranks.realistic_B <= k).double().mean())

    return Metric(f"hits_at_{k}", f"Hits@{k}", share)


def _mean_rank(ranks: Ranks) -> float:
    return float(ranks.realistic_B.mean())


def _chance(ranks: Ranks) -> float:
    """Returns the expected mean rank of a random order."""
    return float((ranks.candidates_B.double() + 1).mean()) / 2


def _adjusted_mean_rank(ranks: Ranks) -> float:
    return _mean_rank(ranks) / _chance(ranks)


def _adjusted_mean_rank_index(ranks: Ranks) -> float:
    chance = _chance(ranks)
    return 1 - (_mean_rank(ranks) - 1) / (chance - 1) if chance > 1 else 0.0


# Shown in tables, in this order.
METRICS = (
    Metric("mrr", "MRR", _mrr),
    *(_hits(k) for k in (1, 3, 5, 10)),
    Metric("mean_rank", "mean rank", _mean_rank, digits=1),
)
# Chance-adjusted forms, in results only.
ADJUSTED = (
    Metric("adjusted_mean_rank", "adjusted mean rank", _adjusted_mean_rank),
    Metric("adjusted_mean_rank_index", "adjusted mean rank index", _adjusted_mean_rank_index),
)
TITLES = {metric.key: metric.title for metric in (*METRICS, *ADJUSTED)}
HEADLINE = ("mrr", "hits_at_1", "hits_at_10")  # of summaries and model cards


def compute(ranks: Ranks) -> dict[str, float]:
    """Returns every metric of realistic ranks, and their count."""
    if not len(ranks):
        return {"count": 0}
    return {metric.key: metric.of(ranks) for metric in (*METRICS, *ADJUSTED)} | {
        "count": len(ranks)
    }


def mean_mrr(found: Mapping[str, Mapping[str, Any]]) -> float:
    """Returns the mean MRR over tasks, from the metrics of each task."""
    return float(sum(metrics["mrr"] for metrics in found.values()) / len(found))
