"""Commands that look at a graph: analyze, paths, convert."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pathe.errors import PatheError
from pathe.options import (
    Data,
    Form,
    Json,
    ReadData,
    Seed,
    err,
    print_json,
    print_parts,
    reads_data,
    tell,
)


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
    max_hops: Annotated[int, typer.Option(min=1, max=1000, help="Longest walk, in edges.")] = 5,
    form: Annotated[
        Form,
        typer.Option(
            help="[cyan]joined[/]: an incoming and an outgoing walk meet at the entity; "
            "[cyan]single[/]: one walk in either direction; [cyan]mixed[/]: one walk that takes "
            "each edge either way."
        ),
    ] = Form.single,
    unique: Annotated[
        bool, typer.Option("--unique", help="Mine a store without repeats, as the paper does.")
    ] = False,
    as_json: Json = False,
    seed: Seed = 0,
) -> None:
    """Show random paths through entities: what a model of the default settings reads of them."""
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
