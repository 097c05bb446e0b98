from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
import yaml
from support.commands import pathe
from support.graphs import toy
from support.places import ROOT
from support.runs import SMALL

from pathe.cluster.job import in_this_process
from pathe.cluster.training import train_runs
from pathe.core.config import Config
from pathe.core.errors import ConfigError, PatheError, UnknownNameError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.ranking import evaluate
from pathe.lab import experiments as lab
from pathe.lab.results_page import draw_model_positions, tables, write_report
from pathe.model.artifact import load_model
from pathe.training.run_folder import read_result

NAMES = lab.experiment_names(ROOT / "experiments")


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_in_the_repository_can_be_read(name):
    experiment = lab.read_experiment(name, ROOT / "experiments")
    assert experiment.config(7).seed == 7
    first = (ROOT / "experiments" / f"{name}.yaml").read_text().splitlines()[1]
    assert first == f"# pathe reproduce {name} --data FOLDER"
    if experiment.preset and experiment.table not in ("paths", "ablation"):
        differs = set(experiment.settings)
        assert differs <= {"batch_size", "accumulate_batches", "learning_rate", "max_epochs"}
        assert not differs or "positives instead of" in experiment.note


@pytest.fixture
def place(tmp_path):
    toy().save(tmp_path / "data" / "toy")
    (tmp_path / "experiments").mkdir()
    file = {
        "title": "Toy, ours", "table": "link", "data": "toy", "settings": SMALL | {"max_epochs": 2},
        "seeds": [0, 5], "paper": {"mrr": 0.9, "hits_at_10": 0.01, "parameters": 0.5},
        "ships": True,
    }  # fmt: skip
    (tmp_path / "experiments" / "toy.yaml").write_text(yaml.safe_dump(file))
    return tmp_path


def in_essence(summary):
    """A summary without times and memory."""
    ours = {k: v for k, v in summary.items() if k not in ("train_seconds", "peak_memory_bytes")}
    times = ("train_seconds", "evaluation_seconds", "peak_memory_bytes", "commit")
    runs = [{k: v for k, v in run.items() if k not in times} for run in summary["runs"]]
    return ours | {"runs": runs, "commit": None, "commits": None}


def test_runs_that_were_trained_elsewhere_come_back_whole(place):
    """The last one first, as on a cluster; after a stop, the rest."""
    experiment = lab.read_experiment("toy", place / "experiments")
    data, said, stops = str(place / "data" / "toy"), [], [1]
    plain = lab.reproduce(experiment, data, place / "here")

    def backwards(job, numbers):
        for found in in_this_process(job, list(numbers)[::-1]):
            yield found
            if stops:
                stops.clear()
                raise PatheError("stopped")

    def elsewhere(kg, wanted):
        train_runs(kg, wanted, backwards, said.append, "pathe reproduce toy")

    far = place / "far"
    with pytest.raises(PatheError, match="stopped"):
        lab.reproduce(experiment, data, far, elsewhere=elsewhere)
    assert [path.name for path in (far / "toy").iterdir()] == ["seed-5"]
    found = lab.reproduce(experiment, data, far, elsewhere=elsewhere)
    assert [line[:6] for line in said] == ["seed 5", "seed 0"]
    assert in_essence(found) == in_essence(plain)
    commands = [read_result(place / where / "toy/seed-5")["command"] for where in ("far", "here")]
    assert commands == ["pathe reproduce toy", None]
    for seed in ("seed-0", "seed-5"):
        ours, theirs = (place / where / "toy" / seed for where in ("far", "here"))
        files = {path.relative_to(ours) for path in ours.rglob("*") if path.is_file()}
        logs = ("events.out", "metrics.csv")
        same = {file for file in files if not file.name.startswith(logs)}
        assert same == {
            path.relative_to(theirs) for path in theirs.rglob("*")
            if path.is_file() and not path.name.startswith(logs)
        }  # fmt: skip
        one, other = (load_model(run / "model").model.state_dict() for run in (ours, theirs))
        assert all(torch.equal(one[key], other[key]) for key in other)


def test_a_run_that_was_begun_here_is_not_trained_elsewhere(place):
    experiment = lab.read_experiment("toy", place / "experiments")
    folder = place / "runs" / "toy" / "seed-5"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("seed: 5\n")

    def elsewhere(kg, wanted):
        train_runs(kg, wanted, in_this_process)

    data = str(place / "data" / "toy")
    with pytest.raises(ConfigError, match="begun on this machine"):
        lab.reproduce(experiment, data, place / "runs", elsewhere=elsewhere)
    assert not (place / "runs" / "toy" / "seed-0").exists()
    more = {"settings": {"devices": 2}, "elsewhere": elsewhere}
    with pytest.raises(ConfigError, match="devices=2"):
        lab.reproduce(experiment, data, place / "other", **more)


