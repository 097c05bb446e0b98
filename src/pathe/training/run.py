"""A training run and its folder: settings, metrics, checkpoints, model, result and plots."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import yaml
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from torch import Tensor

from pathe.core.config import Config, configure, current_names
from pathe.core.errors import ConfigError, ModelError, TrainingError
from pathe.core.files import check_new_folder, locked, remove, replacing, write_json
from pathe.core.hardware import commit, device_name, peak_memory, pick_device
from pathe.core.yaml_files import read_settings_file, read_text
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.calibration import calibrate
from pathe.evaluation.metrics import HEADLINE
from pathe.evaluation.ranking import evaluate
from pathe.graph.analysis import linked_pairs, wants_pairs_held_out
from pathe.graph.prepared import PreparedGraph, prepare
from pathe.model.artifact import (
    SHIPPED,
    Artifact,
    load_model,
    model_digest,
    save_model,
    write_card,
)
from pathe.model.builder import build_foundation, build_model, paper_count
from pathe.model.pathe import count_parameters
from pathe.reports.plots import plot_run
from pathe.training.averaging import Averaged, average_with_start
from pathe.training.batches import n_steps
from pathe.training.callbacks import (
    Bar,
    EpochLines,
    Keep,
    MetricLines,
    StopKey,
    TimeLeft,
    TimeLimit,
    WholeFiles,
    quiet,
    read_metric_lines,
    stopping,
    tf32,
)
from pathe.training.checkpoints import UNREADABLE, read_checkpoint
from pathe.training.graph_learner import GraphLearner
from pathe.training.learner import MONITOR, Learner, validation_title
from pathe.training.memory import check_memory
from pathe.training.pretraining import repeatable
from pathe.training.vector_learner import PathELearner

CHECKPOINTS, MODEL, RESULT, METRICS = "checkpoints", "model", "result.json", "metrics.jsonl"
SETTINGS, REPORT, START = "config.yaml", "report.png", "start"
OPEN_SECONDS = 1800  # that other processes wait for the first one to open a run
LEFTOVERS = (".model-*", ".*.tmp")  # what a killed process leaves in a run's folder
FEW_STEPS, SMALL_BATCH = 5, 8  # fewer steps per epoch than this, with larger batches: give a hint
SIZES = (
    "dim", "heads", "layers", "feedforward", "aggregator", "aggregator_layers", "projector_layers",
    "neighbour_contexts", "bridge", "bridge_dim", "bridge_hops", "relation_layers",
)  # settings that a model to start from fixes  # fmt: skip
TABLE = "encoder.table"  # the weight that belongs to a set of relations
Say = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """An open run: its folder, settings, the checkpoint to resume from, a model to start from."""

    folder: Path
    config: Config
    fingerprint: str
    last: Path | None  # checkpoint
    ended: int | None  # epochs of a finished run
    say: Say
    shows_progress: bool
    start: Artifact | None = None


@dataclass(frozen=True)
class Fitted:
    """The outcome of training: the learner with the best weights, epochs, score, time, memory."""

    learner: Learner
    epochs: int
    best_score: float | None
    seconds: float
    peak_bytes: int
    device: torch.device
    averaged: Averaged | None = None  # with the weights before training

    @property
    def start_score(self) -> float | None:
        """The validation score before training, of a model that isn't new."""
        return self.learner.start_score


def train(
    kg: KnowledgeGraph | PreparedGraph,
    config: Config,
    folder: Path,
    *,
    resume: bool = False,
    say: Say = lambda text: None,
    progress_bar: bool = True,
    start: Artifact | None = None,
) -> dict[str, Any]:
    """Trains with early stopping, exports and evaluates the best model, returns the result.

    With `init=model`, `start` is the model to start from; a resumed run has its copy.
    """
    given, kg = kg, kg.kg if isinstance(kg, PreparedGraph) else kg
    if config.task != "link" and kg.n_relations < 2:
        raise ConfigError("Relation prediction needs at least two relations; this graph has one.")
    prepared = prepare(given)
    check_memory(config, prepared)
    with owned(folder, resume):
        run = _open(folder, config, kg.fingerprint(), resume, say, progress_bar)
        with stopping(f"Stopped. Resume with: pathe train DATA --resume --out {folder}"):
            return _train(run, prepared, start)


def _train(run: Run, prepared: PreparedGraph, start: Artifact | None) -> dict[str, Any]:
    run = replace(run, start=_stored_start(run, prepared, start))
    _give_hints(run, prepared)
    fitted = _fit(run, prepared)
    if fitted is None:
        return {}  # a worker process: the main process does the rest
    prepared = fitted.learner.prepared  # on the device already
    artifact, calibration = _export(run, fitted, prepared)
    result = _judge(run, artifact, prepared)
    return _record(run, fitted, result | {"calibration": calibration}, prepared)


def _open(
    folder: Path, config: Config, fingerprint: str, resume: bool, say: Say, progress_bar: bool
) -> Run:
    """Creates the run's folder, or checks that a resumed run has the same settings."""
    about = {"data_fingerprint": fingerprint, **config.as_dict()}
    if _leads() and resume:
        _stored_settings(folder)  # raises an error if there are none
        check_resumable(folder, config, fingerprint)
        if (was := _stored_rate(folder, config)) != config.learning_rate:
            say(f"learning_rate is now {config.learning_rate:g}; it was {was}")
    last = folder / CHECKPOINTS / "last.ckpt"
    found = last if resume and last.exists() else None
    run = Run(folder, config, fingerprint, found, _ended(folder, config, found), say, progress_bar)
    if _leads():  # also when resumed, as max_epochs may have changed
        (folder / CHECKPOINTS).mkdir(exist_ok=True)
        with replacing(folder / SETTINGS) as aside:
            aside.write_text(yaml.safe_dump(about, sort_keys=False), encoding="utf-8")
    return run


def _leads() -> bool:
    """Whether this isn't one of the other processes that Lightning starts."""
    return _number() == 0


@contextmanager
def owned(folder: Path, resume: bool) -> Iterator[None]:
    """Keeps a run's folder for this process, and removes what a killed one left there.

    The folder of a new run is created, that of a resumed one has to exist.
    """
    if not _leads():
        yield
        return
    if not resume:
        check_free(folder)
        folder.mkdir(parents=True, exist_ok=True)
    elif not folder.is_dir():
        raise ConfigError(f"{folder}: nothing to resume: no such folder.")
    with locked(folder):
        if not resume:
            check_free(folder)  # another process may have been faster
        remove_leftovers(folder)
        yield


def _stored_start(run: Run, prepared: PreparedGraph, start: Artifact | None) -> Artifact | None:
    """Returns the model to start from, as the run's folder keeps it for resuming."""
    if run.config.init != "model":
        return None
    place = run.folder / START
    if not place.is_dir():
        build_learner(run.config, prepared, start)  # raises an error if it can't be used
        assert start is not None
        save_model(place, start)
    return load_model(place)


def check_resumable(folder: Path, config: Config, fingerprint: str) -> None:
    """Raises an error if the folder has a run with other settings or data."""
    about = {"data_fingerprint": fingerprint, **config.as_dict()}
    about.pop("learning_rate")  # a lower one helps after a loss that isn't finite
    if (folder / SETTINGS).is_file() and (was := differences(_stored_settings(folder), about)):
        raise ConfigError(f"{folder}: can't resume with other settings or data: {was}.")


def check_free(folder: Path) -> None:
    """Raises an error unless a new run can use the folder."""
    places = [place for place in (folder, folder / CHECKPOINTS) if place.is_dir()]
    found = {path for place in places for path in place.iterdir()}
    left = {*_leftovers(folder), folder / CHECKPOINTS}  # by a start that was killed
    if _lacks_start(folder):
        left.add(folder / SETTINGS)
    if found - left:
        raise ConfigError(
            f"{folder} exists and is not empty. Resume it with --resume, or choose another --out."
        )
    if not found:
        check_new_folder(folder)


