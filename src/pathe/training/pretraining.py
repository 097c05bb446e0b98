"""Pre-training of a model for any graph, on a mix of graphs: settings and steps.

Everything that a step draws is a hash of (seed, step), so a run can stop and resume at any step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
import torch.utils.deterministic
from torch import Tensor

from pathe.core.config import MANY, Config, setting
from pathe.core.errors import TrainingError
from pathe.model.builder import build_foundation
from pathe.model.foundation import FoundationModel
from pathe.model.frontier import Frontier
from pathe.model.propagation import Kept, Reach
from pathe.training.callbacks import tf32
from pathe.training.learner import weights_are_finite
from pathe.training.losses import ce
from pathe.training.mix import Mix, MixGraph, MixSettings, MixStep

LAST_RATE = 0.02  # learning rate at the end, relative to the highest
READ_EVERY = 16  # steps on a GPU between two looks at the losses: each one synchronises
Mark = TypeVar("Mark")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Pretraining(MixSettings):
    """Every setting of a pre-training run; those of the mix are inherited."""

    dim: int = setting(64, "width of all vectors and states", least=1, most=4096)
    n_hops: int = setting(
        6, "maximum path length between two entities, in edges", least=1, most=100
    )
    n_layers: int = setting(4, "layers of the encoder of a graph's relations", least=1, most=100)
    steps: int = setting(20_000, "steps of the whole run", least=1, most=10**9)
    learning_rate: float = setting(2e-3, "highest learning rate of AdamW", above=0)
    weight_decay: float = setting(1e-4, "weight decay of AdamW", least=0, most=1000)
    gradient_clip: float = setting(
        1.0, "maximum gradient norm; 0: no clipping", least=0, most=10**6
    )
    warm_up: int = setting(
        200, "steps in which the learning rate rises; at most a tenth of all", least=0, most=10**9
    )
    valid_every: int = setting(1000, "steps between validations", least=1, most=10**9)
    valid_triples: int = setting(500, "validation triples per graph", least=1, most=MANY)

    @property
    def config(self) -> Config:
        """The settings of the model alone, as its folder stores them."""
        return Config(
            task="multi",
            relation_vectors="graph",
            bridge="paths",
            bridge_dim=self.dim,
            bridge_hops=self.n_hops,
            relation_layers=self.n_layers,
            seed=self.seed,
        )

    def rate(self, step: int) -> float:
        """Returns the learning rate of a step: a linear rise, then half a cosine."""
        warm_up = min(self.warm_up, self.steps // 10)
        if step < warm_up:
            return self.learning_rate * (step + 1) / warm_up
        done = (step - warm_up) / (self.steps - warm_up)
        share = LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate * share


class Losses:
    """Sums of losses per task since the last validation, kept on the device."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}

    def add(self, task: str, loss: Tensor) -> None:
        """Adds the loss of a step, without reading it."""
        found = loss.detach().double()
        self.sums[task] = self.sums[task] + found if task in self.sums else found
        self.counts[task] = self.counts.get(task, 0) + 1

    def state(self) -> dict[str, list[float]]:
        """Returns [sum, count] per task; synchronises with a GPU."""
        return {task: [float(self.sums[task]), self.counts[task]] for task in sorted(self.sums)}

    def load(self, state: Mapping[str, list[float]], device: torch.device) -> None:
        """Restores the sums of `state()`."""
        for task, (total, count) in state.items():
            self.sums[task] = torch.tensor(total, dtype=torch.float64, device=device)
            self.counts[task] = int(count)

    def means(self) -> dict[str, float]:
        """Returns the mean loss per task; synchronises with a GPU."""
        return {task: total / count for task, (total, count) in self.state().items()}

    def mean(self) -> float:
        """Returns the mean loss of all steps; synchronises with a GPU."""
        return sum(total for total, _ in self.state().values()) / sum(self.counts.values())