@pytest.mark.slow
def test_experiments_and_searches_run_on_a_cluster(place):
    """Real workers of Ray; the same command again has nothing to do."""
    pytest.importorskip("ray")
    args = ("reproduce", "toy", "--data", "data", "--cluster", "local:2")
    found = pathe(*args, cwd=place)
    assert found.returncode == 0, found.stderr
    assert found.stderr.count("trained on") == 2
    summary = json.loads((place / "results" / "toy.json").read_text())
    here = pathe(*args[:4], "--runs", "here", "--results", "there", cwd=place)
    assert here.returncode == 0, here.stderr
    assert in_essence(summary) == in_essence(json.loads((place / "there/toy.json").read_text()))
    result = json.loads((place / "runs" / "toy" / "seed-0" / "result.json").read_text())
    assert "local:2" in result["command"]
    again = pathe(*args, cwd=place)
    assert again.stderr.count("done already") == 2
    fixed = {k: v for k, v in SMALL.items() if k not in ("dim", "hold_out_batch")}
    space = {"fixed": fixed | {"max_epochs": 2}, "space": {"dim": [8, 16]}}
    (place / "s.yaml").write_text(yaml.safe_dump(space))
    search = ("tune", "data/toy", "--space", "s.yaml", "--trials", "3", "--json", "--out")
    one, far = (pathe(*search, *more, cwd=place) for more in (["a"], ["b", "--cluster", "local:2"]))
    assert one.returncode == far.returncode == 0, far.stderr
    assert far.stderr.count("trained on") == 4
    scores = [[t["valid_score"] for t in json.loads(x.stdout)["trials"]] for x in (one, far)]
    assert scores[0] == scores[1]


def test_an_experiment_runs_is_summarised_shipped_and_shown(place):
    (place / "page.md").write_text("before\n<!-- tables -->\nold\n<!-- end of tables -->\nafter\n")
    args = ("reproduce", "toy", "--data", "data", "--models", "models", "--page", "page.md")
    assert pathe(*args, cwd=place).returncode == 0
    summary = json.loads((place / "results" / "toy.json").read_text())
    assert read_result(place / "runs/toy/seed-5")["command"] == f"pathe {' '.join(args)}"
    assert summary["seeds"] == [0, 5]
    mrrs = [r["mrr"] for r in summary["runs"]]
    assert mrrs[0] != mrrs[1]
    assert summary["metrics"]["mrr"]["mean"] == pytest.approx(sum(mrrs) / 2)
    assert summary["metrics"]["mrr"]["std"] == pytest.approx(abs(mrrs[0] - mrrs[1]) / 2**0.5)
    assert summary["command"] == "pathe reproduce toy --data FOLDER"
    assert summary["config"]["seed"] == 0
    for key in ("commit", "fingerprint", "protocol", "test_set", "device", "parameters"):
        assert summary[key]
    valid = [r["best_valid_score"] for r in summary["runs"]]
    assert summary["best_seed"] == [0, 5][valid.index(max(valid))]
    shipped = load_model(place / "models" / "toy")
    assert shipped.config.seed == summary["best_seed"]
    page = (place / "page.md").read_text()
    assert page.startswith("before\n<!-- tables -->\n")
    assert page.endswith("<!-- end of tables -->\nafter\n")
    assert "old" not in page
    assert "▼" in page  # the made-up paper has a higher MRR
    assert page.count("▼") == 1  # but not more hits
    stamp = (place / "runs" / "toy" / "seed-5" / "result.json").stat().st_mtime_ns
    again = pathe(*args, cwd=place)  # nothing is done twice
    assert "seed 5: done already" in again.stderr
    assert (place / "runs" / "toy" / "seed-5" / "result.json").stat().st_mtime_ns == stamp
    again = json.loads((place / "results" / "toy.json").read_text())
    assert again == summary
    assert (place / "page.md").read_text() == page