def _stored_settings(folder: Path) -> dict[str, Any]:
    path = folder / SETTINGS
    if not path.exists():
        raise ConfigError(
            f"{folder}: nothing to resume, as it has no {SETTINGS}. Start it without --resume."
        )
    if _lacks_start(folder):
        raise ConfigError(
            f"{folder}: nothing to resume, as the model to start from wasn't saved. Start it "
            "without --resume."
        )
    return current_names(read_settings_file(path))


def _stored_rate(folder: Path, config: Config) -> float:
    """Returns the learning rate that a run had so far."""
    return float(_stored_settings(folder).get("learning_rate", config.learning_rate))


def _lacks_start(folder: Path) -> bool:
    """Whether a run was killed before it had saved the model that it starts from."""
    if (folder / START).is_dir() or (folder / CHECKPOINTS / "last.ckpt").exists():
        return False
    with suppress(ConfigError):
        found = read_settings_file(folder / SETTINGS)
        return "data_fingerprint" in found and found.get("init") == "model"
    return False


def remove_leftovers(folder: Path) -> None:
    """Removes temporary files of a killed process."""
    for path in _leftovers(folder):
        remove(path)


def _leftovers(folder: Path) -> list[Path]:
    """Returns the temporary files of a killed process."""
    places = [folder, folder / CHECKPOINTS]
    return [path for place in places for name in LEFTOVERS for path in place.glob(name)]


def _give_hints(run: Run, prepared: PreparedGraph) -> None:
    """Prints hints on settings before training."""
    config, n_triples = run.config, len(prepared.kg.train)
    if not len(prepared.triples("valid", "seen")):
        run.say(
            "no validation triples with known entities: no early stopping, training runs all "
            f"{config.max_epochs} epochs and keeps the last model (--split makes a validation set)"
        )
    steps = n_steps(config, n_triples)
    if steps < FEW_STEPS and config.batch_size > SMALL_BATCH and not config.epoch_triples:
        run.say(
            f"only {steps} step{'s' * (steps > 1)} per epoch: try a smaller batch, e.g. "
            f"--set batch_size={max(n_triples // 20, 1)}"
        )
    reads_pairs = config.bridge != "none" and not config.hold_out_pairs
    if reads_pairs and wants_pairs_held_out(linked_pairs(prepared.kg)):
        run.say("hold_out_pairs=true should suit this graph better (see pathe analyze)")


def build_learner(
    config: Config, prepared: PreparedGraph, start: Artifact | None = None
) -> Learner:
    """Builds the learner of a new model, of the pre-trained one, or of a model to start from."""
    match config.init:
        case "none":
            start = None
        case "pretrained":
            start = load_model()
            if config.relation_vectors == "table":
                raise ConfigError("init=pretrained needs relation_vectors=graph, or both.")
        case "model":
            if start is None:
                raise ConfigError("init=model needs a model to start from: --from MODEL.")
    if start is not None:
        return _started(config, prepared, start)
    if config.relation_vectors != "table":
        return GraphLearner(build_foundation(config, prepared.n_relations), config, prepared)
    return PathELearner(build_model(config, prepared.n_relations), config, prepared)


