"""Training: the Lightning module. Every draw is a hash of (seed, epoch, place)."""

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

from pathe.batches import Batches, distinct_exactly, distinct_padded
from pathe.builder import STEP, VALIDATION, build_describer, derived_seed
from pathe.config import Config
from pathe.errors import TrainingError
from pathe.evaluation import evaluate_links, evaluate_relations
from pathe.graph import Graph, Tensors, by_pair
from pathe.known import KnownTriples, Side, index_triples
from pathe.losses import class_weights, link_loss, relation_loss
from pathe.model import PathE
from pathe.negatives import corrupt, is_known, shared
from pathe.propagation import Edges
from pathe.questions import Questions, Room, link_questions, pair_questions
from pathe.randomness import keyed
from pathe.recorded import Recorded
from pathe.twins import twin

SIDES: tuple[Side, Side] = ("tail", "head")
LOOK_EVERY = 16  # steps between two looks at the loss on a GPU, which has to be waited for


def cosine(step: int, total: int) -> float:
    """The share of the learning rate at a step: up from 0 in the first 2 %, then down to 0."""
    warm = max(total // 50, 1)
    if step < warm:
        return (step + 1) / warm
    return (1 + math.cos(math.pi * min((step - warm) / max(total - warm, 1), 1))) / 2


def pick_rows(table: Tensor, rows: Tensor) -> Tensor:
    """table[rows]; an embedding, as the backward pass of an index serialises repeated rows."""
    found = F.embedding(rows, table.flatten(1))
    return found.view(*rows.shape, *table.shape[1:])


@dataclass(frozen=True)
class Step(Tensors):
    """What a training step looks at; all that a GPU has to be waited for is in it."""

    ids_B: Tensor  # of training triples
    seed: Tensor
    held_out: Tensor | None  # training triples that it must not read: ids, or a mask over all
    keep_M: Tensor | None = None  # edges that bridges may take
    links: Questions | None = None
    pairs: Questions | None = None
    edges: Edges | None = None  # a sample of them; else all


class PathELearner(pl.LightningModule):
    """One training step: describe each distinct entity once, score positives and negatives."""

    def __init__(
        self, model: PathE, config: Config, graph: Graph, train_M3: Tensor, valid_M3: Tensor
    ) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.graph, self.train_M3, self.valid_M3 = graph, train_M3.long(), valid_M3.long()
        self.place = {"epoch": 0, "done": 0}  # where the batches start
        self.recorded: Recorded[Step] | None = None
        self.room: dict[str, Room] = {}  # for what bridges reach in a recorded step
        self.seeds_of = -1  # the epoch whose seeds are at hand
        self.seeds: tuple[list[int], Tensor] = ([], torch.empty(0))
        self.seconds_before, self.begin = 0.0, time.perf_counter()

    def setup(self, stage: str) -> None:
        """Puts graph, indices and triples on the device that trains; nothing moves after that."""
        device = self.device
        config, graph = self.config, self.graph.to(device)
        n_entities, n_relations = graph.n_entities, graph.n_relations
        self.train_M3, self.valid_M3 = self.train_M3.to(device), self.valid_M3.to(device)
        self.describe = build_describer(
            config, graph, config.n_paths, hold_out=config.hold_out_batch
        )
        self.valid_describe = replace(self.describe, slots=None)
        self.pairs = by_pair(self.train_M3, n_entities) if config.hold_out_pairs else None
        self.known = index_triples(self.train_M3, n_entities, n_relations)
        known_M3 = torch.cat([self.train_M3, self.valid_M3])
        self.known_valid: KnownTriples = index_triples(known_M3, n_entities, n_relations)
        self.in_pool_E = (graph.outgoing.degrees_E + graph.incoming.degrees_E) > 0
        self.pool_C = self.in_pool_E.nonzero().squeeze(1)  # entities that training knows
        self.finite = torch.ones((), dtype=torch.bool, device=device)
        # what several layers or a far larger graph need can't be recorded: counts from the device
        n_tokens = 2 * config.batch_size * config.n_paths * (2 * config.max_hops + 1)
        alone = self.describe.projects_all(n_tokens) and config.layers == config.devices == 1
        if config.bridge == "paths":  # written out, they wait; so does a sample of the edges
            compiled = twin("propagation", "cuda") is not None and config.precision != "bf16"
            alone = alone and compiled and config.bridge_edges == 1
        self.records = config.record and device.type == "cuda" and alone
        counts_R = torch.bincount(self.train_M3[:, 1], minlength=n_relations).float()
        self.weights_R = class_weights(counts_R) if config.class_weights else None

    def train_dataloader(self) -> Batches:
        world, rank = self.trainer.world_size, self.trainer.global_rank
        self.batches = Batches(
            len(self.train_M3), self.config.batch_size, self.config.seed, rank, world, self.device
        )
        self.batches.load_state_dict(self.place)
        return self.batches

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.check_loss()  # never over good weights
        checkpoint["batches"] = self.batches.state_dict()
        checkpoint["seconds"] = self.seconds

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # Lightning restores a loader's state within an epoch only; this covers its end, too.
        self.place = checkpoint["batches"]
        self.seconds_before = checkpoint.get("seconds", 0.0)

    @property
    def seconds(self) -> float:
        """Time spent on training so far, before interruptions too."""
        return self.seconds_before + time.perf_counter() - self.begin

    def val_dataloader(self) -> list[int]:
        return [0] if len(self.valid_M3) else []  # one step validates everything

    def configure_optimizers(self) -> Any:
        adam = torch.optim.Adam(self.model.parameters(), lr=self.config.learning_rate)
        if self.config.schedule == "constant":
            return adam
        n_batches = -(-len(self.train_M3) // self.config.batch_size)
        total = self.config.max_epochs * -(-n_batches // self.config.accumulate)
        schedule = torch.optim.lr_scheduler.LambdaLR(adam, partial(cosine, total=total))
        return {
            "optimizer": adam,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        return batch  # it is there

    def training_step(self, batch: tuple[Tensor, int, int], batch_idx: int) -> Tensor:
        ids_B, epoch, place = batch
        self.batches.finish(epoch, place)
        if self.seeds_of != epoch:  # an epoch's seeds are copied at once: a step waits for nothing
            places = torch.arange(len(self.batches))
            seeds = keyed(self.config.seed, STEP, epoch, places, self.global_rank)
            self.seeds_of, self.seeds = epoch, (seeds.tolist(), seeds.to(self.device))
        torch.manual_seed(self.seeds[0][place])  # dropout
        loss = self.loss(ids_B, self.seeds[1][place])
        self.finite &= loss.isfinite()
        due = place % LOOK_EVERY == LOOK_EVERY - 1 or place == len(self.batches) - 1
        if due or self.device.type == "cpu":
            self.check_loss()
        self.log(
            "loss", loss.detach(), prog_bar=True, on_step=True, on_epoch=True, batch_size=len(ids_B)
        )
        return loss

    def check_loss(self) -> None:
        """Raises if a loss so far was no finite number."""
        if not self.finite:
            at = self.batches
            raise TrainingError(
                f"The loss is no finite number in epoch {at.epoch}, batch {at.done - 1} or just "
                f"before. Lower learning_rate ({self.config.learning_rate}), set clip, or use "
                "contexts=log1p; the checkpoints of earlier epochs are kept."
            )

    def loss(self, ids_B: Tensor, seed: Tensor) -> Tensor:
        """The loss of a batch; on a GPU the step is recorded and replayed where that can be."""
        step = self.step(ids_B, seed)
        whole = len(ids_B) == min(
            self.config.batch_size, len(self.train_M3)
        )  # not the epoch's rest
        if not (self.records and whole):
            return self._loss(step)
        links, pairs = self._padded("links", step.links), self._padded("pairs", step.pairs)
        step = replace(step, links=links, pairs=pairs)
        if self.recorded is None:
            try:
                self.recorded = Recorded(self._loss, list(self.model.parameters()), step)
            except torch.OutOfMemoryError:  # a recording keeps what a plain step gives back
                self.records = False
        if self.recorded is None:  # only here is what the attempt held given back
            torch.cuda.empty_cache()
            return self._loss(step)
        return self.recorded(step)

    def _padded(self, kind: str, asked: Questions | None) -> Questions | None:
        """The questions in the shapes that are recorded; where they don't fit, those grow."""
        if asked is None:
            return None
        room = self.room.setdefault(kind, Room(asked.reached.row_BE.numel()))
        if not room.fits(asked.reached.sizes):
            room.grow(asked.reached.sizes)
            self.recorded = None
        return asked.padded(room.sizes)

    def step(self, ids_B: Tensor, seed: int | Tensor) -> Step:
        """What a batch of training triples looks at."""
        config, bridge, triples_B3 = self.config, self.model.bridge, self.train_M3[ids_B]
        step = Step(ids_B, torch.as_tensor(seed), self._held_out(ids_B))
        if bridge is None:
            return step
        assert self.describe.edges is not None
        gone = ids_B if step.held_out is None else step.held_out  # no question bridges itself
        edges, sample = self.describe.edges, None
        if config.bridge_edges < 1:
            edges = sample = edges.sample(config.bridge_edges, gone)
        keep_M = edges.without(None if sample else gone)
        asked = bridge, edges, keep_M, triples_B3, 1 - config.bridge_dropout
        links = link_questions(*asked) if config.task != "relation" else None
        pairs = pair_questions(*asked) if config.task != "link" else None
        return replace(step, keep_M=keep_M, links=links, pairs=pairs, edges=sample)

    def _loss(self, step: Step) -> Tensor:
        return torch.stack(list(self.step_losses(step).values())).sum()

    def losses(self, ids_B: Tensor, seed: int | Tensor) -> dict[str, Tensor]:
        """The weighted loss of each task on a batch of training triples."""
        return self.step_losses(self.step(ids_B, seed))

    def step_losses(self, step: Step) -> dict[str, Tensor]:
        """The weighted loss of each task; what can be recorded waits for no device."""
        config, seed = self.config, step.seed
        triples_B3 = self.train_M3[step.ids_B]
        asks = self._answers(triples_B3, seed) if config.task != "relation" else {}
        bridges, between_BR = self._bridges(step)
        wanted = [
            triples_B3[:, 0],
            triples_B3[:, 2],
            *(pick.flatten() for pick, _ in asks.values()),
        ]
        entities_U, rows = self._distinct(wanted)
        z_U = self.model.encode(self.describe.batch(entities_U, seed, step.held_out))
        heads, tails = pick_rows(z_U, rows[0]), pick_rows(z_U, rows[1])
        relations_B = triples_B3[:, 1]
        weight = {"link": 1.0, "relation": 0.0, "multi": config.link_weight}[config.task]
        found = {}
        if asks:
            positive_B = self.model.link_scores(heads, relations_B, tails)
            total = torch.zeros_like(positive_B[0])
            for (side, (pick, mask_BN)), row in zip(asks.items(), rows[2:], strict=True):
                fixed = heads if side == "tail" else tails
                # one set for the whole batch, or each triple's own
                answers = self.model.candidates(z_U, side)
                if config.negative_sampling != "all":
                    answers = pick_rows(answers, row.view_as(pick))
                negative_BN = self.model.candidate_scores(fixed, relations_B, answers, side)
                right_B, wrong_BN = positive_B.float(), negative_BN.float()
                if bridges:
                    true_B1 = triples_B3[:, 2:] if side == "tail" else triples_B3[:, :1]
                    right_B = right_B + bridges[side].gather(1, true_B1)[:, 0]
                    added_BN = bridges[side]
                    if config.negative_sampling != "all":
                        added_BN = added_BN.gather(1, pick.expand(len(added_BN), -1))
                    wrong_BN = wrong_BN + added_BN
                total = total + link_loss(
                    config.loss,
                    right_B,
                    wrong_BN,
                    mask_BN,
                    label_smoothing=config.label_smoothing,
                    margin=config.margin,
                    temperature=config.temperature,
                )
            found["link"] = weight * total / len(asks)
        if config.task != "link":
            scores_BR = self.model.relation_scores(heads, tails).float() + between_BR
            found["relation"] = (1 - weight) * relation_loss(
                scores_BR,
                relations_B,
                label_smoothing=config.label_smoothing,
                class_weights_R=self.weights_R,
            )
        return found

    def _bridges(self, step: Step) -> tuple[dict[Side, Tensor], Tensor | float]:
        """What bridges add to every entity on each side (B x E), and to every relation (B x R)."""
        bridge, edges = self.model.bridge, step.edges or self.describe.edges
        links: dict[Side, Tensor] = {}
        between: Tensor | float = 0.0
        if bridge is None:
            return links, between
        assert edges is not None
        assert step.keep_M is not None
        if (asked := step.links) is not None:
            parts = asked.sources_K, asked.others_K, asked.reached
            found_NE = asked.spread(bridge.links(edges, step.keep_M, *parts))
            links = dict(zip(SIDES, found_NE.chunk(2), strict=True))
        if (asked := step.pairs) is not None:
            parts = asked.sources_K, asked.others_K, asked.reached
            between = asked.spread(bridge.pairs(edges, step.keep_M, *parts))
        return links, between

    def _held_out(self, ids_B: Tensor) -> Tensor | None:
        """The training triples that this step must not read."""
        if not self.config.hold_out_batch:
            return None
        if self.pairs is None:
            return ids_B
        return self.pairs.flag_same(ids_B) if self.records else self.pairs.of_same(ids_B)

    def _distinct(self, wanted: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The entities to encode, each once, and the rows of the wanted ones among them."""
        n_wanted, n_entities = sum(map(len, wanted)), self.graph.n_entities
        whole = self.config.negative_sampling == "all" and len(wanted) > 2
        if whole or (self.device.type == "cuda" and n_wanted >= n_entities):
            return torch.arange(n_entities, device=self.device), wanted
        distinct = distinct_padded if self.device.type == "cuda" else distinct_exactly
        entities_U, rows = distinct(torch.cat(wanted))
        return entities_U, list(rows.split([len(w) for w in wanted]))

    def _answers(self, triples_B3: Tensor, seed: int | Tensor) -> dict[Side, tuple[Tensor, Tensor]]:
        """For each side the wrong answers (N for the batch, or B x N) and which of them count."""
        n = self.config.negatives
        match self.config.negative_sampling:
            case "each":
                return {
                    side: corrupt(self.known, triples_B3, side, self.pool_C, n, seed=seed)
                    for side in SIDES
                }
            case "shared":
                picks = {side: shared(self.pool_C, n, side, seed=seed) for side in SIDES}
                return {
                    side: (pick, ~is_known(self.known, triples_B3, side, pick))
                    for side, pick in picks.items()
                }
            case "all":
                everyone = torch.arange(self.graph.n_entities, device=self.device)
                return {side: (everyone, self._open(triples_B3, side)) for side in SIDES}

    def _open(self, triples_B3: Tensor, side: Side) -> Tensor:
        """(B, E): which entities are wrong answers, as far as training knows."""
        lists, keys_B = self.known.answers(triples_B3, side)
        return lists.close(self.in_pool_E.repeat(len(keys_B), 1), keys_B)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        with torch.autocast(self.device.type, enabled=False):  # as the final evaluation is
            self._validate()

    def _validate(self) -> None:
        config = self.config
        seed = derived_seed(config.seed, VALIDATION)
        known, describe = self.known_valid, self.valid_describe
        found = {}
        if config.task != "relation":
            found["link"] = evaluate_links(
                self.model,
                describe,
                self.valid_M3,
                known,
                n_negatives=config.valid_negatives,
                seed=seed,
            )
        if config.task != "link":
            found["relation"] = evaluate_relations(
                self.model, describe, self.valid_M3, known, seed=seed
            )
        mean = sum(f["mrr"] for f in found.values()) / len(found)
        self.log("valid_mrr", mean, prog_bar=True, batch_size=1)
        for task, metrics in found.items():
            for name, value in metrics.items():
                if isinstance(value, float):
                    self.log(f"valid_{task}_{name}", value, batch_size=1)
