"""The model folder: weights, settings, relation names and a card; no pickle, digests checked."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from pathe.core.config import Config, configure
from pathe.core.errors import ModelError
from pathe.core.files import check_new_folder, replacing
from pathe.data.vocabulary import Vocabulary
from pathe.model.builder import build, weight_shapes
from pathe.model.foundation import FoundationModel
from pathe.model.pathe import PathE, count_parameters

FORMAT = 2  # version of the folder's format
WEIGHTS, CONFIG, RELATIONS, CARD = "model.safetensors", "config.json", "relations.json", "README.md"
COLDEST, HOTTEST = 1e-3, 1e3  # temperatures: beyond, probabilities say nothing
LARGEST_TEXT, LARGEST_HEADER = 1 << 28, 1 << 20  # bytes of a JSON file; of the weights' header
FILES = (WEIGHTS, CONFIG, RELATIONS, CARD)
SHIPPED = Path(__file__).with_name("shipped")  # the pre-trained model of the package


@dataclass(frozen=True)
class Artifact:
    """A model with everything needed to use it.

    `relations` are those that it was trained for; None if it works with those of any graph.
    `temperatures`, one per task, are fitted on validation triples and calibrate probabilities.
    """

    model: PathE | FoundationModel
    config: Config
    relations: Vocabulary | None
    temperatures: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        n, task = count_parameters(self.model), self.config.task
        relations = "any" if self.relations is None else f"{len(self.relations):,}"
        return f"Artifact({task}, {n:,} parameters, {relations} relations)"


def save_model(folder: Path | str, artifact: Artifact, facts: dict[str, Any] | None = None) -> None:
    """Writes a model folder; `facts` go into the card, floats as metrics.

    A new folder appears whole. In an existing model folder, files are replaced one by one, settings
    and digests last. The old files stay readable until then, so a killed process leaves the old
    model or the new one. Other files are kept. Any other non-empty folder is an error.
    """
    weights = save_tensors({k: v.contiguous() for k, v in artifact.model.state_dict().items()})
    relations = list(artifact.relations or ())
    names = json.dumps(relations, ensure_ascii=False, indent=0) + "\n"
    about: dict[str, Any] = {
        "format": FORMAT,
        "n_relations": len(relations),
        "n_parameters": count_parameters(artifact.model),
        "temperatures": dict(artifact.temperatures),
        "config": artifact.config.as_dict(),
        "sha256": {WEIGHTS: _digest(weights), RELATIONS: _digest(names.encode())},
    }
    about["sha256"][CONFIG] = _digest_settings(about)
    folder = Path(folder).absolute()
    replaces = (folder / CONFIG).is_file()
    if replaces:
        _read_about(folder / CONFIG)  # raises an error if PathE didn't write it
    else:
        check_new_folder(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    files = {
        CONFIG: (json.dumps(about, indent=2) + "\n").encode(),
        WEIGHTS: weights,
        RELATIONS: names.encode(),
        CARD: _card(about, facts or {}).encode(),
    }
    if replaces:
        with ExitStack() as stack:  # the first is renamed last: CONFIG, with the digests
            for name, raw in files.items():
                stack.enter_context(replacing(folder / name)).write_bytes(raw)
            _keep_old(folder, about["sha256"])
        _remove_old(folder)
        return
    with replacing(folder) as built:
        built.mkdir()
        for name, raw in files.items():
            (built / name).write_bytes(raw)
        if folder.exists():
            folder.rmdir()  # it is empty


def _keep_old(folder: Path, digests: dict[str, str]) -> None:
    """Gives files that are about to be replaced a second name, which their digest leads to."""
    for name, digest in _read_about(folder / CONFIG)["sha256"].items():
        if name in (WEIGHTS, RELATIONS) and digest != digests[name]:
            old = _old(folder / name, digest)
            if (
                old.exists() or not (folder / name).is_file()
            ):  # a save was killed; or a damaged folder
                continue
            try:
                os.link(folder / name, old)
            except OSError:  # a file system without hard links
                shutil.copyfile(folder / name, old)


def _old(path: Path, digest: str) -> Path:
    """Returns the second name of a file that is replaced."""
    return path.with_name(f".{path.name}.{digest[:16]}.old")


def _remove_old(folder: Path) -> None:
    for path in folder.glob(".*.old"):
        if path.name.startswith((f".{WEIGHTS}.", f".{RELATIONS}.")):
            path.unlink(missing_ok=True)


def write_card(folder: Path, facts: dict[str, Any]) -> None:
    """Writes the card of a saved model again, with other facts."""
    about = _read_about(folder / CONFIG)
    with replacing(folder / CARD) as aside:
        aside.write_text(_card(about, facts), encoding="utf-8")


def model_folder(folder: str | Path) -> Path:
    """Returns the folder itself, or the model folder in it if it is a run."""
    folder = Path(folder)
    if (folder / "model" / CONFIG).is_file():
        return folder / "model"
    if (folder / "config.yaml").is_file() and not (folder / CONFIG).is_file():
        raise ModelError(
            f"{folder}: this run stopped before it saved a model. Resume it with: pathe train DATA "
            f"--resume --out {folder}"
        )
    if (folder / "checkpoint.pt").is_file():
        raise ModelError(
            f"{folder}: this run stopped before it saved a model. Resume it with: pathe pretrain "
            f"GRAPH ... --resume --out {folder}"
        )
    if not (folder / CONFIG).is_file():
        what = "no such model folder" if not folder.exists() else "not a model folder"
        reason = f", as it has no {CONFIG}" if folder.is_dir() else ""
        raise ModelError(
            f"{folder}: {what}{reason}. Expected a folder written by `pathe train`: a run, or the "
            "`model` folder in it. If it is a graph, give it as --data alone, without a model: the "
            "pre-trained one answers."
        )
    return folder


def is_model(folder: str | Path) -> bool:
    """Whether a folder is a model, or a run, finished or not."""
    names = (CONFIG, "config.yaml", "checkpoint.pt")
    return any((Path(folder) / name).is_file() for name in (*names, f"model/{CONFIG}"))


def load_model(folder: str | Path | None = None) -> Artifact:
    """Loads a model folder, or that of a run, and checks its digests and contents.

    Without a folder, loads the pre-trained model that comes with the package: it works on any
    graph.
    """
    folder = SHIPPED if folder is None else model_folder(folder)
    about = _read_about(folder / CONFIG)
    digests = about["sha256"]
    names = _read_json(folder / RELATIONS, digests[RELATIONS])
    if not isinstance(names, list) or len(names) != about.get("n_relations"):
        raise ModelError(f"{folder / RELATIONS}: expected {about.get('n_relations')} names.")
    if not _are_names(names):
        raise ModelError(f"{folder / RELATIONS}: expected sorted, distinct names: modified.")
    config = configure(settings=about["config"], source=str(folder / CONFIG))
    weights = _read_weights(folder / WEIGHTS, digests[WEIGHTS], weight_shapes(config, len(names)))
    model = build(config, len(names))
    model.load_state_dict(weights)
    if any(not bool(weight.isfinite().all()) for weight in model.state_dict().values()):
        raise ModelError(f"{folder / WEIGHTS}: has weights that are NaN or infinite.")
    any_graph = config.relation_vectors == "graph"
    relations = None if any_graph else Vocabulary(names, kind="relation")
    return Artifact(model.eval(), config, relations, about["temperatures"])


def _read_weights(
    path: Path, sha256: str | None, wanted: Mapping[str, torch.Size]
) -> dict[str, torch.Tensor]:
    """Reads weights of these shapes; before any other is built, so that none takes all memory."""
    most = LARGEST_HEADER + 8 * sum(shape.numel() for shape in wanted.values())
    raw = _read(path, sha256, most)
    try:
        found = load_tensors(raw)
    except (SafetensorError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(
            f"{path}: the weights can't be read ({reason}): the file was modified."
        ) from None
    shapes = {name: weight.shape for name, weight in found.items()}
    for name in sorted(wanted.keys() | shapes.keys()):
        expected, got = wanted.get(name), shapes.get(name)
        if expected != got:
            raise ModelError(
                f"{path}: doesn't fit {CONFIG}: {name[:100]}: expected {_shown(expected)}, got "
                f"{_shown(got)}."
            )
    return found


def _shown(shape: torch.Size | None) -> str:
    return "no such weight" if shape is None else str(list(shape))


def model_digest(folder: str | Path) -> str:
    """Returns the digest of a model's weights."""
    digest: str = _read_about(model_folder(folder) / CONFIG)["sha256"][WEIGHTS]
    return digest


