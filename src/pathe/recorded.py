"""A training step as a CUDA graph: recorded once, replayed as one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

import torch
from torch import Tensor, nn

from pathe.graph import Holder


class Recorded(Generic[Holder]):
    """A loss of tensors of fixed shapes, with its gradients; neither may wait for the device."""

    def __init__(
        self, loss: Callable[[Holder], Tensor], parameters: list[nn.Parameter], given: Holder
    ) -> None:
        self.given, self.parameters, self.turn = given.map(Tensor.clone), parameters, 0
        half = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")

        def run() -> tuple[Tensor, tuple[Tensor | None, ...]]:
            with torch.autocast("cuda", enabled=half[0], dtype=half[1], cache_enabled=False):
                found = loss(self.given)
            return found, torch.autograd.grad(found, parameters, allow_unused=True)

        before = torch.cuda.get_rng_state()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(aside):  # compiles kernels and fills caches first
                for _ in range(3):
                    run()
            torch.cuda.current_stream().wait_stream(aside)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.loss, self.grads = run()
        finally:  # the first replay, or the plain step instead, draws what it would have
            torch.cuda.set_rng_state(before)

    def __call__(self, given: Holder) -> Tensor:
        """The loss of what is given, with gradients for whoever asks."""
        for mine, new in zip(self.given.tensors(), given.tensors(), strict=True):
            mine.copy_(new)
        self.turn += 1
        loss: Tensor = _Replay.apply(self, *self.parameters)  # type: ignore[no-untyped-call]
        return loss


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorded: Recorded[Any], *parameters: Tensor) -> Tensor:
        recorded.graph.replay()
        ctx.recorded, ctx.turn = recorded, recorded.turn
        return recorded.loss.detach().clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        if ctx.turn != ctx.recorded.turn:
            raise RuntimeError("a recorded step must be differentiated before the next one runs")
        kept = ctx.recorded.grads
        scaled = iter(torch._foreach_mul([g for g in kept if g is not None], grads[0]))
        return (None, *(None if g is None else next(scaled) for g in kept))
