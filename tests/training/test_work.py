"""Guards against big slowdowns: they count work, not time."""

from __future__ import annotations

from typing import Any

import torch
from support.graphs import graph_of_ids, sorted_triples
from torch.utils._python_dispatch import TorchDispatchMode

from pathe.core.config import configure
from pathe.evaluation.ranking import evaluate_links
from pathe.graph.prepared import PreparedGraph
from pathe.model.builder import build_model, build_scorer
from pathe.model.encoder import PathEncoder
from pathe.model.featurizer import encode
from pathe.model.projector import NodeProjector
from pathe.training.vector_learner import PathELearner

N_ENTITIES, N_RELATIONS, DIM, BATCH = 2000, 7, 32, 256
SETTINGS = {"dim": DIM, "feedforward": DIM, "n_paths": 3, "batch_size": BATCH, "negatives": 50}


class Ledger(TorchDispatchMode):
    """Counts the tensor operations and remembers the largest tensor that any of them made."""

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.largest = 0, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        found = function(*args, **(kwargs or {}))
        self.operations += 1
        made = found if isinstance(found, tuple | list) else (found,)
        own = [x for x in made if isinstance(x, torch.Tensor) and not any(x is a for a in args)]
        storages = [x.untyped_storage().nbytes() for x in own]
        self.largest = max([self.largest, *storages])
        return found


def random_triples():
    made = torch.Generator().manual_seed(0)
    heads, tails = torch.randint(0, N_ENTITIES, (2, 8 * N_ENTITIES), generator=made)
    relations = torch.randint(0, N_RELATIONS, heads.shape, generator=made)
    return sorted_triples(torch.stack([heads, relations, tails], 1).tolist())


TRIPLES = random_triples()
PREPARED = PreparedGraph(graph_of_ids(TRIPLES.tolist(), [], N_ENTITIES, N_RELATIONS))


def step(monkeypatch, **settings) -> tuple[Ledger, list[int], list[int]]:
    """One training step: its ledger, the paths that it encoded and the entities it projected."""
    config = configure(settings=SETTINGS | {"accelerator": "cpu"} | settings)
    model = build_model(config, N_RELATIONS)
    learner = PathELearner(model, config, PREPARED)
    learner.setup("fit")
    encoded, projected = [], []
    encode_paths, project = PathEncoder.forward, NodeProjector.forward

    def count_paths(self, table, tokens, *rest):
        encoded.append(len(tokens))
        return encode_paths(self, table, tokens, *rest)

    def count_entities(self, incoming, *rest):
        projected.append(len(incoming.offsets_V1) - 1)
        return project(self, incoming, *rest)

    monkeypatch.setattr(PathEncoder, "forward", count_paths)
    monkeypatch.setattr(NodeProjector, "forward", count_entities)
    with Ledger() as ledger:
        learner.loss(torch.arange(config.batch_size), torch.tensor(1)).backward()
    return ledger, encoded, projected


def test_a_step_encodes_each_distinct_entity_once(monkeypatch):
    ledger, encoded, projected = step(monkeypatch)
    distinct = len(set(TRIPLES[:BATCH, [0, 2]].flatten().tolist()))
    assert len(encoded) == len(projected) == 1
    assert distinct * 3 <= encoded[0] <= (distinct + 100) * 3  # 50 shared negatives a side
    assert projected[0] < N_ENTITIES  # those on the paths
    assert ledger.operations < 1500  # 1,164 when this was written


def test_softmax_over_all_entities_holds_scores_and_never_vectors(monkeypatch):
    ledger, encoded, _ = step(monkeypatch, negative_sampling="all")
    assert encoded == [3 * N_ENTITIES]
    # the scores of a batch, or what encoding all entities takes: far from batch x entities x width
    assert ledger.largest <= max(4 * BATCH * N_ENTITIES, 4 * 3 * N_ENTITIES * 5 * DIM)
    assert ledger.operations < 1500


def test_full_ranking_on_a_cpu_holds_no_score_matrix():
    config = configure(settings=SETTINGS)
    model = build_model(config, N_RELATIONS).eval()
    known, scorer = PREPARED.known(), build_scorer(model, config, PREPARED, n_paths=1, seed=0)
    known.lists("head"), known.lists("tail")  # built once per graph
    alone = Ledger()
    with alone:
        encode(model, scorer.featurizer, torch.arange(N_ENTITIES), seed=0)
    queries = PREPARED.train_M3[:4000]
    with Ledger() as ledger:
        evaluate_links(scorer, queries, known)
    per_query = (ledger.largest - alone.largest) / len(queries)
    assert per_query <= 8 * DIM * 4  # a query's vectors, not its N_ENTITIES scores
    assert ledger.operations - alone.operations < 300  # however many queries there are


def test_work_grows_with_the_batch_and_not_with_the_steps_taken_for_it(monkeypatch):
    few, _, _ = step(monkeypatch, batch_size=64)
    many, _, _ = step(monkeypatch, batch_size=256)
    assert few.operations == many.operations  # no Python for each triple or path
