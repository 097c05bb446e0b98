"""Training, embedding and ranking on this machine's CPU, against PyKEEN: `make bench`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from functools import partial
from types import SimpleNamespace
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
from torch import Tensor

from pathe.core.config import Config, configure
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.ranking import evaluate_links
from pathe.graph.adjacency import Graph, build_graph
from pathe.graph.known import KnownTriples
from pathe.graph.prepared import PreparedGraph, prepare
from pathe.model.builder import build_featurizer, build_model
from pathe.model.featurizer import Featurizer, encode
from pathe.model.scorer import VectorScorer
from pathe.training.callbacks import quiet, tf32
from pathe.training.vector_learner import PathELearner

SEED = 0
GIB = 1 << 30


class Clock(pl.Callback):
    """Times the steps after the first few or, if `after` is None, the last epoch."""

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


def without_validation(prepared: PreparedGraph) -> PreparedGraph:
    """Returns the graph without validation triples, so that training is timed alone."""
    kg = prepared.kg
    return bare(kg.train, kg.n_entities, kg.n_relations, prepared.graph)


def bare(train_M3: Tensor, n_entities: int, n_relations: int, graph: Graph) -> PreparedGraph:
    """Returns a prepared graph of training triples alone, without names."""
    splits = {"train": train_M3, "valid": train_M3[:0], "test": train_M3[:0]}
    kg: Any = SimpleNamespace(**splits, n_entities=n_entities, n_relations=n_relations)
    return PreparedGraph(kg, graph=graph)


def train_seconds(prepared: PreparedGraph, config: Config, n_steps: int | None = None) -> float:
    """Returns seconds of n_steps after two to warm up, or of an epoch after one.

    The graph should have no validation triples.
    """
    model = build_model(config, prepared.n_relations)
    learner = PathELearner(model, config, prepared)
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
            gradient_clip_val=config.gradient_clip,
        ).fit(learner)
    return clock.seconds


def pykeen_model(kg: KnowledgeGraph, name: str) -> tuple[Any, Any]:
    """Returns an untrained PyKEEN model of width 64 and its triples factory."""
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
    """Returns the rate of PyKEEN's evaluator on some test triples; best of three batch sizes."""
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
    """Returns the rate of PyKEEN's sLCWA loop with 99 negatives, at the best of three batch sizes.

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


def ranking(prepared: PreparedGraph) -> list[dict[str, Any]]:
    kg, config = prepared.kg, Config()
    model = build_model(config, kg.n_relations).eval()
    rates = {}
    for n_paths in (config.n_paths, config.eval_paths):
        featurizer = build_featurizer(config, prepared, n_paths)

        def run(featurizer: Featurizer = featurizer) -> None:
            known = KnownTriples(torch.cat([kg.train, kg.valid, kg.test]))
            evaluate_links(VectorScorer(model, featurizer, SEED), kg.test.long(), known)

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


def training(prepared: PreparedGraph) -> list[dict[str, Any]]:
    kg, rates = prepared.kg, {}
    for batch_size, n_steps in ((1024, 30), (16384, 6)):
        config = configure(settings={"batch_size": batch_size, "accelerator": "cpu"})
        seconds = train_seconds(without_validation(prepared), config, n_steps)
        rates[batch_size] = n_steps * batch_size / seconds
    ours = max(rates.values())
    peer = pykeen_positives_per_second(kg, 8192)
    return [
        row(
            f"training positives/s, {config.negatives} shared negatives per side, "
            f"{config.n_paths} paths per entity",
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


def embedding(prepared: PreparedGraph) -> list[dict[str, Any]]:
    model = build_model(Config(), prepared.n_relations)
    everyone = torch.arange(prepared.n_entities)
    featurizer = build_featurizer(Config(), prepared, 8)
    seconds = best_time(partial(encode, model, featurizer, everyone, seed=SEED), 5)
    rate = prepared.n_entities / seconds
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
    """Times a step and all vectors of a large graph and a quarter of it, in new processes."""
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
    """Returns times and peak memory of one graph; its triples are made before both start."""
    triples = synthetic_triples(n_entities, n_triples, 800, SEED)
    reset_peak()
    config = configure(settings={"accelerator": accelerator})
    device = torch.device("cuda" if accelerator == "gpu" else "cpu")
    begin = time.perf_counter()
    graph = build_graph(triples, n_entities, 800)
    built = time.perf_counter()
    prepared = bare(triples, n_entities, 800, graph)
    step = train_seconds(prepared, config, 5) / 5
    model = build_model(config, 800).to(device)
    featurizer = build_featurizer(config, prepared.on(device), 2)
    everyone = torch.arange(n_entities, device=device)
    start = time.perf_counter()
    float(encode(model, featurizer, everyone, seed=SEED).sum())
    return {
        "build_s": built - begin,
        "step_s": step,
        "embed_s": time.perf_counter() - start,
        "peak": torch.cuda.max_memory_reserved() if accelerator == "gpu" else peak_bytes(),
    }


def main() -> None:
    prepared = prepare(KnowledgeGraph.read(DATA / "fb15k-237"))
    rows: list[dict[str, Any]] = []
    parts = (
        ("ranking", partial(ranking, prepared)),
        ("training", partial(training, prepared)),
        ("embedding", partial(embedding, prepared)),
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
