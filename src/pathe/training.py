"""Training: the Lightning module. Every draw is a hash of (seed, epoch, place)."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.batches import Batches, distinct_exactly, distinct_padded
from pathe.builder import STEP, VALIDATION, build_describer, derived_seed
from pathe.config import Config
from pathe.encoder import N_POSITIONS
from pathe.errors import ConfigError, TrainingError
from pathe.evaluation import evaluate_links, evaluate_relations
from pathe.graph import Graph, by_pair
from pathe.known import KnownTriples, Side, index_triples
from pathe.losses import class_weights, link_loss, relation_loss
from pathe.machine import free_memory, pick_device
from pathe.model import PathE
from pathe.negatives import corrupt, is_known, shared
from pathe.propagation import Edges
from pathe.randomness import keyed
from pathe.recorded import Recorded

SIDES: tuple[Side, Side] = ("tail", "head")
LOOK_EVERY = 16  # steps between two looks at the loss on a GPU, which has to be waited for


def check_fits(config: Config, n_entities: int, n_triples: int) -> None:
    """Refuses settings whose step can't fit into the memory there is, before it starts."""
    batch = min(config.batch_size, n_triples)
    n_encoded = 2 * batch
    if config.task != "relation":
        n_encoded += {
            "each": 2 * batch * config.negatives,
            "shared": 2 * config.negatives,
            "all": n_entities,
        }[config.negative_sampling]
    n_paths = min(n_encoded, n_entities) * config.n_paths
    width = (4 if config.path_form == "joined" else 2) * config.max_hops + 1
    n_pairs = batch  # scored: with answers, on both sides
    if config.task != "relation":
        n_answers = n_entities if config.negative_sampling == "all" else config.negatives
        n_pairs += 2 * batch * n_answers
    per_path = 16 * config.dim + 3 * config.feedforward + 4 * config.heads * width
    if config.positions == "absolute":
        per_path += 4 * config.heads * N_POSITIONS
    if config.aggregator != "mean":
        per_path += 24 * config.dim * config.aggregator_layers
    if config.layers > 1:  # all tokens are kept between layers; one layer reads them by number
        inner = 14 * config.dim + 3 * config.feedforward + 3 * config.heads * width
        per_path += width * (4 * config.dim + (config.layers - 1) * inner)
    per_pair = 6.0  # scores and their gradients
    if config.aggregator == "transformer-joint":  # each pair's paths go through it
        per_pair += 2 * (config.n_paths + 1) * 24 * config.dim * config.aggregator_layers
    elif config.negative_sampling == "each":
        per_pair += 3 * config.dim
    n_bytes = 4 * (n_paths * per_path + n_pairs * per_pair)
    for_bridges = 0.0
    if config.bridge == "paths":  # states of what is reached, by the mean degree; hubs reach more
        reached = min(n_entities, (1 + 2 * n_triples / n_entities) ** config.bridge_hops)
        questions = 2 * batch * (1 - config.bridge_dropout)
        for_bridges = 4 * questions * reached * config.bridge_dim * (2 * config.bridge_hops + 4)
        for_bridges += 16 * 2 * batch * n_entities  # rows by entity, scores and their gradients
    n_bytes += for_bridges
    device = pick_device(config.accelerator)
    free = free_memory(device)
    if n_bytes > free:
        raise ConfigError(
            f"A step would describe up to {n_paths:,} paths of {width} tokens and take about "
            f"{n_bytes / 2**30:.1f} GiB; {free / 2**30:.1f} GiB are free. Lower batch_size "
            f"({config.batch_size}), n_paths ({config.n_paths}), max_hops ({config.max_hops}) or "
            "negatives, or set negative_sampling=shared."
            + (" Bridges take most of it, by batch_size." if for_bridges > n_bytes / 2 else "")
        )


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


