"""The command line: one command a verb. Only this module and its options print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from pathe.errors import Interrupted, PatheError
from pathe.options import (
    Data,
    Device,
    Form,
    Json,
    ReadData,
    Seed,
    SplitName,
    Task,
    TestSet,
    err,
    out,
    prepare_output,
    print_json,
    print_parts,
    progress_bar,
    reads_data,
    tell,
)

app = typer.Typer(
    name="pathe",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from pathe import __version__

        out.print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (any command).")] = False,
) -> None:
    """Knowledge-graph embeddings without an entity table.

    Start with [cyan]pathe analyze DATA[/]: is this method right for your graph? Then
    [cyan]pathe train DATA[/], and [cyan]pathe evaluate[/] what came out.
    """


@app.command()
@reads_data
def analyze(
    read: ReadData,
    data: Data,
    as_json: Json = False,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw it, e.g. to [cyan]graph.png[/].")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Describe a graph and say how well the method suits it.

    Counts, degrees, relations, how far relational contexts tell entities apart, leakage between
    splits, dead ends and the reach of walks.
    """
    from pathe import plots, show

    if plot:
        plots.check_picture(plot)
    kg = read(data)
    from pathe.analysis import analyze as analyze_graph

    with err.status("analysing ..."):
        result = analyze_graph(kg, seed=seed)
    if plot:
        plots.plot_analysis(result, plot)
        tell(f"drawn to {plot}")
    if as_json:
        print_json(result)
    else:
        print_parts(show.analysis(result))


@app.command()
@reads_data
def paths(
    read: ReadData,
    data: Data,
    entity: Annotated[
        list[str] | None,
        typer.Option(help="Whose paths; may be given again. Default: three random entities."),
    ] = None,
    n: Annotated[
        int, typer.Option("-n", "--n-paths", min=1, max=1_000_000, help="Paths an entity.")
    ] = 5,
    max_hops: Annotated[int, typer.Option(min=1, max=1000, help="Longest walk, in edges.")] = 10,
    form: Annotated[
        Form,
        typer.Option(
            help="[cyan]joined[/]: an incoming and an outgoing walk meet at the entity; "
            "[cyan]single[/]: one walk in either direction."
        ),
    ] = Form.joined,
    unique: Annotated[
        bool, typer.Option("--unique", help="Mine a store without repeats, as the paper does.")
    ] = False,
    as_json: Json = False,
    seed: Seed = 0,
) -> None:
    """Show random paths through entities: what the model reads to describe them."""
    kg = read(data)
    import torch
    from rich.text import Text

    from pathe import show
    from pathe.graph import build_graph
    from pathe.paths import mine_paths, path_steps, sample_paths
    from pathe.randomness import keyed

    if entity:
        ids = torch.tensor([kg.entities.id(name) for name in entity])
    else:
        ids = keyed(seed, torch.arange(kg.n_entities)).argsort()[:3]
    graph = build_graph(kg.train, kg.n_entities, kg.n_relations)
    if unique:
        store = mine_paths(graph, n, max_hops, seed=seed, form=form.value, entities_E=ids)
        batch = store.draw(torch.arange(len(ids)), n, seed=seed)
    else:
        batch = sample_paths(graph, ids, n, max_hops, seed=seed, form=form.value)
    found: dict[str, list[list[tuple[str, str, str]]]] = {
        kg.entities[e]: [
            [
                (kg.entities[h], kg.relations[r], kg.entities[t])
                for h, r, t in path_steps(batch, u, k)
            ]
            for k in range(n)
        ]
        for u, e in enumerate(ids.tolist())
    }
    if unique:  # a store repeats its paths where more are asked for than there are
        found = {
            name: [path for i, path in enumerate(rows) if path not in rows[:i]]
            for name, rows in found.items()
        }
    if as_json:
        print_json(found)
        return
    for name, rows in found.items():
        title = Text(show.plain(name), style="bold")
        print_parts([title, *(show.path(name, steps) for steps in rows)], soft_wrap=True)


