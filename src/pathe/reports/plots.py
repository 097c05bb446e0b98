"""Plots of graphs, runs and searches. matplotlib is imported when something is drawn."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import TYPE_CHECKING, Any

from pathe.core.errors import ConfigError
from pathe.core.extras import require
from pathe.core.files import check_place, replacing
from pathe.evaluation.metrics import HEADLINE, METRICS, TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Panel = Callable[[Axes], Any]

FORMATS = (".png", ".svg", ".pdf")
BLUE, ORANGE, INK, PALE = "#2f6db3", "#e08a2e", "#333333", "#d9d9d9"
NAME_WIDTH = 46  # longest relation name, in characters
SHARES = [metric for metric in METRICS if metric.key != "mean_rank"]  # from 0 to 1


def plot_analysis(result: dict[str, Any], path: Path) -> None:
    """Draws the result of `analyze` in four panels."""
    counts = result["counts"]
    title = (
        f"{shorten(result['name'], 60)}: {counts['entities_in_train']:,} entities, "
        f"{counts['relations_in_train']:,} relations, {counts['triples']['train']:,} training "
        f"triples (vectors alone: {result['verdict']['grade']})"
    )
    panels = (_degrees, _relations, _contexts, _hops)
    plot_figure(path, title, [partial(draw, result=result) for draw in panels])


def plot_run(metrics: list[dict[str, Any]], result: dict[str, Any], path: Path) -> None:
    """Draws a training run: loss, validation score, test metrics, results by relation."""
    title = f"{result['data']}, {result['config']['task']}"
    if "mrr" in result:
        title += f": {result['split']} MRR {result['mrr']:.3f}, {result['parameters']:,} parameters"
    losses = [(m["epoch"] + 1, m["loss"]) for m in metrics if "loss" in m]
    keys = ("valid_score", "valid_mrr")  # the second in runs of earlier versions
    scores = [(m["epoch"] + 1, m[key]) for m in metrics for key in keys if key in m]
    panels: list[Panel] = [
        partial(_curve, points=losses, title="training loss"),
        partial(_curve, points=scores, title=result.get("validation", "validation MRR")),
        partial(_test_metrics, result=result),
        partial(_by_relation, result=result),
    ]
    plot_figure(path, title, panels)


def plot_search(result: dict[str, Any], path: Path) -> None:
    """Draws a search: the trials in order, and the scores by choice of three settings.

    The three are those whose choices differ most in their mean score.
    """
    complete = [t for t in result["trials"] if t["state"] == "complete"]
    by_setting: dict[str, dict[Any, list[float]]] = {key: {} for key in complete[0]["settings"]}
    for trial in complete:
        for key, choice in trial["settings"].items():
            by_setting[key].setdefault(choice, []).append(trial["valid_score"])

    def difference(key: str) -> float:
        means = [fmean(scores) for scores in by_setting[key].values()]
        return max(means) - min(means)

    y = result.get("validation", "validation MRR")
    panels: list[Panel] = [partial(_trials, result=result, y=y)]
    for key in sorted(by_setting, key=difference, reverse=True)[:3]:
        panels.append(partial(_choices, scores=by_setting[key], key=key, y=y))
    panels += [lambda axes: axes.set_axis_off()] * (4 - len(panels))
    title = f"{result['data']}, space {result['space']}: best {y} {result['best_valid_score']:.4f}"
    plot_figure(path, title, panels)


def _trials(axes: Axes, result: dict[str, Any], y: str) -> None:
    trials, default = result["trials"], result["default_valid_score"]
    scores = [trial["valid_score"] for trial in trials]
    complete = [trial["state"] == "complete" for trial in trials]
    for state, colour in ((False, PALE), (True, BLUE)):
        at = [i for i, score in enumerate(scores) if complete[i] is state and score is not None]
        axes.scatter([i + 1 for i in at], [scores[i] for i in at], s=18, color=colour, zorder=3)
    best = accumulate((scores[i] if done else 0.0 for i, done in enumerate(complete)), max)
    axes.step(range(1, len(trials) + 1), list(best), where="post", color=ORANGE)
    axes.axhline(default, color=INK, linestyle="--", linewidth=1)
    axes.annotate("defaults", (len(trials), default), ha="right", va="bottom", color=INK)
    _title(axes, f"Trials ({complete.count(False)} pruned or invalid)", "trial", y)


def _choices(axes: Axes, scores: dict[Any, list[float]], key: str, y: str) -> None:
    """Draws the scores of each choice: numbers by size, then words."""
    ordered = sorted(scores, key=lambda c: (0, c) if isinstance(c, (int, float)) else (1, str(c)))
    for i, choice in enumerate(ordered):
        values = scores[choice]
        axes.scatter([i] * len(values), values, s=18, color=BLUE, alpha=0.6)
        axes.hlines(fmean(values), i - 0.25, i + 0.25, color=ORANGE)
    axes.set_xticks(range(len(ordered)), [str(choice) for choice in ordered])
    _title(axes, key, "", y)


def draw_paths_per_triple(axes: Axes, found: dict[int, dict[str, dict[str, float]]]) -> None:
    """Draws metrics over the number of paths, from {paths: {metric: {mean, std}}}."""
    counts = sorted(found)
    for key in HEADLINE:
        means, spreads = ([found[n][key][of] for n in counts] for of in ("mean", "std"))
        axes.errorbar(counts, means, spreads, marker="o", capsize=3, label=TITLES[key])
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(n) for n in counts])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    _title(axes, "", "paths per triple (half of them for each entity)")


def draw_positions(axes: Axes, component_T: Sequence[float]) -> None:
    """Draws the first principal component of the position vectors, by distance."""
    places = range(len(component_T))
    for first, colour, label in ((0, BLUE, "entities"), (1, ORANGE, "relations")):
        axes.plot(places[first::2], component_T[first::2], color=colour, marker="o", label=label)
    axes.legend(frameon=False, fontsize=9)
    distance = "distance from the entity that the path describes, in tokens"
    _title(axes, "", distance, "first principal component")


def check_picture(path: Path) -> None:
    """Checks that a picture can be drawn and written, before the work that it is for."""
    require("matplotlib", "plots", "Drawing")
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
    check_place(path)


def data_digest(data: Any) -> str:
    """Returns a digest of plain data, with six digits of its numbers."""

    def plain(value: Any) -> Any:
        match value:
            case dict():
                return [[plain(key), plain(each)] for key, each in value.items()]
            case list() | tuple():
                return [plain(each) for each in value]
            case float():
                return f"{value:.6g}"
            case _ if is_dataclass(value) and not isinstance(value, type):
                return plain(asdict(value))
        return value

    return f"sha256:{hashlib.sha256(json.dumps(plain(data)).encode()).hexdigest()}"


def plot_figure(
    path: Path,
    title: str,
    panels: Sequence[Panel],
    size: tuple[float, float] = (12.5, 8.4),
    fonts: Sequence[str] = ("sans-serif",),
    data: Any = None,
) -> None:
    """Writes one panel or four: the same bytes for the same picture; no partial file on failure.

    An SVG names the digest of `data`, so that a test can tell whether it shows other data.
    """
    path = Path(path)
    check_picture(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    four, suffix = len(panels) == 4, path.suffix.lower()
    figure = Figure(figsize=size)
    figure.set_layout_engine("constrained", **({"w_pad": 0.15, "h_pad": 0.15} if four else {}))
    metadata: Any = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
    if data is not None and suffix == ".svg":
        metadata["Identifier"] = data_digest(data)
    # a dollar sign in a name is not the start of a formula
    with rc_context(
        {
            "text.parse_math": False,
            "svg.hashsalt": "pathe",
            "svg.fonttype": "none",
            "font.family": list(fonts),
        }
    ):
        # widths are fitted per row
        rows = figure.subfigures(2, 1, squeeze=False).flat if four else [figure]
        places = [axes for row in rows for axes in row.subplots(1, 1 + four, squeeze=False).flat]
        for draw, axes in zip(panels, places, strict=True):
            axes.spines[["top", "right"]].set_visible(False)
            axes.spines[["left", "bottom"]].set_color(PALE)
            axes.tick_params(colors=INK, length=3, labelsize=9)
            axes.set_axisbelow(True)
            draw(axes)
        figure.suptitle(title, color=INK, fontsize=13 if four else 11)
        with replacing(path) as aside, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # what the font lacks becomes a box
            figure.savefig(aside, format=suffix[1:], dpi=150, metadata=metadata)


def shorten(name: str, width: int = NAME_WIDTH) -> str:
    """Returns a name of at most `width` characters: the end tells relations apart, so it stays."""
    name = " ".join(name.split())
    return name if len(name) <= width else "…" + name[1 - width :]


def _title(axes: Axes, title: str, x: str = "", y: str = "") -> None:
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(fill(y, 40), fontsize=9, color=INK)


def _degrees(axes: Axes, result: dict[str, Any]) -> None:
    degree = result["degree"]
    bins = degree["histogram"]
    axes.bar(
        [b["from"] for b in bins], [b["entities"] for b in bins],
        width=[(b["to"] + 1 - b["from"]) * 0.94 for b in bins], align="edge", color=BLUE,
    )  # fmt: skip
    _title(axes, "Degree of entities (in + out)", "degree, bins doubling in width", "entities")
    if not bins:
        return
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(0.7, 3 * max(b["entities"] for b in bins))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}" if y >= 1 else "")
    # matplotlib labels minor ticks with formulas, which aren't parsed here
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(lambda *_: "")
    axes.axvline(degree["mean"], color=ORANGE, linewidth=1.5, linestyle="--")
    axes.annotate(
        f"mean {degree['mean']:.3g}", (degree["mean"], 1), xycoords=("data", "axes fraction"),
        xytext=(5, -3), textcoords="offset points", color=ORANGE, fontsize=9, va="top",
    )  # fmt: skip


def _relations(axes: Axes, result: dict[str, Any]) -> None:
    relations = result["relations"]
    top = relations["top"][::-1]
    bars = axes.barh(range(len(top)), [100 * r["share"] for r in top], color=BLUE, height=0.72)
    axes.bar_label(bars, [f"{100 * r['share']:.1f}" for r in top], padding=3, fontsize=9, color=INK)
    axes.set_yticks(range(len(top)), [shorten(r["relation"]) for r in top], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.12)
    worth = f" (as diverse as {relations['effective']:.1f} equal ones)" if top else ""
    _title(axes, f"Most frequent relations{worth}", "% of training triples")


def _bars(
    axes: Axes, groups: Mapping[str, Sequence[float]], colours: Sequence[str], apart: float = 0.4
) -> None:
    """Draws the values of each group at 0, 1, 2, ..., the groups side by side."""
    for i, (label, values) in enumerate(groups.items()):
        shift = apart * (i - (len(groups) - 1) / 2)
        places = [x + shift for x in range(len(values))]
        axes.bar(places, values, width=apart - 0.02, color=colours[i], label=label)


def _contexts(axes: Axes, result: dict[str, Any]) -> None:
    rounds = result["contexts"]
    labels = {"distinct": "distinct contexts per entity", "alone": "entities with a unique context"}
    groups = {label: [100 * (r[key] or 0) for r in rounds] for key, label in labels.items()}
    _bars(axes, groups, (PALE, BLUE))
    bars: Any
    for bars in axes.containers:
        axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=9, color=INK)
    names = ["none", *(f"{r['round']} hop{'s' * (r['round'] > 1)}" for r in rounds[1:])]
    axes.set_xticks(range(len(rounds)), names)
    axes.set_ylim(0, 118)
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, fontsize=9, loc="upper left", ncols=2, columnspacing=1.2)
    _title(axes, "How far contexts tell entities apart", "neighbours included", "%")


def _hops(axes: Axes, result: dict[str, Any]) -> None:
    groups = {}
    for key, label in (("out", "outgoing"), ("in", "incoming")):
        walks = result["walks"][key]
        mean = "" if walks["mean_hops"] is None else f", mean {walks['mean_hops']:.1f}"
        groups[label + mean] = [100 * (share or 0) for share in walks["hops"]]
    _bars(axes, groups, (BLUE, ORANGE))
    axes.set_xticks(range(len(result["walks"]["out"]["hops"])))
    axes.margins(y=0.2)
    axes.legend(frameon=False, fontsize=9, loc="upper center")
    _title(axes, "Length of walks of at most 10 hops", "hops", "% of walks")


def _curve(axes: Axes, points: list[tuple[int, float]], title: str) -> None:
    if points:
        axes.plot(*zip(*points, strict=True), color=BLUE, marker="o" if len(points) < 40 else "")
    _title(axes, title[:1].upper() + title[1:], "epoch")


def _test_metrics(axes: Axes, result: dict[str, Any]) -> None:
    found = {"both sides": result, "heads": result.get("head"), "tails": result.get("tail")}
    groups = {k: [v[m.key] for m in SHARES] for k, v in found.items() if v and "mrr" in v}
    _bars(axes, groups, (BLUE, ORANGE, PALE), apart=0.27)
    axes.set_xticks(range(len(SHARES)), [metric.title for metric in SHARES])
    axes.set_ylim(0, 1)
    _title(axes, f"Metrics on the {result.get('split', 'test')} set")
    if len(groups) > 1:
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)


def _by_relation(axes: Axes, result: dict[str, Any]) -> None:
    rows = result.get("per_relation", [])[:12][::-1]
    axes.barh([shorten(r["relation"]) for r in rows], [r["mrr"] for r in rows], color=BLUE)
    axes.set_xlim(0, 1)
    axes.tick_params(axis="y", labelsize=8)
    _title(axes, "MRR of the most frequent relations")
