"""A run as a folder: what it leaves, how it stops, resumes and refuses."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.graphs import knowledge_graph, no_gpu, toy
from support.runs import SMALL, train, weights

from pathe.core.config import configure
from pathe.core.errors import ConfigError, Interrupted, ModelError, PatheError
from pathe.evaluation.metrics import METRICS
from pathe.evaluation.ranking import evaluate
from pathe.model.artifact import load_model
from pathe.model.pathe import count_parameters
from pathe.training import run as runs
from pathe.training import run_folder
from pathe.training.train import TrainedRun
from pathe.training.vector_learner import PathELearner


@pytest.mark.pictures
def test_a_run_is_a_folder_and_its_model_gives_the_result_back(tmp_path):
    kg, folder = toy(), tmp_path / "run"
    result = train(kg, folder, task="multi")
    stored = json.loads((folder / "result.json").read_text())
    assert stored == json.loads(json.dumps(result))
    again = evaluate(load_model(folder), kg)
    assert {k: stored[k] for k in again} == json.loads(json.dumps(again))
    for key in ("fingerprint", "commit", "parameters", "train_seconds", "peak_memory_bytes",
                "protocol", "config", "device", "effi", "epochs", "best_valid_score"):  # fmt: skip
        assert key in stored
    assert stored["fingerprint"] == kg.fingerprint()
    assert stored["command"] is None  # it was started from Python
    assert stored["parameters"] == count_parameters(load_model(folder).model)
    lines = run_folder.read_metrics(folder)
    assert [line["epoch"] for line in lines] == list(range(4))
    assert all({"loss", "valid_score"} <= line.keys() for line in lines)
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
        (6, {"accumulate_batches": 2}),
        (5, {"accumulate_batches": 9}),
        (2, {"batch_size": 999}),
        (6, {"schedule": "cosine", "accumulate_batches": 2}),
        (6, {"bridge": "paths", "bridge_dim": 4, "bridge_hops": 2}),
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
    keys = ("mrr", "hits_at_10", "epochs", "best_valid_score", "relation")
    assert {k: straight[k] for k in keys} == {k: resumed[k] for k in keys}
    lines = [run_folder.read_metrics(folder) for folder in (tmp_path / "straight", moved)]
    for one, other in zip(*lines, strict=True):
        assert (one["epoch"], one["valid_score"]) == (other["epoch"], other["valid_score"])
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)  # of the whole epoch


def test_the_last_checkpoint_is_the_last_epochs(tmp_path):
    train(toy(), tmp_path / "run", max_epochs=60, patience=2, learning_rate=0.05)
    epochs = len(run_folder.read_metrics(tmp_path / "run"))
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
    with_scores = [
        m["epoch"] for m in run_folder.read_metrics(tmp_path / "run") if "valid_score" in m
    ]
    assert with_scores == [1, 3]


def test_a_pair_is_judged_on_its_unseen_entities_too(tmp_path):
    kg = replace(toy(), inference=toy())
    found = train(kg, tmp_path / "run", max_epochs=1)["inference"]
    assert set(found) == {"full", "sampled:50"}
    assert 0 < found["full"]["mrr"] <= found["sampled:50"]["mrr"] <= 1


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
    settings.write_text("".join(x for x in lines if not x.startswith("cuda_graphs:")))
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(last, weights_only=True)
    assert 0 < checkpoint["seconds"] <= first["train_seconds"]
    torch.save(checkpoint | {"seconds": 1000.0}, last)
    longer = train(kg, tmp_path / "run", resume=True, max_epochs=2)
    assert longer["epochs"] == 2
    assert 1000 < longer["train_seconds"] < 1500  # both sittings count


def test_early_stopping_keeps_the_best(tmp_path):
    result = train(toy(), tmp_path / "run", max_epochs=60, patience=2, learning_rate=0.05)
    scores = [line["valid_score"] for line in run_folder.read_metrics(tmp_path / "run")]
    assert len(scores) < 60
    assert len(scores) == scores.index(max(scores)) + 3
    assert result["best_valid_score"] == pytest.approx(max(scores))


def test_a_graph_without_validation_trains_to_the_end(tmp_path):
    said = []
    kg = knowledge_graph(toy().train.tolist())
    config = configure(settings=SMALL | {"max_epochs": 2})
    result = runs.train(
        kg, config, tmp_path / "run", runs.Options(say=said.append, progress_bar=False)
    )
    assert result["epochs"] == 2
    assert "mrr" not in result
    assert any("no early stopping" in text for text in said)
    assert "to evaluate on" in said[-1]
    load_model(tmp_path / "run")


@pytest.mark.pictures
def test_odd_graphs_train(tmp_path):
    one_relation = knowledge_graph([(i, 0, i + 1) for i in range(20)], [(0, 0, 5)], [(1, 0, 6)])
    train(one_relation, tmp_path / "one", max_epochs=1)
    with pytest.raises(ConfigError, match="two relations"):
        train(one_relation, tmp_path / "no", task="relation")
    isolated = knowledge_graph([(0, 0, 1), (2, 1, 3)], [(0, 1, 1)], [(9, 0, 1), (0, 1, 3)])
    assert train(isolated, tmp_path / "iso", max_epochs=1, path_source="mined")["n_triples"] == 1


def test_a_full_disk_leaves_no_half_written_checkpoint(tmp_path, monkeypatch):
    kg = toy()
    train(kg, tmp_path / "run", max_epochs=1)
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    before = last.read_bytes()

    def full(path, raw):
        path.write_text("half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(PatheError, match=r"No space.* saved before is intact"):
        train(kg, tmp_path / "run", resume=True, max_epochs=3)
    assert last.read_bytes() == before
    assert {p.name for p in last.parent.iterdir()} == {"best.ckpt", "last.ckpt"}
    monkeypatch.undo()
    assert train(kg, tmp_path / "run", resume=True, max_epochs=3)["epochs"] == 3


def test_a_run_may_be_lengthened_and_resumed_again(tmp_path):
    """More epochs are kept in the settings; fewer than it has add none, and export it again."""
    kg = toy()
    folder = tmp_path / "run"
    train(kg, folder, max_epochs=2)
    longer = train(kg, folder, resume=True, max_epochs=4)
    assert longer["epochs"] == 4
    assert run_folder.resumed_config(folder).max_epochs == 4
    again = train(kg, folder, resume=True, max_epochs=4)
    shorter = train(kg, folder, resume=True, max_epochs=1)
    for result in (again, shorter):
        assert result["epochs"] == 4
        assert result["mrr"] == longer["mrr"]


def test_a_stopped_run_without_a_model_says_so(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("task: link\n")
    with pytest.raises(ModelError, match="--resume --out"):
        load_model(folder)


def test_few_steps_per_epoch_give_a_hint(tmp_path):
    said: list[str] = []
    config = configure(settings=SMALL | {"batch_size": 1000, "max_epochs": 1})
    runs.train(toy(), config, tmp_path / "run", runs.Options(say=said.append, progress_bar=False))
    assert any("1 step per epoch" in line and "--set batch_size=7" in line for line in said)


@pytest.mark.parametrize("task", ["link", "multi"])
def test_refined_contexts_train_and_are_kept(tmp_path, task):
    plain = train(toy(), tmp_path / "plain", task=task, hold_out_batch=True)
    result = train(
        toy(), tmp_path / "refined", task=task, hold_out_batch=True, neighbour_contexts=True
    )
    assert result["parameters"] == plain["parameters"] + 3 * 16 * 16 + 16
    assert result["parameters_as_published"] is None
    again = evaluate(load_model(tmp_path / "refined"), toy())
    assert again["mrr"] == pytest.approx(result["mrr"], abs=1e-6)
    assert result["mrr"] != plain["mrr"]


def test_where_no_test_triple_can_be_judged_the_run_ends_well(tmp_path):
    kg = knowledge_graph([(0, 0, 1), (1, 1, 2), (2, 0, 0)], test=[(0, 0, 3), (4, 1, 1)])
    said: list[str] = []
    config = configure(settings=SMALL | {"max_epochs": 1})
    result = runs.train(kg, config, tmp_path / "run", runs.Options(say=said.append))
    assert "mrr" not in result
    assert any("none of the 2 test triples" in line and "--test-set all" in line for line in said)
    assert (tmp_path / "run" / "model").is_dir()


def test_without_a_progress_bar_each_epoch_has_a_line_and_the_best_is_named(tmp_path):
    said: list[str] = []
    config = configure(settings=SMALL | {"max_epochs": 3})
    result = runs.train(toy(), config, tmp_path / "run", runs.Options(say=said.append))
    told = [line for line in said if line.startswith("epoch ")]
    assert [line.split(":")[0] for line in told] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    valid = [row["valid_score"] for row in run_folder.read_metrics(tmp_path / "run")]
    assert f"validation MRR among 99 negatives {valid[1]:.3f}" in told[1]
    best = valid.index(max(valid)) + 1
    kept = f"best epoch: {best} of 3, validation MRR among 99 negatives {max(valid):.3f}"
    assert kept in said
    assert result["best_valid_score"] == pytest.approx(max(valid))


def test_an_epoch_without_validation_repeats_no_score(tmp_path):
    said: list[str] = []
    config = configure(settings=SMALL | {"max_epochs": 4, "validate_every": 2})
    runs.train(toy(), config, tmp_path / "run", runs.Options(say=said.append))
    told = [line for line in said if line.startswith("epoch ")]
    assert ["negatives" in line for line in told] == [False, True, False, True]


def test_resuming_removes_what_a_killed_process_left(tmp_path):
    train(toy(), tmp_path / "run", max_epochs=1)
    folder = tmp_path / "run"
    left = [folder / ".model-abc", folder / ".config.yaml.1f2e.tmp",
            folder / "checkpoints" / ".last.ckpt.0a1b.tmp"]  # fmt: skip
    left[0].mkdir()
    (left[0] / "new").mkdir()
    for path in left[1:]:
        path.write_text("half a file")
    (folder / ".keep").write_text("somebody's own")
    train(toy(), folder, resume=True, max_epochs=1)
    assert not any(path.exists() for path in left)
    assert (folder / ".keep").exists()


def test_a_run_whose_settings_have_old_names_is_resumed(tmp_path):
    first = train(toy(), tmp_path / "run", max_epochs=3)
    settings = tmp_path / "run" / "config.yaml"
    settings.write_text(settings.read_text().replace("gradient_clip:", "clip:"))
    again = train(toy(), tmp_path / "run", resume=True, max_epochs=3)
    assert again["best_valid_score"] == first["best_valid_score"]
    assert again["mrr"] == pytest.approx(first["mrr"], abs=1e-9)


def test_a_run_saves_its_weights_once(tmp_path, monkeypatch):
    saved = []
    real = runs.save_model
    monkeypatch.setattr(runs, "save_model", lambda *args: saved.append(args) or real(*args))
    result = train(toy(), tmp_path / "run", max_epochs=1)
    assert len(saved) == 1
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert f"| mrr | {round(result['mrr'], 4)} |" in card  # written after evaluation


def test_a_run_in_a_notebook(tmp_path):
    side = dict.fromkeys([metric.key for metric in METRICS], 0.5)
    result = side | {"split": "test", "head": side, "tail": side, "relation": side}
    run = TrainedRun(tmp_path / "<b>run", result | {"train_seconds": 12.3, "parameters": 1234})
    page = run._repr_html_()
    assert "&lt;b&gt;run" in page
    assert all(word in page for word in ("heads", "tails", "relations", "MRR", "1,234 parameters"))
    assert page.count("<tr>") == 5
    assert repr(run).endswith("test MRR 0.500, 12 s)")
    assert TrainedRun(tmp_path, {})._repr_html_().count("<tr>") == 1  # the header alone


def test_the_result_is_written_last(tmp_path, monkeypatch):
    """It says that the run is finished, so that what comes before can be done again."""

    def killed(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "plot_run", killed)
    with pytest.raises(KeyboardInterrupt):
        train(toy(), tmp_path / "run", max_epochs=1)
    assert not (tmp_path / "run" / "result.json").exists()
    monkeypatch.undo()
    train(toy(), tmp_path / "run", resume=True, max_epochs=1)
    assert {"result.json", "report.png"} <= {path.name for path in (tmp_path / "run").iterdir()}
