"""Evaluates the model for any graph, without training, on a list of graphs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pathe.core.errors import ConfigError, DataError
from pathe.core.files import write_json
from pathe.core.hardware import commit, device_name, peak_memory
from pathe.core.types import SIDES, Progress, Side
from pathe.core.yaml_files import read_settings_file
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.calibration import reliability
from pathe.evaluation.metrics import compute
from pathe.evaluation.ranking import evaluate_relations
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import SHIPPED, Artifact, load_model, model_digest
from pathe.model.pathe import count_parameters
from pathe.model.ranks import Ranks, join
from pathe.model.scorer import GraphScorer, memory_budget

NAME = "zero-shot"
Say = Callable[[str], None]
Found = dict[str, Any]


@cache
def listed() -> dict[str, Any]:
    """Reads the list of graphs, with the published figures for each."""
    return read_settings_file(Path(__file__).with_name("zero_shot.yaml"))


def find_graphs(root: Path) -> dict[str, Path]:
    """Returns the listed graphs under a folder, or else every folder in it that is a graph."""
    found = {name: root / name for name in listed()["graphs"] if (root / name).is_dir()}
    if not found:
        folders = [root, *sorted(path for path in root.rglob("*") if path.is_dir())]
        found = {str(p.relative_to(root)): p for p in folders if any(p.glob("train.*"))}
    if not found:
        raise DataError(f"{root}: no folders with train, valid and test files in it.")
    return found


def zero_shot(
    root: Path, results: Path, device: torch.device, *, model: Path | None = None,
    say: Say = lambda text: None,
) -> Found:  # fmt: skip
    """Evaluates a model (default: the pre-trained one) on all graphs under `root`.

    Writes results/zero-shot.json after each graph; graphs that are in it already are skipped if
    data and model are the same.
    """
    artifact, path = load_model(model), results / f"{NAME}.json"
    if artifact.relations is not None:
        raise ConfigError(
            "Zero-shot evaluation needs a model without a relation table; this one has one."
        )
    about = {
        "name": NAME,
        "command": f"pathe reproduce {NAME} --data FOLDER",
        "model": model_digest(model or SHIPPED),
        "parameters": count_parameters(artifact.model),
        "pretrained_on": listed()["pretrained_on"] if model is None else "unknown",
        "config": artifact.config.as_dict(),
        "temperatures": dict(artifact.temperatures),
        "protocol": "all test triples, full filtered ranking, mean rank of ties",
    }
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    same = all(before.get(key) == about[key] for key in ("model", "temperatures"))
    done: dict[str, Found] = before.get("graphs", {}) if same else {}
    for name, folder in find_graphs(root).items():
        kg = KnowledgeGraph.read(folder, every_relation=True)
        if done.get(name, {}).get("fingerprint") == kg.fingerprint():
            say(f"{name}: done already")
            continue
        done[name] = evaluate_graph(artifact, kg, device)
        links = done[name]["links"]
        say(f"{name}: MRR {links['mrr']:.3f}, Hits@10 {links['hits_at_10']:.3f}")
        write_json(path, about | {"graphs": done})
    return about | {"graphs": done}


def evaluate_graph(artifact: Artifact, kg: KnowledgeGraph, device: torch.device) -> Found:
    """Returns all figures of a model on one graph."""
    prepared = PreparedGraph(kg, device)
    scorer = GraphScorer(artifact.model.to(device), prepared)  # type: ignore[arg-type]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    test = rank_sides(scorer, prepared.triples("test"))
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    found: Found = {
        "fingerprint": kg.fingerprint(),
        "commit": commit(),
        "entities": kg.n_entities,
        "relations": kg.n_relations,
        "triples": {split: len(rows) for split, rows in kg.splits.items()},
        "links": compute(join(list(test.values()))),
        "seconds": seconds,
        "device": device_name(device),
    }
    valid = rank_sides(scorer, prepared.triples("valid"))
    together = join([*test.values(), *valid.values()])
    worst = Ranks(together.pessimistic_B, together.pessimistic_B, together.candidates_B)
    found["valid_and_test_pessimistic"] = compute(worst)
    found["unreached"] = unreached(scorer, prepared.triples("test"), test)
    temperature = artifact.temperatures.get("link", 1.0)
    found["calibration"] = reliability(scorer, "test", "link", temperature)
    if artifact.config.task != "link" and kg.n_relations > 1:
        triples_M3 = prepared.triples("test")
        found["relation_prediction"] = evaluate_relations(scorer, triples_M3, prepared.known())
        temperature = artifact.temperatures.get("relation", 1.0)
        found["relation_calibration"] = reliability(scorer, "test", "relation", temperature)
    return found | {"peak_memory_bytes": peak_memory(device)}


def rank_sides(
    scorer: GraphScorer, triples_M3: Tensor, progress: Progress | None = None
) -> dict[Side, Ranks]:
    """Returns the filtered ranks of tails and of heads."""
    known = scorer.prepared.known()
    return {side: scorer.rank(triples_M3, side, known, progress=progress) for side in SIDES}


def unreached(scorer: GraphScorer, triples_M3: Tensor, ranks: Mapping[Side, Ranks]) -> Found:
    """Returns the metrics of answers that no path reaches, with contexts and without."""
    head, rows = scorer.model.link_contexts, {}
    for side in SIDES:
        sources, targets = (0, 2) if side == "tail" else (2, 0)
        near_M = is_reached(scorer, triples_M3[:, sources], triples_M3[:, targets])
        rows[side] = (~near_M).nonzero().squeeze(1)
    found: Found = compute(join([ranks[side][rows[side]] for side in SIDES]))
    if found["count"]:
        weight = head.second.weight.detach().clone()
        known = scorer.prepared.known()
        try:
            head.second.weight.data.zero_()
            alone = [scorer.rank(triples_M3[rows[side]], side, known) for side in SIDES]
        finally:
            head.second.weight.data.copy_(weight)
        found["without_contexts"] = compute(join(alone))
    return found


def is_reached(scorer: GraphScorer, sources_M: Tensor, targets_M: Tensor) -> Tensor:
    """Whether a path of the model's length leads from each source to its target."""
    edges, found = scorer.prepared.edges, []
    owners_N, neighbours_N = edges.owners_M.long(), edges.neighbours_M.long()
    chunk = max(memory_budget(sources_M.device) // (16 * len(owners_N) + 1), 1)
    for sources_B, targets_B in zip(sources_M.split(chunk), targets_M.split(chunk), strict=True):
        near_BE = torch.zeros(
            len(sources_B), edges.n_entities, dtype=torch.uint8, device=sources_M.device
        )
        near_BE.scatter_(1, sources_B[:, None], 1)
        for _ in scorer.model.bridge.rounds:
            over_BN = near_BE[:, neighbours_N]
            near_BE.scatter_reduce_(1, owners_N.expand_as(over_BN), over_BN, "amax")
        found.append(near_BE.gather(1, targets_B[:, None])[:, 0] > 0)
    return torch.cat(found) if found else sources_M.bool()


def page(found: Found) -> Iterator[str]:
    """Yields the tables of the results page, a line each.

    "overlap" says how many test triples of each graph pre-training has seen.
    """
    about, graphs, overlap = listed(), found["graphs"], found.get("overlap", {})
    devices = " or ".join(sorted({graph["device"] for graph in graphs.values()}))
    yield "\n## Zero-shot link prediction\n"
    yield (
        f"The pre-trained model ({found['parameters']:,} parameters), without fine-tuning: MRR / "
        "Hits@10 on all test triples, with ties at their mean rank. The next column follows the "
        "protocol of ULTRA and TRIX: valid and test triples together, ties broken pessimistically. "
        "Validation triples of the 12 GraIL inference graphs were used for validation and "
        "calibration, but not for training. Seconds are for ranking the test triples on "
        f"one {devices} ([file](../results/zero-shot.json)). The last column says how many of the "
        "test triples are training triples of the graphs of pre-training, which ULTRA and TRIX use "
        "as well ([file](../results/pretraining/overlap.json)). A model for any graph doesn't know "
        "their names, but they may help it.\n"
    )
    yield (
        "|  | PathE | PathE, ULTRA's protocol | ULTRA | TRIX | seconds | "
        "test triples seen in pre-training |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, graph in graphs.items():
        entry = about["graphs"].get(name, {})
        seen = " (used in pre-training)" if entry.get("pretrained") else ""
        cells = [
            pair(graph["links"]),
            pair(graph["valid_and_test_pessimistic"]),
            published(entry.get("ultra")),
            published(entry.get("trix")),
            f"{graph['seconds']:.2g}",
            share_seen(overlap, [name]),
        ]
        yield f"| {entry.get('title', name)}{seen} | {' | '.join(cells)} |"
    averaged = [name for name, entry in about["graphs"].items() if entry.get("mean")]
    whole = all(name in graphs for name in averaged)
    if whole:
        yield _mean_row(f"{about['mean_of']}, mean", graphs, averaged, overlap)
    unseen = [
        name
        for name, entry in about["graphs"].items()
        if name in graphs and "trix" in entry and share_seen(overlap, [name]) == "0 %"
    ]
    if unseen:
        yield _mean_row(f"{len(unseen)} graphs without overlap, mean", graphs, unseen, overlap)
    yield from _more(graphs, {n: e.get("title", n) for n, e in about["graphs"].items()})
    if whole and all("relation_prediction" in graphs[name] for name in averaged):
        hits = [graphs[name]["relation_prediction"]["hits_at_1"] for name in averaged]
        yield f"\nRelation prediction, {about['mean_of']}: mean Hits@1 {short(_mean(hits))}."
    yield ""


def _more(graphs: Found, titles: Mapping[str, str]) -> Iterator[str]:
    """Yields the table of relation prediction, calibration and answers out of reach."""
    yield (
        "\nRelation prediction: MRR / Hits@1 among all relations. Calibration: the expected "
        "calibration error of the best answer, with one temperature for all graphs, fitted on "
        "validation triples of the GraIL graphs. Out of reach: answers that no path of the model's "
        "length reaches, their number and MRR, with contexts and without.\n"
    )
    yield "|  | relations | calibration | of relations | out of reach | MRR | without contexts |"
    yield "|---|---|---|---|---|---|---|"
    for name, graph in graphs.items():
        relations, far = graph.get("relation_prediction"), graph["unreached"]
        by_relation = graph.get("relation_calibration") or {}
        cells = [
            "-" if relations is None else published([relations["mrr"], relations["hits_at_1"]]),
            short(graph["calibration"].get("ece")),
            short(by_relation.get("ece")),
            f"{far['count']:,}",
            short(far.get("mrr")),
            short(far.get("without_contexts", {}).get("mrr")),
        ]
        yield f"| {titles.get(name, name)} | {' | '.join(cells)} |"


def share_seen(overlap: Found, names: list[str]) -> str:
    """Returns the share of graphs' test triples that pre-training has seen, or a dash."""
    rows = [overlap[name] for name in names if name in overlap]
    if len(rows) < len(names):
        return "-"
    seen, tested = (sum(row[k] for row in rows) for k in ("seen_in_pretraining", "test_triples"))
    return f"{seen / tested:.0%}".replace("%", " %")


def _mean_row(title: str, graphs: Found, names: list[str], overlap: Found) -> str:
    cells = []
    for key in ("links", "valid_and_test_pessimistic"):
        each = [graphs[name][key] for name in names]
        cells.append(pair({k: _mean([one[k] for one in each]) for k in ("mrr", "hits_at_10")}))
    for key in ("ultra", "trix"):
        both = [listed()["graphs"][name][key] for name in names]
        cells.append(published([_mean([one[i] for one in both]) for i in (0, 1)]))
    seconds = f"{sum(graphs[name]['seconds'] for name in names):.2g}"
    return f"| **{title}** | {' | '.join([*cells, seconds, share_seen(overlap, names)])} |"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def short(value: float | None) -> str:
    """Returns a figure with three digits, or a dash."""
    return "-" if value is None else f"{value:.3f}".removeprefix("0")


def pair(metrics: Mapping[str, float]) -> str:
    """Returns MRR / Hits@10."""
    return published([metrics["mrr"], metrics["hits_at_10"]])


def published(figures: list[float] | None) -> str:
    """Returns figures with slashes between them, or a dash."""
    return "-" if figures is None else " / ".join(map(short, figures))
