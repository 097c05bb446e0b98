"""One command builds the training graph once, and every part of it that it needs once."""

from __future__ import annotations

from collections import Counter

import pytest
from support.commands import pathe
from support.graphs import toy
from support.models import BRIDGE, artifact_of

from pathe.graph import prepared
from pathe.model import artifact
from pathe.model.artifact import save_model

PARTS = ("build_graph", "both_ways", "context_slots", "by_pair")
QUERY = ("--head", "e0001", "--relation", "r1", "--tail", "e0002")
TRAIN = ["train", "graph", "--out", "run", "--set", "max_epochs=2", "--set", "dim=8"]
USE = ("model", "--data", "graph", "--device", "cpu")


@pytest.fixture
def built(monkeypatch):
    """How often each part of a graph was built."""
    counts: Counter[str] = Counter()
    for name in PARTS:
        real = getattr(prepared, name)

        def spy(*args, name=name, real=real):
            counts[name] += 1
            return real(*args)

        monkeypatch.setattr(prepared, name, spy)
    return counts


@pytest.mark.parametrize(
    "command",
    [
        TRAIN,
        [*TRAIN, "--task", "multi", "--set", "bridge=paths", "--set", "hold_out_pairs=true"],
        ["evaluate", *USE],
        ["evaluate", *USE, "--protocol", "sampled:20", "--task", "relation"],
        ["evaluate", *USE, "--parts", "parts"],
        ["predict", *USE, *QUERY[:4]],
        ["predict", *USE, *QUERY, "--explain"],
        ["similar", *USE, "--entity", "e0001"],
        ["rules", *USE, "--relation", "r1"],
    ],
    ids=" ".join,
)
def test_a_command_builds_the_graph_once(command, built, tmp_path):
    kg = toy()
    kg.save(tmp_path / "graph")
    save_model(tmp_path / "model", artifact_of(kg, **BRIDGE))
    done = pathe(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert built["build_graph"] == 1
    assert max(built.values()) == 1, built


def test_rules_loads_the_model_once(monkeypatch, tmp_path):
    toy().save(tmp_path / "graph")
    save_model(tmp_path / "model", artifact_of(toy(), **BRIDGE))
    loaded, real = [], artifact.load_model
    monkeypatch.setattr(artifact, "load_model", lambda *given: loaded.append(given) or real(*given))
    done = pathe("rules", *USE, "--relation", "r1", "-k", 1, "--facts", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(loaded) == 1
