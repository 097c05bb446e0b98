"""Builds docs/results.md from the results: ours beside those of the paper and its baselines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from pathe.core.config import current_names
from pathe.core.errors import DataError
from pathe.core.files import replacing
from pathe.core.yaml_files import read_settings_file
from pathe.evaluation.metrics import HEADLINE, TITLES
from pathe.lab import bars, fine_tuned, zero_shot
from pathe.lab.experiments import Result, judged, validation_of, validation_score
from pathe.lab.pictures import at_a_glance, write_pictures

BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
POSITIONS = "fb15k237-link"  # the model whose position vectors are drawn
COLUMNS = [TITLES[key] for key in HEADLINE]
PAIRS = [f"{family} v{v}" for family in ("FB15k-237", "WN18RR") for v in (1, 2, 3, 4)]
INCHES = (6.4, 4.2)  # size of a plot


@cache
def published() -> dict[str, Any]:
    """Reads the figures of the paper and of other methods: baselines, inductive, properties."""
    return read_settings_file(Path(__file__).with_name("published.yaml"))


def _read_folder(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text(encoding="utf-8")) for p in sorted(folder.glob("*.json"))]


def read_results(folder: Path) -> list[Result]:
    """Reads the summaries of all experiments in a folder, by name; settings get current names.

    They may hold settings and variants that are gone: only their figures are shown.
    """
    found = [s for s in _read_folder(folder) if "metrics" in s]
    return [s | {"config": current_names(s["config"])} for s in found]


def write_report(results: Path, page: Path) -> None:
    """Writes the tables between their marks in the page and keeps the text around them.

    Draws the plots beside the page that there are results for.
    """
    before, after = check_page(page)
    summaries, properties = read_results(results), _read_folder(results / "properties")
    without_training = read_zero_shot(results)
    write_pictures(page, summaries, without_training, published(), results)
    shown = "\n".join(at_a_glance(page)) + tables(
        summaries, properties, without_training, bars.read_speed(results)
    )
    text = f"{before}{BEGIN}\n{shown}\n{END}{after}"
    with replacing(page) as aside:
        aside.write_text(text, encoding="utf-8")
    if found := paths_per_triple(summaries):
        from pathe.reports.plots import draw_paths_per_triple, plot_figure

        title = "FB15k-237, published configuration: paths per triple"
        metrics = {n_paths: summary["metrics"] for n_paths, summary in found.items()}
        panel = partial(draw_paths_per_triple, found=metrics)
        plot_figure(page.with_name("paths-per-triple.svg"), title, [panel], INCHES, data=metrics)


def draw_model_positions(folder: Path, picture: Path) -> None:
    """Draws the first principal component of a model's position vectors, as the paper does."""
    from pathe.model.artifact import load_model, model_digest
    from pathe.model.pathe import PathE
    from pathe.reports.plots import draw_positions, plot_figure

    artifact = load_model(folder)
    assert isinstance(artifact.model, PathE)
    n_used = 2 * artifact.config.max_hops + 1
    used_TD = artifact.model.encoder.positions.weight.detach()[:n_used]
    centred_TD = used_TD - used_TD.mean(0)
    component_T = centred_TD @ centred_TD.svd().V[:, 0]
    component_T = component_T * component_T[-1].sign()  # the sign of a component is arbitrary
    title = f"{folder.name}: position vectors, first principal component"
    panel = partial(draw_positions, component_T=component_T.tolist())
    plot_figure(picture, title, [panel], INCHES, data=model_digest(folder))


def check_page(page: Path) -> tuple[str, str]:
    """Returns the text before and after the tables; raises for a page without its marks."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{page}: can't be read ({error.strerror})") from None
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise DataError(f"{page}: expected the lines {BEGIN} and {END} in it, once each.")
    before, _, rest = text.partition(BEGIN)
    return before, rest.partition(END)[2]


def paths_per_triple(summaries: list[Result]) -> dict[int, Result]:
    """Returns two or more results of the published FB15k-237 settings, by paths per triple."""
    base = "fb15k237-link-paper"
    names = (base, f"{base}-one-path", f"{base}-ppt4", f"{base}-ppt16")
    found = {2 * s["config"]["n_paths"]: s for s in summaries if s["name"] in names}
    return dict(sorted(found.items())) if len(found) > 1 else {}


def read_zero_shot(results: Path) -> dict[str, Any] | None:
    """Reads the zero-shot figures, if there are any, and what pre-training has seen of each graph.

    The latter is under "overlap".
    """
    path, overlap = results / f"{zero_shot.NAME}.json", results / "pretraining" / "overlap.json"
    if not path.is_file():
        return None
    seen = json.loads(overlap.read_text(encoding="utf-8"))["graphs"] if overlap.is_file() else {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found | {"overlap": seen}


def tables(
    summaries: list[Result],
    properties: list[dict[str, Any]] | None = None,
    without_training: dict[str, Any] | None = None,
    speed: Sequence[dict[str, Any]] = (),
) -> str:
    """Returns all tables as Markdown."""
    parts = [
        *(zero_shot.page(without_training) if without_training else ()),
        *fine_tuned.page(summaries, without_training),
        *_comparison("link", "Link prediction", summaries),
        *_comparison("relation", "Relation prediction", summaries),
        *_inductive(summaries),
        *_ablations(summaries),
        *_paths(summaries),
        *_recipes(summaries),
        *bars.page(summaries, without_training, speed),
        *_properties(properties or []),
    ]
    return "\n".join(parts)


def _table(heading: str, columns: Iterable[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields a heading and a table, a line each; nothing without rows."""
    if rows:
        yield f"{heading}\n"
        yield f"|  | {' | '.join(columns)} |"
        yield "|" + "---|" * len(rows[0])
        yield from (f"| {' | '.join(cells)} |" for cells in rows)
        yield ""


