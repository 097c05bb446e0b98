"""Do plausible candidates hold the true answer? `python benchmarks/kinds.py`.

Kinds and functional relations are learned from the train split. For the hidden triples, valid and
test: how often is the true answer among the plausible candidates, how many candidates remain, and
how often does a query that counts as complete have another answer after all? And for queries of
relations: how often is the true relation among those that head and tail could have, and how many
of all relations are these?
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from measure import DATA, HERE, console, provenance
from torch import Tensor

from pathe.core.types import PARTS, SIDES
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.kinds import Kinds
from pathe.graph.prepared import prepare

EXAMPLES = HERE.parent / "examples"
GRAPHS: dict[str, str | Path] = {
    "europe": EXAMPLES / "europe.csv",
    "films": EXAMPLES / "films.csv",
    "umls": "umls",
    "codex-s": DATA / "codex-s",
    "codex-m": DATA / "codex-m",
    "fb15k-237": DATA / "fb15k-237",
    "wn18rr": DATA / "wn18rr",
}


def measure(kg: KnowledgeGraph) -> dict[str, Any]:
    """Returns the shares for the hidden triples of one graph, for queries of both sides."""
    prepared = prepare(kg)
    hidden_M3 = torch.cat([kg.valid, kg.test]).long()
    kept, remaining, complete = [], [], {}
    for side in SIDES:
        answers_M = hidden_M3[:, PARTS.index(side)]
        for relation in range(kg.n_relations):
            plausible_E = prepared.kinds.plausible(relation, side)
            kept_N = plausible_E[answers_M[hidden_M3[:, 1] == relation]]
            kept.append(kept_N)
            remaining.append(plausible_E.float().mean().expand(len(kept_N)))
        found = prepared.functionality[side]
        rows_N, _ = prepared.known("train").find(hidden_M3, side)
        wrong_N = hidden_M3[rows_N.unique()]
        n_wrong = int(found.functional_R[wrong_N[:, 1]].sum())
        n = int(found.queries_R[found.functional_R].sum())
        complete[side] = {"queries": n, "with_hidden_answer": n_wrong}
    kept_N = torch.cat(kept)
    return {
        "fingerprint": kg.fingerprint(),
        "hidden_answers": len(kept_N),
        "lost_answers": int((~kept_N).sum()),
        "recall": round(kept_N.float().mean().item(), 5),
        "candidates_left": round(torch.cat(remaining).mean().item(), 4),
        "complete": complete,
        "relations": relations(prepared.kinds, hidden_M3, kg.n_relations),
    }


def relations(kinds: Kinds, hidden_M3: Tensor, n_relations: int) -> dict[str, Any]:
    """Returns the shares for queries of relations."""
    fits = {
        (side, entity): kinds.relations(entity, side)
        for side in SIDES
        for entity in hidden_M3[:, PARTS.index(side)].unique().tolist()
    }
    lost, left = 0, 0
    for head, relation, tail in hidden_M3.tolist():
        both_R = fits["head", head] & fits["tail", tail]
        lost += not both_R[relation]
        left += int(both_R.sum())
    n = len(hidden_M3)
    return {
        "hidden_answers": n,
        "lost_answers": lost,
        "recall": round(1 - lost / n, 5),
        "candidates_left": round(left / (n * n_relations), 4),
    }


def main() -> None:
    found = {}
    for name, path in GRAPHS.items():
        split = (0.8, 0.1, 0.1) if str(path).endswith(".csv") else None
        found[name] = measure(KnowledgeGraph.read(path, split=split))
        console.print(name, found[name])
    about = provenance(0) | {"command": "python benchmarks/kinds.py", "graphs": found}
    (HERE / "kinds.json").write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
