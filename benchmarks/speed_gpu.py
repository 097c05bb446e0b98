"""Training, evaluation and walks on a GPU, if there is one: `make bench`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from measure import DATA, best_time, console, in_own_process, row, write_results
from speed import GIB, SEED, train_seconds, without_validation

from pathe.core.config import Config, configure
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.ranking import evaluate_links
from pathe.graph.prepared import PreparedGraph, prepare
from pathe.graph.walks import sample_walks
from pathe.model.builder import build_featurizer, build_model
from pathe.model.scorer import VectorScorer

ALL_ENTITIES = {
    "negative_sampling": "all",
    "batch_size": 4096,
    "n_paths": 4,
    "max_hops": 5,
    "learning_rate": 0.002,
    "valid_negatives": 0,
}
MRR = 0.216  # the paper's
SPEED = str(Path(__file__).with_name("speed.py"))


def epoch(prepared: PreparedGraph) -> list[dict[str, Any]]:
    prepared = without_validation(prepared)
    config = configure(settings=ALL_ENTITIES | {"accelerator": "gpu"})
    torch.cuda.reset_peak_memory_stats()
    seconds = train_seconds(prepared, config)
    peak = torch.cuda.max_memory_reserved()
    before = train_seconds(prepared, replace(config, cuda_graphs=False))
    what = "an epoch of all-entities softmax, both sides, batch 4,096, 4 paths of 5 hops"
    return [
        row(
            what, f"{seconds:.2f} s", f"no CUDA graphs: {before:.2f} s", f"{before / seconds:.1f}x",
            "4 s", seconds <= 4, seconds=seconds, unrecorded_seconds=before, config=ALL_ENTITIES,
        ),
        row("peak GPU memory of that", f"{peak / GIB:.2f} GiB", "-", "-", "8 GiB", peak <= 8 * GIB),
    ]  # fmt: skip


def testing(prepared: PreparedGraph) -> list[dict[str, Any]]:
    kg, config, prepared = prepared.kg, Config(), prepared.on("cuda")
    model = build_model(config, kg.n_relations).cuda().eval()
    featurizer = build_featurizer(config, prepared, config.eval_paths)
    test_M3, known = prepared.triples("test"), prepared.known()

    def run() -> None:
        evaluate_links(VectorScorer(model, featurizer, SEED), test_M3, known)

    run()
    seconds = best_time(run, 5)
    what = f"full filtered test, encoding ({config.eval_paths} paths) included"
    queries = f"{2 * len(kg.test):,} queries"
    return [row(what, f"{seconds:.3f} s", queries, "-", "0.5 s", seconds <= 0.5, seconds=seconds)]


def walking(prepared: PreparedGraph) -> list[dict[str, Any]]:
    on_gpu = prepared.graph.to("cuda")
    starts = torch.randint(prepared.n_entities, (20_000_000,), device="cuda")

    def run() -> None:
        sample_walks(on_gpu.outgoing, starts, 5, seed=SEED)
        torch.cuda.synchronize()

    run()
    rate = len(starts) / best_time(run, 5)
    what = "loop-free 5-hop walks per second"
    return [row(what, f"{rate / 1e6:,.0f} M", "-", "-", "100 M", rate >= 1e8, per_s=rate)]


def start_to_mrr() -> list[dict[str, Any]]:
    """Times a new process until it reaches the paper's MRR in a full filtered validation."""
    settings = [part for key, value in ALL_ENTITIES.items() for part in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as place:
        lines = Path(place) / "run" / "metrics.jsonl"
        code = "from pathe.cli.main import main; main()"
        begin = time.perf_counter()
        run = subprocess.Popen(
            [sys.executable, "-c", code, "train", str(DATA / "fb15k-237"), "--out",
             str(lines.parent), *settings],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        found: list[dict[str, Any]] = []
        while run.poll() is None and time.perf_counter() - begin < 300:
            time.sleep(0.1)
            text = lines.read_text() if lines.exists() else ""
            found = [json.loads(line) for line in text.splitlines(keepends=True) if "\n" in line]
            if found and found[-1]["valid_score"] >= MRR:
                break
        seconds = time.perf_counter() - begin
        run.kill()
        run.wait()
    reached = bool(found) and found[-1]["valid_score"] >= MRR
    what = f"from start to a validation MRR (full, filtered) of {MRR}"
    after = f"{len(found)} epochs" if reached else "not reached"
    return [
        row(what, f"{seconds:.0f} s", after, "-", "60 s", reached and seconds <= 60,
            seconds=seconds, validation_mrr=[f["valid_score"] for f in found])
    ]  # fmt: skip


def scale() -> list[dict[str, Any]]:
    quarter, whole = (
        in_own_process(SPEED, "scale", str(5_000_000 // n), str(20_000_000 // n), "gpu")
        for n in (4, 1)
    )
    peak, size = whole["peak"], "5 M entities, 20 M triples, 800 relations"
    labels = {"step_s": "a training step", "embed_s": "embedding all entities, 2 paths each"}
    ratios = {key: whole[key] / quarter[key] for key in labels}
    return [
        *(
            row(
                f"{label}, {size}", f"{whole[key]:.3f} s", f"a quarter: {quarter[key]:.3f} s",
                f"{ratios[key]:.1f}x", "at most 5x", ratios[key] <= 5, whole=whole, quarter=quarter,
            )
            for key, label in labels.items()
        ),
        row("peak GPU memory of that and of a training step", f"{peak / GIB:.1f} GiB", "-", "-",
            "16 GiB", peak <= 16 * GIB),
    ]  # fmt: skip


def main() -> None:
    if not torch.cuda.is_available():
        console.print("no GPU here: benchmarks/speed_gpu.json stays as it was measured on one")
        return
    prepared = prepare(KnowledgeGraph.read(DATA / "fb15k-237"))
    rows: list[dict[str, Any]] = []
    for part in (epoch, testing, walking):
        console.print(f"{part.__name__} ...")
        rows += part(prepared)
    for alone in (start_to_mrr, scale):
        console.print(f"{alone.__name__} ...")
        rows += alone()
    write_results("speed_gpu", rows, SEED)


if __name__ == "__main__":
    main()
