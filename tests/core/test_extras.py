"""Optional dependencies: the error for each says what needs it and how to install it."""

import ast
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

import pathe
from pathe.core.errors import PatheError
from pathe.core.extras import require


def test_an_installed_module_is_returned() -> None:
    assert require("json.decoder", "all", "Reading JSON") is sys.modules["json.decoder"]


def test_a_missing_module_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "absent", None)
    with pytest.raises(PatheError) as caught:
        require("absent.part", "rdf", "Reading RDF")
    assert str(caught.value) == "Reading RDF needs absent: pip install 'pathe[rdf]'."


def test_every_extra_in_the_code_can_be_installed() -> None:
    used = set()
    for path in Path(pathe.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require":
                used.add(ast.literal_eval(node.args[1]))
    assert {"datasets", "rdf"} <= used <= set(metadata("pathe").get_all("Provides-Extra") or [])
