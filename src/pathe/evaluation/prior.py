"""Judging triples of small graphs, with what is true in other graphs.

A small graph has few examples to fit `Truth` on. So its probabilities are a mixture of those that
its own examples give, and those learned from many small graphs that were cut out of large ones
(benchmarks/small_graphs.py). From `ENOUGH` true examples on, its own count alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pathe.evaluation.truth import Examples, Truth

PRIORS = Path(__file__).with_name("priors.safetensors")
Kind = Literal["missing", "judge"]  # candidates of the search for missing facts; given triples
ENOUGH: dict[Kind, int] = {"missing": 100, "judge": 75}


class Bounds(NamedTuple):
    """How probable triples are at least, and at most."""

    least_B: Tensor
    most_B: Tensor


class Mixture:
    """Gives triples a probability of being true, and a threshold to call them so."""

    def __init__(
        self,
        kind: Kind,
        examples: Examples | None,
        n_relations: int,
        seed: int,
        *,
        unlabelled: bool = False,
        alone: bool = False,
    ) -> None:
        """Takes the graph's own examples; with `alone`, only these count. See `Truth`, too."""
        n_true = int(examples.true_B.sum()) if examples is not None else 0
        self.share = 1.0 if alone else min(n_true / ENOUGH[kind], 1.0) ** 2  # of the own examples
        self.prior = priors()[kind] if self.share < 1 else None
        self.own = None
        if examples is not None and n_true:
            self.own = Truth(examples, n_relations, seed, unlabelled=unlabelled)

    def __call__(
        self, features_BF: Tensor, relations_B: Tensor, bounds: Bounds | None = None
    ) -> Tensor:
        """Returns the probability of each triple; `bounds` hold for what other graphs say."""
        found_B = features_BF.new_zeros(len(features_BF))
        if self.own is not None:
            found_B += self.share * self.own(features_BF, relations_B)
        if self.prior is not None:
            zeros_B = torch.zeros(len(features_BF), dtype=torch.long)
            other_B = self.prior(features_BF.cpu(), zeros_B)
            other_B = other_B.to(features_BF.device)
            if bounds is not None:
                other_B = other_B.clamp(bounds.least_B, bounds.most_B)
            found_B += (1 - self.share) * other_B
        return found_B

    def order(self, features_BF: Tensor, relations_B: Tensor, chances_B: Tensor) -> Tensor:
        """Returns numbers in the order of the probabilities; they differ where these are all 1."""
        if self.own is not None and self.prior is None:
            return self.own.logits(features_BF, relations_B)
        return chances_B

    def thresholds(self, relations_B: Tensor) -> Tensor:
        """Returns the threshold for each triple's relation."""
        if self.own is None:
            return torch.full(relations_B.shape, 0.5, device=relations_B.device)
        return self.share * self.own.thresholds_R[relations_B] + (1 - self.share) * 0.5


@cache
def priors() -> dict[str, Truth]:
    """Returns what was learned from other graphs, by kind; all relations count as one."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in load_file(PRIORS).items():
        kind, _, part = name.partition(".")
        found.setdefault(kind, {})[part] = tensor
    return {kind: Truth.restored(parts) for kind, parts in found.items()}


def save_priors(fitted: Mapping[str, Truth]) -> None:
    """Writes what was learned, by kind."""
    parts = {
        f"{kind}.{name}": tensor
        for kind, truth in fitted.items()
        for name, tensor in truth.state().items()
    }
    save_file(parts, PRIORS)
