"""Rules of the source tree that a machine can check: folders, imports, sizes, the front door."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.places import ROOT

import pathe

SOURCE = Path(pathe.__file__).parent
TESTS = ROOT / "tests"
# Imports go up this list only: a folder may use the folders before it.
FOLDERS = ("core", "data", "kernels", "graph", "model", "evaluation", "predict", "reports",
           "training", "cluster", "lab", "serve", "cli")  # fmt: skip
MOST_LINES, MOST_ARGUMENTS = 60, 7
# Functions that may be longer or take more arguments, and why.
LONG: dict[str, str] = {}
WIDE = {
    "evaluation.ranking.evaluate": "public: most are optional and have the names of options",
    "graph.paths.sample_paths": "public: most are optional and have the names of settings",
    "graph.walks.walk": "fills arrays in place, as its kernels do",
    "graph.walks._walk_tensors": "its plain version",
    "lab.tuning.tune": "most are optional and have the names of options",
    "predict.predictor.Predictor.__init__": "public: most are optional, named as options",
    "training.train.train": "public: most are optional and have the names of options",
}


def name_of(path: Path) -> str:
    """The dotted name of a source file below `pathe`; a package is its own name, `pathe` is ''."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


PATHS = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}
MODULES = [name for name in PATHS if name.split(".")[0] in FOLDERS]


def dotted_imports(tree: ast.AST) -> Iterator[str]:
    """Everything that a file imports, anywhere in it: by statement, and by string.

    A string is an import if it is `pathe.` and a dotted name. An f-string counts as what it begins
    with; one that fills in the folder yields 'pathe.*', since nobody can tell what it imports.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.JoinedStr):
            first = node.values[0]
            if isinstance(first, ast.Constant) and str(first.value).startswith("pathe."):
                known = re.match(r"pathe\.(\w+)\.", str(first.value))
                yield f"pathe.{known.group(1)}" if known else "pathe.*"
        elif isinstance(node, ast.Constant) and re.fullmatch(r"pathe(\.\w+)+", str(node.value)):
            yield node.value


def module_of(dotted: str) -> str:
    """The module that a dotted name lies in: 'graph.paths' for 'pathe.graph.paths.Paths'."""
    parts = dotted.split(".")[1:]
    while parts and ".".join(parts) not in PATHS:
        parts.pop()
    return ".".join(parts)


def imports(name: str) -> set[str]:
    """Every module of ours that a module imports; '*' where nobody can tell."""
    found = set()
    for dotted in dotted_imports(ast.parse(PATHS[name].read_text(encoding="utf-8"))):
        if dotted == "pathe.*":
            found.add("*")
        elif dotted.split(".")[0] == "pathe":
            found.add(module_of(dotted))
    return found - {name}


def test_imports_are_found_however_they_are_made():
    code = """
import pathe.core.errors
from pathe.graph import paths
def later():
    from pathe.model.artifact import load_model
    importlib.import_module("pathe.cli.main")
    importlib.import_module(f"pathe.kernels.{folder}.{module}")
    importlib.import_module(f"pathe.{module}")
