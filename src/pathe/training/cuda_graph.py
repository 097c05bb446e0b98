"""A training step as a CUDA graph: captured once, then replayed with a single launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

import torch
from torch import Tensor, nn

from pathe.core.tensors import Record


class CudaGraphStep(Generic[Record]):
    """A loss and its gradients, for inputs of fixed shapes; neither may synchronise."""

    def __init__(
        self,
        loss: Callable[[Record], Tensor],
        parameters: list[nn.Parameter],
        inputs: Record,
    ) -> None:
        """Captures the step."""
        self.inputs, self.parameters, self.n_replays = inputs.map(Tensor.clone), parameters, 0
        half = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")

        def run() -> tuple[Tensor, tuple[Tensor | None, ...]]:
            with torch.autocast("cuda", enabled=half[0], dtype=half[1], cache_enabled=False):
                found = loss(self.inputs)
            grads = torch.autograd.grad(found, parameters, allow_unused=True)
            return found.detach(), grads  # its autograd graph would tie parameters to this stream

        before = torch.cuda.get_rng_state()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):  # warm-up: compiles kernels and fills caches
                for _ in range(3):
                    run()
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.loss, self.grads = run()
        finally:  # so that the first replay, or a plain step, draws the same random numbers
            torch.cuda.set_rng_state(before)

    def __call__(self, inputs: Record) -> Tensor:
        """Returns the loss of the inputs; it can be differentiated."""
        for mine, new in zip(self.inputs.tensors(), inputs.tensors(), strict=True):
            mine.copy_(new)
        self.n_replays += 1
        loss: Tensor = _Replay.apply(self, *self.parameters)  # type: ignore[no-untyped-call]
        return loss


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: CudaGraphStep[Any], *parameters: Tensor) -> Tensor:
        step.graph.replay()
        ctx.step, ctx.n_replays = step, step.n_replays
        return step.loss.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        if ctx.n_replays != ctx.step.n_replays:
            raise RuntimeError("call backward on a captured step before the next one is replayed")
        kept = ctx.step.grads
        scaled = iter(torch._foreach_mul([g for g in kept if g is not None], grads[0]))
        return (None, *(None if g is None else next(scaled) for g in kept))
