"""Training and evaluation from the command line."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import yaml
from support.commands import pathe, refused
from support.places import ROOT

TINY = ["--set", "dim=8", "--set", "feedforward=8", "--set", "max_epochs=2", "--set", "n_paths=2",
        "--set", "accelerator=cpu", "--set", "max_hops=2"]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    rows = [(i, i % 3, (i * 7 + 1) % 20) for i in range(20)]
    rows += [(i, (i + 1) % 3, (i * 3 + 2) % 20) for i in range(20)]
    lines = [f"e{h}\tr{r}\te{t}\n" for h, r, t in rows]
    (folder / "graph").mkdir()
    for name, part in (("train", lines[:30]), ("valid", lines[30:35]), ("test", lines[35:])):
        (folder / "graph" / f"{name}.txt").write_text("".join(part))
    done = pathe("train", "graph", "--task", "multi", *TINY, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "result.json").write_text(done.stdout)
    return folder


def test_train_prints_json_alone_and_evaluate_gives_it_back(place):
    result = json.loads((place / "result.json").read_text())
    run = place / "runs" / "graph-multi"
    assert result == json.loads((run / "result.json").read_text())
    assert result["command"] == shlex.join(["pathe", "train", "graph", "--task", "multi", *TINY,
                                            "--json"])  # fmt: skip
    again = pathe("evaluate", run, "--data", "graph", "--json", "--device", "cpu", cwd=place)
    assert again.returncode == 0, again.stderr
    found = json.loads(again.stdout)
    for key in ("mrr", "hits_at_1", "hits_at_3", "hits_at_5", "hits_at_10", "head", "tail",
                "protocol", "n_triples", "relation", "fingerprint", "per_relation"):  # fmt: skip
        assert found[key] == result[key], key


def test_evaluate_takes_protocols_splits_and_tables(place):
    run = "runs/graph-multi"
    table = pathe("evaluate", run, "--data", "graph", "--protocol", "sampled:5", cwd=place)
    assert "MRR" in table.stdout, table.stderr
    assert "among 5 random entities" in table.stdout
    valid = pathe("evaluate", f"{run}/model", "--data", "graph", "--split", "valid",
                  "--task", "relation", "--test-set", "all", "--json", cwd=place)  # fmt: skip
    found = json.loads(valid.stdout)
    assert (found["split"], found["task"], found["test_set"]) == ("valid", "relation", "all")


def test_unseen_entities_are_allowed_and_unknown_relations_are_not(place):
    new = place / "new"
    new.mkdir()
    (new / "train.txt").write_text("".join(f"x{i}\tr{i % 3}\tx{(i + 3) % 9}\n" for i in range(9)))
    (new / "valid.txt").write_text("x0\tr1\tx5\n")
    (new / "test.txt").write_text("x1\tr2\tx6\n")
    found = pathe("evaluate", "runs/graph-multi", "--data", "new", "--json", cwd=place)
    assert json.loads(found.stdout)["n_triples"] == 1
    (new / "train.txt").write_text("x0\tsomething else\tx1\n")
    message = refused("evaluate", "runs/graph-multi", "--data", "new", cwd=place)
    assert "something else" in message


def test_a_second_run_gets_a_new_folder_and_resume_needs_the_first(place):
    second = pathe("train", "graph", *TINY, "--set", "max_epochs=1", "--out", "b", cwd=place)
    assert second.returncode == 0, second.stderr
    assert "exists and is not empty" in refused("train", "graph", *TINY, "--out", "b", cwd=place)
    assert "--out RUN" in refused("train", "graph", "--resume", cwd=place)
    more = pathe("train", "graph", "--resume", "--out", "b", "--set", "max_epochs=3", cwd=place)
    assert more.returncode == 0, more.stderr
    assert len((place / "b" / "metrics.jsonl").read_text().splitlines()) == 3


def test_bad_settings_models_and_presets_are_clear_errors(place):
    assert "'dim'" in refused("train", "graph", "--set", "dims=3", cwd=place)
    assert "tiny" in refused("train", "graph", "--preset", "tinny", cwd=place)
    assert "not a model folder" in refused("evaluate", "graph", "--data", "graph", cwd=place)
    assert "sampled:50" in refused(
        "evaluate", "runs/graph-multi", "--data", "graph", "--protocol", "some", cwd=place
    )
    large = ("--set", "layers=100", "--set", "dim=16384", "--set", "feedforward=65536")
    assert "GiB are free. Lower dim" in refused("train", "graph", *large, "--out", "c", cwd=place)
    assert not (place / "c").exists()


def test_old_names_of_settings_work_and_are_pointed_out(place):
    preset = place / "mine.yaml"
    preset.write_text("refine: true\nmax_epochs: 1\n")
    args = ("train", "graph", "--preset", "mine.yaml", *TINY, "--set", "clip=0.5", "--out", "old")
    made = pathe(*args, cwd=place)
    assert made.returncode == 0, made.stderr
    assert "setting 'refine' is now called 'neighbour_contexts'\n" in made.stderr
    assert "setting 'clip' is now called 'gradient_clip'\n" in made.stderr
    kept = yaml.safe_load((place / "old" / "config.yaml").read_text())
    assert (kept["neighbour_contexts"], kept["gradient_clip"]) == (True, 0.5)
    assert not {"refine", "clip"} & set(kept)


def test_config_shows_presets_and_settings():
    assert "dim: 64" in pathe("config", "paper-fb15k237-link").stdout
    assert json.loads(pathe("config", "tiny", "--json").stdout)["dim"] == 32
    listing = pathe("config").stdout
    assert "hold_out_batch" in listing
    assert "paper-wn18rr-relation" in listing
    assert "tiny" in refused("config", "tinny")


def test_predict_answers_in_names_and_leaves_known_facts_out(place):
    run = "runs/graph-multi"
    ask = ("predict", run, "--data", "graph", "--head", "e1", "--relation", "r1", "--json")
    found = json.loads(pathe(*ask, "-k", "30", cwd=place).stdout)
    names = [a["name"] for a in found]
    assert len(names) == len(set(names))
    assert [a["rank"] for a in found] == list(range(1, len(found) + 1))
    assert sorted((a["score"] for a in found), reverse=True) == [a["score"] for a in found]
    assert "e8" not in names  # e1 -r1-> e8 is in train
    everyone = json.loads(pathe(*ask, "-k", "30", "--known", cwd=place).stdout)
    assert {a["name"] for a in everyone} == {f"e{i}" for i in range(20)}
    assert set(names) < {a["name"] for a in everyone}
    heads = pathe("predict", run, "--data", "graph", "--tail", "e1", "--relation", "r1", cwd=place)
    assert "?  -r1->  e1" in heads.stdout
    relations = pathe("predict", run, "--data", "graph", "--head", "e1", "--tail", "e5", cwd=place)
    assert "r0" in relations.stdout
    assert "two of" in refused("predict", run, "--data", "graph", "--head", "e1", cwd=place)
    assert "'e1'" in refused(
        "predict", run, "--data", "graph", "--head", "e1x", "--relation", "r1", cwd=place
    )


def test_a_helping_process_takes_the_settings_of_the_run(place):
    """Its own choice may differ: it sees other threads, or other memory."""
    made = pathe("train", "graph", *TINY, "--set", "bridge_hops=2", "--out", "led", cwd=place)
    assert made.returncode == 0, made.stderr
    with mock.patch("pathe.training.run.train", return_value={}) as train:
        helping = {"PATHE_RUN": "led", "LOCAL_RANK": "1"}
        found = pathe("train", "graph", *TINY, "--out", "led", cwd=place, **helping)
    assert found.returncode == 0, found.stderr
    assert train.call_args.args[1].bridge_hops == 2


def test_chosen_settings_are_printed_and_stored(place):
    made = pathe("train", "graph", *TINY, "--out", "chosen", cwd=place)
    assert "settings for this graph: vectors and bridges of" in made.stderr
    assert "a smaller batch" not in made.stderr
    kept = yaml.safe_load((place / "chosen" / "config.yaml").read_text())
    assert (kept["bridge"], kept["dim"], kept["max_epochs"]) == ("paths", 8, 2)
    preset = pathe("train", "graph", "--preset", "tiny", *TINY, "--out", "preset", cwd=place)
    assert "settings for this graph" not in preset.stderr
    assert yaml.safe_load((place / "preset" / "config.yaml").read_text())["bridge"] == "none"


@pytest.mark.slow
def test_two_processes_train_one_model(place):
    program = Path(sys.executable).with_name("pathe")  # which Lightning starts once more
    command = [program, "train", "graph", *TINY, "--set", "devices=2", "--out", "runs/two"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=place, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((place / "runs" / "two" / "result.json").read_text())
    assert result["epochs"] == 2
    assert 0 < result["mrr"] <= 1
    lines = (place / "runs" / "two" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1]  # one of them writes


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["each", "all"])
def test_two_processes_of_torchrun_have_the_losses_of_one(place, sampling):
    """The same batches, held-out edges, paths and negatives: equal but for rounding.

    The processes have shares of 3 and 2 triples, whose losses count accordingly.
    """
    off = [f"--set={key}_dropout=0" for key in ("context", "bridge")]
    how = [*TINY, "--set=dropout=0", *off, "--set=batch_size=5", "--device", "cpu"]
    how += [f"--set=negative_sampling={sampling}"]
    alone = pathe("train", "graph", *how, "--out", f"one-{sampling}", cwd=place)
    assert alone.returncode == 0, alone.stderr
    command = [Path(sys.executable).with_name("torchrun"), "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "pathe", "train", "graph", *how, "--out", f"two-{sampling}"]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    wrong = subprocess.run(command, capture_output=True, text=True, cwd=place, env=env)
    assert wrong.returncode
    assert "--set devices=2" in wrong.stderr
    shutil.rmtree(place / f"two-{sampling}", ignore_errors=True)
    command += ["--set", "devices=2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=place, env=env)
    assert done.returncode == 0, done.stderr
    one, two = (
        [
            json.loads(line)
            for line in (place / f"{n}-{sampling}/metrics.jsonl").read_text().splitlines()
        ]
        for n in ("one", "two")
    )
    assert len(one) == len(two) == 2
    for mine, theirs in zip(one, two, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert mine["valid_score"] == pytest.approx(theirs["valid_score"], abs=0.02)


def test_seed_and_device_are_settings_and_the_time_is_printed(place):
    made = pathe("train", "graph", *TINY, "--seed", "7", "--device", "cpu", "--out", "s", cwd=place)
    assert made.returncode == 0, made.stderr
    kept = yaml.safe_load((place / "s" / "config.yaml").read_text())
    assert (kept["seed"], kept["accelerator"]) == (7, "cpu")
    lines = made.stderr.splitlines()
    told = [i for i, line in enumerate(lines) if line.startswith("this takes at most about")]
    first = next(i for i, line in enumerate(lines) if line.startswith("epoch 1/2"))
    assert len(told) == 1
    assert told[0] < first
    assert "left" in lines[first]


def test_training_goes_on_from_a_model(place):
    (place / "more").mkdir(exist_ok=True)
    for split in ("train", "valid", "test"):
        lines = (place / "graph" / f"{split}.txt").read_text()
        more = "new\tr0\te1\nnew\tr1\te2\n" if split == "train" else ""
        (place / "more" / f"{split}.txt").write_text(lines + more)
    again = ("train", "more", "--from", "runs/graph-multi", "--set", "max_epochs=1", "--out")
    made = pathe(*again, "on", cwd=place)
    assert made.returncode == 0, made.stderr
    assert "continuing from the model in runs/graph-multi\n" in made.stderr
    result = json.loads((place / "on" / "result.json").read_text())
    assert result["config"]["task"] == "multi"
    assert 0 < result["start_valid_score"] <= result["best_valid_score"]
    longer = pathe("train", "more", "--resume", "--out", "on", "--set", "max_epochs=2", cwd=place)
    assert longer.returncode == 0, longer.stderr
    lines = (place / "more" / "train.txt").read_text()
    (place / "more" / "train.txt").write_text(lines + "e1\tr00\te5\n")
    assert "lacks 'r00'. Closest: 'r0'" in refused(*again, "off", cwd=place)
    assert not (place / "off").exists()


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("--minutes must be above 0; got 0", ["--minutes", "0"]),
        ("--minutes must be above 0; got -2", ["--minutes", "-2"]),
        ("--quick and --minutes exclude each other", ["--quick", "--minutes", "2"]),
        ("--quick chooses its own settings: leave --preset out", ["--quick", "--preset", "tiny"]),
        ("--from chooses its own settings", ["--from", "runs/graph-multi", "--preset", "tiny"]),
        ("graph: not a model folder, as it has no config.json", ["--from", "graph"]),
        ("leave --from out", ["--from", "runs/graph-multi", "--resume", "--out", "b"]),
        ("needs dim=8", ["--from", "runs/graph-multi", "--set", "dim=16"]),
    ],
)
def test_options_of_train_that_can_not_be_used(place, words, given):
    assert words in refused("train", "graph", *given, cwd=place)


def test_facts_are_added_and_removed_for_one_command(place):
    (place / "add.csv").write_text("new one,r0,e1\nnew one,r1,e2\n")
    (place / "remove.tsv").write_text("e1\tr1\te8\n")
    ask = ("--data", "graph", "--relation", "r1", "--json", "-k", "30", "--head")
    for model in ([], ["runs/graph-multi"]):
        made = pathe("predict", *model, *ask, "e1", "--remove", "remove.tsv", cwd=place)
        assert made.returncode == 0, made.stderr
        assert "1 fact of remove.tsv removed\n" in made.stderr
        assert "e8" in [a["name"] for a in json.loads(made.stdout)]  # no longer known
        made = pathe("predict", *model, *ask, "new one", "--add", "add.csv", cwd=place)
        assert "2 new facts of add.csv added\n" in made.stderr
        names = [a["name"] for a in json.loads(made.stdout)]
        assert names
        assert "e2" not in names
    (place / "remove.tsv").write_text("e1\tr1\te8\ne1\tr1\te77\n")
    for verb in ("predict", "evaluate", "missing", "similar"):
        more = {"predict": ("--head", "e1", "--relation", "r1"), "similar": ("--entity", "e1")}
        given = (verb, "--data", "graph", "--remove", "remove.tsv", *more.get(verb, ()))
        assert "remove.tsv, line 2: " in refused(*given, cwd=place)