class Pretrainer:
    """Training state: the model, its optimiser and the current step."""

    def __init__(self, mix: Mix, settings: Pretraining) -> None:
        self.mix, self.settings, self.step = mix, settings, 0
        self.model = build_foundation(settings.config).to(mix.device)
        self.losses = Losses()
        self.stream: torch.cuda.Stream | None = None  # that prepares inputs
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=mix.device.type == "cuda",
        )

    def advance(self, last: int, goes_on: Callable[[], bool]) -> None:
        """Runs steps until `last` of them are done, or until `goes_on` returns False.

        That is asked after every step, on a GPU after every READ_EVERY steps.
        """
        read_every = READ_EVERY if self.mix.device.type == "cuda" else 1
        steps = self.steps_ahead(last)
        with tf32(), repeatable(self.mix.device), closing(steps):
            for graph, inputs in steps:
                self._update(graph, inputs)
                if self.step % read_every == 0 or self.step == last:
                    self._check_losses()
                    if not goes_on():
                        return

    def steps_ahead(self, last: int) -> Generator[tuple[MixGraph, MixStep], None, None]:
        """Yields the inputs of steps; on a GPU, the next one is prepared while a step runs."""
        mix, model, numbers = self.mix, self.model, range(self.step, last)
        if mix.device.type != "cuda":
            yield from map(mix.step, numbers)
            return
        # one stream for the whole run, as memory is cached per stream
        self.stream = self.stream or torch.cuda.Stream()
        main, side = torch.cuda.current_stream(), self.stream

        def prepare(i: int, done: torch.cuda.Event) -> tuple[MixGraph, MixStep, torch.cuda.Event]:
            with torch.cuda.stream(side):
                side.wait_event(done)  # before memory of an earlier step is used again
                graph, step = mix.step(i)
                return graph, with_rows(model, graph, step), side.record_event()

        with closing(one_ahead(prepare, main.record_event, numbers)) as made:
            for graph, step, ready in made:
                main.wait_event(ready)
                yield graph, step

    def _update(self, graph: MixGraph, inputs: MixStep) -> None:
        """Runs one step."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate(self.step)
        loss = step_loss(self.model, graph, inputs)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.settings.gradient_clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.gradient_clip)
        self.optimizer.step()
        self.losses.add(inputs.part, loss)
        self.step += 1

    def _check_losses(self) -> None:
        """Raises an error if a loss was not finite: then no sum is."""
        for task, (total, _) in self.losses.state().items():
            if not math.isfinite(total):
                raise TrainingError(
                    f"The loss of {task} prediction became NaN or infinite {self._at()}."
                )

    def check_weights(self) -> None:
        """Raises an error if weights aren't finite, which the next loss would show."""
        if not weights_are_finite(self.model):
            raise TrainingError(f"Weights became NaN or infinite {self._at()}.")

    def _at(self) -> str:
        """Says which step has just been made, and its learning rate."""
        step = max(self.step - 1, 0)
        before = "" if self.mix.device.type == "cpu" else f", or up to {READ_EVERY} steps before"
        return f"in step {step:,}{before}, with a learning rate of {self.settings.rate(step):.3g}"

    def state(self) -> dict[str, Any]:
        """Returns all that the next steps depend on, besides settings and graphs."""
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "losses": self.losses.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores a `state()`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.losses.load(state["losses"], self.mix.device)
        self.step = state["step"]


def step_loss(model: FoundationModel, graph: MixGraph, step: MixStep) -> Tensor:
    """Returns the loss of a step; it can be differentiated."""
    edges, seen = graph.edges, step.graph
    if step.part == "entity":
        answers_N, distinct = step.targets_N, (step.kinds_Q, step.rows_N)
        asked = step.sources_N, step.kinds_N
        frontier = Frontier(step.frontier, step.candidates_C) if step.frontier else None
        scores_NC = model.links(edges, seen, *asked, step.reached, distinct, frontier)
    else:
        answers_N, ends = step.kinds_N, (step.sources_N, step.targets_N)
        rows: Reach | Kept | None = step.reached
        if step.frontier and rows is None:
            rows = model.bridge.frontier_between(edges, seen.keep_M, *ends, step.frontier)
        scores_NC = model.relations(edges, seen, *ends, true_B=answers_N, reached=rows)
    positive_N = scores_NC.gather(1, answers_N[:, None])[:, 0]
    return ce(positive_N, scores_NC, step.open_NC, 0.0)


def with_rows(model: FoundationModel, graph: MixGraph, step: MixStep) -> MixStep:
    """Adds the rows that bridges reach; otherwise the step finds them, which synchronises."""
    ends = step.sources_N, None if step.part == "entity" else step.targets_N
    return replace(step, reached=model.bridge.reach(graph.edges, step.graph.keep_M, *ends))


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Makes CPU steps bitwise reproducible; otherwise, threads sum gradients in varying order."""
    options: Any = torch.utils.deterministic
    before, fill = torch.are_deterministic_algorithms_enabled(), options.fill_uninitialized_memory
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        options.fill_uninitialized_memory = False  # it takes time
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        options.fill_uninitialized_memory = fill


def one_ahead(
    make: Callable[[int, Mark], Made], mark: Callable[[], Mark], numbers: range
) -> Generator[Made, None, None]:
    """Yields make(number, mark) of all numbers; another thread makes the next one meanwhile.

    The mark records when the item before the previous one was no longer in use. The thread ends
    when all are made, or when the generator is closed.
    """
    pool = ThreadPoolExecutor(1)
    try:
        unused = mark()
        coming = [pool.submit(make, number, unused) for number in numbers[:1]]
        while coming:
            found = coming.pop().result()
            numbers = numbers[1:]
            coming += [pool.submit(make, number, unused) for number in numbers[:1]]
            yield found
            unused = mark()
    finally:
        pool.shutdown(cancel_futures=True)
