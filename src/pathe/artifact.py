"""The model folder: weights, settings, relation names and a card. No pickle, nothing unchecked."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from pathe.builder import build_model
from pathe.config import Config, configure
from pathe.errors import ModelError
from pathe.files import check_new_folder
from pathe.model import PathE, count_parameters
from pathe.triples import Vocabulary

FORMAT = 2  # of the folder; raised when its meaning changes
WEIGHTS, CONFIG, RELATIONS, CARD = "model.safetensors", "config.json", "relations.json", "README.md"
FILES = (WEIGHTS, CONFIG, RELATIONS, CARD)


@dataclass(frozen=True)
class Artifact:
    """A model with what it needs to be used.

    `temperatures` make probabilities of scores, a task each; fitted on validation triples.
    """

    model: PathE
    config: Config
    relations: Vocabulary
    temperatures: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        n, task = count_parameters(self.model), self.config.task
        return f"Artifact({task}, {n:,} parameters, {len(self.relations):,} relations)"


def save_model(folder: Path | str, artifact: Artifact, facts: dict[str, Any] | None = None) -> None:
    """Writes a model folder aside and puts it in place; `facts` go into the card.

    An older model's files are replaced, others beside them stay; any other folder is refused.
    """
    weights = save_tensors({k: v.contiguous() for k, v in artifact.model.state_dict().items()})
    names = json.dumps(list(artifact.relations), ensure_ascii=False, indent=0) + "\n"
    about: dict[str, Any] = {
        "format": FORMAT,
        "n_relations": len(artifact.relations),
        "n_parameters": count_parameters(artifact.model),
        "temperatures": dict(artifact.temperatures),
        "config": artifact.config.as_dict(),
        "sha256": {WEIGHTS: _digest(weights), RELATIONS: _digest(names.encode())},
    }
    about["sha256"][CONFIG] = _digest_settings(about)
    folder = Path(folder).absolute()
    replaces = (folder / CONFIG).is_file()
    if replaces:
        _read_about(folder / CONFIG)  # a config.json may be anyone's
    else:
        check_new_folder(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as aside:
        built = Path(aside) / "new"
        built.mkdir()
        (built / WEIGHTS).write_bytes(weights)
        (built / CONFIG).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        (built / RELATIONS).write_bytes(names.encode())
        (built / CARD).write_text(_card(about, facts or {}), encoding="utf-8")
        if not replaces:
            if folder.exists():
                folder.rmdir()  # it is empty
            built.rename(folder)
            return
        for name in (CARD, RELATIONS, WEIGHTS, CONFIG):  # the one that has the digests comes last
            (built / name).replace(folder / name)


def model_folder(folder: str | Path) -> Path:
    """The folder itself, or the model in it if it is a run."""
    folder = Path(folder)
    if (folder / "model" / CONFIG).is_file():
        return folder / "model"
    if (folder / "config.yaml").is_file() and not (folder / CONFIG).is_file():
        raise ModelError(
            f"{folder}: this run was stopped before it gave a model. Finish it: pathe train DATA "
            f"--resume --out {folder}"
        )
    if not (folder / CONFIG).is_file():
        raise ModelError(
            f"{folder}: not a model folder: no {CONFIG}. Expected a folder written by "
            "`pathe train`: a run, or the `model` folder in it."
        )
    return folder


def load_model(folder: str | Path) -> Artifact:
    """Reads a model folder (or a run, which holds one); checks everything that it reads."""
    folder = model_folder(folder)
    about = _read_about(folder / CONFIG)
    digests = about["sha256"]
    names = _read_json(folder / RELATIONS, digests[RELATIONS])
    if not isinstance(names, list) or len(names) != about.get("n_relations"):
        raise ModelError(f"{folder / RELATIONS}: expected {about.get('n_relations')} names.")
    if not _are_names(names):
        raise ModelError(f"{folder / RELATIONS}: not names in order, each once: altered.")
    config = configure(settings=about["config"], source=str(folder / CONFIG))
    model = build_model(config, len(names))
    raw = _read(folder / WEIGHTS, digests[WEIGHTS])
    try:
        model.load_state_dict(load_tensors(raw))
    except (SafetensorError, RuntimeError) as error:
        first = str(error).strip().splitlines()
        raise ModelError(
            f"{folder / WEIGHTS}: doesn't fit {CONFIG}: {' '.join(first[:2])}"
        ) from None
    relations = Vocabulary(names, kind="relation")
    return Artifact(model.eval(), config, relations, about["temperatures"])


def _are_names(names: list[Any]) -> bool:
    """Text that can be written, sorted as a vocabulary is, none of it twice."""
    try:
        raw = [name.encode() for name in names]
    except (AttributeError, UnicodeEncodeError):
        return False
    return all(a < b for a, b in pairwise(raw))


def _are_temperatures(found: Any) -> bool:
    return isinstance(found, dict) and all(
        isinstance(t, float | int) and math.isfinite(t) and t > 0 for t in found.values()
    )


def _read_about(path: Path) -> dict[str, Any]:
    """What a model folder says of itself, brought to the present format."""
    about = _read_json(path)
    if not isinstance(about, dict) or not isinstance(about.get("config"), dict):
        raise ModelError(f"{path}: not written by PathE.")
    match about.get("format"):
        case 1:  # had no temperatures, and a digest of the weights alone
            if not isinstance(about.get("sha256"), str):
                raise ModelError(f"{path}: no digest of the weights in it: altered.")
            old = {WEIGHTS: about["sha256"], RELATIONS: None}
            return about | {"temperatures": {}, "sha256": old}
        case 2:
            digests = about.get("sha256")
            if not isinstance(digests, dict) or not {WEIGHTS, RELATIONS, CONFIG} <= digests.keys():
                raise ModelError(f"{path}: no digests in it: truncated or altered.")
            if digests[CONFIG] != _digest_settings(about):
                raise ModelError(f"{path}: not the settings that were saved: altered.")
            if not _are_temperatures(about.get("temperatures")):
                raise ModelError(f"{path}: temperatures are numbers above 0; altered.")
            return about
        case None:
            raise ModelError(f"{path}: not written by PathE.")
        case other:
            raise ModelError(
                f"{path}: model format {other!r}; this version reads formats 1 to {FORMAT}. "
                "A newer PathE wrote it: update with pip install -U pathe."
            )


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _digest_settings(about: dict[str, Any]) -> str:
    """Of what config.json says, digests aside."""
    said = {key: value for key, value in about.items() if key != "sha256"}
    return _digest(json.dumps(said, sort_keys=True).encode())


def _read(path: Path, sha256: str | None) -> bytes:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}.") from None
    if sha256 is not None and _digest(raw) != sha256:
        raise ModelError(f"{path}: not the file that was saved: truncated or altered.")
    return raw


def _read_json(path: Path, sha256: str | None = None) -> Any:
    try:
        return json.loads(_read(path, sha256))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON ({error}): truncated or altered.") from None


def _card(about: dict[str, Any], facts: dict[str, Any]) -> str:
    """README.md as hubs read it: what it is in YAML, figures among it, then words."""
    header: dict[str, Any] = {
        "library_name": "pathe",
        "pipeline_tag": "graph-ml",
        "tags": ["knowledge-graph", "link-prediction", "relation-prediction", "entity-agnostic"],
    }
    figures = [k for k in ("mrr", "hits_at_1", "hits_at_10") if k in facts]
    if figures:
        result = {
            "task": {"type": "graph-ml", "name": f"{facts.get('task')} prediction"},
            "dataset": {"name": facts.get("data"), "type": facts.get("data")},
            "metrics": [
                {"type": k, "value": facts[k], "name": f"{k}, {facts.get('protocol')} ranking"}
                for k in figures
            ],
        }
        header["model-index"] = [{"name": f"pathe-{facts.get('data')}", "results": [result]}]
    lines = "\n".join(f"| {key} | {value} |" for key, value in facts.items())
    return f"""---
{yaml.safe_dump(header, sort_keys=False, allow_unicode=True).rstrip()}
---

# A PathE model

{about["n_parameters"]:,} parameters, {about["n_relations"]:,} relations, no entity table: it embeds
any entity of any graph with these relations.

| | |
|---|---|
{lines}

Ask it what is missing from a graph: `pathe predict FOLDER --data DATA --head NAME --relation NAME`,
or in Python:

```python
import pathe

model = pathe.load("FOLDER")
p = pathe.Predictor(model, pathe.KnowledgeGraph.read("DATA"))
p.tails("a head", "a relation")
```
"""
