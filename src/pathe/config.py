"""Settings: one flat, frozen, typed record. Defaults < preset < overrides; unknown keys refused."""

from __future__ import annotations

import contextlib
import inspect
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml

from pathe.errors import ConfigError, UnknownNameError, nearest

Task = Literal["link", "relation", "multi"]


@dataclass(frozen=True)
class Config:
    """Every setting of a run; the published ones are in the presets `paper-...`.

    The comments are what `pathe config` shows beside each key.
    """

    task: Task = "link"  # what to learn: links, relations, or both at once
    # paths
    n_paths: int = 4  # paths an entity (ppe), drawn for every step
    max_hops: int = 5  # longest walk, in edges
    path_form: Literal["joined", "single", "mixed"] = "single"  # in and out, one way, either way
    path_source: Literal["fresh", "mined"] = "fresh"  # drawn anew each step, or a fixed store
    n_mined: int = 20  # unique paths an entity in the mined store
    positions: Literal["focused", "signed", "absolute"] = "focused"  # distance, with way, order
    # model
    dim: int = 64  # width of every vector
    contexts: Literal["raw", "log1p"] = "log1p"  # relation counts as they are, or their logarithm
    context_dropout: float = 0.1  # share of context entries dropped in training
    refine: bool = False  # contexts take in those of the neighbours
    projector_layers: Literal[1, 2] = 1  # layers per direction: published counts 1, text 2
    heads: int = 2  # attention heads of the path encoder
    layers: int = 1  # layers of the path encoder
    feedforward: int = 128  # width of its feed-forward part
    dropout: float = 0.1  # in the path encoder and the aggregator
    aggregator: Literal["mean", "lstm", "transformer", "transformer-joint"] = "mean"
    aggregator_layers: int = 1  # layers of a Transformer aggregator
    bridge: Literal["none", "paths"] = "none"  # also see all paths between a pair, or don't
    bridge_dim: int = 32  # numbers that a path carries
    bridge_hops: int = 4  # edges of the longest path between a pair
    bridge_dropout: float = 0.0  # share of training questions that do without bridges
    bridge_edges: float = 1.0  # share of the edges that a training step's bridges take
    # objective
    loss: Literal["ce", "bce", "nssa"] = "ce"  # link loss
    label_smoothing: float = 0.0  # share of the target spread over the other answers
    margin: float = 10.0  # of nssa
    temperature: float = 1.0  # of nssa
    class_weights: bool = False  # weigh relations evenly in the relation loss
    link_weight: float = 0.5  # multi: weight of the link loss; the relation loss has the rest
    negatives: int = 256  # negatives a side of each positive
    negative_sampling: Literal["each", "shared", "all"] = "shared"  # own, the batch's, or everyone
    hold_out_batch: bool = True  # leave a batch's own edges out of contexts, walks and bridges
    hold_out_pairs: bool = False  # and all others between the same two entities
    # optimisation
    batch_size: int = 1024  # positives a step
    accumulate: int = 1  # batches an optimiser step
    learning_rate: float = 1e-3  # of Adam
    schedule: Literal["constant", "cosine"] = "constant"  # of the rate; cosine ends near 0
    clip: float = 1.0  # largest gradient norm; 0 for none
    max_epochs: int = 100  # training ends here at the latest
    patience: int = 10  # validations without a better MRR before stopping
    min_delta: float = 0.0  # what counts as better
    valid_negatives: int = 99  # negatives a side in validation; 0 ranks all entities
    validate_every: int = 1  # epochs between validations
    seed: int = 0  # of weights, batches, paths, negatives and dropout
    # evaluation
    test_paths: int = 16  # paths an entity when encoding for evaluation; 0: as n_paths
    # machine
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"  # auto takes a GPU if there is one
    devices: int = 1  # how many; more than one trains data-parallel
    precision: Literal["auto", "32", "bf16"] = "auto"  # auto: 32 (TF32 on a GPU)
    record: bool = True  # record a GPU's training step as a CUDA graph, where it can be

    def __post_init__(self) -> None:
        _check(self)

    @property
    def eval_paths(self) -> int:
        return self.test_paths or self.n_paths

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


KEYS = {f.name: f for f in fields(Config)}
_TYPES = typing.get_type_hints(Config)
_AT_LEAST = {
    "n_paths": 1, "max_hops": 1, "n_mined": 1, "dim": 2, "heads": 1, "layers": 1, "feedforward": 1,
    "aggregator_layers": 1, "negatives": 1, "batch_size": 1, "accumulate": 1, "max_epochs": 1,
    "patience": 1, "valid_negatives": 0, "validate_every": 1, "test_paths": 0, "devices": 1,
    "bridge_dim": 1, "bridge_hops": 1, "clip": 0, "min_delta": 0, "margin": 0, "temperature": 0,
}  # fmt: skip
_SHARES = ("context_dropout", "dropout", "bridge_dropout", "label_smoothing", "link_weight")


def configure(
    base: Config | None = None, settings: Mapping[str, Any] | None = None, source: str = "settings"
) -> Config:
    """The base with these settings put in, each checked against its type."""
    checked = {key: _value(key, value, source) for key, value in (settings or {}).items()}
    return replace(base or Config(), **checked)