def _by_data(summaries: list[Result], table: str) -> dict[str, list[Result]]:
    """Returns the summaries of a table by data set, the first part of a title."""
    found: dict[str, list[Result]] = {}
    for summary in summaries:
        if summary["table"] == table:
            found.setdefault(summary["title"].split(",")[0], []).append(summary)
    return found


def _comparison(table: str, title: str, summaries: list[Result]) -> Iterator[str]:
    """Yields a table per data set: the paper's baselines, the paper, ours."""
    found = _by_data(summaries, table)
    if found:
        yield f"\n## {title}\n"
    for data, ours in found.items():
        beside = ["all test triples"] if any(s.get("all_metrics") for s in ours) else []
        others = dict(published()["baselines"][table].get(data, {}))
        if paper := next((s["paper"] for s in ours if s["paper"]), None):
            others["PathE (paper)"] = paper
        rows = []
        for name, figures in others.items():
            size = figures.get("parameters")
            sizes = (f"{size}M", f"{figures['mrr'] / size:.2f}") if size else ("-", "-")
            cells = [_figure(figures.get(key)) for key in HEADLINE] + [""] * len(beside)
            rows.append([name, sizes[0], *cells, sizes[1], "", ""])
        rows += [_ours(summary, with_all=bool(beside)) for summary in ours]
        about = f"`{ours[0]['test_set']}` test set, {ours[0]['protocol']} ranking."
        columns = ["parameters", *COLUMNS, *beside, "Effi", "training", "file"]
        yield from _table(f"### {data}\n\n{about}", columns, rows)


def _ours(summary: Result, with_all: bool) -> list[str]:
    counted, as_published = summary["parameters"], summary["parameters_as_published"]
    size = f"{counted:,}" + (f" ({as_published / 1e6:.2f}M)" if as_published else "")
    paper, cells = summary["paper"], _metrics(summary, summary["paper"])
    if with_all:
        every = summary.get("all_metrics") or {}
        shown = [_figure(every[key]["mean"]) for key in ("mrr", "hits_at_10") if key in every]
        cells.append(" / ".join(shown) or "-")
    effi = f"{judged(summary)['mrr']['mean'] / (as_published or counted) * 1e6:.2f}"
    if paper.get("parameters") and "mrr" in paper:
        effi += " ▼" if float(effi) < round(paper["mrr"] / paper["parameters"], 2) else ""
    seconds = f"{summary['train_seconds']:.0f} s"
    return [f"**{summary['title']}**", size, *cells, effi, seconds, _link(summary)]


def _ablations(summaries: list[Result]) -> Iterator[str]:
    """Yields what removing each part costs here and in the paper; the complete model first."""

    def mrrs(summary: Result) -> tuple[float | None, ...]:
        return summary["metrics"]["mrr"]["mean"], summary["paper"].get("mrr")

    named, rows = {s["name"]: s for s in summaries}, []
    for chosen in _by_data(summaries, "ablation").values():
        whole = named.get(chosen[0]["name"].partition("-paper-")[0] + "-paper")
        for row in [whole, *chosen] if whole else chosen:
            lost = ["", ""]
            if whole and row is not whole:
                pairs = zip(mrrs(whole), mrrs(row), strict=True)
                lost = ["-" if a is None or b is None else f"{a - b:+.3f}" for a, b in pairs]
            cells = [str(len(row["seeds"])), *_metrics(row), lost[0], _figure(mrrs(row)[1])]
            rows.append([f"**{row['title']}**", *cells, lost[1], _link(row)])
    columns = ["seeds", *COLUMNS, "MRR lost", "paper: MRR", "lost", "file"]
    return _table("\n## Ablations of the published configuration", columns, rows)


def _paths(summaries: list[Result]) -> Iterator[str]:
    """Yields the table of the published configuration by paths per triple."""
    heading = (
        "\n## Paths per triple\n\nThe published configuration on FB15k-237. Two paths per triple "
        "are one per entity."
    )
    rows = [[str(n_paths), str(len(summary["seeds"])), *_metrics(summary), _link(summary)]
            for n_paths, summary in paths_per_triple(summaries).items()]  # fmt: skip
    return _table(heading, ["seeds", *COLUMNS, "file"], rows)


