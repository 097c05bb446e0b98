"""A seeded random search over settings, judged by validation alone; Optuna keeps the trials."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import optuna
import yaml
from lightning.pytorch.callbacks import EarlyStopping
from optuna.storages.journal import JournalFileBackend

from pathe.builder import build_model
from pathe.callbacks import quiet, tf32
from pathe.config import KEYS, Config, configure
from pathe.datasets import KnowledgeGraph
from pathe.errors import ConfigError, PatheError, TrainingError, UnknownNameError, nearest
from pathe.files import replacing, write_json
from pathe.graph import Graph, build_graph
from pathe.machine import commit, pick_device
from pathe.memory import check_fits
from pathe.runs import seen
from pathe.training import PathELearner

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
    """The search spaces that come with the package."""
    folder = resources.files("pathe") / "searches"
    return sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".yaml"))


def read_space(name: str) -> Space:
    """A search space by name, or from a YAML file with `fixed` and `space`."""
    if name.endswith((".yaml", ".yml")):
        text = Path(name).read_text(encoding="utf-8")
    elif name in space_names():
        text = (resources.files("pathe") / "searches" / f"{name}.yaml").read_text(encoding="utf-8")
    else:
        raise UnknownNameError(
            f"There is no search space {name!r}.{nearest(name, space_names())} "
            f"All: {', '.join(space_names())}; or a .yaml file."
        )
    said = yaml.safe_load(text)
    choices = said.get("space") if isinstance(said, dict) else None
    if not isinstance(choices, dict) or not all(
        isinstance(c, list) and c for c in choices.values()
    ):
        raise ConfigError(f"{name}: expected `space:` with a list of choices for each setting.")
    for key in choices:
        if key not in KEYS and key not in BATCH:
            raise ConfigError(f"{name}: there is no setting {key!r}.{nearest(key, KEYS)}")
    return Space(Path(name).stem, said.get("fixed") or {}, choices)


def settings_of(space: Space, picked: Mapping[str, Any]) -> dict[str, Any]:
    """What to set for one pick of the choices."""
    settings = {**space.fixed, **{k: v for k, v in picked.items() if k not in BATCH}}
    if "batch_triples" in picked:
        positives = picked["batch_triples"] * picked.get("accumulated", 1)
        if settings.get("task", "link") != "relation":  # each has two groups with negatives
            positives = positives / (2 * (1 + settings.get("negatives", Config().negatives)))
        settings["batch_size"] = max(round(positives), 1)
    return settings


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
    """Runs what is missing of n_trials, the same for the same seed; the best goes to best.yaml.

    A trial is judged by its best validation MRR and pruned when it falls behind the median; the
    defaults are judged beside them, for comparison.
    """
    valid_M3 = seen(kg, "valid")
    if not len(valid_M3):
        raise ConfigError(f"{kg.name}: a search needs validation triples; --split makes them.")
    folder.mkdir(parents=True, exist_ok=True)
    graph = build_graph(kg.train, kg.n_entities, kg.n_relations)
    study = _open_study(folder, kg, space, settings or {}, seed)
    if "default" not in study.user_attrs:
        config = default_config(space, settings or {}, seed)
        default = _judge(config, kg, graph, valid_M3, _Watch())
        study.set_user_attr("default", default)
        say(f"the defaults: validation MRR {default:.4f}")
    done = len(_finished(study))
    if done:
        say(f"{done} trials are done already")
    while done < n_trials:
        # the sampler is seeded anew for each trial, so that a resumed search picks the same
        study.sampler = optuna.samplers.RandomSampler(seed=seed * 100_003 + done)
        study.optimize(
            lambda trial: _trial(trial, kg, graph, valid_M3, space, settings or {}, seed),
            n_trials=1,
        )
        done = len(_finished(study))
        say(_told(study.trials[-1], done, n_trials))
    return _report(study, kg, space, folder, settings or {}, seed)


def default_config(space: Space, settings: Mapping[str, Any], seed: int) -> Config:
    """What `pathe train` would take for this task: what a search has to beat."""
    task = {"task": space.fixed["task"]} if "task" in space.fixed else {}
    return configure(settings={**task, "seed": seed, **settings}, source=space.name)


def _open_study(
    folder: Path, kg: KnowledgeGraph, space: Space, settings: Mapping[str, Any], seed: int
) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    backend = JournalFileBackend(str(folder / TRIALS))
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(backend),
        study_name="search",
        direction="maximize",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=WARM_UP, n_warmup_steps=SLOW_START),
    )
    about = {
        "data": kg.fingerprint(),
        "seed": seed,
        "space": {k: list(v) for k, v in space.choices.items()},
        "fixed": {**space.fixed, **settings},
    }
    before = study.user_attrs.get("about")
    if before is not None and before != about:
        raise ConfigError(
            f"{folder}: holds a search with other data, space, settings or seed. Name another "
            "--out."
        )
    study.set_user_attr("about", about)
    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)  # was interrupted
    return study


def _finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return study.get_trials(states=states)


def _trial(
    trial: optuna.Trial,
    kg: KnowledgeGraph,
    graph: Graph,
    valid_M3: Any,
    space: Space,
    settings: Mapping[str, Any],
    seed: int,
) -> float:
    picked = {k: trial.suggest_categorical(k, choices) for k, choices in space.choices.items()}
    try:
        config = configure(
            settings={**settings_of(space, picked), "seed": seed, **settings}, source=space.name
        )
        check_fits(config, kg.n_entities, len(kg.train))
    except PatheError as error:  # such as 3 heads for a width of 64
        trial.set_user_attr("refused", str(error))
        raise optuna.TrialPruned from None
    try:
        return _judge(config, kg, graph, valid_M3, _Watch(trial))
    except TrainingError as error:  # a loss that is no number
        trial.set_user_attr("refused", str(error))
        raise optuna.TrialPruned from None


def _judge(config: Config, kg: KnowledgeGraph, graph: Graph, valid_M3: Any, watch: _Watch) -> float:
    """Trains once; gives the best validation MRR."""
    learner = PathELearner(build_model(config, kg.n_relations), config, graph, kg.train, valid_M3)
    stop = EarlyStopping("valid_mrr", config.min_delta, config.patience, mode="max")
    gpu = pick_device(config.accelerator).type == "cuda"
    with quiet(), tf32(), tempfile.TemporaryDirectory() as place:
        pl.Trainer(
            accelerator="gpu" if gpu else "cpu",
            devices=1,
            max_epochs=config.max_epochs,
            check_val_every_n_epoch=config.validate_every,
            accumulate_grad_batches=config.accumulate,
            gradient_clip_val=config.clip or None,
            callbacks=[watch, stop],
            logger=False,
            enable_checkpointing=False,
            default_root_dir=place,
            num_sanity_val_steps=0,
            enable_progress_bar=False,
            enable_model_summary=False,
        ).fit(learner)
    return watch.best


class _Watch(pl.Callback):
    """Keeps the best validation; tells Optuna of each, and stops what it prunes."""

    def __init__(self, trial: optuna.Trial | None = None) -> None:
        self.trial, self.best = trial, 0.0

    def on_validation_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        self.best = max(self.best, float(trainer.callback_metrics["valid_mrr"]))
        if self.trial is None:
            return
        self.trial.report(self.best, trainer.current_epoch)
        if self.trial.should_prune():
            raise optuna.TrialPruned


def _told(trial: optuna.trial.FrozenTrial, done: int, n_trials: int) -> str:
    if "refused" in trial.user_attrs:
        how = f"can't be: {trial.user_attrs['refused']}"
    elif trial.state == optuna.trial.TrialState.PRUNED:
        how = "pruned"
    else:
        how = f"validation MRR {trial.value:.4f}"
    return f"trial {done}/{n_trials}: {how}"


def _report(
    study: optuna.Study,
    kg: KnowledgeGraph,
    space: Space,
    folder: Path,
    settings: Mapping[str, Any],
    seed: int,
) -> dict[str, Any]:
    complete = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    if not complete:
        raise TrainingError("No trial came to its end. Give more --trials, or another space.")
    best = study.best_trial
    chosen = {**settings_of(space, best.params), **settings}
    with replacing(folder / BEST) as aside:
        header = f"# Found by pathe tune on {kg.name}: validation MRR {best.value:.4f}\n"
        aside.write_text(header + yaml.safe_dump(chosen, sort_keys=False), encoding="utf-8")
    result = {
        "command": shlex.join(["pathe", *sys.argv[1:]]),
        "data": kg.name,
        "fingerprint": kg.fingerprint(),
        "space": space.name,
        "seed": seed,
        "commit": commit(),
        "default_valid_mrr": study.user_attrs["default"],
        "best_valid_mrr": best.value,
        "best": chosen,
        "trials": [
            {
                "number": t.number,
                "state": t.state.name.lower(),
                "valid_mrr": t.value,
                "validations": len(t.intermediate_values),
                "seconds": t.duration.total_seconds() if t.duration else None,
                "settings": t.params,
            }
            for t in _finished(study)
        ],
    }
    write_json(folder / RESULT, result)
    from pathe.plots import plot_search

    plot_search(result, folder / REPORT)
    return result
