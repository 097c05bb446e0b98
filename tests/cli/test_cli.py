from __future__ import annotations

import ast
import inspect
import io
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from rich.console import Console
from support.commands import COMMAND, pathe, refused
from support.graphs import kg_of
from support.places import DATA, ROOT, needs_data
from typer.testing import CliRunner

from pathe.cli.main import app
from pathe.cli.options import grouped
from pathe.graph.analysis import analyze
from pathe.reports import tables as show


@pytest.fixture
def graph_file(tmp_path):
    path = tmp_path / "graph.tsv"
    path.write_text("".join(f"e{i}\tr{i % 3}\te{(i * 7 + 1) % 20}\n" for i in range(60)))
    return path


@pytest.mark.pictures
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
    assert "it holds files already" in refused("convert", graph_file, folder)


def test_convert_of_triples_without_splits(graph_file, tmp_path):
    message = refused("convert", graph_file, tmp_path / "out")
    assert "valid is empty" in message
    assert "--split 0.8,0.1,0.1" in message
    assert not (tmp_path / "out").exists()
    done = pathe("convert", graph_file, tmp_path / "out.parquet")
    assert done.returncode == 0, done.stderr
    assert f"wrote {tmp_path / 'out.parquet'}: train 60 triples\nfingerprint " in done.stderr
    assert "but it exists" in refused("convert", graph_file, graph_file)
    message = refused("convert", graph_file, tmp_path / "x.csv", "--split", "0.8,0.1,0.1")
    assert "Name a folder" in message


