"""Reading ends in words where the system gives no more memory or threads."""

from __future__ import annotations

import threading

import pytest

from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.room import check_threads


@pytest.fixture
def few_threads(monkeypatch):
    """Lets two more threads start."""
    real, left = threading.Thread.start, [1, 1]

    def start(thread):
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)


def test_threads_that_cannot_start_are_told_and_the_others_end(few_threads):
    before = threading.active_count()
    with pytest.raises(MemoryError, match="5 threads are needed; 2 can be started"):
        check_threads(5)
    assert threading.active_count() == before


def test_threads_that_can_start_end(few_threads):
    before = threading.active_count()
    check_threads(2)
    assert threading.active_count() == before


def test_text_is_not_read_without_threads(few_threads, tmp_path):
    """Arrow would wait for them forever."""
    (tmp_path / "graph.tsv").write_text("a\tr\tb\n" * 3)
    check_threads(2)
    with pytest.raises(MemoryError):
        KnowledgeGraph.read(tmp_path / "graph.tsv")
