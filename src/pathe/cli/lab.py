"""Commands for researchers: reproduce, tune."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from pathe.cli.cluster import CLUSTER, CLUSTER_HELP, backend_of, check_cluster
from pathe.cli.options import (
    Data,
    Files,
    Json,
    Seed,
    command_line,
    grouped,
    option,
    read_settings,
)
from pathe.cli.output import err, print_json, tell
from pathe.core.errors import PatheError

if TYPE_CHECKING:
    from pathe.cluster.job import Backend
    from pathe.cluster.training import Wanted
    from pathe.data.knowledge_graph import KnowledgeGraph


@dataclass(frozen=True)
class LabOptions:
    """Where experiments, data, runs and results are, and settings to try."""

    panel: ClassVar[str] = "Folders and settings"
    data: Path | None = option(
        None, "The folder that holds the data sets. Default: download them by name."
    )
    experiments: Path = option(Path("experiments"), "The folder of experiment files.")
    runs: Path | None = option(None, "Folder for runs, one folder per seed. Default: runs.")
    results: Path | None = option(None, "Folder for NAME.json. Default: results.")
    models: Path | None = option(
        None, "Folder for the models to publish. Default: models are not written."
    )
    page: Path | None = option(
        None, "Rebuild this page (Markdown) from all results. Needs no experiment."
    )
    set_: list[str] | None = option(
        None,
        "Try another setting; repeatable. Such runs have their own folder, and results are kept "
        "only with --results.",
        "--set",
        metavar="KEY=VALUE",
    )
    cluster: str | None = option(None, f"{CLUSTER_HELP} Each run is one task.", metavar=CLUSTER)

    def write_page(self, results: Path) -> None:
        """Rebuilds the page, and its plot of positions if that model is there."""
        if self.page is None:
            return
        from pathe.lab.results_page import POSITIONS, draw_model_positions, write_report

        write_report(results, self.page)
        if self.models is not None and (self.models / POSITIONS).is_dir():
            draw_model_positions(self.models / POSITIONS, self.page.with_name("positions.svg"))
        tell(f"wrote {self.page}")


@grouped
def reproduce(
    folders: LabOptions,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Experiments. Default: list them.")
    ] = None,
) -> None:
    """Run experiments, the paper's and ours, over all seeds; write a JSON file of metrics for each.

    Continues interrupted runs and skips finished ones. [cyan]zero-shot[/] evaluates the
    pre-trained model on every graph in the data folder.

    Example: [cyan]pathe reproduce wn18rr-link --data data[/]
    """
    from pathe.lab import experiments as lab

    if not names and folders.page is not None:
        folders.write_page(folders.results or Path("results"))
        return
    if not names:
        _list_experiments(folders.experiments)
        return
    settings = read_settings(folders.set_)
    check_cluster(folders.cluster)
    if settings and (folders.models or folders.page):
        raise PatheError("--models and --page are for the experiments' own settings: drop --set.")
    if folders.page is not None:
        from pathe.lab.results_page import check_page

        check_page(folders.page)
    if "zero-shot" in names:
        _zero_shot(folders, names)
        return
    chosen = [lab.read_experiment(name, folders.experiments) for name in names]
    runs = folders.runs or Path("runs-tried" if settings else "runs")
    results = folders.results or (None if settings else Path("results"))
    places = [lab.find_data(experiment, folders.data) for experiment in chosen]
    for folder in (results, folders.models):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    with backend_of(folders.cluster) as backend:
        for experiment, place in zip(chosen, places, strict=True):
            tell(f"{experiment.name}: {experiment.title}")
            elsewhere = _on(backend) if backend else None
            summary = lab.reproduce(
                experiment, place, runs, settings=settings, elsewhere=elsewhere, say=tell,
                command=command_line(),
            )  # fmt: skip
            tell(f"{experiment.name}: {lab.headline(summary)}")
            if results is not None:
                tell(f"wrote {lab.write_summary(summary, results)}")
            if folders.models is not None and experiment.ships:
                tell(f"wrote {lab.ship(experiment, summary, runs, folders.models)}")
    if results is not None:
        folders.write_page(results)


def _on(backend: Backend) -> Callable[[KnowledgeGraph, list[Wanted]], None]:
    """Returns what trains runs on a cluster."""
    from pathe.cluster.training import train_runs

    return lambda graph, wanted: train_runs(graph, wanted, backend, tell, command_line())


def _zero_shot(folders: LabOptions, names: list[str]) -> None:
    """Evaluates the pre-trained model on all graphs of the data folder."""
    if len(names) > 1 or folders.set_ or folders.models or folders.cluster:
        raise PatheError(
            "zero-shot can't be combined with other experiments or with --set, --models or "
            "--cluster."
        )
    if folders.data is None:
        raise PatheError("zero-shot needs the folder that holds the graphs: --data FOLDER.")
    from pathe.core.hardware import pick_device
    from pathe.lab.zero_shot import zero_shot

    results = folders.results or Path("results")
    results.mkdir(parents=True, exist_ok=True)
    zero_shot(folders.data, results, pick_device("auto"), say=tell)
    tell(f"wrote {results / 'zero-shot.json'}")
    folders.write_page(results)


def _list_experiments(folder: Path) -> None:
    from pathe.lab.experiments import experiment_names, read_experiment

    names = experiment_names(folder)
    if not names:
        raise PatheError(
            f"{folder.absolute()}: no experiment files (.yaml) in this folder. Name another one "
            "with --experiments FOLDER, or run the command in a checkout of the repository."
        )
    for name in names:
        tell(f"{name}: {read_experiment(name, folder).title}")


@dataclass(frozen=True)
class SearchOptions:
    """What to search."""

    panel: ClassVar[str] = "Search"
    space: str = option(
        "link",
        "[cyan]link[/], [cyan]paper-link[/], [cyan]paper-relation[/], or a .yaml with `fixed:` and "
        "`space:`.",
    )
    trials: int = option(50, "Number of configurations to try.", min=1, max=100_000)
    out_: Path | None = option(None, "The search's folder. Default: runs/DATA-tune-SPACE.", "--out")
    set_: list[str] | None = option(
        None, "Fix a setting in all trials; repeatable.", "--set", metavar="KEY=VALUE"
    )
    cluster: str | None = option(
        None, f"{CLUSTER_HELP} Each trial is one task and trains without pruning.", metavar=CLUSTER
    )


@grouped
def tune(
    data: Data, files: Files, options: SearchOptions, seed: Seed = 0, as_json: Json = False
) -> None:
    """Search hyperparameters: random trials, compared on validation triples, weak ones pruned.

    The folder holds every trial, [cyan]best.yaml[/] (for [cyan]pathe train --preset[/]),
    [cyan]result.json[/] and [cyan]report.png[/]. The same command continues a search that was
    stopped, or adds trials to it.

    Example: [cyan]pathe tune examples/europe.csv --split 0.8,0.1,0.1 --trials 20[/]
    """
    settings = read_settings(options.set_)
    check_cluster(options.cluster)
    kg = files.read(data)
    with err.status("starting ..."):
        from pathe.lab.tuning import read_space
        from pathe.lab.tuning import tune as search
    space = read_space(options.space)
    folder = options.out_ or Path("runs") / f"{kg.name.replace(':', '-')}-tune-{space.name}"
    tell(f"search folder: {folder}")
    how: dict[str, Any] = {"settings": settings, "n_trials": options.trials, "seed": seed}
    with backend_of(options.cluster) as backend:
        result = search(kg, space, folder, **how, backend=backend, say=tell, command=command_line())
    if as_json:
        print_json(result)
        return
    best = ", ".join(f"{key}={value}" for key, value in result["best"].items())
    defaults = f"the defaults reach {result['default_valid_score']:.4f}"
    tell(f"best {result['validation']} {result['best_valid_score']:.4f} ({defaults}): {best}")
    tell(f"train with it: pathe train {data} --preset {folder / 'best.yaml'}")
