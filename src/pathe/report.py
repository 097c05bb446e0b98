"""docs/results.md from the results: ours beside the paper's and its baselines', cell by cell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pathe.errors import DataError
from pathe.experiments import judged
from pathe.files import replacing

BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
POSITIONS = "fb15k237-link"  # the model whose position vectors are drawn
COLUMNS = {"mrr": "MRR", "hits_at_1": "Hits@1", "hits_at_10": "Hits@10"}
# Figures of others: (parameters in millions, metrics), by the paper's tables; NBFNet's by its own.
BASELINES: dict[str, dict[str, dict[str, tuple[float | None, dict[str, float]]]]] = {
    "link": {
        "FB15k-237": {
            "RotatE (entity table)": (29.3, {"mrr": 0.336, "hits_at_10": 0.532}),
            "EARL (some entities)": (1.8, {"mrr": 0.310, "hits_at_10": 0.501}),
            "NodePiece + RotatE (anchors)": (3.2, {"mrr": 0.256, "hits_at_10": 0.420}),
            "NodePiece without anchors": (1.4, {"mrr": 0.204, "hits_at_10": 0.355}),
            "NBFNet (reads paths, all test triples)": (3.1, {"mrr": 0.415, "hits_at_10": 0.599}),
        },
        "WN18RR": {
            "RotatE (entity table)": (40.6, {"mrr": 0.508, "hits_at_10": 0.612}),
            "EARL (some entities)": (3.8, {"mrr": 0.440, "hits_at_10": 0.527}),
            "NodePiece + RotatE (anchors)": (4.4, {"mrr": 0.403, "hits_at_10": 0.515}),
            "NodePiece without anchors": (0.3, {"mrr": 0.011, "hits_at_10": 0.019}),
            "NBFNet (reads paths, all test triples)": (None, {"mrr": 0.551, "hits_at_10": 0.666}),
        },
        "CoDEx-L": {
            "RotatE (entity table)": (78.0, {"mrr": 0.258, "hits_at_10": 0.387}),
            "EARL (some entities)": (2.1, {"mrr": 0.238, "hits_at_10": 0.390}),
            "NodePiece + RotatE (anchors)": (3.6, {"mrr": 0.190, "hits_at_10": 0.313}),
            "NodePiece without anchors": (0.6, {"mrr": 0.063, "hits_at_10": 0.121}),
        },
        "YAGO3-10": {
            "RotatE (entity table)": (123.2, {"mrr": 0.495, "hits_at_10": 0.670}),
            "EARL (some entities)": (3.0, {"mrr": 0.302, "hits_at_10": 0.498}),
            "NodePiece + RotatE (anchors)": (4.1, {"mrr": 0.247, "hits_at_10": 0.488}),
            "NodePiece without anchors": (0.5, {"mrr": 0.025, "hits_at_10": 0.041}),
        },
    },
    "relation": {
        "FB15k-237": {
            "RotatE (entity table)": (29.0, {"mrr": 0.905, "hits_at_10": 0.979}),
            "NodePiece + RotatE (anchors)": (3.2, {"mrr": 0.874, "hits_at_10": 0.971}),
        },
        "WN18RR": {
            "RotatE (entity table)": (41.0, {"mrr": 0.774, "hits_at_10": 0.897}),
            "NodePiece + RotatE (anchors)": (4.4, {"mrr": 0.761, "hits_at_10": 0.985}),
        },
    },
}
INDUCTIVE = {
    "Neural LP": (0.529, 0.589, 0.529, 0.559, 0.744, 0.689, 0.462, 0.671),
    "DRUM": (0.529, 0.587, 0.529, 0.559, 0.744, 0.689, 0.462, 0.671),
    "RuleN": (0.498, 0.778, 0.877, 0.856, 0.809, 0.783, 0.534, 0.716),
    "GraIL": (0.642, 0.818, 0.828, 0.893, 0.825, 0.787, 0.584, 0.734),
    "NBFNet": (0.834, 0.949, 0.951, 0.960, 0.948, 0.905, 0.893, 0.890),
    "NodePiece + CompGCN": (0.873, 0.939, 0.944, 0.949, 0.830, 0.886, 0.785, 0.807),
    "PathE (paper)": (0.834, 0.872, 0.868, 0.850, 0.530, 0.551, 0.540, 0.537),
}
# What the paper's appendix says: mean degree, share of the two most frequent relations, contexts.
PROPERTIES = {
    "fb15k-237": ("37.5", "10.6 %", "92 %"),
    "wn18rr": ("4.28", "74 %", "8 %"),
    "codex-l": ("14.14", "41.6 %", "46.4 %"),
    "yago3-10": ("17.52", "64 %", "19.8 %"),
}
PAIRS = [f"{family} v{v}" for family in ("FB15k-237", "WN18RR") for v in (1, 2, 3, 4)]


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Every summary of an experiment, by name."""
    found = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(folder.glob("*.json"))]
    return [summary for summary in found if "metrics" in summary]


