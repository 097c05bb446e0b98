"""Settings of a run: one flat, frozen dataclass. Defaults < preset < overrides."""

from __future__ import annotations

import contextlib
import math
import operator
import typing
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from pathe.core.errors import ConfigError, UnknownNameError, nearest

T = TypeVar("T")


def setting(default: T, help: str, **bounds: float) -> T:
    """Declares a field of Config: its default, help text and bounds (the keys of BOUNDS)."""
    return field(default=default, metadata={"help": help, "bounds": bounds})


@dataclass(frozen=True)
class Config:
    """Every setting of a run. The published values are in the presets `paper-...`."""

    task: Literal["link", "relation", "multi"] = setting(
        "link", "predict entities, relations, or both"
    )
    # paths
    n_paths: int = setting(4, "paths per entity, sampled in every step", least=1)
    max_hops: int = setting(5, "longest walk, in edges", least=1)
    path_form: Literal["joined", "single"] = setting(
        "single", "an incoming and an outgoing walk joined, or only one of them"
    )
    path_source: Literal["fresh", "mined"] = setting(
        "fresh", "sample paths in every step, or mine a fixed store before training"
    )
    n_mined: int = setting(20, "unique paths per entity in the mined store", least=1)
    positions: Literal["focused", "absolute"] = setting(
        "focused", "distance to the entity, or position in the path"
    )
    # model
    dim: int = setting(64, "width of every vector", least=2)
    context_counts: Literal["raw", "log1p"] = setting(
        "log1p", "scale of the relation counts that describe an entity"
    )
    context_dropout: float = setting(0.1, "dropout on the counts of a context", least=0, below=1)
    neighbour_contexts: bool = setting(False, "add the contexts of an entity's neighbours")
    projector_layers: Literal[1, 2] = setting(
        1, "layers per direction: 1 matches the published parameter counts, 2 the paper's text"
    )
    heads: int = setting(2, "attention heads of the path encoder", least=1)
    layers: int = setting(1, "layers of the path encoder", least=1)
    feedforward: int = setting(128, "width of the path encoder's feed-forward layers", least=1)
    dropout: float = setting(0.1, "dropout in path encoder and aggregator", least=0, below=1)
    aggregator: Literal["mean", "lstm", "transformer", "transformer-joint"] = setting(
        "mean", "how an entity's paths become one vector; -joint reads both entities together"
    )
    aggregator_layers: int = setting(1, "layers of a Transformer aggregator", least=1)
    init: Literal["none", "pretrained", "model"] = setting(
        "none", "initial weights: random, of the pre-trained model, or of the model given as --from"
    )
    relation_vectors: Literal["table", "graph", "both"] = setting(
        "table", "learned per relation, computed from the graph (for any graph), or both"
    )
    relation_layers: int = setting(4, "layers of the encoder of a graph's relations", least=1)
    bridge: Literal["none", "paths"] = setting(
        "none", "also score all paths between the two entities of a triple"
    )
    bridge_dim: int = setting(32, "width of a bridge's states", least=1)
    bridge_hops: int = setting(4, "longest path between two entities, in edges", least=1)
    pair_hops: int = setting(
        3, "longest path between two entities whose relation is asked, with init=pretrained",
        least=1,
    )  # fmt: skip
    bridge_dropout: float = setting(
        0.0, "share of training queries without bridges", least=0, below=1
    )
    # objective
    loss: Literal["ce", "bce", "nssa"] = setting(
        "ce", "link loss: cross-entropy, binary cross-entropy, self-adversarial"
    )
    label_smoothing: float = setting(0.0, "label smoothing of the losses", least=0, below=1)
    margin: float = setting(10.0, "margin of nssa", least=0)
    temperature: float = setting(1.0, "temperature of nssa", least=0)
    class_weights: bool = setting(False, "weigh all relations equally in the relation loss")
    link_weight: float = setting(
        0.5, "multi: weight of the link loss; the relation loss gets the rest", least=0, most=1
    )
    negatives: int = setting(256, "negatives per positive and side", least=1)
    negative_sampling: Literal["each", "shared", "all"] = setting(
        "shared", "sampled per positive, sampled per batch, or all entities"
    )
    hold_out_batch: bool = setting(True, "hide a batch's edges from contexts, walks and bridges")
    hold_out_pairs: bool = setting(False, "also hide other edges between the same entities")
    # optimisation
    batch_size: int = setting(1024, "positives per batch", least=1)
    accumulate_batches: int = setting(1, "batches per optimiser step", least=1)
    learning_rate: float = setting(1e-3, "learning rate of Adam", above=0)
    schedule: Literal["constant", "cosine"] = setting("constant", "learning-rate schedule")
    gradient_clip: float = setting(1.0, "maximum gradient norm; 0: no clipping", least=0)
    max_epochs: int = setting(100, "maximum number of epochs", least=1)
    epoch_triples: int = setting(0, "triples per epoch, drawn at random; 0: all", least=0)
    minutes: float = setting(0.0, "training stops after this many minutes; 0: no limit", least=0)
    patience: int = setting(10, "validations without improvement before early stopping", least=1)
    min_delta: float = setting(0.0, "smallest gain in validation score that counts", least=0)
    valid_negatives: int = setting(99, "validation negatives per side; 0: all entities", least=0)
    valid_triples: int = setting(0, "most validation triples per validation; 0: all", least=0)
    validate_every: int = setting(1, "epochs between validations", least=1)
    seed: int = setting(0, "seed of weights, batches, paths, negatives and dropout")
    # evaluation
    test_paths: int = setting(
        16, "paths per entity in evaluation and prediction; 0: same as n_paths", least=0
    )
    test_triples: int = setting(0, "most triples in the evaluation after training; 0: all", least=0)
    # hardware
    accelerator: Literal["auto", "cpu", "gpu"] = setting("auto", "auto: a GPU if there is one")
    devices: int = setting(1, "number of devices; two or more train data-parallel", least=1)
    precision: Literal["auto", "32", "bf16"] = setting("auto", "auto: 32 (TF32 on a GPU)")
    cuda_graphs: bool = setting(
        True, "on a GPU, run training steps of models with entity vectors as CUDA graphs"
    )

    def __post_init__(self) -> None:
        _check_bounds(self)
        _check_combinations(self)

    @property
    def eval_paths(self) -> int:
        """Paths per entity in evaluation and prediction."""
        return self.test_paths or self.n_paths

    @property
    def pairwise(self) -> bool:
        """Whether the aggregator reads both entities of a pair, so each pair needs its own pass."""
        return self.aggregator == "transformer-joint"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


