"""A seeded random search over settings, scored on validation alone; Optuna stores the trials."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import yaml
from lightning.pytorch.callbacks import EarlyStopping

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
BATCH = ("batch_triples", "accumulated")  # the paper's batches count negatives, too
WARM_UP, SLOW_START = 5, 10  # trials before any is pruned; epochs before one is
Say = Callable[[str], None]


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
    say: Say = lambda text: None,
) -> dict[str, Any]:
    """Runs trials until there are n_trials, the same ones for the same seed; writes best.yaml.

    A trial's value is its best validation score; it is pruned when it falls behind the median. The
    defaults are trained too, for comparison. Returns the result, which the folder keeps as JSON.
    """
    require("optuna", "tune", "Searching for settings")
    import optuna

    search = _Search(prepare(kg), space, settings or {}, seed)
    if not len(search.prepared.triples("valid", "seen")):
        raise ConfigError(f"{kg.name}: a search needs validation triples; --split makes them.")
    folder.mkdir(parents=True, exist_ok=True)
    study = _open_study(folder, search)
    same = {key: space.fixed[key] for key in ("task", "valid_negatives") if key in space.fixed}
    default = search.config(same)  # what a search has to beat, validated the same way
    title = validation_title(default)
    if "default" not in study.user_attrs:
        score = _best_score(default, search.prepared, _Watch())
        study.set_user_attr("default", score)
        say(f"the defaults: {title} {score:.4f}")
    done = len(_finished(study))
    if done:
        say(f"{done} trials are done already")
    while done < n_trials:
        # the sampler is seeded anew for each trial, so that a resumed search picks the same
        study.sampler = optuna.samplers.RandomSampler(seed=seed * 100_003 + done)
        study.optimize(lambda trial: _trial(trial, search), n_trials=1)
        done = len(_finished(study))
        say(f"trial {done}/{n_trials}: {_outcome(study.trials[-1], title)}")
    result = _report(study, search, folder, title)
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


def _trial(trial: optuna.Trial, search: _Search) -> float:
    """Trains one pick of the choices; returns its score. Invalid settings count as pruned."""
    from optuna import TrialPruned

    space, kg = search.space, search.prepared.kg
    picked = {key: trial.suggest_categorical(key, values) for key, values in space.choices.items()}
    try:
        config = search.config(settings_of(space, picked))
        check_weights(config, kg.n_relations)
        check_fits(config, kg.n_entities, len(kg.train))
        return _best_score(config, search.prepared, _Watch(trial))
    except PatheError as error:  # such as 3 heads for a width of 64, or a loss that is not a number
        trial.set_user_attr("refused", str(error))
        raise TrialPruned from None


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

    def on_validation_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        self.best = max(self.best, float(trainer.callback_metrics[MONITOR]))
        if self.trial is not None:
            self.trial.report(self.best, trainer.current_epoch)
            if self.trial.should_prune():
                from optuna import TrialPruned

                raise TrialPruned


def _outcome(trial: optuna.trial.FrozenTrial, title: str) -> str:
    if "refused" in trial.user_attrs:
        return f"not possible: {trial.user_attrs['refused']}"
    return "pruned" if trial.state.name == "PRUNED" else f"{title} {trial.value:.4f}"


def _report(study: optuna.Study, search: _Search, folder: Path, title: str) -> dict[str, Any]:
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
        "command": shlex.join(["pathe", *sys.argv[1:]]),
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
                "seconds": t.duration.total_seconds() if t.duration else None,
                "settings": t.params,
            }
            for t in finished
        ],
    }
    write_json(folder / RESULT, result)
    return result
