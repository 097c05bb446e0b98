from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random

import pytest
import torch
from graphs import knowledge_graph, no_gpu, toy

from pathe import runs
from pathe.artifact import load_model
from pathe.builder import build_model
from pathe.config import Config, configure, read_preset
from pathe.errors import ConfigError, Interrupted, ModelError, PatheError, TrainingError
from pathe.evaluation import evaluate, evaluate_links, evaluate_relations
from pathe.graph import build_graph
from pathe.model import count_parameters
from pathe.training import (
    Batches,
    PathELearner,
    check_fits,
    distinct_exactly,
    distinct_padded,
)

SMALL = {"dim": 16, "feedforward": 16, "n_paths": 2, "max_hops": 3, "aggregator": "mean",
         "batch_size": 40, "negatives": 8, "max_epochs": 4, "learning_rate": 0.01,
         "accelerator": "cpu", "hold_out_batch": False}  # fmt: skip


def train(kg, folder, resume=False, **settings):
    config = configure(settings=SMALL | settings)
    return runs.train(kg, config, folder, resume=resume, progress_bar=False)


def learner(kg, device="cpu", **settings) -> PathELearner:
    config = configure(settings=SMALL | settings)
    graph = build_graph(kg.train, kg.n_entities, kg.n_relations)
    made = PathELearner(build_model(config, kg.n_relations), config, graph, kg.train, kg.valid)
    made.to(device).setup("fit")
    return made


def weights(folder) -> dict[str, torch.Tensor]:
    return load_model(folder).model.state_dict()


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
        loss = sum(made.losses(ids, 7).values())
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
    found = made.losses(ids, 3)["link"]
    z = made.model.encode(made.describe.batch(torch.arange(60), 3))
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
        first = one.losses(ids, seed)["link"]
        torch.manual_seed(seed)
        assert torch.equal(first, two.losses(ids, seed)["link"])
    h, r, t = torch.tensor(plants).unbind(1)
    assert not two.known.contains(h, r, t).any()
    assert two.known_valid.contains(h, r, t).tolist() == [True, False]
    assert two.describe.graph.n_triples == len(clean.train)


def test_entities_that_training_does_not_know_are_no_negatives():
    clean = toy()
    kg = knowledge_graph(clean.train.tolist(), clean.valid.tolist(), [(0, 0, 70)])
    made = learner(kg)
    assert made.pool_C.max() < 60
    for pick, _ in made._answers(made.train_M3[:40], 0).values():
        assert pick.max() < 60


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
        sum(made.losses(torch.arange(20), step).values()).backward()
        optimizer.step()
    assert evaluate_links(made.model, made.describe, kg.train, made.known)["mrr"] == 1
    assert evaluate_relations(made.model, made.describe, kg.train, made.known)["mrr"] == 1


def test_a_run_is_a_folder_and_its_model_gives_the_result_back(tmp_path):
    kg, folder = toy(), tmp_path / "run"
    result = train(kg, folder, task="multi")
    stored = json.loads((folder / "result.json").read_text())
    assert stored == json.loads(json.dumps(result))
    again = evaluate(load_model(folder), kg)
    assert {k: stored[k] for k in again} == json.loads(json.dumps(again))
    for key in ("fingerprint", "commit", "parameters", "train_seconds", "peak_memory_bytes",
                "protocol", "config", "device", "effi", "epochs", "best_valid_mrr"):  # fmt: skip
        assert key in stored
    assert stored["fingerprint"] == kg.fingerprint()
    assert stored["parameters"] == count_parameters(load_model(folder).model)
    lines = runs.read_metrics(folder)
    assert [line["epoch"] for line in lines] == list(range(4))
    assert all({"loss", "valid_mrr"} <= line.keys() for line in lines)
    assert (folder / "report.png").read_bytes()[:4] == b"\x89PNG"
    for name in ("best.ckpt", "last.ckpt"):
        assert (folder / "checkpoints" / name).is_file()
    assert list((folder / "logs").rglob("metrics.csv"))
    assert list((folder / "tensorboard").rglob("events*"))
    with pytest.raises(ConfigError, match="--resume"):
        train(kg, folder, task="multi")


class PressAt:
    """Presses Ctrl-C in the middle of an epoch."""

    def __init__(self, learner_class, at: int):
        self.step, self.at, self.count = learner_class.training_step, at, 0

    def __call__(self, learner, ids, batch_idx):
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGINT)
        return self.step(learner, ids, batch_idx)


