"""A model answers on a prepared folder as on the files it was made from."""

from __future__ import annotations

import pytest
from support.places import ROOT
from support.prepared import prepare_data, tiny_pieces

import pathe


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Predictors on the same graph, from a file and from a folder."""
    place = tmp_path_factory.mktemp("prepared")
    data = ROOT / "examples" / "europe.csv"
    with tiny_pieces(rows=50, names=20):
        prepare_data(data, place / "europe", split=(0.8, 0.1, 0.1))
    read = pathe.KnowledgeGraph.read(data, split=(0.8, 0.1, 0.1))
    return pathe.Predictor(pathe.load(), read), pathe.Predictor(str(place / "europe"))


def test_answers_are_the_same(both):
    files, folder = both
    for ask in (
        lambda p: p.tails("Paris", "capital of", k=5),
        lambda p: p.heads("borders", "France", k=5),
        lambda p: p.relations("Strasbourg", "Rhine", k=5),
        lambda p: p.score([("Paris", "capital of", "France"), ("Rome", "borders", "Rhine")]),
        lambda p: p.similar("Vienna", k=5),
        lambda p: p.explain("Paris", "capital of", "France"),
    ):
        assert ask(files) == ask(folder)


def test_changed_graphs_are_the_same(both):
    files, folder = both
    for change in (
        lambda p: p.add([("New Town", "lies on", "Rhine"), ("New Town", "borders", "France")]),
        lambda p: p.remove([("Vienna", "capital of", "Austria")]),
    ):
        change(files)
        change(folder)
        assert files.tails("Vienna", "lies on", k=5) == folder.tails("Vienna", "lies on", k=5)
    assert files.tails("New Town", "lies on", k=5) == folder.tails("New Town", "lies on", k=5)
