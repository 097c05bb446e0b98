"""The Lightning module for training. Every random draw is a hash of (seed, epoch, batch)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.config import Config
from pathe.core.errors import TrainingError
from pathe.core.randomness import keyed
from pathe.core.tensors import Tensors
from pathe.core.types import SIDES, Side
from pathe.evaluation.ranking import evaluate_links, evaluate_relations
from pathe.graph.held_out import HeldOut
from pathe.graph.known import KnownTriples
from pathe.graph.negatives import corrupt, is_known, shared
from pathe.graph.prepared import PreparedGraph
from pathe.kernels.dispatch import kernel
from pathe.model.builder import STEP, VALIDATION, build_featurizer, derived_seed
from pathe.model.pathe import PathE
from pathe.model.scorer import VectorScorer
from pathe.training.batches import Batches, distinct_exactly, distinct_padded
from pathe.training.bridge_queries import BridgeQueries, Capacity, link_queries, pair_queries
from pathe.training.cuda_graph import CudaGraphStep
from pathe.training.losses import class_weights, link_loss, relation_loss

CHECK_EVERY = 16  # steps between checks for a finite loss on a GPU, as these synchronise
MONITOR = "valid_score"  # the logged score for early stopping and the best checkpoint


def validation_title(config: Config) -> str:
    """Returns the title of `valid_score`.

    Links are ranked among `valid_negatives` sampled negatives (0: all entities), relations among
    all relations; for task `multi` the score is the mean of both.
    """
    among = f" among {config.valid_negatives} negatives" if config.valid_negatives else ""
    match config.task:
        case "link":
            return f"validation MRR{among}"
        case "relation":
            return "validation MRR of relations"
        case "multi":
            return f"mean of validation MRR of links{among} and of relations"


def cosine(step: int, total: int) -> float:
    """Returns the factor of the learning rate: linear warm-up in the first 2 %, cosine decay."""
    warmup = max(total // 50, 1)
    if step < warmup:
        return (step + 1) / warmup
    return (1 + math.cos(math.pi * min((step - warmup) / max(total - warmup, 1), 1))) / 2


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


class PathELearner(pl.LightningModule):
    """Trains a model: each step encodes its entities once and scores positives and negatives."""

    def __init__(self, model: PathE, config: Config, prepared: PreparedGraph) -> None:
        super().__init__()
        self.model, self.config, self.prepared = model, config, prepared
        self.place = {"epoch": 0, "done": 0}  # of the first batch
        self.captured: CudaGraphStep[Step] | None = None
        self.capacity: dict[str, Capacity] = {}  # of the CUDA graph, for rows that bridges reach
        self.seeds_of = -1  # the epoch of `seeds`
        self.seeds: tuple[list[int], Tensor] = ([], torch.empty(0))
        self.seconds_before, self.begin = 0.0, time.perf_counter()
        self.loss_sum, self.loss_count = torch.zeros((), dtype=torch.float64), 0

    def setup(self, stage: str) -> None:
        """Moves the graph, indices and triples to the training device, once."""
        config, device = self.config, self.device
        self.prepared = self.prepared.on(device)
        self.train_M3, self.valid_M3 = (
            self.prepared.train_M3,
            self.prepared.triples("valid", "seen"),
        )
        self.featurizer = build_featurizer(config, self.prepared, config.n_paths)
        self.known = self.prepared.known("train")
        self.known_valid = KnownTriples(torch.cat([self.train_M3, self.valid_M3]))
        self.pool_C = self.prepared.seen_E.nonzero().squeeze(1)  # entities seen in training
        self.finite = torch.ones((), dtype=torch.bool, device=device)
        self.loss_sum = self.loss_sum.to(device)
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

    def train_dataloader(self) -> Batches:
        world, rank = self.trainer.world_size, self.trainer.global_rank
        self.batches = Batches(
            len(self.train_M3), self.config.batch_size, self.config.seed, rank, world, self.device
        )
        self.batches.load_state_dict(self.place)
        return self.batches

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.check_loss()  # so that a checkpoint never has weights after a bad loss
        checkpoint["batches"] = self.batches.state_dict()
        checkpoint["seconds"] = self.seconds
        checkpoint["loss"] = (float(self.loss_sum), self.loss_count)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # Lightning restores a data loader's state only within an epoch, not at its end
        self.place = checkpoint["batches"]
        self.seconds_before = checkpoint.get("seconds", 0.0)
        total, self.loss_count = checkpoint.get("loss", (0.0, 0))
        self.loss_sum.fill_(total)

    @property
    def seconds(self) -> float:
        """Training time so far, including that before interruptions."""
        return self.seconds_before + time.perf_counter() - self.begin

    @property
    def epoch_loss(self) -> float:
        """The mean loss of the epoch so far, including that before an interruption."""
        return float(self.loss_sum) / max(self.loss_count, 1)

    def val_dataloader(self) -> list[int]:
        return [0] if len(self.valid_M3) else []  # one step validates everything

    def configure_optimizers(self) -> Any:
        adam = torch.optim.Adam(self.model.parameters(), lr=self.config.learning_rate)
        if self.config.schedule == "constant":
            return adam
        n_batches = -(-len(self.train_M3) // self.config.batch_size)
        total = self.config.max_epochs * -(-n_batches // self.config.accumulate_batches)
        schedule = torch.optim.lr_scheduler.LambdaLR(adam, partial(cosine, total=total))
        return {
            "optimizer": adam,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        return batch  # it is already there

    def training_step(self, batch: tuple[Tensor, int, int], batch_idx: int) -> Tensor:
        ids_B, epoch, place = batch
        self.batches.finish(epoch, place)
        if self.seeds_of != epoch:  # copied once per epoch, so that steps don't synchronise
            places = torch.arange(len(self.batches))
            seeds = keyed(self.config.seed, STEP, epoch, places, self.global_rank)
            self.seeds_of, self.seeds = epoch, (seeds.tolist(), seeds.to(self.device))
        torch.manual_seed(self.seeds[0][place])  # dropout
        loss = self.loss(ids_B, self.seeds[1][place])
        if place == 0:
            self.loss_sum, self.loss_count = torch.zeros_like(self.loss_sum), 0
        self.loss_sum += loss.detach() * len(ids_B)
        self.loss_count += len(ids_B)
        self.finite &= loss.isfinite()
        due = place % CHECK_EVERY == CHECK_EVERY - 1 or place == len(self.batches) - 1
        if due or self.device.type == "cpu":
            self.check_loss()
        self.log("loss", loss.detach(), prog_bar=True, on_step=True, batch_size=len(ids_B))
        return loss

    def on_train_epoch_end(self) -> None:
        self.log("loss_epoch", self.epoch_loss)

    def check_loss(self) -> None:
        """Raises a TrainingError if a loss so far was not finite."""
        if not self.finite:
            at = self.batches
            raise TrainingError(
                f"The loss became NaN or infinite in epoch {at.epoch}, at batch {at.done - 1} or "
                f"shortly before. Lower learning_rate ({self.config.learning_rate}), set "
                "gradient_clip, or use context_counts=log1p. Earlier epochs' checkpoints are kept."
            )

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
        step = Step(ids_B, torch.as_tensor(seed), self._held_out(ids_B))
        if bridge is None:
            return step
        held_out = step.held_out or HeldOut(ids_B)  # no query may use its own edge
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
                    drawn = corrupt(self.known, triples_B3, side, self.pool_C, n, seed=seed)
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

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        with torch.autocast(self.device.type, enabled=False):  # as in evaluation
            self._validate()

    def _validate(self) -> None:
        config, known = self.config, self.known_valid
        scorer = VectorScorer(self.model, self.featurizer, derived_seed(config.seed, VALIDATION))
        found = {}
        if config.task != "relation":
            n = config.valid_negatives
            name = f"valid_link_sampled{n}" if n else "valid_link"
            found[name] = evaluate_links(scorer, self.valid_M3, known, n_negatives=n)
        if config.task != "link":
            found["valid_relation"] = evaluate_relations(scorer, self.valid_M3, known)
        mean = sum(metrics["mrr"] for metrics in found.values()) / len(found)
        self.log(MONITOR, mean, prog_bar=True, batch_size=1)
        for name, metrics in found.items():
            for key, value in metrics.items():
                if isinstance(value, float):
                    self.log(f"{name}_{key}", value, batch_size=1)