def test_convert_checks_its_target_before_it_reads(tmp_path, graph_file):
    bad = tmp_path / "bad.tsv"
    bad.write_text("not read\n")
    message = refused("convert", bad, tmp_path / "new", "--suffix", "doc")
    assert f"{tmp_path / 'new' / 'train.doc'}: expected a name that ends in" in message
    assert "this is a file" in refused("convert", bad, ROOT / "LICENSE")
    done = pathe("convert", graph_file, "o[/x]", "--suffix", "csv", "--split", "0.8,0.1,0.1",
                 cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o[" / "x]" / "train.csv").is_file()
    assert "o[/x]: train" in done.stderr


def test_convert_writes_both_graphs_of_a_pair(tmp_path):
    for name, rows in {"x": "a\tr\tb\n", "x_ind": "u\tr\tv\n"}.items():
        (tmp_path / name).mkdir()
        for split in ("train", "valid", "test"):
            (tmp_path / name / f"{split}.txt").write_text(rows)
    done = pathe("convert", tmp_path / "x", tmp_path / "y")
    assert done.returncode == 0, done.stderr
    assert f"wrote {tmp_path / 'y_ind'}: train 1, valid 1, test 1 triples" in done.stderr
    assert (tmp_path / "y_ind" / "test.txt").read_text() == "u\tr\tv\n"


def test_bad_input_is_one_clear_error(tmp_path, graph_file):
    bad = tmp_path / "bad.tsv"
    bad.write_text("a\tr\tb\na\tr\nc\tr\td\n")
    message = refused("analyze", bad)
    assert "bad.tsv" in message
    assert "line 2" in message
    bad.write_bytes(b"a\tr\tb\n\xff\xfe\tr\tb\n")
    assert "line 2" in refused("analyze", bad)
    bad.write_text("")
    assert "contains no triples" in refused("analyze", bad)
    assert "no such file or folder" in refused("analyze", tmp_path / "nowhere.tsv")
    (tmp_path / "folder").mkdir()
    assert "unknown kind of folder" in refused("analyze", tmp_path / "folder")
    (tmp_path / "folder" / "train.txt").write_text("a\tr\tb\n")
    assert "no valid and no test file" in refused("analyze", tmp_path / "folder")
    (tmp_path / "folder" / "valid.txt").write_text("a\tunheard\tb\n")
    (tmp_path / "folder" / "test.txt").write_text("a\tr\tb\n")
    assert "the relation 'unheard' isn't among" in refused("analyze", tmp_path / "folder")
    assert "0.8,0.1,0.1" in refused("analyze", graph_file, "--split", "half")
    assert "--columns takes three values" in refused("analyze", graph_file, "--columns", "1,2")
    assert "--allow-unseen is for splitting" in refused("analyze", graph_file, "--allow-unseen")
    assert "unknown entity 'e100'. Closest: 'e10'" in refused(
        "paths", graph_file, "--entity", "e100"
    )


def test_invalid_options_are_refused_before_slow_imports(tmp_path, graph_file):
    code = """
import sys
from pathe.cli.main import main
try:
    main()
finally:
    print("torch" in sys.modules)
"""
    for args in (["nowhere.tsv"], [graph_file, "--split", "0.8"], [graph_file, "--plot", "a.doc"]):
        command = [sys.executable, "-c", code, "analyze", *map(str, args)]
        found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert (found.returncode, found.stdout) == (2, "False\n"), found.stderr


@pytest.mark.parametrize(
    "command", [c.name or c.callback.__name__ for c in app.registered_commands]
)
def test_every_command_helps_with_panels_and_an_example(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    found = pathe(command, "--help")
    assert found.returncode == 0
    assert f"Example: pathe {command} " in found.stdout
    assert "─ Options ─" in found.stdout
    assert ("─ How to read the files ─" in found.stdout) == (
        command not in ("config", "push", "pull", "reproduce"))  # fmt: skip
    no_map = ("push", "tune", "pretrain", "train")
    assert ("--relation-map" in found.stdout) == ("MODEL" in found.stdout and command not in no_map)


def test_help_needs_no_slow_imports():
    code = """
import sys
from pathe.cli.main import main
try:
    main()
finally:
    print({"torch", "pyarrow", "numba", "matplotlib"} & set(sys.modules))
"""
    command = [sys.executable, "-c", code, "predict", "--help"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.endswith("set()\n")


@dataclass(frozen=True)
class Sizes:
    """A group of options for the next test."""

    width: Annotated[int, typer.Option("--width")]
    height: Annotated[int, typer.Option("--height")] = 2


def test_option_groups_become_options_of_the_command():
    @grouped
    def area(sizes: Sizes, name: str = "it") -> None:
        print(name, sizes)

    assert list(inspect.signature(area).parameters) == ["width", "height", "name"]
    one = typer.Typer()
    one.command()(area)
    assert "it Sizes(width=3, height=2)" in CliRunner().invoke(one, ["--width", "3"]).output
    assert CliRunner().invoke(one, []).exit_code == 2


def test_no_function_of_the_command_line_takes_many_arguments():
    for path in (ROOT / "src" / "pathe" / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                assert len(node.args.args) + len(node.args.kwonlyargs) <= 7, node.name


def test_reproduce_says_where_it_found_no_experiments(tmp_path):
    message = refused("reproduce", cwd=tmp_path)
    assert f"{tmp_path / 'experiments'}: no experiment files" in message
    assert "--experiments FOLDER" in message
    assert "checkout" in message


def test_skip_reports_what_it_skipped(tmp_path):
    bad = tmp_path / "bad.tsv"
    bad.write_text("a\tr\tb\na\tr\nc\tr\td\n")
    found = pathe("analyze", bad, "--json", "--on-error", "skip")
    assert found.returncode == 0
    assert json.loads(found.stdout)["counts"]["skipped"] == 1
    assert f"1 bad line skipped; the first: {bad}, line 2: expected 3 columns" in found.stderr


def test_an_empty_part_of_a_split_is_reported(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("".join(f"a{i}\tr\tb{i}\n" for i in range(10)))
    found = pathe("analyze", path, "--split", "0.8,0.1,0.1", "--json")
    assert found.returncode == 0
    assert "left valid and test empty (train 10, valid 0, test 0 triples)" in found.stderr


def test_odd_names_keep_one_path_a_line(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('"a\nb",:smile:,"[/x]\x1b[31m"\n', encoding="utf-8")
    args = ("paths", path, "-n", "1", "--entity", "a\nb", "--seed", "9" * 30)
    found = pathe(*args)
    assert found.stdout == "a\\nb\n  a\\nb -:smile:-> [/x]\\x1b[31m\n", found.stderr
    path.write_text("é,r,語\n", encoding="utf-8")
    found = pathe("paths", path, "-n", "1", "--entity", "é", PYTHONIOENCODING="ascii")
    assert found.stdout == "\\xe9\n  \\xe9 -r-> \\u8a9e\n", found.stderr


def test_random_entities_take_any_seed(graph_file):
    for seed in ("9" * 30, "-1"):
        found = pathe("paths", graph_file, "-n", "1", "--json", "--seed", seed)
        assert len(json.loads(found.stdout)) == 3, found.stderr


@pytest.mark.parametrize("more", [("-n", "3000"), ("-n", "3000", "--json"), ("-n", "1")])
def test_a_closed_pipe_is_not_an_error(graph_file, more):
    command = [*COMMAND, "paths", str(graph_file), "--entity", "e1", "--max-hops", "3", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)


def test_out_of_memory_is_one_error(monkeypatch, capsys):
    from pathe.cli import main as cli

    def app(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(sys, "argv", ["pathe"])
    monkeypatch.setattr(cli, "prepare_output", lambda: None)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert "out of memory" in capsys.readouterr().err


def shown(width: int) -> str:
    rows = "; ".join(f"entity{i} likes entity{i * 7 % 1234}" for i in range(1234))
    back = "; ".join(f"entity{i * 7 % 1234} likes entity{i}" for i in range(1234))
    inference = kg_of(rows, valid="entity1 likes entity5", test=back)
    console = Console(file=io.StringIO(), width=width)
    for part in show.analysis(analyze(kg_of(f"{rows}; {back}", test=rows, inference=inference))):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_tables_wrap_and_never_cut():
    words = re.findall(r"\S+", shown(300))
    assert sorted(re.findall(r"\S+", shown(40))) == sorted(words)
    wide = shown(300)
    assert "_" not in wide  # no counter's raw name
    assert re.search(r"symmetric relations +1\s+likes +100.0 %", wide)
    assert re.search(r"Inference graph.*test triples +1,2\d\d", wide, re.S)


def test_piped_text_is_not_wrapped(graph_file, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    found = pathe("analyze", graph_file).stdout
    assert re.search(r"^  Connectivity is .* lack that half\. *$", found, re.M), found


def test_a_plot_that_cannot_be_written_leaves_nothing(tmp_path, graph_file):
    message = refused("analyze", graph_file, "--plot", tmp_path / "no" / "such" / "a.png")
    assert f"can't be written (no folder {tmp_path / 'no' / 'such'})" in message
    assert not (tmp_path / "no").exists()


def test_debug_shows_the_traceback(tmp_path):
    found = pathe("analyze", tmp_path / "nowhere.tsv", "--debug")
    assert "Traceback" in found.stderr


def test_version_and_usage_errors():
    assert pathe("--version").stdout.strip()
    assert pathe("analyse").returncode == 2
    assert "DATA" in pathe("analyze", "--help").stdout


@needs_data
def test_the_benchmark_counts():
    result = json.loads(pathe("analyze", DATA / "fb15k-237", "--json").stdout)
    counts = result["counts"]
    assert counts["entities"] == 14541
    assert counts["relations"] == 237
    assert counts["triples"] == {"train": 272115, "valid": 17535, "test": 20466}
    assert counts["seen"] == {"valid": 17526, "test": 20438}
