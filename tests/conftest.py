"""One thread for torch and Numba per test process: as many processes run as there are cores."""

import gc
import os

import pytest
from support.tally import pytest_runtest_logreport, pytest_terminal_summary, tally  # noqa: F401

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def pytest_collection_finish():
    """Spares the garbage collector what was imported, as the command line does."""
    gc.freeze()
    gc.set_threshold(200_000)


@pytest.fixture(autouse=True)
def _few_pictures(request, monkeypatch):
    """Leaves a file in place of a picture, such as the report of every run.

    Drawing it takes as long as the training of a small run. Tests that look at pictures of graphs,
    runs or searches are marked `pictures`, which leaves them as they are.
    """
    from pathe.reports import evidence_plot, plots

    assert evidence_plot.plot_figure  # has the real one already, and keeps it
    if not request.node.get_closest_marker("pictures"):
        monkeypatch.setattr(plots, "plot_figure", _not_drawn)


def _not_drawn(path, *_, **__):
    path.write_text("not drawn")


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