def _are_names(names: list[Any]) -> bool:
    """Whether these are unique, encodable names in a vocabulary's order."""
    try:
        raw = [name.encode() for name in names]
    except (AttributeError, UnicodeEncodeError):
        return False
    return all(a < b for a, b in pairwise(raw))


def _are_temperatures(found: Any) -> bool:
    return isinstance(found, dict) and all(
        isinstance(t, float | int) and COLDEST <= t <= HOTTEST for t in found.values()
    )


def _read_about(path: Path) -> dict[str, Any]:
    """Reads and checks config.json, upgraded to the current format."""
    about = _read_json(path)
    if not isinstance(about, dict) or not isinstance(about.get("config"), dict):
        raise ModelError(f"{path}: not written by PathE.")
    match about.get("format"):
        case 1:  # without temperatures, and with a digest of the weights only
            if not isinstance(about.get("sha256"), str):
                raise ModelError(f"{path}: has no digest of the weights: modified.")
            old = {WEIGHTS: about["sha256"], RELATIONS: None}
            return about | {"temperatures": {}, "sha256": old}
        case 2:
            digests = about.get("sha256")
            if not isinstance(digests, dict) or not {WEIGHTS, RELATIONS, CONFIG} <= digests.keys():
                raise ModelError(f"{path}: has no digests: truncated or modified.")
            if digests[CONFIG] != _digest_settings(about):
                raise ModelError(f"{path}: differs from the saved settings: modified.")
            if not _are_temperatures(about.get("temperatures")):
                raise ModelError(
                    f"{path}: expected temperatures above 0, from {COLDEST} to {HOTTEST:g}: "
                    "modified."
                )
            return about
        case None:
            raise ModelError(f"{path}: not written by PathE.")
        case other:
            raise ModelError(
                f"{path}: expected model format 1 to {FORMAT}, got format {other!r}. "
                "A newer PathE wrote it: update with pip install -U pathe."
            )


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _digest_settings(about: dict[str, Any]) -> str:
    """Returns the digest of config.json without its digests."""
    settings = {key: value for key, value in about.items() if key != "sha256"}
    return _digest(json.dumps(settings, sort_keys=True).encode())


