from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
ROOT = Path(__file__).resolve().parents[1]
has_data = pytest.mark.skipif(not SHARED.is_dir(), reason="no benchmark data here")


def pathe(*args: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from pathe.cli import main; main()", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def refused(*args: str | Path, cwd: Path | None = None) -> str:
    """The error of a command that must end with code 2, one error, no traceback, no output."""
    found = pathe(*args, cwd=cwd)
    assert found.returncode == 2, found.stderr
    assert found.stdout == ""
    assert "Traceback" not in found.stderr
    assert found.stderr.count("error:") == 1
    return re.sub(r"\s+", " ", found.stderr)


@pytest.fixture
def graph_file(tmp_path):
    path = tmp_path / "graph.tsv"
    path.write_text("".join(f"e{i}\tr{i % 3}\te{(i * 7 + 1) % 20}\n" for i in range(60)))
    return path


def test_analyze_as_a_table_json_and_plot(graph_file, tmp_path):
    table = pathe("analyze", graph_file, "--split", "0.8,0.1,0.1")
    assert table.returncode == 0, table.stderr
    assert "Verdict" in table.stdout
    found = pathe("analyze", graph_file, "--json", "--plot", tmp_path / "a.png")
    assert found.returncode == 0, found.stderr
    result = json.loads(found.stdout)
    assert result["counts"]["relations"] == 3
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_paths_are_shown_and_seeded(graph_file):
    args = ("paths", graph_file, "--entity", "e1", "-n", "3", "--json")
    first, second = pathe(*args), pathe(*args)
    assert first.stdout == second.stdout
    found = json.loads(first.stdout)
    assert list(found) == ["e1"]
    assert len(found["e1"]) == 3
    for path in found["e1"]:
        assert "e1" in {name for step in path for name in (step[0], step[2])}
    mined = json.loads(pathe(*args, "--unique", "--form", "single").stdout)["e1"]
    assert len({json.dumps(p) for p in mined}) == len(mined)


def test_convert_keeps_a_split(graph_file, tmp_path):
    folder = tmp_path / "out"
    done = pathe("convert", graph_file, folder, "--split", "0.8,0.1,0.1", "--suffix", ".parquet")
    assert done.returncode == 0, done.stderr
    counts = json.loads(pathe("analyze", folder, "--json").stdout)["counts"]
    assert sum(counts["triples"].values()) == 60
    assert counts["unseen"] == {"valid": 0, "test": 0}
    assert "exist" in refused("convert", graph_file, folder) or "empty" in refused(
        "convert", graph_file, folder
    )


def test_bad_input_is_one_clear_error(tmp_path, graph_file):
    bad = tmp_path / "bad.tsv"
    bad.write_text("a\tr\tb\na\tr\nc\tr\td\n")
    message = refused("analyze", bad)
    assert "bad.tsv" in message
    assert "line 2" in message
    bad.write_bytes(b"a\tr\tb\n\xff\xfe\tr\tb\n")
    assert "line 2" in refused("analyze", bad)
    bad.write_text("")
    assert "bad.tsv" in refused("analyze", bad)
    assert "nowhere" in refused("analyze", tmp_path / "nowhere.tsv")
    (tmp_path / "folder").mkdir()
    assert "folder" in refused("analyze", tmp_path / "folder")
    (tmp_path / "folder" / "train.txt").write_text("a\tr\tb\n")
    assert "valid" in refused("analyze", tmp_path / "folder")
    (tmp_path / "folder" / "valid.txt").write_text("a\tunheard\tb\n")
    (tmp_path / "folder" / "test.txt").write_text("a\tr\tb\n")
    assert "unheard" in refused("analyze", tmp_path / "folder")
    assert "0.8,0.1,0.1" in refused("analyze", graph_file, "--split", "half")
    assert "three columns" in refused("analyze", graph_file, "--columns", "1,2")
    assert "e10" in refused("paths", graph_file, "--entity", "e100")


def test_skip_reports_what_it_skipped(tmp_path):
    bad = tmp_path / "bad.tsv"
    bad.write_text("a\tr\tb\na\tr\nc\tr\td\n")
    found = pathe("analyze", bad, "--json", "--on-error", "skip")
    assert found.returncode == 0
    assert json.loads(found.stdout)["counts"]["skipped"] == 1
    assert "skipped" in found.stderr


def test_a_plot_that_cannot_be_written_leaves_nothing(tmp_path, graph_file):
    message = refused("analyze", graph_file, "--plot", tmp_path / "no" / "such" / "a.png")
    assert "a.png" in message or "no" in message
    assert not (tmp_path / "no").exists()


def test_debug_shows_the_traceback(tmp_path):
    found = pathe("analyze", tmp_path / "nowhere.tsv", "--debug")
    assert "Traceback" in found.stderr


def test_version_and_usage_errors():
    assert pathe("--version").stdout.strip()
    assert pathe("analyse").returncode == 2
    assert "DATA" in pathe("analyze", "--help").stdout


@has_data
def test_the_benchmark_counts():
    result = json.loads(pathe("analyze", SHARED / "fb15k-237", "--json").stdout)
    counts = result["counts"]
    assert counts["entities"] == 14541
    assert counts["relations"] == 237
    assert counts["triples"] == {"train": 272115, "valid": 17535, "test": 20466}
    assert counts["seen"] == {"valid": 17526, "test": 20438}


def readme_commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("pathe ")]


def test_the_readme_shows_commands():
    assert readme_commands()


@pytest.mark.parametrize("command", readme_commands())
def test_readme_commands_work(command, tmp_path):
    (tmp_path / "triples.csv").write_text(
        "head,relation,tail\n" + "".join(f"e{i},r{i % 3},e{(i * 7 + 1) % 20}\n" for i in range(60))
    )
    found = pathe(*shlex.split(command)[1:], cwd=tmp_path)
    assert found.returncode == 0, found.stderr
