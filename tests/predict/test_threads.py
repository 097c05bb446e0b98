"""A predictor that threads share: no fact is lost, and every answer is of one graph."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.graphs import toy
from support.models import any_graph_predictor, predictor

from pathe.core.errors import PatheError, UnknownNameError

MAKERS = {
    "vectors": predictor,
    "bridges": lambda: predictor(bridge="paths", bridge_dim=6, bridge_hops=2),
    "any graph": any_graph_predictor,
}


def facts_of(thread: int, n: int) -> list[tuple[str, str, str]]:
    """Facts about new entities and between old ones, different ones for each thread."""
    rows = [(f"new{thread}-{i}", "r0", f"e{(7 * i + thread) % 60:04}") for i in range(n)]
    rows += [(f"e{i:04}", "r2", f"new{thread}-{i}") for i in range(n)]
    return rows


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_no_fact_is_lost_when_threads_add_and_ask_at_once(make):
    p, each = make(), 10
    before, over, asked = p.prepared.graph.n_triples, threading.Event(), []

    def add(thread: int) -> int:
        return sum(p.add([fact]) for fact in facts_of(thread, each))

    def ask(thread: int) -> int:
        n = 0
        while n < 3 or (not over.is_set() and n < 200):
            found = p.tails(f"e{(thread + n) % 60:04}", "r0", 5)
            asked.append(len(found))
            n += 1
        return n

    with ThreadPoolExecutor(8) as pool:
        readers = [pool.submit(ask, thread) for thread in range(4)]
        added = [job.result() for job in [pool.submit(add, thread) for thread in range(4)]]
        over.set()
        assert all(job.result() >= 3 for job in readers)
    assert added == [2 * each] * 4
    assert p.prepared.graph.n_triples == before + sum(added)
    assert len(p.entity_names) == p.prepared.n_entities == 60 + 4 * each
    assert set(asked) == {5}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_answers_in_the_end_are_those_of_a_predictor_that_one_thread_changed(make):
    shared, alone = make(), make()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda thread: shared.add(facts_of(thread, 5)), range(4)))
    order = [shared.entity_names[i] for i in range(60, 80)]
    threads = sorted(range(4), key=lambda thread: order.index(f"new{thread}-0"))
    for thread in threads:
        alone.add(facts_of(thread, 5))
    for p in (shared, alone):
        p.refresh()
    for query in (("new0-0", "r0", None), (None, "r2", "new3-4"), ("e0001", None, "e0002")):
        assert next(shared.answer([query], 5)) == next(alone.answer([query], 5))


def test_a_call_answers_from_the_graph_at_its_time():
    p = any_graph_predictor()
    first, wanted = p.answer([("e0001", "r0", None)] * 2, 60), p.tails("e0001", "r0", 60)
    rules = p.rules(k=2)
    p.add([("e0001", "r0", "brand-new"), ("brand-new", "r1", "e0001")])
    assert list(first) == [wanted, wanted]
    assert "brand-new" not in {answer.name for answer in wanted}
    assert list(rules) != []
    assert p.known_answers(("e0001", "r0", None))[-1] == "brand-new"


def test_a_change_that_fails_changes_nothing():
    p = predictor()
    before = p.tails("e0001", "r0", 60)
    for facts in ([("new", "r0", "e0001"), ("new", "unknown", "e0002")], [("new", "r0", "")]):
        with pytest.raises(PatheError):
            p.add(facts)
    with pytest.raises(PatheError):
        p.remove([("e0000", "r0", "e0001"), ("e0000", "r0", "e0030")])
    assert p.tails("e0001", "r0", 60) == before
    assert "new" not in p.entity_names
    with pytest.raises(UnknownNameError):
        p.tails("new", "r0")


def test_queries_do_not_wait_for_a_change(monkeypatch):
    p, inside, go = predictor(), threading.Event(), threading.Event()
    wanted = p.tails("e0001", "r0", 5)
    real = type(p)._replace_graph

    def slow(self, *given):
        inside.set()
        assert go.wait(60)
        real(self, *given)

    monkeypatch.setattr(type(p), "_replace_graph", slow)
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(p.add, [("e0001", "r0", "new")])
        assert inside.wait(60)
        assert p.tails("e0001", "r0", 5) == wanted
        go.set()
        assert change.result() == 1
    assert "new" in p.entity_names


def test_what_was_computed_is_kept_until_the_graph_changes(encoded):
    p = predictor()
    p.tails("e0001", "r0", 5)
    n = sum(encoded)
    p.tails("e0002", "r1", 5)
    assert sum(encoded) == n == 60
    judge = p._judge()
    assert p._judge() is judge
    p.classify([("e0001", "r0", "e0002")])
    assert p._judged is judge
    p.add([("e0001", "r0", "new")])
    assert p._judged is None


def test_threads_share_one_encoding_of_all_entities(encoded):
    p = predictor(toy())
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda i: p.tails("e0001", "r0", 5), range(12)))
    assert all(one == found[0] for one in found)
    assert sum(encoded) == 60
