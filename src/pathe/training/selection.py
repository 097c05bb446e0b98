"""Trains several models on a graph and keeps the one with the best validation score."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pathe.core.config import Config, configure
from pathe.core.errors import ConfigError
from pathe.core.files import replacing, write_json
from pathe.core.hardware import pick_device
from pathe.core.yaml_files import read_settings_file
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.metrics import mean_mrr
from pathe.evaluation.ranking import sampled
from pathe.graph.prepared import PreparedGraph, prepare
from pathe.model.artifact import CARD, load_model, save_model
from pathe.model.builder import build_scorer
from pathe.training.graph_learner import validate
from pathe.training.learner import validation_title
from pathe.training.run import Options, train
from pathe.training.run_folder import (
    METRICS,
    MODEL,
    REPORT,
    RESULT,
    SETTINGS,
    check_resumable,
    owned,
    read_result,
)

CANDIDATES = "candidates"  # folder of the runs
PLAN = "candidates.yaml"  # their settings
VALID_TRIPLES = 2000  # most that models are compared on


def train_best(
    kg: KnowledgeGraph | PreparedGraph,
    candidates: Mapping[str, Config],
    folder: Path,
    options: Options | None = None,
) -> dict[str, Any]:
    """Trains a model per candidate in `folder`/candidates and returns the best one's result.

    The best in validation, ranked among all entities, is copied to `folder`. A resumed run skips
    candidates that are finished.
    """
    options = options or Options()
    with owned(folder, options.resume):
        return _train_best(prepare(kg), candidates, folder, options)


def _train_best(
    prepared: PreparedGraph, candidates: Mapping[str, Config], folder: Path, options: Options
) -> dict[str, Any]:
    begin, say = time.perf_counter(), options.say
    if not options.resume:
        with replacing(folder / PLAN) as aside:
            plan = {name: config.as_dict() for name, config in candidates.items()}
            aside.write_text(yaml.safe_dump(plan, sort_keys=False), encoding="utf-8")
    for name, config in candidates.items():  # those that were trained before
        check_resumable(_place(folder, name), config, prepared.kg.fingerprint())
    found: dict[str, dict[str, Any]] = {}
    for i, (name, config) in enumerate(candidates.items(), 1):
        say(f"{i} of {len(candidates)}: {name}")
        place = _place(folder, name)
        if (place / RESULT).is_file():
            result = read_result(place)
        else:
            begun = (place / SETTINGS).is_file()
            how = replace(options, resume=begun, resume_folder=folder)
            result = train(prepared, config, place, how)
        found[name] = {
            "valid_score": _score(place, config, prepared),
            "parameters": result["parameters"],
            "train_seconds": result["train_seconds"],
        }
    best = max(found, key=lambda name: float(found[name]["valid_score"]))
    title = validation_title(configure(candidates[best], {"valid_negatives": 0}))
    each = ", ".join(f"{name} {one['valid_score']:.3f}" for name, one in found.items())
    say(f"best {title}: {best} ({each})")
    about = {"chosen": best, "candidates": found, "seconds": time.perf_counter() - begin}
    result = _keep(folder, best, about)
    say(f"its model is in {folder / MODEL}; all took {about['seconds']:.0f} s")
    return result


def _place(folder: Path, name: str) -> Path:
    return folder / CANDIDATES / name.replace(" ", "-")


def stored_candidates(folder: Path | None) -> dict[str, Config] | None:
    """Returns the candidates of a run to resume; None if it trains one model only."""
    path = None if folder is None else folder / PLAN
    if path is None or not path.is_file():
        return None
    stored = read_settings_file(path)
    if not stored or not all(isinstance(one, dict) for one in stored.values()):
        raise ConfigError(
            f"{path}: expected the settings of each candidate: truncated or modified."
        )
    return {name: configure(settings=one, source=str(path)) for name, one in stored.items()}


def _score(place: Path, config: Config, prepared: PreparedGraph) -> float:
    """Returns the mean MRR of the tasks on validation triples, ranked among all candidates."""
    artifact, prepared = load_model(place), prepared.on(pick_device(config.accelerator))
    scorer = build_scorer(artifact.model.to(prepared.device), config, prepared)
    triples_M3 = sampled(prepared.triples("valid", "seen"), VALID_TRIPLES)
    return mean_mrr(validate(scorer, triples_M3, config.task))


def _keep(folder: Path, best: str, about: dict[str, Any]) -> dict[str, Any]:
    """Copies the best run's model, settings, metrics and plot to the folder; the result last."""
    place = _place(folder, best)
    save_model(folder / MODEL, load_model(place))
    for name in (f"{MODEL}/{CARD}", SETTINGS, METRICS, REPORT):
        if (place / name).is_file():
            with replacing(folder / name) as aside:
                shutil.copyfile(place / name, aside)
    result = read_result(place) | {"selection": about}
    write_json(folder / RESULT, result)
    return result
