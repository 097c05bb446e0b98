"""One thread for torch in each test process: as many processes run as there are cores."""

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")


@pytest.fixture
def encoded(monkeypatch):
    """How many entities were encoded, at each time."""
    from pathe import vectors  # after the environment is set

    counts: list[int] = []
    real = vectors.encode

    def spy(model, describe, entities, **more):
        counts.append(len(entities))
        return real(model, describe, entities, **more)

    monkeypatch.setattr(vectors, "encode", spy)
    return counts
