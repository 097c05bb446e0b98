"""A seeded random search over settings, scored on validation alone; Optuna stores the trials."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import pyarrow as pa
import yaml
from lightning.pytorch.callbacks import EarlyStopping

from pathe.cluster.graphs import Source, source_of
from pathe.cluster.job import Backend, Compute, Job, shards_of
from pathe.cluster.training import check_one_device, rows_of
from pathe.core.config import KEYS, Config, configure, current_names
from pathe.core.errors import ConfigError, PatheError, TrainingError, nearest
from pathe.core.extras import require
from pathe.core.files import replacing, write_json
from pathe.core.hardware import commit
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.prepared import PreparedGraph, prepare
from pathe.lab.experiments import experiment_names, read_record
from pathe.model.builder import build_model
from pathe.reports.plots import plot_search
from pathe.training.callbacks import quiet, tf32
from pathe.training.learner import MONITOR, validation_title
from pathe.training.memory import check_fits, check_weights
from pathe.training.run import trainer_options
from pathe.training.vector_learner import PathELearner

if TYPE_CHECKING:
    import optuna

SEARCHES = Path(__file__).with_name("searches")  # the spaces that come with the package
TRIALS, BEST, RESULT, REPORT = "trials.log", "best.yaml", "result.json", "report.png"
OUTCOMES = "outcomes"  # a file per trial that a cluster has trained and that isn't told yet
DEFAULTS = -1  # the number of the defaults among the trials
BATCH = ("batch_triples", "accumulated")  # the paper's batches count negatives, too
WARM_UP, SLOW_START = 5, 10  # trials before any is pruned; epochs before one is
Say = Callable[[str], None]
Outcome = dict[str, Any]  # of a trial that was trained elsewhere: its scores by epoch


@dataclass(frozen=True)
class Space:
    """Settings that are fixed, and the choices for each of the others."""

    name: str
    fixed: Mapping[str, Any]
    choices: Mapping[str, list[Any]]


def space_names() -> list[str]:
    """Returns the names of the search spaces that come with the package."""
    return experiment_names(SEARCHES)


def read_space(name: str) -> Space:
    """Reads a search space by name, or from a YAML file with `fixed` and `space`."""
    path, values = read_record("search space", name, SEARCHES)
    choices: Any = values.get("space")
    is_space = isinstance(choices, dict) and all(isinstance(c, list) for c in choices.values())
    if not is_space or not all(choices.values()):
        raise ConfigError(f"{name}: expected `space:` with a list of choices for each setting.")
    choices = current_names(choices)
    for key in choices:
        if key not in KEYS and key not in BATCH:
            raise ConfigError(f"{name}: there is no setting {key!r}.{nearest(key, KEYS)}")
    return Space(path.stem, current_names(values.get("fixed") or {}), choices)


def settings_of(space: Space, picked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of one pick of the choices."""
    settings = {**space.fixed, **{k: v for k, v in picked.items() if k not in BATCH}}
    if "batch_triples" in picked:
        positives = picked["batch_triples"] * picked.get("accumulated", 1)
        if settings.get("task", "link") != "relation":  # each has two groups with negatives
            positives = positives / (2 * (1 + settings.get("negatives", Config().negatives)))
        settings["batch_size"] = max(round(positives), 1)
    return settings


@dataclass(frozen=True)
class _Search:
    """What all trials of a search share; `settings` are fixed in each of them."""

    prepared: PreparedGraph
    space: Space
    settings: Mapping[str, Any]
    seed: int

    def config(self, settings: Mapping[str, Any]) -> Config:
        """Returns these settings with those of all trials."""
        settings = {**settings, "seed": self.seed, **self.settings}
        return configure(settings=settings, source=self.space.name)


def tune(
    kg: KnowledgeGraph,
    space: Space,
    folder: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    n_trials: int = 50,
    seed: int = 0,
    backend: Backend | None = None,
    say: Say = lambda text: None,
    command: str | None = None,
) -> dict[str, Any]:
    """Runs trials until there are n_trials, the same ones for the same seed; writes best.yaml.

    A trial's value is its best validation score; it is pruned when it falls behind the median. The
    defaults are trained too, for comparison. Returns the result, which the folder keeps as JSON.

    A `backend` trains all trials to their end, in any order. Their scores are then reported to
    Optuna in trial order, and trials are pruned where they would have been: the result is that of
    one process. `command` is the command line to record in the result.
    """
    require("optuna", "tune", "Searching for settings")
    search = _Search(prepare(kg), space, settings or {}, seed)
    if not len(search.prepared.triples("valid", "seen")):
        raise ConfigError(f"{kg.name}: a search needs validation triples; --split makes them.")
    folder.mkdir(parents=True, exist_ok=True)
    study = _open_study(folder, search)
    same = {key: space.fixed[key] for key in ("task", "valid_negatives") if key in space.fixed}
    default = search.config(same)  # what a search has to beat, validated the same way
    title, done, outcomes = validation_title(default), len(_finished(study)), {}
    if done:
        say(f"{done} trials are done already")
    if backend is not None:
        new = [] if "default" in study.user_attrs else [DEFAULTS]
        configs = {n: default if n == DEFAULTS else _picked(search, n)
                   for n in [*new, *range(done, n_trials)]}  # fmt: skip
        outcomes = _trained(search, configs, folder / OUTCOMES, backend, say)
    if "default" not in study.user_attrs:
        score = _score_of_defaults(default, search, outcomes.get(DEFAULTS))
        study.set_user_attr("default", score)
        say(f"the defaults: {title} {score:.4f}")
    while done < n_trials:
        study.sampler = _sampler(search, done)
        study.optimize(partial(_trial, search=search, outcome=outcomes.get(done)), n_trials=1)
        done = len(_finished(study))
        say(f"trial {done}/{n_trials}: {_told(study.trials[-1], title)}")
    shutil.rmtree(folder / OUTCOMES, ignore_errors=True)
    result = _report(study, search, folder, title, command)
    if find_spec("matplotlib"):
        plot_search(result, folder / REPORT)
    else:
        say(f"no {REPORT}: plots need matplotlib (pip install 'pathe[plots]')")
    return result


