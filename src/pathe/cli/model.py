"""Commands that train and evaluate a model: train, evaluate, config."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer
from rich.markup import escape

from pathe.cli.options import (
    Data,
    Files,
    Json,
    ModelOnData,
    Output,
    grouped,
    option,
    read_settings,
)
from pathe.cli.output import err, print_json, print_parts, print_result, progress_bar, tell
from pathe.core.errors import PatheError
from pathe.reports import tables as show

if TYPE_CHECKING:
    from pathe.core.config import Config
    from pathe.data.knowledge_graph import KnowledgeGraph


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
        None, "Train for about this long at most; the same as [cyan]--set minutes=...[/]."
    )
    set_: list[str] | None = option(
        None, "Change a setting; repeatable.", "--set", metavar="KEY=VALUE"
    )
    out_: Path | None = option(
        None, "The run's folder. Default: runs/DATA-TASK.", "--out", metavar="RUN"
    )
    resume: bool = option(False, "Continue the run in --out where it stopped.", "--resume")

    def overrides(self) -> dict[str, Any]:
        """Returns the settings given on the command line."""
        named = {"task": self.task, "minutes": self.minutes}
        return read_settings(self.set_) | {k: v for k, v in named.items() if v is not None}

    def check_folder(self) -> None:
        """Raises an error if the folder of a new run has files, before any work."""
        works = "PATHE_RUN" in os.environ  # a worker process: the folder is in use
        if self.out_ and not (self.resume or works) and self.out_.exists():
            from pathe.training.run import check_free

            check_free(self.out_)

    def base(self) -> Config | None:
        """Returns the settings to start from; None to choose them for the graph."""
        if self.resume and self.out_ is None:
            raise PatheError("--resume needs the run's folder: --out RUN.")
        if self.resume and self.preset is not None:
            raise PatheError("--resume uses the run's own settings: leave --preset out.")
        from pathe.core.config import read_preset

        base = read_preset(self.preset, tell) if self.preset else None
        leader = os.environ.get("PATHE_RUN")  # set in data-parallel worker processes
        if run := Path(leader) if leader else self.out_ if self.resume else None:
            from pathe.training.run import resumed_config
            from pathe.training.selection import stored_candidates

            if stored_candidates(run) is None:  # else, there are several
                base = resumed_config(run)
        return base


@grouped
def train(data: Data, files: Files, options: TrainOptions, as_json: Json = False) -> None:
    """Train a model with early stopping, export it and evaluate it.

    Fine-tunes the pre-trained model for at most 20 minutes, or [cyan]--minutes[/]. On small graphs,
    also trains a variant with a relation table and a new model, and keeps the model with the best
    validation score. Trains only a new model with [cyan]--set init=none[/], with a
    [cyan]--preset[/], with a setting that only new models have (such as [cyan]dim[/]), or if
    fine-tuning would take too long. The run's folder holds settings, metrics, checkpoints, the
    model, [cyan]result.json[/] and [cyan]report.png[/]. Ctrl-C saves the run; [cyan]--resume --out
    RUN[/] continues it exactly where it stopped.

    Example: [cyan]pathe train examples/europe.csv --split 0.8,0.1,0.1 --minutes 5[/]
    """
    from pathe.core.config import configure

    overrides, base = options.overrides(), options.base()
    config = configure(base, overrides, "--set")
    options.check_folder()
    kg = _read(files, data, drops=options.preset is None)
    with err.status("starting ..."):
        from pathe.graph.prepared import prepare
        from pathe.training import run as runs
        from pathe.training import selection
        from pathe.training.defaults import plan

        prepared, candidates, chosen = prepare(kg), {"": config}, ""
        stored = selection.stored_candidates(options.out_) if options.resume else None
        if stored:
            if "minutes" in overrides:
                raise PatheError("--minutes can't be changed for a run that tries several models.")
            candidates = {name: configure(c, overrides, "--set") for name, c in stored.items()}
        elif base is None:
            found = plan(prepared, overrides)
            candidates, chosen = found.candidates, found.description
    if chosen:
        tell(f"settings for this graph: {chosen}")
    task = next(iter(candidates.values())).task
    usual = Path("runs") / f"{kg.name.replace(':', '-')}-{task}"
    folder = options.out_ or runs.free_folder(usual)
    tell(f"run folder: {folder}")
    if len(candidates) > 1:
        result = selection.train_best(prepared, candidates, folder, resume=options.resume, say=tell)
    else:
        [config] = candidates.values()
        result = runs.train(prepared, config, folder, resume=options.resume, say=tell)
    if result:  # empty in worker processes: the first process reports
        print_result(result, show.result(result), as_json)


def _read(files: Files, data: str, drops: bool) -> KnowledgeGraph:
    """Reads DATA; drops and counts triples of relations that train lacks, or raises an error."""
    kg = files.read(data, every_relation=drops)
    if not drops:
        return kg
    from pathe.data.schema import with_train_relations

    kg, n_dropped = with_train_relations(kg)
    if n_dropped:
        tell(f"{n_dropped:,} valid and test triples left out: train lacks their relations")
    return kg


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
    n_paths: int | None = option(None, "Paths per entity. Default: the model's.", min=1)
    seed: int | None = option(None, "Seed for paths and sampled negatives. Default: the run's.")
    per_relation: bool = option(False, "Also show a row for every relation.", "--per-relation")


@grouped
def evaluate(source: ModelOnData, options: EvaluateOptions, output: Output) -> None:
    """Evaluate a model; unseen entities are allowed.

    Predictions use only the train split of the data. Rankings are filtered by the known triples of
    all splits. JSON holds everything; as .csv, .tsv or .parquet, [cyan]--out[/] writes the rows of
    [cyan]--per-relation[/].

    Example: [cyan]pathe evaluate --data examples/europe.csv --split 0.8,0.1,0.1 --per-relation[/]
    """
    output.check()
    source, split = _split_of(source, options.on)
    artifact, kg, device = source.load()
    from pathe.evaluation.ranking import RELATION_ROW, relation_rows
    from pathe.evaluation.ranking import evaluate as evaluate_model

    how = {key: value for key, value in vars(options).items() if key not in ("on", "per_relation")}
    with progress_bar("ranking") as progress:
        result = evaluate_model(artifact, kg, split=split, **how, device=device, progress=progress)
    result |= {"data": kg.name, "fingerprint": kg.fingerprint()}
    parts = [*show.result(result)]
    if options.per_relation:
        parts += show.per_relation(result)
    output.show(result, parts, RELATION_ROW, relation_rows(result))


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
