"""What bridges gain and cost on this machine: `python benchmarks/bridges.py` (some 20 minutes).

Trains small graphs with fixed settings and with those that `pathe train` chooses, then evaluates
the shipped models with bridges on `seen` test triples. The argument `trained` or
`evaluated` measures one of the two and keeps the other.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import DATA, HERE, console, in_own_process, provenance

from pathe.core.config import configure
from pathe.core.hardware import commit
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.ranking import evaluate
from pathe.model.artifact import load_model
from pathe.training.defaults import recommend
from pathe.training.run import Options, train

ROOT = HERE.parent
GRAPHS = {
    "examples/europe.csv": {"task": "link"},
    "nations": {"task": "link"},
    "umls": {"task": "link"},
    "umls, relations": {"task": "relation"},
}
MODELS = {
    "wn18rr-relation-bridge": "wn18rr",
    "fb15k237-relation-bridge": "fb15k-237",
    "wn18rr-link-bridge": "wn18rr",
    "codexm-link-bridge": "codex-m",
    "fb15k237-link-bridge": "fb15k-237",
}


def trained(name: str, how: str) -> dict[str, Any]:
    """Returns the test MRR of a run, and the seconds it took with its evaluation."""
    data = name.split(",")[0]
    kg = (
        KnowledgeGraph.read(ROOT / data, split=(0.8, 0.1, 0.1))
        if data.endswith(".csv")
        else KnowledgeGraph.read(data)
    )
    settings: dict[str, Any] = GRAPHS[name]
    match how:
        case "before":
            config = configure(settings=settings)
        case "without bridges":
            config, _ = recommend(kg, settings | {"bridge": "none"})
        case _:
            config, _ = recommend(kg, settings | {"init": "none"})
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = train(kg, config, Path(folder) / "run", Options(progress_bar=False))
    seconds = time.perf_counter() - begin
    found = {"mrr": result["mrr"], "seconds": seconds, "fingerprint": kg.fingerprint()}
    return found | {"commit": commit()}


def evaluated(name: str) -> dict[str, Any]:
    """Returns the test metrics of a shipped model, and the seconds they took."""
    artifact, kg = load_model(ROOT / "models" / name), KnowledgeGraph.read(DATA / MODELS[name])
    begin = time.perf_counter()
    found = evaluate(artifact, kg)
    seconds = time.perf_counter() - begin
    kept = {key: found[key] for key in ("mrr", "hits_at_1", "hits_at_10", "n_triples")}
    return {**kept, "seconds": seconds, "fingerprint": kg.fingerprint(), "commit": commit()}


def main(parts: list[str]) -> None:
    path = HERE / "bridges.json"
    found: dict[str, Any] = {"trained": {}, "evaluated": {}}
    if path.exists():
        before = json.loads(path.read_text())
        found = {part: {} if part in parts else before[part] for part in found}
    for name in GRAPHS if "trained" in parts else ():
        for how in ("before", "without bridges", "now"):
            one = in_own_process(__file__, "trained", name, how)
            found["trained"].setdefault(name, {})[how] = one
            console.print(f"{name}, {how}: MRR {one['mrr']:.3f}, {one['seconds']:.0f} s")
    for name in MODELS if "evaluated" in parts else ():
        found["evaluated"][name] = one = in_own_process(__file__, "evaluated", name)
        console.print(f"{name}: MRR {one['mrr']:.4f}, {one['seconds']:.0f} s")
    about = provenance(0) | {"command": "python benchmarks/bridges.py"}
    path.write_text(json.dumps(about | found, indent=2) + "\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["trained", name, how]:
            print(json.dumps(trained(name, how)))
        case ["evaluated", name]:
            print(json.dumps(evaluated(name)))
        case [] | ["trained"] | ["evaluated"] as parts:
            main(list(parts) or ["trained", "evaluated"])
        case other:
            sys.exit(f"trained, evaluated or nothing; got {' '.join(other)}")
