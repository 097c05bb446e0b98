"""Nothing that is read can run code: no call in the sources could, and no file does."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.commands import pathe
from support.folders import folder_of
from support.graphs import toy
from support.models import artifact_of
from support.places import ROOT
from support.prepared import prepare_data
from support.runs import train

from pathe.core.errors import PatheError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.prepared import PreparedGraph
from pathe.model import artifact as artifact_module
from pathe.model.artifact import load_model, save_model
from pathe.training import pretraining_run

SOURCES = [
    path for name in ("src", "benchmarks", "examples", "deploy")
    for path in sorted((ROOT / name).rglob("*.py"))
]  # fmt: skip
# What can run code that a file holds, and with which arguments it can't.
RUNS_CODE: dict[str, dict[str, Any]] = {
    name: {} for name in (
        "eval", "exec", "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load",
        "marshal.loads", "shelve.open", "joblib.load", "dill.load", "cloudpickle.load",
        "cloudpickle.loads", "pandas.read_pickle", "pd.read_pickle", "yaml.unsafe_load",
        "yaml.full_load", "yaml.load_all", "torch.jit.load", "torch.hub.load", "os.system",
        "os.popen", "imp.load_source",
    )
} | {
    "torch.load": {"weights_only": True},
    "np.load": {"allow_pickle": False},
    "numpy.load": {"allow_pickle": False},
}  # fmt: skip
YAML = "src/pathe/core/yaml_files.py"  # the one place that reads YAML
NAMES_PICKLE = {"src/pathe/training/checkpoints.py"}  # names its error


def dotted(node: ast.AST) -> str:
    """The name of what is called, such as torch.load; empty if it has none."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{dotted(node.value)}.{node.attr}"
    return ""


def calls(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the names of all calls, and those of their arguments that are constants."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            given = {
                k.arg: k.value.value for k in node.keywords
                if k.arg and isinstance(k.value, ast.Constant)
            }  # fmt: skip
            yield dotted(node.func), given


def dangerous(source: str, place: str) -> list[str]:
    found = []
    for name, given in calls(source):
        if name in RUNS_CODE and not (RUNS_CODE[name] and RUNS_CODE[name].items() <= given.items()):
            found.append(name)
        if name in ("yaml.load", "yaml.safe_load", "yaml.compose") and place != YAML:
            found.append(name)
        if name.startswith("subprocess.") and given.get("shell"):
            found.append(f"{name}(shell=True)")
        if given.get("trust_remote_code"):
            found.append(f"{name}(trust_remote_code=True)")
    for node in ast.walk(ast.parse(source)):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        bad = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"} & set(names)
        if bad and place not in NAMES_PICKLE:
            found += [f"import {name}" for name in bad]
    return found


def test_no_call_could_run_what_a_file_holds():
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in SOURCES}
    found = {place: dangerous(text, place) for place, text in texts.items()}
    assert {place: names for place, names in found.items() if names} == {}
    assert len(found) > 200


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from pickle import loads", "torch.load(f)", "eval('1')", "os.system('x')",
        "torch.load(f, weights_only=False)", "np.load(f, allow_pickle=True)", "np.load(f)",
        "yaml.load(text, yaml.Loader)", "yaml.safe_load(text)", "subprocess.run(x, shell=True)",
    ],
)  # fmt: skip
def test_the_search_finds_such_calls(source):
    assert dangerous(source, "src/pathe/x.py")


def test_yaml_is_read_by_a_safe_loader():
    text = (ROOT / YAML).read_text()
    assert "class _PlainLoader(yaml.SafeLoader)" in text
    loads = [ast.unparse(node) for node in ast.walk(ast.parse(text))
             if isinstance(node, ast.Call) and dotted(node.func) == "yaml.load"]  # fmt: skip
    assert loads == ["yaml.load(text, _PlainLoader)"]