# an epoch has 4 batches: in the middle of one, at the end of one, with accumulation, one a run
@pytest.mark.parametrize(
    ("at", "more"),
    [
        (6, {}),
        (4, {}),
        (8, {}),
        (6, {"accumulate": 2}),
        (5, {"accumulate": 9}),
        (2, {"batch_size": 999}),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, monkeypatch, at, more):
    kg = toy()
    settings = {"task": "multi", "hold_out_batch": True, **more}
    straight = train(kg, tmp_path / "straight", **settings)
    press = PressAt(PathELearner, at)
    monkeypatch.setattr(PathELearner, "training_step", lambda *args: press(*args))
    with pytest.raises(Interrupted, match="--resume"):
        train(kg, tmp_path / "broken", **settings)
    assert not (tmp_path / "broken" / "result.json").exists()
    monkeypatch.undo()
    moved = (tmp_path / "broken").rename(tmp_path / "moved")
    resumed = train(kg, moved, resume=True, **settings)
    for name, tensor in weights(tmp_path / "straight").items():
        assert torch.equal(tensor, weights(moved)[name]), name
    keys = ("mrr", "hits_at_10", "epochs", "best_valid_mrr", "relation")
    assert {k: straight[k] for k in keys} == {k: resumed[k] for k in keys}
    lines = [runs.read_metrics(folder) for folder in (tmp_path / "straight", moved)]
    assert [(x["epoch"], x["valid_mrr"]) for x in lines[0]] == [
        (x["epoch"], x["valid_mrr"]) for x in lines[1]
    ]


def test_the_last_checkpoint_is_the_last_epochs(tmp_path):
    train(toy(), tmp_path / "run", max_epochs=60, patience=2, learning_rate=0.05)
    epochs = len(runs.read_metrics(tmp_path / "run"))
    last = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    best = torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt", weights_only=True)
    assert last["epoch"] == epochs - 1
    assert best["epoch"] == epochs - 3


@pytest.mark.parametrize("spoil", [lambda raw: raw[:-200], lambda raw: b"nonsense"])
def test_a_spoilt_checkpoint_is_refused_in_words(tmp_path, spoil):
    train(toy(), tmp_path / "run", max_epochs=1)
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    last.write_bytes(spoil(last.read_bytes()))
    with pytest.raises(ModelError, match=r"last\.ckpt"):
        train(toy(), tmp_path / "run", resume=True, max_epochs=2)


def test_bf16_and_several_validation_intervals(tmp_path):
    result = train(toy(), tmp_path / "run", precision="bf16", validate_every=2, max_epochs=4)
    assert result["epochs"] == 4
    with_scores = [m["epoch"] for m in runs.read_metrics(tmp_path / "run") if "valid_mrr" in m]
    assert with_scores == [1, 3]


def test_a_pair_is_judged_on_its_unseen_entities_too(tmp_path):
    kg = replace(toy(), inference=toy())
    found = train(kg, tmp_path / "run", max_epochs=1)["inference"]
    assert set(found) == {"full", "sampled:50"}
    assert 0 < found["full"]["mrr"] <= found["sampled:50"]["mrr"] <= 1


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
    ],
)  # fmt: skip
def test_a_recorded_step_equals_a_plain_one(settings):
    kg, found = toy(), []
    for record in (False, True):
        made = learner(kg, "cuda", record=record, batch_size=16, **settings)
        assert made.records == record
        for seed in (1, 2, 3):  # gradients add up
            torch.manual_seed(seed)  # dropout
            made.loss(torch.arange(16, device="cuda") * seed, torch.tensor(seed).cuda()).backward()
        found.append([p.grad for p in made.model.parameters()])
    for plain, recorded in zip(*found, strict=True):
        torch.testing.assert_close(recorded, plain)


@no_gpu
def test_a_gpu_run_resumes_exactly_and_its_steps_wait_for_nothing(tmp_path):
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
        if i == 1:  # the first one records
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


@no_gpu
def test_a_run_on_a_gpu_gives_its_result_back_on_a_cpu(tmp_path):
    result = train(toy(), tmp_path / "run", accelerator="gpu", task="multi")
    again = evaluate(load_model(tmp_path / "run"), toy())
    assert again["mrr"] == pytest.approx(result["mrr"], abs=0.01)


