"""A training run: trains, exports and evaluates a model, and writes what its folder keeps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import yaml
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from pathe.core.config import Config
from pathe.core.errors import ConfigError, ModelError, TrainingError
from pathe.core.files import replacing, write_json
from pathe.core.hardware import commit, device_name, peak_memory, pick_device
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
from pathe.model.builder import paper_count
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
from pathe.training.processes import is_leader, leading, n_nodes
from pathe.training.run_folder import (
    BEST,
    CHECKPOINTS,
    LAST,
    METRICS,
    MODEL,
    REPORT,
    RESULT,
    SETTINGS,
    START,
    check_resumable,
    ended_epochs,
    owned,
    stored_rate,
)
from pathe.training.start import build_learner

FEW_STEPS, SMALL_BATCH = 5, 8  # fewer steps per epoch than this, with larger batches: give a hint
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How to train, besides the settings: what to report, and whether to continue a run."""

    resume: bool = False
    say: Say = lambda text: None
    progress_bar: bool = True
    command: str | None = None  # the command that was given, for the result; None: from Python
    resume_folder: Path | None = None  # what to pass to --resume, if it isn't the run's folder


@dataclass(frozen=True)
class Run:
    """An open run: its folder, settings, the checkpoint to resume from, a model to start from."""

    folder: Path
    config: Config
    fingerprint: str
    options: Options
    last: Path | None  # checkpoint
    ended: int | None  # epochs of a finished run
    start: Artifact | None = None

    @property
    def say(self) -> Say:
        """Reports a line of text."""
        return self.options.say

    @property
    def resume_command(self) -> str:
        """The command that continues the run."""
        return f"pathe train DATA --resume --out {self.options.resume_folder or self.folder}"


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
    options: Options | None = None,
    start: Artifact | None = None,
) -> dict[str, Any]:
    """Trains with early stopping, exports and evaluates the best model, returns the result.

    With `init=model`, `start` is the model to start from; a resumed run has its copy.
    """
    options = options or Options()
    given, kg = kg, kg.kg if isinstance(kg, PreparedGraph) else kg
    if config.task != "link" and kg.n_relations < 2:
        raise ConfigError("Relation prediction needs at least two relations; this graph has one.")
    prepared = prepare(given)
    check_memory(config, prepared)
    with owned(folder, options.resume):
        run = _open(folder, config, kg.fingerprint(), options)
        with stopping(f"Stopped. Resume with: {run.resume_command}"):
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


def _open(folder: Path, config: Config, fingerprint: str, options: Options) -> Run:
    """Creates the run's folder, or checks that a resumed run has the same settings."""
    if is_leader() and options.resume:
        check_resumable(folder, config, fingerprint)
        if (was := stored_rate(folder, config)) != config.learning_rate:
            options.say(f"learning_rate is now {config.learning_rate:g}; it was {was}")
    last = folder / CHECKPOINTS / LAST
    found = last if options.resume and last.exists() else None
    run = Run(folder, config, fingerprint, options, found, ended_epochs(folder, config, found))
    if is_leader():  # also when resumed, as max_epochs may have changed
        (folder / CHECKPOINTS).mkdir(exist_ok=True)
        about = {"data_fingerprint": fingerprint, **config.as_dict()}
        with replacing(folder / SETTINGS) as aside:
            aside.write_text(yaml.safe_dump(about, sort_keys=False), encoding="utf-8")
    return run


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


def _fit(run: Run, prepared: PreparedGraph) -> Fitted | None:
    """Trains and loads the best weights; returns None in a worker process."""
    if run.ended:
        run.say(f"training is complete after {run.ended} epochs; evaluating again")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    learner = build_learner(run.config, prepared, run.start)
    trainer = _fit_learner(run, learner)
    if trainer.global_rank != 0:
        return None
    device, epochs = trainer.strategy.root_device, trainer.current_epoch
    fitted = Fitted(learner, epochs, None, learner.seconds, peak_memory(device), device)
    epoch = _load_best(run, learner)
    best = getattr(trainer.checkpoint_callback, "best_model_score", None)
    if best is None:  # not validated
        return fitted
    fitted = replace(fitted, best_score=float(best))
    words, before = f"{epoch} of {epochs}", learner.start_score
    text = f"best epoch: {words}, {validation_title(run.config)} {float(best):.3f}"
    run.say(text if before is None else f"{text} ({before:.3f} before training)")
    return fitted if before is None else _averaged(run, fitted, f"epoch {words}")


def _fit_learner(run: Run, learner: Learner) -> pl.Trainer:
    """Trains to the end, from the last checkpoint if a run is resumed."""
    stop_key = StopKey(
        run.folder / CHECKPOINTS / LAST, run.config.accumulate_batches, run.resume_command
    )
    validates = len(learner.prepared.triples("valid", "seen")) > 0
    device = pick_device(run.config.accelerator)
    exact = repeatable(device) if isinstance(learner, GraphLearner) else nullcontext()
    with quiet(), stop_key.listening(), leading(run.folder), tf32(), exact:
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
    return trainer


def _load_best(run: Run, learner: Learner) -> int:
    """Loads the best weights in validation, or the last ones; returns the number of their epoch.

    The learner also gets the validation score before training, of a model that isn't new.
    """
    best = run.folder / CHECKPOINTS / BEST
    if not best.is_file():  # not validated, or the time was over before
        best = best.with_name(LAST)
    kept = read_checkpoint(best)
    try:
        learner.load_state_dict(kept["state_dict"])
    except UNREADABLE as error:
        raise ModelError(f"{best}: not a checkpoint of this model ({error})") from error
    learner.start_score = kept.get("start_score")
    return int(kept["epoch"]) + 1


def _averaged(run: Run, fitted: Fitted, epoch: str) -> Fitted:
    """Averages the weights with those before training, if that validates better."""
    assert fitted.best_score is not None
    start = build_learner(run.config, fitted.learner.prepared, run.start)
    with quiet(), tf32():
        averaged = average_with_start(fitted.learner, start, fitted.best_score, fitted.device)
    which = "the model" if run.config.init == "model" else "the pre-trained model"
    run.say(averaged.words(epoch, which))
    return replace(fitted, best_score=averaged.own_score, averaged=averaged)


def _with_another_rate(run: Run) -> str:
    """Says how to go on with a lower learning rate after a loss that isn't finite."""
    rate = f"--set learning_rate={run.config.learning_rate / 4:.2g}"
    last = run.folder / CHECKPOINTS / LAST
    if not last.is_file():
        return f"There is no checkpoint yet: start again with {rate} and another --out."
    step = read_checkpoint(last)["global_step"]
    return (
        f"The last checkpoint is good: {last}, of step {step:,}. Go on from there with a lower "
        f"rate: {run.resume_command} {rate}. Or start again with a lower gradient_clip, or with "
        "context_counts=log1p."
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
        "command": run.options.command,
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
        lines = read_metric_lines(run.folder / METRICS, "epoch", numbers=True)
        plot_run(lines, result, run.folder / REPORT)
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
    shows_bar = run.options.progress_bar and sys.stderr.isatty()
    left = TimeLeft(config.minutes)
    if shows_bar:
        callbacks += [left, Bar(10 if options["accelerator"] == "cpu" else 20, left)]
    elif run.options.progress_bar:
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