def _started(config: Config, prepared: PreparedGraph, start: Artifact) -> Learner:
    """Builds the learner of a model with the weights of another one."""
    theirs, from_table = start.config, start.config.relation_vectors == "table"
    sizes = list(SIZES) if from_table else ["bridge_dim", "relation_layers"]
    if config.relation_vectors == "graph" or from_table:
        sizes.append("relation_vectors")  # a table of relations can be added, not removed
    for key in sizes:
        if getattr(config, key) != (its := getattr(theirs, key)):
            whose = "the pre-trained model" if config.init == "pretrained" else "the model"
            raise ConfigError(
                f"init={config.init} needs {key}={its}, as {whose} has it; got "
                f"{getattr(config, key)}."
            )
    if config.bridge_hops < theirs.bridge_hops:
        raise ConfigError(
            f"init={config.init} needs bridge_hops={theirs.bridge_hops} or more; got "
            f"{config.bridge_hops}."
        )
    if from_table:
        if theirs.task not in (config.task, "multi"):
            raise ConfigError(f"The model was trained for task {theirs.task}, not {config.task}.")
        if prepared.kg.relations != start.relations:
            raise ConfigError("The graph needs the relations of the model: align it first.")
        built = build_model(config, prepared.n_relations)
        kept = {k: v for k, v in start.model.state_dict().items() if k in built.state_dict()}
        built.load_state_dict(kept)
        return PathELearner(built, config, prepared)
    model = build_foundation(config, prepared.n_relations)
    weights = start.model.state_dict()
    if (table := weights.pop(TABLE, None)) is not None:
        assert start.relations is not None
        weights[TABLE] = _rows_of(table, list(start.relations), list(prepared.kg.relations))
    weights = _with_more_hops(weights, theirs.bridge_hops, config.bridge_hops)
    model.load_state_dict(model.state_dict() | weights)
    return GraphLearner(model, config, prepared)


def _with_more_hops(weights: dict[str, Tensor], n_theirs: int, n_ours: int) -> dict[str, Tensor]:
    """Returns weights for more hops: the new ones start as copies of the last."""
    last = f"bridge.rounds.{n_theirs - 1}."
    more = {
        f"bridge.rounds.{hop}.{key.removeprefix(last)}": weight
        for key, weight in weights.items()
        if key.startswith(last)
        for hop in range(n_theirs, n_ours)
    }
    return weights | more


def _rows_of(table_KD: Tensor, theirs: list[str], ours: list[str]) -> Tensor:
    """Returns a table of relations, both ways, for other relations; new ones have zeros."""
    rows = {name: i for i, name in enumerate(theirs)}
    found_2RD = table_KD.new_zeros(2, len(ours), table_KD.shape[1])
    for i, name in enumerate(ours):
        if name in rows:
            found_2RD[:, i] = table_KD.view(2, len(theirs), -1)[:, rows[name]]
    return found_2RD.flatten(0, 1)


def _fit(run: Run, prepared: PreparedGraph) -> Fitted | None:
    """Trains and loads the best weights; returns None in a worker process."""
    config, validates = run.config, len(prepared.triples("valid", "seen")) > 0
    if run.ended:
        run.say(f"training is complete after {run.ended} epochs; evaluating again")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    learner = build_learner(config, prepared, run.start)
    stop_key = StopKey(run.folder / CHECKPOINTS / "last.ckpt", config.accumulate_batches)
    device = pick_device(config.accelerator)
    exact = repeatable(device) if isinstance(learner, GraphLearner) else nullcontext()
    with quiet(), stop_key.listening(), _leading(run.folder), tf32(), exact:
        trainer = _trainer(run, validates, stop_key)
        try:
            trainer.fit(learner, ckpt_path=run.last)
        except TrainingError as error:
            raise TrainingError(f"{error} {_with_another_rate(run)}") from None
        except UNREADABLE as error:
            if run.last is None or trainer.global_step:
                raise
            raise ModelError(
                f"{run.last}: can't resume: truncated, or of another model ({error})"
            ) from error
        stop_key.check()
    if trainer.global_rank != 0:
        return None
    device = trainer.strategy.root_device
    seconds, peak = learner.seconds, peak_memory(device)
    best = run.folder / CHECKPOINTS / "best.ckpt"
    if not best.is_file():  # not validated, or the time was over before
        best = best.with_name("last.ckpt")
    kept = read_checkpoint(best)
    try:
        learner.load_state_dict(kept["state_dict"])
    except UNREADABLE as error:
        raise ModelError(f"{best}: not a checkpoint of this model ({error})") from error
    best_score = getattr(trainer.checkpoint_callback, "best_model_score", None)
    score, averaged = None if best_score is None else float(best_score), None
    if score is not None:
        epoch = f"epoch {kept['epoch'] + 1} of {trainer.current_epoch}"
        learner.start_score = before = kept.get("start_score")
        title = f"the best {validation_title(config)}, {score:.3f}"
        if before is None:
            run.say(f"kept the model of {epoch}: {title}")
        else:
            run.say(f"the model of {epoch} has {title} ({before:.3f} before training)")
            start = build_learner(config, learner.prepared, run.start)
            with quiet(), tf32():
                averaged = average_with_start(learner, start, score, device)
            which = "the model" if config.init == "model" else "the pre-trained model"
            run.say(averaged.words(epoch, which))
            score = averaged.own_score
    return Fitted(learner, trainer.current_epoch, score, seconds, peak, device, averaged)


