"""Experiments as files: what to train on what, with which seeds; and what came out, as one JSON."""

from __future__ import annotations

import re
import statistics
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from pathe.config import Config, configure, read_preset
from pathe.errors import ConfigError, Interrupted, UnknownNameError, nearest
from pathe.files import write_json

if TYPE_CHECKING:
    from pathe.datasets import KnowledgeGraph

Table = Literal["link", "relation", "inductive", "ablation", "paths", "recipes"]
METRICS = ("mrr", "hits_at_1", "hits_at_3", "hits_at_5", "hits_at_10", "mean_rank")
OF_VARIANT = ("seeds", "commits", "metrics", "inference", "parameters", "valid_mrr",
              "train_seconds", "device", "runs")  # fmt: skip
Say = Callable[[str], None]


@dataclass(frozen=True)
class Experiment:
    """One row of the results: how it is made, and what the paper has there."""

    name: str
    title: str
    table: Table
    data: str  # the folder, in the one that holds all data sets
    named: str = ""  # the same as a data set's name, where there is one
    preset: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    paper: Mapping[str, float] = field(default_factory=dict)
    bars: Mapping[str, float] = field(default_factory=dict)  # what it should reach at least
    ships: bool = False  # its best model is kept in models/NAME
    note: str = ""
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what else to try

    def variant(self, title: str) -> Experiment:
        """The same with some settings changed, as an experiment of its own."""
        name = f"{self.name}/{_slug(title)}"
        settings = {**self.settings, **self.variants[title]}
        bare: dict[str, Any] = {"paper": {}, "bars": {}, "variants": {}}
        return replace(self, name=name, title=title, settings=settings, ships=False, **bare)

    def config(self, seed: int) -> Config:
        base = read_preset(self.preset) if self.preset else Config()
        return configure(base, {**self.settings, "seed": seed}, f"experiment {self.name}")


def experiment_names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))


def read_experiment(name: str, folder: Path) -> Experiment:
    """An experiment by its name in a folder, or by its file."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not path.is_file():
        known = experiment_names(folder)
        raise UnknownNameError(
            f"There is no experiment {name!r} in {folder}.{nearest(name, known)} "
            f"All: {', '.join(known) or 'none'}."
        )
    try:
        said = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not a YAML file: {error}") from None
    if not isinstance(said, dict):
        raise ConfigError(f"{path}: expected lines of `key: value`.")
    known_keys = {f.name: f for f in fields(Experiment) if f.name != "name"}
    for key in said:
        if key not in known_keys:
            raise ConfigError(f"{path}: there is no key {key!r}.{nearest(key, known_keys)}")
    needed = [k for k, f in known_keys.items()
              if f.default is MISSING and f.default_factory is MISSING]  # fmt: skip
    if missing := [key for key in needed if key not in said]:
        raise ConfigError(f"{path}: no {' and no '.join(missing)} in it.")
    if said["table"] not in typing.get_args(Table):
        raise ConfigError(
            f"{path}: table is one of {', '.join(typing.get_args(Table))}; got {said['table']!r}."
        )
    seeds = said.get("seeds", [0, 1, 2])
    if not isinstance(seeds, list) or not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"{path}: seeds are a list of different numbers; got {seeds!r}.")
    for key in ("settings", "paper", "bars", "variants"):
        if not isinstance(said.setdefault(key, {}), dict):
            raise ConfigError(f"{path}: {key} are lines of `key: value`; got {said[key]!r}.")
    if (
        said["table"] in ("link", "relation")
        and said["paper"]
        and "parameters" not in said["paper"]
    ):
        raise ConfigError(f"{path}: no parameters (in millions) under paper.")
    experiment = Experiment(name=path.stem, **{**said, "seeds": tuple(seeds)})
    experiment.config(0)  # its settings are checked before any work
    _check_variants(experiment, path)
    return experiment


def _check_variants(experiment: Experiment, path: Path) -> None:
    if experiment.variants and experiment.table != "recipes":
        raise ConfigError(f"{path}: variants are for table: recipes.")
    slugs: dict[str, Any] = {}
    for title, changed in experiment.variants.items():
        if not isinstance(title, str) or not _slug(title) or _slug(title).startswith("seed-"):
            raise ConfigError(f"{path}: a variant has a name in words; got {title!r}.")
        if (other := slugs.setdefault(_slug(title), title)) != title:
            raise ConfigError(f"{path}: variants {other!r} and {title!r} are too much alike.")
        if not isinstance(changed, dict) or not changed or "seed" in changed:
            raise ConfigError(f"{path}: variant {title!r} needs lines of `key: value`, no seed.")
        experiment.variant(title).config(0)


def _slug(title: str) -> str:
    """A variant's name as a folder's."""
    return re.sub(r"[^\w.]+", "-", title).strip("-.")


def find_data(experiment: Experiment, root: Path | None) -> str:
    """Where its data are: in the user's folder of data sets, or by name."""
    if root is None:
        if not experiment.named:
            raise ConfigError(
                f"{experiment.name} needs {experiment.data}, which no library downloads: give the "
                "folder that holds it with --data."
            )
        return experiment.named
    if not (root / experiment.data).exists():
        raise ConfigError(f"{root}: no {experiment.data} in it, which {experiment.name} needs.")
    return str(root / experiment.data)