def test_variants_of_a_recipe_are_runs_of_their_own_in_one_table(place):
    path = place / "experiments" / "toy.yaml"
    said = yaml.safe_load(path.read_text()) | {"table": "recipes", "seeds": [0], "ships": False}
    said |= {
        "note": "On a toy.",
        "variants": {"half as wide": {"dim": 8}, "slow": {"gradient_clip": 0.5}},
    }
    path.write_text(yaml.safe_dump(said, sort_keys=False))
    (place / "page.md").write_text("<!-- tables -->\n<!-- end of tables -->\n")
    args = ("reproduce", "toy", "--data", "data", "--page", "page.md")
    found = pathe(*args, cwd=place)
    assert found.returncode == 0, found.stderr
    summary = json.loads((place / "results" / "toy.json").read_text())
    assert [v["settings"] for v in summary["variants"].values()] == [
        {"dim": 8},
        {"gradient_clip": 0.5},
    ]
    folder = place / "runs" / "toy"
    for title, where in (("half as wide", "half-as-wide"), ("slow", "slow")):
        result = json.loads((folder / where / "seed-0" / "result.json").read_text())
        variant = summary["variants"][title]
        assert variant["metrics"]["mrr"]["mean"] == result["mrr"]
        assert variant["parameters"] == result["parameters"]
        lost = f"{result['mrr'] - summary['metrics']['mrr']['mean']:+.3f}"
        [line] = [x for x in (place / "page.md").read_text().splitlines() if f"| {title} |" in x]
        assert f" {lost} " in line
    assert summary["variants"]["half as wide"]["parameters"] < summary["parameters"]
    assert pathe(*args, cwd=place).stderr.count("done already") == 3


def test_trying_other_settings_touches_no_result(place):
    pathe("reproduce", "toy", "--data", "data", cwd=place)
    before = (place / "results" / "toy.json").read_text()
    found = pathe("reproduce", "toy", "--data", "data", "--set", "dim=8", cwd=place)
    assert found.returncode == 0, found.stderr
    assert "toy: mrr" in found.stderr
    assert (place / "results" / "toy.json").read_text() == before
    assert (place / "runs-tried" / "toy" / "seed-0").is_dir()
    for more in (("--models", "models"), ("--page", "page.md")):
        found = pathe("reproduce", "toy", "--data", "data", "--set", "dim=8", *more, cwd=place)
        assert found.returncode == 2
        assert "drop --set" in found.stderr


def test_a_page_is_rebuilt_without_running_an_experiment(place):
    (place / "page.md").write_text("<!-- tables -->\nold\n<!-- end of tables -->\n")
    (place / "results").mkdir()
    found = pathe("reproduce", "--page", "page.md", cwd=place)
    assert found.returncode == 0, found.stderr
    assert "wrote page.md" in found.stderr
    assert "old" not in (place / "page.md").read_text()
    assert not (place / "runs").exists()


def test_a_page_without_its_marks_is_refused_before_any_work(place):
    (place / "page.md").write_text("before\n<!-- tables -->\nIMPORTANT\n")
    for page in ("page.md", "none.md"):
        found = pathe("reproduce", "toy", "--data", "data", "--page", page, cwd=place)
        assert found.returncode == 2
    assert "IMPORTANT" in (place / "page.md").read_text()
    assert not (place / "runs").exists()


def test_a_seed_that_had_stopped_early_is_not_trained_on(place):
    path = place / "experiments" / "toy.yaml"
    said = yaml.safe_load(path.read_text())
    said["settings"] |= {"patience": 1, "max_epochs": 60, "dropout": 0.3, "context_dropout": 0.5}
    path.write_text(yaml.safe_dump(said | {"seeds": [5]}))
    pathe("reproduce", "toy", "--data", "data", cwd=place)
    before = json.loads((place / "results" / "toy.json").read_text())
    assert before["runs"][0]["epochs"] < 60
    for _ in range(2):
        (place / "runs" / "toy" / "seed-5" / "result.json").unlink()
        found = pathe("reproduce", "toy", "--data", "data", cwd=place)
        assert found.returncode == 0, found.stderr
        after = json.loads((place / "results" / "toy.json").read_text())
        assert after["metrics"] == before["metrics"]
        assert after["runs"][0]["epochs"] == before["runs"][0]["epochs"]


def test_other_data_do_not_pass_for_done(place):
    toy_path = place / "data" / "toy"
    (place / "data" / "toy_ind").mkdir()
    for split in ("train", "valid", "test"):
        text = (toy_path / f"{split}.txt").read_text()
        (place / "data" / "toy_ind" / f"{split}.txt").write_text(text.replace("e", "x"))
    path = place / "experiments" / "toy.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"table": "inductive"}))
    assert pathe("reproduce", "toy", "--data", "data", cwd=place).returncode == 0
    test = place / "data" / "toy_ind" / "test.txt"
    test.write_text(test.read_text().split("\n", 1)[1])
    found = pathe("reproduce", "toy", "--data", "data", cwd=place)
    assert found.returncode == 2
    assert "other settings or data" in found.stderr
    for file in (place / "data" / "toy_ind").iterdir():
        file.unlink()
    found = pathe("reproduce", "toy", "--data", "data", "--runs", "new", cwd=place)
    assert found.returncode == 2
    assert "no inference graph" in found.stderr


