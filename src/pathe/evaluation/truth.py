"""The probability that a triple is true, from how a model ranks it and what the graph says.

A triple is two queries: (head, relation, ?) and (?, relation, tail). Their scores alone don't say
whether it is true: the best of all answers may be wrong where an entity has no answer at all, or
has it already. So a small network reads both sides' ranks and probabilities, how many answers are
known, how many the relation's queries usually have, and whether entities of that kind have the
relation. It is fitted on triples that are known to be true or false.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pathe.core.randomness import keyed
from pathe.core.types import PARTS, SIDES, Progress, Side
from pathe.graph.adjacency import Graph
from pathe.graph.expectations import Expectations, expectations
from pathe.graph.functionality import Functionality, Overrides, functionality
from pathe.graph.known import KnownTriples
from pathe.model.scorer import Scorer

SIDE_FEATURES = 10
FEATURES = 2 * SIDE_FEATURES + 1
FLOOR, MARGIN = -20.0, 15.0  # bounds of log probabilities and of differences of scores
HIDDEN, STEPS, RATE, PENALTY = 16, 300, 0.02, 1e-3  # of the network; chosen on CoDEx-S's valid
BETAS = 0.9, 0.999  # of Adam
FOLDS = 3
ROUNDS = 6  # of fits, where false examples may be true after all
FEWEST = 30  # examples of a relation from which on it has a threshold of its own


@dataclass(frozen=True)
class Background:
    """What a graph says about its relations, computed once."""

    n_relations: int
    sizes_R: Tensor  # training triples per relation
    functional: dict[Side, Functionality]
    expected: Expectations

    def kinds(self, relations_B: Tensor, side: Side) -> Tensor:
        """Returns the kind of edge that a query's entity needs: r, or r + R for head queries."""
        return relations_B if side == "tail" else relations_B + self.n_relations


def background(graph: Graph, overrides: Overrides | None = None) -> Background:
    """Counts and fits what `Background` has, on a graph."""
    triples_M3 = graph.triples_M3.long()
    sizes_R = torch.bincount(triples_M3[:, 1], minlength=graph.n_relations)
    functional = functionality(graph, overrides)
    return Background(graph.n_relations, sizes_R, functional, expectations(graph))


Scores = Callable[[Tensor, Side], Tensor]  # of all candidates for one part of triples


class SideRanks(NamedTuple):
    """One part of each triple among all candidates that aren't known; others don't compete."""

    scores_B: Tensor
    log_chances_B: Tensor  # log-softmax with the model's temperature
    ranks_B: Tensor  # mean rank of ties
    margins_B: Tensor  # to the best other candidate
    known_B: Tensor  # number of other known answers


@torch.no_grad()
def side_ranks(
    scorer: Scorer,
    known: KnownTriples,
    triples_M3: Tensor,
    side: Side,
    temperature: float,
    progress: Progress | None = None,
    scores: Scores | None = None,
) -> SideRanks:
    """Ranks one side of triples, whether known or not.

    `scores` gives the scores of queries if they aren't simply the scorer's: minus infinity for
    candidates that don't compete, but never for the triple's own.
    """
    column, n, scores = PARTS.index(side), scorer.prepared.n_entities, scores or scorer.scores
    order_M = torch.argsort(triples_M3[:, 1] * n + triples_M3[:, 2 - column], stable=True)
    found, done = [], 0
    for ids_B3 in triples_M3[order_M].split(scorer.rows_at_once()):
        given = scores(ids_B3, side), known.find(ids_B3, side), ids_B3[:, column, None]
        ranks = candidate_ranks(*given, temperature)
        found.append([part_B1[:, 0] for part_B1 in ranks])
        done += len(ids_B3)
        if progress:
            progress(done, len(triples_M3))
    back_M = order_M.argsort()
    return SideRanks(*(torch.cat(parts)[back_M] for parts in zip(*found, strict=True)))