def _with_another_rate(run: Run) -> str:
    """Says how to go on with a lower learning rate after a loss that isn't finite."""
    rate = f"--set learning_rate={run.config.learning_rate / 4:.2g}"
    last = run.folder / CHECKPOINTS / "last.ckpt"
    if not last.is_file():
        return f"There is no checkpoint yet: start again with {rate} and another --out."
    step = read_checkpoint(last)["global_step"]
    return (
        f"The last checkpoint is good: {last}, of step {step:,}. Go on from there with a lower "
        f"rate: pathe train DATA --resume --out {run.folder} {rate}. Or start again with a lower "
        "gradient_clip, or with context_counts=log1p."
    )


def _export(run: Run, fitted: Fitted, prepared: PreparedGraph) -> tuple[Artifact, dict[str, Any]]:
    """Saves the model with its calibrated temperatures."""
    model = fitted.learner.model.cpu().eval()
    any_graph = run.config.relation_vectors == "graph"
    artifact = Artifact(model, run.config, None if any_graph else prepared.kg.relations)
    temperatures, calibration = calibrate(
        artifact, prepared, device=fitted.device, at_most=run.config.test_triples
    )
    artifact = replace(artifact, temperatures=temperatures)
    save_model(run.folder / MODEL, artifact, _facts(run, prepared))
    run.say(f"model saved to {run.folder / MODEL}")
    return artifact, calibration


def _facts(run: Run, prepared: PreparedGraph) -> dict[str, Any]:
    facts = {"data": prepared.kg.name, "fingerprint": run.fingerprint}
    return facts | {"task": run.config.task, "seed": run.config.seed}


def _judge(run: Run, artifact: Artifact, prepared: PreparedGraph) -> dict[str, Any]:
    """Evaluates the model on test (or validation) triples and adds the metrics to its card."""
    kg, result = prepared.kg, dict[str, Any]()
    split = "test" if len(kg.test) else "valid"
    begin = time.perf_counter()
    if len(prepared.triples(split, "seen")):
        run.say("evaluating")
        n = run.config.test_triples
        result = evaluate(artifact, prepared, split=split, device=prepared.device, at_most=n)
        shown = ("split", "test_set", "protocol", *HEADLINE)
        figures = {k: round(v, 4) if isinstance(v, float) else v
                   for k, v in result.items() if k in shown}  # fmt: skip
        write_card(run.folder / MODEL, _facts(run, prepared) | figures)
    elif n := len(getattr(kg, split)):
        run.say(
            f"none of the {n:,} {split} triples has both entities in train: not evaluated "
            "(pathe evaluate --test-set all ranks them)"
        )
    else:
        run.say("no test or validation triples to evaluate on")
    result["evaluation_seconds"] = time.perf_counter() - begin
    if kg.inference is not None and len(kg.inference.test):
        unseen = prepare(kg.inference, prepared.device)  # entities unseen in training
        result["inference"] = {}
        for protocol in ("full", "sampled:50"):
            found = evaluate(
                artifact, unseen, protocol=protocol, device=prepared.device,
                at_most=run.config.test_triples,
            )  # fmt: skip
            result["inference"][protocol] = {k: found[k] for k in found if k != "per_relation"}
        result["inference_fingerprint"] = kg.inference.fingerprint()
    return result


