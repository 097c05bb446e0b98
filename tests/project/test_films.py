"""The films graph of the examples: its gaps follow from its rules, its wrong facts contradict."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict

import pytest
from support.films import films, films_script
from support.places import ROOT

SINGLE = ("nationality", "born_in", "country", "language", "located_in", "directed_by")


def read(name: str) -> list[tuple[str, ...]]:
    with (ROOT / "examples" / name).open(encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)]


def ends(triples: set[tuple[str, str, str]], start: str, pattern: list[str]) -> set[str]:
    """The entities that a path of these relations leads to, written apart from the script."""
    found = {start}
    for step in pattern:
        back, relation = step.startswith("^"), step.lstrip("^")
        pairs = [(t, h) if back else (h, t) for h, r, t in triples if r == relation]
        found = {b for a, b in pairs if a in found}
    return found


def test_the_files_are_what_the_script_writes():
    graph = films()
    assert read("films.csv") == [("head", "relation", "tail"), *graph.triples]
    assert read("films-types.csv") == [("entity", "type"), *sorted(graph.types.items())]


@pytest.mark.parametrize("seed", range(3))
def test_counts(seed):
    graph = films(seed)
    assert 2500 < len(graph.triples) < 2900
    assert len(graph.triples) == len(set(graph.triples))
    assert Counter(r for _, r, _ in graph.gaps) == films_script().GAPS
    assert Counter(r for _, r, _ in graph.wrong) == films_script().WRONG
    assert 0.008 < len(graph.wrong) / len(graph.triples) < 0.012
    assert {e for h, _, t in graph.triples for e in (h, t)} <= set(graph.types)


@pytest.mark.parametrize("seed", range(3))
def test_every_gap_follows_from_facts_that_are_present(seed):
    graph = films(seed)
    present = set(graph.triples)
    assert not present & set(graph.gaps)
    assert set(graph.reasons) == set(graph.gaps)
    for head, relation, tail in graph.gaps:
        found = ends(present, head, graph.reasons[head, relation, tail])
        assert tail in found
        assert found == {tail} or relation == "works_with"
        if relation in SINGLE:  # a gap: there is no other answer
            assert not ends(present, head, [relation])


@pytest.mark.parametrize("seed", range(3))
def test_every_wrong_fact_contradicts_a_right_one(seed):
    graph = films(seed)
    present, replaced = set(graph.triples), 0
    assert set(graph.wrong) <= present
    for fact, right in graph.instead.items():
        assert graph.types[fact[0]] == graph.types[right[0]]
        assert graph.types[fact[2]] == graph.types[right[2]]
        assert fact[1] == right[1]
        if fact[1] == "capital_of":
            assert fact[0] != right[0]
            assert fact[2] == right[2]
        else:
            assert fact[0] == right[0]
            assert fact[2] != right[2]
        replaced += right not in present
    assert replaced == 2
    single = defaultdict(set)  # nothing else contradicts
    for head, relation, tail in present - set(graph.wrong):
        single[head, relation].add(tail)
    assert all(len(own) == 1 for (_, r), own in single.items() if r in SINGLE)


def test_rules_hold_for_most_people_but_not_for_all():
    graph = films()
    present = set(graph.triples) - set(graph.wrong)
    follow = [
        tail in found
        for head, relation, tail in sorted(present)
        if relation == "nationality" and (found := ends(present, head, ["born_in", "located_in"]))
    ]
    assert 0.8 < sum(follow) / len(follow) < 0.95


def test_names_need_quoting():
    names = " ".join(films().types)
    for sign in (",", '"', "'", "京", "의", "ź", "Þ"):
        assert sign in names
