"""How many test triples of each benchmark are training triples of the pre-training graphs?

`python benchmarks/overlap.py` compares names and writes
results/pretraining/overlap.json. The page of results shows the shares beside zero-shot figures.
"""

from __future__ import annotations

from typing import Any

from measure import DATA, HERE, console, provenance

from pathe.core.files import write_json
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.lab import zero_shot

PATH = HERE.parent / "results" / "pretraining" / "overlap.json"
Named = set[tuple[str, str, str]]


def named(kg: KnowledgeGraph, split: str) -> Named:
    """Returns a split's triples by their names."""
    heads, relations, tails = kg.splits[split].unbind(1)
    names = kg.entities.names(heads), kg.relations.names(relations), kg.entities.names(tails)
    return set(zip(*names, strict=True))


def measure() -> dict[str, Any]:
    """Returns the number of test triples of each graph, and of those seen in pre-training."""
    trained: dict[str, KnowledgeGraph] = {
        name: KnowledgeGraph.read(DATA / name) for name in zero_shot.listed()["pretrained_on"]
    }
    seen: Named = set().union(*(named(kg, "train") for kg in trained.values()))
    graphs = {}
    for name, folder in zero_shot.find_graphs(DATA).items():
        kg = KnowledgeGraph.read(folder, every_relation=True)
        test = named(kg, "test")
        graphs[name] = {
            "fingerprint": kg.fingerprint(),
            "test_triples": len(test),
            "seen_in_pretraining": len(test & seen),
        }
        console.print(name, graphs[name])
    fingerprints = {name: kg.fingerprint() for name, kg in trained.items()}
    return {"pretrained_on": fingerprints, "graphs": graphs}


if __name__ == "__main__":
    write_json(PATH, provenance(0, "python benchmarks/overlap.py") | measure())
