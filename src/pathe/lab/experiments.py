"""Experiments as files: what to train on what, with which seeds; and the results, as one JSON."""

from __future__ import annotations

import re
import statistics
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pathe.core.config import Config, configure, current_names, read_preset
from pathe.core.errors import ConfigError, Interrupted, UnknownNameError, nearest
from pathe.core.files import write_json
from pathe.core.yaml_files import read_settings_file
from pathe.evaluation.metrics import HEADLINE, METRICS

if TYPE_CHECKING:
    from pathe.cluster.training import Wanted
    from pathe.data.knowledge_graph import KnowledgeGraph
    from pathe.graph.prepared import PreparedGraph

Table = Literal["link", "relation", "inductive", "ablation", "paths", "recipes", "tuned"]
KEYS = tuple(metric.key for metric in METRICS)
OF_VARIANT = ("seeds", "commits", "metrics", "inference", "parameters", "validation",
              "valid_score", "train_seconds", "device", "runs")  # fmt: skip
OF_FIRST = ("commit", "data", "fingerprint", "task", "split", "test_set", "protocol", "parameters",
            "parameters_as_published")  # fmt: skip
Say = Callable[[str], None]
Result = dict[str, Any]  # of a run or an experiment, as its file holds it


@dataclass(frozen=True)
class Experiment:
    """One row of the results: how it is produced, and the paper's figures for it."""

    name: str
    title: str
    table: Table
    data: str  # folder, inside the one that holds all data sets
    named: str = ""  # name of the same data set, if it can be downloaded
    preset: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    paper: Mapping[str, float] = field(default_factory=dict)
    bars: Mapping[str, float] = field(default_factory=dict)  # figures it should reach
    ships: bool = False  # --models FOLDER saves its best model to FOLDER/NAME
    note: str = ""
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # changed settings

    def variant(self, title: str) -> Experiment:
        """Returns a variant as an experiment of its own: the same with some settings changed."""
        name = f"{self.name}/{_slug(title)}"
        settings = {**self.settings, **self.variants[title]}
        bare: dict[str, Any] = {"paper": {}, "bars": {}, "variants": {}}
        return replace(self, name=name, title=title, settings=settings, ships=False, **bare)

    def config(self, seed: int) -> Config:
        """Returns the settings of one seed's run."""
        base = read_preset(self.preset) if self.preset else Config()
        return configure(base, {**self.settings, "seed": seed}, f"experiment {self.name}")


def experiment_names(folder: Path) -> list[str]:
    """Returns the names of the YAML files in a folder, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def read_record(kind: str, name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Reads a YAML file by its name in a folder, or by its path; returns the path, too."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not path.is_file():
        known = experiment_names(folder)
        raise UnknownNameError(
            f"There is no {kind} {name!r} in {folder}.{nearest(name, known)} "
            f"All: {', '.join(known) or 'none'}; or name a .yaml file."
        )
    return path, read_settings_file(path)


def read_experiment(name: str, folder: Path) -> Experiment:
    """Reads an experiment by its name in a folder, or by its file, and checks it."""
    path, values = read_record("experiment", name, folder)
    _check_values(values, path)
    experiment = Experiment(name=path.stem, **values)
    experiment.config(0)  # checks its settings before any work
    _check_variants(experiment, path)
    return experiment


def _check_values(values: dict[str, Any], path: Path) -> None:
    """Checks the keys and types of an experiment's file; converts its seeds and settings."""
    known = {f.name: f for f in fields(Experiment) if f.name != "name"}
    for key in values:
        if key not in known:
            raise ConfigError(f"{path}: there is no key {key!r}.{nearest(key, known)}")
    needed = [k for k, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    if missing := [key for key in needed if key not in values]:
        raise ConfigError(f"{path}: no {' and no '.join(missing)} in it.")
    if values["table"] not in (choices := typing.get_args(Table)):
        raise ConfigError(f"{path}: table is one of {', '.join(choices)}; got {values['table']!r}.")
    seeds = values.get("seeds", [0, 1, 2])
    if not isinstance(seeds, list) or not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"{path}: seeds are a list of different numbers; got {seeds!r}.")
    values["seeds"] = tuple(seeds)
    for key in ("settings", "paper", "bars", "variants"):
        if not isinstance(values.setdefault(key, {}), dict):
            raise ConfigError(f"{path}: {key} are lines of `key: value`; got {values[key]!r}.")
    values["settings"] = current_names(values["settings"])
    compared = values["table"] in ("link", "relation") and values["paper"]
    if compared and "parameters" not in values["paper"]:
        raise ConfigError(f"{path}: no parameters (in millions) under paper.")