def _recipes(summaries: list[Result]) -> Iterator[str]:
    """Yields a table per recipe: its results, and those with one thing changed."""

    def ranked(row: dict[str, Any]) -> dict[str, dict[str, float]]:
        """Returns the full ranking: on unseen entities if there are some, else on the test set."""
        return dict(row["inference"].get("full") or row["metrics"])

    for summary in (s for s in summaries if s["table"] == "recipes"):
        validation, rows = validation_of(summary["config"]), []
        whole = ranked(summary)["mrr"]["mean"]
        for title, row in [("the recipe", summary), *summary.get("variants", {}).items()]:
            found = ranked(row)
            change = "" if row is summary else f"{found['mrr']['mean'] - whole:+.3f}"
            cells = [_shown(row, found["mrr"]), change, _shown(row, found["hits_at_10"])]
            same = validation_of(summary["config"] | row.get("settings", {})) == validation
            valid = _figure(validation_score(row) if same else None)
            size, seconds = f"{row['parameters']:,}", f"{row['train_seconds']:.0f} s"
            rows.append([title, str(len(row["seeds"])), valid, *cells, size, seconds])
        columns = ["seeds", validation, "MRR", "change", "Hits@10", "parameters", "training"]
        note = f"\n\n{summary['note']}" if summary["note"] else ""
        yield from _table(f"\n## {summary['title']}{note}", columns, rows)
        yield f"{_link(summary)}\n"


def _inductive(summaries: list[Result]) -> Iterator[str]:
    """Yields Hits@10 among 50 negatives on unseen entities, a column per graph pair."""
    found = _by_data(summaries, "inductive")
    if not found:
        return
    rows = [[name, *map(_figure, values)] for name, values in published()["inductive"].items()]
    for bridged, label in ((False, "PathE (ours)"), (True, "PathE (ours), with bridges")):
        ours = {pair: s for pair, both in found.items() for s in both
                if (s["config"].get("bridge", "none") != "none") == bridged}  # fmt: skip
        lines = {
            f"**{label}**": lambda s: _shown(s, judged(s)["hits_at_10"]),
            "its full ranking, MRR": lambda s: _shown(s, s["inference"]["full"]["mrr"]),
            "Hits@10": lambda s: _shown(s, s["inference"]["full"]["hits_at_10"]),
            "parameters": lambda s: f"{s['parameters']:,}",
            "file": _link,
        }
        for name, cell in lines.items() if ours else ():
            rows.append([name, *(cell(ours[pair]) if pair in ours else "-" for pair in PAIRS)])
    about = "Hits@10 among 50 negatives per side, on entities that training never saw."
    yield from _table(f"\n## Inductive link prediction\n\n{about}", PAIRS, rows)


def _properties(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yields the properties of each graph, the figures of the paper's appendix in brackets."""
    rows = []
    for graph in found:
        counts, name = graph["counts"], graph["name"]
        sizes = (counts["entities_in_train"], counts["relations"], counts["triples"]["train"],
                 counts["seen"]["valid"], counts["seen"]["test"])  # fmt: skip
        shares = (graph["relations"]["top_two_share"], graph["contexts"][0]["distinct"])
        ours = f"{graph['degree']['mean']:.2f}", *(f"{100 * share:.1f} %" for share in shares)
        paper = published()["properties"].get(name, ("", "", ""))
        cells = [f"{a} ({b})" if b else a for a, b in zip(ours, paper, strict=True)]
        link = f"[{name}](../results/properties/{name}.json)"
        rows.append([link, *(f"{n:,}" for n in sizes), *cells, graph["verdict"]["grade"]])
    columns = (
        "entities in train", "relations", "train", "valid, seen", "test, seen", "mean degree",
        "two most frequent relations", "distinct contexts per entity", "verdict",
    )  # fmt: skip
    about = "`pathe analyze DATA --json`, a file per graph; the paper's figures in brackets."
    return _table(f"\n## Properties of the graphs\n\n{about}", columns, rows)


def _metrics(summary: Result, paper: Mapping[str, float] | None = None) -> list[str]:
    """Returns mean and spread of each metric, marked where the paper's figure is higher."""
    found, paper = judged(summary), paper or {}
    lower = {key for key in found if found[key]["mean"] < paper.get(key, 0) - 5e-4}
    return [_shown(summary, found.get(key)) + " ▼" * (key in lower) for key in HEADLINE]


def _shown(summary: Result, found: Mapping[str, float] | None) -> str:
    """Returns mean and spread, or the one figure there is."""
    if found is None:
        return "-"
    spread = f" ± {_figure(found['std'])}" if len(summary["seeds"]) > 1 else ""
    return _figure(found["mean"]) + spread


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".removeprefix("0")


def _link(summary: Result) -> str:
    return f"[json](../results/{summary['name']}.json)"
