"""Ablations of pre-training: `python benchmarks/pretraining.py [--only NAME ...]`.

Each variant is a short run of `pathe pretrain` from random weights, with the same number of steps
unless it says otherwise, validated on the 12 GraIL inference graphs. Variants already in the
file are skipped, so the benchmark can be run in several parts. `--table` prints what the file has.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from measure import DATA, HERE, console

from pathe.core.files import write_json
from pathe.core.hardware import commit, device_name
from pathe.core.settings import change
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.model.bridge import EncodedBridge
from pathe.training.pretraining import Pretraining
from pathe.training.pretraining_run import Place, Reports, pretrain

FILE = HERE / "pretraining.json"
LARGE = ("fb15k-237", "wn18rr", "codex-m")
PAIRS = tuple(f"{family}_v{i}" for family in ("fb237", "wn18rr", "nell") for i in range(1, 5))
STEPS, VALID_TRIPLES = 1000, 500
# what changes: settings; `graphs`: with the training graphs of the 12 pairs; `half`: see `Bridge`
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "base, seed 1": {"seed": 1},
    "messages in float32": {"half": False},
    "relations as they are": {"vary_share": 0.0},
    "relations varied in all subgraphs": {"vary_share": 1.0},
    "whole graphs only": {"whole_share": 1.0},
    "few whole graphs": {"whole_share": 0.1},
    "larger subgraphs": {"most_entities": 20_000},
    "more subgraphs": {"n_subgraphs": 512},
    "subgraphs not thinned": {"thin_share": 0.0},
    "no edges dropped": {"drop_share": 0.0},
    "pairs never held out": {"pair_share": 0.0},
    "links only": {"relation_share": 0.0},
    "4 hops": {"n_hops": 4},
    "5 hops": {"n_hops": 5},
    "2 layers of the relation encoder": {"n_layers": 2},
    "6 layers of the relation encoder": {"n_layers": 6},
    "width 48": {"dim": 48},
    "weight decay .01": {"weight_decay": 0.01},
    "learning rate .001": {"learning_rate": 1e-3},
    "learning rate .004": {"learning_rate": 4e-3},
    "with the training graphs of the pairs": {"graphs": PAIRS},
}


def read_graphs(names: tuple[str, ...]) -> list[KnowledgeGraph]:
    return [KnowledgeGraph.read(DATA / name, every_relation=True) for name in names]


def run(name: str, device: torch.device) -> dict[str, Any]:
    """Trains a variant and returns its settings and metrics."""
    changed = dict(VARIANTS[name])
    EncodedBridge.half_messages = changed.pop("half", True)
    more = tuple(f"inductive/{pair}" for pair in changed.pop("graphs", ()))
    base = Pretraining(steps=STEPS, valid_every=STEPS, valid_triples=VALID_TRIPLES)
    settings = change(base, changed, name)
    valid = read_graphs(tuple(f"inductive/{pair}_ind" for pair in PAIRS))
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder) / "run", device=device)
        found = pretrain(
            read_graphs((*LARGE, *more)), settings, place,
            valid=valid, reports=Reports(console.print),
        )  # fmt: skip
    unseen = [found["metrics"]["graphs"][kg.name] for kg in valid]
    keys = ("mrr", "hits_at_10", "relation_hits_at_1")
    means = {
        key: sum(one[key] for one in unseen) / len(unseen)
        for key in keys
        if all(key in one for one in unseen)
    }
    kept = ("graphs", "valid", "parameters", "step", "seconds", "peak_memory_bytes", "metrics")
    return {
        "commit": commit(),
        "device": device_name(device),
        "settings": asdict(settings),
        **{key: found[key] for key in kept},
        "mean_of_pairs": means,
    }


def table(variants: dict[str, Any]) -> str:
    """Returns the figures as a Markdown table."""
    lines = [
        "| change | MRR | Hits@10 | relation Hits@1 | large graphs' MRR | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in variants.items():
        means, graphs = one["mean_of_pairs"], one["metrics"]["graphs"]
        large = sum(graphs[key]["mrr"] for key in LARGE) / len(LARGE)
        keys = ("mrr", "hits_at_10", "relation_hits_at_1")
        values = [*(means.get(key) for key in keys), large]
        cells = ["-" if v is None else f"{v:.3f}".removeprefix("0") for v in values]
        lines.append(f"| {name} | {' | '.join(cells)} | {one['seconds']:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--table", action="store_true", help="print the file's figures only")
    parser.add_argument("--file", type=Path, default=FILE)
    given = parser.parse_args()
    found = json.loads(given.file.read_text()) if given.file.is_file() else {"variants": {}}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name in [] if given.table else given.only:
        if name not in found["variants"]:
            console.print(f"{name} ...")
            found["variants"][name] = run(name, device)
            found |= {"command": "python benchmarks/pretraining.py", "steps": STEPS}
            write_json(given.file, found)
    console.print(table(found["variants"]), markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