def lock_script():
    spec = importlib.util.spec_from_file_location("lock", ROOT / "deploy" / "lock.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_version_but_that_of_torch_has_digests():
    script = lock_script()
    text, pins = script.LOCK.read_text(), script.pins(script.PINS.read_text())
    assert script.locked(text) == [pin for pin in pins if pin[0] != "torch"]
    for name, each in script.entries(text).items():
        for entry in each:
            found = re.findall(r"--hash=sha256:([0-9a-f]{64})\b", entry)
            assert found, name
            assert len(found) == entry.count("--hash"), name


def test_the_lock_holds_all_that_the_extras_need():
    for name in ("tomllib", "ray", "igraph"):  # Python 3.11, with all extras installed
        pytest.importorskip(name)
    script = lock_script()
    assert script.needed(("all", "dev", "bench")) <= script.entries(script.LOCK.read_text()).keys()


def test_the_container_installs_a_part_of_the_lock():
    pytest.importorskip("tomllib")
    script = lock_script()
    assert script.PART.read_text() == script.part(script.LOCK.read_text(), script.EXTRAS)


def test_digests_are_those_of_the_version_asked():
    page = """<a href="../../files/a_b-1.0-py3-none-any.whl#sha256=1">x</a>
    <a href="https://x/a-b-1.0.tar.gz#sha256=2"></a> <a href="a_b-1.0.1.tar.gz#sha256=3"></a>
    <a href="a_b_c-1.0.tar.gz#sha256=4"></a> <a href="a_b-1.0.zip#md5=5"></a>"""
    assert lock_script().digests(page, "A.b", "1.0") == ["1", "2"]


class Payload:
    """Leaves a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.system, (f"touch {self.mark}",)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    place = tmp_path_factory.mktemp("run") / "run"
    train(toy(), place, max_epochs=1)
    return place


def refused_without_running(mark: Path, attack: Callable[[], Any]) -> str:
    with pytest.raises(PatheError) as caught:
        attack()
    assert not mark.exists()
    assert len(str(caught.value)) < 2000
    return str(caught.value)


def test_the_payload_works(tmp_path):
    pickle.loads(pickle.dumps(Payload(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["last.ckpt", "best.ckpt"])
@pytest.mark.parametrize("signed", [False, True])
def test_pickled_code_in_a_checkpoint_does_not_run(tmp_path, trained, name, signed):
    from pathe.training.checkpoints import write_checkpoint

    shutil.copytree(trained, tmp_path / "run")
    path, mark = tmp_path / "run" / "checkpoints" / name, tmp_path / "ran"
    state = torch.load(path, weights_only=True) | {"more": Payload(mark)}
    write_checkpoint(path, state) if signed else torch.save(state, path)
    epochs = 1 if name == "best.ckpt" else 2
    refused_without_running(
        mark, lambda: train(toy(), tmp_path / "run", resume=True, max_epochs=epochs)
    )


def test_pickled_code_in_a_checkpoint_of_pre_training_does_not_run(tmp_path):
    mark = tmp_path / "ran"
    torch.save({"model": {}, "more": Payload(mark)}, tmp_path / "checkpoint.pt")
    refused_without_running(mark, lambda: pretraining_run.read_checkpoint(tmp_path))


@pytest.mark.parametrize("how", ["pickle", "torch", "zip"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "relations.json"])
def test_pickled_code_in_a_model_folder_does_not_run(tmp_path, how, name):
    folder, mark = tmp_path / "model", tmp_path / "ran"
    save_model(folder, artifact_of(toy()))
    path = folder / name
    match how:
        case "pickle":
            path.write_bytes(pickle.dumps(Payload(mark)))
        case "torch":
            torch.save(Payload(mark), path, _use_new_zipfile_serialization=False)
        case "zip":
            torch.save({"w": Payload(mark)}, path)
    if name != "config.json":
        about = json.loads((folder / "config.json").read_text())
        about["sha256"][name] = artifact_module._digest(path.read_bytes())
        about["sha256"]["config.json"] = artifact_module._digest_settings(about)
        (folder / "config.json").write_text(json.dumps(about))
    refused_without_running(mark, lambda: load_model(folder))


TAGS = (
    "!!python/object/apply:os.system ['touch {mark}']",
    "!!python/object/new:os.system ['touch {mark}']",
    "!!python/name:os.system",
    "!!python/module:os",
    '!!python/object/apply:subprocess.check_output [["touch", "{mark}"]]',
)


@pytest.mark.parametrize("tag", TAGS)
def test_yaml_tags_do_not_run(tmp_path, trained, tag):
    mark = tmp_path / "ran"
    text = f"dim: {tag.format(mark=mark)}\n"
    folder_of(tmp_path / "data")
    (tmp_path / "x.yaml").write_text(text)
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "config.yaml").write_text(text)
    for words in (
        ("train", "data", "--preset", "x.yaml", "--out", "new"),
        ("train", "data", "--set", text.replace(": ", "=", 1).strip(), "--out", "new"),
        ("train", "data", "--resume", "--out", "run"),
        ("reproduce", "x.yaml"),
        ("tune", "data", "--space", "x.yaml"),
        ("serve", "--graphs", "x.yaml"),
    ):
        found = pathe(*words, cwd=tmp_path)
        assert (found.returncode, found.stdout) == (2, ""), (words, found.stderr)
        assert "Traceback" not in found.stderr
        assert not mark.exists()


def test_pickled_arrays_in_a_prepared_folder_do_not_run(tmp_path):
    folder_of(tmp_path / "data")
    prepare_data(tmp_path / "data", tmp_path / "prepared")
    mark = tmp_path / "ran"
    for path in sorted((tmp_path / "prepared").glob("*.npy")):
        raw = path.read_bytes()
        np.save(path, np.array([Payload(mark)], dtype=object), allow_pickle=True)
        with suppress(PatheError):  # some arrays aren't opened here
            opened = PreparedGraph(KnowledgeGraph.read(tmp_path / "prepared"))
            _ = opened.edges, opened.arrivals, opened.known(), opened.known("train").lists("tail")
        assert not mark.exists(), path
        path.write_bytes(raw)