def _read(path: Path, sha256: str | None, most: int = LARGEST_TEXT) -> bytes:
    """Returns a file's content; if it was replaced by a save that was killed, the old content."""
    try:
        if path.exists() and not path.is_file():  # a FIFO would never end
            raise ModelError(f"{path}: expected a file.")
        if (size := path.stat().st_size) > most:
            raise ModelError(f"{path}: expected at most {most:,} bytes; got {size:,}: modified.")
        raw = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}.") from None
    if sha256 is None or _digest(raw) == sha256:
        return raw
    if _old(
        path, sha256
    ).is_file():  # a process was killed, or is busy, while it saves another model
        return _read(_old(path, sha256), sha256, most)
    raise ModelError(f"{path}: differs from the file that was saved: truncated or modified.")


def _read_json(path: Path, sha256: str | None = None) -> Any:
    try:
        return json.loads(_read(path, sha256))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON ({error}): truncated or modified.") from None


def _about_relations(about: dict[str, Any]) -> str:
    parameters = f"{about['n_parameters']:,} parameters"
    if about["config"].get("relation_vectors") == "graph":
        return f"{parameters}, no entity or relation embeddings: the model works on any graph."
    return (
        f"{parameters}, {about['n_relations']:,} relations, no entity embeddings: the\n"
        "model works for any entity of any graph with these relations."
    )


def _card(about: dict[str, Any], facts: dict[str, Any]) -> str:
    """Returns the model card: YAML metadata with the metrics, as model hubs expect, and text."""
    header: dict[str, Any] = {
        "library_name": "pathe",
        "pipeline_tag": "graph-ml",
        "tags": ["knowledge-graph", "link-prediction", "relation-prediction", "entity-agnostic"],
    }
    figures = [k for k, value in facts.items() if isinstance(value, float)]
    data = facts.get("data")
    if figures:
        result = {
            "task": {"type": "graph-ml", "name": f"{facts.get('task')} prediction"},
            "dataset": {"name": facts.get("validation", data), "type": data},
            "metrics": [
                {"type": k, "value": facts[k], "name": f"{k}, {facts.get('protocol')} ranking"}
                for k in figures
            ],
        }
        header["model-index"] = [{"name": f"pathe-{data}", "results": [result]}]
    lines = "\n".join(f"| {key} | {value} |" for key, value in facts.items())
    return f"""---
{yaml.safe_dump(header, sort_keys=False, allow_unicode=True).rstrip()}
---

# A PathE model

{_about_relations(about)}

| | |
|---|---|
{lines}

Predict missing triples with `pathe predict FOLDER --data DATA --head NAME --relation NAME`, or in
Python:

```python
import pathe

model = pathe.load("FOLDER")
p = pathe.Predictor(model, pathe.KnowledgeGraph.read("DATA"))
p.tails("a head", "a relation")
```
"""