def reproduce(
    experiment: Experiment,
    data: str,
    runs: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    say: Say = lambda text: None,
    progress_bar: bool = True,
) -> dict[str, Any]:
    """Trains every seed that isn't done yet, each in its own run; gives the summary."""
    from pathe.datasets import KnowledgeGraph
    from pathe.runs import RESULT, SETTINGS, differences, read_result, train

    kg = KnowledgeGraph.read(data)
    if experiment.table == "inductive" and (kg.inference is None or not len(kg.inference.test)):
        raise ConfigError(f"{data}: no inference graph {kg.name}_ind beside it, to judge by.")
    unseen = kg.inference.fingerprint() if kg.inference is not None else None
    found = []
    for seed in experiment.seeds:
        folder = runs / experiment.name / f"seed-{seed}"
        config = configure(experiment.config(seed), settings, "--set")
        if (folder / RESULT).exists():
            result = read_result(folder)
            same_data = result["fingerprint"] == kg.fingerprint() and (
                unseen is None or result.get("inference_fingerprint", unseen) == unseen
            )
            if differences(result["config"], config.as_dict()) or not same_data:
                raise ConfigError(
                    f"{folder}: done with other settings or data. Remove it, or name other --runs."
                )
            say(f"seed {seed}: done already ({folder})")
        else:
            begun = (folder / SETTINGS).exists()
            say(f"seed {seed}: {'going on with' if begun else 'training'} {folder}")
            try:
                result = train(kg, config, folder, resume=begun, say=say, progress_bar=progress_bar)
            except Interrupted:
                raise Interrupted("Stopped and saved. The same command goes on there.") from None
        if experiment.table == "link":
            result = _on_all(result, kg, folder)
        found.append(result)
    summary = summarise(experiment, found)
    more: dict[str, Any] = {"settings": settings, "say": say, "progress_bar": progress_bar}
    for title, changed in experiment.variants.items():
        say(f"{experiment.name}: {title}")
        one = reproduce(experiment.variant(title), data, runs, **more)
        summary.setdefault("variants", {})[title] = {
            "settings": dict(changed),
            **{key: one[key] for key in OF_VARIANT},
        }
    return summary


def _on_all(result: dict[str, Any], kg: KnowledgeGraph, folder: Path) -> dict[str, Any]:
    """The result with figures for all test triples: those of unseen entities are ranked, too."""
    from pathe.artifact import load_model
    from pathe.evaluation import evaluate
    from pathe.machine import commit, device_name, pick_device
    from pathe.runs import MODEL, RESULT

    n_seen, n_all = result["n_triples"], len(kg.test)
    if result["test_set"] != "seen" or n_seen == n_all or "all" in result:
        return result
    device = pick_device(result["config"]["accelerator"])
    rest = evaluate(load_model(folder / MODEL), kg, test_set="unseen", device=device)
    metrics = {k: (n_seen * result[k] + (n_all - n_seen) * rest[k]) / n_all for k in METRICS}
    about = {"n_triples": n_all, "n_unseen": n_all - n_seen, "commit": commit()}
    found = result | {"all": {**about, "device": device_name(device), **metrics}}
    write_json(folder / RESULT, found)
    return found