def read_overrides(assignments: list[str]) -> dict[str, Any]:
    """`key=value` words of the command line; values are read as YAML."""
    settings = {}
    for word in assignments:
        key, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"--set takes key=value; got {word!r}.")
        try:
            settings[key.strip()] = yaml.safe_load(text) if text else text
        except yaml.YAMLError:
            raise ConfigError(f"--set {word}: the value can't be read.") from None
    return settings


def preset_names() -> list[str]:
    """The presets that come with the package."""
    folder = resources.files("pathe") / "presets"
    return sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".yaml"))


def preset_text(name: str) -> str:
    """A preset's file: its header says where it comes from."""
    if name not in preset_names():
        raise UnknownNameError(
            f"There is no preset {name!r}.{nearest(name, preset_names())} "
            f"All: {', '.join(preset_names())}."
        )
    return (resources.files("pathe") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")


def read_preset(name: str) -> Config:
    """The defaults with a preset's settings (a name, or the path of a YAML file)."""
    path = Path(name)
    text = path.read_text() if path.suffix in (".yaml", ".yml") else preset_text(name)
    try:
        settings = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not a YAML file: {error}") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{name}: expected lines of `key: value`, got {type(settings).__name__}.")
    return configure(settings=settings, source=f"preset {name}")


def describe_settings(config: Config) -> list[tuple[str, str, str]]:
    """(name, value, meaning) of every setting; meanings are the comments beside the fields."""
    source = inspect.getsource(Config).splitlines()
    rows = []
    for name in KEYS:
        line = next(x for x in source if x.startswith(f"    {name}: "))
        choices = ", ".join(map(str, typing.get_args(_TYPES[name])))
        meaning = line.partition("  # ")[2]
        if choices:
            meaning = f"{choices}" + (f": {meaning}" if meaning else "")
        rows.append((name, str(getattr(config, name)), meaning))
    return rows


def _value(key: str, value: Any, source: str) -> Any:
    if key not in KEYS:
        raise UnknownNameError(
            f"There is no setting {key!r} ({source}).{nearest(key, KEYS)} "
            "`pathe config` lists them all."
        )
    kind = _TYPES[key]
    choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    if choices:
        match = next((c for c in choices if str(c) == str(value)), None)
        if match is None:
            raise ConfigError(
                f"{key} is one of {', '.join(map(str, choices))}; got {value!r} ({source})."
                f"{nearest(str(value), map(str, choices))}"
            )
        return match
    assert not isinstance(kind, types.UnionType)
    if kind is float and isinstance(value, str):  # YAML reads 1e-3 as text
        with contextlib.suppress(ValueError):
            value = float(value)
    wrong = isinstance(value, bool) != (kind is bool) or not isinstance(
        value, (int, float) if kind is float else kind
    )
    if wrong:
        raise ConfigError(f"{key} takes {_KIND[kind]}; got {value!r} ({source}).")
    return kind(value)


_KIND = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _check(config: Config) -> None:
    for key, least in _AT_LEAST.items():
        if getattr(config, key) < least:
            raise ConfigError(f"{key} must be at least {least}; got {getattr(config, key)}.")
    for key in _SHARES:
        if not 0 <= getattr(config, key) <= 1 or (
            key != "link_weight" and getattr(config, key) == 1
        ):
            raise ConfigError(f"{key} must be from 0 to below 1; got {getattr(config, key)}.")
    for key, kind in _TYPES.items():
        if kind is float and not math.isfinite(getattr(config, key)):
            raise ConfigError(f"{key} must be a finite number; got {getattr(config, key)}.")
    if not 0 < config.bridge_edges <= 1:
        raise ConfigError(f"bridge_edges must be above 0 and at most 1; got {config.bridge_edges}.")
    if config.validate_every > config.max_epochs:
        raise ConfigError(
            f"validate_every ({config.validate_every}) is more than max_epochs "
            f"({config.max_epochs}): nothing would ever be validated."
        )
    if config.learning_rate <= 0:
        raise ConfigError(f"learning_rate must be above 0; got {config.learning_rate}.")
    if config.dim % config.heads:
        raise ConfigError(f"dim must be a multiple of heads; got {config.dim} and {config.heads}.")
    if config.dim % 2:
        raise ConfigError(f"dim must be even; got {config.dim}.")
    if config.path_source == "mined" and config.hold_out_batch:
        raise ConfigError(
            "hold_out_batch needs path_source=fresh: mined paths are fixed before the batch is. "
            "Set hold_out_batch=false, or path_source=fresh."
        )
    if config.positions == "signed" and config.path_form == "mixed":
        raise ConfigError(
            "positions=signed tells in- from outgoing walks; walks of path_form=mixed are both. "
            "Use focused, or another form."
        )
    if config.hold_out_pairs and not config.hold_out_batch:
        raise ConfigError("hold_out_pairs needs hold_out_batch=true.")
    if config.aggregator == "transformer-joint" and config.negative_sampling == "all":
        raise ConfigError(
            "aggregator transformer-joint scores each pair by itself: negative_sampling=all would "
            "take one pass for every entity. Use each or shared."
        )
