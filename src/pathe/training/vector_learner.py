"""Training of models with entity vectors: each step encodes its entities once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.config import Config
from pathe.core.tensors import Tensors
from pathe.core.types import SIDES, Side
from pathe.evaluation.ranking import evaluate_links, evaluate_relations
from pathe.graph.held_out import HeldOut
from pathe.graph.known import KnownTriples
from pathe.graph.negatives import corrupt, is_known, shared
from pathe.graph.prepared import PreparedGraph
from pathe.kernels.dispatch import kernel
from pathe.model.builder import VALIDATION, build_featurizer, derived_seed
from pathe.model.pathe import PathE
from pathe.model.scorer import VectorScorer
from pathe.training.batches import distinct_exactly, distinct_padded
from pathe.training.bridge_queries import BridgeQueries, Capacity, link_queries, pair_queries
from pathe.training.cuda_graph import CudaGraphStep
from pathe.training.learner import Learner
from pathe.training.losses import class_weights, link_loss, relation_loss


def pick_rows(table: Tensor, rows: Tensor) -> Tensor:
    """Returns table[rows] by F.embedding: indexing's backward pass serialises repeated rows."""
    found = F.embedding(rows, table.flatten(1))
    return found.view(*rows.shape, *table.shape[1:])


@dataclass(frozen=True)
class Step(Tensors):
    """The inputs of a training step; computing them includes all GPU synchronisation."""

    ids_B: Tensor  # of training triples
    seed: Tensor
    held_out: HeldOut | None  # training triples that paths and contexts must not use
    keep_M: Tensor | None = None  # edges that bridges may use
    links: BridgeQueries | None = None
    pairs: BridgeQueries | None = None


@dataclass(frozen=True)
class SideCandidates:
    """The negatives of a batch on one side: N shared by all triples, or B x N, a row per triple."""

    side: Side
    entities: Tensor
    open_BN: Tensor  # False for known answers, which aren't negatives
    everyone: bool = False  # whether they are all entities, in order