def test_other_settings_do_not_pass_for_done(place):
    more = ("--set", "dim=8", "--runs", "runs")
    pathe("reproduce", "toy", "--data", "data", *more, cwd=place)
    found = pathe("reproduce", "toy", "--data", "data", cwd=place)
    assert found.returncode == 2
    assert "done with other settings" in found.stderr


def test_an_interrupted_seed_goes_on(place):
    pathe("reproduce", "toy", "--data", "data", cwd=place)
    before = json.loads((place / "results" / "toy.json").read_text())
    (place / "runs" / "toy" / "seed-5" / "result.json").unlink()
    found = pathe("reproduce", "toy", "--data", "data", cwd=place)
    assert "seed 5: resuming" in found.stderr
    after = json.loads((place / "results" / "toy.json").read_text())
    assert after["metrics"] == before["metrics"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"titel": "x"}, "no key 'titel'.*'title'"),
        ({"table": "links"}, "table is one of"),
        ({"settings": {"dimm": 3}}, "no setting 'dimm'"),
        ({"preset": "paper"}, "no preset 'paper'"),
        ({"seeds": 3}, "seeds are a list"),
        ({"table": "recipes", "variants": {"none": {}}}, "needs lines of"),
        ({"table": "recipes", "variants": {"other": {"dimm": 3}}}, "no setting 'dimm'"),
        ({"table": "recipes", "variants": {"other": {"seed": 3}}}, "no seed"),
        ({"table": "recipes", "variants": {4: {"dim": 8}}}, "name as text"),
        ({"table": "recipes", "variants": {"seed 0": {"dim": 8}}}, "name as text"),
        (
            {"table": "recipes", "variants": {"a b": {"dim": 8}, "a/b": {"dim": 4}}},
            "would share a folder",
        ),
        ({"variants": {"other": {"dim": 8}}}, "for table: recipes"),
        ({"seeds": []}, "seeds are a list"),
        ({"seeds": [0, 0]}, "seeds are a list"),
        ({"settings": None}, "settings are lines"),
        ({"paper": {"mrr": 0.2}}, "no parameters"),
    ],
)
def test_bad_experiments_are_refused(place, changes, words):
    path = place / "experiments" / "toy.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))
    with pytest.raises((ConfigError, UnknownNameError), match=words):
        lab.read_experiment("toy", place / "experiments")


def test_errors_name_missing_experiments_keys_and_data(place):
    with pytest.raises(UnknownNameError, match=r"Closest: 'toy'\. All: toy"):
        lab.read_experiment("toys", place / "experiments")
    (place / "experiments" / "bare.yaml").write_text("table: link\n")
    with pytest.raises(ConfigError, match="no title and no data"):
        lab.read_experiment("bare", place / "experiments")
    experiment = lab.read_experiment("toy", place / "experiments")
    with pytest.raises(ConfigError, match="no toy in it"):
        lab.find_data(experiment, place)
    with pytest.raises(ConfigError, match="give the folder"):
        lab.find_data(experiment, None)


def test_the_inductive_table_has_a_column_a_pair():
    def spread(value):
        return {"mean": value, "std": 0.001}

    summary = {
        "name": "fb237_v2-link", "title": "FB15k-237 v2, ours", "table": "inductive",
        "inference": {"sampled:50": {"hits_at_10": spread(0.97)},
                      "full": {"mrr": spread(0.31), "hits_at_10": spread(0.59)}},
        "parameters": 1234, "metrics": {}, "bars": {"hits_at_10": 0.98}, "config": {},
        "seeds": [0, 1],
    }  # fmt: skip
    bridged = summary | {"title": "FB15k-237 v3, with bridges", "config": {"bridge": "paths"},
                         "seeds": [0]}  # fmt: skip
    [row] = [x for x in tables([summary, bridged]).splitlines() if "(ours), with bridges" in x]
    assert [cell.strip() for cell in row.split("|")][4] == ".970"
    lines = tables([summary]).splitlines()
    words = "| FB15k-237 v2, ours, inductive prediction: Hits@10 | {} | {} | **missed** |"
    assert any(line.startswith(words.format(".980", ".970")) for line in lines)
    just_below = {
        "sampled:50": {"hits_at_10": spread(0.96996)},
        "full": summary["inference"]["full"],
    }
    close = summary | {"bars": {"hits_at_10": 0.97}, "inference": just_below}
    assert words.format(".970", ".96996") in tables([close])
    [ours] = [line for line in lines if "(ours)" in line]
    assert [cell.strip() for cell in ours.split("|")][3] == ".970 ± .001"
    assert ours.count("| -") == 7