def write_report(results: Path, page: Path) -> None:
    """Puts the tables between their marks in the page; what stands around them stays.

    The figure of paths per triple goes beside the page, once there is something to draw.
    """
    before, after = check_page(page)
    properties = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((results / "properties").glob("*.json"))
    ]
    text = f"{before}{BEGIN}\n{tables(read_results(results), properties)}\n{END}{after}"
    with replacing(page) as aside:
        aside.write_text(text, encoding="utf-8")
    if len(found := paths_per_triple(read_results(results))) > 1:
        from pathe.plots import draw_paths_per_triple, plot_figure

        title = "FB15k-237, published configuration: paths per triple"
        metrics = {n_paths: summary["metrics"] for n_paths, summary in found.items()}
        draw = partial(draw_paths_per_triple, found=metrics)
        plot_figure(page.with_name("paths-per-triple.svg"), title, draw)


def draw_model_positions(folder: Path, picture: Path) -> None:
    """The paper's figure of position vectors: their first principal component, by distance."""
    from pathe.artifact import load_model
    from pathe.plots import draw_positions, plot_figure

    artifact = load_model(folder)
    hops = artifact.config.max_hops
    used_TD = artifact.model.encoder.positions.weight.detach()[: 2 * hops + 1]
    centred_TD = used_TD - used_TD.mean(0)
    first_D = centred_TD.svd().V[:, 0]
    component_T = centred_TD @ first_D
    component_T = component_T * component_T[-1].sign()  # a component has no sign of its own
    title = f"{folder.name}: position vectors, first principal component"
    plot_figure(picture, title, partial(draw_positions, component_T=component_T.tolist()))


def check_page(page: Path) -> tuple[str, str]:
    """What stands before and after the tables; a page without its marks is refused."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{page}: can't be read ({error.strerror})") from None
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise DataError(f"{page}: expected the lines {BEGIN} and {END} in it, once each.")
    before, _, rest = text.partition(BEGIN)
    return before, rest.partition(END)[2]


def paths_per_triple(summaries: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Results by the number of paths a triple, of the published configuration on FB15k-237."""
    base = "fb15k237-link-paper"
    names = (base, f"{base}-one-path", f"{base}-ppt4", f"{base}-ppt16")
    return {2 * s["config"]["n_paths"]: s for s in summaries if s["name"] in names}


def tables(summaries: list[dict[str, Any]], properties: list[dict[str, Any]] | None = None) -> str:
    """All tables in Markdown."""
    parts = [
        *_comparison("link", "Link prediction", summaries),
        *_comparison("relation", "Relation prediction", summaries),
        *_inductive(summaries),
        *_ablations(summaries),
        *_paths(summaries),
        *_recipes(summaries),
        *_missed(summaries),
        *_properties(properties or []),
    ]
    return "\n".join(parts)


def _comparison(table: str, title: str, summaries: list[dict[str, Any]]) -> Iterator[str]:
    """A table a data set: the paper's baselines, the paper, ours."""
    chosen = [s for s in summaries if s["table"] == table]
    if not chosen:
        return
    yield f"\n## {title}\n"
    for data in dict.fromkeys(s["title"].split(",")[0] for s in chosen):
        ours = [s for s in chosen if s["title"].split(",")[0] == data]
        first = ours[0]
        yield f"### {data}\n\n`{first['test_set']}` test set, {first['protocol']} ranking.\n"
        beside = ("all test triples",) if any(s.get("all_metrics") for s in ours) else ()
        columns = ("parameters", *COLUMNS.values(), *beside, "Effi", "training", "file")
        yield from _head(columns)
        for name, (size, metrics) in BASELINES.get(table, {}).get(data, {}).items():
            effi = _effi(metrics, size) if size else "-"
            cells = [*_cells(metrics), *("" for _ in beside), effi]
            yield _line(name, f"{size}M" if size else "-", *cells, "", "")
        if paper := next((s["paper"] for s in ours if s["paper"]), None):
            size = paper["parameters"]
            cells = [*_cells(paper), *("" for _ in beside), _effi(paper, size)]
            yield _line("PathE (paper)", f"{size}M", *cells, "", "")
        for summary in ours:
            yield _ours(summary, with_all=bool(beside))
        yield ""


