"""Commands about a graph: analyze, paths, convert, prepare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import typer
from rich.text import Text

from pathe.cli.cluster import ClusterOptions
from pathe.cli.options import (
    OUTPUT,
    SAMPLING,
    Data,
    Files,
    Json,
    Output,
    Seed,
    grouped,
    option,
)
from pathe.cli.output import err, phase_bar, print_json, progress_bar, tell
from pathe.core.config import PATHS
from pathe.core.errors import PatheError
from pathe.reports import plots
from pathe.reports import tables as show

if TYPE_CHECKING:
    from pathe.core.types import Fact
    from pathe.data.knowledge_graph import KnowledgeGraph


@grouped
def analyze(
    data: Data,
    files: Files,
    output: Output,
    plot: Annotated[
        Path | None,
        typer.Option(help="Also draw a plot, e.g. to [cyan]graph.png[/].", rich_help_panel=OUTPUT),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Describe a graph and say how well the method suits it.

    Shows counts, degrees, relations, how well relational contexts distinguish entities, leakage
    between splits, dead ends and the reach of walks.

    Example: [cyan]pathe analyze examples/europe.csv --split 0.8,0.1,0.1 --plot graph.png[/]
    """
    output.check(table=False)
    if plot:
        plots.check_picture(plot)
    kg = files.read(data)
    from pathe.graph.analysis import analyze as analyze_graph

    with err.status("analysing ..."):
        result = analyze_graph(kg, seed=seed)
    shown = kg.names.shown(result)
    if plot:
        plots.plot_analysis(shown, plot)
        tell(f"drawn to {plot}")
    output.show(result, show.analysis(shown), {}, [result])


@dataclass(frozen=True)
class PathOptions:
    """Which paths to sample."""

    panel: ClassVar[str] = SAMPLING
    entity: list[str] | None = option(
        None, "An entity; repeatable. Default: three random entities."
    )
    all: bool = option(False, "All entities: rows of entity and path.", "--all")
    n: int = option(5, "Paths per entity.", "-n", "--n-paths", min=1, max=PATHS)
    max_hops: int = option(5, "Longest walk, in edges.", min=1, max=1000)
    form: Literal["joined", "single"] = option(
        "single",
        "[cyan]joined[/]: an incoming and an outgoing walk meet at the entity; [cyan]single[/]: "
        "one walk in either direction.",
    )
    unique: bool = option(False, "Mine a store of unique paths, as in the paper.", "--unique")


@grouped
def paths(
    data: Data,
    files: Files,
    options: PathOptions,
    output: Output,
    cluster: ClusterOptions,
    seed: Seed = 0,
) -> None:
    """Show random paths through entities, as a model with default settings reads them.

    Example: [cyan]pathe paths examples/europe.csv --entity Vienna -n 3[/]
    """
    output.check()
    cluster.check()
    if options.all and options.entity:
        raise PatheError("Give --all or --entity, not both.")
    if cluster.given and not options.all:
        raise PatheError("--cluster and --parts are for all entities: add --all.")
    kg = files.read(data)
    if options.all:
        _all_paths(kg, options, output, cluster, seed)
        return
    found = _sample(kg, options, seed)
    rows = [{"entity": name, "path": steps} for name, own in found.items() for steps in own]
    shown = _lines(kg.names.shown(list(found.items())))
    output.show(found, shown, {"entity": str, "path": str}, rows)


def _all_paths(
    kg: KnowledgeGraph, options: PathOptions, output: Output, cluster: ClusterOptions, seed: int
) -> None:
    """Writes the paths of all entities, at once or in parts."""
    from pathe.graph.named_paths import PATH_ROW, PathSettings, paths_of_range
    from pathe.graph.prepared import prepare as prepared_graph

    prepared, done = prepared_graph(kg), 0
    settings = PathSettings(options.n, options.max_hops, options.form, options.unique, seed)
    if cluster.given:
        from pathe.cluster.graphs import source_of
        from pathe.cluster.work import path_job

        with cluster.running("paths", output.out) as run:
            tables = run(path_job(source_of(prepared), settings))
            with output.rows(PATH_ROW) as write:
                for table in tables:
                    write([row | {"path": json.loads(row["path"])} for row in table.to_pylist()])
                    done += len(table)
    else:
        with output.rows(PATH_ROW) as write, progress_bar("walking") as progress:
            for first in range(0, kg.n_entities, settings.at_once):
                stop = min(first + settings.at_once, kg.n_entities)
                found = paths_of_range(prepared, settings, first, stop)
                rows = [{"entity": name, "path": path} for name, path in found]
                write(rows)
                done += len(rows)
                progress(stop, kg.n_entities)
    if output.out:
        tell(f"wrote {output.out}: {done:,} paths of {kg.n_entities:,} entities")


