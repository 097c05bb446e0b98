"""Measures how fast training is, to tell how long it takes before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from pathe.core.config import Config, configure
from pathe.core.randomness import keyed
from pathe.evaluation.ranking import sampled
from pathe.graph.prepared import PreparedGraph
from pathe.model.builder import STEP
from pathe.training.batches import Batches, n_steps
from pathe.training.learner import Learner

STEPS, LONG = 4, 1.0  # most steps, and seconds after which no further one is timed
FEW, MORE = 4, 16  # validation triples that are timed
EPOCHS = 6  # least number of epochs that a time limit is divided into
LEAST_VALID = 30  # validation triples
LEAST_TEST = 20  # triples that a quick run is evaluated on
CALIBRATED = 1000  # triples of valid and of test that calibration scores, at most


@dataclass(frozen=True)
class Pace:
    """Seconds of a training step, of a validation without its triples, and per triple."""

    step: float
    validation: float
    triple: float

    def epoch(self, config: Config, prepared: PreparedGraph) -> float:
        """Returns the seconds of an epoch with its share of a validation."""
        steps = n_steps(config, len(prepared.kg.train))
        return steps * self.step + self.validate(config, prepared) / config.validate_every

    def validate(self, config: Config, prepared: PreparedGraph) -> float:
        """Returns the seconds of a validation."""
        n = len(prepared.triples("valid", "seen"))
        n = min(config.valid_triples or n, n)
        return self.validation + n * self.triple if n else 0.0

    def training(self, config: Config, prepared: PreparedGraph) -> float:
        """Returns the seconds of training without early stopping or a time limit."""
        first = self.validate(config, prepared) if config.init != "none" else 0.0
        return config.max_epochs * self.epoch(config, prepared) + first

    def evaluation(self, config: Config, prepared: PreparedGraph) -> float:
        """Returns the seconds of calibration and evaluation after training."""
        valid, test = (len(prepared.triples(split, "seen")) for split in ("valid", "test"))
        judged = min(config.test_triples or (test or valid), test or valid)
        most = config.test_triples or CALIBRATED
        triples = min(valid, most) + min(test, most) + judged
        more = 1 if config.relation_vectors != "table" else config.eval_paths / config.n_paths
        return 2 * more * self.validation + triples * self.triple if triples else 0.0


def fit(
    config: Config, pace: Pace, prepared: PreparedGraph, seconds: float, given: Collection[str]
) -> Config:
    """Returns settings whose training takes at most `seconds`: fewer and shorter epochs.

    Settings in `given` stay. A cosine schedule then ends in time, too.
    """
    if pace.training(config, prepared) <= seconds:
        return config
    share = seconds / (EPOCHS + 1)  # an epoch, at most; a model that isn't new is validated first
    found: dict[str, int] = {}
    if pace.triple and "valid_triples" not in given:
        n = config.valid_triples or len(prepared.kg.valid)
        spare = share / 2 - pace.validation
        found["valid_triples"] = min(max(int(spare / pace.triple), LEAST_VALID), n)
        config = configure(config, found)
    if pace.epoch(config, prepared) > share and "epoch_triples" not in given:
        spare = share - pace.validate(config, prepared)
        n_steps = max(int(spare / max(pace.step, 1e-9)), 1)
        n_triples = min(n_steps * config.batch_size, len(prepared.kg.train))
        config = configure(config, {"epoch_triples": n_triples})
    if "max_epochs" in given:
        return config
    first = pace.validate(config, prepared) if config.init != "none" else 0.0
    n_epochs = int(max(seconds - first, 0.0) / pace.epoch(config, prepared))
    n_epochs = min(max(n_epochs, config.validate_every), config.max_epochs)
    return configure(config, {"max_epochs": n_epochs})


def quick_test(config: Config, pace: Pace, prepared: PreparedGraph, seconds: float) -> Config:
    """Returns settings whose evaluation takes at most about `seconds`."""
    if pace.evaluation(config, prepared) <= seconds:
        return config
    n = int(seconds / (3 * max(pace.triple, 1e-9)))  # of valid, of test, and to evaluate on
    return configure(config, {"test_triples": max(n, LEAST_TEST)})


def measure(learner: Learner, device: torch.device) -> Pace:
    """Times a few training steps and validations of a learner whose weights may change."""
    learner = learner.to(device)
    learner.setup("fit")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        step = _step_seconds(learner.train())
        valid_M3, timed = learner.valid_M3, list[float]()
        if not len(valid_M3):
            return Pace(step, 0.0, 0.0)
        learner.eval()
        few, more = (min(n, len(valid_M3)) for n in (FEW, MORE))
        for n in (1, few, more):  # the first compiles kernels
            learner.valid_M3 = sampled(valid_M3, n)
            timed.append(_seconds(learner.validate, device))
    per_triple = max(timed[2] - timed[1], 0.0) / (more - few) if more > few else timed[2] / more
    return Pace(step, max(timed[1] - few * per_triple, 0.0), per_triple)


def _step_seconds(learner: Learner) -> float:
    """Returns the seconds of a step, after a small one that compiles kernels."""
    config, timed = learner.config, list[float]()
    batches = Batches(len(learner.train_M3), config.batch_size, config.seed, device=learner.device)
    optimizer = learner.build_optimizer()
    for ids_B, epoch, place in islice(batches, STEPS):
        seed = keyed(config.seed, STEP, epoch, torch.tensor([place]), 0)[0].to(learner.device)

        def step(ids_B: Tensor, seed: Tensor = seed) -> None:
            optimizer.zero_grad(set_to_none=True)
            learner.loss(ids_B, seed).backward()
            optimizer.step()

        if not timed:
            step(ids_B[:2])
        timed.append(_seconds(partial(step, ids_B), learner.device))
        if sum(timed) > LONG:
            break
    return min(timed)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin
