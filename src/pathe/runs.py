"""A run is a folder: settings, metrics, checkpoints, the exported model, its result and plots."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import yaml
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from pathe.analysis import linked_pairs, wants_pairs_held_out
from pathe.artifact import Artifact, load_model, save_model
from pathe.builder import build_model, paper_count
from pathe.calibration import calibrate
from pathe.callbacks import Bar, EpochLines, Keep, MetricLines, StopKey, WholeFiles, quiet, tf32
from pathe.config import Config, configure
from pathe.datasets import KnowledgeGraph
from pathe.errors import ConfigError, ModelError
from pathe.evaluation import evaluate
from pathe.files import replacing, write_json
from pathe.graph import build_graph
from pathe.machine import commit, device_name, peak_memory, pick_device
from pathe.memory import check_fits
from pathe.model import count_parameters
from pathe.plots import plot_run
from pathe.training import PathELearner

CHECKPOINTS, MODEL, RESULT, METRICS = "checkpoints", "model", "result.json", "metrics.jsonl"
SETTINGS = "config.yaml"
FEW_STEPS, SMALL_BATCH = 5, 8  # an epoch: too few to learn from, unless batches are small
Say = Callable[[str], None]


def train(
    kg: KnowledgeGraph,
    config: Config,
    folder: Path,
    *,
    resume: bool = False,
    say: Say = lambda text: None,
    progress_bar: bool = True,
) -> dict[str, Any]:
    """Trains to early stopping, exports the best model, evaluates it, and returns the result."""
    if config.task != "link" and kg.n_relations < 2:
        raise ConfigError("Relation prediction needs at least two relations; this graph has one.")
    check_fits(config, kg.n_entities, len(kg.train))
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    fingerprint = kg.fingerprint()
    leads = os.environ.get("LOCAL_RANK", "0") == "0"  # the others are started by Lightning
    last = _open_run(folder, config, fingerprint, resume) if leads else _last(folder, resume)
    graph = build_graph(kg.train, kg.n_entities, kg.n_relations)
    valid_M3 = seen(kg, "valid")
    if not len(valid_M3):
        say(
            "no validation triples with known entities: no early stopping, training takes all "
            f"{config.max_epochs} epochs and keeps the last model (--split makes a validation set)"
        )
    learner = PathELearner(build_model(config, kg.n_relations), config, graph, kg.train, valid_M3)
    stop_key = StopKey(folder / CHECKPOINTS / "last.ckpt", config.accumulate)
    ended = _ended(folder, config, last)
    if leads and resume:
        _write_settings(folder, config, fingerprint)  # more epochs may be asked for
    steps = -(-len(kg.train) // config.batch_size)
    if steps < FEW_STEPS and config.batch_size > SMALL_BATCH:
        say(
            f"{steps} step{'s' * (steps > 1)} an epoch: for so few triples a smaller batch learns "
            f"more, e.g. --set batch_size={max(len(kg.train) // 20, 1)}"
        )
    blind = config.bridge != "none" and not config.hold_out_pairs
    if blind and wants_pairs_held_out(linked_pairs(kg)):
        say("hold_out_pairs=true should serve this graph better (pathe analyze says why)")
    with quiet(), stop_key.listening(), _leading(folder), tf32():
        trainer = _trainer(
            config,
            folder,
            len(valid_M3) > 0,
            stop_key,
            say if progress_bar else None,
            ended,
        )
        try:
            trainer.fit(learner, ckpt_path=last)
        except (RuntimeError, EOFError, pickle.UnpicklingError, KeyError) as error:
            if last is None or trainer.global_step:
                raise
            raise ModelError(
                f"{last}: can't be resumed from: truncated, or of another model ({error})"
            ) from error
    if trainer.global_rank != 0:
        return {}
    seconds = learner.seconds
    device = trainer.strategy.root_device
    peak = peak_memory(device)

    best = folder / CHECKPOINTS / ("best.ckpt" if len(valid_M3) else "last.ckpt")
    kept = torch.load(best, map_location="cpu", weights_only=True)
    state = kept["state_dict"]
    weights = {k.removeprefix("model."): v for k, v in state.items() if k.startswith("model.")}
    if (score := _best_score(trainer)) is not None:
        epochs = f"epoch {kept['epoch'] + 1} of {trainer.current_epoch}"
        say(f"kept the model of {epochs}, the best in validation (MRR {score:.3f})")
    learner.model.load_state_dict(weights)
    facts = {"data": kg.name, "fingerprint": fingerprint, "task": config.task, "seed": config.seed}
    artifact = Artifact(learner.model.cpu().eval(), config, kg.relations)
    save_model(folder / MODEL, artifact, facts)
    say(f"model saved to {folder / MODEL}")
    temperatures, calibration = calibrate(artifact, kg, device=device)
    artifact = replace(artifact, temperatures=temperatures)
    save_model(folder / MODEL, artifact, facts)
    split = "test" if len(kg.test) else "valid"
    judged = len(seen(kg, split)) > 0
    if judged:
        say("evaluating")
    elif n := len(getattr(kg, split)):
        say(
            f"none of the {n:,} {split} triples has entities that training knows: not evaluated "
            "(pathe evaluate --test-set all ranks them)"
        )
    else:
        say("no test or validation triples to evaluate on")
    result: dict[str, Any] = {}
    begin = time.perf_counter()
    if judged:
        found = evaluate(load_model(folder / MODEL), kg, split=split, device=device)
        result |= found
        save_model(folder / MODEL, artifact, facts | _headline(found))
    evaluation_seconds = time.perf_counter() - begin
    if kg.inference is not None and len(kg.inference.test):
        result["inference"] = {  # entities that training never saw
            protocol: _without_relations(
                evaluate(load_model(folder / MODEL), kg.inference, protocol=protocol, device=device)
            )
            for protocol in ("full", "sampled:50")
        }
        result["inference_fingerprint"] = kg.inference.fingerprint()
    result |= {
        "command": shlex.join(["pathe", *sys.argv[1:]]),
        "data": kg.name,
        "fingerprint": fingerprint,
        "commit": commit(),
        "parameters": count_parameters(artifact.model),
        "parameters_as_published": paper_count(config, kg.n_relations),
        "evaluation_seconds": evaluation_seconds,
        "epochs": trainer.current_epoch,
        "best_valid_mrr": score,
        "calibration": calibration,
        "train_seconds": seconds,
        "peak_memory_bytes": peak,
        "device": device_name(device),
        "config": config.as_dict(),
    }
    write_json(folder / RESULT, result)
    plot_run(read_metrics(folder), result, folder / "report.png")
    return result


def read_result(folder: Path) -> dict[str, Any]:
    """What a finished run gave."""
    result: dict[str, Any] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    return result


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The validations of a run, in order."""
    path = folder / METRICS
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def free_folder(wanted: Path) -> Path:
    """The folder, or its name with the first free number; a helping process takes its leader's."""
    if "PATHE_RUN" in os.environ:
        return Path(os.environ["PATHE_RUN"])
    path, n = wanted, 2
    while path.exists():
        path, n = wanted.with_name(f"{wanted.name}-{n}"), n + 1
    return path