class PathELearner(Learner):
    """Trains a model: each step encodes its entities once and scores positives and negatives."""

    model: PathE

    def __init__(self, model: PathE, config: Config, prepared: PreparedGraph) -> None:
        super().__init__(config, prepared)
        self.model = model
        self.captured: CudaGraphStep[Step] | None = None
        self.capacity: dict[str, Capacity] = {}  # of the CUDA graph, for rows that bridges reach

    def setup(self, stage: str) -> None:
        """Moves the graph, indices and triples to the training device, once."""
        super().setup(stage)
        config, device = self.config, self.device
        self.featurizer = build_featurizer(config, self.prepared, config.n_paths)
        self.known = self.prepared.known("train")
        self.known_valid = KnownTriples(
            torch.cat([self.train_M3, self.prepared.triples("valid", "seen")])
        )
        self.pool_C = self.prepared.seen_E.nonzero().squeeze(1)  # entities seen in training
        self.captures = config.cuda_graphs and device.type == "cuda" and self._can_capture()
        counts_R = torch.bincount(self.train_M3[:, 1], minlength=self.prepared.n_relations).float()
        self.weights_R = class_weights(counts_R) if config.class_weights else None

    def _can_capture(self) -> bool:
        """Whether no step synchronises, so that a CUDA graph can capture it.

        Several layers and very large graphs need sizes from the GPU, which synchronises.
        """
        config = self.config
        n_tokens = 2 * config.batch_size * config.n_paths * (2 * config.max_hops + 1)
        can = self.featurizer.projects_all(n_tokens) and config.layers == config.devices == 1
        if config.bridge == "paths":  # its plain version synchronises, too
            compiled = kernel("propagation.propagate", "cuda") is not None
            can = can and compiled and config.precision != "bf16"
        return can

    def loss(self, ids_B: Tensor, seed: Tensor) -> Tensor:
        """Returns the loss of a batch, by replaying a CUDA graph if possible."""
        step = self.step(ids_B, seed)
        whole = len(ids_B) == min(self.config.batch_size, len(self.train_M3))  # not the last batch
        if not (self.captures and whole):
            return self._loss(step)
        links, pairs = self._padded("links", step.links), self._padded("pairs", step.pairs)
        step = replace(step, links=links, pairs=pairs)
        if self.captured is None:
            try:
                self.captured = CudaGraphStep(self._loss, list(self.model.parameters()), step)
            except torch.OutOfMemoryError:  # a CUDA graph keeps memory that a plain step frees
                self.captures = False
        if self.captured is None:  # after the except clause, which still holds the memory
            torch.cuda.empty_cache()
            return self._loss(step)
        return self.captured(step)

    def _padded(self, kind: str, queries: BridgeQueries | None) -> BridgeQueries | None:
        """Pads queries to the captured shapes; discards the CUDA graph if they are too small."""
        if queries is None:
            return None
        capacity = self.capacity.setdefault(kind, Capacity(queries.reached.row_BE.numel()))
        if not capacity.fits(queries.reached.sizes):
            capacity.grow(queries.reached.sizes)
            self.captured = None
        return queries.padded(capacity.sizes)

    def step(self, ids_B: Tensor, seed: int | Tensor) -> Step:
        """Returns the inputs of a step on a batch of training triples."""
        config, bridge, triples_B3 = self.config, self.model.bridge, self.train_M3[ids_B]
        together_B = ids_B if self.together_B is None else self.together_B
        step = Step(ids_B, torch.as_tensor(seed), self._held_out(together_B))
        if bridge is None:
            return step
        held_out = step.held_out or HeldOut(together_B)  # no query may use its own edge
        keep_M = self.prepared.edges.keep(held_out)
        parts = bridge, self.prepared.edges, keep_M, triples_B3, 1 - config.bridge_dropout
        links = link_queries(*parts) if config.task != "relation" else None
        pairs = pair_queries(*parts) if config.task != "link" else None
        return replace(step, keep_M=keep_M, links=links, pairs=pairs)

    def _loss(self, step: Step) -> Tensor:
        return torch.stack(list(self.step_losses(step).values())).sum()

    def step_losses(self, step: Step) -> dict[str, Tensor]:
        """Returns the weighted loss of each task; doesn't synchronise if it can be captured."""
        config, triples_B3 = self.config, self.train_M3[step.ids_B]
        sides = self._candidates(triples_B3, step.seed) if config.task != "relation" else []
        bridges, between_BR = self._bridges(step)
        wanted = [triples_B3[:, 0], triples_B3[:, 2], *(s.entities.flatten() for s in sides)]
        entities_U, rows = self._distinct(wanted)
        z_U = self.model.encode(self.featurizer.batch(entities_U, step.seed, step.held_out))
        heads, tails = pick_rows(z_U, rows[0]), pick_rows(z_U, rows[1])
        weight = {"link": 1.0, "relation": 0.0, "multi": config.link_weight}[config.task]
        found = {}
        if sides:
            positive_B = self.model.link_scores(heads, triples_B3[:, 1], tails).float()
            total = torch.zeros_like(positive_B[0])
            for candidates, row in zip(sides, rows[2:], strict=True):
                known_z = heads if candidates.side == "tail" else tails
                negative_BN = self._negatives(candidates, known_z, triples_B3[:, 1], z_U, row)
                total = total + self._side_loss(
                    candidates, triples_B3, positive_B, negative_BN, bridges.get(candidates.side)
                )
            found["link"] = weight * total / len(sides)
        if config.task != "link":
            scores_BR = self.model.relation_scores(heads, tails).float() + between_BR
            found["relation"] = (1 - weight) * relation_loss(
                scores_BR,
                triples_B3[:, 1],
                label_smoothing=config.label_smoothing,
                class_weights_R=self.weights_R,
            )
        return found

    def _negatives(
        self, candidates: SideCandidates, known_z: Tensor, relations_B: Tensor, z_U: Tensor,
        row: Tensor,
    ) -> Tensor:  # fmt: skip
        """Returns (B, N) scores of one side's negatives, without bridges."""
        head, side = self.model.head, candidates.side
        answers = head.candidates(z_U, side)
        if not candidates.everyone:
            answers = pick_rows(answers, row.view_as(candidates.entities))
        query = head.query(known_z, relations_B, side)
        each = candidates.entities.dim() == 2
        return (head.score if each else head.score_all)(query, answers).float()

    def _side_loss(
        self, candidates: SideCandidates, triples_B3: Tensor, positive_B: Tensor,
        negative_BN: Tensor, bridged_BE: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """Returns the link loss of one side, with bridges added to positives and negatives."""
        config = self.config
        if bridged_BE is not None:
            true_B1 = triples_B3[:, 2:] if candidates.side == "tail" else triples_B3[:, :1]
            positive_B = positive_B + bridged_BE.gather(1, true_B1)[:, 0]
            if not candidates.everyone:
                entities_BN = candidates.entities.expand(len(bridged_BE), -1)
                bridged_BE = bridged_BE.gather(1, entities_BN)
            negative_BN = negative_BN + bridged_BE
        return link_loss(
            config.loss,
            positive_B,
            negative_BN,
            candidates.open_BN,
            label_smoothing=config.label_smoothing,
            margin=config.margin,
            temperature=config.temperature,
        )

    def _bridges(self, step: Step) -> tuple[dict[Side, Tensor], Tensor | float]:
        """Returns the bridges' scores of all entities per side (B, E), and of relations (B, R)."""
        bridge = self.model.bridge
        links: dict[Side, Tensor] = {}
        between: Tensor | float = 0.0
        if bridge is None:
            return links, between
        edges = self.prepared.edges
        assert step.keep_M is not None
        if (queries := step.links) is not None:
            parts = queries.sources_K, queries.others_K, queries.reached
            found_NE = queries.scatter(bridge.links(edges, step.keep_M, *parts))
            links = dict(zip(SIDES, found_NE.chunk(2), strict=True))
        if (queries := step.pairs) is not None:
            parts = queries.sources_K, queries.others_K, queries.reached
            between = queries.scatter(bridge.pairs(edges, step.keep_M, *parts))
        return links, between

    def _held_out(self, ids_B: Tensor) -> HeldOut | None:
        """Returns the training triples that this step must not use."""
        if not self.config.hold_out_batch:
            return None
        if not self.config.hold_out_pairs:
            return HeldOut(ids_B)
        pairs = self.prepared.pairs
        if self.captures:
            return HeldOut(mask_M=pairs.flag_same(ids_B))
        return HeldOut(pairs.of_same(ids_B))

    def _distinct(self, wanted: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Returns the unique entities to encode, and the rows of the wanted ones among them."""
        n_wanted, n_entities = sum(map(len, wanted)), self.prepared.n_entities
        whole = self.config.negative_sampling == "all" and len(wanted) > 2
        if whole or (self.device.type == "cuda" and n_wanted >= n_entities):
            return torch.arange(n_entities, device=self.device), wanted
        distinct = distinct_padded if self.device.type == "cuda" else distinct_exactly
        entities_U, rows = distinct(torch.cat(wanted))
        return entities_U, list(rows.split([len(w) for w in wanted]))

    def _candidates(self, triples_B3: Tensor, seed: int | Tensor) -> list[SideCandidates]:
        """Returns the negatives of each side."""
        n, found = self.config.negatives, []
        for side in SIDES:
            match self.config.negative_sampling:
                case "each":
                    rows_B = torch.arange(len(triples_B3), device=self.device)
                    rows_B = self.rank + self.world * rows_B  # of the batch of all processes
                    drawn = corrupt(
                        self.known, triples_B3, side, self.pool_C, n, seed=seed, rows_B=rows_B
                    )
                    found.append(SideCandidates(side, *drawn))
                case "shared":
                    pick_N = shared(self.pool_C, n, side, seed=seed)
                    open_BN = ~is_known(self.known, triples_B3, side, pick_N)
                    found.append(SideCandidates(side, pick_N, open_BN))
                case "all":
                    everyone_E = torch.arange(self.prepared.n_entities, device=self.device)
                    open_BE = self._open(triples_B3, side)
                    found.append(SideCandidates(side, everyone_E, open_BE, everyone=True))
        return found

    def _open(self, triples_B3: Tensor, side: Side) -> Tensor:
        """Returns (B, E): which entities seen in training are not known answers."""
        lists, keys_B = self.known.answers(triples_B3, side)
        return lists.close(self.prepared.seen_E.repeat(len(keys_B), 1), keys_B)

    def validate(self) -> dict[str, dict[str, Any]]:
        config, known = self.config, self.known_valid
        scorer = VectorScorer(self.model, self.featurizer, derived_seed(config.seed, VALIDATION))
        found = {}
        if config.task != "relation":
            n = config.valid_negatives
            name = f"valid_link_sampled{n}" if n else "valid_link"
            found[name] = evaluate_links(scorer, self.valid_M3, known, n_negatives=n)
        if config.task != "link":
            found["valid_relation"] = evaluate_relations(scorer, self.valid_M3, known)
        return found