def test_a_page_keeps_its_words(tmp_path):
    (tmp_path / "results").mkdir()
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- tables -->\n<!-- end of tables -->\nb\n")
    write_report(tmp_path / "results", page)
    assert page.read_text().startswith("a\n")
    assert page.read_text().endswith("\nb\n")


def test_defaults_are_those_of_the_config():
    experiment = lab.Experiment("x", "X", "link", "x")
    assert experiment.config(0) == Config()


@pytest.mark.pictures
def test_the_figure_of_paths_per_triple_is_drawn_once_there_are_two(place):
    (place / "results").mkdir()
    page = place / "page.md"
    page.write_text("<!-- tables -->\n<!-- end of tables -->\n")
    pathe("reproduce", "toy", "--data", "data", cwd=place)
    summary = json.loads((place / "results" / "toy.json").read_text())
    for name, n_paths in (("fb15k237-link-paper", 4), ("fb15k237-link-paper-one-path", 1)):
        more = {"name": name, "table": "paths", "config": summary["config"] | {"n_paths": n_paths}}
        (place / "results" / f"{name}.json").write_text(json.dumps(summary | more))
        write_report(place / "results", page)
        assert page.with_name("paths-per-triple.svg").exists() == (n_paths == 1)
    text = page.with_name("paths-per-triple.svg").read_text()
    assert "<svg" in text


@pytest.mark.pictures
def test_positions_of_a_model_are_drawn(tmp_path):
    draw_model_positions(ROOT / "models" / "fb15k237-link", tmp_path / "p.svg")
    text = (tmp_path / "p.svg").read_text()
    assert "<svg" in text


def test_all_test_triples_stand_beside_the_seen_ones(place):
    """What is put together from seen and unseen triples is what ranking all of them gives."""
    kg = toy()
    labels = [*kg.entities.names(range(kg.n_entities)), "~newcomer"]  # the last by name
    test = torch.cat([kg.test, torch.tensor([[len(labels) - 1, 0, 1]], dtype=kg.test.dtype)])
    replace(kg, entities=type(kg.entities)(labels), test=test).save(place / "data" / "more")
    experiment = lab.read_experiment("toy", place / "experiments")
    summary = lab.reproduce(experiment, str(place / "data" / "more"), place / "runs")
    model = load_model(place / "runs" / "toy" / "seed-5")
    [_, of_all] = summary["runs"]
    expected = evaluate(model, KnowledgeGraph.read(place / "data" / "more"), test_set="all")
    assert of_all["all"]["n_triples"] == expected["n_triples"] == of_all["n_triples"] + 1
    assert of_all["all"]["n_unseen"] == 1
    assert of_all["all"]["device"]
    again = lab.reproduce(experiment, str(place / "data" / "more"), place / "runs")
    assert again == summary  # kept with the run
    for key in ("mrr", "hits_at_1", "hits_at_10", "mean_rank"):
        assert of_all["all"][key] == pytest.approx(expected[key], abs=1e-6)
    assert "| all test triples |" in tables([summary])


@pytest.mark.parametrize(
    "found",
    [
        {"best_valid_score": 0.5, "best_valid_mrr": 0.1},
        {"valid_score": 0.5},
        {"best_valid_mrr": 0.5},
        {"valid_mrr": 0.5},
    ],
)
def test_results_of_earlier_versions_have_a_validation_score_too(found):
    assert lab.validation_score(found) == 0.5
    assert lab.validation_score({"best_valid_score": None}) == 0


def test_a_validation_score_is_named_by_what_was_measured():
    assert lab.validation_of({"task": "relation"}) == "validation MRR of relations"
    assert lab.validation_of({"task": "link", "valid_negatives": 0}) == "validation MRR"
    old = {"refine": True, "valid_negatives": 50}
    assert lab.validation_of(old) == "validation MRR among 50 negatives"


def test_a_summary_of_both_tasks_has_no_long_tables():
    names = {"per_relation": [{"relation": "/a"}], "command": "pathe train --out /somewhere"}
    both = {"mrr": 0.5, "relation": {"mrr": 0.4, **names}, **names}
    found = lab._short(both | {"inference": {"full": both}})
    short = {"mrr": 0.5, "relation": {"mrr": 0.4}}
    assert found == short | {"inference": {"full": short}}
