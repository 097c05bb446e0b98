"""The search for missing facts in shards: asking queries, and ranking answers from both sides.

What to ask, and what is learned from the answers, is decided by the process that runs the command.
Shards end where the chunks of one process end, so that sums are rounded alike everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from pathe.cluster.graphs import Source
from pathe.cluster.job import Compute, Job, shards_of
from pathe.core.types import PARTS, Progress, Side
from pathe.data.array_files import read_only_tensor
from pathe.evaluation.truth import SideRanks
from pathe.model.scorer import Scorer
from pathe.predict.judge import Judge
from pathe.predict.missing import Best, Queries, Steps, View, best_answers, hide, other_ranks

QUERIES = 16  # per shard, at least
Run = Callable[[Job], Iterable[pa.Table]]  # runs a job, returns the rows of its parts
_views: dict[tuple[str, int | None], View] = {}  # of this process: one


@dataclass(frozen=True)
class Asking:
    """Asks queries of one side, sorted by kind, for facts that the graph lacks."""

    source: Source
    round: int | None  # of hiding; None: the graph as it is
    temperature: float
    side: Side
    given: tuple[npt.NDArray[Any], ...]  # the columns of Queries, then how promising each is

    def open(self) -> Compute:
        view = _view(self)
        columns = [read_only_tensor(array).to(view.prepared.device) for array in self.given]

        def compute(first: int, stop: int) -> pa.Table:
            *some, gain_N = (column[first:stop] for column in columns)
            found = best_answers(view, Queries(*some), gain_N, self.side, _quiet)
            return _table([found.promise_C, *found.triples_C3.unbind(1), *found.ranks])

        return compute


@dataclass(frozen=True)
class OtherSide:
    """Ranks one side of triples, sorted by their queries."""

    source: Source
    round: int | None
    temperature: float
    side: Side
    given: tuple[npt.NDArray[np.int64]]  # triples

    def open(self) -> Compute:
        view = _view(self)
        triples_M3 = read_only_tensor(self.given[0]).to(view.prepared.device)

        def compute(first: int, stop: int) -> pa.Table:
            return _table([*other_ranks(view, triples_M3[first:stop], self.side, _quiet)])

        return compute


def _view(work: Asking | OtherSide) -> View:
    """Returns the graph of a search, with or without hidden facts; made once per process."""
    key = work.source.key, work.round
    if key not in _views:
        _views.clear()
        p = work.source.predictor()
        judge = Judge(p.scorer, p.artifact.config, work.temperature)
        if work.round is None:
            _views[key] = View(p.scorer, p.prepared, judge.about, work.temperature)
        else:
            _views[key] = hide(judge, work.round)[0]
    return _views[key]


def _quiet(done: int, total: int) -> None:
    """Tells no progress: jobs tell their own."""


def can_split(scorer: Scorer) -> bool:
    """Whether a search has the same result, bit for bit, in shards.

    Scores of queries that are scored together, and then kept, depend on all queries before.
    """
    return scorer.one_by_one or not scorer.bridged or bool(scorer.frontier)


def search_steps(source: Source, run: Run) -> Steps:
    """Returns the long steps of `Predictor.missing` as jobs, several per search."""
    about = source.about()

    def found(work: Asking | OtherSide, view: View, step: str) -> list[Tensor]:
        _views.clear()
        _views[source.key, view.round] = view  # this process needs no other one
        prefix = "" if view.round is None else f"hidden-{view.round}-"
        settings = {"round": view.round, "side": work.side, "given": _digest(work.given)}
        rows = view.scorer.rows_at_once()
        shards = shards_of(len(work.given[0]), rows * -(-QUERIES // rows))
        name, parts = f"{prefix}{step}-{work.side}", about | {"settings": settings}
        tables = run(Job(name, work, shards, parts, source.device))
        columns = pa.concat_tables(tables).columns
        return [torch.tensor(c.to_numpy(), device=view.prepared.device) for c in columns]

    def ask(view: View, queries: Queries, gain_N: Tensor, side: Side, tell: Progress) -> Best:
        given = tuple(column.cpu().numpy() for column in (*queries, gain_N))
        work = Asking(source, view.round, view.temperature, side, given)
        promise_C, *columns = found(work, view, "asked")
        return Best(promise_C, torch.stack(columns[:3], 1), SideRanks(*columns[3:]))

    def rank(view: View, triples_C3: Tensor, side: Side, tell: Progress) -> SideRanks:
        asked_C = triples_C3[:, 2 - PARTS.index(side)]
        order_C = (triples_C3[:, 1] * view.prepared.n_entities + asked_C).argsort(stable=True)
        triples = triples_C3[order_C].cpu().numpy()
        if not len(triples):
            return other_ranks(view, triples_C3, side, tell)
        work = OtherSide(source, view.round, view.temperature, side, (triples,))
        columns, back_C = found(work, view, "ranked"), order_C.argsort()
        return SideRanks(*(column[back_C] for column in columns))

    return Steps(ask, rank)


def _digest(arrays: Sequence[npt.NDArray[Any]]) -> str:
    digest = blake2b(digest_size=8)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _table(columns: Sequence[Tensor]) -> pa.Table:
    """Returns columns as a table."""
    arrays = [pa.array(np.ascontiguousarray(column.cpu().numpy())) for column in columns]
    return pa.table({f"c{i}": array for i, array in enumerate(arrays)})
