"""Commands that train and evaluate a model: train, evaluate, config."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer
from rich.markup import escape

from pathe.cli.cluster import ClusterOptions
from pathe.cli.options import (
    Data,
    Files,
    Json,
    ModelOnData,
    Output,
    command_line,
    grouped,
    option,
    read_settings,
)
from pathe.cli.output import err, print_json, print_parts, print_result, progress_bar, tell
from pathe.core.config import PATHS
from pathe.core.errors import PatheError
from pathe.reports import tables as show
from pathe.training.processes import follow, is_leader

if TYPE_CHECKING:
    from torch import Tensor

    from pathe.core.config import Config
    from pathe.core.types import Part
    from pathe.graph.prepared import PreparedGraph
    from pathe.model.artifact import Artifact
    from pathe.model.ranks import Ranks
    from pathe.model.scorer import Scorer


Task = Literal["link", "relation", "multi"]
Split = Literal["train", "valid", "test"]


@dataclass(frozen=True)
class TrainOptions:
    """What to train and where."""

    panel: ClassVar[str] = "Training"
    task: Task | None = option(
        None,
        "[cyan]link[/]: predict entities; [cyan]relation[/]: predict relations; [cyan]multi[/]: "
        "both. Default: both when fine-tuning, otherwise the preset's, or link.",
    )
    preset: str | None = option(
        None,
        "Settings to start from: a preset that [cyan]pathe config[/] lists, or a .yaml. Default: "
        "settings that suit the graph and this machine.",
    )
    minutes: float | None = option(
        None,
        "Stop training after this many minutes and keep the best model; evaluation takes extra "
        "time.",
    )
    quick: bool = option(
        False,
        "A first look: half a minute of training, then evaluation on a sample if that is slow.",
        "--quick",
    )
    start: Path | None = option(
        None,
        "Continue training this model (a run or model folder). DATA may have different triples and "
        "entities.",
        "--from",
        metavar="MODEL",
    )
    set_: list[str] | None = option(
        None, "Change a setting; repeatable.", "--set", metavar="KEY=VALUE"
    )
    out_: Path | None = option(
        None, "The run's folder. Default: runs/DATA-TASK.", "--out", metavar="RUN"
    )
    resume: bool = option(False, "Continue the run in --out where it stopped.", "--resume")
    seed: int | None = option(
        None, "Seed of weights, batches and paths. Default: 0.", show_default=False
    )
    device: Literal["auto", "cpu", "gpu"] | None = option(
        None,
        "[cyan]auto[/] (a GPU if there is one), [cyan]cpu[/] or [cyan]gpu[/]. Default: auto.",
        show_default=False,
    )

    def overrides(self) -> dict[str, Any]:
        """Returns the settings given on the command line."""
        if self.minutes is not None and not self.minutes > 0:
            raise PatheError(f"--minutes must be above 0; got {self.minutes:g}.")
        named = {
            "task": self.task,
            "minutes": self.minutes,
            "seed": self.seed,
            "accelerator": self.device,
        }
        return read_settings(self.set_) | {k: v for k, v in named.items() if v is not None}

    def check_folder(self) -> None:
        """Raises an error if the folder of a new run has files, before any work."""
        if self.out_ and not self.resume and is_leader() and self.out_.exists():
            from pathe.training.run_folder import check_free

            check_free(self.out_)

    def base(self) -> Config | None:
        """Returns the settings to start from; None to choose them for the graph."""
        from pathe.core.config import read_preset

        return read_preset(self.preset, tell) if self.preset else None

    def check(self) -> None:
        """Raises an error for options that exclude each other, before any work."""
        if self.resume and self.out_ is None:
            raise PatheError("--resume needs the run's folder: --out RUN.")
        for name, given in (("preset", self.preset), ("from", self.start), ("quick", self.quick)):
            if self.resume and given:
                raise PatheError(f"--resume uses the run's own settings: leave --{name} out.")
        if self.quick and self.minutes is not None:
            raise PatheError("--quick and --minutes exclude each other: leave one of them out.")
        for name, given in (("from", self.start), ("quick", self.quick)):
            if self.preset and given:
                raise PatheError(f"--{name} chooses its own settings: leave --preset out.")
        if self.start is not None:
            from pathe.model.artifact import model_folder

            model_folder(self.start)  # raises an error if it has no model


@grouped
def train(data: Data, files: Files, options: TrainOptions, as_json: Json = False) -> None:
    """Train a model with early stopping, export it and evaluate it.

    Fine-tunes the pre-trained model for at most about 20 minutes, or [cyan]--minutes[/]. On small
    graphs, also trains a variant with a relation table and a new model, and keeps the model with
    the best validation score. Trains only a new model with [cyan]--set init=none[/], with a
    [cyan]--preset[/], with a setting that only new models have (such as [cyan]dim[/]), or if
    fine-tuning would take too long. A few steps are measured first, and the time that training will
    take is printed before it starts. The run's folder holds settings, metrics, checkpoints, the
    model, [cyan]result.json[/] and [cyan]report.png[/]. Ctrl-C saves the run; [cyan]--resume --out
    RUN[/] continues it exactly where it stopped.

    Example: [cyan]pathe train examples/europe.csv --split 0.8,0.1,0.1 --minutes 5[/]
    """
    from pathe.core.config import configure

    options.check()
    overrides, base = options.overrides(), options.base()
    if not options.resume:
        configure(base, overrides, "--set")  # raises an error before the data is read
    follow(options.out_)
    options.check_folder()
    kg = files.read(data, every_relation=options.preset is None)
    with err.status("starting ..."):
        from pathe.training.train import train as train_model
    run = train_model(
        kg, base, options.out_, start=options.start, quick=options.quick, resume=options.resume,
        say=tell, command=command_line(), **overrides,
    )  # fmt: skip
    if run.result:  # empty in worker processes: the first process reports
        print_result(run.result, show.result(run.result), as_json)


@dataclass(frozen=True)
class EvaluateOptions:
    """What to evaluate, and how."""

    panel: ClassVar[str] = "Evaluation"
    on: Split = option("test", "The split to evaluate.")
    protocol: str = option(
        "full", "[cyan]full[/]: rank among all entities; [cyan]sampled:N[/]: among N negatives."
    )
    test_set: Literal["seen", "unseen", "all"] = option(
        "seen",
        "[cyan]seen[/]: triples whose entities both occur in train (as in the paper); "
        "[cyan]unseen[/]: the others; [cyan]all[/].",
    )
    task: Task | None = option(None, "For a multi-task model: the only task to evaluate.")
    n_paths: int | None = option(None, "Paths per entity. Default: the model's.", min=1, max=PATHS)
    seed: int | None = option(None, "Seed for paths and sampled negatives. Default: the run's.")
    per_relation: bool = option(False, "Also show a row for every relation.", "--per-relation")


@grouped
def evaluate(
    source: ModelOnData, options: EvaluateOptions, output: Output, cluster: ClusterOptions
) -> None:
    """Evaluate a model; unseen entities are allowed.

    Predictions use only the train split of the data. Rankings are filtered by the known triples of
    all splits. JSON holds everything; as .csv, .tsv or .parquet, [cyan]--out[/] writes the rows of
    [cyan]--per-relation[/].

    Example: [cyan]pathe evaluate --data examples/europe.csv --split 0.8,0.1,0.1 --per-relation[/]
    """
    output.check()
    cluster.check()
    if cluster.given and options.protocol != "full":
        raise PatheError(
            "--cluster and --parts require --protocol full; sampled evaluation is fast without "
            "them."
        )
    source, split = _split_of(source, options.on)
    artifact, kg, device = source.load()
    from pathe.evaluation.ranking import RELATION_ROW, relation_rows
    from pathe.evaluation.ranking import evaluate as evaluate_model
    from pathe.graph.leakage import warnings_of
    from pathe.graph.prepared import prepare

    prepared = prepare(kg)
    for text in warnings_of(prepared):
        tell(f"warning: {text}")
    how = {key: value for key, value in vars(options).items() if key not in ("on", "per_relation")}
    how |= {"split": split, "device": device, "frontier": source.frontier}
    source.tell_frontier(artifact, kg)
    if cluster.given:
        result = _evaluate_in_parts(source, (artifact, prepared), how, output, cluster)
    else:
        with progress_bar("ranking") as progress:
            result = evaluate_model(artifact, prepared, **how, progress=progress)
    result |= {"data": kg.name, "fingerprint": kg.fingerprint()}
    parts = [*show.result(result)]
    if options.per_relation:
        parts += show.per_relation(kg.names.shown(result))
    output.show(result, parts, RELATION_ROW, relation_rows(result))


def _evaluate_in_parts(
    source: ModelOnData,
    loaded: tuple[Artifact, PreparedGraph],
    how: dict[str, Any],
    output: Output,
    cluster: ClusterOptions,
) -> dict[str, Any]:
    """Evaluates with ranks that are computed in parts."""
    from pathe.cluster.graphs import source_of
    from pathe.cluster.work import joined_ranks, rank_job
    from pathe.evaluation.ranking import evaluate as evaluate_model

    artifact, prepared = loaded[0], loaded[1].on(how["device"])
    given = source_of(prepared, source.device, artifact, source.frontier)
    with cluster.running("evaluate", output.out) as run:

        def rank(scorer: Scorer, triples_M3: Tensor, parts: tuple[Part, ...]) -> dict[Part, Ranks]:
            tables = run(rank_job(given, scorer, triples_M3, parts))
            return joined_ranks(tables, scorer, triples_M3, parts)

        return evaluate_model(artifact, prepared, **how, rank=rank)


def _split_of(source: ModelOnData, on: Split) -> tuple[ModelOnData, Split]:
    """Returns what to read and the split to evaluate; older commands name it with --split."""
    match source.cut:
        case "train" | "valid" | "test" as name:
            tell(f"--split {name} is now --on {name}; --split 0.8,0.1,0.1 splits a file")
            return replace(source, cut=None), name
    return source, on


def config(
    preset: Annotated[
        str | None, typer.Argument(metavar="PRESET", help="A preset to show.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a preset; or all settings, their defaults and the names of the presets.

    Example: [cyan]pathe config paper-fb15k237-link[/]
    """
    from pathe.core.config import Config, preset_names, preset_text, read_preset

    if as_json:
        print_json(read_preset(preset).as_dict() if preset else Config().as_dict())
    elif preset:
        print_parts([escape(preset_text(preset)).rstrip("\n")], soft_wrap=True)
    else:
        print_parts(show.settings(preset_names()))