def _check_variants(experiment: Experiment, path: Path) -> None:
    if experiment.variants and experiment.table != "recipes":
        raise ConfigError(f"{path}: variants are for table: recipes.")
    slugs: dict[str, Any] = {}
    for title, changed in experiment.variants.items():
        if not isinstance(title, str) or not _slug(title) or _slug(title).startswith("seed-"):
            raise ConfigError(f"{path}: expected a variant's name as text; got {title!r}.")
        if (other := slugs.setdefault(_slug(title), title)) != title:
            raise ConfigError(f"{path}: variants {other!r} and {title!r} would share a folder.")
        if not isinstance(changed, dict) or not changed or "seed" in changed:
            raise ConfigError(f"{path}: variant {title!r} needs lines of `key: value`, no seed.")
        experiment.variant(title).config(0)


def _slug(title: str) -> str:
    """Returns a variant's name as a folder name."""
    return re.sub(r"[^\w.]+", "-", title).strip("-.")


def find_data(experiment: Experiment, root: Path | None) -> str:
    """Returns the path of an experiment's data under `root`, or without one its name."""
    name, data = experiment.name, experiment.data
    if root is not None:
        if not (root / data).exists():
            raise ConfigError(f"{root}: no {data} in it, which {name} needs.")
        return str(root / data)
    if not experiment.named:
        missing = f"{name} needs {data}, which can't be downloaded"
        raise ConfigError(f"{missing}: give the folder that holds it with --data.")
    return experiment.named


def reproduce(
    experiment: Experiment,
    data: str,
    runs: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    elsewhere: Callable[[KnowledgeGraph, list[Wanted]], None] | None = None,
    say: Say = lambda text: None,
    command: str | None = None,
) -> Result:
    """Trains every seed and variant that isn't done yet, each in its own run.

    Returns the summary of all runs. `settings` replace the experiment's own. `elsewhere` trains
    runs in another place, such as a cluster, and writes their folders. `command` is the command
    line to record in the results of the runs.
    """
    from pathe.data.knowledge_graph import KnowledgeGraph
    from pathe.graph.prepared import prepare

    kg = KnowledgeGraph.read(data)
    if experiment.table == "inductive" and (kg.inference is None or not len(kg.inference.test)):
        raise ConfigError(f"{data}: no inference graph {kg.name}_ind beside it to evaluate on.")
    if elsewhere is not None:
        every = (experiment, *map(experiment.variant, experiment.variants))
        wanted = [run for one in every for run in _runs_of(one, runs, settings)]
        elsewhere(kg, [run for run in wanted if not _is_done(run)])
    prepared = prepare(kg)

    def summary(experiment: Experiment) -> Result:
        found = []
        for config, folder in _runs_of(experiment, runs, settings):
            result = _train_or_read(prepared, config, folder, say, command)
            ranked = experiment.table in ("link", "tuned")
            found.append(_with_all_triples(result, prepared, folder) if ranked else result)
        return summarise(experiment, found)

    whole = summary(experiment)
    for title, changed in experiment.variants.items():
        say(f"{experiment.name}: {title}")
        one = summary(experiment.variant(title))
        kept = {"settings": dict(changed), **{key: one[key] for key in OF_VARIANT}}
        whole.setdefault("variants", {})[title] = kept
    return whole


