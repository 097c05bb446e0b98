"""Reading ends in words where the system gives no more memory or threads."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from support.folders import folder_of

from pathe.core.errors import PatheError
from pathe.data import delimited, room
from pathe.data.knowledge_graph import KnowledgeGraph


@pytest.fixture
def few_threads(monkeypatch):
    """Lets two more threads start."""
    room.check_threads.cache_clear()
    real, left = threading.Thread.start, [1, 1]

    def start(thread):
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    yield
    room.check_threads.cache_clear()


def test_text_is_not_read_without_threads(few_threads, monkeypatch, tmp_path):
    """Arrow would wait for them forever."""
    monkeypatch.setattr(pa, "cpu_count", lambda: 4)
    before = threading.active_count()
    folder_of(tmp_path / "data")
    with pytest.raises(PatheError, match=r"takes 5 threads, but only 2 can be started"):
        KnowledgeGraph.read(tmp_path / "data")
    assert threading.active_count() == before


def test_threads_are_started_once(few_threads, monkeypatch, tmp_path):
    monkeypatch.setattr(pa, "cpu_count", lambda: 1)
    before = threading.active_count()
    for _ in range(2):
        room.check_threads()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "error",
    [pa.ArrowException("Unknown error: Failed to launch worker thread"), OSError(12, "no memory")],
    ids=repr,
)
def test_too_little_memory_is_not_taken_for_a_damaged_file(monkeypatch, tmp_path, error):
    def fails(*given):
        raise error

    folder_of(tmp_path / "data")
    monkeypatch.setattr(delimited.pacsv, "open_csv", fails)
    with pytest.raises(type(error), match=str(error.args[-1])):
        KnowledgeGraph.read(tmp_path / "data")
