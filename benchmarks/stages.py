"""Where the time of a training step goes, stage by stage, and how far each is from its floor.

A step of all-entities softmax on FB15k-237, both sides, 4 paths of 5 hops. A stage's floor is the
larger of its bytes over the copy bandwidth and its arithmetic over the rate of a large float32
product, both measured here first. A slot is one arithmetic instruction on one number.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from measure import DATA, HERE, console, provenance
from rich.table import Table
from torch import Tensor

from pathe.core.config import configure
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.prepared import PreparedGraph
from pathe.model.attention import attend
from pathe.model.builder import build_featurizer, build_model
from pathe.model.encoder import EncoderLayer
from pathe.model.scores import relu_dot
from pathe.training.batches import Batches
from pathe.training.losses import ce
from pathe.training.vector_learner import PathELearner

SEED = 0
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seconds(run: Callable[[], Any], repeats: int = 10) -> float:
    """Returns the median of some runs after two to warm up."""
    times = []
    for _ in range(repeats + 2):
        wait()
        begin = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - begin)
    return sorted(times[2:])[repeats // 2]


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def both_ways(run: Callable[..., Tensor], *inputs: Tensor) -> tuple[float, float]:
    """Returns the seconds of the forward and of the backward pass."""
    learned = [x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        forward = seconds(lambda: run(*learned))
    found = run(*learned)
    grad = torch.randn_like(found)
    return forward, seconds(lambda: found.backward(grad, retain_graph=True))


def ceilings() -> tuple[float, float]:
    """Returns bytes per second of a copy, and multiply-adds per second of a float32 product."""
    big = DEVICE.type == "cuda"
    x = torch.empty(1 << (28 if big else 25), device=DEVICE).normal_()
    y = torch.empty_like(x)
    copied = 2 * x.numel() * 4 / seconds(lambda: y.copy_(x))
    n = 8192 if big else 1024
    a, b = torch.randn(2, n, n, device=DEVICE)
    torch.set_float32_matmul_precision("highest")
    slots = n**3 / seconds(lambda: a @ b)
    torch.set_float32_matmul_precision("high")  # as training does
    return copied, slots


def main() -> None:
    kg = KnowledgeGraph.read(DATA / "fb15k-237")
    settings = {"negative_sampling": "all", "batch_size": 4096 if DEVICE.type == "cuda" else 1024}
    config = configure(settings=settings | {"accelerator": "auto"})
    prepared = PreparedGraph(replace(kg, valid=kg.valid[:0]))
    bandwidth, rate = ceilings()
    model = build_model(config, kg.n_relations).to(DEVICE)
    learner = PathELearner(model, config, prepared).to(DEVICE)
    learner.setup("fit")
    optimizer = learner.configure_optimizers()
    batches = iter(Batches(len(kg.train), config.batch_size, SEED, device=DEVICE))

    def step() -> None:
        ids_B, _, place = next(batches)
        optimizer.zero_grad()
        learner.loss(ids_B, torch.tensor(place, device=DEVICE)).backward()
        optimizer.step()

    whole = seconds(step) * 1e3
    everyone = torch.arange(kg.n_entities, device=DEVICE)
    featurizer = build_featurizer(config, prepared.on(DEVICE), config.n_paths)
    batch = featurizer.batch(everyone, SEED)
    tokens_NT = batch.tokens_UKT.flatten(0, 1)
    n, t = tokens_NT.shape
    e, d, h, f, b = kg.n_entities, config.dim, config.heads, config.feedforward, config.batch_size
    real = int((tokens_NT >= 0).sum())
    assert batch.contexts is not None
    incoming, outgoing, *_ = batch.contexts
    entries = len(incoming.counts_P) + len(outgoing.counts_P)
    layer = model.encoder.layers[0]
    assert isinstance(layer, EncoderLayer)
    x_ND, table = torch.randn(n, d, device=DEVICE), torch.randn(2, e + kg.n_relations, d)
    keys, values = (layer.split(part) for part in table.to(DEVICE))
    ones_NHT = torch.ones(n, h, t, device=DEVICE)
    z, w = torch.randn(e, d, device=DEVICE), torch.randn(d, device=DEVICE)
    scores_BE = torch.randn(b, e, device=DEVICE)
    triples_B3 = learner.train_M3[:b]

    def read(query_ND: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(layer.split(query_ND), keys, values, tokens_NT, ones_NHT, ones_NHT)[0]

    def loss(scores_BE: Tensor) -> Tensor:
        return ce(scores_BE[:, 0], scores_BE, open_BE, 0.0)

    open_BE = learner._open(triples_B3, "tail")
    rows: list[dict[str, Any]] = []

    def stage(name: str, took: float, n_bytes: float, slots: float, times: int = 1) -> None:
        floor = max(n_bytes / bandwidth, slots / rate)
        bound = "bytes" if n_bytes / bandwidth > slots / rate else "arithmetic"
        rows.append(
            {"stage": name, "ms": took * times * 1e3, "floor_ms": floor * times * 1e3,
             "bound": bound, "ratio": took / floor}
        )  # fmt: skip

    walked, described = (
        seconds(lambda: featurizer.paths(everyone, SEED)),
        seconds(lambda: featurizer.batch(everyone, SEED)),
    )
    stage("paths: walks, layout", walked, n * config.max_hops * 5 * 32, 0)
    stage("contexts, tokens as rows", described - walked, n * t * 12 + entries * 24, 0)
    stage("open answers, both sides", seconds(lambda: learner._open(triples_B3, "tail")),
          b * e, 0, 2)  # fmt: skip
    forward = seconds(lambda: model.projector(incoming, outgoing))
    nodes = model.projector(incoming, outgoing)
    backward = seconds(lambda: nodes.sum().backward(retain_graph=True))
    stage("projector, forwards and back", forward + backward,
          3 * e * d * 4 * 4, 3 * (entries * d + e * 6 * d * d))  # fmt: skip
    forward, backward = both_ways(read, x_ND, keys, values)
    stage("attention, forwards", forward, n * (t * 4 + d * 8 + h * t * 12), 2 * real * d)
    stage("attention, back", backward, n * (t * 4 + d * 12 + h * t * 16), 4 * real * d)
    forward, backward = both_ways(layer.finish, x_ND, x_ND)
    stage("rest of the layer, forwards and back", forward + backward,
          3 * n * d * 4 * 3, 3 * n * (d * d + 2 * d * f))  # fmt: skip
    forward, backward = both_ways(relu_dot, x_ND[:b], z, w)
    stage("link scores, both sides, forwards", forward, b * e * 4, 3 * b * e * d, 2)
    stage("link scores, both sides, back", backward, 3 * b * e * 4, 6 * b * e * d, 2)
    forward, backward = both_ways(loss, scores_BE)
    stage("softmax loss, both sides, forwards and back", forward + backward, b * e * 14, 0, 2)

    total = sum(r["floor_ms"] for r in rows)
    rows.append(
        {"stage": "the whole step", "ms": whole, "floor_ms": total, "bound": "",
         "ratio": whole / total}
    )  # fmt: skip
    out = Table("stage", "ms", "floor, ms", "bound by", "ratio", title=f"a step of {b:,} triples")
    for r in rows:
        cells = (f"{r['ms']:.2f}", f"{r['floor_ms']:.2f}", r["bound"], f"{r['ratio']:.1f}")
        out.add_row(r["stage"], *cells)
    console.print(out)
    about = {"copy_bytes_per_s": bandwidth, "float32_slots_per_s": rate, "config": settings}
    path = HERE / f"stages_{'gpu' if DEVICE.type == 'cuda' else 'cpu'}.json"
    found = provenance(SEED) | about | {"fingerprint": kg.fingerprint(), "results": rows}
    path.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
