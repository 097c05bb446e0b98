"""Training steps with bridges on a GPU, with CUDA graphs and without.

`python benchmarks/bridge_steps.py` takes the settings of the experiments, and measures ms per step:
the mean of 30 after 8 to warm up.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import torch
from measure import DATA, HERE, console, provenance

from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.prepared import PreparedGraph
from pathe.lab.experiments import read_experiment
from pathe.model.builder import build_model
from pathe.training.batches import Batches
from pathe.training.vector_learner import PathELearner

NAMES = ("fb15k237-link-bridge", "wn18rr-link-bridge", "codexm-link-bridge",
         "fb15k237-relation-bridge", "wn18rr_v2-link-bridge", "fb237_v4-link-bridge")  # fmt: skip
WARM, STEPS = 8, 30


def ms_per_step(name: str, cuda_graphs: bool, **other: Any) -> float:
    experiment = read_experiment(name, HERE.parent / "experiments")
    kg = KnowledgeGraph.read(DATA / experiment.data)
    config = replace(experiment.config(0), cuda_graphs=cuda_graphs, **other)
    model = build_model(config, kg.n_relations).cuda()
    learner = PathELearner(model, config, PreparedGraph(replace(kg, valid=kg.valid[:0]))).cuda()
    learner.setup("fit")
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    batches = Batches(len(kg.train), config.batch_size, 0, device=learner.device)
    seeds = torch.arange(len(batches), device="cuda")
    for i, (ids_B, _, place) in enumerate(batches):
        if i == WARM:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        if i == WARM + STEPS:
            break
        optimizer.zero_grad()
        learner.loss(ids_B, seeds[place]).backward()
        optimizer.step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / STEPS * 1e3


def main() -> None:
    torch.set_float32_matmul_precision("high")
    rows = []
    for name in NAMES:
        plain, recorded = ms_per_step(name, False), ms_per_step(name, True)
        rows.append({"experiment": name, "plain_ms": plain, "recorded_ms": recorded})
        console.print(f"{name}: {plain:.1f} ms per step, as a CUDA graph {recorded:.1f}")
    for hops in (2, 3, 5):
        took = ms_per_step(NAMES[0], True, bridge_hops=hops)
        rows.append({"experiment": NAMES[0], "bridge_hops": hops, "recorded_ms": took})
        console.print(f"{NAMES[0]}, {hops} hops: {took:.1f}")
    about = provenance(0) | {"command": "python benchmarks/bridge_steps.py"}
    (HERE / "bridge_steps.json").write_text(json.dumps(about | {"results": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
