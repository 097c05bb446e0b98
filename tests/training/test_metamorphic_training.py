"""What must not change a trained model: test triples, the order of lines, the number of threads."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from support.models import ANY
from support.places import ROOT
from support.runs import train, weights

from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import load_model
from pathe.model.builder import build_scorer
from pathe.training.checkpoints import read_checkpoint

Row = tuple[str, str, str]
SHIPPED = ANY | {"bridge_dim": 64, "bridge_hops": 6, "relation_layers": 4, "init": "pretrained"}
KINDS = {
    "bridges": {"task": "multi", "bridge": "paths", "bridge_dim": 4, "bridge_hops": 2},
    "published": {
        "path_form": "joined", "positions": "absolute", "aggregator": "transformer", "heads": 2,
        "path_source": "mined", "n_mined": 4, "context_counts": "raw", "negative_sampling": "each",
    },
    "all negatives": {"negative_sampling": "all", "neighbour_contexts": True},
    "relation-free": SHIPPED,
}  # fmt: skip
kinds = pytest.mark.parametrize("kind", KINDS)


def ring(n: int = 40) -> list[Row]:
    rows = [(f"e{i:02}", "next", f"e{(i + 1) % n:02}") for i in range(n)]
    rows += [(t, "before", h) for h, _, t in rows]
    return [*rows, *((f"e{i:02}", "second", f"e{(i + 2) % n:02}") for i in range(n))]


def trained(folder, kind: str, test: Iterable[Row], shuffle: int = 0) -> dict[str, torch.Tensor]:
    """The weights and the validation scores of a short run."""
    rows = ring()
    splits = rows[::5], [row for i, row in enumerate(rows) if i % 5]
    if shuffle:
        for split in splits:
            random.Random(shuffle).shuffle(split)
    kg = KnowledgeGraph.from_triples(splits[1], splits[0], test)
    settings = {"max_epochs": 2, "batch_size": 30} | KINDS[kind]
    train(kg, folder, **settings)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    scores = [json.loads(line)["valid_score"] for line in lines]
    return weights(folder) | {"valid_score": torch.tensor(scores, dtype=torch.float64)}


def assert_same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def garbage(n: int = 50) -> list[Row]:
    """Random triples of known entities and relations."""
    draw = random.Random(0)
    names = sorted({name for h, _, t in ring() for name in (h, t)})
    return [
        (draw.choice(names), draw.choice(["next", "second"]), draw.choice(names)) for _ in range(n)
    ]


@kinds
def test_garbage_in_test_leaves_training_as_it_is_bit_for_bit(tmp_path, kind):
    alone = trained(tmp_path / "alone", kind, [])
    assert_same(trained(tmp_path / "garbage", kind, garbage()), alone)


@pytest.mark.parametrize("kind", ["bridges", "published"])
def test_new_names_in_test_change_which_epoch_is_best_but_no_step(tmp_path, kind):
    """All entities of a data set are candidates, as usual: in validation, not in these losses.

    Where relation vectors are computed from the graph, they are candidates of the loss, too. The
    names are sorted last here, as draws of paths depend on ids. Where all entities are encoded in
    every step (negative_sampling=all), the draws of dropout depend on their number.
    """
    new = [(f"new{i}", "next", f"e{i:02}") for i in range(20)]
    steps = []
    for name, test in (("alone", []), ("new", [*garbage(), *new, ("new1", "before", "new2")])):
        trained(tmp_path / name, kind, test)
        last = read_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt")
        steps.append(last["state_dict"])
    assert_same(*steps)


@kinds
def test_the_order_of_lines_leaves_training_as_it_is_bit_for_bit(tmp_path, kind):
    alone = trained(tmp_path / "alone", kind, [])
    assert_same(trained(tmp_path / "shuffled", kind, [], shuffle=1), alone)


THREADED = ("bridges", "relation-free")


def main(folder: Path) -> None:
    """Trains, and scores all queries of the ring with each model."""
    kg = KnowledgeGraph.from_triples(ring())
    for kind in THREADED:
        trained(folder / kind, kind, [])
        artifact = load_model(folder / kind)
        scorer = build_scorer(artifact.model, artifact.config, PreparedGraph(kg))
        scores = [scorer.scores(scorer.prepared.train_M3, side) for side in ("head", "tail")]
        torch.save(torch.stack(scores), folder / f"{kind}.pt")


@pytest.mark.slow
def test_threads_change_the_weights_only_by_rounding(tmp_path):
    """Scores up to a constant per query, which cross-entropy leaves to chance."""
    made = []
    for threads in ("1", "3"):
        folder = tmp_path / threads
        folder.mkdir()
        env = os.environ | {
            "OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        }  # fmt: skip
        subprocess.run([sys.executable, __file__, folder], check=True, env=env)
        made.append([torch.load(folder / f"{kind}.pt", weights_only=True) for kind in THREADED])
    for ours, theirs in zip(*made, strict=True):
        ours, theirs = (scores - scores.mean(-1, keepdim=True) for scores in (ours, theirs))
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
