"""How commands fail: exit codes, errors as JSON, closed pipes, and no traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time

import pyarrow as pa
import pytest
import torch
from support.commands import COMMAND, pathe, refused
from support.folders import folder_of
from support.models import artifact_of

from pathe.cli import main
from pathe.core.errors import DataError, lacks_memory
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.model.artifact import save_model

BIG, LONG = "9" * 30, "x" * 100_000


@pytest.fixture
def place(tmp_path):
    folder_of(tmp_path / "data")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (("analyze", "nowhere.tsv"), "DataError", "nowhere.tsv"),
        (("predict", "--data", "data", "--head", "zz", "--relation", "r"), "UnknownName", "zz"),
        (("predict", "--data", "data", "--hed", "zz"), "NoSuchOption", "--hed"),
        (("predict", "--data", "data", "-k", "many"), "BadParameter", "-k"),
    ],
)
@pytest.mark.parametrize("flag", ["--json", "--jsonl"])
def test_errors_of_json_commands_are_json(place, words, kind, said, flag):
    found = pathe(*words, flag, cwd=place)
    assert (found.returncode, found.stdout) == (2, "")
    about = json.loads(found.stderr.splitlines()[-1])
    assert about.keys() == {"error", "kind", "exit_code"}
    assert about["exit_code"] == 2
    assert kind in about["kind"] or (words[0], flag) == ("analyze", "--jsonl")
    assert said in about["error"] or flag in about["error"]


def test_wrong_options_are_shown_as_ever_without_json(place):
    found = pathe("predict", "--data", "data", "--hed", "zz", cwd=place)
    assert found.returncode == 2
    assert "--hed" in found.stderr
    assert not found.stderr.startswith("{")


def test_a_long_error_is_cut(monkeypatch, place):
    def fails(*given, **more):
        raise DataError("x" * 100_000)

    monkeypatch.setattr(main, "app", fails)
    said = refused("analyze", "data", cwd=place)
    assert len(said) < 2200
    assert "98,000 more characters" in said


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "--on", LONG), ("evaluate", f"--{LONG}"), (LONG,), ("config", LONG),
        ("predict", "--data", "data", "--head", LONG, "--relation", "r"),
        ("train", "data", "--set", f"{LONG}=1"), ("train", "data", "--set", f"task={LONG}"),
        ("missing", "data", "--relation", LONG), ("analyze", LONG), ("reproduce", LONG),
    ],
)  # fmt: skip
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_long_words_make_no_long_errors(place, words, more):
    found = pathe(*words, *more, cwd=place)
    assert found.returncode == 2
    assert found.stdout == ""
    assert len(found.stderr) < 3000
    assert found.stderr.count("Traceback") == 0


@pytest.mark.parametrize(
    "words",
    [
        ("paths", "data", "-n", BIG), ("paths", "data", "--max-hops", BIG),
        ("paths", "data", "--all", "-n", "100000000"), ("train", "data", "--seed", BIG),
        ("train", "data", "--minutes", "nan"), ("train", "data", "--minutes", "inf"),
        ("train", "data", "--set", "n_paths=100000000"),
        ("train", "data", "--set", "layers=100000"),
        ("train", "data", "--set", "test_paths=99999999"),
        ("train", "data", "--set", "bridge_hops=1e9"), ("pretrain", "data", "--steps", BIG),
        ("pretrain", "data", "--set", "n_hops=1000000000"),
        ("pretrain", "data", "--minutes", "nan"),
        ("evaluate", "model", "--data", "data", "--n-paths", "100000000"),
        ("missing", "data", "--min-probability", "nan"), ("tune", "data", "--trials", BIG),
    ],
)  # fmt: skip
def test_numbers_that_would_take_forever_are_refused(place, words):
    found = pathe(*words, cwd=place)
    assert (found.returncode, found.stdout) == (2, "")
    assert "Traceback" not in found.stderr
    assert not list(place.glob("runs"))


def test_yaml_that_stands_for_billions_of_values_is_refused(place):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(30)]
    (place / "bomb.yaml").write_text("\n".join(lines) + "\n")
    for words in (
        ("train", "data", "--preset", "bomb.yaml"),
        ("reproduce", "bomb.yaml"),
        ("tune", "data", "--space", "bomb.yaml"),
        ("serve", "--graphs", "bomb.yaml"),
    ):
        assert "aliases (*) aren't supported" in refused(*words, cwd=place), words


def test_rules_without_bridges_are_refused_before_the_graph_is_read(place, monkeypatch):
    kg = KnowledgeGraph.read(place / "data")
    save_model(place / "model", artifact_of(kg))
    monkeypatch.setattr(KnowledgeGraph, "read", lambda *given, **more: pytest.fail("read"))
    said = refused("rules", "model", "--data", "data", cwd=place)
    assert "Rules need a model that predicts links and has bridges" in said


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_with_its_code(monkeypatch, place, signum, code):
    cleaned = []

    def works(*given, **more):
        try:
            os.kill(os.getpid(), signum)
            signal.pause()
        finally:
            cleaned.append(True)

    before = signal.getsignal(signum)
    monkeypatch.setattr(main, "app", works)
    found = pathe("analyze", "data", cwd=place)
    assert found.returncode == code
    assert found.stderr.startswith("stopped by")
    assert "Traceback" not in found.stderr
    assert cleaned == [True]
    assert signal.getsignal(signum) == before


def shell(line: str) -> subprocess.CompletedProcess[str]:
    command = " ".join(f"'{word}'" for word in COMMAND)
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line.replace('pathe', command, 1)}"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_closed_and_full_outputs(place):
    for line, code in (
        ("pathe --help | head -1", 0),
        ("pathe config | head -1", 0),
        ("pathe config >&-", 0),
        ("pathe config <&- >&- 2>&-", 0),
        ("pathe config > /dev/full", 2),
    ):
        found = shell(line)
        assert found.returncode == code, (line, found.stderr)
        assert "Traceback" not in found.stderr, line
        assert "Exception ignored" not in found.stderr, line
    assert "No space left" in found.stderr


ENFORCED = "[enforce fail at alloc_cpu.cpp:127] err == 0. "
ALLOCATOR = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."

WORKER = "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback:\n"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"), RuntimeError("could not create a primitive"),
        RuntimeError(ALLOCATOR), RuntimeError(ENFORCED + ALLOCATOR), MemoryError(),
        SystemError("error return without exception set"),  # of an extension that is loaded
        SystemError("<function _find_and_load at 0x7f63> returned NULL without setting an exception"),  # noqa: E501
        TypeError("Couldn't build proto file into descriptor pool: out of memory"),
        ImportError("libx.so: failed to map segment from shared object"),
        RuntimeError(f"{WORKER}  at = 3\nRuntimeError: {ENFORCED}{ALLOCATOR}"),
        RuntimeError("unable to mmap 64 bytes from file </torch_9>: Cannot allocate memory (12)"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously"),
        pa.ArrowMemoryError("malloc of size 9 failed"),
        pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."),
    ],
    ids=repr,
)  # fmt: skip
def test_too_little_memory_is_a_readable_error(monkeypatch, place, error):
    def fails(*given, **more):
        raise error

    monkeypatch.setattr(main, "app", fails)
    assert "out of memory: request less" in refused("analyze", "data", cwd=place)


def test_too_little_memory_to_tell_an_error_is_told(monkeypatch, place):
    def fails(error):
        raise MemoryError

    monkeypatch.setattr(main, "_explain", fails)
    assert "out of memory: request less" in refused("analyze", "nothing", cwd=place)


def test_an_error_of_an_import_that_lacks_memory_is_told_as_such(monkeypatch, place):
    """As llvmlite raises it."""

    def fails(*given, **more):
        try:
            raise OSError("libllvmlite.so: failed to map segment from shared object")
        except OSError as error:
            raise OSError("Could not find/load shared object file 'libllvmlite.so'") from error

    monkeypatch.setattr(main, "app", fails)
    assert "out of memory: request less" in refused("analyze", "data", cwd=place)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_where_python_ignores_exceptions_still_stops(monkeypatch, place, name):
    number = getattr(signal, name)

    class Late:
        def __del__(self):
            signal.raise_signal(number)

    def runs(*given, **more):
        Late()
        for _ in range(1000):
            time.sleep(0.01)
        raise AssertionError("the signal was lost")

    monkeypatch.setattr(main, "app", runs)
    ended = pathe("analyze", "data", cwd=place)
    assert ended.returncode == 128 + number
    assert "stopped by" in ended.stderr
    assert "ignored" not in ended.stderr


def test_errors_that_lead_to_each_other_are_looked_at_once():
    """As Python chains them where a cleanup raises an earlier error again."""
    one, other = ImportError("one"), OSError("other")
    one.__context__, other.__context__ = other, one
    assert not lacks_memory(one)
    other.__context__ = MemoryError()
    assert lacks_memory(one)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_error_that_a_signal_turns_into_is_not_told(monkeypatch, place, name):
    """Python 3.11 replaces what is raised in `__set_name__`, for one."""
    number = getattr(signal, name)

    def fails(*given, **more):
        try:
            signal.raise_signal(number)
        except SystemExit as ended:
            raise RuntimeError("Error calling __set_name__") from ended

    monkeypatch.setattr(main, "app", fails)
    ended = pathe("analyze", "data", cwd=place)
    assert ended.returncode == 128 + number
    assert "stopped by" in ended.stderr


@pytest.mark.parametrize(
    "text",
    [
        "the kernel must allocate its output", "CUDA error: misaligned address",
        "unable to mmap 64 bytes from file <x>: Invalid argument (22)",
    ],
)  # fmt: skip
def test_other_errors_about_memory_are_bugs(monkeypatch, place, text):
    def fails(*given, **more):
        raise RuntimeError(text)

    monkeypatch.setattr(main, "app", fails)
    assert "Traceback" in pathe("analyze", "data", cwd=place).stderr


@pytest.mark.parametrize("kind", [OSError, ValueError])
@pytest.mark.parametrize("module", ["tensorboard.summary.writer", "elsewhere"])
def test_only_the_writers_of_tensorboard_fail_quietly(capsys, kind, module):
    def fails(self):
        raise kind("No space left")

    own = type("Writer", (threading.Thread,), {"run": fails, "__module__": module})
    before, threading.excepthook = threading.excepthook, main._end_of_thread
    try:
        writer = own()
        writer.start()
        writer.join()
    finally:
        threading.excepthook = before
    hidden = kind is OSError and module != "elsewhere"
    assert ("No space left" in capsys.readouterr().err) != hidden