KEYS = {f.name: f for f in fields(Config)}
RENAMED = {
    "record": "cuda_graphs", "refine": "neighbour_contexts", "contexts": "context_counts",
    "clip": "gradient_clip", "accumulate": "accumulate_batches",
}  # fmt: skip
REMOVED = {
    "bridge_edges": 1.0,
    "entity_updates": 0,
}  # removed settings, and the value that had no effect
_TYPES = typing.get_type_hints(Config)
_KIND = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
BOUNDS = {
    "least": ("at least", operator.ge), "above": ("above", operator.gt),
    "most": ("at most", operator.le), "below": ("below", operator.lt),
}  # fmt: skip
Say = Callable[[str], None]


def configure(
    base: Config | None = None, settings: Mapping[str, Any] | None = None, source: str = "settings"
) -> Config:
    """Returns the base with these settings changed, each checked against its type.

    Old names of renamed settings are accepted. `source` says in errors where the settings are from.
    """
    changed = current_names(settings or {})
    checked = {key: _value(key, value, source) for key, value in changed.items()}
    return replace(base or Config(), **checked)


def current_names(settings: Mapping[str, Any], say: Say | None = None) -> dict[str, Any]:
    """Returns the settings under their current names; reports each old one to `say`."""
    for old in settings:
        if say and old in RENAMED:
            say(f"setting {old!r} is now called {RENAMED[old]!r}")
    kept = {k: v for k, v in settings.items() if k not in REMOVED or v != REMOVED[k]}
    return {RENAMED.get(key, key): value for key, value in kept.items()}


def read_overrides(assignments: list[str], say: Say | None = None) -> dict[str, Any]:
    """Reads `key=value` words from the command line, values as YAML; returns current names."""
    settings = {}
    for word in assignments:
        key, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"--set takes key=value; got {word!r}.")
        try:
            settings[key.strip()] = yaml.safe_load(text) if text else text
        except yaml.YAMLError:
            raise ConfigError(f"--set {word}: the value can't be read as YAML.") from None
    return current_names(settings, say)


