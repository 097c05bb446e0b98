"""A pre-training run and its folder: checkpoint, metrics, model and result."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pathe.core.config import current_names
from pathe.core.errors import ConfigError, DataError, Interrupted, ModelError, TrainingError
from pathe.core.files import write_json
from pathe.core.hardware import commit, device_name, peak_memory
from pathe.core.settings import change
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.calibration import fit_across
from pathe.evaluation.ranking import evaluate_links, evaluate_relations, sampled
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import Artifact, load_model, model_digest, save_model
from pathe.model.pathe import count_parameters
from pathe.model.scorer import GraphScorer
from pathe.training import checkpoints
from pathe.training.callbacks import StopKey, stopping, trim_metric_lines
from pathe.training.checkpoints import UNREADABLE, write_checkpoint
from pathe.training.mix import Mix, MixSettings
from pathe.training.pretraining import Losses, Pretrainer, Pretraining
from pathe.training.run import Say
from pathe.training.run_folder import METRICS, MODEL, RESULT, owned

CHECKPOINT = "checkpoint.pt"
SAVE_EVERY = 300.0  # seconds between checkpoints, besides those at validations
VALID_METRICS = ("mrr", "hits_at_10")
SHOWN = (*VALID_METRICS, "relation_hits_at_1")


@dataclass(frozen=True)
class Place:
    """Where to run, from which model, and for how long."""

    folder: Path
    resume: bool = False
    start: Path | None = None  # a model for any graph; None: random weights
    minutes: float | None = None
    device: torch.device | str = "cpu"


@dataclass(frozen=True)
class Status:
    """How far a run has come."""

    doing: str
    step: int
    steps: int
    loss: float | None  # mean since the last validation
    steps_per_second: float | None
    seconds_left: float | None  # until the last step, or until the time is over


class Reports(NamedTuple):
    """Where a run reports: lines of text, and its status after steps."""

    say: Say = lambda text: None
    progress: Callable[[Status], None] = lambda status: None


class ValidGraph(NamedTuple):
    """A graph to validate on, and a fixed sample of its validation triples."""

    name: str
    prepared: PreparedGraph
    triples_M3: Tensor


def pretrain(
    graphs: Sequence[KnowledgeGraph],
    settings: Pretraining,
    place: Place,
    *,
    valid: Sequence[KnowledgeGraph] = (),
    reports: Reports | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """Trains a model for any graph on a mix of graphs, and returns the result.

    Validates on these graphs and on those of `valid`. Ends after the last step, or when the time is
    over: then the run can be resumed. `command` is the command line to record in the result.
    """
    named = name_graphs(graphs, valid)
    trained = dict(list(named.items())[: len(graphs)])
    _check_sizes(trained)
    reports = reports or Reports()
    prints = {name: kg.fingerprint() for name, kg in named.items()}
    about = {
        "settings": asdict(settings),
        "graphs": {name: prints[name] for name in trained},
        "valid": {name: prints[name] for name in named if name not in trained},
        "start": None if place.start is None else model_digest(place.start),
    }
    with owned(place.folder, place.resume):
        return _pretrain(named, trained, settings, place, about, reports, command)


def _pretrain(
    named: dict[str, KnowledgeGraph],
    trained: dict[str, KnowledgeGraph],
    settings: Pretraining,
    place: Place,
    about: dict[str, Any],
    reports: Reports,
    command: str | None,
) -> dict[str, Any]:
    state = _open(place, about)
    if torch.device(place.device).type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    prepared = {name: PreparedGraph(kg) for name, kg in named.items()}
    mix = Mix({name: prepared[name].graph for name in trained}, settings, place.device)
    judged = [_valid_graph(name, p.on(place.device), settings) for name, p in prepared.items()]
    for graph in judged:
        if not len(graph.triples_M3):
            reports.say(
                f"{graph.name}: not validated: no validation triples whose "
                "entities and relation occur in train"
            )
    judged = [graph for graph in judged if len(graph.triples_M3)]
    pretrainer = Pretrainer(mix, settings)
    if place.start is not None and state is None:
        _load_weights(pretrainer, place.start)
    run = PretrainingRun(place, about, pretrainer, judged, reports)
    run.start(state)
    with stopping(f"Stopped. Resume with {run.how}"):
        try:
            run.go()
        except TrainingError as error:
            raise TrainingError(f"{error} {_with_another_rate(place.folder, settings)}") from None
        return run.finish(command)


def _with_another_rate(folder: Path, settings: Pretraining) -> str:
    """Says how to go on with a lower learning rate after a loss that isn't finite."""
    step = read_checkpoint(folder)["step"]
    return (
        f"The last checkpoint is good: {folder / CHECKPOINT}, of step {step:,}. Go on from there "
        f"with a lower rate: the same graphs and --resume --out {folder} --set learning_rate="
        f"{settings.learning_rate / 4:.2g}."
    )


