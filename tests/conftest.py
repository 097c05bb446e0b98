"""One thread for torch and Numba per test process: as many processes run as there are cores."""

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")


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
