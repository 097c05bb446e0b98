"""Training, embedding and ranking on this machine's CPU, against PyKEEN: `make bench`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from measure import (
    DATA,
    best_time,
    console,
    in_own_process,
    peak_bytes,
    reset_peak,
    row,
    synthetic_triples,
    write_results,
)

from pathe.builder import build_describer, build_model
from pathe.callbacks import quiet, tf32
from pathe.config import Config, configure
from pathe.datasets import KnowledgeGraph
from pathe.encoding import Describer, encode
from pathe.evaluation import evaluate_links
from pathe.graph import Graph, build_graph
from pathe.known import index_triples
from pathe.training import PathELearner

SEED = 0
GIB = 1 << 30


class Clock(pl.Callback):
    """Times what follows the first steps or, without their number, the second epoch."""

    def __init__(self, after: int | None) -> None:
        self.after = after

    def on_train_batch_end(self, *given: Any) -> None:
        if given[-1] + 1 == self.after:
            self.begin = now()

    def on_train_epoch_start(self, *given: Any) -> None:
        if self.after is None:
            self.begin = now()

    def on_train_epoch_end(self, *given: Any) -> None:
        self.seconds = now() - self.begin


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def train_seconds(
    train_M3: torch.Tensor, graph: Graph, config: Config, n_steps: int | None = None
) -> float:
    """Seconds of n_steps after two to warm up, or of a whole epoch after one; no validation."""
    model = build_model(config, graph.n_relations)
    learner = PathELearner(model, config, graph, train_M3, train_M3[:0])
    clock = Clock(2 if n_steps else None)
    with quiet(), tf32(), tempfile.TemporaryDirectory() as place:
        pl.Trainer(
            accelerator=config.accelerator,
            devices=1,
            max_epochs=1 if n_steps else 2,
            limit_train_batches=n_steps + 2 if n_steps else None,
            callbacks=[clock],
            logger=False,
            enable_checkpointing=False,
            default_root_dir=place,
            enable_progress_bar=False,
            enable_model_summary=False,
            gradient_clip_val=config.clip,
        ).fit(learner)
    return clock.seconds


def pykeen_model(kg: KnowledgeGraph, name: str) -> tuple[Any, Any]:
    """An untrained peer of width 64 and the factory of its training triples."""
    from pykeen.models import NodePiece, RotatE
    from pykeen.triples import CoreTriplesFactory

    factory = CoreTriplesFactory.create(
        kg.train.long(), kg.n_entities, kg.n_relations, create_inverse_triples=name == "NodePiece"
    )
    if name == "RotatE":
        return RotatE(triples_factory=factory, embedding_dim=64, random_seed=SEED), factory
    model = NodePiece(
        triples_factory=factory,
        num_tokens=12,
        tokenizers="RelationTokenizer",
        embedding_dim=64,
        interaction="DistMult",
        random_seed=SEED,
    )
    return model, factory


def pykeen_queries_per_second(kg: KnowledgeGraph, name: str, n_triples: int) -> float:
    """Its evaluator on some test triples, at the best of three batch sizes."""
    from pykeen.evaluation import RankBasedEvaluator

    model, _ = pykeen_model(kg, name)
    known = [kg.train.long(), kg.valid.long(), kg.test.long()]

    def rate(batch_size: int, n: int) -> float:
        begin = time.perf_counter()
        RankBasedEvaluator(filtered=True).evaluate(
            model, kg.test[:n].long(), batch_size=batch_size,
            additional_filter_triples=known, use_tqdm=False,
        )  # fmt: skip
        return 2 * n / (time.perf_counter() - begin)

    best = max((16, 64, 256), key=lambda size: rate(size, n_triples // 8))
    return rate(best, n_triples)


def pykeen_positives_per_second(kg: KnowledgeGraph, n_triples: int) -> float:
    """Its sLCWA loop, 99 negatives each, on some training triples: the best of three batch sizes.

    With inverse triples, which its NodePiece needs, a triple makes two positives; both count.
    """
    from pykeen.training import SLCWATrainingLoop
    from pykeen.triples import CoreTriplesFactory

    some = CoreTriplesFactory.create(
        kg.train[:: len(kg.train) // n_triples][:n_triples].long(),
        kg.n_entities,
        kg.n_relations,
        create_inverse_triples=True,
    )
    rates = []
    for batch_size in (256, 1024, 4096):
        model, _ = pykeen_model(kg, "NodePiece")
        loop = SLCWATrainingLoop(
            model=model, triples_factory=some,
            optimizer=torch.optim.Adam(model.parameters()),
            negative_sampler_kwargs={"num_negs_per_pos": 99},
        )  # fmt: skip
        begin = time.perf_counter()
        loop.train(some, num_epochs=1, batch_size=batch_size, use_tqdm=False, num_workers=0)
        rates.append(2 * some.num_triples / (time.perf_counter() - begin))
    return max(rates)


def ranking(kg: KnowledgeGraph, graph: Graph) -> list[dict[str, Any]]:
    config = Config()
    model = build_model(config, kg.n_relations).eval()
    rates = {}
    for n_paths in (config.n_paths, config.eval_paths):
        describe = build_describer(config, graph, n_paths)

        def run(describe: Describer = describe) -> None:
            every_M3 = torch.cat([kg.train, kg.valid, kg.test])
            known = index_triples(every_M3, kg.n_entities, kg.n_relations)
            evaluate_links(model, describe, kg.test, known, seed=SEED)

        rates[n_paths] = 2 * len(kg.test) / best_time(run)
    ours = rates[config.eval_paths]
    rows = []
    for name, n_triples, bar in (("NodePiece", 4096, 20), ("RotatE", 1024, 60)):
        peer = pykeen_queries_per_second(kg, name, n_triples)
        rows.append(
            row(
                "full filtered ranking, queries/s, with the filter's index and "
                f"encoding ({config.eval_paths} paths)",
                f"{ours:,.0f}",
                f"PyKEEN {name} {peer:,.0f}",
                f"{ours / peer:,.0f}x",
                f"{bar}x",
                ours >= bar * peer,
                ours_per_s=ours,
                ours_per_s_by_n_paths=rates,
                peer_per_s=peer,
                fingerprint=kg.fingerprint(),
            )
        )
    return rows


def training(kg: KnowledgeGraph, graph: Graph) -> list[dict[str, Any]]:
    rates = {}
    for batch_size, n_steps in ((1024, 30), (16384, 6)):
        config = configure(settings={"batch_size": batch_size, "accelerator": "cpu"})
        rates[batch_size] = n_steps * batch_size / train_seconds(kg.train, graph, config, n_steps)
    ours = max(rates.values())
    peer = pykeen_positives_per_second(kg, 8192)
    return [
        row(
            f"training positives/s, {config.negatives} shared negatives a side, "
            f"{config.n_paths} paths an entity",
            f"{ours:,.0f}",
            f"PyKEEN NodePiece, 99 negatives, inverses counted: {peer:,.0f}",
            f"{ours / peer:,.1f}x",
            "5x",
            ours >= 5 * peer,
            ours_per_s=ours,
            ours_per_s_by_batch_size=rates,
            peer_per_s=peer,
        )
    ]


def embedding(kg: KnowledgeGraph, graph: Graph) -> list[dict[str, Any]]:
    model = build_model(Config(), kg.n_relations)
    everyone = torch.arange(kg.n_entities)
    describe = build_describer(Config(), graph, 8)
    seconds = best_time(partial(encode, model, describe, everyone, seed=SEED), 5)
    rate = kg.n_entities / seconds
    return [
        row(
            "embedding all entities, 8 paths each, entities/s",
            f"{rate:,.0f}",
            "-",
            "-",
            "20,000",
            rate >= 20_000,
            ours_per_s=rate,
        )
    ]


def scale() -> list[dict[str, Any]]:
    """A step and all vectors of a large graph and of a quarter of it, each in its own process."""
    rows, found = [], {}
    for share in (4, 1):
        n_entities, n_triples = 5_000_000 // share, 20_000_000 // share
        found[share] = in_own_process(__file__, "scale", str(n_entities), str(n_triples))
    for what in ("step", "embed"):
        small, large = found[4][f"{what}_s"], found[1][f"{what}_s"]
        rows.append(
            row(
                {"step": "a training step", "embed": "embedding all entities, 2 paths each"}[what]
                + ", 5 M entities, 20 M triples, 800 relations",
                f"{large:.1f} s",
                f"a quarter: {small:.1f} s",
                f"{large / small:.1f}x",
                "at most 5x",
                large <= 5 * small,
                **{f"{k}_by_share": {str(s): v[k] for s, v in found.items()} for k in found[1]},
            )
        )
    peak = found[1]["peak"]
    rows.append(
        row("peak memory of that", f"{peak / GIB:.1f} GiB", "-", "-", "16 GiB", peak <= 16 * GIB)
    )
    return rows


def scale_once(n_entities: int, n_triples: int, accelerator: str = "cpu") -> dict[str, float]:
    """Times and peak memory of one graph; the triples are made before the clock and the peak."""
    triples = synthetic_triples(n_entities, n_triples, 800, SEED)
    reset_peak()
    config = configure(settings={"accelerator": accelerator})
    device = torch.device("cuda" if accelerator == "gpu" else "cpu")
    begin = time.perf_counter()
    graph = build_graph(triples, n_entities, 800)
    built = time.perf_counter()
    step = train_seconds(triples, graph, config, 5) / 5
    model = build_model(config, 800).to(device)
    describe = build_describer(config, graph.to(device), 2)
    everyone = torch.arange(n_entities, device=device)
    start = time.perf_counter()
    float(encode(model, describe, everyone, seed=SEED).sum())
    return {
        "build_s": built - begin,
        "step_s": step,
        "embed_s": time.perf_counter() - start,
        "peak": torch.cuda.max_memory_reserved() if accelerator == "gpu" else peak_bytes(),
    }


def main() -> None:
    kg = KnowledgeGraph.read(DATA / "fb15k-237")
    graph = build_graph(kg.train, kg.n_entities, kg.n_relations)
    rows: list[dict[str, Any]] = []
    parts = (
        ("ranking", partial(ranking, kg, graph)),
        ("training", partial(training, kg, graph)),
        ("embedding", partial(embedding, kg, graph)),
        ("scale", scale),
    )
    for name, part in parts:
        console.print(f"{name} ...")
        rows += part()
    write_results("speed", rows, SEED)


if __name__ == "__main__":
    if sys.argv[1:2] == ["scale"]:
        print(json.dumps(scale_once(int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])))
    else:
        main()