"""
    found = list(dotted_imports(ast.parse(code)))
    assert sorted(found) == [
        "pathe.*", "pathe.cli.main", "pathe.core.errors", "pathe.graph.paths", "pathe.kernels",
        "pathe.model.artifact.load_model",
    ]  # fmt: skip
    assert module_of("pathe.model.artifact.load_model") == "model.artifact"
    assert module_of("pathe.graph.Graph") == "graph"


def test_every_folder_has_its_place():
    found = {p.name for p in SOURCE.iterdir() if p.is_dir() and any(p.rglob("*.py"))}
    assert found == set(FOLDERS)
    for folder in FOLDERS:
        assert (SOURCE / folder / "__init__.py").is_file()


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_from_those_before_it(folder):
    allowed = FOLDERS[: FOLDERS.index(folder) + 1]
    wrong = [
        f"{name} imports {other or 'pathe'}"
        for name in MODULES
        if name.split(".")[0] == folder
        for other in sorted(imports(name))
        # `pathe` itself is allowed for its version
        if other and other.split(".")[0] not in allowed
    ]
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle():
    graph = {name: imports(name) & set(MODULES) for name in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_file_is_named_after_nothing():
    empty_names = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
    assert [name for name in PATHS if name.split(".")[-1] in empty_names] == []


def test_the_old_import_paths_are_files_that_only_import():
    """Beside the folders, there are the front door, `__main__` and modules of a few imports."""
    for name, path in PATHS.items():
        if name in ("", "__main__") or name in MODULES:
            continue
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert all(isinstance(node, ast.ImportFrom) for node in body[1:]), name
    users = [name for name in MODULES for other in imports(name) if other and other not in MODULES]
    assert users == []


def functions(name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module by their full names, methods and nested ones included."""

    def walk(node: ast.AST, within: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        for child in ast.iter_child_nodes(node):
            inner = within
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = f"{within}.{child.name}"
                if isinstance(child, ast.FunctionDef):
                    yield inner, child
            yield from walk(child, inner)

    return walk(ast.parse(PATHS[name].read_text(encoding="utf-8")), name)


def n_arguments(function: ast.FunctionDef) -> int:
    given = function.args
    every = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    if every[:1] == ["ctx"]:  # an autograd function takes the arrays of its kernel
        return 0
    return sum(name not in ("self", "cls") for name in every)


def check_caps(sizes: dict[str, int], most: int, exceptions: dict[str, str]) -> None:
    above = {name: size for name, size in sizes.items() if size > most}
    wrong = [f"{name}: {size}" for name, size in above.items() if name not in exceptions]
    assert not wrong, f"above {most}:\n" + "\n".join(sorted(wrong))
    assert exceptions.keys() <= above.keys(), "an exception that is no longer needed"


def test_a_function_fits_on_a_screen():
    check_caps(
        {
            name: function.end_lineno - function.lineno + 1
            for module in PATHS
            for name, function in functions(module)
        },
        MOST_LINES,
        LONG,
    )


def test_a_function_takes_few_arguments():
    """Kernels may take more: they work on raw arrays."""
    check_caps(
        {
            name: n_arguments(function)
            for module in PATHS
            if not module.startswith("kernels.")
            for name, function in functions(module)
        },
        MOST_ARGUMENTS,
        WIDE,
    )


def test_the_tests_mirror_the_source():
    with_tests = {path.parent.relative_to(TESTS).parts for path in TESTS.rglob("test_*.py")}
    assert with_tests == {(folder,) for folder in (*FOLDERS, "project", "browser", "torture")}
    names = [path.name for path in TESTS.rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names), "pytest needs names that differ"


def test_no_test_imports_another_test():
    for path in TESTS.rglob("*.py"):
        for dotted in dotted_imports(ast.parse(path.read_text(encoding="utf-8"))):
            assert not re.match(r"(\w+\.)*(test_\w+|conftest)\b", dotted), f"{path}: {dotted}"


def run_python(code: str) -> str:
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_help_loads_nothing_heavy():
    code = """
import sys
from typer.testing import CliRunner
from pathe.cli.main import app
assert CliRunner().invoke(app, ["--help"]).exit_code == 0
print([m for m in ("torch", "pykeen", "lightning", "pyoxigraph", "numba", "pyarrow",
                   "matplotlib", "pandas") if m in sys.modules])
"""
    assert run_python(code).strip() == "[]"


def test_the_core_works_without_the_optional_heavy_packages():
    code = """
import sys
for name in ("pykeen", "pyoxigraph", "numba", "matplotlib", "pandas", "pydantic", "optuna",
             "tensorboard", "huggingface_hub"):
    sys.modules[name] = None  # an import of it fails
import torch
from pathe.graph.adjacency import build_graph
from pathe.graph.known import KnownTriples
from pathe.graph.paths import sample_paths
import pathe.data.knowledge_graph, pathe.data.readers, pathe.data.triples, pathe.graph.walks
triples = torch.tensor([[0, 0, 1], [1, 0, 2]], dtype=torch.int32)
assert KnownTriples(triples).contains(triples).all()
print(sample_paths(build_graph(triples, 3, 1), torch.arange(3), 2, 3, seed=0).tokens_UKT.shape)
"""
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


def test_the_front_door_leads_into_the_folders():
    assert sorted(pathe._DOOR) == sorted(pathe.__all__)
    for name, place in pathe._DOOR.items():
        module, _, attribute = place.rpartition(".")
        assert module in MODULES, place
        defined = getattr(importlib.import_module(f"pathe.{module}"), attribute)
        assert defined is getattr(pathe, name)
        assert defined.__module__ == f"pathe.{module}", "not where it is defined"


@pytest.mark.parametrize(
    ("old", "name"),
    [
        ("errors.PatheError", "PatheError"),
        ("datasets.KnowledgeGraph", "KnowledgeGraph"),
        ("graph.Graph", "Graph"),
        ("graph.build_graph", "build_graph"),
        ("evaluation.evaluate", "evaluate"),
        ("artifact.load_model", "load"),
        ("artifact.save_model", "save"),
        ("hub.pull_model", "pull"),
        ("hub.push_model", "push"),
        ("paths.mine_paths", "mine_paths"),
        ("paths.sample_paths", "sample_paths"),
        ("predict.Predictor", "Predictor"),
        ("recipes.recommend", "recommend"),
        ("runs.train", "train"),
        ("schema.coverage", "coverage"),
    ],
)
def test_old_import_paths_of_public_names_work(old, name):
    module, attribute = old.split(".")
    found = getattr(importlib.import_module(f"pathe.{module}"), attribute)
    assert found is getattr(pathe, name)


def test_idle_threads_do_not_spin_long():
    assert run_python("import pathe, os; print(os.environ['GOMP_SPINCOUNT'])").strip() == "10000"


def test_a_query_loads_neither_pandas_nor_lightning(tmp_path):
    """They would take a third of the time to the first answer."""
    code = """
import sys
from pathlib import Path
import pathe
place = Path(sys.argv[1]) / "g.tsv"
place.write_text("a\tr\tb\\nb\tr\tc\\n")
from pathe.core.config import Config
from pathe.model.artifact import Artifact, save_model
from pathe.model.builder import build_model
kg = pathe.KnowledgeGraph.read(place)
save_model(Path(sys.argv[1]) / "m", Artifact(build_model(Config(), 1), Config(), kg.relations))
p = pathe.Predictor(pathe.load(Path(sys.argv[1]) / "m"), kg)
assert p.tails("a", "r") and p.score([("a", "r", "c")]) and p.similar("a")
print([m for m in ("pandas", "lightning", "pykeen", "matplotlib", "sklearn") if m in sys.modules])
"""
    code = f"import sys; sys.argv = ['', {str(tmp_path)!r}]\n" + code
    assert run_python(code).strip() == "[]"


@pytest.mark.parametrize("model", [[], ["umls"]])
def test_a_command_loads_no_compiler_and_no_pandas(tmp_path, model):
    """torch's compiler and pandas would take half of the time to the first answer."""
    rows = [("a", "isa", "b"), ("b", "isa", "c"), ("c", "isa", "a"), ("a", "isa", "c")]
    (tmp_path / "g.csv").write_text("".join(f"{','.join(row)}\n" for row in rows))
    words = ["pathe", "predict", *(str(ROOT / "models" / name) for name in model)]
    words += ["--data", str(tmp_path / "g.csv"), "--head", "b", "--relation", "isa"]
    code = f"""
import sys
sys.argv = {words!r}
from pathe.cli.main import main
try:
    main()
except SystemExit as ended:
    assert not ended.code
slow = ("pandas", "lightning", "torch._dynamo", "torch.fx.experimental.symbolic_shapes", "sympy")
print([m for m in slow if m in sys.modules])
"""
    assert run_python(code).splitlines()[-1] == "[]"