def test_resuming_with_other_settings_or_data_is_refused(tmp_path):
    kg = toy()
    first = train(kg, tmp_path / "run", max_epochs=1)
    with pytest.raises(ConfigError, match="dim was 16, now 8"):
        train(kg, tmp_path / "run", resume=True, dim=8)
    other = knowledge_graph(kg.train.tolist()[1:], kg.valid.tolist(), kg.test.tolist())
    with pytest.raises(ConfigError, match="data_fingerprint"):
        train(other, tmp_path / "run", resume=True, max_epochs=1)
    with pytest.raises(ConfigError, match="nothing to resume"):
        train(kg, tmp_path / "none", resume=True)
    settings = tmp_path / "run" / "config.yaml"  # as an older version wrote it: a setting less
    lines = settings.read_text().splitlines(keepends=True)
    settings.write_text("".join(x for x in lines if not x.startswith("record:")))
    longer = train(kg, tmp_path / "run", resume=True, max_epochs=2)
    assert longer["epochs"] == 2
    before = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert before["seconds"] > first["train_seconds"] * 0.5  # both sittings count


def test_early_stopping_keeps_the_best(tmp_path):
    result = train(toy(), tmp_path / "run", max_epochs=60, patience=2, learning_rate=0.05)
    scores = [line["valid_mrr"] for line in runs.read_metrics(tmp_path / "run")]
    assert len(scores) < 60
    assert len(scores) == scores.index(max(scores)) + 3
    assert result["best_valid_mrr"] == pytest.approx(max(scores))


def test_a_graph_without_validation_trains_to_the_end(tmp_path):
    said = []
    kg = knowledge_graph(toy().train.tolist())
    config = configure(settings=SMALL | {"max_epochs": 2})
    result = runs.train(kg, config, tmp_path / "run", say=said.append, progress_bar=False)
    assert result["epochs"] == 2
    assert "mrr" not in result
    assert any("no early stopping" in text for text in said)
    load_model(tmp_path / "run")


def test_odd_graphs_train(tmp_path):
    one_relation = knowledge_graph([(i, 0, i + 1) for i in range(20)], [(0, 0, 5)], [(1, 0, 6)])
    train(one_relation, tmp_path / "one", max_epochs=1)
    with pytest.raises(ConfigError, match="two relations"):
        train(one_relation, tmp_path / "no", task="relation")
    isolated = knowledge_graph([(0, 0, 1), (2, 1, 3)], [(0, 1, 1)], [(9, 0, 1), (0, 1, 3)])
    assert train(isolated, tmp_path / "iso", max_epochs=1, path_source="mined")["n_triples"] == 1


def test_a_loss_that_is_no_number_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(
        PathELearner,
        "losses",
        lambda self, *a: {"link": next(self.model.parameters()).sum() * float("nan")},
    )
    with pytest.raises(TrainingError, match="learning_rate"):
        train(toy(), tmp_path / "run")


def test_a_step_that_cannot_fit_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr("pathe.training.free_memory", lambda device: 4 * 2**30)
    check_fits(Config(), 14_541, 1000)
    with pytest.raises(ConfigError, match="batch_size"):
        check_fits(configure(settings={"layers": 2, "n_paths": 64}), 1_000_000, 100_000)
    with pytest.raises(ConfigError, match="batch_size"):
        check_fits(configure(settings={"negative_sampling": "all"}), 1_000_000, 100_000)


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
    monkeypatch.setattr("pathe.training.free_memory", lambda device: 24 * 2**30)
    check_fits(read_preset(preset), n_entities, n_triples)


def test_a_full_disk_leaves_no_half_written_checkpoint(tmp_path, monkeypatch):
    kg = toy()
    train(kg, tmp_path / "run", max_epochs=1)
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    before = last.read_bytes()

    def full(checkpoint, path):
        Path(path).write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.save", full)
    with pytest.raises(PatheError, match="No space"):
        train(kg, tmp_path / "run", resume=True, max_epochs=3)
    assert last.read_bytes() == before
    assert {p.name for p in last.parent.iterdir()} == {"best.ckpt", "last.ckpt"}
    monkeypatch.undo()
    assert train(kg, tmp_path / "run", resume=True, max_epochs=3)["epochs"] == 3