def _runs_of(
    experiment: Experiment, runs: Path, settings: Mapping[str, Any] | None
) -> Iterator[Wanted]:
    """Yields the settings and the folder of each seed's run."""
    for seed in experiment.seeds:
        config = configure(experiment.config(seed), settings, "--set")
        yield config, runs / experiment.name / f"seed-{seed}"


def _is_done(run: Wanted) -> bool:
    from pathe.training.run_folder import RESULT

    return (run[1] / RESULT).exists()


def _train_or_read(
    prepared: PreparedGraph, config: Config, folder: Path, say: Say, command: str | None
) -> Result:
    """Returns the result of one seed's run: of a finished one, or after training."""
    from pathe.training.run import Options, train
    from pathe.training.run_folder import (
        RESULT,
        SETTINGS,
        differences,
        read_result,
        resumed_config,
    )

    if (folder / RESULT).exists():
        result, graphs = read_result(folder), {"fingerprint": prepared.kg}
        if prepared.kg.inference is not None:
            graphs["inference_fingerprint"] = prepared.kg.inference
        prints = {key: kg.fingerprint() for key, kg in graphs.items()}
        other_data = any(result.get(key, value) != value for key, value in prints.items())
        if other_data or differences(result["config"], config.as_dict()):
            raise ConfigError(
                f"{folder}: done with other settings or data. Remove it, or name other --runs."
            )
        say(f"seed {config.seed}: done already ({folder})")
        return result
    begun = (folder / SETTINGS).exists()
    if begun and (was := resumed_config(folder).learning_rate) != config.learning_rate:
        raise ConfigError(f"{folder}: begun with learning_rate={was}. Remove it to start again.")
    say(f"seed {config.seed}: {'resuming' if begun else 'training'} {folder}")
    try:
        return train(prepared, config, folder, Options(begun, say, command=command))
    except Interrupted as stopped:
        text = "Stopped and saved. Run the same command again to resume."
        raise Interrupted(text, stopped.signum) from None


def _with_all_triples(result: Result, prepared: PreparedGraph, folder: Path) -> Result:
    """Returns the result with figures of all test triples: ranks those of unseen entities too."""
    from pathe.core.hardware import commit, device_name, pick_device
    from pathe.evaluation.ranking import evaluate
    from pathe.model.artifact import load_model
    from pathe.training.run_folder import MODEL, RESULT

    n_seen, n_all = result["n_triples"], len(prepared.kg.test)
    if result["test_set"] != "seen" or n_seen == n_all or "all" in result:
        return result
    device = pick_device(result["config"]["accelerator"])
    rest = evaluate(load_model(folder / MODEL), prepared, test_set="unseen", device=device)
    metrics = {k: (n_seen * result[k] + (n_all - n_seen) * rest[k]) / n_all for k in KEYS}
    about = {"n_triples": n_all, "n_unseen": n_all - n_seen, "commit": commit()}
    found = result | {"all": {**about, "device": device_name(device), **metrics}}
    write_json(folder / RESULT, found)
    return found


def _short(result: Result) -> Result:
    """Returns a result without long tables and the command, which may name local paths."""
    dropped = ("per_relation", "config", "command")
    kept = {k: v for k, v in result.items() if k not in dropped}
    return {k: _short(v) if isinstance(v, dict) else v for k, v in kept.items()}