def name_graphs(
    graphs: Sequence[KnowledgeGraph], valid: Sequence[KnowledgeGraph] = ()
) -> dict[str, KnowledgeGraph]:
    """Returns graphs by name, numbered if others have the same; refuses a graph given twice."""
    if not graphs:
        raise DataError("Pre-training needs at least one graph.")
    named: dict[str, KnowledgeGraph] = {}
    given: dict[str, str] = {}
    for kg in (*graphs, *valid):
        name, n, fingerprint = kg.name, 2, kg.fingerprint()
        if fingerprint in given:
            raise DataError(
                f"{name}: the same graph as {given[fingerprint]}. Give each graph once; training "
                "graphs are always used for validation, too."
            )
        while name in named:
            name, n = f"{kg.name}-{n}", n + 1
        named[name], given[fingerprint] = kg, name
    return named


def _check_sizes(graphs: dict[str, KnowledgeGraph]) -> None:
    for name, kg in graphs.items():
        if len(kg.train) < 2:
            raise DataError(
                f"{name}: expected at least two training triples, got {len(kg.train)}: "
                "pre-training predicts some triples of a graph from the others."
            )


def _valid_graph(name: str, prepared: PreparedGraph, settings: Pretraining) -> ValidGraph:
    """Draws validation triples whose entities and relations occur in train.

    The sample depends on the graph alone, so that runs with other seeds can be compared.
    """
    triples_M3 = prepared.with_seen_relations(prepared.triples("valid", "seen"))
    return ValidGraph(name, prepared, sampled(triples_M3, settings.valid_triples))