def _short(result: dict[str, Any]) -> dict[str, Any]:
    """Without long tables, wherever they are, and a command that may name places of a machine."""
    own = ("per_relation", "config", "command")
    kept = {k: v for k, v in result.items() if k not in own}
    return {k: _short(v) if isinstance(v, dict) else v for k, v in kept.items()}


def summarise(experiment: Experiment, found: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean and spread over seeds, and each seed's result without its long tables."""
    first = found[0]
    short = [_short(r) for r in found]
    return {
        "name": experiment.name,
        "title": experiment.title,
        "table": experiment.table,
        "command": f"pathe reproduce {experiment.name} --data FOLDER",
        "commit": first["commit"],
        "commits": sorted({r["commit"] for r in found}),
        "data": first["data"],
        "fingerprint": first["fingerprint"],
        "inference_fingerprint": first.get("inference_fingerprint"),
        "task": first["task"],
        "split": first["split"],
        "test_set": first["test_set"],
        "protocol": first["protocol"],
        "seeds": list(experiment.seeds),
        "metrics": spread(found),
        "all_metrics": spread([r["all"] for r in found]) if "all" in first else {},
        "inference": {
            protocol: spread([r["inference"][protocol] for r in found])
            for protocol in first.get("inference", {})
        },
        "relation_metrics": spread([r["relation"] for r in found]) if "relation" in first else {},
        "parameters": first["parameters"],
        "parameters_as_published": first["parameters_as_published"],
        "valid_mrr": statistics.fmean(r["best_valid_mrr"] or 0.0 for r in found),
        "train_seconds": statistics.fmean(r["train_seconds"] for r in found),
        "peak_memory_bytes": max(r["peak_memory_bytes"] for r in found),
        "device": ", ".join(sorted({r["device"] for r in found})),
        "best_seed": best_seed(experiment.seeds, found),
        "paper": dict(experiment.paper),
        "bars": dict(experiment.bars),
        "note": experiment.note,
        "config": first["config"],
        "runs": short,
    }


def spread(found: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation over seeds of each metric."""
    return {
        key: {
            "mean": statistics.fmean(r[key] for r in found),
            "std": statistics.stdev(r[key] for r in found) if len(found) > 1 else 0.0,
        }
        for key in METRICS
        if all(key in r for r in found)
    }


def best_seed(seeds: tuple[int, ...], found: list[dict[str, Any]]) -> int:
    """The seed whose model did best in validation: test figures choose nothing."""
    scores = [r["best_valid_mrr"] or 0.0 for r in found]
    return seeds[scores.index(max(scores))]


def write_summary(summary: dict[str, Any], results: Path) -> Path:
    path = results / f"{summary['name']}.json"
    write_json(path, summary)
    return path


def headline(summary: dict[str, Any]) -> str:
    """The figures that its table shows, in a line."""
    found = judged(summary)
    parts = [f"{key} {found[key]['mean']:.3f} ± {found[key]['std']:.3f}" for key in found
             if key in ("mrr", "hits_at_1", "hits_at_10")]  # fmt: skip
    return ", ".join(parts)


def judged(summary: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The metrics that an experiment is about: on unseen entities if it is inductive."""
    found: dict[str, dict[str, float]] = (
        summary["inference"]["sampled:50"]
        if summary["table"] == "inductive"
        else summary["metrics"]
    )
    return found


def ship(experiment: Experiment, summary: dict[str, Any], runs: Path, models: Path) -> Path:
    """Puts the model of the best validated seed into models/NAME, its figures in the card."""
    from pathe.artifact import load_model, save_model
    from pathe.runs import MODEL

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
        **{k: round(figures[k], 4) for k in ("mrr", "hits_at_1", "hits_at_10")},
    }
    folder = models / experiment.name
    save_model(folder, load_model(runs / experiment.name / f"seed-{seed}" / MODEL), facts)
    return folder
