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
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pathe.core.errors import ConfigError, UnknownNameError, nearest
from pathe.core.yaml_files import load_yaml, read_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
PATHS = 10_000  # most paths per entity
MANY, TRIPLES = 10**7, 10**12  # most of other counts
SEEDS: Any = {"least": -(2**63), "most": 2**63 - 1}  # what torch accepts and files can hold


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
    n_paths: int = setting(4, "paths per entity, sampled in every step", least=1, most=PATHS)
    max_hops: int = setting(5, "maximum walk length, in edges", least=1, most=100)
    path_form: Literal["joined", "single"] = setting(
        "single", "an incoming and an outgoing walk joined, or only one of them"
    )
    path_source: Literal["fresh", "mined"] = setting(
        "fresh", "sample paths in every step, or mine a fixed store before training"
    )
    n_mined: int = setting(20, "unique paths per entity in the mined store", least=1, most=PATHS)
    positions: Literal["focused", "absolute"] = setting(
        "focused", "distance to the entity, or position in the path"
    )
    # model
    dim: int = setting(64, "width of every vector", least=2, most=16_384)
    context_counts: Literal["raw", "log1p"] = setting(
        "log1p", "scale of the relation counts that describe an entity"
    )
    context_dropout: float = setting(0.1, "dropout on the counts of a context", least=0, below=1)
    neighbour_contexts: bool = setting(False, "add the contexts of an entity's neighbours")
    projector_layers: Literal[1, 2] = setting(
        1, "layers per direction: 1 matches the published parameter counts, 2 the paper's text"
    )
    heads: int = setting(2, "attention heads of the path encoder", least=1, most=1024)
    layers: int = setting(1, "layers of the path encoder", least=1, most=100)
    feedforward: int = setting(
        128, "width of the path encoder's feed-forward layers", least=1, most=65_536
    )
    dropout: float = setting(0.1, "dropout in path encoder and aggregator", least=0, below=1)
    aggregator: Literal["mean", "lstm", "transformer", "transformer-joint"] = setting(
        "mean", "how an entity's paths become one vector; -joint reads both entities together"
    )
    aggregator_layers: int = setting(1, "layers of a Transformer aggregator", least=1, most=100)
    init: Literal["none", "pretrained", "model"] = setting(
        "none", "initial weights: random, of the pre-trained model, or of the model given as --from"
    )
    relation_vectors: Literal["table", "graph", "both"] = setting(
        "table", "learned per relation, computed from the graph (for any graph), or both"
    )
    relation_layers: int = setting(
        4, "layers of the encoder of a graph's relations", least=1, most=100
    )
    bridge: Literal["none", "paths"] = setting(
        "none", "also score all paths between the two entities of a triple"
    )
    bridge_dim: int = setting(32, "width of a bridge's states", least=1, most=4096)
    bridge_hops: int = setting(
        4, "maximum path length between two entities, in edges", least=1, most=100
    )
    pair_hops: int = setting(
        3, "maximum path length for relation queries, in edges (init=pretrained)",
        least=1, most=100,
    )  # fmt: skip
    bridge_dropout: float = setting(
        0.0, "share of training queries without bridges", least=0, below=1
    )
    # objective
    loss: Literal["ce", "bce", "nssa"] = setting(
        "ce", "link loss: cross-entropy, binary cross-entropy, self-adversarial"
    )
    label_smoothing: float = setting(0.0, "label smoothing of the losses", least=0, below=1)
    margin: float = setting(10.0, "margin of nssa", least=0, most=10**6)
    temperature: float = setting(1.0, "temperature of nssa", least=0, most=10**6)
    class_weights: bool = setting(False, "weigh all relations equally in the relation loss")
    link_weight: float = setting(
        0.5, "multi: weight of the link loss; the relation loss gets the rest", least=0, most=1
    )
    negatives: int = setting(256, "negatives per positive and side", least=1, most=MANY)
    negative_sampling: Literal["each", "shared", "all"] = setting(
        "shared", "sampled per positive, sampled per batch, or all entities"
    )
    hold_out_batch: bool = setting(True, "hide a batch's edges from contexts, walks and bridges")
    hold_out_pairs: bool = setting(False, "also hide other edges between the same entities")
    # optimisation
    batch_size: int = setting(1024, "positives per batch", least=1, most=MANY)
    accumulate_batches: int = setting(1, "batches per optimiser step", least=1, most=MANY)
    learning_rate: float = setting(1e-3, "learning rate of Adam", above=0)
    schedule: Literal["constant", "cosine"] = setting("constant", "learning-rate schedule")
    gradient_clip: float = setting(
        1.0, "maximum gradient norm; 0: no clipping", least=0, most=10**6
    )
    max_epochs: int = setting(100, "maximum number of epochs", least=1, most=MANY)
    epoch_triples: int = setting(
        0, "triples per epoch, drawn at random; 0: all", least=0, most=TRIPLES
    )
    minutes: float = setting(
        0.0, "training stops after this many minutes; 0: no limit", least=0, most=10**6
    )
    patience: int = setting(
        10, "validations without improvement before early stopping", least=1, most=MANY
    )
    min_delta: float = setting(
        0.0, "smallest gain in validation score that counts", least=0, most=1
    )
    valid_negatives: int = setting(
        99, "validation negatives per side; 0: all entities", least=0, most=MANY
    )
    valid_triples: int = setting(
        0, "maximum number of triples per validation; 0: all", least=0, most=TRIPLES
    )
    validate_every: int = setting(1, "epochs between validations", least=1, most=MANY)
    seed: int = setting(0, "seed of weights, batches, paths, negatives and dropout", **SEEDS)
    # evaluation
    test_paths: int = setting(
        16, "paths per entity in evaluation and prediction; 0: same as n_paths", least=0,
        most=PATHS,
    )  # fmt: skip
    test_triples: int = setting(
        0, "maximum number of triples to evaluate on after training; 0: all", least=0,
        most=TRIPLES,
    )  # fmt: skip
    # hardware
    accelerator: Literal["auto", "cpu", "gpu"] = setting("auto", "auto: a GPU if there is one")
    devices: int = setting(
        1, "number of devices; two or more train data-parallel", least=1, most=1024
    )
    precision: Literal["auto", "32", "bf16"] = setting("auto", "auto: 32 (TF32 on a GPU)")
    cuda_graphs: bool = setting(
        True, "on a GPU, run training steps of models with entity vectors as CUDA graphs"
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        _check_combinations(self)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that the model is trained for."""
        return ("link", "relation") if self.task == "multi" else (self.task,)

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
        shown = word if len(word) <= 100 else f"{word[:100]}..."
        try:
            settings[key.strip()] = load_yaml(text, "") if text else text
        except ConfigError:
            raise ConfigError(f"--set {shown}: the value can't be read as YAML.") from None
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
    text = read_text(path) if path.suffix in (".yaml", ".yml") else preset_text(name)
    settings = load_yaml(text, name) or {}
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise ConfigError(f"{name}: expected lines of `key: value`, got {type(settings).__name__}.")
    return configure(settings=current_names(settings, say), source=f"preset {name}")


def describe_settings(config: Config) -> list[tuple[str, str, str]]:
    """Returns (name, value; choices, help and bounds) of every setting."""
    rows = []
    for name, declared in KEYS.items():
        choices = ", ".join(map(str, typing.get_args(_TYPES[name])))
        meaning = f"{choices}: {declared.metadata['help']}".removeprefix(": ")
        if (bounds := declared.metadata["bounds"]) and bounds != SEEDS:
            meaning += f" ({bounds_in_words(bounds)})"
        rows.append((name, str(getattr(config, name)), meaning))
    return rows


def check_bounds(settings: DataclassInstance) -> None:
    """Raises an error if a setting of a dataclass is out of its declared bounds."""
    for declared in fields(settings):
        value, bounds = getattr(settings, declared.name), declared.metadata["bounds"]
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{declared.name} must be a finite number; got {value}.")
        if not all(BOUNDS[name][1](value, bound) for name, bound in bounds.items()):
            raise ConfigError(f"{declared.name} must be {bounds_in_words(bounds)}; got {value}.")


def bounds_in_words(bounds: Mapping[str, float]) -> str:
    """Returns words such as `at least 1 and at most 100`."""
    return " and ".join(f"{BOUNDS[name][0]} {bound:,}" for name, bound in bounds.items())


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
    return to_number(key, kind, value)


def to_number(key: str, kind: type, value: Any) -> Any:
    """Converts a checked value; a whole number may be too large for a float."""
    try:
        return kind(value)
    except OverflowError:
        raise ConfigError(
            f"{key} must be a finite number; the given one has too many digits."
        ) from None


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