def _record(
    run: Run, fitted: Fitted, result: dict[str, Any], prepared: PreparedGraph
) -> dict[str, Any]:
    """Writes the result and plots it."""
    result = result | {
        "command": shlex.join(["pathe", *sys.argv[1:]]),
        "data": prepared.kg.name,
        "fingerprint": run.fingerprint,
        "commit": commit(),
        "parameters": count_parameters(fitted.learner.model),
        "parameters_as_published": paper_count(run.config, prepared.n_relations),
        "epochs": fitted.epochs,
        "validation": validation_title(run.config),
        "best_valid_score": fitted.best_score,
        "start": _start_digest(run),
        "start_valid_score": fitted.start_score,
        "averaged": fitted.averaged.as_dict() if fitted.averaged else None,
        "train_seconds": fitted.seconds,
        "peak_memory_bytes": fitted.peak_bytes,
        "device": device_name(fitted.device),
        "config": run.config.as_dict(),
    }
    if find_spec("matplotlib"):
        plot_run(read_metrics(run.folder), result, run.folder / REPORT)
    else:
        run.say(f"no {REPORT}: plots need matplotlib (pip install 'pathe[plots]')")
    write_json(run.folder / RESULT, result)  # last: it says that the run is finished
    return result


def _start_digest(run: Run) -> str | None:
    """Returns the digest of the weights that training started from, None for a new model."""
    match run.config.init:
        case "none":
            return None
        case "pretrained":
            return model_digest(SHIPPED)
        case "model":
            return model_digest(run.folder / START)


def read_result(folder: Path) -> dict[str, Any]:
    """Reads the result of a finished run."""
    path = folder / RESULT
    try:
        result = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON ({error}): truncated or modified.") from None
    if not isinstance(result, dict):
        raise ModelError(f"{path}: expected the result of a run: truncated or modified.")
    return result


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Reads the metrics of a run, one record per epoch."""
    return read_metric_lines(folder / METRICS)


def free_folder(wanted: Path) -> Path:
    """Returns the folder, numbered if it exists; in a worker process, the run's folder."""
    if "PATHE_RUN" in os.environ:
        return Path(os.environ["PATHE_RUN"])
    path, n = wanted, 2
    while path.exists():
        path, n = wanted.with_name(f"{wanted.name}-{n}"), n + 1
    return path


@contextmanager
def _leading(folder: Path) -> Iterator[None]:
    """Passes the run's folder to the worker processes that Lightning starts."""
    os.environ["PATHE_RUN"] = str(folder)
    try:
        yield
    finally:
        del os.environ["PATHE_RUN"]


