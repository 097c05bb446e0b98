"""The model folder: weights, settings, relation names and a card. No pickle, nothing unchecked."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from pathe.builder import build_model
from pathe.config import Config, configure
from pathe.errors import ModelError
from pathe.model import PathE, count_parameters
from pathe.triples import Vocabulary

FORMAT = 1  # of the folder; raised when its meaning changes
WEIGHTS, CONFIG, RELATIONS, CARD = "model.safetensors", "config.json", "relations.json", "README.md"


@dataclass(frozen=True)
class Artifact:
    """A model with what it needs to be used."""

    model: PathE
    config: Config
    relations: Vocabulary


def save_model(folder: Path, artifact: Artifact, facts: dict[str, Any] | None = None) -> None:
    """Writes the folder aside and puts it in place whole; `facts` go into the card."""
    weights = save_tensors({k: v.contiguous() for k, v in artifact.model.state_dict().items()})
    about = {
        "format": FORMAT,
        "n_relations": len(artifact.relations),
        "n_parameters": count_parameters(artifact.model),
        "sha256": hashlib.sha256(weights).hexdigest(),
        "config": artifact.config.as_dict(),
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as aside:
        built = Path(aside) / "new"
        built.mkdir()
        (built / WEIGHTS).write_bytes(weights)
        (built / CONFIG).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        names = json.dumps(list(artifact.relations), ensure_ascii=False, indent=0)
        (built / RELATIONS).write_text(names + "\n", encoding="utf-8")
        (built / CARD).write_text(_card(about, facts or {}), encoding="utf-8")
        if folder.exists():
            shutil.move(folder, Path(aside) / "old")
        built.rename(folder)


def load_model(folder: str | Path) -> Artifact:
    """Reads a model folder (or a run, which holds one); checks everything that it reads."""
    folder = Path(folder)
    if (folder / "model" / CONFIG).is_file():
        folder = folder / "model"
    if not (folder / CONFIG).is_file():
        raise ModelError(
            f"{folder}: not a model folder: no {CONFIG}. Expected a folder written by "
            "`pathe train`: a run, or the `model` folder in it."
        )
    about = _read_json(folder / CONFIG)
    if not isinstance(about, dict) or "format" not in about or "config" not in about:
        raise ModelError(f"{folder / CONFIG}: not written by PathE.")
    if about["format"] != FORMAT:
        raise ModelError(
            f"{folder}: model format {about['format']}; this version reads format {FORMAT}."
        )
    names = _read_json(folder / RELATIONS)
    if not isinstance(names, list) or len(names) != about.get("n_relations"):
        raise ModelError(f"{folder / RELATIONS}: expected {about.get('n_relations')} names.")
    if names != sorted(names, key=str.encode):
        raise ModelError(f"{folder / RELATIONS}: names are not in order; the file was altered.")
    config = configure(settings=about["config"], source=str(folder / CONFIG))
    model = build_model(config, len(names))
    _load_weights(model, folder / WEIGHTS, about.get("sha256"))
    return Artifact(model.eval(), config, Vocabulary(names, kind="relation"))


def _load_weights(model: PathE, path: Path, sha256: str | None) -> None:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}.") from None
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise ModelError(f"{path}: not the weights that were saved: truncated or altered.")
    try:
        model.load_state_dict(load_tensors(raw))
    except (SafetensorError, RuntimeError) as error:
        first = str(error).strip().splitlines()
        raise ModelError(f"{path}: doesn't fit {CONFIG}: {' '.join(first[:2])}") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}.") from None
    except ValueError as error:
        raise ModelError(f"{path}: not valid JSON ({error}): truncated or altered.") from None


def _card(about: dict[str, Any], facts: dict[str, Any]) -> str:
    lines = "\n".join(f"| {key} | {value} |" for key, value in facts.items())
    return f"""---
library_name: pathe
tags: [knowledge-graph, link-prediction, relation-prediction, entity-agnostic]
---

# A PathE model

{about["n_parameters"]:,} parameters, {about["n_relations"]:,} relations, no entity table: it embeds
any entity of any graph with these relations.

| | |
|---|---|
{lines}

Use it: `pathe evaluate FOLDER --data DATA`.
"""
