"""The search for missing facts in parts: the same as in one process, bit for bit."""

from __future__ import annotations

import pytest
from support.commands import pathe
from support.graphs import knowledge_graph
from support.models import BRIDGE, any_graph_artifact, artifact_of
from support.places import ROOT

from pathe.cluster import search
from pathe.cluster.graphs import source_of
from pathe.cluster.job import in_this_process, read_parts, run_job
from pathe.model import scorer as scoring
from pathe.predict import missing
from pathe.predict.predictor import Predictor

N_PEOPLE, N_CITIES = 60, 12
MODELS = {
    "vectors": lambda kg: artifact_of(kg),
    "one by one": lambda kg: any_graph_artifact(),
    "frontier": lambda kg: any_graph_artifact(),
}


def lands():
    """People with a birthplace, friends and places that they visited; some facts are missing."""
    cities, people = range(N_CITIES), range(N_CITIES, N_CITIES + N_PEOPLE)
    rows = [(city, 0, city % 4) for city in cities if city > 3]
    rows += [(p, 1, p * 7 % N_CITIES) for p in people if p % 9]
    rows += [(p, 2, N_CITIES + (p * p) % N_PEOPLE) for p in people]
    rows += [(p, 3, (p * a + a) % N_CITIES) for p in people for a in (5, 11) if p % (a + 2)]
    return knowledge_graph(row for row in rows if row[0] != row[2])


def backwards(job, numbers):
    """Shards in another order, as on a cluster."""
    return in_this_process(job, numbers[::-1])


def runner(folder, backend):
    def run(job):
        run_job(job, folder / job.name, backend)
        return read_parts(job, folder / job.name)

    return run


@pytest.mark.parametrize("kind", MODELS)
def test_a_search_in_parts_finds_what_one_process_finds(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "QUERIES", 2)
    monkeypatch.setattr(missing, "FIT_QUERIES", 60)
    monkeypatch.setattr(missing, "ENOUGH", 20)  # one round of hiding
    monkeypatch.setattr(scoring, "memory_budget", lambda device: 7_000)  # chunks of some queries
    if kind == "one by one":
        monkeypatch.setattr(scoring, "STATE_CACHE", 1)
    kg, frontier = lands(), 40 if kind == "frontier" else None
    artifact = MODELS[kind](kg)
    p, plain = (Predictor(artifact, kg, frontier=frontier) for _ in range(2))
    assert plain.scorer.one_by_one == (kind == "one by one")
    assert search.can_split(plain.scorer)
    expected = plain.missing(60, queries=60)
    steps = search.search_steps(source_of(p), runner(tmp_path, backwards))
    found = p.missing(60, queries=60, steps=steps)
    assert len(expected) > 20
    assert found == expected  # floats, too
    names = {path.name for path in tmp_path.iterdir()}
    whole = {f"{step}-{side}" for step in ("asked", "ranked") for side in ("head", "tail")}
    assert whole < names
    assert {f"hidden-0-{name}" for name in whole} < names
    for name in whole:
        assert len(list((tmp_path / name).glob("part-*"))) > 1


@pytest.mark.parametrize("frontier", [0, 40])
def test_a_search_whose_scores_depend_on_those_before_is_not_split(frontier):
    kg = lands()
    p = Predictor(any_graph_artifact(), kg, frontier=frontier)
    assert search.can_split(p.scorer) == (frontier > 0)
    assert not search.can_split(Predictor(artifact_of(kg, **BRIDGE), kg).scorer)


@pytest.mark.slow
def test_the_command_works_in_parts_and_continues(tmp_path):
    data = ROOT / "examples" / "europe.csv"
    args = ("missing", "--data", data, "--relation", "borders", "-k", "5", "--no-reasons")

    def run(out, *more):
        found = pathe(*args, "--out", out, *more, cwd=tmp_path)
        assert found.returncode == 0, found.stderr
        return (tmp_path / out).read_bytes(), found.stderr

    plain, _ = run("plain.json", "--frontier", "20")
    parts, _ = run("parts.json", "--frontier", "20", "--parts", "parts")
    assert parts == plain
    damaged = tmp_path / "parts" / "asked-tail" / "part-000000.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    again, said = run("again.json", "--frontier", "20", "--parts", "parts")
    assert again == plain
    assert said.count("computed again") == 1
    _, said = run("small.json", "--frontier", "0", "--parts", "none")
    assert "ignoring --cluster and --parts" in said
    assert not (tmp_path / "none").exists()
