"""Which measure finds hidden triples among all absent ones? `python benchmarks/plausibility.py`.

Valid and test triples of FB15k-237 are hidden from the shipped link model: how many are among the
best absent triples by score, by either probability, and by their geometric mean?
"""

from __future__ import annotations

import json

import torch
from measure import DATA, HERE, console, provenance
from torch import Tensor

from pathe.artifact import load_model
from pathe.datasets import KnowledgeGraph
from pathe.evaluation import rows_at_once
from pathe.graph import known_answers, owners
from pathe.missing import _by_relation
from pathe.predict import Predictor

SIZES = (100, 1000, 10_000)
MODEL = "fb15k237-link"


class Best:
    """The largest values seen, with their triples."""

    def __init__(self) -> None:
        self.values, self.triples = torch.empty(0), torch.empty((0, 3), dtype=torch.long)

    def add(self, values_BN: Tensor, heads_B: Tensor, relation: int, tails_N: Tensor) -> None:
        top = values_BN.flatten().topk(min(SIZES[-1], values_BN.numel()))
        rows, columns = top.indices // len(tails_N), top.indices % len(tails_N)
        new = torch.stack([heads_B[rows], torch.full_like(rows, relation), tails_N[columns]], 1)
        values, triples = torch.cat([self.values, top.values]), torch.cat([self.triples, new])
        best = values.topk(min(SIZES[-1], len(values)))
        self.values, self.triples = best.values, triples[best.indices]


@torch.inference_mode()
def main() -> None:
    kg = KnowledgeGraph.read(DATA / "fb15k-237")
    artifact = load_model(HERE.parent / "models" / MODEL)
    hidden = {tuple(row) for row in torch.cat([kg.valid, kg.test]).tolist()}
    graph = KnowledgeGraph(kg.name, kg.entities, kg.relations, kg.train, kg.valid[:0],
                           kg.test[:0], kg.report)  # fmt: skip
    p = Predictor(artifact, graph)
    model, z_E, warmth = p.model, p.vectors.all, artifact.temperatures["link"]
    heads_R = _by_relation(p.graph.out_contexts, kg.n_relations)
    tails_R = _by_relation(p.graph.in_contexts, kg.n_relations)
    edges = p.graph.outgoing
    loops = edges.relations_M[owners(edges.offsets_E1) == edges.neighbours_M].unique().tolist()
    measures = {name: Best() for name in ("score", "p(tail)", "p(head)", "both")}
    for r in range(kg.n_relations):
        tails_N, by_tail = tails_R[r], []
        for some_B in tails_N.split(rows_at_once(model, z_E)):
            r_B = torch.full_like(some_B, r)
            scores = model.candidate_scores(z_E[some_B], r_B, p.vectors.candidates("head"), "head")
            ids = torch.stack([some_B, r_B, some_B], 1)
            scores[known_answers(p.known, ids, "head")] = float("-inf")
            by_tail.append((scores / warmth).logsumexp(1))
        by_tail_N = torch.cat(by_tail)
        for some_B in heads_R[r].split(rows_at_once(model, z_E)):
            r_B = torch.full_like(some_B, r)
            scores = model.candidate_scores(z_E[some_B], r_B, p.vectors.candidates("tail"), "tail")
            ids = torch.stack([some_B, r_B, some_B], 1)
            scores[known_answers(p.known, ids, "tail")] = float("-inf")
            by_head_B = (scores / warmth).logsumexp(1)
            open_BN = scores[:, tails_N]
            if r not in loops:
                open_BN[some_B[:, None] == tails_N] = float("-inf")
            tail_BN = open_BN / warmth - by_head_B[:, None]
            head_BN = (open_BN / warmth - by_tail_N).nan_to_num(neginf=float("-inf"))
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
