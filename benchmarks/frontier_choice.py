"""Compares ways to choose the entities of a frontier, on validation triples: frontier_choice.json.

Each way is written here with masks over all entities, one query at a time, because only the one
that won is part of the package.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import frontier_tables
import torch
from frontier import load
from measure import DATA, write_results
from torch import Tensor

from pathe.core.types import SIDES
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.ranking import sampled
from pathe.graph.prepared import PreparedGraph
from pathe.model.bridge import Conditions
from pathe.model.frontier import (
    NEAR,
    SAMPLE,
    WEIGHT,
    Frontier,
    Spread,
    select_reachable,
    spread_mass,
)
from pathe.model.propagation import Reach, propagate
from pathe.model.ranks import rank
from pathe.model.scorer import GraphScorer

SEED, KEPT, HOPS = 0, 2000, 6
Priority = Callable[["Query"], Tensor]


@dataclass
class Query:
    """A query, its conditions, and the states of all entities; `has_E` says who has one."""

    scorer: GraphScorer
    source: int
    kind: int
    given: Conditions
    context_E: Tensor
    x_ED: Tensor
    has_E: Tensor
    edges = rows = 0.0

    @classmethod
    def of(cls, scorer: GraphScorer, source_1: Tensor, kind_1: Tensor) -> Query:
        model, n = scorer.model, scorer.prepared.n_entities
        vectors = scorer.kinds(kind_1)
        kinds_Q, vectors_QKD, rows_B = vectors
        parts = scorer.graph.contexts, vectors_QKD, kinds_Q, rows_B, source_1
        context_E = model.link_contexts.links(*parts)[0]
        given = model.bridge.condition(kind_1, lambda _: vectors)
        x_ED, has_E = torch.zeros(n, model.bridge.dim), torch.zeros(n, dtype=torch.bool)
        x_ED[source_1], has_E[source_1] = given.asked_BD, True
        return cls(scorer, int(source_1), int(kind_1), given, context_E, x_ED, has_E)

    @cached_property
    def mass_E(self) -> Tensor:
        """The logarithm of the mass that reaches each entity; -1 where none does."""
        graph, source_1 = self.scorer.prepared.edges, torch.tensor([self.source])
        keep_M, spread = self.scorer.graph.keep_M, Spread.within(HOPS, KEPT)
        _, entities_F, mass_F = spread_mass(graph, keep_M, source_1, spread)
        mass_E = torch.full((graph.n_entities,), -1.0, dtype=torch.float64)
        mass_E[entities_F] = mass_F.clamp(min=1).double().log()
        return mass_E

    def near(self) -> Tensor:
        """Counts the edges from entities with a state to each entity."""
        edges, live_M = self.scorer.prepared.edges, self.scorer.graph.keep_M
        live_M = live_M & self.has_E[edges.neighbours_M.long()]
        sums_M1 = torch.nn.functional.pad(live_M.cumsum(0), (1, 0))
        return sums_M1[edges.offsets_E1[1:]] - sums_M1[edges.offsets_E1[:-1]]

    def update(self, hop: int, rows_O: Tensor, more_OD: Tensor | None = None) -> None:
        """Updates the states of some entities; the others keep theirs."""
        near_E, bridge = self.near(), self.scorer.model.bridge
        live_O = (near_E[rows_O] > 0) | self.has_E[rows_O]
        rows_O, more_OD = rows_O[live_O], None if more_OD is None else more_OD[live_O]
        self.edges += float(near_E[rows_O].sum())
        self.rows += len(rows_O)
        rest_E = self.has_E.index_fill(0, rows_O, False)
        order_A = torch.cat([rows_O, rest_E.nonzero().squeeze(1)])
        row_1E = torch.full((1, len(rest_E)), -1, dtype=torch.int32)
        row_1E[0, order_A] = torch.arange(len(order_A), dtype=torch.int32)
        reached = Reach(row_1E, torch.zeros_like(order_A).int(), order_A.int(), (len(order_A),))
        x_AD, weights = self.x_ED[order_A], self.given.weights[hop]
        edges, keep_M = self.scorer.prepared.edges, self.scorer.graph.keep_M
        arrived_OD = propagate(x_AD, weights, edges, keep_M, reached, len(rows_O))
        if more_OD is not None:
            arrived_OD = arrived_OD + more_OD
        self.x_ED = self.x_ED.index_copy(
            0, rows_O, bridge.rounds[hop](x_AD[: len(rows_O)], arrived_OD)
        )
        self.has_E = self.has_E.index_fill(0, rows_O, True)

    def scores(self) -> Tensor:
        """Returns the scores of all entities, from their contexts and states."""
        rows_A, head = self.has_E.nonzero().squeeze(1), self.scorer.model.bridge.link_head
        assert head is not None
        more_A = head(self.x_ED[rows_A], self.given.asked_BD, torch.zeros_like(rows_A))[:, 0]
        return self.context_E.index_add(0, rows_A, more_A)

    def kept(self, share: float = NEAR, near: Priority | None = None, worth: Priority | None = None,
             most: int = KEPT) -> Tensor:  # fmt: skip
        """Chooses a share of the entities by one priority, and the rest by another."""
        near_E = near(self) if near else self.mass_E
        worth_E = worth(self) if worth else WEIGHT * self.context_E.double() + self.mass_E
        never = float("-inf")
        near_E = near_E.masked_fill(self.mass_E < 0, never)
        near_E[self.source] = float("inf")
        first_K = near_E.topk(round(share * most)).indices
        worth_E = worth_E.masked_fill(self.mass_E < 0, never).index_fill(0, first_K, never)
        chosen_K = torch.cat([first_K, worth_E.topk(most - len(first_K)).indices])
        inside_E = torch.zeros_like(self.has_E).index_fill(0, chosen_K, True)
        start_E, self.has_E = self.has_E, self.has_E.clone()
        for _ in range(HOPS):  # those that no path reaches give way
            self.has_E = self.has_E | (inside_E & (self.near() > 0))
        reached_E, self.has_E = self.has_E, start_E
        return (near_E + 1e9 * reached_E).topk(most).indices


def exact(query: Query, hops: int = HOPS) -> None:
    for hop in range(hops):
        query.update(hop, ((query.near() > 0) | query.has_E).nonzero().squeeze(1))


def by_score(query: Query, hops: int) -> None:
    """Passes the first hops along all edges, then updates the entities with the best scores."""
    exact(query, hops)
    best_K = query.scores().index_fill(0, torch.tensor([query.source]), 1e9).topk(KEPT).indices
    for hop in range(hops, HOPS):
        query.update(hop, best_K)


def plainly(query: Query, **how: Any) -> None:
    rows_K = query.kept(**how)
    for hop in range(HOPS):
        query.update(hop, rows_K)


def narrowed(query: Query) -> None:
    """Updates only the likely answers in the last two hops."""
    rows_K = query.kept()
    context_K = query.context_E.index_fill(0, torch.tensor([query.source]), 1e9)[rows_K]
    for hop in range(HOPS):
        most = (KEPT // 2, KEPT // 4)[hop - HOPS + 2] if hop >= HOPS - 2 else KEPT
        query.update(hop, rows_K[context_K.topk(most).indices])


def averaged(query: Query, who: str, sample: float = 0.0) -> None:
    """Adds mean states of some kept entities for those that aren't kept, by relation."""
    edges, keep_M = query.scorer.prepared.edges, query.scorer.graph.keep_M
    source_1, context_1E = torch.tensor([query.source]), query.context_E[None]
    if who == "sample":
        frontier = Frontier(KEPT, context_BE=context_1E, sample=sample)
        _, rows_K, stand_in_K = select_reachable(edges, keep_M, source_1, HOPS, frontier)
    else:
        rows_K = query.kept().sort().values
        mass_K = query.mass_E[rows_K]
        stand_in_K = mass_K <= (mass_K.median() if who == "half" else mass_K.max())
    place_E = torch.full((edges.n_entities,), -1).index_copy(0, rows_K, torch.arange(len(rows_K)))
    slots_N = (keep_M & (place_E[edges.owners_M.long()] >= 0)).nonzero().squeeze(1)
    to_N, kinds_N = place_E[edges.owners_M[slots_N].long()], edges.relations_M[slots_N].long()
    from_N, k = place_E[edges.neighbours_M[slots_N].long()], 2 * edges.n_relations
    away_N = from_N < 0
    counts_KR = torch.bincount(to_N[away_N] * k + kinds_N[away_N], minlength=len(rows_K) * k)
    counts_KR, reached = counts_KR.view(-1, k).float(), [query.has_E[rows_K]]
    own_N = ~away_N & stand_in_K[from_N]
    for hop in range(HOPS):
        live_N = own_N & query.has_E[rows_K[from_N]]
        n_R1 = torch.bincount(kinds_N[live_N], minlength=k).clamp(min=1)[:, None]
        sums_RD = torch.zeros(k, query.x_ED.shape[1])
        sums_RD.index_add_(0, kinds_N[live_N], query.x_ED[rows_K[from_N[live_N]]])
        more_KD = counts_KR @ (sums_RD / n_R1 * query.given.weights[hop][0])
        if hop:  # a row that was reached at hop h gets messages from hop h + 2 on
            more_KD = more_KD * reached[hop - 1][:, None]
            query.edges += float((counts_KR[reached[hop - 1]] > 0).sum() + live_N.sum())
        query.update(hop, rows_K, more_KD if hop else None)
        reached.append(query.has_E[rows_K])


