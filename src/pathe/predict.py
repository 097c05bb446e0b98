"""Names in, names out: the likeliest answers to a question about a graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pathe.artifact import Artifact
from pathe.builder import TEST, build_describer, derived_seed
from pathe.datasets import KnowledgeGraph
from pathe.encoding import encode
from pathe.errors import ConfigError
from pathe.evaluation import check_task
from pathe.graph import build_graph
from pathe.known import index_triples


@dataclass(frozen=True)
class Answer:
    """One answer: its place, its name and the model's score (higher is better)."""

    rank: int
    name: str
    score: float


@torch.inference_mode()
def predict(
    artifact: Artifact,
    kg: KnowledgeGraph,
    *,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    k: int = 10,
    filter_known: bool = True,
) -> list[Answer]:
    """The k best answers for the one part of (head, relation, tail) that is left open.

    Entities are described by the graph's train split; answers that any split already holds are
    left out unless `filter_known` is False.
    """
    given = {"head": head, "relation": relation, "tail": tail}
    asked = [part for part, name in given.items() if name is None]
    if len(asked) != 1:
        raise ConfigError("Give two of head, relation and tail; the third is what is asked for.")
    side = asked[0]
    check_task(artifact.config.task, "relation" if side == "relation" else "link")
    config, model = artifact.config, artifact.model
    h = torch.tensor([kg.entities.id(head)]) if head is not None else None
    r = torch.tensor([kg.relations.id(relation)]) if relation is not None else None
    t = torch.tensor([kg.entities.id(tail)]) if tail is not None else None
    everything = torch.cat([kg.train, kg.valid, kg.test])
    known = index_triples(everything, kg.n_entities, kg.n_relations)
    graph = build_graph(kg.train, kg.n_entities, kg.n_relations)
    describe = build_describer(config, graph, config.eval_paths)
    seed = derived_seed(config.seed, TEST)
    if h is not None and t is not None:
        z = encode(model, describe, torch.cat([h, t]), seed=seed)
        scores, taken = model.relation_scores(z[:1], z[1:])[0], known.relations(h, t)[1]
        names = kg.relations
    else:
        z = encode(model, describe, torch.arange(kg.n_entities), seed=seed)
        assert r is not None
        if h is not None:
            answers = model.candidates(z, "tail")
            scores = model.candidate_scores(z[h], r, answers, "tail")[0]
            taken = known.tails(h, r)[1]
        else:
            assert t is not None
            answers = model.candidates(z, "head")
            scores = model.candidate_scores(z[t], r, answers, "head")[0]
            taken = known.heads(r, t)[1]
        names = kg.entities
    if filter_known:
        scores[taken] = float("-inf")
    best = scores.topk(min(k, int((scores > float("-inf")).sum())))
    pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return [Answer(i + 1, names[e], s) for i, (s, e) in enumerate(pairs)]
