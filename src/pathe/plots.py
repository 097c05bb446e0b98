"""Pictures of graphs and runs; matplotlib is imported when drawing, here and in plot_reasons."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathe.errors import ConfigError
from pathe.files import check_place, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FORMATS = (".png", ".svg", ".pdf")
BLUE, ORANGE, INK, PALE = "#2f6db3", "#e08a2e", "#333333", "#d9d9d9"
NAME_WIDTH = 46  # characters of a relation's name


def plot_analysis(result: dict[str, Any], path: Path) -> None:
    """Draw the result of `analyze` in four panels; the file appears whole or not at all."""
    _draw(path, _headline(result), [partial(d, result=result) for d in ANALYSIS])


def plot_run(metrics: list[dict[str, Any]], result: dict[str, Any], path: Path) -> None:
    """Draw a training run: loss, validation MRR, test hits, results by relation."""
    title = f"{result['data']}, {result['config']['task']}"
    if "mrr" in result:
        title += f": {result['split']} MRR {result['mrr']:.3f}, {result['parameters']:,} parameters"
    _draw(
        path,
        title,
        [
            partial(_curve, metrics=metrics, key="loss", title="Training loss"),
            partial(_curve, metrics=metrics, key="valid_mrr", title="Validation MRR"),
            partial(_hits, result=result),
            partial(_by_relation, result=result),
        ],
    )


def plot_search(result: dict[str, Any], path: Path) -> None:
    """Draw a search: the trials in order, and what the choices of the three likeliest settings did.

    A setting matters as far as its choices' means differ.
    """
    complete = [t for t in result["trials"] if t["state"] == "complete"]
    ranked = sorted(complete[0]["settings"], key=lambda key: -_difference(complete, key))
    panels: list[Callable[[Axes], Any]] = [
        partial(_trials, trials=result["trials"], default=result["default_valid_mrr"])
    ]
    panels += [partial(_choices, trials=complete, key=key) for key in ranked[:3]]
    panels += [lambda axes: axes.set_axis_off()] * (4 - len(panels))
    title = f"{result['data']}, space {result['space']}: best validation MRR"
    _draw(Path(path), f"{title} {result['best_valid_mrr']:.4f}", panels)


def _by_choice(trials: list[dict[str, Any]], key: str) -> dict[str, list[float]]:
    found: dict[Any, list[float]] = {}
    for trial in trials:
        found.setdefault(trial["settings"][key], []).append(trial["valid_mrr"])
    return {str(choice): found[choice] for choice in sorted(found, key=_in_order)}


def _in_order(choice: Any) -> tuple[bool, Any]:
    """Numbers by size, words after them."""
    is_number = isinstance(choice, (int, float)) and not isinstance(choice, bool)
    return not is_number, choice if is_number else str(choice)


def _difference(trials: list[dict[str, Any]], key: str) -> float:
    means = [sum(v) / len(v) for v in _by_choice(trials, key).values()]
    return max(means) - min(means)


def _trials(axes: Axes, trials: list[dict[str, Any]], default: float) -> None:
    best, seen = [], 0.0
    for trial in trials:
        seen = max(seen, trial["valid_mrr"] if trial["state"] == "complete" else 0.0)
        best.append(seen)
    done, pruned = (
        [(i, t["valid_mrr"]) for i, t in enumerate(trials, 1)
         if t["valid_mrr"] is not None and (t["state"] == "complete") == complete]
        for complete in (True, False)
    )  # fmt: skip
    for points, colour in ((pruned, PALE), (done, BLUE)):
        axes.scatter([i for i, _ in points], [v for _, v in points], s=18, color=colour, zorder=3)
    axes.step(range(1, len(best) + 1), best, where="post", color=ORANGE)
    axes.axhline(default, color=INK, linestyle="--", linewidth=1)
    axes.annotate("defaults", (len(trials), default), ha="right", va="bottom", color=INK)
    _title(axes, f"Trials ({len(trials) - len(done)} pruned or refused)", "trial", "validation MRR")


def _choices(axes: Axes, trials: list[dict[str, Any]], key: str) -> None:
    groups = _by_choice(trials, key)
    for i, values in enumerate(groups.values()):
        axes.scatter([i] * len(values), values, s=18, color=BLUE, alpha=0.6)
        axes.hlines(sum(values) / len(values), i - 0.25, i + 0.25, color=ORANGE)
    axes.set_xticks(range(len(groups)), list(groups))
    _title(axes, key, "", "validation MRR")


def plot_figure(path: Path, title: str, draw: Callable[[Axes], Any]) -> None:
    """Draw one panel to a file."""
    path = Path(path)
    check_picture(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    with rc_context({"text.parse_math": False, "svg.hashsalt": "pathe"}):
        axes = figure.subplots()
        _style(axes)
        draw(axes)
        figure.suptitle(title, color=INK, fontsize=11)
        save_figure(figure, path)


def draw_paths_per_triple(axes: Axes, found: dict[int, dict[str, dict[str, float]]]) -> None:
    """MRR and hits against the number of paths; {paths: {metric: {mean, std}}}."""
    counts = sorted(found)
    for key, label in (("mrr", "MRR"), ("hits_at_1", "Hits@1"), ("hits_at_10", "Hits@10")):
        means = [found[n][key]["mean"] for n in counts]
        spreads = [found[n][key]["std"] for n in counts]
        axes.errorbar(counts, means, spreads, marker="o", capsize=3, label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(n) for n in counts])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    _title(axes, "", "paths a triple (half of them for either end)")


def draw_positions(axes: Axes, component_T: Sequence[float]) -> None:
    """The first principal component of the position vectors, by distance from the focus."""
    places = range(len(component_T))
    for first, colour, label in ((0, BLUE, "entities"), (1, ORANGE, "relations")):
        axes.plot(places[first::2], component_T[first::2], color=colour, marker="o", label=label)
    axes.legend(frameon=False, fontsize=9)
    _title(axes, "", "tokens from the entity that a path describes", "first principal component")


def check_picture(path: Path) -> None:
    """Refuse a picture that couldn't be written, before the work that it is for."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
    check_place(path)


