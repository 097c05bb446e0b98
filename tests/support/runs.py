"""Small runs and learners for the tests."""

from __future__ import annotations

import torch

from pathe.core.config import configure
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import load_model
from pathe.model.builder import build_model
from pathe.training import run as runs
from pathe.training.vector_learner import PathELearner

SMALL = {"dim": 16, "feedforward": 16, "n_paths": 2, "max_hops": 3, "aggregator": "mean",
         "batch_size": 40, "negatives": 8, "max_epochs": 4, "learning_rate": 0.01,
         "accelerator": "cpu", "hold_out_batch": False}  # fmt: skip


def train(kg, folder, resume=False, **settings):
    config = configure(settings=SMALL | settings)
    return runs.train(kg, config, folder, runs.Options(resume, progress_bar=False))


def learner(kg, device="cpu", **settings) -> PathELearner:
    config = configure(settings=SMALL | settings)
    made = PathELearner(build_model(config, kg.n_relations), config, PreparedGraph(kg))
    made.to(device).setup("fit")
    return made


def weights(folder) -> dict[str, torch.Tensor]:
    return load_model(folder).model.state_dict()
