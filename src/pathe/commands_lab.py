"""Commands for researchers: reproduce experiments, and the page that shows what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pathe.errors import PatheError
from pathe.options import Data, Json, ReadData, Seed, err, print_json, reads_data, tell

Experiments = Annotated[
    Path, typer.Option(help="The folder of experiment files.", show_default=True)
]


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Experiments. None: list them.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The folder that holds the data sets. Default: by name, downloaded."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting, to try it out: in runs of its own, and no result is kept "
            "unless --results says where.",
        ),
    ] = None,
    experiments: Experiments = Path("experiments"),
    runs: Annotated[
        Path | None, typer.Option(help="Where runs go, a folder a seed. Default: runs.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Where NAME.json goes. Default: results.")
    ] = None,
    models: Annotated[
        Path | None, typer.Option(help="Where models that ship go. Default: nowhere.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Rebuild this page from all results.")] = None,
) -> None:
    """Run experiments of the paper and ours: every seed, mean and spread, one JSON each.

    What was interrupted goes on where it stopped; what is done is not done again.
    """
    from pathe import experiments as lab
    from pathe.config import read_overrides

    if not names:
        for name in lab.experiment_names(experiments):
            tell(f"{name}: {lab.read_experiment(name, experiments).title}")
        return
    settings = read_overrides(set_ or [])
    if settings and (models or page):
        raise PatheError("Models and pages are of the experiments' own settings: drop --set.")
    if page is not None:
        from pathe.report import check_page

        check_page(page)
    runs = runs or Path("runs-tried" if settings else "runs")
    results = results or (None if settings else Path("results"))
    chosen = [lab.read_experiment(name, experiments) for name in names]
    places = [lab.find_data(experiment, data) for experiment in chosen]
    for folder in (results, models):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    for experiment, place in zip(chosen, places, strict=True):
        tell(f"{experiment.name}: {experiment.title}")
        summary = lab.reproduce(experiment, place, runs, settings=settings, say=tell)
        tell(f"{experiment.name}: {lab.headline(summary)}")
        if results is not None:
            tell(f"wrote {lab.write_summary(summary, results)}")
        if models is not None and experiment.ships:
            tell(f"wrote {lab.ship(experiment, summary, runs, models)}")
    if page is not None and results is not None:
        from pathe.report import POSITIONS, draw_model_positions, write_report

        write_report(results, page)
        if models is not None and (models / POSITIONS).is_dir():
            draw_model_positions(models / POSITIONS, page.with_name("positions.svg"))
        tell(f"wrote {page}")


@reads_data
def tune(
    read: ReadData,
    data: Data,
    space: Annotated[
        str,
        typer.Option(
            help="[cyan]link[/], [cyan]paper-link[/], [cyan]paper-relation[/], or a .yaml with "
            "`fixed:` and `space:`."
        ),
    ] = "link",
    trials: Annotated[int, typer.Option(min=1, help="How many configurations to try.")] = 50,
    out_: Annotated[
        Path | None,
        typer.Option("--out", help="The search's folder. Default: runs/DATA-tune-SPACE."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Fix a setting in all trials."),
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Search for better settings: random trials, judged on the validation set, the weak pruned.

    The folder holds every trial, [cyan]best.yaml[/] (for [cyan]pathe train --preset[/]),
    [cyan]result.json[/] and [cyan]report.png[/]. The same command goes on with a search that was
    stopped, or adds trials to it.
    """
    from pathe.config import read_overrides

    settings = read_overrides(set_ or [])
    kg = read(data)
    with err.status("starting ..."):
        from pathe.tuning import read_space
        from pathe.tuning import tune as search
    chosen = read_space(space)
    folder = out_ or Path("runs") / f"{kg.name.replace(':', '-')}-tune-{chosen.name}"
    tell(f"search folder: {folder}")
    result = search(kg, chosen, folder, settings=settings, n_trials=trials, seed=seed, say=tell)
    if as_json:
        print_json(result)
    else:
        best = ", ".join(f"{key}={value}" for key, value in result["best"].items())
        defaults = f"the defaults have {result['default_valid_mrr']:.4f}"
        tell(f"best validation MRR {result['best_valid_mrr']:.4f} ({defaults}): {best}")
        tell(f"train with it: pathe train {data} --preset {folder / 'best.yaml'}")