def _draw(path: Path, title: str, panels: Sequence[Callable[[Axes], Any]]) -> None:
    """Four panels under a title, written whole or not at all."""
    path = Path(path)
    check_picture(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(12.5, 8.4), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15))
    # Names are data: a dollar sign in one isn't the start of a formula.
    with rc_context({"text.parse_math": False, "svg.hashsalt": "pathe"}):
        rows = figure.subfigures(2, 1, squeeze=False).flat  # each row finds its own widths
        places = [axes for row in rows for axes in row.subplots(1, 2)]
        for draw, axes in zip(panels, places, strict=True):
            _style(axes)
            draw(axes)
        figure.suptitle(title, color=INK, fontsize=13)
        save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> None:
    """The same bytes for the same picture, whole or not at all."""
    suffix = path.suffix.lower()
    metadata: Any = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
    with replacing(path) as aside, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name the font can't show: a box
        figure.savefig(aside, format=suffix[1:], dpi=150, metadata=metadata)


def shorten(name: str, width: int = NAME_WIDTH) -> str:
    """The end of a long name, which tells relations apart; an ellipsis for what went."""
    name = " ".join(name.split())
    return name if len(name) <= width else "…" + name[1 - width :]


def _headline(result: dict[str, Any]) -> str:
    counts = result["counts"]
    return (
        f"{shorten(result['name'], 60)}: {counts['entities_in_train']:,} entities, "
        f"{counts['relations_in_train']:,} relations, {counts['triples']['train']:,} training "
        f"triples ({result['verdict']['grade']})"
    )