def _ablations(summaries: list[dict[str, Any]]) -> Iterator[str]:
    """What each removal costs, beside what it cost in the paper; the whole one first."""
    chosen = [s for s in summaries if s["table"] == "ablation"]
    named = {s["name"]: s for s in summaries}
    if not chosen:
        return
    yield "\n## Ablations of the published configuration\n"
    yield from _head(("seeds", *COLUMNS.values(), "MRR lost", "paper: MRR", "lost", "file"))
    for data in dict.fromkeys(s["title"].split(",")[0] for s in chosen):
        rows = [s for s in chosen if s["title"].split(",")[0] == data]
        whole = named.get(rows[0]["name"].partition("-paper-")[0] + "-paper")
        for row in [whole, *rows] if whole else rows:
            cells = [str(len(row["seeds"])), *(_marked(row, key, plain=True) for key in COLUMNS)]
            cells += [_lost(whole, row, lambda s: s["metrics"]["mrr"]["mean"])]
            cells += [_figure(row["paper"]["mrr"]) if "mrr" in row["paper"] else "-"]
            cells += [_lost(whole, row, lambda s: s["paper"].get("mrr"))]
            yield _line(f"**{row['title']}**", *cells, _link(row))
    yield ""


def _lost(
    whole: dict[str, Any] | None, row: dict[str, Any], of: Callable[[dict[str, Any]], float | None]
) -> str:
    if whole is None or whole is row:
        return ""
    before, after = of(whole), of(row)
    return f"{before - after:+.3f}" if before is not None and after is not None else "-"


def _paths(summaries: list[dict[str, Any]]) -> Iterator[str]:
    """The published configuration by its paths a triple."""
    found = paths_per_triple(summaries)
    if len(found) < 2:
        return
    yield "\n## Paths per triple\n"
    yield "The published configuration on FB15k-237, two paths a triple being one an entity.\n"
    yield from _head(("seeds", *COLUMNS.values(), "file"))
    for n_paths, summary in sorted(found.items()):
        cells = [_marked(summary, key, plain=True) for key in COLUMNS]
        yield _line(str(n_paths), str(len(summary["seeds"])), *cells, _link(summary))
    yield ""


def _recipes(summaries: list[dict[str, Any]]) -> Iterator[str]:
    """A table each: a recipe, and what becomes of it with one thing changed."""
    for summary in (s for s in summaries if s["table"] == "recipes"):
        whole = _ranked(summary)["mrr"]["mean"]
        yield f"\n## {summary['title']}\n"
        if summary["note"]:
            yield summary["note"] + "\n"
        valid = "valid MRR (99 negatives)"
        columns = ("seeds", valid, "MRR", "change", "Hits@10", "parameters", "training")
        yield from _head(columns)
        for title, row in [("the recipe", summary), *summary.get("variants", {}).items()]:
            found = _ranked(row)
            change = "" if row is summary else f"{found['mrr']['mean'] - whole:+.3f}"
            cells = [_shown(row, found["mrr"]), change, _shown(row, found["hits_at_10"])]
            size, seconds = f"{row['parameters']:,}", f"{row['train_seconds']:.0f} s"
            both = row is not summary and row["settings"].get("task") == "multi"  # of both tasks
            valid = "-" if both else _figure(row["valid_mrr"])
            yield _line(title, str(len(row["seeds"])), valid, *cells, size, seconds)
        yield f"\n{_link(summary)}\n"