def _open(place: Place, about: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the checkpoint of a run to resume; None for a new run."""
    folder = place.folder
    if not place.resume:
        return None
    state = read_checkpoint(folder)
    if place.start is None:  # it needn't be named again
        about["start"] = state["about"].get("start")
    if was := differences(state["about"], about):
        raise ConfigError(f"{folder}: can't resume with other settings or graphs: {was}.")
    return state


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """Reads the checkpoint of a run."""
    path = folder / CHECKPOINT
    if not path.is_file():
        raise ConfigError(f"{folder}: nothing to resume: no {CHECKPOINT} in this folder.")
    state = checkpoints.read_checkpoint(path)
    try:
        _ = state["model"], dict(state["about"]["settings"])
    except UNREADABLE as error:
        raise ModelError(f"{path}: not written by pathe pretrain ({error})") from error
    return state


def resumed_settings(folder: Path) -> Pretraining:
    """Returns the settings that a run was started with."""
    stored = read_checkpoint(folder)["about"]["settings"]
    return change(Pretraining(), current_names(stored), str(folder / CHECKPOINT))


def differences(stored: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Describes settings and graphs that differ between two runs."""
    found, were_set = [], asdict(Pretraining()) | stored["settings"]  # others had their default
    for key, now in wanted["settings"].items():
        if key == "learning_rate":  # a lower one helps after a loss that isn't finite
            continue
        if (was := were_set[key]) != now:
            why = ""
            if key == "steps":
                why = " (the learning rate depends on it; --from starts a new run from the model)"
            found.append(f"{key} was {was!r}, now {now!r}{why}")
    for key, title in (("graphs", "graphs"), ("valid", "--valid graphs")):
        were, are = ([f"{n} ({p})" for n, p in about[key].items()] for about in (stored, wanted))
        if were != are:  # in this order: a step draws a graph by its number
            found.append(
                f"{title} were {', '.join(were) or 'none'}, now {', '.join(are) or 'none'}"
            )
    if (start := stored.get("start")) != wanted["start"]:
        found.append(
            f"the model to start from was {start or 'none'}, now {wanted['start'] or 'none'}"
        )
    return "; ".join(found)


def _load_weights(pretrainer: Pretrainer, model: Path) -> None:
    """Loads the weights of a model to start from."""
    sizes, settings = started_settings(model), pretrainer.settings
    for key in ("dim", "n_hops", "n_layers"):
        if (ours := getattr(settings, key)) != (its := getattr(sizes, key)):
            raise ConfigError(f"{model} has {key}={its}; got {key}={ours}.")
    pretrainer.model.load_state_dict(load_model(model).model.state_dict())


def started_settings(model: Path) -> Pretraining:
    """Returns the default settings, with the sizes of a model to start from."""
    artifact = load_model(model)
    if artifact.relations is not None:
        raise ConfigError(
            f"{model}: expected a model without a relation table, such as those of pathe pretrain."
        )
    config = artifact.config
    return Pretraining(
        dim=config.bridge_dim, n_hops=config.bridge_hops, n_layers=config.relation_layers
    )


class PretrainingRun:
    """An open run: trains, validates, and saves what it has."""

    def __init__(
        self,
        place: Place,
        about: dict[str, Any],
        pretrainer: Pretrainer,
        valid: list[ValidGraph],
        reports: Reports,
    ) -> None:
        self.place, self.about, self.pretrainer, self.valid = place, about, pretrainer, valid
        self.folder, self.settings = place.folder, pretrainer.settings
        self.say, self.progress = reports
        self.how = f"the same graphs and --resume --out {place.folder}"
        self.stop_key = StopKey(place.folder / CHECKPOINT, 1, self.how)
        self.record: dict[str, Any] = {}  # of the last validation
        self.validated = 0  # step of the last validation
        self.begin = self.since = self.saved = time.perf_counter()
        self.seconds_before = self.valid_seconds = 0.0
        self.first = 0  # step since which the pace is measured
        self.pace: float | None = None  # steps per second
        self.is_over = False  # the time

    def start(self, state: dict[str, Any] | None) -> None:
        """Restores a checkpoint, or saves the first one."""
        if state is None:
            self.save()
            return
        try:
            self.pretrainer.load(state)
            self.validated, self.record = state["validated"], state["record"]
            self.seconds_before, self.valid_seconds = state["seconds"], state["valid_seconds"]
        except UNREADABLE as error:
            raise ModelError(f"{self.folder / CHECKPOINT}: can't resume ({error}).") from error
        self._trim_metrics()
        self.say(f"resumed after step {self.pretrainer.step:,} of {self.settings.steps:,}")

    def go(self) -> None:
        """Trains and validates until the last step, or until the time is over."""
        pretrainer, every, steps = self.pretrainer, self.settings.valid_every, self.settings.steps
        with self.stop_key.listening():
            while True:
                step = pretrainer.step
                ended = self.is_over or step == steps
                if step > self.validated and (ended or step % every == 0):
                    self.save()
                    self.export()  # before a validation that may take long
                    self.validate()
                if ended:
                    return
                self.first, self.since = step, time.perf_counter()
                pretrainer.advance(min(step - step % every + every, steps), self._goes_on)
                if self.stop_key.pressed:
                    self.save()
                    self._interrupt()

    def _goes_on(self) -> bool:
        """Reports and saves after a step; returns whether there is to be another one."""
        now, minutes = time.perf_counter(), self.place.minutes
        self.pace = (self.pretrainer.step - self.first) / (now - self.since)
        self.progress(self._status("training"))
        if now - self.saved > SAVE_EVERY:
            self.save()
        spent = now - self.begin + 2 * self.valid_seconds  # one more validation, and calibration
        self.is_over = minutes is not None and spent > 60 * minutes
        return not (self.is_over or self.stop_key.pressed)

    def _status(self, doing: str) -> Status:
        step, steps, every = self.pretrainer.step, self.settings.steps, self.settings.valid_every
        loss = self.pretrainer.losses.mean() if self.pretrainer.losses.sums else None
        left = None
        if self.pace:
            n_validations = math.ceil(steps / every) - self.validated // every
            left = (steps - step) / self.pace + n_validations * self.valid_seconds
            if self.place.minutes is not None:
                over = self.begin + 60 * self.place.minutes
                left = min(left, max(over - time.perf_counter(), 0))
        return Status(doing, step, steps, loss, self.pace, left)

    def _interrupt(self, *_: int) -> None:
        """Ends the run if Ctrl-C was pressed; its checkpoint is saved already."""
        if self.stop_key.pressed:
            raise Interrupted(
                f"Stopped after step {self.pretrainer.step:,} and saved. Resume with {self.how}",
                self.stop_key.signum,
            )

    def validate(self) -> None:
        """Ranks validation triples, writes the metrics, exports the model and saves."""
        begin, model, found = time.perf_counter(), self.pretrainer.model.eval(), {}
        for name, prepared, triples_M3 in self.valid:
            self.progress(self._status(f"validating {name}"))
            known = prepared.known("train", "valid")
            scorer = GraphScorer(model, prepared, seed=0)
            ranked = evaluate_links(scorer, triples_M3, known, progress=self._interrupt)
            found[name] = {key: ranked[key] for key in VALID_METRICS}
            if self.settings.relation_share and prepared.n_relations > 1:
                ranked = evaluate_relations(scorer, triples_M3, known, progress=self._interrupt)
                found[name]["relation_hits_at_1"] = ranked["hits_at_1"]
        model.train()
        self.valid_seconds = time.perf_counter() - begin
        self.record = {
            "step": self.pretrainer.step,
            "seconds": self.seconds,
            "steps_per_second": self.pace,
            "loss": self.pretrainer.losses.means(),
            "graphs": found,
        }
        for key in SHOWN:
            values = [metrics[key] for metrics in found.values() if key in metrics]
            self.record[key] = sum(values) / len(values) if values else None
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.record) + "\n")
        self.say(describe(self.record, self._status("").seconds_left, self.settings.steps))
        self.export()
        self.validated, self.pretrainer.losses = self.pretrainer.step, Losses()
        self.save()

    @property
    def seconds(self) -> float:
        """The time spent so far, in this process and before."""
        return self.seconds_before + time.perf_counter() - self.begin

    def save(self) -> None:
        """Writes the checkpoint; never with weights that aren't finite."""
        self.pretrainer.check_weights()
        state = self.pretrainer.state() | {
            "about": self.about,
            "seconds": self.seconds,
            "valid_seconds": self.valid_seconds,
            "validated": self.validated,
            "record": self.record,
        }
        write_checkpoint(self.folder / CHECKPOINT, state)
        self.saved = time.perf_counter()

    def _trim_metrics(self) -> None:
        """Removes lines of validations that will be repeated."""
        trim_metric_lines(self.folder / METRICS, "step", self.validated)

    def calibrate(self) -> tuple[dict[str, float], dict[str, Any]]:
        """Fits temperatures on the graphs that are only validated on; on all if there are none."""
        self.progress(self._status("calibrating"))
        unseen = [graph for graph in self.valid if graph.name not in self.about["graphs"]]
        model = self.pretrainer.model.eval()
        scorers = {
            name: GraphScorer(model, prepared, seed=0) for name, prepared, _ in unseen or self.valid
        }
        tasks = ["link"] + ["relation"] * (self.settings.relation_share > 0)
        return fit_across(scorers, tasks)

    def export(self, temperatures: Mapping[str, float] | None = None) -> None:
        """Writes the model folder; its card has metrics if this step is validated."""
        model, graphs = self.pretrainer.model, self.about["graphs"]
        settings = self.about["settings"]
        mix = {f.name: settings[f.name] for f in fields(MixSettings) if f.name != "seed"}
        facts = {
            "task": "multi",
            "data": ", ".join(graphs),
            "fingerprints": ", ".join(graphs.values()),
            "steps": f"{self.pretrainer.step} of {self.settings.steps}",
            "seed": self.settings.seed,
            "started_from": self.about["start"] or "random weights",
            "mix": ", ".join(f"{key}={value}" for key, value in mix.items()),
        }
        if self.valid and self.record.get("step") == self.pretrainer.step:
            sample = f"at most {self.settings.valid_triples} valid triples per graph, mean of "
            sample += ", ".join(graph.name for graph in self.valid)
            facts |= {"validation": sample, "protocol": "full"}
            shown = (key for key in SHOWN if self.record[key] is not None)
            facts |= {key: round(self.record[key], 4) for key in shown}
        artifact = Artifact(model, self.settings.config, None, temperatures or {})
        save_model(self.folder / MODEL, artifact, facts)

    def finish(self, command: str | None) -> dict[str, Any]:
        """Calibrates and exports the model; writes and returns the result."""
        temperatures, calibration = self.calibrate()
        self.export(temperatures)
        step, steps, device = self.pretrainer.step, self.settings.steps, self.pretrainer.mix.device
        if step < steps:
            self.say(
                f"time limit reached after step {step:,} of {steps:,}; continue with the same "
                f"graphs and --resume --out {self.folder}"
            )
        result = {
            "command": command,
            "commit": commit(),
            **self.about,
            "parameters": count_parameters(self.pretrainer.model),
            "step": step,
            "metrics": self.record,
            "calibration": calibration,
            "seconds": self.seconds,
            "device": device_name(device),
            "peak_memory_bytes": peak_memory(device),
            "model": str(self.folder / MODEL),
        }
        write_json(self.folder / RESULT, result)
        return result


def describe(record: dict[str, Any], seconds_left: float | None, steps: int) -> str:
    """Describes a validation in a line."""
    losses = ", ".join(f"{task} {loss:.3f}" for task, loss in record["loss"].items())
    parts = [f"step {record['step']:,}/{steps:,}: loss {losses}"]
    if record["graphs"]:
        each = ", ".join(f"{name} {found['mrr']:.3f}" for name, found in record["graphs"].items())
        parts.append(f"MRR {record['mrr']:.3f} ({each})")
    if record["relation_hits_at_1"] is not None:
        parts.append(f"relation Hits@1 {record['relation_hits_at_1']:.3f}")
    if record["steps_per_second"]:
        parts.append(f"{record['steps_per_second']:.3g} steps/s")
    if seconds_left and record["step"] < steps:
        parts.append(f"{duration(seconds_left)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Returns a duration in words, such as 2 h 05 min."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
