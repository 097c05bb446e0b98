"""Do similar entities share what the graph doesn't tell? `python benchmarks/vectors.py`.

Labels are types that aren't in the graph, or the values of a relation whose triples are all removed
from it. The figure is the share of an entity's 10 nearest neighbours, among the entities with
labels, that share a label with it. Vectors from contexts are compared with those of trained models,
with counts of relations, and with chance. The trained models have seen the removed relation in
training, but not in the graph from which they encode entities here.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from measure import (
    DATA,
    HERE,
    best_time,
    console,
    peak_bytes,
    provenance,
    reset_peak,
    resident_bytes,
)
from torch import Tensor

from pathe.core.randomness import name_keys
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.context_vectors import context_vectors
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import load_model
from pathe.predict.predictor import Predictor

K, QUERIES, SEED = 10, 1000, 0
EXAMPLES, MODELS = HERE.parent / "examples", HERE.parent / "models"
# the type of a relation's heads and tails in examples/europe.csv; the first match counts
EUROPE = {
    "borders": ("country", "country"), "capital of": ("city", "country"),
    "city in": ("city", "country"), "currency": ("country", "currency"),
    "flows through": ("river", "country"), "has coast on": ("country", "sea"),
    "language family": ("language", "language family"), "member of": ("country", "organisation"),
    "official language": ("country", "language"),
}  # fmt: skip
# whose values to share, in which folder; the model to compare with; whether the label is the head
HELD_OUT = [
    ("codex-s", "P106", None, False), ("codex-s", "P27", None, False),
    ("codex-s", "P136", None, False), ("codex-s", "P463", None, False),
    ("codex-s", "P30", None, False),
    ("codex-m", "P106", "codexm-link", False), ("codex-m", "P27", "codexm-link", False),
    ("codex-m", "P495", "codexm-link", False),
    ("fb15k-237", "/people/person/profession", "fb15k237-link", False),
    ("fb15k-237", "/film/film/genre", "fb15k237-link", False),
    ("fb15k-237", "/people/person/nationality", "fb15k237-link", False),
    ("fb15k-237", "/location/location/contains", "fb15k237-link", True),
    ("fb15k-237", "/music/genre/artists", "fb15k237-link", True),
    ("wn18rr", "_hypernym", "wn18rr-link", False),
    ("wn18rr", "_synset_domain_topic_of", "wn18rr-link", False),
    ("wn18rr", "_has_part", "wn18rr-link", False),
]  # fmt: skip


class Task(NamedTuple):
    """A graph, (entity, label) pairs that it doesn't contain, and a model to compare with."""

    name: str
    kg: KnowledgeGraph
    labels_L2: Tensor
    model: str | None


def tasks() -> Iterator[Task]:
    """Yields all tasks."""
    with (EXAMPLES / "umls-groups.csv").open(encoding="utf-8") as file:
        groups = {row["entity"]: row["group"] for row in csv.DictReader(file)}
    umls = KnowledgeGraph.read("umls")
    yield Task("umls: semantic group", umls, _typed(umls, groups.get), "umls")
    europe = KnowledgeGraph.read(EXAMPLES / "europe.csv")
    yield Task("europe: type", europe, _typed(europe, _europe_types().get), None)
    yield _held_out("europe", europe, "located in", None, False)
    yield _held_out("europe", europe, "language family", None, False)
    for version in (1, 2, 3, 4):  # names are concept:TYPE:NAME
        nell = KnowledgeGraph.read(DATA / "inductive" / f"nell_v{version}")
        labels_L2 = _typed(nell, lambda name: [*name.split(":"), None][1])
        yield Task(f"nell_v{version}: type", nell, labels_L2, None)
    for folder, relation, model, heads in HELD_OUT:
        yield _held_out(folder, KnowledgeGraph.read(DATA / folder), relation, model, heads)


def _typed(kg: KnowledgeGraph, label: Callable[[str], str | None]) -> Tensor:
    found = [(i, label(name)) for i, name in enumerate(kg.entities)]
    ids = {name: i for i, name in enumerate(sorted({own for _, own in found if own}))}
    return torch.tensor([(i, ids[own]) for i, own in found if own])


