"""Commands that make and use a model: train, evaluate, config."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from pathe.errors import PatheError
from pathe.options import (
    Data,
    DataOption,
    Device,
    Json,
    Model,
    ReadData,
    SplitName,
    Task,
    TestSet,
    err,
    print_json,
    print_parts,
    progress_bar,
    reads_data,
    tell,
)


@reads_data
def train(
    read: ReadData,
    data: Data,
    task: Annotated[
        Task | None,
        typer.Option(
            help="[cyan]link[/]: which entity is missing; [cyan]relation[/]: how two entities are "
            "related; [cyan]multi[/]: both. Default: the preset's, or link."
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Settings to start from: one that [cyan]pathe config[/] lists, or a .yaml. "
            "Default: what suits the graph and this machine."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be given again."),
    ] = None,
    out_: Annotated[
        Path | None,
        typer.Option("--out", metavar="RUN", help="The run's folder. Default: runs/DATA-TASK."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out where it stopped.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a model to early stopping, export it and evaluate it.

    Settings are chosen to suit the graph and this machine, with bridges wherever some twenty
    minutes are enough for them; [cyan]--set[/] and [cyan]--preset[/] say otherwise.
    The run's folder holds settings, metrics, checkpoints, the model, [cyan]result.json[/] and
    [cyan]report.png[/]. Ctrl-C saves; [cyan]--resume --out RUN[/] goes on exactly there.
    """
    from pathe.config import configure, read_overrides, read_preset

    overrides = read_overrides(set_ or []) | ({"task": task.value} if task else {})
    if resume:
        if out_ is None:
            raise PatheError("--resume needs the run's folder: --out RUN.")
        if preset is not None:
            raise PatheError("--resume goes on with the run's own settings: leave --preset out.")
    leader = os.environ.get("PATHE_RUN")  # of a helping process: its settings are the run's
    base = read_preset(preset) if preset else None
    if begun := Path(leader) if leader else out_ if resume else None:
        from pathe.runs import resumed_config

        base = resumed_config(begun)
    config = configure(base, overrides, "--set")
    kg = read(data)
    with err.status("starting ..."):
        from pathe import runs
        from pathe.recipes import recommend

        chosen = ""
        if base is None:
            config, chosen = recommend(kg, overrides)
    if chosen:
        tell(f"settings for this graph: {chosen}")
    folder = out_ or runs.free_folder(Path("runs") / f"{kg.name.replace(':', '-')}-{config.task}")
    tell(f"run folder: {folder}")
    result = runs.train(kg, config, folder, resume=resume, say=tell)
    if not result:
        return  # a helping process: the first one reports
    if as_json:
        print_json(result)
    else:
        from pathe import show

        print_parts(show.result(result))


@reads_data
def evaluate(
    read: ReadData,
    model: Model,
    data: DataOption,
    split: Annotated[SplitName, typer.Option(help="Which part to judge by.")] = SplitName.test,
    protocol: Annotated[
        str,
        typer.Option(
            help="[cyan]full[/]: rank among all entities; [cyan]sampled:N[/]: among N random ones."
        ),
    ] = "full",
    test_set: Annotated[
        TestSet,
        typer.Option(
            help="[cyan]seen[/]: triples whose entities occur in train (the paper's); "
            "[cyan]unseen[/]: the others; [cyan]all[/]."
        ),
    ] = TestSet.seen,
    task: Annotated[
        Task | None, typer.Option(help="For a model of both tasks: judge one alone.")
    ] = None,
    n_paths: Annotated[
        int | None, typer.Option(min=1, help="Paths an entity. Default: the model's.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of paths and samples. Default: the run's.")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Rank the triples of a graph by a model; other entities than in training are welcome.

    The data's train split describes the entities; known triples of all splits are filtered.
    """
    from pathe.artifact import load_model
    from pathe.evaluation import evaluate as evaluate_model
    from pathe.machine import pick_device

    artifact = load_model(model)
    kg = read(data, artifact)
    with progress_bar("ranking") as progress:
        result = evaluate_model(
            artifact,
            kg,
            split=split.value,
            protocol=protocol,
            test_set=test_set.value,
            task=task.value if task else None,
            device=pick_device(device),
            n_paths=n_paths,
            seed=seed,
            progress=progress,
        )
    result |= {"data": kg.name, "fingerprint": kg.fingerprint()}
    if as_json:
        print_json(result)
    else:
        from pathe import show

        print_parts(show.result(result))


def config(
    preset: Annotated[
        str | None, typer.Argument(metavar="PRESET", help="A preset to show.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a preset, or all settings with their defaults and the names of the presets."""
    from pathe import show
    from pathe.config import Config, preset_names, preset_text, read_preset

    if as_json:
        print_json(read_preset(preset).as_dict() if preset else Config().as_dict())
    elif preset:
        print_parts([escape(preset_text(preset)).rstrip("\n")], soft_wrap=True)
    else:
        print_parts(show.settings(preset_names()))
