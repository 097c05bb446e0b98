"""The Lightning module for training. Every random draw is a hash of (seed, epoch, batch)."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from pathe.core.config import Config
from pathe.core.errors import TrainingError
from pathe.core.randomness import keyed, seed_torch
from pathe.evaluation.metrics import mean_mrr
from pathe.evaluation.ranking import sampled
from pathe.graph.prepared import PreparedGraph
from pathe.model.builder import STEP
from pathe.training.batches import Batches, n_steps

CHECK_EVERY = 16  # steps between checks for a finite loss on a GPU, as these synchronise
MONITOR = "valid_score"  # the logged score for early stopping and the best checkpoint


def validation_title(config: Config) -> str:
    """Returns the title of `valid_score`.

    Links are ranked among `valid_negatives` sampled negatives (0: all entities), relations among
    all relations; for task `multi` the score is the mean of both.
    """
    sampled = config.valid_negatives and config.relation_vectors == "table"
    among = f" among {config.valid_negatives} negatives" if sampled else ""
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


def weights_are_finite(model: torch.nn.Module) -> bool:
    """Whether no weight is NaN or infinite; synchronises with a GPU."""
    return all(bool(weight.isfinite().all()) for weight in model.parameters())


class Learner(pl.LightningModule, ABC):
    """Trains a model in batches of triples; subclasses compute the loss and validate."""

    model: Any  # a PathE or a FoundationModel
    train_M3: Tensor  # set by `setup`, as the other tensors on the training device
    valid_M3: Tensor

    def __init__(self, config: Config, prepared: PreparedGraph) -> None:
        super().__init__()
        self.config, self.prepared = config, prepared
        self.place = {"epoch": 0, "done": 0}  # of the first batch
        self.seeds_of = -1  # the epoch of `seeds`
        self.seeds: tuple[list[int], Tensor] = ([], torch.empty(0))
        self.seconds_before, self.begin = 0.0, time.perf_counter()
        self.loss_sum, self.loss_count = torch.zeros((), dtype=torch.float64), 0
        self.start_score: float | None = None  # of validation, before training
        self.rank, self.world = 0, 1  # this process among those that share each batch
        self.together_B: Tensor | None = None  # the whole batch, if this process has a share of it

    @abstractmethod
    def loss(self, ids_B: Tensor, seed: Tensor) -> Tensor:
        """Returns the loss of a batch, given as ids of training triples."""

    @abstractmethod
    def validate(self) -> dict[str, dict[str, Any]]:
        """Returns the metrics of each task on validation triples."""

    def setup(self, stage: str) -> None:
        """Moves the graph and the triples to the training device, once."""
        self.prepared = self.prepared.on(self.device)
        self.train_M3 = self.prepared.train_M3
        self.valid_M3 = sampled(self.prepared.triples("valid", "seen"), self.config.valid_triples)
        self.finite = torch.ones((), dtype=torch.bool, device=self.device)
        self.loss_sum = self.loss_sum.to(self.device)

    def on_train_start(self) -> None:
        """Validates a model that isn't new as it is, for comparison."""
        self._take_rate()
        if self.config.init != "none" and self.start_score is None and len(self.valid_M3):
            self.model.eval()
            self.start_score = mean_mrr(self.validate())
            self.model.train()

    def _take_rate(self) -> None:
        """Gives the optimiser the configured learning rate: a checkpoint may have another one."""
        rate, factor = self.config.learning_rate, 1.0
        for scheduled in self.trainer.lr_scheduler_configs:
            schedule: Any = scheduled.scheduler
            if schedule.base_lrs == [rate]:
                return
            schedule.base_lrs = [rate]
            factor = schedule.lr_lambdas[0](schedule.last_epoch)
        for optimizer in self.trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * factor

    def train_dataloader(self) -> Batches:
        self.world, self.rank = self.trainer.world_size, self.trainer.global_rank
        config = self.config
        self.batches = Batches(
            len(self.train_M3), config.batch_size, config.seed, self.rank, self.world, self.device,
            limit=config.epoch_triples,
        )  # fmt: skip
        self.batches.load_state_dict(self.place)
        return self.batches

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.check_loss()  # so that a checkpoint never has weights after a bad loss
        if not weights_are_finite(self.model):  # which the next loss would show
            raise TrainingError(f"Weights became NaN or infinite {self._at()}.")
        checkpoint["batches"] = self.batches.state_dict()
        checkpoint["seconds"] = self.seconds
        checkpoint["loss"] = (float(self.loss_sum), self.loss_count)
        checkpoint["start_score"] = self.start_score

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # Lightning restores a data loader's state only within an epoch, not at its end
        self.place = checkpoint["batches"]
        self.seconds_before = checkpoint.get("seconds", 0.0)
        total, self.loss_count = checkpoint.get("loss", (0.0, 0))
        self.loss_sum.fill_(total)
        self.start_score = checkpoint.get("start_score")

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

    def build_optimizer(self) -> torch.optim.Optimizer:
        """Returns the optimiser of all parameters."""
        return torch.optim.Adam(self.model.parameters(), lr=self.config.learning_rate)

    def configure_optimizers(self) -> Any:
        adam = self.build_optimizer()
        if self.config.schedule == "constant":
            return adam
        n_batches = n_steps(self.config, len(self.train_M3))
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
            seeds = keyed(self.config.seed, STEP, epoch, places, 0)
            self.seeds_of, self.seeds = epoch, (seeds.tolist(), seeds.to(self.device))
        seed_torch(self.seeds[0][place] ^ self.rank, self.device)  # dropout
        n = len(ids_B)
        if self.world > 1:
            self.together_B = self.batches.whole(epoch, place)
            n = len(self.together_B[self.rank :: self.world])  # 0: the triple isn't its own
        loss = self.loss(ids_B, self.seeds[1][place])
        if place == 0:
            self.loss_sum, self.loss_count = torch.zeros_like(self.loss_sum), 0
        self.loss_sum += loss.detach() * n
        self.loss_count += n
        self.finite &= loss.isfinite()
        due = place % CHECK_EVERY == CHECK_EVERY - 1 or place == len(self.batches) - 1
        if due or self.device.type == "cpu":
            self.check_loss()
        self.log("loss", loss.detach(), prog_bar=True, on_step=True, batch_size=len(ids_B))
        if self.together_B is not None:  # gradients are averaged over processes, not triples
            if place == len(self.batches) - 1:
                self._add_up_losses()
            loss = loss * (n * self.world / len(self.together_B))
        return loss

    def on_train_epoch_end(self) -> None:
        self.log("loss_epoch", self.epoch_loss)

    def _add_up_losses(self) -> None:
        """Adds the losses of all processes, so that an epoch's loss is that of whole batches."""
        sums = torch.stack([self.loss_sum, self.loss_sum.new_tensor(self.loss_count)])
        total: Any = self.trainer.strategy.reduce(sums, reduce_op="sum")
        self.loss_sum, self.loss_count = total[0], int(total[1])

    def check_loss(self) -> None:
        """Raises a TrainingError if a loss so far was not finite."""
        if not self.finite:
            raise TrainingError(f"The loss became NaN or infinite {self._at()}.")

    def _at(self) -> str:
        """Says which step this is, and its learning rate; a GPU is asked only now and then."""
        step, rate = self.trainer.global_step, self.trainer.optimizers[0].param_groups[0]["lr"]
        before = "" if self.device.type == "cpu" else f", or up to {CHECK_EVERY} steps before"
        return (
            f"in step {step:,} (epoch {self.batches.epoch + 1}){before}, with a learning rate of "
            f"{rate:.3g}"
        )

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        with torch.autocast(self.device.type, enabled=False):  # as in evaluation
            found = self.validate()
        self.log(MONITOR, mean_mrr(found), prog_bar=True, batch_size=1)
        for name, metrics in found.items():
            for key, value in metrics.items():
                if isinstance(value, float):
                    self.log(f"{name}_{key}", value, batch_size=1)