@contextmanager
def _leading(folder: Path) -> Iterator[None]:
    """Tells the processes that Lightning starts for a run which folder is theirs."""
    os.environ["PATHE_RUN"] = str(folder)
    try:
        yield
    finally:
        del os.environ["PATHE_RUN"]


def _open_run(folder: Path, config: Config, fingerprint: str, resume: bool) -> Path | None:
    """Makes the folder, or checks that a resumed one is the same run; gives its last checkpoint."""
    about = {"data_fingerprint": fingerprint, **config.as_dict()}
    path = folder / SETTINGS
    if resume:
        if not path.exists():
            raise ConfigError(f"{folder}: nothing to resume: no {SETTINGS} there.")
        stored = yaml.safe_load(path.read_text(encoding="utf-8"))
        if was := differences(stored, about):
            raise ConfigError(f"{folder}: can't resume with other settings or data: {was}.")
        (folder / CHECKPOINTS).mkdir(exist_ok=True)
        return _last(folder, resume)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} exists and is not empty. Go on with it by --resume, or name another --out."
        )
    folder.mkdir(parents=True, exist_ok=True)
    _write_settings(folder, config, fingerprint)
    (folder / CHECKPOINTS).mkdir(exist_ok=True)
    return None


def _write_settings(folder: Path, config: Config, fingerprint: str) -> None:
    about = {"data_fingerprint": fingerprint, **config.as_dict()}
    with replacing(folder / SETTINGS) as aside:
        aside.write_text(yaml.safe_dump(about, sort_keys=False), encoding="utf-8")


def differences(stored: dict[str, Any], wanted: dict[str, Any]) -> str:
    """What makes one run another, in words; machine and length of training don't."""
    stored = Config().as_dict() | stored  # a setting that came later had its default
    free = ("max_epochs", "accelerator", "devices", "precision", "record")
    changed = [k for k, v in wanted.items() if stored.get(k) != v and k not in free]
    return ", ".join(f"{k} was {stored.get(k)!r}, now {wanted[k]!r}" for k in changed)


