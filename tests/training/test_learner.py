"""The learner: batches, steps, losses, what fits."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from random import Random

import pytest
import torch
from support.graphs import knowledge_graph, no_gpu, toy
from support.runs import learner, train, weights

from pathe.core.config import Config, configure, read_preset
from pathe.core.errors import ConfigError
from pathe.evaluation.ranking import evaluate_links, evaluate_relations
from pathe.graph.prepared import PreparedGraph
from pathe.model.builder import build_featurizer
from pathe.model.scorer import VectorScorer
from pathe.training.batches import Batches, distinct_exactly, distinct_padded
from pathe.training.learner import cosine
from pathe.training.memory import check_fits, check_weights


def fetch(batches: Batches, n: int | None = None) -> list[list[int]]:
    """Fetches and trains on n batches."""
    found = []
    for ids, epoch, place in batches:
        found.append(ids.tolist())
        batches.finish(epoch, place)
        if len(found) == n:
            break
    return found


def test_batches_cover_every_triple_once_an_epoch_and_resume_anywhere():
    batches = Batches(10, 4, seed=0)
    first, second = fetch(batches), fetch(batches)
    assert [len(b) for b in first] == [4, 4, 2] == [len(b) for b in second]
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(10))
    assert first != second
    for n in (1, 3):
        half, again = Batches(10, 4, seed=0), Batches(10, 4, seed=0)
        fetch(half, n)
        again.load_state_dict(half.state_dict())
        next(iter(again))  # fetched ahead, never trained on
        rest = first[n:] or second
        assert fetch(again) == rest


def test_processes_share_a_batch():
    shares = [[b.tolist() for b, _, _ in Batches(10, 4, 0, rank, 2)] for rank in (0, 1)]
    whole = [b.tolist() for b, _, _ in Batches(10, 4, 0)]
    assert [sorted(a + b) for a, b in zip(*shares, strict=True)] == [sorted(b) for b in whole]


@pytest.mark.parametrize("task", ["link", "relation", "multi"])
@pytest.mark.parametrize("sampling", ["each", "shared", "all"])
@pytest.mark.parametrize("hold_out", [True, False])
def test_every_kind_of_step_learns(task, sampling, hold_out):
    made = learner(toy(), task=task, negative_sampling=sampling, hold_out_batch=hold_out)
    ids = torch.arange(30)
    optimizer = made.configure_optimizers()
    losses = []
    for step in range(12):
        loss = sum(made.step_losses(made.step(ids, 7)).values())
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert step or all(p.grad is not None for p in made.model.parameters())
    assert losses[-1] < losses[0]


def test_all_entities_softmax_is_the_limit_of_own_negatives():
    """Against every entity but the known answers, however they are listed."""
    made = learner(toy(), negative_sampling="all", dropout=0.0, context_dropout=0.0)
    ids = torch.arange(5)
    found = made.step_losses(made.step(ids, 3))["link"]
    z = made.model.encode(made.featurizer.batch(torch.arange(60), 3))
    facts = {tuple(x) for x in made.train_M3.tolist()}
    total = 0.0
    for h, r, t in made.train_M3[ids].tolist():
        for side in ("tail", "head"):
            answers = [t if side == "tail" else h]
            answers += [
                e for e in made.pool_C.tolist()
                if ((h, r, e) if side == "tail" else (e, r, t)) not in facts
            ]  # fmt: skip
            heads, tails = (
                ([h] * len(answers), answers) if side == "tail" else (answers, [t] * len(answers))
            )
            scores = made.model.link_scores(z[heads], torch.full((len(answers),), r), z[tails])
            total += float((scores.logsumexp(0) - scores[0]).detach())
    assert float(found.detach()) == pytest.approx(total / 10, rel=1e-4)


def test_nothing_of_valid_or_test_reaches_training():
    """Planted validation and test edges between known entities leave every step as it was."""
    clean = toy()
    plants = [(0, 2, 30), (10, 0, 40)]
    planted = knowledge_graph(
        clean.train.tolist(),
        clean.valid.tolist() + plants[:1],
        clean.test.tolist() + plants[1:],
    )
    one, two = learner(clean), learner(planted)
    ids = torch.arange(40)
    for seed in range(3):
        torch.manual_seed(seed)
        first = one.step_losses(one.step(ids, seed))["link"]
        torch.manual_seed(seed)
        assert torch.equal(first, two.step_losses(two.step(ids, seed))["link"])
    assert not two.known.contains(torch.tensor(plants)).any()
    assert two.prepared.graph.n_triples == len(clean.train)


def test_entities_that_training_does_not_know_are_no_negatives():
    clean = toy()
    kg = knowledge_graph(clean.train.tolist(), clean.valid.tolist(), [(0, 0, 70)])
    made = learner(kg)
    assert made.pool_C.max() < 60
    for candidates in made._candidates(made.train_M3[:40], 0):
        assert candidates.entities.max() < 60


def test_twenty_triples_are_learnt_by_heart():
    random = Random(1)
    rows: set[tuple[int, int, int]] = set()
    while len(rows) < 20:
        rows.add((random.randrange(12), random.randrange(5), random.randrange(12)))
    kg = knowledge_graph(rows)
    made = learner(kg, task="multi", negative_sampling="all", dropout=0.0, context_dropout=0.0,
                   dim=32, n_paths=6, path_source="mined")  # fmt: skip
    optimizer = made.configure_optimizers()
    for step in range(300):
        optimizer.zero_grad()
        sum(made.step_losses(made.step(torch.arange(20), step)).values()).backward()
        optimizer.step()
    scorer = VectorScorer(made.model.eval(), made.featurizer)
    for how in (evaluate_links, evaluate_relations):
        assert how(scorer, made.train_M3, made.known)["mrr"] == 1


@pytest.mark.parametrize("negative_sampling", ["each", "shared", "all"])
@pytest.mark.parametrize("task", ["link", "relation", "multi"])
@pytest.mark.parametrize("aggregator", ["mean", "lstm", "transformer", "transformer-joint"])
def test_every_aggregator_learns_every_task(aggregator, task, negative_sampling):
    if (aggregator, negative_sampling) == ("transformer-joint", "all"):
        pytest.skip("refused: it would take a pass for every pair")
    made = learner(toy(), task=task, negative_sampling=negative_sampling, aggregator=aggregator)
    loss = made.loss(torch.arange(20), torch.tensor(1))
    loss.backward()
    assert torch.isfinite(loss)
    grads = [p.grad for p in made.model.parameters()]
    assert all(g is not None and torch.isfinite(g).all() for g in grads)


@no_gpu
@pytest.mark.parametrize(
    "settings",
    [
        *({"task": t, "negative_sampling": n}
          for t in ("link", "multi") for n in ("each", "shared", "all")),
        {"task": "relation", "class_weights": True},
        {"aggregator": "lstm", "loss": "bce"},
        {"aggregator": "transformer", "loss": "nssa", "positions": "absolute"},
        {"path_form": "joined", "path_source": "mined", "n_mined": 5},
        {"hold_out_batch": True, "dim": 12, "heads": 2},
        {"hold_out_batch": True, "hold_out_pairs": True, "neighbour_contexts": True},
        *({"bridge": "paths", "task": t, "hold_out_batch": True, "hold_out_pairs": pairs}
          for t in ("link", "relation", "multi") for pairs in (False, True)),
        {"bridge": "paths", "bridge_hops": 2, "bridge_dropout": 0.5, "negative_sampling": "all"},
        {"bridge": "paths", "neighbour_contexts": True},
        {"bridge": "paths", "bridge_dim": 6, "hold_out_batch": True},
    ],
)  # fmt: skip
def test_a_captured_step_equals_a_plain_one(settings):
    kg, found = toy(), []
    for captured in (False, True):
        made = learner(kg, "cuda", cuda_graphs=captured, batch_size=16, **settings)
        assert made.captures == captured
        for seed in (1, 2, 3):  # gradients add up
            torch.manual_seed(seed)  # dropout
            made.loss(torch.arange(16, device="cuda") * seed, torch.tensor(seed).cuda()).backward()
        found.append([p.grad for p in made.model.parameters()])
    for plain, captured in zip(*found, strict=True):
        torch.testing.assert_close(captured, plain)


@pytest.mark.slow
def test_the_same_step_gives_the_same_bits_every_time():
    random = Random(2)
    rows = {(random.randrange(50), random.randrange(20), random.randrange(50)) for _ in range(3000)}
    ways = (
        {"task": "multi", "bridge": "paths", "bridge_hops": 2},
        {"layers": 2, "negative_sampling": "each"},
        {"neighbour_contexts": True, "path_form": "joined", "aggregator": "transformer"},
        {"aggregator": "transformer-joint", "negatives": 4, "positions": "absolute"},
    )
    for settings in ways:
        made = learner(knowledge_graph(rows), dim=64, feedforward=64, **settings)
        found = []
        for _ in range(5):
            torch.manual_seed(3)
            made.model.zero_grad()
            made.loss(torch.arange(0, 2000, 2), torch.tensor(1)).backward()
            found.append({name: p.grad.clone() for name, p in made.model.named_parameters()})
        for again in found[1:]:
            assert [n for n, grad in again.items() if not torch.equal(grad, found[0][n])] == []


@pytest.mark.slow
def test_threads_change_no_bits():
    """Sums of gradients that threads race for would come out in any order."""
    threads = {"OMP_NUM_THREADS": "4", "NUMBA_NUM_THREADS": "4"}
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-k", "same_bits_every_time", __file__]
    done = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout or "[100%]" in done.stdout


@pytest.mark.parametrize("pairs", [False, True])
def test_where_a_cuda_graph_does_not_fit_steps_are_plain(pairs, monkeypatch):
    """In the shapes and with the masks of a captured step the loss is the same."""

    def too_large(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr("pathe.training.vector_learner.CudaGraphStep", too_large)
    ids, found = torch.arange(16), []
    for captures in (False, True):
        made = learner(toy(), batch_size=16, bridge="paths", task="multi", hold_out_batch=True,
                       hold_out_pairs=pairs)  # fmt: skip
        made.captures = captures
        torch.manual_seed(1)
        found.append(made.loss(ids, torch.tensor(5)))
        assert not made.captures
    torch.testing.assert_close(*found)


@no_gpu
def test_a_gpu_run_resumes_exactly_and_its_steps_never_synchronise(tmp_path):
    kg, settings = toy(), {"accelerator": "gpu", "negative_sampling": "all", "batch_size": 50}
    train(kg, tmp_path / "whole", max_epochs=4, **settings)
    train(kg, tmp_path / "parts", max_epochs=2, **settings)
    train(kg, tmp_path / "parts", max_epochs=4, resume=True, **settings)
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value)
    made = learner(kg, "cuda", **settings)
    batches = Batches(len(kg.train), 50, 0, device="cuda")
    seeds = torch.arange(len(batches), device="cuda")
    for i, (ids, _, place) in enumerate(batches):
        if i == 1:  # the first one captures
            torch.cuda.set_sync_debug_mode("error")
        try:
            made.loss(ids, seeds[place]).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("ids", [[3], [5, 5, 5], [9, 0, 3, 9, 0], list(range(50)) * 2])
def test_distinct_ids_in_a_buffer_of_fixed_size_are_the_distinct_ids(ids):
    given = torch.tensor(ids)
    padded, rows = distinct_padded(given)
    exact, exact_rows = distinct_exactly(given)
    assert torch.equal(padded[: len(exact)], exact)
    assert not padded[len(exact) :].any()
    assert torch.equal(rows, exact_rows)
    assert torch.equal(padded[rows], given)


def test_a_step_that_cannot_fit_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr("pathe.training.memory.free_memory", lambda device: 4 * 2**30)
    check_fits(Config(), 14_541, 1000)
    with pytest.raises(ConfigError, match="batch_size"):
        check_fits(configure(settings={"layers": 2, "n_paths": 64}), 1_000_000, 100_000)
    with pytest.raises(ConfigError, match="batch_size"):
        check_fits(configure(settings={"negative_sampling": "all"}), 1_000_000, 100_000)


def test_weights_and_mined_paths_that_cannot_fit_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setattr("pathe.core.hardware.free_memory", lambda device: 4 << 20)
    check_weights(Config(), 3)
    with pytest.raises(ConfigError, match=r"model of [\d,]+ parameters would take .* Lower dim"):
        check_weights(configure(settings={"dim": 512}), 3)
    prepared = PreparedGraph(toy())
    mined = {"path_source": "mined", "hold_out_batch": False}
    build_featurizer(configure(settings=mined), prepared, 4)
    with pytest.raises(ConfigError, match="Mining 10,000 paths for each of 60 entities would take"):
        build_featurizer(configure(settings=mined | {"n_mined": 10_000}), prepared, 4)
    for n_paths in (0, 10**8):
        with pytest.raises(ConfigError, match="n_paths must be at least 1 and at most 10,000"):
            build_featurizer(Config(), prepared, n_paths)


@pytest.mark.parametrize(
    ("preset", "n_entities", "n_triples"),
    [
        ("paper-fb15k237-link", 14_541, 272_115),
        ("paper-wn18rr-link", 40_943, 86_835),
        ("paper-codexl-link", 77_951, 551_193),
        ("paper-yago310-link", 123_182, 1_079_040),
        ("paper-fb15k237-relation", 14_541, 272_115),
        ("paper-wn18rr-relation", 40_943, 86_835),
    ],
)
def test_the_papers_presets_fit_a_gpu_of_24_gib(monkeypatch, preset, n_entities, n_triples):
    monkeypatch.setattr("pathe.training.memory.free_memory", lambda device: 24 * 2**30)
    check_fits(read_preset(preset), n_entities, n_triples)


def test_a_cosine_schedule_rises_and_falls(tmp_path, monkeypatch):
    rates = [cosine(step, 100) for step in range(101)]
    assert rates[:2] == [0.5, 1.0]
    assert rates[1:] == sorted(rates[1:], reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-9)
    seen = []

    class Spy(torch.optim.Adam):
        def step(self, *args, **kwargs):
            seen.append(self.param_groups[0]["lr"])
            return super().step(*args, **kwargs)

    monkeypatch.setattr(torch.optim, "Adam", Spy)
    train(toy(), tmp_path / "run", schedule="cosine", learning_rate=0.02, max_epochs=3)
    assert seen == pytest.approx([0.02 * cosine(step, len(seen)) for step in range(len(seen))])


def test_bridges_that_cannot_fit_are_refused_before_the_work(monkeypatch):
    monkeypatch.setattr("pathe.training.memory.free_memory", lambda device: 8 * 2**30)
    with_bridges = {"bridge": "paths", "bridge_hops": 2}
    check_fits(Config(), 1_000_000, 4_000_000)
    with pytest.raises(ConfigError, match="Bridges take most of it"):
        check_fits(configure(settings=with_bridges), 1_000_000, 4_000_000)
    check_fits(configure(settings=with_bridges | {"batch_size": 64}), 1_000_000, 4_000_000)
    far = with_bridges | {"batch_size": 64, "bridge_hops": 8}
    with pytest.raises(ConfigError, match="Bridges take most of it"):
        check_fits(configure(settings=far), 1_000_000, 4_000_000)
    nodes = with_bridges | {"negative_sampling": "all", "bridge_hops": 1, "batch_size": 4}
    with pytest.raises(ConfigError) as error:
        check_fits(configure(settings=nodes), 1_000_000, 1_000_000)
    assert "Bridges" not in str(error.value)  # not their fault
