"""The picture: written whole, in the format its name asks for, whatever the graph."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from support.graphs import kg_of

from pathe.core.errors import ConfigError, PatheError
from pathe.evaluation.metrics import METRICS
from pathe.graph.analysis import analyze
from pathe.reports.plots import plot_analysis, plot_run, plot_search, shorten

pytestmark = pytest.mark.pictures

TRAIN = "a r b; b r c; c s d; d s a; a $x_1 c; b 语言 a"


@pytest.mark.parametrize(
    ("name", "start"), [("g.png", b"\x89PNG"), ("g.PDF", b"%PDF"), ("g.svg", b"<?xml")]
)
def test_formats(tmp_path: Path, name: str, start: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_analysis(analyze(kg_of(TRAIN, test="a r d")), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("train", ["", "a r b", "a r a"])
def test_small_graphs(tmp_path: Path, train: str) -> None:
    plot_analysis(analyze(kg_of(train)), tmp_path / "g.png")
    assert (tmp_path / "g.png").stat().st_size > 10_000


@pytest.mark.parametrize("n", [1, 6, 40])
def test_no_formula_shows_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """Between 1 and 10 matplotlib labels other ticks too, as formulas."""
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    plot_analysis(analyze(kg_of("; ".join(f"a{i} r b{i}" for i in range(n)))), tmp_path / "g.svg")
    assert "mathdefault" not in (tmp_path / "g.svg").read_text()


def test_same_result_same_svg(tmp_path: Path) -> None:
    result = analyze(kg_of(TRAIN))
    for name in ("a.svg", "b.svg"):
        plot_analysis(result, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a name that ends in \.png"):
        plot_analysis(analyze(kg_of(TRAIN)), tmp_path / "g.doc")
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = analyze(kg_of(TRAIN))
    with pytest.raises(PatheError, match=r"can't be written \(no folder"):
        plot_analysis(result, tmp_path / "no such folder" / "g.png")
    (tmp_path / "d.png").mkdir()
    with pytest.raises(PatheError, match="this is a folder"):
        plot_analysis(result, tmp_path / "d.png")
    (tmp_path / "d.png").rmdir()
    (tmp_path / "g.png").write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathe.core.files.os.replace", fail)
    with pytest.raises(PatheError, match="No space left"):
        plot_analysis(result, tmp_path / "g.png")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


METRIC_VALUES = {metric.key: 0.4 for metric in METRICS} | {"mean_rank": 12.5}
RUN: dict[str, Any] = {
    "data": "toy", "config": {"task": "multi"}, "split": "test", "parameters": 1234,
    "validation": "mean of validation MRR of links among 99 negatives and of relations",
    "head": METRIC_VALUES, "tail": METRIC_VALUES,
    "per_relation": [{"relation": "/a/b", "mrr": 0.5}], **METRIC_VALUES,
}  # fmt: skip


def text_of(path: Path) -> str:
    return " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8")))


def test_a_run_names_its_validation_and_shows_every_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    lines = [{"epoch": i, "loss": 1 / (i + 1), "valid_score": i / 10} for i in range(5)]
    plot_run(lines, RUN, tmp_path / "run.svg")
    shown = text_of(tmp_path / "run.svg")
    assert RUN["validation"][1:] in shown  # its first letter is a capital
    for metric in METRICS:
        assert (metric.title in shown) == (metric.key != "mean_rank")
    old = [{"epoch": 0, "loss": 1.0, "valid_mrr": 0.5}]
    bare = {"data": "toy", "config": {"task": "link"}}  # neither validated nor evaluated
    for metrics, result in ((old, RUN), ([], bare)):
        plot_run(metrics, result, tmp_path / "run.svg")


def test_a_search_names_its_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    trials = [
        {"state": "pruned" if i == 2 else "complete", "valid_score": 0.3 + i / 50,
         "settings": {"dim": 8 * (1 + i % 2), "aggregator": ("mean", "lstm")[i // 3]}}
        for i in range(6)
    ]  # fmt: skip
    title = "validation MRR among 99 negatives"
    result = {"data": "toy", "space": "link", "validation": title, "trials": trials,
              "default_valid_score": 0.35, "best_valid_score": 0.4}  # fmt: skip
    plot_search(result, tmp_path / "search.svg")
    shown = text_of(tmp_path / "search.svg")
    assert f"toy, space link: best {title} 0.4000" in shown
    assert shown.count(title) == 4  # the headline and three panels


def test_without_matplotlib_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PatheError, match=r"Drawing needs matplotlib: pip install 'pathe\[plots\]'"):
        plot_run([], RUN, tmp_path / "run.png")


def test_long_names_keep_their_end() -> None:
    assert shorten("/film/film/genre") == "/film/film/genre"
    assert shorten("x" * 50 + "/genre", 8) == "…x/genre"
    assert len(shorten("abc/" * 40)) == 46
    assert shorten("two\nlines") == "two lines"


def test_pyplot_is_left_alone() -> None:
    code = "import sys, pathe.reports.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
