"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pathe

SOURCE = Path(pathe.__file__).parent
# Imports go down this list only: a module may use those above it.
ORDER = [
    "errors", "files", "answers", "randomness", "config", "columns", "delimited", "readers",
    "triples", "names", "openke", "named", "datasets", "schema", "machine", "graph", "facts",
    "twins", "known_cpu", "known_gpu", "known", "walks_cpu", "walks_gpu", "walks", "paths",
    "attention_cpu", "attention_gpu", "attention", "packed_gpu", "packed", "lanes_cpu",
    "propagation_cpu", "propagation_gpu", "propagation", "states_cpu", "states_gpu", "states",
    "bridge", "scores_cpu", "scores_gpu", "scores", "encoder", "aggregators", "model", "losses",
    "negatives", "encoding",
    "bridging", "connections", "rules_cpu", "rules", "memory", "builder", "artifact", "hub",
    "ranking", "evaluation", "calibration", "evidence", "missing", "vectors", "predict", "recorded",
    "batches", "questions", "training", "analysis", "recipes", "plots", "plot_reasons", "callbacks",
    "runs", "experiments", "report", "tuning", "tables", "show", "options", "commands_graph",
    "commands_lab", "commands_model", "commands_use", "cli",
]  # fmt: skip


def imports(module: str) -> set[str]:
    """Every pathe module that a module imports anywhere, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse((SOURCE / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "pathe":
                found |= {alias.name for alias in node.names}
            elif node.module.startswith("pathe."):
                found.add(node.module.split(".")[1])
    return found & set(ORDER)


def test_every_module_has_its_place():
    assert {p.stem for p in SOURCE.glob("*.py")} - {"__init__", "__main__"} == set(ORDER)


@pytest.mark.parametrize("module", ORDER)
def test_imports_go_one_way(module):
    above = ORDER[: ORDER.index(module)]
    assert imports(module) <= set(above)


@pytest.mark.parametrize("module", ORDER)
def test_files_can_be_read_in_a_sitting(module):
    assert len((SOURCE / f"{module}.py").read_text().splitlines()) <= 400


def run_python(code: str) -> str:
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_help_loads_nothing_heavy():
    code = """
import sys
from typer.testing import CliRunner
from pathe.cli import app
assert CliRunner().invoke(app, ["--help"]).exit_code == 0
print([m for m in ("torch", "pykeen", "lightning", "pyoxigraph", "numba", "pyarrow",
                   "matplotlib", "pandas") if m in sys.modules])
"""
    assert run_python(code).strip() == "[]"


def test_the_core_works_without_the_optional_heavy_packages():
    code = """
import sys
for name in ("pykeen", "pyoxigraph", "numba", "matplotlib", "pandas", "pydantic"):
    sys.modules[name] = None  # an import of it fails
import torch
from pathe.graph import build_graph
from pathe.known import index_triples
from pathe.paths import sample_paths
import pathe.datasets, pathe.triples, pathe.readers, pathe.walks as walks
triples = torch.tensor([[0, 0, 1], [1, 0, 2]], dtype=torch.int32)
print(sample_paths(build_graph(triples, 3, 1), torch.arange(3), 2, 3, seed=0).tokens_UKT.shape)
"""
    code = code.replace("import torch\n", "import importlib.util\n"
        "spec = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n, *a: None if n == 'numba' else spec(n, *a)\n"
        "import torch\n")  # fmt: skip
    assert "torch.Size([3, 2, 13])" in run_python(code)


def test_the_front_door_is_pinned():
    assert sorted(pathe.__all__) == [
        "Graph", "KnowledgeGraph", "PatheError", "Predictor", "build_graph", "coverage", "evaluate",
        "load", "mine_paths", "pull", "push", "recommend", "sample_paths", "save", "train",
    ]  # fmt: skip
    for name in pathe.__all__:
        assert getattr(pathe, name).__module__.startswith("pathe.")
    with pytest.raises(AttributeError, match="KnowledgeGraph"):
        _ = pathe.nonsense


def test_idle_threads_do_not_spin_long():
    assert run_python("import pathe, os; print(os.environ['GOMP_SPINCOUNT'])").strip() == "10000"


def test_a_question_loads_neither_pandas_nor_lightning(tmp_path):
    """They would take a third of the time to the first answer."""
    code = """
import sys
from pathlib import Path
import pathe
place = Path(sys.argv[1]) / "g.tsv"
place.write_text("a\tr\tb\\nb\tr\tc\\n")
from pathe.artifact import Artifact, save_model, load_model
from pathe.builder import build_model
from pathe.config import Config
kg = pathe.KnowledgeGraph.read(place)
save_model(Path(sys.argv[1]) / "m", Artifact(build_model(Config(), 1), Config(), kg.relations))
p = pathe.Predictor(pathe.load(Path(sys.argv[1]) / "m"), kg)
assert p.tails("a", "r") and p.score([("a", "r", "c")]) and p.similar("a")
print([m for m in ("pandas", "lightning", "pykeen", "matplotlib", "sklearn") if m in sys.modules])
"""
    code = f"import sys; sys.argv = ['', {str(tmp_path)!r}]\n" + code
    assert run_python(code).strip() == "[]"