def _style(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(PALE)
    axes.tick_params(colors=INK, length=3, labelsize=9)
    axes.set_axisbelow(True)


def _title(axes: Axes, title: str, x: str = "", y: str = "") -> None:
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)


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
    # matplotlib's own labels between powers of ten are formulas, which aren't parsed here.
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
    worth = f" (worth {relations['effective']:.1f} equal ones)" if top else ""
    _title(axes, f"Most frequent relations{worth}", "% of training triples")


def _contexts(axes: Axes, result: dict[str, Any]) -> None:
    rounds = result["contexts"]
    for key, colour, label in (
        ("distinct", PALE, "distinct codes per entity"),
        ("alone", BLUE, "entities alone with their code"),
    ):
        shift = -0.2 if key == "distinct" else 0.2
        values = [100 * (r[key] or 0) for r in rounds]
        places = [r["round"] + shift for r in rounds]
        bars = axes.bar(places, values, width=0.38, color=colour, label=label)
        axes.bar_label(bars, [f"{v:.0f}" for v in values], padding=2, fontsize=9, color=INK)
    names = ["context", *(f"+ {r['round']} round{'s' * (r['round'] > 1)}" for r in rounds[1:])]
    axes.set_xticks(range(len(rounds)), names)
    axes.set_ylim(0, 118)
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, fontsize=9, loc="upper left", ncols=2, columnspacing=1.2)
    _title(axes, "Telling entities apart, with rounds of neighbours", y="%")


def _hops(axes: Axes, result: dict[str, Any]) -> None:
    walks = result["walks"]
    for key, colour, shift, label in (
        ("out", BLUE, -0.2, "outgoing"),
        ("in", ORANGE, 0.2, "incoming"),
    ):
        mean, hops = walks[key]["mean_hops"], walks[key]["hops"]
        places = [n + shift for n in range(len(hops))]
        label = label if mean is None else f"{label}, mean {mean:.1f}"
        axes.bar(places, [100 * (s or 0) for s in hops], width=0.38, color=colour, label=label)
    axes.set_xticks(range(len(walks["out"]["hops"])))
    axes.margins(y=0.2)
    axes.legend(frameon=False, fontsize=9, loc="upper center")
    _title(axes, "Length of walks of at most 10 hops", "hops until the end", "% of walks")


def _curve(axes: Axes, metrics: list[dict[str, Any]], key: str, title: str) -> None:
    points = [(m["epoch"] + 1, m[key]) for m in metrics if key in m]
    if points:
        axes.plot(*zip(*points, strict=True), color=BLUE, marker="o" if len(points) < 40 else "")
    axes.set(title=title, xlabel="epoch")


def _hits(axes: Axes, result: dict[str, Any]) -> None:
    sides = {"both sides": result, **{f"{s}s": result[s] for s in ("head", "tail") if s in result}}
    names = ["mrr", *(f"hits_at_{k}" for k in (1, 3, 5, 10))]
    for i, (label, found) in enumerate(sides.items()):
        if "mrr" in found:
            places = [x + 0.27 * (i - (len(sides) - 1) / 2) for x in range(len(names))]
            colour = (BLUE, ORANGE, PALE)[i]
            axes.bar(places, [found[n] for n in names], width=0.25, color=colour, label=label)
    axes.set_xticks(range(len(names)), ["MRR", "Hits@1", "Hits@3", "Hits@5", "Hits@10"])
    axes.set(title=f"On the {result.get('split', 'test')} set", ylim=(0, 1))
    if len(sides) > 1 and "mrr" in result:
        axes.legend(frameon=False)


def _by_relation(axes: Axes, result: dict[str, Any]) -> None:
    rows = result.get("per_relation", [])[:12][::-1]
    axes.barh([shorten(r["relation"]) for r in rows], [r["mrr"] for r in rows], color=BLUE)
    axes.set(title="MRR of the most frequent relations", xlim=(0, 1))
    axes.tick_params(axis="y", labelsize=8)


ANALYSIS = (_degrees, _relations, _contexts, _hops)