def candidate_ranks(
    scores_BE: Tensor, known: tuple[Tensor, Tensor], candidates_BK: Tensor, temperature: float
) -> SideRanks:
    """Ranks K candidates per query by the scores of all, among those that aren't known.

    `known` are rows and entities; a known candidate competes, too. The scores of known answers are
    set to minus infinity, in place. Returns columns of shape (B, K).
    """
    n_rows, n_entities = scores_BE.shape
    own_BK, known_B = scores_BE.gather(1, candidates_BK), torch.bincount(known[0], minlength=n_rows)
    scores_BE[known] = float("-inf")
    listed_BK = scores_BE.gather(1, candidates_BK) == own_BK  # not known, so among the scores
    scaled_BK, total_B1 = own_BK / temperature, (scores_BE / temperature).logsumexp(1, keepdim=True)
    total_BK = torch.where(listed_BK, total_B1, total_B1.logaddexp(scaled_BK))
    columns = own_BK.split(1, 1)
    higher_BK = torch.stack([(scores_BE > own_B1).sum(1) for own_B1 in columns], 1)
    equal_BK = (
        torch.stack([(scores_BE == own_B1).sum(1) for own_B1 in columns], 1) - listed_BK.long()
    )
    best = scores_BE.topk(min(2, n_entities), 1)
    first_B1, second_B1 = best.values[:, :1], best.values[:, 1:]
    if n_entities == 1:
        second_B1 = torch.full_like(first_B1, float("-inf"))
    other_BK = torch.where(candidates_BK == best.indices[:, :1], second_B1, first_B1)
    return SideRanks(
        own_BK,
        scaled_BK - total_BK,
        1 + higher_BK + equal_BK / 2,
        own_BK - other_BK,
        known_B[:, None] - (~listed_BK).long(),
    )


def side_features(
    about: Background, triples_B3: Tensor, side: Side, ranks: SideRanks, own_B: Tensor
) -> Tensor:
    """Returns (B, SIDE_FEATURES) of one side of triples; own_B: which are in the graph."""
    column, relations_B = PARTS.index(side), triples_B3[:, 1]
    asked_B, answer_B = triples_B3[:, 2 - column], triples_B3[:, column]
    own = about.functional[side]
    single_B, has_B = own.single_R[relations_B], (ranks.known_B > 0).float()
    kinds_B = about.kinds(relations_B, side)
    back_B = about.kinds(relations_B, "head" if side == "tail" else "tail")
    return torch.stack(
        [
            ranks.log_chances_B.clamp(min=FLOOR),
            ranks.ranks_B.log(),
            ranks.margins_B.clamp(-MARGIN, MARGIN),
            ranks.known_B.float().log1p(),
            single_B,
            own.mean_R[relations_B].clamp(min=1).log(),
            has_B * single_B,
            about.expected.predicted(asked_B, kinds_B),
            (about.expected.counts(answer_B, back_B) - own_B.long()).float().log1p(),
            about.expected.predicted(answer_B, back_B),
        ],
        1,
    )


def features(
    about: Background, triples_B3: Tensor, ranks: dict[Side, SideRanks], own_B: Tensor
) -> Tensor:
    """Returns (B, FEATURES) of triples that were ranked on both sides.

    own_B says which of them are in the graph: their own edges don't count.
    """
    sides = [side_features(about, triples_B3, side, ranks[side], own_B) for side in SIDES]
    return torch.cat([*sides, about.sizes_R[triples_B3[:, 1]].float().log1p()[:, None]], 1)


class Examples(NamedTuple):
    """Triples to fit on, or to judge: features, relations and, where known, whether true."""

    features_BF: Tensor
    relations_B: Tensor
    true_B: Tensor  # bool
    doubt_B: Tensor | None = None  # the prior probability that an example is true after all


