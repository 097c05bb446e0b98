"""Averages of fine-tuned weights with the weights before training, as in WiSE-FT.

Fine-tuning may fit a training graph too closely, above all if the model is to work on another
graph. An average of both sets of weights often does better than either, and costs nothing at
prediction time. Validation chooses the share of the fine-tuned weights, 0 and 1 included.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from pathe.evaluation.metrics import mean_mrr
from pathe.evaluation.ranking import evaluate
from pathe.graph.prepared import PreparedGraph, prepare
from pathe.model.artifact import Artifact
from pathe.training.learner import Learner

SHARES = (0.25, 0.5, 0.75)  # of the fine-tuned weights, beside 0 and 1


@dataclass(frozen=True)
class Averaged:
    """The share of the fine-tuned weights that validates best, and the scores of all shares."""

    share: float
    scores: dict[str, float]  # validation score by share
    graph: str  # whose validation triples were ranked
    own_score: float  # of the average, on the training graph's validation triples

    def words(self, epoch: str, start: str) -> str:
        """Returns a sentence on what was kept, given the names of the epoch and of the start."""
        where = f"MRR {self.scores[str(self.share)]:.3f} on the validation triples of {self.graph}"
        match self.share:
            case 0.0:
                return f"kept {start} as it is: training didn't improve it ({where})"
            case 1.0:
                return f"kept the model of {epoch}: {where}"
            case share:
                return (
                    f"kept the average of {epoch} ({share:.0%}) and {start} ({1 - share:.0%}): "
                    f"{where}"
                )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def average_with_start(
    learner: Learner, start: Learner, score: float, device: torch.device
) -> Averaged:
    """Gives the learner the average of its weights and the start's that validates best.

    If the graph comes with an inference graph that has validation triples, these decide. `score`
    is the learner's validation score; that of the start is known from before training.
    """
    assert learner.start_score is not None
    tuned = {key: weight.clone() for key, weight in learner.model.state_dict().items()}
    before = start.model.state_dict()
    target = _inference(learner.prepared, device)

    def use(share: float) -> None:
        learner.model.load_state_dict(
            {key: before[key].lerp(weight, share) for key, weight in tuned.items()}
        )
        learner.to(device).eval()

    def own() -> float:
        return mean_mrr(learner.validate())

    scores = {} if target else {0.0: learner.start_score, 1.0: score}
    for share in (0.0, *SHARES, 1.0):
        if share not in scores:
            use(share)
            with torch.inference_mode():
                scores[share] = _score(learner, target) if target else own()
    best = max(scores, key=lambda share: (scores[share], -share))
    use(best)
    with torch.inference_mode():
        known = {0.0: learner.start_score, 1.0: score} | ({} if target else scores)
        own_score = known[best] if best in known else own()
    name = (target or learner.prepared).kg.name
    ordered = {str(share): scores[share] for share in sorted(scores)}
    return Averaged(best, ordered, name, own_score)


def _inference(prepared: PreparedGraph, device: torch.device) -> PreparedGraph | None:
    """Returns the inference graph that comes with a graph, if it has validation triples."""
    inference = prepared.kg.inference
    if inference is None or not len(inference.valid):
        return None
    found = prepare(inference, device)
    return found if len(found.triples("valid", "seen")) else None


def _score(learner: Learner, target: PreparedGraph) -> float:
    """Returns the validation score on another graph."""
    config, relations = learner.config, learner.prepared.kg.relations
    any_graph = config.relation_vectors == "graph"
    artifact = Artifact(learner.model, config, None if any_graph else relations)
    found = {
        task: evaluate(
            artifact, target, split="valid", task=task, device=target.device,
            at_most=config.valid_triples,
        )
        for task in config.tasks
    }  # fmt: skip
    return mean_mrr(found)