def preset_names() -> list[str]:
    """Returns the names of the presets that come with the package."""
    folder = resources.files("pathe.core") / "presets"
    return sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".yaml"))


def preset_text(name: str) -> str:
    """Returns a preset's YAML; its header says where the settings come from."""
    if name not in preset_names():
        names = preset_names()
        closest = nearest(name, names)
        raise UnknownNameError(f"There is no preset {name!r}.{closest} All: {', '.join(names)}.")
    return (resources.files("pathe.core") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")


def read_preset(name: str, say: Say | None = None) -> Config:
    """Returns the defaults changed by a preset: one by name, or the path of a YAML file."""
    path = Path(name)
    text = path.read_text() if path.suffix in (".yaml", ".yml") else preset_text(name)
    try:
        settings = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not a YAML file: {error}") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{name}: expected lines of `key: value`, got {type(settings).__name__}.")
    return configure(settings=current_names(settings, say), source=f"preset {name}")


def describe_settings(config: Config) -> list[tuple[str, str, str]]:
    """Returns (name, value, choices and help) of every setting."""
    rows = []
    for name, declared in KEYS.items():
        choices = ", ".join(map(str, typing.get_args(_TYPES[name])))
        meaning = f"{choices}: {declared.metadata['help']}".removeprefix(": ")
        rows.append((name, str(getattr(config, name)), meaning))
    return rows


def _value(key: str, value: Any, source: str) -> Any:
    if key not in KEYS:
        raise UnknownNameError(
            f"There is no setting {key!r} ({source}).{nearest(str(key), KEYS)} "
            "`pathe config` lists them all."
        )
    kind = _TYPES[key]
    if choices := {str(choice): choice for choice in typing.get_args(kind)}:
        if str(value) in choices:
            return choices[str(value)]
        raise ConfigError(
            f"{key} is one of {', '.join(choices)}; got {value!r} ({source})."
            f"{nearest(str(value), choices)}"
        )
    if kind is float and isinstance(value, str):  # YAML reads 1e-3 as text
        with contextlib.suppress(ValueError):
            value = float(value)
    accepted = (int, float) if kind is float else kind
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, accepted):
        raise ConfigError(f"{key} takes {_KIND[kind]}; got {value!r} ({source}).")
    return kind(value)


def _check_bounds(config: Config) -> None:
    for key, declared in KEYS.items():
        value = getattr(config, key)
        if _TYPES[key] is float and not math.isfinite(value):
            raise ConfigError(f"{key} must be a finite number; got {value}.")
        bounds = [(*BOUNDS[name], bound) for name, bound in declared.metadata["bounds"].items()]
        if not all(holds(value, bound) for _, holds, bound in bounds):
            range_ = " and ".join(f"{words} {bound}" for words, _, bound in bounds)
            raise ConfigError(f"{key} must be {range_}; got {value}.")


def _check_combinations(config: Config) -> None:
    if config.validate_every > config.max_epochs:
        raise ConfigError(
            f"validate_every ({config.validate_every}) is more than max_epochs "
            f"({config.max_epochs}): validation would never run."
        )
    if config.dim % config.heads:
        raise ConfigError(f"dim must be a multiple of heads; got {config.dim} and {config.heads}.")
    if config.dim % 2:
        raise ConfigError(f"dim must be even; got {config.dim}.")
    if config.relation_vectors != "table" and config.devices > 1:
        raise ConfigError(
            f"relation_vectors={config.relation_vectors} trains on one device: set devices=1."
        )
    if config.relation_vectors != "table" and config.precision == "bf16":
        raise ConfigError(
            f"relation_vectors={config.relation_vectors} trains in float32: set precision=32."
        )
    if config.path_source == "mined" and config.hold_out_batch:
        raise ConfigError(
            "hold_out_batch needs path_source=fresh: mined paths are fixed before training. "
            "Set hold_out_batch=false, or path_source=fresh."
        )
    if config.hold_out_pairs and not config.hold_out_batch:
        raise ConfigError("hold_out_pairs needs hold_out_batch=true.")
    if config.pairwise and config.negative_sampling == "all":
        raise ConfigError(
            f"aggregator={config.aggregator} encodes each pair separately, so "
            "negative_sampling=all would need one pass per entity. Set negative_sampling to each "
            "or shared."
        )