def _europe_types() -> dict[str, str]:
    types: dict[str, str] = {}
    with (EXAMPLES / "europe.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for part, own in zip(("head", "tail"), EUROPE.get(row["relation"], ()), strict=False):
                types.setdefault(row[part], own)
    return types


def _held_out(
    folder: str, kg: KnowledgeGraph, relation: str, model: str | None, heads: bool
) -> Task:
    """Returns the graph without a relation, and that relation's triples as labels."""
    every_M3, wanted = torch.cat([kg.train, kg.valid, kg.test]), kg.relations.id(relation)
    own_L3 = every_M3[every_M3[:, 1] == wanted].long()
    rest = kg.train[kg.train[:, 1] != wanted]
    graph = KnowledgeGraph(
        kg.name, kg.entities, kg.relations, rest, kg.valid[:0], kg.test[:0], kg.report
    )
    labels_L2 = own_L3[:, [2, 0]] if heads else own_L3[:, [0, 2]]
    return Task(f"{folder}: {relation}", graph, labels_L2, model)


def vectors(task: Task) -> dict[str, Tensor]:
    """Returns the vectors to compare."""
    prepared = PreparedGraph(task.kg)
    index = prepared.arrivals
    counts_EK = torch.zeros(index.n_entities, index.n_kinds)
    counts_EK[index.entities_P, index.kinds_P] = index.counts(prepared.edges.keep())
    keys = name_keys(task.kg.entities), name_keys(task.kg.relations)
    found = {"relation counts": counts_EK.log1p(), "contexts": context_vectors(prepared, *keys)}
    if task.model:
        p = Predictor(load_model(MODELS / task.model), task.kg)
        found["trained"] = torch.from_numpy(p.embed())
    return found


def shares(task: Task) -> dict[str, float | int]:
    """Returns the share of neighbours with a common label, by kind of vectors."""
    prepared, n = PreparedGraph(task.kg), task.kg.n_entities
    labels_L2 = task.labels_L2[prepared.seen_E[task.labels_L2[:, 0]]]
    some_N = labels_L2[:, 0].unique()
    place_E = torch.full((n,), -1).scatter(0, some_N, torch.arange(len(some_N)))
    of_L, label_L = place_E[labels_L2[:, 0]], labels_L2[:, 1].unique(return_inverse=True)[1]
    size = len(some_N), int(label_L.max()) + 1
    labels_NL = torch.sparse_coo_tensor(
        torch.stack([of_L, label_L]), torch.ones(len(of_L)), size, check_invariants=True
    )
    generator = torch.Generator().manual_seed(SEED)
    asked_B = torch.randperm(len(some_N), generator=generator)[:QUERIES]
    wanted_LB = labels_NL.index_select(0, asked_B).to_dense().T
    common_BN = (labels_NL @ wanted_LB).T > 0
    chance = (common_BN.sum(1) - 1).double() / (len(some_N) - 1)
    found: dict[str, float | int] = {"entities": len(some_N), "random": float(chance.mean())}
    for name, every_ED in vectors(task).items():
        own_ND = F.normalize(every_ED[some_N], dim=1)
        near_BN = own_ND[asked_B] @ own_ND.T
        near_BN += 1e-6 * torch.rand(near_BN.shape, generator=generator)  # breaks ties
        near_BN[torch.arange(len(asked_B)), asked_B] = float("-inf")
        best_BK = near_BN.topk(K).indices
        found[name] = float(common_BN.gather(1, best_BK).double().mean())
    return found


def scale() -> dict[str, float | int | str]:
    """Returns what the vectors of a large graph take, beyond the graph and its edges."""
    kg = KnowledgeGraph.read(DATA / "scale" / "r25kg.tsv.gz")
    prepared = PreparedGraph(kg)
    _ = prepared.edges, prepared.arrivals  # built on first use
    before = resident_bytes()
    reset_peak()
    seconds = best_time(
        lambda: context_vectors(prepared, name_keys(kg.entities), name_keys(kg.relations)), 1
    )
    return {
        "data": kg.name,
        "fingerprint": kg.fingerprint(),
        "entities": kg.n_entities,
        "triples": len(kg.train),
        "threads": torch.get_num_threads(),
        "seconds": seconds,
        "bytes": peak_bytes() - before,
    }


def main() -> None:
    results = []
    for task in tasks():
        fingerprint = task.kg.fingerprint()
        results.append({"task": task.name, "fingerprint": fingerprint} | shares(task))
        if task.model:
            results[-1]["model"] = task.model
        shown = {key: value for key, value in results[-1].items() if isinstance(value, float)}
        cells = "  ".join(f"{key} {value:.3f}" for key, value in shown.items())
        console.print(f"{task.name}: {results[-1]['entities']} entities  {cells}")
    about = provenance(SEED) | {"command": "python benchmarks/vectors.py"}
    about |= {"results": results, "scale": scale()}
    console.print(about["scale"])
    (HERE / "vectors.json").write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