def _ended(folder: Path, config: Config, last: Path | None) -> int | None:
    """The epochs of a run that is at its end, by early stopping or by number: none are added."""
    if last is None:
        return None
    stored = yaml.safe_load((folder / SETTINGS).read_text(encoding="utf-8"))
    longer = config.max_epochs > stored.get("max_epochs", config.max_epochs)
    try:
        state = torch.load(last, map_location="cpu", weights_only=True)
        waits = [v["wait_count"] for k, v in state["callbacks"].items() if "EarlyStopping" in k]
        epochs = int(state["epoch"]) + 1
    except (RuntimeError, EOFError, pickle.UnpicklingError, KeyError):
        return None  # fit says what is wrong with it
    stopped = not longer and any(wait >= config.patience for wait in waits)
    return epochs if stopped or epochs >= config.max_epochs else None


def _last(folder: Path, resume: bool) -> Path | None:
    path = folder / CHECKPOINTS / "last.ckpt"
    return path if resume and path.exists() else None


def resumed_config(folder: Path) -> Config:
    """The settings that a run was started with."""
    path = folder / SETTINGS
    if not path.exists():
        raise ConfigError(f"{folder}: nothing to resume: no {SETTINGS} there.")
    stored = yaml.safe_load(path.read_text(encoding="utf-8"))
    stored.pop("data_fingerprint", None)
    return configure(settings=stored, source=str(path))


def _trainer(
    config: Config,
    folder: Path,
    validates: bool,
    stop_key: StopKey,
    say: Say | None,
    ended: int | None,
) -> pl.Trainer:
    accelerator = "gpu" if pick_device(config.accelerator).type == "cuda" else "cpu"
    if accelerator == "gpu" and torch.cuda.device_count() < config.devices:
        raise ConfigError(
            f"devices={config.devices} GPUs wanted, {torch.cuda.device_count()} found. "
            "Set accelerator=cpu or fewer devices."
        )
    callbacks: list[pl.Callback] = [stop_key, MetricLines(folder / METRICS)]
    shows = say is not None and sys.stderr.isatty()
    if shows:
        callbacks.append(Bar(10 if accelerator == "cpu" else 20))
    elif say is not None:
        callbacks.append(EpochLines(say))
    if validates:
        callbacks.append(EarlyStopping("valid_mrr", config.min_delta, config.patience, mode="max"))
        callbacks.append(
            Keep(
                folder / CHECKPOINTS,
                "best",
                monitor="valid_mrr",
                mode="max",
                enable_version_counter=False,
            )
        )
    callbacks.append(
        Keep(
            folder / CHECKPOINTS, "last", save_on_train_epoch_end=True, enable_version_counter=False
        )
    )
    loggers: list[Logger] = [CSVLogger(folder, "logs")]
    with suppress(ModuleNotFoundError):  # tensorboard is optional
        loggers.append(TensorBoardLogger(folder, "tensorboard"))
    return pl.Trainer(
        accelerator=accelerator,
        devices=config.devices,
        strategy="ddp" if config.devices > 1 else "auto",
        precision="bf16-mixed" if config.precision == "bf16" else "32-true",
        max_epochs=ended or config.max_epochs,
        check_val_every_n_epoch=config.validate_every,
        accumulate_grad_batches=config.accumulate,
        gradient_clip_val=config.clip or None,
        callbacks=callbacks,
        plugins=[WholeFiles()],
        logger=loggers,
        num_sanity_val_steps=0,
        enable_model_summary=False,
        enable_progress_bar=shows,
        use_distributed_sampler=False,
        log_every_n_steps=50,
    )


def seen(kg: KnowledgeGraph, split: str) -> torch.Tensor:
    """The split's triples whose entities training knows."""
    triples_M3: torch.Tensor = getattr(kg, split)
    known = torch.zeros(kg.n_entities, dtype=torch.bool)
    known[kg.train[:, [0, 2]].long()] = True
    return triples_M3[known[triples_M3[:, [0, 2]].long()].all(1)]


def _headline(found: dict[str, Any]) -> dict[str, Any]:
    keys = ("split", "test_set", "protocol", "mrr", "hits_at_1", "hits_at_10")
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items() if k in keys}


def _without_relations(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != "per_relation"}


def _best_score(trainer: pl.Trainer) -> float | None:
    score = trainer.checkpoint_callback.best_model_score if trainer.checkpoint_callback else None  # type: ignore[attr-defined]
    return None if score is None else float(score)