class Truth:
    """Gives triples a probability of being true, and relations a threshold to call them so.

    Members of an ensemble are fitted on all folds but one each; temperature and thresholds are
    fitted on the folds that were left out.

    With `unlabelled`, examples that aren't labelled true may be true, too. Then probabilities are
    divided by the share of true ones that are labelled (Elkan and Noto, 2008), which is estimated
    from the labelled ones that look most true. With `doubt_B`, the labels of negatives are
    re-estimated by expectation maximisation.
    """

    def __init__(
        self, examples: Examples, n_relations: int, seed: int = 0, *, unlabelled: bool = False
    ) -> None:
        x_BF, relations_B, true_B, doubt_B = examples
        if not len(x_BF):
            raise ValueError("no examples to fit on")
        self.mean_F = x_BF.mean(0)
        self.scale_F = x_BF.std(0, correction=0).clamp(min=1e-3)
        fold_B = keyed(seed, torch.arange(len(x_BF), device=x_BF.device)).argsort().argsort()
        fold_B = fold_B % FOLDS
        scaled, target_B = Examples(self._scaled(x_BF), relations_B, true_B), true_B.float()
        for _ in range(1 if doubt_B is None else ROUNDS):
            self.members = _fit(scaled, target_B, fold_B, n_relations)
            logits_B = self.members(*scaled[:2]).gather(1, fold_B[:, None])[:, 0]
            self.scale = _temperature(logits_B, target_B)
            chances_B = (self.scale * logits_B).sigmoid()
            if doubt_B is not None:
                target_B = _revised(chances_B, target_B, true_B, doubt_B)
        self.labelled = _labelled(chances_B[true_B]) if unlabelled else 1.0
        self.thresholds_R = _thresholds(chances_B, relations_B, target_B, n_relations)

    @torch.no_grad()
    def __call__(self, features_BF: Tensor, relations_B: Tensor) -> Tensor:
        """Returns the probability of each triple."""
        chances_B = self.logits(features_BF, relations_B).sigmoid()
        return (chances_B / self.labelled).clamp(max=1)

    @torch.no_grad()
    def logits(self, features_BF: Tensor, relations_B: Tensor) -> Tensor:
        """Returns numbers in the order of the probabilities; they differ where these are all 1."""
        return self.scale * self.members(self._scaled(features_BF), relations_B).mean(1)

    def state(self) -> dict[str, Tensor]:
        """Returns what `restored` needs, without relations."""
        scale_1 = torch.tensor([self.scale])
        values_P = self.members.values_P.contiguous()
        return {
            "mean": self.mean_F,
            "deviation": self.scale_F,
            "scale": scale_1,
            "values": values_P,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Tensor]) -> Truth:
        """Returns what was fitted as if there were one relation."""
        truth = cls.__new__(cls)
        truth.mean_F, truth.scale_F = state["mean"], state["deviation"]
        truth.scale, truth.labelled = float(state["scale"]), 1.0
        truth.members = _Members(len(truth.mean_F), 1)
        truth.members.use(state["values"])
        truth.thresholds_R = torch.full((1,), 0.5)
        return truth

    def _scaled(self, features_BF: Tensor) -> Tensor:
        return (features_BF - self.mean_F) / self.scale_F


class _Weights(NamedTuple):
    """The weights of an ensemble, or their gradients: views of one vector.

    U are the hidden units of all members, then a linear one of each member; G are the features, and
    a constant.
    """

    inputs_GU: Tensor
    shifts_RU: Tensor
    outer_MH: Tensor
    bias_M: Tensor