def summarise(experiment: Experiment, found: list[Result]) -> Result:
    """Returns mean and spread over seeds, and each seed's result without its long tables."""
    first, scores = found[0], [validation_score(result) for result in found]
    protocols = first.get("inference", {})
    return {
        "name": experiment.name,
        "title": experiment.title,
        "table": experiment.table,
        "command": f"pathe reproduce {experiment.name} --data FOLDER",
        **{key: first[key] for key in OF_FIRST},
        "inference_fingerprint": first.get("inference_fingerprint"),
        "start": first.get("start"),
        "commits": sorted({r["commit"] for r in found}),
        "seeds": list(experiment.seeds),
        "metrics": spread(found),
        "all_metrics": spread([r["all"] for r in found]) if "all" in first else {},
        "inference": {p: spread([r["inference"][p] for r in found]) for p in protocols},
        "validation": validation_of(first["config"]),
        "valid_score": statistics.fmean(scores),
        "train_seconds": statistics.fmean(r["train_seconds"] for r in found),
        "peak_memory_bytes": max(r["peak_memory_bytes"] for r in found),
        "device": ", ".join(sorted({r["device"] for r in found})),
        # of the best model in validation: test figures choose nothing
        "best_seed": experiment.seeds[scores.index(max(scores))],
        "paper": dict(experiment.paper),
        "bars": dict(experiment.bars),
        "note": experiment.note,
        "config": first["config"],
        "runs": [_short(r) for r in found],
    }


def spread(found: list[Result]) -> dict[str, dict[str, float]]:
    """Returns mean and standard deviation over seeds of each metric."""
    return {
        key: {
            "mean": statistics.fmean(r[key] for r in found),
            "std": statistics.stdev(r[key] for r in found) if len(found) > 1 else 0.0,
        }
        for key in KEYS
        if all(key in r for r in found)
    }


def validation_score(found: Mapping[str, Any]) -> float:
    """Returns the validation score of a run, trial or summary; 0 for one without validation.

    Files of earlier versions call it an MRR.
    """
    keys = ("best_valid_score", "valid_score", "best_valid_mrr", "valid_mrr")
    return next((float(found[key]) for key in keys if found.get(key) is not None), 0.0)


def validation_of(settings: Mapping[str, Any]) -> str:
    """Returns what the validation score of a run with these stored settings measures."""
    from pathe.training.learner import validation_title

    needed = ("task", "valid_negatives")
    return validation_title(configure(settings={k: settings[k] for k in needed if k in settings}))


def write_summary(summary: Result, results: Path) -> Path:
    """Writes a summary to NAME.json in the folder; returns the file."""
    path = results / f"{summary['name']}.json"
    write_json(path, summary)
    return path


def headline(summary: Result) -> str:
    """Returns the figures that its table shows, in one line."""
    found = {key: value for key, value in judged(summary).items() if key in HEADLINE}
    return ", ".join(f"{key} {v['mean']:.3f} ± {v['std']:.3f}" for key, v in found.items())


def judged(summary: Result) -> dict[str, dict[str, float]]:
    """Returns the metrics that an experiment is about: on unseen entities if it is inductive.

    Fine-tuned models are judged on all test triples, like the model without fine-tuning.
    """
    match summary["table"]:
        case "inductive":
            return dict(summary["inference"]["sampled:50"])
        case "tuned":
            whole = summary["inference"].get("full") or summary["all_metrics"]
            return dict(whole or summary["metrics"])
        case _:
            return dict(summary["metrics"])


def ship(experiment: Experiment, summary: Result, runs: Path, models: Path) -> Path:
    """Saves the model of the best validated seed to models/NAME, with its figures in the card."""
    from pathe.model.artifact import load_model, save_model
    from pathe.training.run_folder import MODEL

    seed = summary["best_seed"]
    own = summary["runs"][list(experiment.seeds).index(seed)]
    figures = own["inference"]["sampled:50"] if experiment.table == "inductive" else own
    facts = {
        "experiment": experiment.name,
        "data": summary["data"] + ("_ind" if experiment.table == "inductive" else ""),
        "task": summary["task"],
        "seed": seed,
        "commit": own["commit"],
        **{k: figures[k] for k in ("split", "test_set", "protocol")},
        **{k: round(figures[k], 4) for k in HEADLINE},
    }
    folder = models / experiment.name
    save_model(folder, load_model(runs / experiment.name / f"seed-{seed}" / MODEL), facts)
    return folder
