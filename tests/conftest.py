"""One thread for torch and Numba per test process: as many processes run as there are cores."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")


@pytest.fixture(autouse=True)
def _few_pictures(request, monkeypatch):
    """Composes PNG pictures, such as the report of every run, without painting them.

    Painting takes as long as the training of a small run. Tests that look at a PNG are marked
    `pictures`, which leaves it as it is.
    """
    if request.node.get_closest_marker("pictures"):
        return
    from matplotlib.figure import Figure

    real = Figure.savefig

    def savefig(figure, path, *, format, **options):
        if format == "png":
            Path(path).write_bytes(b"not painted")
        else:
            real(figure, path, format=format, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)


@pytest.fixture
def encoded(monkeypatch):
    """The number of entities that were encoded, each time."""
    from pathe.model import vectors

    counts: list[int] = []
    real = vectors.encode

    def spy(model, featurizer, entities, **more):
        counts.append(len(entities))
        return real(model, featurizer, entities, **more)

    monkeypatch.setattr(vectors, "encode", spy)
    return counts