def answers_of(query: Query) -> Tensor:
    """Says which entities are answers of the query's relation in the training graph."""
    triples_M3, n = query.scorer.prepared.train_M3, query.scorer.prepared.n_relations
    own_N3 = triples_M3[triples_M3[:, 1] == query.kind % n]
    found_E = torch.zeros_like(query.has_E)
    return found_E.index_fill(0, own_N3[:, 2 if query.kind < n else 0], True)


def degrees_of(query: Query) -> Tensor:
    return query.scorer.prepared.edges.offsets_E1.diff().clamp(min=1).double().log()


WAYS: dict[str, Callable[[Query], None]] = {
    "by mass and contexts": plainly,
    "two exact hops, then the best scores": lambda query: by_score(query, 2),
    "three exact hops, then the best scores": lambda query: by_score(query, 3),
    "answers of the relation preferred": lambda query: plainly(
        query,
        worth=lambda q: WEIGHT * q.context_E.double() + q.mass_E + 5 * answers_of(q),
    ),
    "mass divided by the degree": lambda query: plainly(
        query, near=lambda q: q.mass_E - degrees_of(q)
    ),
    "half of them by mass": lambda query: plainly(query, share=0.5),
    "only likely answers in the last two hops": narrowed,
    "means of all kept entities": lambda query: averaged(query, "all"),
    "means of the half with the least mass": lambda query: averaged(query, "half"),
    "means of a random sample": lambda query: averaged(query, "sample", SAMPLE),
    "means of a random tenth": lambda query: averaged(query, "sample", 0.1),
}