class _Members:
    """The ensemble: a hidden layer beside a linear one; each relation shifts both.

    Members start from the same weights and are evaluated together.
    """

    def __init__(self, n_features: int, n_relations: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            inner, outer = nn.Linear(n_features, HIDDEN), nn.Linear(HIDDEN, 1)
            linear = nn.Linear(n_features, 1)
        n_units = FOLDS * (HIDDEN + 1)
        self.shapes = [(n_features + 1, n_units), (n_relations, n_units), (FOLDS, HIDDEN), (FOLDS,)]
        self.use(torch.zeros(sum(map(math.prod, self.shapes))))
        with torch.no_grad():
            self.weights.inputs_GU[:-1, :-FOLDS] = inner.weight.t().repeat(1, FOLDS)
            self.weights.inputs_GU[-1, :-FOLDS] = inner.bias.repeat(FOLDS)
            self.weights.inputs_GU[-1, -FOLDS:] = linear.bias
            self.weights.outer_MH[:] = outer.weight
            self.weights.bias_M[:] = outer.bias

    def use(self, values_P: Tensor) -> None:
        """Takes these weights."""
        self.values_P, self.weights = values_P, self.parts(values_P)

    def parts(self, values_P: Tensor) -> _Weights:
        """Returns views of a vector like that of all weights."""
        flat = values_P.split([math.prod(shape) for shape in self.shapes])
        return _Weights(*(part.view(s) for part, s in zip(flat, self.shapes, strict=True)))

    def __call__(self, x_BF: Tensor, relations_B: Tensor) -> Tensor:
        """Returns (B, M) logits."""
        return self.logits(_with_constant(x_BF), relations_B)[1]

    def logits(self, x_BG: Tensor, relations_B: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (B, M, H) hidden states and (B, M) logits."""
        inputs_GU, shifts_RU, outer_MH, bias_M = self.weights
        units_BU = (x_BG @ inputs_GU).add_(shifts_RU[relations_B])
        hidden_BMH = units_BU[:, :-FOLDS].relu().view(-1, FOLDS, HIDDEN)
        return hidden_BMH, (hidden_BMH * outer_MH).sum(2) + units_BU[:, -FOLDS:] + bias_M

    def gradients(
        self, x_BG: Tensor, relations_B: Tensor, hidden_BMH: Tensor, error_BM: Tensor, to: _Weights
    ) -> None:
        """Writes the gradients of the weights, given those of the logits."""
        error_BM1 = error_BM[:, :, None]
        hidden_BX = (error_BM1 * self.weights.outer_MH).mul_(hidden_BMH > 0).flatten(1)
        units_BU = torch.cat([hidden_BX, error_BM], 1)
        torch.mm(x_BG.t(), units_BU, out=to.inputs_GU)
        to.shifts_RU.zero_().index_add_(0, relations_B, units_BU)
        to.outer_MH.copy_((error_BM1 * hidden_BMH).sum(0))
        to.bias_M.copy_(error_BM.sum(0))

    def each(self, values_M: Tensor) -> Tensor:
        """Returns the value of its member for each weight."""
        values_P = torch.empty_like(self.values_P)
        parts, values_M1 = self.parts(values_P), values_M[:, None]
        values_U = torch.cat([values_M1.expand(-1, HIDDEN).flatten(), values_M])
        for part, value in zip(parts, (values_U, values_U, values_M1, values_M), strict=True):
            part[:] = value
        return values_P


def _with_constant(x_BF: Tensor) -> Tensor:
    return F.pad(x_BF, (0, 1), value=1.0)


def _revised(chances_B: Tensor, target_B: Tensor, true_B: Tensor, doubt_B: Tensor) -> Tensor:
    """Returns the probability that each example is true: 1, or the prior and what the fit says."""
    share = float(target_B.mean().clamp(1e-3, 1 - 1e-3))
    ratio_B = (chances_B / (1 - chances_B).clamp(min=1e-6)) * (1 - share) / share
    odds_B = ratio_B * doubt_B / (1 - doubt_B)
    return torch.where(true_B, 1.0, odds_B / (1 + odds_B))


@torch.no_grad()
def _fit(examples: Examples, target_B: Tensor, fold_B: Tensor, n_relations: int) -> _Members:
    """Fits all members at once, each on all folds but its own.

    The penalty is per example, so that few examples stay near the prior. Gradients and Adam are
    written out: with those of torch, most of the time would go into calls. It runs on the CPU,
    where sums come out the same every time.
    """
    x_BF, relations_B = (part.cpu() for part in examples[:2])
    members = _Members(x_BF.shape[1], n_relations)
    seen_BM = fold_B.cpu()[:, None] != torch.arange(FOLDS)
    sizes_M = seen_BM.sum(0).clamp(min=1)
    share_BM, x_BG, target_B1 = seen_BM / sizes_M, _with_constant(x_BF), target_B[:, None].cpu()
    penalty_P = members.each(PENALTY * (1000 / sizes_M).clamp(min=1))
    slope_P, mean_P, square_P = (torch.zeros_like(members.values_P) for _ in range(3))
    slopes = members.parts(slope_P)
    for step in range(STEPS):
        hidden_BMH, logits_BM = members.logits(x_BG, relations_B)
        error_BM = logits_BM.sigmoid_().sub_(target_B1).mul_(share_BM)
        members.gradients(x_BG, relations_B, hidden_BMH, error_BM, slopes)
        slope_P.addcmul_(penalty_P, members.values_P, value=2)
        mean_P.lerp_(slope_P, 1 - BETAS[0])
        square_P.mul_(BETAS[1]).addcmul_(slope_P, slope_P, value=1 - BETAS[1])
        size_P = (square_P / (1 - BETAS[1] ** (step + 1))).sqrt_().add_(1e-8)
        rate = RATE * (1 + math.cos(math.pi * step / STEPS)) / 2
        members.values_P.addcdiv_(mean_P, size_P, value=-rate / (1 - BETAS[0] ** (step + 1)))
    members.use(members.values_P.to(examples.features_BF.device))
    return members


def _temperature(logits_B: Tensor, target_B: Tensor) -> float:
    """Returns the factor on logits with the smallest loss, of a grid from 0.3 to 2."""
    factors = torch.logspace(-0.5, 0.3, 33, device=logits_B.device)
    losses = [F.binary_cross_entropy_with_logits(f * logits_B, target_B) for f in factors]
    return float(factors[int(torch.stack(losses).argmin())])


def _labelled(chances_T: Tensor) -> float:
    """Returns the mean probability of the tenth of the labelled examples that look most true."""
    return (
        float(chances_T.topk(max(len(chances_T) // 10, 1)).values.mean()) if len(chances_T) else 1.0
    )


def _thresholds(chances_B: Tensor, relations_B: Tensor, target_B: Tensor, n: int) -> Tensor:
    """Returns the threshold per relation with the most right verdicts; 0.5 where data are few.

    Of equally good ones, that nearest to 0.5 is chosen.
    """
    thresholds_R = torch.full((n,), 0.5, device=chances_B.device)
    grid_T = torch.linspace(0.2, 0.8, 25, device=chances_B.device)
    sizes = torch.bincount(relations_B, minlength=n)
    for relation in (sizes >= FEWEST).nonzero().flatten().tolist():
        rows = relations_B == relation
        target_N1 = target_B[rows, None].double()
        right_T = torch.where(chances_B[rows, None] >= grid_T, target_N1, 1 - target_N1).sum(0)
        thresholds_R[relation] = grid_T[(right_T - (grid_T - 0.5).abs() * 2).argmax()]
    return thresholds_R


def calibration_error(chances_B: Tensor, true_B: Tensor, bins: int = 10) -> float:
    """Returns the expected calibration error: mean |probability - share of true|, by bin."""
    bin_B = (chances_B * bins).long().clamp(max=bins - 1)
    gaps = torch.zeros(bins, dtype=torch.double, device=chances_B.device)
    gaps.index_add_(0, bin_B, chances_B.double() - true_B.double())
    return float(gaps.abs().sum() / len(chances_B))
