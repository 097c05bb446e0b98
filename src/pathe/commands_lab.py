"""Commands for researchers: reproduce experiments, and the page that shows what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pathe.errors import PatheError
from pathe.options import tell

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
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. to try it out."),
    ] = None,
    experiments: Experiments = Path("experiments"),
    runs: Annotated[Path, typer.Option(help="Where runs go, a folder a seed.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Where NAME.json goes.")] = Path("results"),
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
    chosen = [lab.read_experiment(name, experiments) for name in names]
    places = [lab.find_data(experiment, data) for experiment in chosen]
    for folder in (results, models):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    for experiment, place in zip(chosen, places, strict=True):
        tell(f"{experiment.name}: {experiment.title}")
        summary = lab.reproduce(experiment, place, runs, settings=settings, say=tell)
        tell(f"wrote {lab.write_summary(summary, results)}: {lab.headline(summary)}")
        if models is not None and experiment.ships:
            if settings:
                raise PatheError("A model ships with its experiment's own settings: drop --set.")
            tell(f"wrote {lab.ship(experiment, summary, runs, models)}")
    if page is not None:
        from pathe.report import write_report

        write_report(results, page)
        tell(f"wrote {page}")