@torch.no_grad()
def compare(name: str, n: int) -> list[dict[str, Any]]:
    """Compares all ways with exact scores on a sample of validation triples, both sides."""
    prepared = PreparedGraph(KnowledgeGraph.read(DATA / name, every_relation=True), "cpu")
    scorer, known = GraphScorer(load("cpu"), prepared, frontier=0), prepared.known()
    triples = prepared.with_seen_relations(prepared.triples("valid", "seen"))
    found: dict[str, list[list[float]]] = {}
    for side in SIDES:
        for ids_13 in sampled(triples, n).split(1):
            column, best_E = 2 if side == "tail" else 0, None
            kind_1 = ids_13[:, 1] + (side == "head") * prepared.n_relations
            listed = known.find(ids_13, side)
            for way, run in {"exact": exact, **WAYS}.items():
                query = Query.of(scorer, ids_13[:, 2 - column], kind_1)
                run(query)
                scores_E = query.scores()
                best_E = scores_E if best_E is None else best_E
                tops = ({*own.topk(10).indices.tolist()} for own in (best_E, scores_E))
                ranks = rank(scores_E[None], ids_13[:, column], listed).realistic_B
                same = len(set.intersection(*tops))
                found.setdefault(way, []).append([1 / float(ranks), same, query.edges, query.rows])
    return [
        line(name, n, way, torch.tensor(found["exact"]), torch.tensor(found[way])) for way in WAYS
    ]


def line(name: str, n: int, way: str, exact_N4: Tensor, found_N4: Tensor) -> dict[str, Any]:
    changes_N = found_N4[:, 0] - exact_N4[:, 0]
    (mrr, same, edges, rows), (exact_mrr, _, all_edges, all_rows) = (
        own_N4.double().mean(0).tolist() for own_N4 in (found_N4, exact_N4)
    )
    return {
        "measure": f"{name}: {way}",
        "ours": f"{mrr - exact_mrr:+.4f} MRR, {same:.2f} of the top 10",
        "peer": f"exact: MRR {exact_mrr:.4f}",
        "ratio": f"{all_edges / edges:.1f}x fewer edges, {all_rows / rows:.1f}x fewer rows",
        "bar": "none", "met": True, "graph": name, "way": way, "frontier": KEPT, "triples": n,
        "mrr": mrr, "exact_mrr": exact_mrr, "mean_change": float(changes_N.abs().mean()),
        "standard_error": float(changes_N.std() / len(changes_N) ** 0.5), "top_10_overlap": same,
        "edges": edges, "rows": rows, "exact_edges": all_edges, "exact_rows": all_rows,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triples", type=int, default=60, help="validation triples per graph")
    parser.add_argument("--graphs", nargs="*", default=["fb15k-237", "codex-m"])
    args = parser.parse_args()
    rows = [row for name in args.graphs for row in compare(name, args.triples)]
    write_results("frontier_choice", rows, SEED, "python benchmarks/frontier_choice.py")
    frontier_tables.write()


if __name__ == "__main__":
    main()