class PathELearner(pl.LightningModule):
    """One training step: describe each distinct entity once, score positives and negatives."""

    def __init__(
        self, model: PathE, config: Config, graph: Graph, train_M3: Tensor, valid_M3: Tensor
    ) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.graph, self.train_M3, self.valid_M3 = graph, train_M3.long(), valid_M3.long()
        self.place = {"epoch": 0, "done": 0}  # where the batches start
        self.recorded: Recorded | None = None
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
        alone = alone and config.bridge == "none" and not config.refine
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
        whole = len(ids_B) == min(
            self.config.batch_size, len(self.train_M3)
        )  # not the epoch's rest
        if not (self.records and whole):
            return self._loss(ids_B, seed)
        if self.recorded is None:
            parameters = list(self.model.parameters())
            self.recorded = Recorded(self._loss, parameters, ids_B, seed)
        return self.recorded(ids_B, seed)

    def _loss(self, ids_B: Tensor, seed: Tensor) -> Tensor:
        return torch.stack(list(self.losses(ids_B, seed).values())).sum()

    def losses(self, ids_B: Tensor, seed: int | Tensor) -> dict[str, Tensor]:
        """The weighted loss of each task on a batch of training triples."""
        config = self.config
        triples_B3 = self.train_M3[ids_B]
        asks = self._answers(triples_B3, seed) if config.task != "relation" else {}
        held_out_ids = self._held_out(ids_B)
        # first: what is reached has to be waited for, and nothing after it
        gone_ids = ids_B if held_out_ids is None else held_out_ids  # no question bridges itself
        bridges, between_BR = self._bridges(triples_B3, gone_ids)
        wanted = [
            triples_B3[:, 0],
            triples_B3[:, 2],
            *(pick.flatten() for pick, _ in asks.values()),
        ]
        entities_U, rows = self._distinct(wanted)
        z_U = self.model.encode(self.describe.batch(entities_U, seed, held_out_ids))
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
                    true_B1 = triples_B3[:, [2] if side == "tail" else [0]]
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

    def _bridges(
        self, triples_B3: Tensor, held_out_ids: Tensor
    ) -> tuple[dict[Side, Tensor], Tensor | float]:
        """What bridges add to every entity on each side (B x E), and to every relation (B x R)."""
        if self.model.bridge is None:
            return {}, 0.0
        edges, keep_M = self._edges(held_out_ids)
        task = self.config.task
        links = {} if task == "relation" else self._to_answers(triples_B3, edges, keep_M)
        return links, 0.0 if task == "link" else self._between(triples_B3, edges, keep_M)

    def _edges(self, held_out_ids: Tensor) -> tuple[Edges, Tensor]:
        """What this step's bridges may take, and which of it is kept."""
        edges, share = self.describe.edges, self.config.bridge_edges
        assert edges is not None
        if share == 1:
            return edges, edges.without(held_out_ids)
        edges = edges.sample(share, held_out_ids)
        return edges, edges.without()

    def _to_answers(self, triples_B3: Tensor, edges: Edges, keep_M: Tensor) -> dict[Side, Tensor]:
        """Both sides' questions at once."""
        bridge, b = self.model.bridge, len(triples_B3)
        assert bridge is not None
        sources_Q = triples_B3[:, [0, 2]].T.flatten()
        kinds_Q = torch.cat([triples_B3[:, 1], triples_B3[:, 1] + self.graph.n_relations])
        rows_K = self._bridged(2 * b)
        found_KE = bridge.links(edges, keep_M, sources_Q[rows_K], kinds_Q[rows_K])
        found_QE = found_KE.new_zeros(2 * b, found_KE.shape[1]).index_put((rows_K,), found_KE)
        return dict(zip(SIDES, found_QE.split(b), strict=True))

    def _between(self, triples_B3: Tensor, edges: Edges, keep_M: Tensor) -> Tensor:
        bridge, b = self.model.bridge, len(triples_B3)
        assert bridge is not None
        rows_K = self._bridged(b)
        heads_K, _, tails_K = triples_B3[rows_K].unbind(1)
        found_KR = bridge.pairs(edges, keep_M, heads_K, tails_K)
        return found_KR.new_zeros(b, found_KR.shape[1]).index_put((rows_K,), found_KR)

    def _bridged(self, n: int) -> Tensor:
        """The questions that have bridges; some do without, so that vectors alone learn, too."""
        drawn_N = torch.rand(n, device=self.device)
        return (drawn_N >= self.config.bridge_dropout).nonzero().squeeze(1)

    def _held_out(self, ids_B: Tensor) -> Tensor | None:
        """The training triples that this step must not read."""
        if not self.config.hold_out_batch:
            return None
        return ids_B if self.pairs is None else self.pairs.of_same(ids_B)

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
