"""Pre-training of a model for any graph, on a mix of graphs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pathe.model.bridge import PAIR_HOPS
from pathe.model.foundation import FoundationModel
from pathe.model.propagation import everywhere, reach
from pathe.training.bridge_queries import Capacity
from pathe.training.cuda_graph import CudaGraphStep
from pathe.training.losses import ce
from pathe.training.mix import Mix, MixGraph, MixStep


class Stepper:
    """Computes losses of steps; on a GPU, by a CUDA graph per graph of the mix and task."""

    def __init__(self, model: FoundationModel) -> None:
        self.model, self.n_hops = model, len(model.bridge.rounds)
        self.captured: dict[tuple[int, str], CudaGraphStep[MixStep]] = {}
        self.capacity: dict[int, Capacity | None] = {}  # None: rows of all entities
        self.pool: Any = None
        self.lock = threading.Lock()  # nothing else may use the GPU during a capture

    def loss(self, graph: MixGraph, step: MixStep) -> Tensor:
        """Returns the loss of a step; it can be differentiated."""
        if not step.sources_N.is_cuda:
            return self._loss(graph, step)
        key = graph.number, step.part
        captured = self.captured.get(key)
        if captured is None or not captured.fits(step):
            self.pool = self.pool or torch.cuda.graph_pool_handle()
            parameters = list(self.model.parameters())
            with self.lock:
                captured = CudaGraphStep(partial(self._loss, graph), parameters, step, self.pool)
            self.captured[key] = captured
        return captured(step)

    def _loss(self, graph: MixGraph, step: MixStep) -> Tensor:
        model, edges, seen = self.model, graph.edges, step.graph
        ends = step.sources_N, step.targets_N
        if step.part == "entity":
            answers_N = step.targets_N
            scores_NC = model.links(edges, seen, step.sources_N, step.kinds_N, step.reached)
        else:
            answers_N = step.kinds_N
            all_R = torch.arange(edges.n_relations, device=answers_N.device)
            vectors_RKD = model.encoder(seen.meetings, all_R)
            scores_NC = model.relation_scores(
                edges, seen, vectors_RKD, *ends, true_B=answers_N, reached=step.reached
            )
        positive_N = scores_NC.gather(1, answers_N[:, None])[:, 0]
        return ce(positive_N, scores_NC, step.open_NC, 0.0)

    def with_rows(self, graph: MixGraph, step: MixStep) -> MixStep:
        """Adds the rows that bridges reach, in the shapes of the CUDA graph."""
        edges, sources_N, keep_M = graph.edges, step.sources_N, step.graph.keep_M
        if step.part == "relation":
            hops = min(PAIR_HOPS, self.n_hops)
            return replace(step, reached=everywhere(edges, sources_N, hops))
        number, n_rows = graph.number, len(sources_N) * edges.n_entities
        if number not in self.capacity:
            found = reach(edges, sources_N, self.n_hops, torch.ones_like(keep_M))
            self.capacity[number] = None if found.sizes[-1] > n_rows / 2 else Capacity(n_rows)
        capacity = self.capacity[number]
        if capacity is None:
            return replace(step, reached=everywhere(edges, sources_N, self.n_hops))
        reached = reach(edges, sources_N, self.n_hops, keep_M)
        if not capacity.fits(reached.sizes):
            capacity.grow(reached.sizes)
        return replace(step, reached=reached.padded(capacity.sizes))


def steps_ahead(
    mix: Mix, stepper: Stepper, first: int, last: int
) -> Iterator[tuple[MixGraph, MixStep]]:
    """Yields the inputs of steps; on a GPU, the next one is prepared while a step runs."""
    if mix.device.type != "cuda":
        yield from (mix.step(i) for i in range(first, last))
        return
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()

    def prepare(i: int, done: torch.cuda.Event) -> tuple[MixGraph, MixStep, torch.cuda.Event]:
        with stepper.lock, torch.cuda.stream(side):
            side.wait_event(done)  # before memory of an earlier step is used again
            graph, step = mix.step(i)
            return graph, stepper.with_rows(graph, step), side.record_event()

    with ThreadPoolExecutor(1) as pool:
        done = main.record_event()
        coming = pool.submit(prepare, first, done)
        for i in range(first, last):
            graph, step, ready = coming.result()
            if i + 1 < last:
                coming = pool.submit(prepare, i + 1, done)
            main.wait_event(ready)
            yield graph, step
            done = main.record_event()