def differences(stored: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Describes settings that differ, except for hardware settings and max_epochs."""
    stored = Config().as_dict() | current_names(stored)  # settings added later had their default
    free = ("max_epochs", "minutes", "accelerator", "devices", "precision", "cuda_graphs")
    changed = [k for k, v in wanted.items() if stored.get(k) != v and k not in free]
    return ", ".join(f"{k} was {stored.get(k)!r}, now {wanted[k]!r}" for k in changed)


def _ended(folder: Path, config: Config, last: Path | None) -> int | None:
    """Returns the epochs of a run that is finished, by early stopping or max_epochs, or None."""
    if last is None:
        return None
    longer = config.max_epochs > _stored_settings(folder).get("max_epochs", config.max_epochs)
    try:
        state = read_checkpoint(last)
        waits = [v["wait_count"] for k, v in state["callbacks"].items() if "EarlyStopping" in k]
        epochs = int(state["epoch"]) + 1
    except UNREADABLE:
        return None  # `_fit` raises the error
    stopped = not longer and any(wait >= config.patience for wait in waits)
    return epochs if stopped or epochs >= config.max_epochs else None


def resumed_config(folder: Path) -> Config:
    """Returns the settings that a run was started with."""
    stored = _stored_settings(folder)
    stored.pop("data_fingerprint", None)
    return configure(settings=stored, source=str(folder / SETTINGS))


def n_nodes(config: Config) -> int:
    """Returns the machines that torchrun started processes on, 1 without it."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return 1
    world, local = (int(os.environ[key]) for key in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if config.devices != local:
        raise ConfigError(
            f"torchrun started {local} processes on this machine, but devices={config.devices}. "
            f"Add --set devices={local}."
        )
    return world // local


def _number() -> int:
    """Returns the number of this process among those that train together."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))


def follow(folder: Path | None) -> None:
    """Waits for the first process of torchrun to open the run, in all other processes."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or "PATHE_RUN" in os.environ:
        return
    if folder is None:
        raise ConfigError("torchrun needs the run's folder: --out RUN.")
    if _number() == 0:
        return
    until = time.monotonic() + OPEN_SECONDS
    while not (folder / SETTINGS).is_file():
        if time.monotonic() > until:
            raise TrainingError(f"{folder}: the first process has not opened this run.")
        time.sleep(0.1)
    os.environ["PATHE_RUN"] = str(folder)


def trainer_options(config: Config) -> dict[str, Any]:
    """Returns the arguments of a Lightning Trainer that depend on settings."""
    accelerator = "gpu" if pick_device(config.accelerator).type == "cuda" else "cpu"
    if accelerator == "gpu" and torch.cuda.device_count() < config.devices:
        raise ConfigError(
            f"devices={config.devices} needs {config.devices} GPUs, but there are "
            f"{torch.cuda.device_count()}. Set accelerator=cpu or fewer devices."
        )
    return {
        "accelerator": accelerator,
        "devices": config.devices,
        "num_nodes": n_nodes(config),
        "strategy": "ddp" if config.devices * n_nodes(config) > 1 else "auto",
        "precision": "bf16-mixed" if config.precision == "bf16" else "32-true",
        "max_epochs": config.max_epochs,
        "check_val_every_n_epoch": config.validate_every,
        "accumulate_grad_batches": config.accumulate_batches,
        "gradient_clip_val": config.gradient_clip or None,
        "num_sanity_val_steps": 0,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
    }


def _trainer(run: Run, validates: bool, stop_key: StopKey) -> pl.Trainer:
    config, folder, options = run.config, run.folder, trainer_options(run.config)
    callbacks: list[pl.Callback] = [stop_key, MetricLines(folder / METRICS)]
    shows_bar = run.shows_progress and sys.stderr.isatty()
    left = TimeLeft(config.minutes)
    if shows_bar:
        callbacks += [left, Bar(10 if options["accelerator"] == "cpu" else 20, left)]
    elif run.shows_progress:
        callbacks += [left, EpochLines(run.say, validation_title(config), left)]

    def keep(name: str, **more: Any) -> Keep:
        return Keep(folder / CHECKPOINTS, name, enable_version_counter=False, **more)

    if validates:
        callbacks.append(EarlyStopping(MONITOR, config.min_delta, config.patience, mode="max"))
        callbacks.append(keep("best", monitor=MONITOR, mode="max"))
    callbacks.append(keep("last", save_on_train_epoch_end=True))
    if config.minutes:
        callbacks.append(TimeLimit(config.minutes, run.say))
    loggers: list[Logger] = [CSVLogger(folder, "logs")]
    with suppress(ModuleNotFoundError):  # tensorboard is optional
        loggers.append(TensorBoardLogger(folder, "tensorboard"))
    return pl.Trainer(
        **options | {"max_epochs": run.ended or config.max_epochs},
        callbacks=callbacks,
        plugins=[WholeFiles()],
        logger=loggers,
        enable_progress_bar=shows_bar,
        log_every_n_steps=50,
    )
