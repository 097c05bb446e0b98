"""The picture: written whole, in the format its name asks for, whatever the graph."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib
import pytest
from test_analysis import kg_of

from pathe.analysis import analyze
from pathe.errors import ConfigError, PatheError
from pathe.plots import plot_analysis, shorten

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

    monkeypatch.setattr("pathe.files.os.replace", fail)
    with pytest.raises(PatheError, match="No space left"):
        plot_analysis(result, tmp_path / "g.png")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


def test_long_names_keep_their_end() -> None:
    assert shorten("/film/film/genre") == "/film/film/genre"
    assert shorten("x" * 50 + "/genre", 8) == "…x/genre"
    assert len(shorten("abc/" * 40)) == 46
    assert shorten("two\nlines") == "two lines"


def test_pyplot_is_left_alone() -> None:
    code = "import sys, pathe.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
