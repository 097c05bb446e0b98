"""Readers without the optional package that they need."""

import sys
from pathlib import Path

import pytest

from pathe.core.errors import PatheError
from pathe.data.knowledge_graph import KnowledgeGraph


@pytest.mark.parametrize(
    ("module", "data", "message"),
    [
        ("pyoxigraph", "x.nt", "x.nt: reading RDF needs pyoxigraph: pip install 'pathe[rdf]'."),
        (
            "pykeen.datasets",
            "umls",
            "umls: no such file or folder; loading a data set by its name needs pykeen: "
            "pip install 'pathe[datasets]'.",
        ),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, data: str, message: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    Path("x.nt").write_text("<http://x/a> <http://x/r> <http://x/b> .\n")
    with pytest.raises(PatheError) as caught:
        KnowledgeGraph.read(data)
    assert str(caught.value) == message


def test_files_are_read_without_the_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pykeen", "pyoxigraph"):
        monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / "x.csv"
    path.write_text("head,relation,tail\na,r,b\n")
    assert len(KnowledgeGraph.read(path).train) == 1
