"""Trains on a graph as `pathe train` does: chooses settings, tells the time, trains."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pathe.core import html
from pathe.core.config import Config, configure, current_names
from pathe.core.errors import ConfigError, DataError, nearest
from pathe.core.hardware import pick_device
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.schema import align, with_train_relations
from pathe.evaluation.metrics import METRICS
from pathe.graph.leakage import warnings_of
from pathe.graph.prepared import PreparedGraph, prepare
from pathe.model.artifact import Artifact, load_model
from pathe.training import run as runs
from pathe.training import run_folder, selection, timing
from pathe.training.costs import in_words, minutes_words
from pathe.training.defaults import BUDGET, plan, plan_from
from pathe.training.memory import check_memory
from pathe.training.processes import free_folder, is_leader, leader_folder
from pathe.training.start import build_learner

QUICK, QUICK_TEST = 0.5, 15.0  # minutes of training in a quick run, seconds of its evaluation
MANY_SECONDS = 1200  # over this, the options that shorten training are named
Data = str | Path | KnowledgeGraph | PreparedGraph


@dataclass(frozen=True, eq=False, repr=False)
class TrainedRun(Mapping[str, Any]):
    """A finished run: its folder and result, whose keys it also has, and the model."""

    folder: Path
    result: dict[str, Any]

    @cached_property
    def model(self) -> Artifact:
        return load_model(self.folder)

    def __getitem__(self, key: str) -> Any:
        return self.result[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.result)

    def __len__(self) -> int:
        return len(self.result)

    def __repr__(self) -> str:
        found = self.result
        score = f", {found['split']} MRR {found['mrr']:.3f}" if "mrr" in found else ""
        seconds = f", {found['train_seconds']:.0f} s" if "train_seconds" in found else ""
        return f"TrainedRun({str(self.folder)!r}{score}{seconds})"

    def _repr_html_(self) -> str:
        found, rows = self.result, []
        sides = {"all": found, "heads": found.get("head"), "tails": found.get("tail"),
                 "relations": found.get("relation")}  # fmt: skip
        for name, own in sides.items():
            if own and "mrr" in own:
                rows.append((name, *(own[metric.key] for metric in METRICS)))
        what = [f"{found[key]:,} {words}" for key, words in
                (("parameters", "parameters"), ("epochs", "epochs")) if key in found]  # fmt: skip
        what += [f"{found['train_seconds']:.0f} s"] if "train_seconds" in found else []
        about = f"({', '.join(what)})" if what else ""
        columns = (f"{found.get('split', '')} triples", *(metric.title for metric in METRICS))
        return html.title(str(self.folder), about) + html.table(columns, rows)


@dataclass(frozen=True)
class _Job:
    """What to train, and how."""

    candidates: dict[str, Config]
    start: Artifact | None
    given: frozenset[str] | None  # settings that must stay; None: all of them
    quick: bool
    done: int = 0  # epochs of a resumed run


def train(
    data: Data,
    config: Config | None = None,
    out: Path | str | None = None,
    *,
    start: Path | str | Artifact | None = None,
    quick: bool = False,
    device: str = "auto",
    resume: bool = False,
    say: runs.Say = lambda text: print(text, file=sys.stderr),
    progress_bar: bool = True,
    command: str | None = None,
    **settings: Any,
) -> TrainedRun:
    """Trains on a graph, or on a file, folder or data set, and returns the run.

    Without a `config`, chooses settings, and tries several models on small graphs, as `pathe train`
    does. `minutes`, `seed`, `task` and all other settings of `Config` can be given by name. `quick`
    stands for half a minute of training. `start` is a model or run to start from instead of the
    pre-trained model. `out` is the run's folder, by default a new one in `runs`. `command` is the
    command line to record in the result, if there was one.
    """
    settings = current_names(settings) | ({"accelerator": device} if device != "auto" else {})
    _check(config, settings, quick, start)
    model = load_model(start) if isinstance(start, str | Path) else start
    prepared = prepare(_read(data, model, drops=config is None, say=say))
    if is_leader():
        for text in warnings_of(prepared):
            say(f"warning: {text}")
    job, words = _choose(
        prepared, config, Path(out) if out else None, settings, model, quick, resume
    )
    if model is not None:
        which = "the given model" if start is model else f"the model in {start}"
        say(f"continuing from {which}")
    if words:
        say(f"settings for this graph: {words}")
    task = next(iter(job.candidates.values())).task
    usual = Path("runs") / f"{prepared.kg.name.replace(':', '-')}-{task}"
    folder = Path(out) if out else free_folder(usual)
    if not resume and is_leader():
        run_folder.check_free(folder)
    candidates = _timed(prepared, job, say) if is_leader() else job.candidates
    say(f"run folder: {folder}")
    how = runs.Options(resume, say, progress_bar, command)
    if len(candidates) > 1:
        return TrainedRun(folder, selection.train_best(prepared, candidates, folder, how))
    [only] = candidates.values()
    return TrainedRun(folder, runs.train(prepared, only, folder, how, model))


def _check(config: Config | None, settings: dict[str, Any], quick: bool, start: object) -> None:
    """Raises an error for settings that don't go together."""
    configure(config, settings)
    minutes = settings.get("minutes")
    if quick and minutes:
        raise ConfigError("Give either a number of minutes or quick, not both.")
    if config is not None and (quick or start is not None):
        what = "quick" if quick else "a model to start from"
        raise ConfigError(f"{what} chooses its own settings: leave the preset or config out.")


