"""Which measure finds hidden triples among all missing ones? `python benchmarks/plausibility.py`.

Valid and test triples of FB15k-237 are hidden from the shipped link model: how many are among the
best missing triples by score, by either probability, and by their geometric mean?
"""

from __future__ import annotations

import json

import torch
from measure import DATA, HERE, console, provenance
from torch import Tensor

from pathe.core.types import Side
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.known import KnownTriples
from pathe.graph.prepared import prepare
from pathe.model.artifact import load_model
from pathe.model.builder import build_scorer
from pathe.model.scorer import Scorer
from pathe.predict.missing import _by_relation, _has_loops

SIZES = (100, 1000, 10_000)
MODEL = "fb15k237-link"


class Best:
    """Keeps the largest values seen, with their triples."""

    def __init__(self) -> None:
        self.values, self.triples = torch.empty(0), torch.empty((0, 3), dtype=torch.long)

    def add(self, values_BN: Tensor, heads_B: Tensor, relation: int, tails_N: Tensor) -> None:
        top = values_BN.flatten().topk(min(SIZES[-1], values_BN.numel()))
        rows, columns = top.indices // len(tails_N), top.indices % len(tails_N)
        new = torch.stack([heads_B[rows], torch.full_like(rows, relation), tails_N[columns]], 1)
        values, triples = torch.cat([self.values, top.values]), torch.cat([self.triples, new])
        best = values.topk(min(SIZES[-1], len(values)))
        self.values, self.triples = best.values, triples[best.indices]


def _unknown_scores(
    scorer: Scorer, known: KnownTriples, entities_B: Tensor, relation: int, side: Side
) -> Tensor:
    """Returns (B, E) scores of all entities; known answers get minus infinity."""
    relations_B = torch.full_like(entities_B, relation)
    scores_BE = scorer.links(entities_B, relations_B, side)
    ids_B3 = torch.stack([entities_B, relations_B, entities_B], 1)
    scores_BE[known.find(ids_B3, side)] = float("-inf")
    return scores_BE


@torch.inference_mode()
def main() -> None:
    kg = KnowledgeGraph.read(DATA / "fb15k-237")
    artifact = load_model(HERE.parent / "models" / MODEL)
    hidden = {tuple(row) for row in torch.cat([kg.valid, kg.test]).tolist()}
    graph = KnowledgeGraph(kg.name, kg.entities, kg.relations, kg.train, kg.valid[:0],
                           kg.test[:0], kg.report)  # fmt: skip
    prepared, temperature = prepare(graph), artifact.temperatures["link"]
    scorer, known = build_scorer(artifact.model, artifact.config, prepared), prepared.known()
    rows = scorer.rows_at_once()
    heads_R = _by_relation(prepared.graph.out_contexts, kg.n_relations)
    tails_R = _by_relation(prepared.graph.in_contexts, kg.n_relations)
    has_loops_R = _has_loops(prepared.graph)
    measures = {name: Best() for name in ("score", "p(tail)", "p(head)", "both")}
    for r in range(kg.n_relations):
        tails_N, by_tail = tails_R[r], []
        for some_B in tails_N.split(rows):
            scores = _unknown_scores(scorer, known, some_B, r, "head")
            by_tail.append((scores / temperature).logsumexp(1))
        by_tail_N = torch.cat(by_tail)
        for some_B in heads_R[r].split(rows):
            scores = _unknown_scores(scorer, known, some_B, r, "tail")
            by_head_B = (scores / temperature).logsumexp(1)
            open_BN = scores[:, tails_N]
            if not has_loops_R[r]:
                open_BN[some_B[:, None] == tails_N] = float("-inf")
            tail_BN = open_BN / temperature - by_head_B[:, None]
            head_BN = (open_BN / temperature - by_tail_N).nan_to_num(neginf=float("-inf"))
            for name, values in (("score", open_BN), ("p(tail)", tail_BN), ("p(head)", head_BN),
                                 ("both", tail_BN + head_BN)):  # fmt: skip
                values = values.masked_fill(open_BN.isneginf(), float("-inf"))
                measures[name].add(values, some_B, r, tails_N)
    found = {
        name: {
            str(n): sum(tuple(row) in hidden for row in best.triples[:n].tolist()) for n in SIZES
        }
        for name, best in measures.items()
    }
    about = provenance(artifact.config.seed) | {
        "command": "python benchmarks/plausibility.py",
        "model": MODEL,
        "data": kg.name,
        "fingerprint": kg.fingerprint(),
        "hidden": len(hidden),
        "found": found,
    }
    (HERE / "plausibility.json").write_text(json.dumps(about, indent=2) + "\n")
    for name, counts in found.items():
        console.print(f"{name:8} {counts}")


if __name__ == "__main__":
    main()
