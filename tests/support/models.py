"""Models with random weights for the tests, and predictors on them."""

from __future__ import annotations

import torch
from support.graphs import toy
from torch import nn

from pathe.core.config import configure
from pathe.model.artifact import Artifact
from pathe.model.builder import build_foundation, build_model
from pathe.predict.predictor import Predictor

SETTINGS = {"task": "multi", "dim": 8, "heads": 2, "feedforward": 8, "n_paths": 2, "max_hops": 3,
            "test_paths": 3}  # fmt: skip
BRIDGE = {"bridge": "paths", "bridge_dim": 6, "bridge_hops": 3}


def artifact_of(kg, **more) -> Artifact:
    config = configure(settings=SETTINGS | more)
    model = build_model(config, kg.n_relations).eval()
    draw = torch.Generator().manual_seed(1)
    for p in model.parameters():
        nn.init.normal_(p, std=0.4, generator=draw)
    return Artifact(model, config, kg.relations, {"link": 1.7, "relation": 0.6})


ANY = {"task": "multi", "relation_vectors": "graph", "bridge": "paths", "bridge_dim": 8,
       "bridge_hops": 3, "relation_layers": 2}  # fmt: skip


def any_graph_artifact(**more) -> Artifact:
    """A model for any graph, with random weights."""
    config = configure(settings=ANY | more)
    return Artifact(build_foundation(config).eval(), config, None, {"link": 1.7, "relation": 0.6})


def predictor(kg=None, **more) -> Predictor:
    kg = kg or toy()
    return Predictor(artifact_of(kg, **more), kg)


def any_graph_predictor(kg=None, **more) -> Predictor:
    return Predictor(any_graph_artifact(**more), kg or toy())