def _read(data: Data, model: Artifact | None, drops: bool, say: runs.Say) -> Any:
    """Reads the data; drops valid and test triples of relations that train lacks.

    A model to start from that has a table of relations must know those of the graph.
    """
    if isinstance(data, str | Path):
        data = KnowledgeGraph.read(data, every_relation=drops)
    if drops:
        kg = data.kg if isinstance(data, PreparedGraph) else data
        found, n_dropped = with_train_relations(kg)
        if n_dropped:
            say(f"{n_dropped:,} valid and test triples left out: train lacks their relations")
        data = data if found is kg else found
    if model is None or model.config.relation_vectors != "table":
        return data
    kg = data.kg if isinstance(data, PreparedGraph) else data
    assert model.relations is not None
    if unknown := [name for name in kg.relations if name not in model.relations]:
        raise DataError(
            f"{kg.name}: the model to start from has a table of its {len(model.relations):,} "
            f"relations and lacks {unknown[0]!r}"
            + (f" and {len(unknown) - 1} more" if len(unknown) > 1 else "")
            + f".{nearest(unknown[0], model.relations)} Leave such triples out, or train without "
            "--from: the pre-trained model works with any relation."
        )
    return data if kg.relations == model.relations else align(kg, model.relations)


def _choose(
    prepared: PreparedGraph, config: Config | None, out: Path | None, settings: dict[str, Any],
    model: Artifact | None, quick: bool, resume: bool,
) -> tuple[_Job, str]:  # fmt: skip
    """Returns what to train, and a description of what was chosen."""
    if place := leader_folder() or (out if resume else None):
        stored = selection.stored_candidates(place)
        if stored and "minutes" in settings:
            raise ConfigError("--minutes can't be changed for a run that tries several models.")
        kept = stored or {"": run_folder.resumed_config(place)}
        candidates = {name: configure(c, settings, "--set") for name, c in kept.items()}
        done = 0 if stored else len(run_folder.read_metrics(place))
        begin = place / run_folder.START
        model = load_model(begin) if begin.is_dir() else None
        return _Job(candidates, model, None, False, done), ""
    if resume:
        raise ConfigError("--resume needs the run's folder: --out RUN.")
    if config is not None:
        return _Job({"": configure(config, settings)}, None, None, False), ""
    if quick:
        settings = {"minutes": QUICK} | settings
    if model is not None:
        found = plan_from(prepared, model, settings)
    else:
        found = plan(prepared, settings, several=not quick)
    words = found.description
    if quick:
        words = f"a quick look, half a minute of training: {words}"
    return _Job(found.candidates, model, frozenset(settings), quick), words


def _timed(prepared: PreparedGraph, job: _Job, say: runs.Say) -> dict[str, Config]:
    """Measures how fast steps are, fits settings into their time limit and tells the time."""
    found, training, evaluation, early = {}, 0.0, 0.0, False
    for name, config in job.candidates.items():
        device = pick_device(config.accelerator)
        check_memory(config, prepared)
        pace = timing.measure(build_learner(config, prepared, job.start), device)
        if job.given is not None:
            limit = 60 * config.minutes or (2 * BUDGET if config.init != "none" else float("inf"))
            if pace.training(config, prepared) > limit:
                limit = 60 * config.minutes or BUDGET
                config = timing.fit(config, pace, prepared, limit, job.given)
            if job.quick:
                config = timing.quick_test(config, pace, prepared, QUICK_TEST)
        found[name] = config
        seconds = pace.training(config, prepared) * (1 - job.done / config.max_epochs)
        training += min(seconds, 60 * config.minutes or seconds)
        evaluation += pace.evaluation(config, prepared)
        early = early or len(prepared.triples("valid", "seen")) > 0
    if training:
        say(_words(found, training, evaluation, early))
    return found


def _words(found: dict[str, Config], training: float, evaluation: float, stops_early: bool) -> str:
    """Says how long training takes, and how to shorten it if that is long."""
    total = training + evaluation
    parts = f"training about {in_words(training)}"
    if stops_early:
        parts += ", less if validation stops improving"
    parts += f"; evaluation about {in_words(evaluation)}" if evaluation >= 1 else ""
    text = f"this takes at most about {in_words(total)} (measured here: {parts})"
    if limit := sum(config.minutes for config in found.values()):
        text += f"; training stops after {minutes_words(limit)}, evaluation follows"
    elif total > MANY_SECONDS:
        text += ". Shorten it with --minutes 20, or take a quick look with --quick"
    return text
