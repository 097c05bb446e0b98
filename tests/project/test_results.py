"""Figures in the docs are those of the committed files."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess

import pytest
from support.places import DATA, ROOT, needs_data

from pathe.core.config import Config, current_names
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.ranking import evaluate
from pathe.lab.experiments import judged, read_experiment
from pathe.lab.fine_tuned import MARKS, SHARE
from pathe.lab.results_page import read_results, write_report
from pathe.model.artifact import SHIPPED, load_model, model_digest
from pathe.predict.results import Rule


def test_every_file_has_its_row():
    text = (ROOT / "docs" / "results.md").read_text()
    named = set(re.findall(r"results/([\w.-]+)\.json", text))
    assert named == {p.stem for p in (ROOT / "results").glob("*.json")}


def test_every_experiment_has_a_result_or_is_named_as_missing():
    text = (ROOT / "docs" / "results.md").read_text().split("## What is missing")[1]
    names = {p.stem for p in (ROOT / "experiments").glob("*.yaml")}
    missing = names - {p.stem for p in (ROOT / "results").glob("*.json")}
    assert {name for name in names if f"`{name}`" in text} == missing
    ships = {name for name in names if read_experiment(name, ROOT / "experiments").ships}
    assert {folder.name for folder in FOLDERS} & names <= ships  # others are made by --models


def test_the_tables_are_those_that_the_files_make(tmp_path):
    page = tmp_path / "results.md"
    page.write_text((ROOT / "docs" / "results.md").read_text())
    write_report(ROOT / "results", page)
    assert page.read_text() == (ROOT / "docs" / "results.md").read_text()


SUMMARIES = read_results(ROOT / "results")


@pytest.mark.parametrize("summary", SUMMARIES, ids=lambda s: s["name"])
def test_a_result_has_its_provenance_and_its_bars_are_listed(summary):
    assert re.fullmatch(r"[0-9a-f]{40}", summary["commit"])
    assert "reproduce" in summary["command"]
    assert "/" not in summary["command"].split(" --")[0]
    for key in ("fingerprint", "protocol", "test_set", "config", "device", "seeds"):
        assert summary[key]
    assert '"/' not in json.dumps(summary)  # no place of the machine that made it
    assert " /" not in json.dumps(summary)
    experiment = read_experiment(summary["name"], ROOT / "experiments")
    expected = experiment.config(summary["seeds"][0]).as_dict()
    config = Config().as_dict() | summary["config"]  # settings that came later are off by default
    assert {k: v for k, v in config.items() if k in expected} == expected
    variants = summary.get("variants", {}).items()
    tried = {title: current_names(row["settings"]) for title, row in variants}
    for title, changed in experiment.variants.items():  # results keep variants that were dropped
        assert tried[title] == current_names(changed)
    section = (ROOT / "docs" / "results.md").read_text().partition("\n## Bars\n")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines()
             if f"/{summary['name']}.json" in line]  # fmt: skip
    met = [judged(summary)[key]["mean"] >= bar for key, bar in summary["bars"].items()]
    assert [" | met | " in line for line in lines] == met
    assert [" | **missed** | " in line for line in lines] == [not one for one in met]


FOLDERS = sorted(path.parent for path in (ROOT / "models").glob("*/config.json"))


def test_the_list_of_models_has_their_figures():
    lines = (ROOT / "models" / "README.md").read_text().splitlines()
    rows = {found[1]: line for line in lines if (found := re.match(r"\| \[(\S+)\]\(", line))}
    assert set(rows) == {folder.name for folder in FOLDERS}
    for folder in FOLDERS:
        card = (folder / "README.md").read_text()
        [size] = re.findall(r"([\d,]+) parameters", card)
        found = [re.search(rf"\| {key} \| (\S+) \|", card)[1] for key in ("mrr", "hits_at_10")]
        shown = " / ".join(figure(float(value)) for value in found)
        assert f"| {size} | {shown}" in rows[folder.name]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_a_model_that_ships_loads_and_is_that_of_its_result(folder):
    artifact = load_model(folder)
    [summary] = [s for s in SUMMARIES if s["name"] == folder.name] or [None]
    if summary:
        assert artifact.config.seed == summary["best_seed"]
        run = summary["runs"][summary["seeds"].index(summary["best_seed"])]
        shown = run["inference"]["sampled:50"] if summary["table"] == "inductive" else run
        assert f"| mrr | {round(shown['mrr'], 4)} |" in (folder / "README.md").read_text()
    assert artifact.temperatures


def test_kinds_nearly_never_lose_the_answer():
    text = (ROOT / "docs" / "decisions" / "0006-using-a-model.md").read_text()
    about = json.loads((ROOT / "benchmarks" / "kinds.json").read_text())
    assert about["command"] == "python benchmarks/kinds.py"
    for name, found in about["graphs"].items():
        assert found["recall"] > 0.995
        sides = found["complete"].values()
        n, wrong = (sum(side[key] for side in sides) for key in ("queries", "with_hidden_answer"))
        row = [name, f"{found['hidden_answers']:,}", str(found["lost_answers"])]
        row += [f"{found['candidates_left']:.1%}", f"{wrong:,} of {n:,}"]
        assert f"| {' | '.join(row)} |" in text
        asked = found["relations"]
        assert asked["recall"] > 0.995
        row = [name, f"{asked['hidden_answers']:,}", str(asked["lost_answers"])]
        assert f"| {' | '.join(row)} | {asked['candidates_left']:.1%} |" in text


def test_figures_of_vectors_from_contexts_match_the_file():
    text = (ROOT / "docs" / "decisions" / "0011-vectors-from-contexts.md").read_text()
    found = json.loads((ROOT / "benchmarks" / "vectors.json").read_text())
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
    kinds = ("random", "relation counts", "contexts", "trained")
    for row in found["results"]:
        cells = [figure(row[kind]) if kind in row else "-" for kind in kinds]
        assert f"| {row['task']} | {row['entities']:,} | {' | '.join(cells)} |" in text
    gains = [row["contexts"] - row["trained"] for row in found["results"] if "trained" in row]
    better, worse = [x for x in gains if x > 0], [-x for x in gains if x < 0]
    assert f"Trained vectors are better on {len(worse)} of {len(gains)} tasks, by at most\n" in text
    assert f"{figure(max(worse))}, and worse on the other {len(better)}, by up to" in text
    assert f"by up to {figure(max(better))}." in text
    large = found["scale"]
    assert (
        f"take {large['seconds']:.0f} seconds on one thread, and {large['bytes'] / 1e9:.1f} GB"
        in text
    )
    assert large["threads"] == 1
    assert all(row["contexts"] > 1.1 * row["random"] for row in found["results"])
    below = [row["task"] for row in found["results"] if row["contexts"] < row["relation counts"]]
    assert len(below) == 2


@pytest.mark.parametrize("family", ["fb237", "wn18rr"])
def test_the_summary_shows_unseen_entities_as_the_files_hold_them(family):
    lines = (ROOT / "docs" / "results.md").read_text().splitlines()
    name = {"fb237": "FB15k-237", "wn18rr": "WN18RR"}[family]
    [at] = [i for i, line in enumerate(lines) if line.startswith(f"| {name} v1 to v4")]
    for line, kind in ((lines[at], "link"), (lines[at + 1], "link-bridge")):
        files = [ROOT / "results" / f"{family}_v{v}-{kind}.json" for v in (1, 2, 3, 4)]
        found = [judged(json.loads(file.read_text()))["hits_at_10"]["mean"] for file in files]
        assert line.split(" | ")[1] == " ".join(figure(value) for value in found)


def test_figures_of_bridges_on_two_cores_match_the_files():
    found = json.loads((ROOT / "benchmarks" / "bridges.json").read_text())
    text = (ROOT / "docs" / "decisions" / "0008-default-settings.md").read_text()
    for name, ways in found["trained"].items():
        cells = [f"{figure(one['mrr'])}, {one['seconds']:.0f} s" for one in ways.values()]
        assert f"| {name} | {' | '.join(cells)} |" in text
    text = (ROOT / "docs" / "performance.md").read_text()
    for name, one in found["evaluated"].items():
        assert f"| {name} | {one['n_triples']:,} | {one['seconds']:.0f} s |" in text
        shipped = json.loads((ROOT / "results" / f"{name}.json").read_text())
        run = shipped["runs"][shipped["seeds"].index(shipped["best_seed"])]
        assert one["mrr"] == pytest.approx(run["mrr"], abs=0.002)
    assert found["evaluated"]["fb15k237-link-bridge"]["seconds"] < 600


def test_figures_of_steps_with_bridges_match_the_files():
    found = json.loads((ROOT / "benchmarks" / "bridge_steps.json").read_text())
    assert found["machine"]["gpu"]
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
    text = (ROOT / "docs" / "performance.md").read_text()
    for row in found["results"]:
        plain, recorded = (row.get(key, 0.0) for key in ("plain_ms", "recorded_ms"))
        if "bridge_hops" in row:
            assert f" {plain or recorded:.1f}" in text
        else:
            assert f"| {row['experiment']} | {plain:.1f} | {recorded:.1f} |" in text
    text = (ROOT / "docs" / "decisions" / "0007-bridges.md").read_text()
    summary = json.loads((ROOT / "results" / "recipes-fb15k237.json").read_text())
    assert f"| 4 edges | {found['results'][0]['recorded_ms']:.0f} | 1 |" in text
    for hops, row in ((2, 6), (3, 7)):
        assert f"| {hops} edges | {found['results'][row]['recorded_ms']:.0f} | 1 |" in text
    four, two, half = (
        f"{row.get('recorded_ms') or row['plain_ms']:.0f}"
        for row in (found["results"][i] for i in (0, 6, 9))
    )
    lines = {
        "all paths of 4 edges": f"| 4 edges | {four} | 1 |",
        "all paths of 2 edges": f"| 2 edges | {two} | 1 |",
        "all paths of 2 edges, 2 epochs": f"| 2 edges | {two} | 2 |",
        "half of the edges in a step": f"| half of the edges, 3 far | {half} | 1 |",
    }
    for title, line in lines.items():
        mean = summary["variants"][title]["metrics"]["mrr"]["mean"]
        assert f"{line} {figure(mean)} |" in text


def test_rules_that_are_shown_are_those_that_were_found():
    lines = set()
    for name in ("wn18rr", "fb15k237"):
        found = json.loads((ROOT / "results" / "rules" / f"{name}.json").read_text())
        for rule in (Rule(**rule) for rule in found["rules"]):
            right = f"{rule.support:,} of {rule.connected:,}"
            cells = f"`{rule.relation}`", f"`{rule.words()}`", f"{100 * rule.trust:.0f} %", right
            lines.add(f"| {' | '.join(cells)} |")
    text = (ROOT / "docs" / "results.md").read_text()
    shown = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(shown) == 8
    assert set(shown) <= lines


def summary_figures() -> list[tuple[str, str]]:
    text = (ROOT / "docs" / "results.md").read_text().split("## Trained from scratch")[1]
    return re.findall(r"\| .*?MRR (\.\d+).*?\[.*?\]\((\.\./results/.+?\.json)\) \|", text)


def test_the_summary_has_figures():
    assert len(summary_figures()) == 4


@pytest.mark.parametrize(("figure", "file"), summary_figures())
def test_the_summary_shows_what_the_file_holds(figure, file):
    found = json.loads((ROOT / "docs" / file).read_text())
    shown = found["metrics"]["mrr"]["mean"]
    assert float(figure) == pytest.approx(shown, abs=0.0005)


def figure(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def test_the_summary_says_what_the_papers_settings_gave():
    said = []
    for name in ("fb15k237", "wn18rr"):
        found = json.loads((ROOT / "results" / f"{name}-link-paper.json").read_text())["metrics"]
        said.append(" / ".join(figure(found[k]["mean"]) for k in ("mrr", "hits_at_10")))
    words = f"we get {said[0]} on FB15k-237 and {said[1]} on WN18RR"
    assert words in " ".join((ROOT / "docs" / "results.md").read_text().split())


@pytest.mark.parametrize("kind", ["link", "link-bridge"])
def test_the_summary_compares_links_as_the_files_hold_them(kind):
    text, beside = (ROOT / "docs" / "results.md").read_text(), []
    text = text.split("## Trained from scratch")[1]
    [row] = [line for line in text.splitlines() if f"(../results/wn18rr-{kind}.json)" in line]
    for name in ("fb15k237", "wn18rr"):
        found = json.loads((ROOT / "results" / f"{name}-{kind}.json").read_text())
        mrr, hits = (found["metrics"][key]["mean"] for key in ("mrr", "hits_at_10"))
        size = found["parameters_as_published"] or found["parameters"]
        assert f"{figure(mrr)} / {figure(hits)}, {size / 1e6:.2f}M" in row
        beside.append([found["all_metrics"][k]["mean"] for k in ("mrr", "hits_at_10")]
                      if found.get("all_metrics") else None)  # fmt: skip
    if kind == "link-bridge":
        said = [" / ".join(map(figure, pair)) for pair in beside]
        assert f"bridges have {said[0]} and {said[1]}." in " ".join(text.split())


def test_the_page_on_performance_says_how_long_using_a_model_takes_as_measured():
    rows = json.loads((ROOT / "benchmarks" / "use.json").read_text())["results"]
    cold, warm, bulk, added = rows[:4]
    text = (ROOT / "docs" / "performance.md").read_text()
    assert f"| {cold['seconds']:.1f} s; {1000 * warm['seconds']:.0f} ms |" in text
    assert f"| {round(bulk['per_second'], -2):,.0f} per second |" in text
    assert f"| {1000 * added['seconds']:.0f} ms |" in text


def test_times_of_the_pretrained_model_match_the_file():
    rows = json.loads((ROOT / "benchmarks" / "any_graph.json").read_text())["results"]
    cold, first, _, _, sparse = (row["seconds"] for row in rows[:5])
    words = f"| {cold:.1f} s; {1000 * first:.0f} ms ({1000 * rows[1]['slowest']:.0f} ms), "
    assert f"{words}{1000 * sparse:.0f} ms |" in (ROOT / "docs" / "performance.md").read_text()
    words = f"answers a query on WN18RR in {1000 * sparse:.0f} ms and on FB15k-237 in"
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"{words} {1000 * first:.0f} ms" in readme
    rows = json.loads((ROOT / "benchmarks" / "speed.json").read_text())["results"]
    assert (
        f"{rows[0]['ours_per_s'] / rows[0]['peer_per_s']:.0f} times as fast as PyKEEN's Nod"
        in readme
    )


def test_the_readme_says_what_training_from_scratch_and_missing_facts_gave():
    readme = " ".join((ROOT / "README.md").read_text().split())
    for kind, words in (("link-bridge", "reaches {} / {} on"), ("link", "{} / {} with node vec")):
        found = json.loads((ROOT / "results" / f"fb15k237-{kind}.json").read_text())["metrics"]
        assert words.format(*(figure(found[k]["mean"]) for k in ("mrr", "hits_at_10"))) in readme
    found = json.loads((ROOT / "benchmarks" / "answers.json").read_text())["missing"]["codex-s"]
    assert f"hidden, {100 * found['after']['precision@100']:.0f} are hidden ones" in readme


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_the_page_on_performance_shows_what_the_files_hold(device):
    text = (ROOT / "docs" / "performance.md").read_text()
    for row in json.loads((ROOT / "benchmarks" / f"stages_{device}.json").read_text())["results"]:
        shown = f"| {row['stage']} | {row['ms']:.2f} | {row['floor_ms']:.2f} |"
        assert shown in text


@pytest.mark.parametrize("name", ["foundation", "speed", "speed_gpu", "use", "any_graph"])
def test_committed_benchmarks_met_their_bars_and_say_where_they_come_from(name):
    found = json.loads((ROOT / "benchmarks" / f"{name}.json").read_text())
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
    assert found["machine"]["cpu"]
    assert [row["measure"] for row in found["results"] if not row["met"]] == []


@needs_data
@pytest.mark.parametrize(
    ("name", "data", "protocol"),
    [
        ("wn18rr-relation", "wn18rr", "full"),
        ("fb237_v1-link", "inductive/fb237_v1_ind", "sampled:50"),
        ("fb237_v1-link-bridge", "inductive/fb237_v1_ind", "sampled:50"),
    ],
)
def test_a_model_that_ships_gives_its_figures_back_on_a_cpu(name, data, protocol):
    kg = KnowledgeGraph.read(DATA / data)
    found = evaluate(load_model(ROOT / "models" / name), kg, protocol=protocol)
    card = (ROOT / "models" / name / "README.md").read_text()
    for key in ("mrr", "hits_at_10"):
        shown = float(re.search(rf"\| {key} \| (\S+) \|", card).group(1))
        assert found[key] == pytest.approx(shown, abs=0.002)


def test_the_page_of_experiments_shows_what_the_search_found():
    lines = (ROOT / "results" / "searches" / "inductive.jsonl").read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    assert re.fullmatch(r"[0-9a-f]{40}", runs[0]["commit"])
    assert len(runs) == 143
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for run in runs[1:]:
        if run["round"] == 2:
            most = max(run["eval"], key=int)
            found.setdefault((run["label"], run["pair"]), []).append(run["eval"][most])
    text = (ROOT / "docs" / "experiments.md").read_text()
    shown = 0
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| run "):
            pairs = cells[2:]
        elif (cells[0], "fb237_v1") in found or (cells[0], "wn18rr_v1") in found:
            for pair, cell in zip(pairs, cells[2:], strict=True):
                if (cells[0], pair) not in found:
                    assert cell == "-"
                    continue
                evals = found[cells[0], pair]
                means = [sum(e[key] for e in evals) / len(evals)
                         for key in ("valid_h10_50", "valid_mrr")]  # fmt: skip
                figures = [float(part) for part in cell.split(" / ")]
                assert figures == pytest.approx(means, abs=0.0006)
                shown += 1
    assert shown == len(found)


def test_the_page_of_experiments_shows_what_tuning_found():
    found = json.loads((ROOT / "results" / "searches" / "fb237_v1-link.json").read_text())
    best, default = (f"{found[f'{k}_valid_mrr']:.3f}"[1:] for k in ("best", "default"))
    text = (ROOT / "docs" / "experiments.md").read_text()
    assert f"among 99 negatives of {best}, the defaults {default}" in text
    assert best > default
    assert sum(t["state"] == "pruned" for t in found["trials"]) == 38


def test_the_readme_shows_zero_shot_figures_as_the_page_does():
    page, text = ((ROOT / name).read_text() for name in ("docs/results.md", "README.md"))
    table = text.split("PathE, ULTRA's protocol")[1].split("**Fine-tuned.**")[0]
    rows = [line for line in table.splitlines()[2:] if line.startswith("|")]
    assert len(rows) == 7
    for row in rows:
        assert row in page
    [hits] = re.findall(r"mean Hits@1 (\.\d{3})", page)
    assert f"a mean Hits@1 of {hits} on the GraIL graphs" in " ".join(text.split())
    found = json.loads((ROOT / "results" / "zero-shot.json").read_text())
    assert found["model"] == model_digest(SHIPPED)


def test_what_pre_training_has_seen_of_each_benchmark_is_disclosed():
    found, overlap = (
        json.loads((ROOT / "results" / name).read_text())
        for name in ("zero-shot.json", "pretraining/overlap.json")
    )
    shipped = json.loads((ROOT / "results" / "pretraining" / "shipped.json").read_text())
    assert overlap["pretrained_on"] == shipped["graphs"]
    graphs = overlap["graphs"]
    for name, graph in found["graphs"].items():
        assert graphs[name]["fingerprint"] == graph["fingerprint"]
    text = " ".join((ROOT / "README.md").read_text().split())
    assert "FB v1 to v4 and WN v1 to v4 of the GraIL graphs are parts of them" in text
    assert "NELL v1 to v4, NL-25 and NL-100 have nothing in common with them" in text
    for name, row in graphs.items():
        if "fb237_" in name or "wn18rr_" in name:
            assert row["seen_in_pretraining"] == row["test_triples"]
        if "nell" in name or "nl-" in name:
            assert row["seen_in_pretraining"] == 0


def test_the_readme_shows_fine_tuned_figures_as_the_page_does():
    page, text = ((ROOT / name).read_text() for name in ("docs/results.md", "README.md"))
    table = text.split("**Fine-tuned.**")[1].split("**More.**")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) == 4
    for row in rows:
        assert row.replace("(results/", "(../results/") in page
    section = page.split("## Fine-tuned link prediction")[1].split("\n|")[0]
    about = " ".join(text.split("**Fine-tuned.**")[1].split("\n|")[0].split())
    for words in (*MARKS.values(), SHARE):
        assert (words in about) == (words in section)


def short(value: float) -> str:
    return f"{value:.3f}".lstrip("0")


def mean_mrr(graphs: dict, names) -> float:
    return sum(graphs[name]["mrr"] for name in names) / len(names)


def test_figures_of_pre_training_match_the_files():
    text = (ROOT / "docs" / "experiments.md").read_text()
    text = text.split("## Pre-training")[1].split("\n## ")[0]
    found = json.loads((ROOT / "benchmarks" / "pretraining.json").read_text())["variants"]
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    large = ("fb15k-237", "wn18rr", "codex-m")
    keys = ("mrr", "hits_at_10", "relation_hits_at_1")
    expected = [
        [*(short(one["mean_of_pairs"][key]) for key in keys),
         short(mean_mrr(one["metrics"]["graphs"], large))]
        for one in found.values()
    ]  # fmt: skip
    assert [[cell.rstrip(" |") for cell in row[1:]] for row in rows] == expected
    labels = {
        "base": "none", "base, seed 1": "another seed", "messages in float32": "float32",
        "entities update relation vectors": "entities update", "few whole graphs": "a tenth",
        "larger subgraphs": "20,000", "relations as they are": "as they are",
        "learning rate .004": ".004", "pairs never held out": "never held out",
        "with the training graphs of the pairs": "12 GraIL pairs", "4 hops": "4 hops",
        "no edges dropped": "no further edges", "whole graphs only": "whole graphs only",
        "subgraphs not thinned": "not thinned",
    }  # fmt: skip
    for name, row in zip(found, rows, strict=True):
        assert labels[name] in row[0]
    folder = ROOT / "results" / "pretraining"
    run, second = (json.loads((folder / f"{n}.json").read_text()) for n in ("first", "shipped"))
    first, last = (run["history"][i]["graphs"] for i in (0, -1))
    pairs = [name for name in first if name not in large]
    assert len(pairs) == 12
    prose = " ".join(text.split())
    for names, words in ((pairs, "is {} after 4,000 steps and {}"), (large, "from {} to {}")):
        assert words.format(*(short(mean_mrr(g, names)) for g in (first, last))) in prose
    seconds = run["seconds"], second["seconds"]
    readme = (ROOT / "README.md").read_text()
    assert f"for {sum(seconds) / 60:.0f} minutes on an H200" in readme
    for n, link in zip(seconds, ("first run](A/first", "second](A/shipped"), strict=True):
        link = link.replace("A", "results/pretraining")
        assert f"{link}.json) of {n / 60:.0f}" in " ".join(readme.split())
    figures = [f"{short(c['mrr'])} / {short(c['hits_at_10'])}"
               for c in second["chosen"]["candidates"].values()]  # fmt: skip
    assert (
        "from {} to {}. A run with more and larger subgraphs reached {};".format(*figures) in prose
    )


def test_pages_say_where_the_weights_are_that_the_shipped_model_started_from():
    run = json.loads((ROOT / "results" / "pretraining" / "shipped.json").read_text())
    how = (ROOT / "docs" / "howto" / "reproduce.md").read_text()
    [commit] = re.findall(r"git checkout ([0-9a-f]{7}) --", how)
    assert f"at commit {commit}" in (SHIPPED / "README.md").read_text()
    for text in (how, (ROOT / "docs" / "experiments.md").read_text()):
        assert f"`{run['start'][:8]}`" in text
    for summary in SUMMARIES:
        assert summary.get("start") in (None, run["start"], model_digest(SHIPPED))
    file = f"{commit}:src/pathe/model/shipped/model.safetensors"
    stored = subprocess.run(["git", "show", file], cwd=ROOT, capture_output=True)
    if stored.returncode:
        pytest.skip("a checkout without its history")
    assert hashlib.sha256(stored.stdout).hexdigest() == run["start"]


def test_the_card_of_the_shipped_model_is_that_of_its_run():
    run = json.loads((ROOT / "results" / "pretraining" / "shipped.json").read_text())
    card = (SHIPPED / "README.md").read_text()
    assert f"| mrr | {run['metrics']['mrr']:.4g} |" in card
    assert f"| started_from | {run['start']} |" in card
    assert f"| steps | {run['step']} of {run['settings']['steps']} |" in card
    for name, digest in run["graphs"].items():
        assert name in card
        assert digest in card


def test_figures_of_missing_facts_and_verdicts_match_the_file():
    text = (ROOT / "docs" / "decisions" / "0013-true-or-false.md").read_text()
    found = json.loads((ROOT / "benchmarks" / "answers.json").read_text())
    made = found["missing"].pop("films")["after"]
    words = f"`missing` finds {short(made['recall at precision .9'])} of them at a precision of .9."
    assert f"lacks {made['hidden']} facts" in text
    assert words in " ".join(text.split())
    assert made["recall at precision .9"] >= 0.9
    for name, runs in found["missing"].items():
        before, after = runs["before"], runs["after"]
        keys = ("precision@100", "precision@1000", "recall at precision .5")
        cells = [f"{short(before[key])} to {short(after[key])}" for key in keys]
        assert f"| {name} | {after['hidden']:,} | {' | '.join(cells)} |" in text
        assert after["recall at precision .5"] > before["recall at precision .5"]
    for name, runs in found["classify"].items():
        run = runs["after"]
        cells = [short(run[key]) for key in ("accuracy", "F1", "calibration error")]
        assert f"| {name} | {run['true']:,} and {run['false']:,} | {' | '.join(cells)} |" in text
    words = " ".join(text.split())
    for runs in found["second"].values():
        before, after = runs["before"], runs["after"]
        n = before["other cities"]
        assert before["other cities judged true"] == n
        key = "other cities, mean probability"
        assert f"{short(before[key])})" in words
        assert re.search(
            rf"{after['other cities judged true']}( are)? \({short(after[key])}\)", words
        )
        right = f"{after['capitals judged true']} of {after['capitals']}"
        assert right in words
        assert after["other cities judged true"] <= 0.1 * n
    by_chance = found["classify"]["europe"]["after"]["calibration error of exact probabilities"]
    assert f"a calibration error of {short(by_chance)} there by chance" in words
    for runs in found["reasons"].values():
        run = runs["after"]
        assert f"{run['first']} of {run['facts']} " in words
    for name, runs in found["check"].items():
        run = runs["after"]
        assert f"| {name} | {run['facts']:,} | {run['wrong']} | {short(run['recall'])} |" in text
