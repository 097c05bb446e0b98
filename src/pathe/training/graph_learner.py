"""Fine-tuning of a model for any graph on one graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pathe.core.config import Config
from pathe.evaluation.ranking import evaluate_links, evaluate_relations
from pathe.graph.held_out import HeldOut
from pathe.graph.prepared import PreparedGraph
from pathe.model.builder import VALIDATION, derived_seed
from pathe.model.foundation import FoundationModel, GraphView, Views, view
from pathe.model.frontier import frontier_size
from pathe.model.scorer import GraphScorer, Scorer
from pathe.training.learner import Learner
from pathe.training.mix import PAIRS, MixGraph, link_step, relation_step, sampled_link_step
from pathe.training.pretraining import step_loss


def validate(scorer: Scorer, triples_M3: Tensor, task: str) -> dict[str, dict[str, Any]]:
    """Returns the metrics of each task on validation triples, ranked among all candidates."""
    known, found = scorer.prepared.known("train", "valid"), {}
    if task != "relation":
        found["valid_link"] = evaluate_links(scorer, triples_M3, known)
    if task != "link":
        found["valid_relation"] = evaluate_relations(scorer, triples_M3, known)
    return found


class GraphLearner(Learner):
    """Trains a model whose relation vectors are computed from the graph.

    A batch's edges are held out, also from the relation graph and from contexts.
    """

    model: FoundationModel

    def __init__(self, model: FoundationModel, config: Config, prepared: PreparedGraph) -> None:
        super().__init__(config, prepared)
        self.model = model

    def setup(self, stage: str) -> None:
        super().setup(stage)
        prepared = self.prepared
        self.graph = MixGraph(
            prepared.kg.name, 0, prepared.edges, prepared.arrivals, prepared.train_M3,
            prepared.pairs, prepared.known("train"),
        )  # fmt: skip
        self.frontier = frontier_size(None, len(self.train_M3), prepared.n_entities)
        self.views = Views(prepared.edges, prepared.arrivals) if self.frontier else None

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            self.model.parameters(), lr=self.config.learning_rate, weight_decay=1e-4
        )

    def loss(self, ids_B: Tensor, seed: Tensor) -> Tensor:
        config, total = self.config, torch.zeros((), device=self.device)
        seen, triples_B3, frontier = self._seen(ids_B), self.train_M3[ids_B], self.frontier
        if config.task != "relation":
            weight = config.link_weight if config.task == "multi" else 1.0
            if frontier:
                step = sampled_link_step(self.graph, seen, triples_B3, frontier, seed)
            else:
                step = link_step(self.graph, seen, triples_B3)
            total = total + weight * step_loss(self.model, self.graph, step)
        if config.task != "link":
            weight = 1 - config.link_weight if config.task == "multi" else 1.0
            some_B3 = triples_B3[: max(len(ids_B) // PAIRS, 1)]  # each pair has many queries
            step = replace(relation_step(self.graph, seen, some_B3), frontier=frontier)
            total = total + weight * step_loss(self.model, self.graph, step)
        return total

    def _seen(self, ids_B: Tensor) -> GraphView:
        """Returns the graph without the edges of a batch, or without all between its entities."""
        pairs = self.graph.pairs
        if self.views is not None:
            return self.views.without(pairs.of_same(ids_B) if self.config.hold_out_pairs else ids_B)
        held_out = HeldOut(ids_B)
        if self.config.hold_out_pairs:
            held_out = HeldOut(mask_M=pairs.flag_same(ids_B))
        return view(self.graph.index, self.graph.edges.keep(held_out))

    def validate(self) -> dict[str, dict[str, Any]]:
        seed = derived_seed(self.config.seed, VALIDATION)
        scorer = GraphScorer(self.model, self.prepared, seed)
        return validate(scorer, self.valid_M3, self.config.task)