@app.command()
@reads_data
def convert(
    read: ReadData,
    data: Data,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="A new folder for the files; or a new file, for triples without splits.",
            show_default=False,
        ),
    ],
    suffix: Annotated[
        str | None,
        typer.Option(
            help="Kind of file, e.g. [cyan].txt.gz[/], [cyan].csv[/], [cyan].parquet[/]. "
            "Default: .txt.",
        ),
    ] = None,
) -> None:
    """Write a graph as train/valid/test files: to keep a split, or to change the format.

    A GraIL pair is written as a pair, the inference graph to FOLDER_ind.
    """
    from pathe.columns import check_target

    ending = check_target(target, suffix)
    kg = read(data)
    if ending:
        graphs = kg.save(target, ending)
    elif kg.inference is not None or len(kg.valid) or len(kg.test):
        raise PatheError(f"{target}: this data has several parts. Name a folder for its files.")
    else:
        from pathe.triples import write_triples

        write_triples(target, kg.train, kg.entities, kg.relations)
        graphs = {target: kg}
    for path, graph in graphs.items():
        sizes = {split: len(getattr(graph, split)) for split in ("train", "valid", "test")}
        found = ", ".join(f"{split} {n:,}" for split, n in sizes.items() if n)
        tell(f"wrote {path}: {found} triples\nfingerprint {graph.fingerprint()}")


@app.command()
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
        typer.Option(help="Settings to start from; [cyan]pathe config[/] lists them. Or a .yaml."),
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

    The run's folder holds settings, metrics, checkpoints, the model, [cyan]result.json[/] and
    [cyan]report.png[/]. Ctrl-C saves; [cyan]--resume --out RUN[/] goes on exactly there.
    """
    from pathe.config import Config, configure, read_overrides, read_preset

    overrides = read_overrides(set_ or []) | ({"task": task.value} if task else {})
    if resume:
        if out_ is None:
            raise PatheError("--resume needs the run's folder: --out RUN.")
        from pathe.runs import resumed_config

        base = resumed_config(out_)
    else:
        base = read_preset(preset) if preset else Config()
    config = configure(base, overrides, "--set")
    kg = read(data)
    with err.status("starting ..."):
        from pathe import runs
    folder = out_ or runs.free_folder(Path("runs") / f"{kg.name.replace(':', '-')}-{config.task}")
    tell(f"run folder: {folder}")
    result = runs.train(kg, config, folder, resume=resume, say=tell)
    if as_json:
        print_json(result)
    elif result:
        from pathe import show

        print_parts(show.result(result))


@app.command()
@reads_data
def evaluate(
    read: ReadData,
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A run or a model folder.", show_default=False),
    ],
    data: Annotated[
        str, typer.Option("--data", metavar="DATA", help="As for train.", show_default=False)
    ],
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
            help="[cyan]seen[/]: triples whose entities occur in train (the paper's); [cyan]all[/]."
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
    kg = read(data, relations=artifact.relations)
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


@app.command()
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


def main() -> None:
    """Runs the command line: what a user can put right ends with exit code 2 and no traceback."""
    prepare_output()
    args = [a for a in sys.argv[1:] if a != "--debug"]
    if len(args) < len(sys.argv) - 1:
        app(args)
        return
    try:
        app(args)
    except Interrupted as stopped:
        err.print(escape(str(stopped)), soft_wrap=True)
        raise SystemExit(130) from None
    except PatheError as error:
        _fail(str(error))
    except OSError as error:
        _fail(str(error))
    except MemoryError:
        _fail("out of memory")
    except RuntimeError as error:
        if "allocate" not in str(error):  # torch's way to say it
            raise
        _fail("out of memory: ask for less at once")


def _fail(text: str) -> None:
    err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)
    raise SystemExit(2)