def _open_study(folder: Path, search: _Search) -> optuna.Study:
    """Opens the folder's study, a new one or that of the same search."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(JournalFileBackend(str(folder / TRIALS))),
        study_name="search",
        direction="maximize",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=WARM_UP, n_warmup_steps=SLOW_START),
    )
    about = {
        "data": search.prepared.kg.fingerprint(),
        "seed": search.seed,
        "space": {k: list(v) for k, v in search.space.choices.items()},
        "fixed": {**search.space.fixed, **search.settings},
    }
    if study.user_attrs.get("about", about) != about:
        raise ConfigError(
            f"{folder}: has a search with other data, space, settings or seed. Name another --out."
        )
    study.set_user_attr("about", about)
    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)  # was interrupted
    return study


def _finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    return [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]


def _sampler(search: _Search, number: int) -> optuna.samplers.BaseSampler:
    """Returns the sampler of one trial: a resumed search, and a cluster, pick the same."""
    import optuna

    return optuna.samplers.RandomSampler(seed=search.seed * 100_003 + number)


def _pick(trial: optuna.Trial, search: _Search) -> dict[str, Any]:
    """Returns the settings of a trial."""
    space = search.space
    picked = {key: trial.suggest_categorical(key, values) for key, values in space.choices.items()}
    return settings_of(space, picked)


def _trial(trial: optuna.Trial, search: _Search, outcome: Outcome | None = None) -> float:
    """Trains one pick of the choices; returns its score. Invalid settings count as pruned."""
    from optuna import TrialPruned

    settings = _pick(trial, search)
    try:
        if outcome is not None:
            return _replayed(trial, outcome)
        return _checked_score(search.config(settings), search.prepared, _Watch(trial))
    except PatheError as error:  # such as 3 heads for a width of 64, or a loss that is not a number
        trial.set_user_attr("refused", str(error))
        raise TrialPruned from None


def _checked_score(config: Config, prepared: PreparedGraph, watch: _Watch) -> float:
    """Trains once if the settings fit this machine; returns the best validation score."""
    check_weights(config, prepared.n_relations)
    check_fits(config, prepared.n_entities, len(prepared.kg.train))
    return _best_score(config, prepared, watch)


# trials on a cluster


@dataclass(frozen=True)
class _Trials:
    """Trains one configuration per row; returns the outcomes, as JSON."""

    source: Source
    configs: tuple[Config, ...]

    def open(self) -> Compute:
        prepared = self.source.prepared()

        def compute(first: int, stop: int) -> pa.Table:
            found = [_outcome_of(config, prepared) for config in self.configs[first:stop]]
            return pa.table({"outcome": [json.dumps(outcome) for outcome in found]})

        return compute


def _outcome_of(config: Config, prepared: PreparedGraph) -> Outcome:
    watch, begin, refused = _Watch(), time.perf_counter(), ""
    try:
        _checked_score(config, prepared, watch)
    except PatheError as error:
        refused = str(error)
    seconds = time.perf_counter() - begin
    return {"scores": watch.scores, "refused": refused, "seconds": seconds}


def _picked(search: _Search, number: int) -> Config | str:
    """Returns the configuration of a trial, or why its settings are impossible."""
    import optuna

    study = optuna.create_study(sampler=_sampler(search, number))
    try:
        config = search.config(_pick(study.ask(), search))
    except PatheError as error:
        return str(error)
    check_one_device(config)
    return config


def _trained(
    search: _Search, configs: Mapping[int, Config | str], folder: Path, backend: Backend, say: Say
) -> dict[int, Outcome]:
    """Returns the outcomes of trials; those that the folder lacks are trained on a cluster."""
    found = {n: {"scores": [], "refused": config, "seconds": 0.0}
             for n, config in configs.items() if isinstance(config, str)}  # fmt: skip
    missing: dict[int, Config] = {}
    for n, config in configs.items():
        if isinstance(config, str):
            continue
        if (stored := _stored(folder / f"{n}.json", config)) is not None:
            found[n] = stored
        else:
            missing[n] = config
    if found:
        say(f"{len(found)} of {len(configs)} need no training")
    if not missing:
        return found
    numbers, wanted = list(missing), tuple(missing.values())
    folder.mkdir(exist_ok=True)
    work = _Trials(source_of(search.prepared), wanted)
    job = Job("trials", work, shards_of(len(wanted), 1), {}, wanted[0].accelerator)
    for row, part in backend(job, range(len(wanted))):
        n, outcome = numbers[row], json.loads(rows_of(part)["outcome"][0].as_py())
        found[n] = outcome | {"config": wanted[row].as_dict()}
        write_json(folder / f"{n}.json", found[n])
        say(f"{'the defaults' if n == DEFAULTS else f'trial {n + 1}'}: trained on {part.node}")
    return found


def _stored(path: Path, config: Config) -> Outcome | None:
    """Returns the outcome in a file; None without one, or if it is damaged or of other settings."""
    try:
        stored: Outcome = json.loads(path.read_text(encoding="utf-8"))
        same = stored["config"] == json.loads(json.dumps(config.as_dict()))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return stored if same else None


def _replayed(trial: optuna.Trial, outcome: Outcome) -> float:
    """Tells Optuna the scores of a trial; returns the best one, or stops where it is pruned."""
    watch = _Watch(trial)
    trial.set_user_attr("seconds", outcome["seconds"])
    for epoch, score in outcome["scores"]:
        watch.take(epoch, score)
    if outcome["refused"]:
        raise ConfigError(outcome["refused"])
    return watch.best


def _score_of_defaults(config: Config, search: _Search, outcome: Outcome | None) -> float:
    """Returns the best validation score of the defaults."""
    watch = _Watch()
    if outcome is None:
        return _best_score(config, search.prepared, watch)
    if outcome["refused"]:
        raise ConfigError(outcome["refused"])
    return max((float(score) for _, score in outcome["scores"]), default=0.0)


# training


def _best_score(config: Config, prepared: PreparedGraph, watch: _Watch) -> float:
    """Trains once, on one device; returns the best validation score."""
    config = replace(config, devices=1)
    learner = PathELearner(build_model(config, prepared.n_relations), config, prepared)
    stop = EarlyStopping(MONITOR, config.min_delta, config.patience, mode="max")
    off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
    with quiet(), tf32(), tempfile.TemporaryDirectory() as place:
        options = {**trainer_options(config), **off, "default_root_dir": place}
        pl.Trainer(**options, callbacks=[watch, stop]).fit(learner)
    return watch.best


class _Watch(pl.Callback):
    """Keeps the best validation score; reports each to Optuna, and stops what it prunes."""

    def __init__(self, trial: optuna.Trial | None = None) -> None:
        self.trial, self.best = trial, 0.0
        self.scores: list[tuple[int, float]] = []  # the best one so far, by epoch

    def on_validation_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        self.take(trainer.current_epoch, float(trainer.callback_metrics[MONITOR]))

    def take(self, epoch: int, score: float) -> None:
        """Takes the score of an epoch; raises TrialPruned if Optuna prunes the trial."""
        self.best = max(self.best, score)
        self.scores.append((epoch, self.best))
        if self.trial is not None:
            self.trial.report(self.best, epoch)
            if self.trial.should_prune():
                from optuna import TrialPruned

                raise TrialPruned


def _told(trial: optuna.trial.FrozenTrial, title: str) -> str:
    if "refused" in trial.user_attrs:
        return f"not possible: {trial.user_attrs['refused']}"
    return "pruned" if trial.state.name == "PRUNED" else f"{title} {trial.value:.4f}"


def _seconds(trial: optuna.trial.FrozenTrial) -> float | None:
    """Returns how long a trial was trained, here or elsewhere."""
    if "seconds" in trial.user_attrs:
        return float(trial.user_attrs["seconds"])
    return trial.duration.total_seconds() if trial.duration else None


def _report(
    study: optuna.Study, search: _Search, folder: Path, title: str, command: str | None
) -> dict[str, Any]:
    """Writes the best settings and the result; returns the result."""
    finished, kg = _finished(study), search.prepared.kg
    if not any(trial.state.name == "COMPLETE" for trial in finished):
        raise TrainingError("No trial was completed. Give more --trials, or another space.")
    best = study.best_trial
    chosen = {**settings_of(search.space, best.params), **search.settings}
    with replacing(folder / BEST) as aside:
        header = f"# Found by pathe tune on {kg.name}: {title} {best.value:.4f}\n"
        aside.write_text(header + yaml.safe_dump(chosen, sort_keys=False), encoding="utf-8")
    result = {
        "command": command,
        "data": kg.name,
        "fingerprint": kg.fingerprint(),
        "space": search.space.name,
        "seed": search.seed,
        "commit": commit(),
        "validation": title,
        "default_valid_score": study.user_attrs["default"],
        "best_valid_score": best.value,
        "best": chosen,
        "trials": [
            {
                "number": t.number,
                "state": t.state.name.lower(),
                "valid_score": t.value,
                "validations": len(t.intermediate_values),
                "seconds": _seconds(t),
                "settings": t.params,
            }
            for t in finished
        ],
    }
    write_json(folder / RESULT, result)
    return result