def _ranked(row: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The full ranking: of unseen entities where there are some, or of the test set."""
    found: dict[str, dict[str, float]] = row["inference"].get("full") or row["metrics"]
    return found


def _missed(summaries: list[dict[str, Any]]) -> Iterator[str]:
    """Bars that a row was to reach and didn't."""
    missed = [
        f"- {s['title']}, {s['table']} prediction: {COLUMNS[key]} "
        f"{_below(judged(s)[key]['mean'], bar)} instead of at least {_figure(bar)} ({_link(s)})"
        for s in summaries
        for key, bar in s["bars"].items()
        if judged(s)[key]["mean"] < bar
    ]
    if missed:
        yield "\n## Bars that were missed\n"
        yield "\n".join(missed) + "\n"


def _inductive(summaries: list[dict[str, Any]]) -> Iterator[str]:
    """Hits@10 among 50 negatives on unseen entities, a column a pair; then the full ranking."""
    chosen = [s for s in summaries if s["table"] == "inductive"]
    if not chosen:
        return
    yield "\n## Inductive link prediction\n"
    yield "Hits@10 among 50 negatives a side, entities that training never saw.\n"
    yield from _head(tuple(PAIRS))
    for name, values in INDUCTIVE.items():
        yield _line(name, *(_figure(value) for value in values))
    for bridged, label in ((False, "PathE (ours)"), (True, "PathE (ours), with bridges")):
        ours = {s["title"].split(",")[0]: s for s in chosen if _has_bridge(s) == bridged}
        if ours:
            yield from _inductive_rows(label, ours)
    yield ""


def _has_bridge(summary: dict[str, Any]) -> bool:
    return str(summary["config"].get("bridge", "none")) != "none"


def _inductive_rows(label: str, ours: dict[str, dict[str, Any]]) -> Iterator[str]:
    def cells(of: Callable[[dict[str, Any]], dict[str, float]]) -> list[str]:
        return [_shown(ours[pair], of(ours[pair])) if pair in ours else "-" for pair in PAIRS]

    yield _line(f"**{label}**", *cells(lambda s: judged(s)["hits_at_10"]))
    yield _line("its full ranking, MRR", *cells(lambda s: s["inference"]["full"]["mrr"]))
    yield _line("Hits@10", *cells(lambda s: s["inference"]["full"]["hits_at_10"]))
    sizes = [f"{ours[pair]['parameters']:,}" if pair in ours else "-" for pair in PAIRS]
    yield _line("parameters", *sizes)
    yield _line("file", *(_link(ours[pair]) if pair in ours else "-" for pair in PAIRS))


def _properties(found: list[dict[str, Any]]) -> Iterator[str]:
    """The appendix's properties of each graph, the paper's figures in brackets."""
    if not found:
        return
    yield "\n## Properties of the graphs\n"
    yield "`pathe analyze DATA --json`, a file a graph; the paper's figures in brackets.\n"
    columns = (
        "entities in train", "relations", "train", "valid, seen", "test, seen", "mean degree",
        "two most frequent relations", "distinct contexts an entity", "verdict",
    )  # fmt: skip
    yield from _head(columns)
    for graph in found:
        counts = graph["counts"]
        paper = PROPERTIES.get(graph["name"], ("", "", ""))
        ours = (
            f"{graph['degree']['mean']:.2f}",
            f"{100 * graph['relations']['top_two_share']:.1f} %",
            f"{100 * graph['contexts'][0]['distinct']:.1f} %",
        )
        cells = [f"{a} ({b})" if b else a for a, b in zip(ours, paper, strict=True)]
        sizes = (counts["entities_in_train"], counts["relations"], counts["triples"]["train"],
                 counts["seen"]["valid"], counts["seen"]["test"])  # fmt: skip
        name = f"[{graph['name']}](../results/properties/{graph['name']}.json)"
        yield _line(name, *(f"{n:,}" for n in sizes), *cells, graph["verdict"]["grade"])
    yield ""


def _ours(summary: dict[str, Any], with_all: bool) -> str:
    found, counted = judged(summary), summary["parameters"]
    published = summary["parameters_as_published"]
    size = f"{counted:,}" + (f" ({published / 1e6:.2f}M)" if published else "")
    cells = [_marked(summary, key) for key in COLUMNS]
    if with_all:
        every = summary.get("all_metrics") or {}
        shown = [_figure(every[key]["mean"]) for key in ("mrr", "hits_at_10") if key in every]
        cells.append(" / ".join(shown) or "-")
    effi = _effi({"mrr": found["mrr"]["mean"]}, (published or counted) / 1e6)
    if summary["paper"].get("parameters") and "mrr" in summary["paper"]:
        paper = summary["paper"]["mrr"] / summary["paper"]["parameters"]
        effi += " ▼" if float(effi) < round(paper, 2) else ""
    seconds = f"{summary['train_seconds']:.0f} s"
    return _line(f"**{summary['title']}**", size, *cells, effi, seconds, _link(summary))


def _marked(summary: dict[str, Any], key: str, plain: bool = False) -> str:
    """Mean and spread; a mark where the paper's figure is higher, unless plain."""
    found, paper = judged(summary), summary["paper"].get(key)
    if key not in found:
        return "-"
    shown = _shown(summary, found[key])
    return shown + (" ▼" if not plain and paper and found[key]["mean"] < paper - 5e-4 else "")


def _shown(summary: dict[str, Any], found: dict[str, float]) -> str:
    """Mean and spread, or the one figure there is."""
    spread = f" ± {_figure(found['std'])}" if len(summary["seeds"]) > 1 else ""
    return _figure(found["mean"]) + spread


def _below(value: float, bar: float) -> str:
    """A figure below a bar, with as many digits as show it."""
    digits = next(n for n in range(3, 17) if n == 16 or round(value, n) < bar)
    return f"{value:.{digits}f}".removeprefix("0")


def _figure(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _cells(metrics: dict[str, float]) -> list[str]:
    return [_figure(metrics[key]) if key in metrics else "-" for key in COLUMNS]


def _effi(metrics: dict[str, float], millions: float) -> str:
    return f"{metrics['mrr'] / millions:.2f}"


def _link(summary: dict[str, Any]) -> str:
    return f"[json](../results/{summary['name']}.json)"


def _head(columns: tuple[str, ...]) -> Iterator[str]:
    yield _line("", *columns)
    yield "|" + "---|" * (len(columns) + 1)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