def _lines(found: list[tuple[str, list[list[Fact]]]]) -> Iterator[Text]:
    """Yields the paths of each entity under its name, each on one line however long it is."""
    for name, rows in found:
        yield Text(show.plain(name), style="bold")
        for steps in rows:
            line = show.path(name, steps)
            line.no_wrap, line.overflow = True, "ignore"
            yield line


def _sample(kg: KnowledgeGraph, options: PathOptions, seed: int) -> dict[str, list[list[Fact]]]:
    """Returns each entity's paths as lists of named triples."""
    import torch

    from pathe.core.randomness import keyed
    from pathe.graph.paths import mine_paths, path_steps, sample_paths
    from pathe.graph.prepared import prepare

    n, max_hops, form = options.n, options.max_hops, options.form
    if options.entity:
        ids = torch.tensor([kg.entities.id(name) for name in options.entity])
    else:
        ids = keyed(seed, torch.arange(kg.n_entities)).argsort()[:3]
    graph = prepare(kg).graph
    if options.unique:
        store = mine_paths(graph, n, max_hops, seed=seed, form=form, entities_E=ids)
        batch = store.draw(torch.arange(len(ids)), n, seed=seed)
    else:
        batch = sample_paths(graph, ids, n, max_hops, seed=seed, form=form)
    found: dict[str, list[list[Fact]]] = {}
    for u, entity in enumerate(ids.tolist()):
        rows = found[kg.entities[entity]] = []
        for k in range(n):
            steps = path_steps(batch, u, k)
            path = [(kg.entities[h], kg.relations[r], kg.entities[t]) for h, r, t in steps]
            # Drawing more paths than a store has repeats them.
            if not options.unique or path not in rows:
                rows.append(path)
    return found


@grouped
def convert(
    data: Data,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="A new folder for the files; or a new file, for triples without splits.",
        ),
    ],
    files: Files,
    suffix: Annotated[
        str | None,
        typer.Option(
            help="File format, e.g. [cyan].txt.gz[/], [cyan].csv[/], [cyan].parquet[/], "
            "[cyan].ttl[/], [cyan].nt[/]. Default: .txt.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Write a graph as train/valid/test files, to keep a split or to change the format.

    A GraIL pair is written as a pair, with the inference graph in FOLDER_ind. In N-Triples and
    Turtle, names that aren't IRIs are percent-encoded after the base IRI; reading the file with the
    same --base-iri restores them. Labels and other literals aren't written.

    Example: [cyan]pathe convert examples/europe.csv europe --split 0.8,0.1,0.1[/]
    """
    from pathe.data.columns import check_target

    ending = check_target(target, suffix)
    kg = files.read(data)
    if ending:
        graphs = kg.save(target, ending)
    elif kg.inference is not None or len(kg.valid) or len(kg.test):
        raise PatheError(f"{target}: this data has several parts. Name a folder for its files.")
    else:
        from pathe.data.triples import write_triples

        write_triples(target, kg.train, kg.entities, kg.relations)
        graphs = {target: kg}
    for path, graph in graphs.items():
        found = ", ".join(f"{split} {len(t):,}" for split, t in graph.splits.items() if len(t))
        tell(f"wrote {path}: {found} triples\nfingerprint {graph.fingerprint()}")


@grouped
def prepare(
    data: Data,
    target: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A new folder, or one to continue or check.")
    ],
    files: Files,
    as_json: Json = False,
) -> None:
    """Index a large graph once, so that every command opens it in less than a second.

    FOLDER is then accepted wherever DATA is, with the same results. Processes on one machine share
    its memory. Files and folders of part files are read part by part, in at most 2 GiB of memory
    however large they are; other kinds of DATA, and --split, need the graph in memory once.

    If the command is interrupted, run it again: it continues. On a complete FOLDER, it checks that
    no file has changed.

    Example: [cyan]pathe prepare examples/europe.csv europe-prepared[/]
    """
    fractions, options = files.parsed(data)
    from pathe.graph.preparation import Request, prepare_folder

    complete = (target / "prepared.json").exists()
    request = Request(data, options, fractions, files.cut_seed, files.allow_unseen)
    about = prepare_folder(request, target, phase_bar)
    size = sum(file["bytes"] for file in about["files"].values())
    found = ", ".join(f"{split} {n:,}" for split, n in about["splits"].items() if n)
    done = "checked, nothing has changed:" if complete else "prepared"
    tell(
        f"{done} {target}: {about['n_entities']:,} entities, {about['n_relations']:,} relations, "
        f"{found} triples; {size / 1e9:.2f} GB\nfingerprint {about['fingerprint']}"
    )
    if as_json:
        shown = ("name", "fingerprint", "digest", "n_entities", "n_relations", "splits")
        print_json({key: about[key] for key in shown} | {"folder": str(target), "bytes": size})
