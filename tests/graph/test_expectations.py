from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from support.graphs import graph_of, triple_lists

from pathe.graph import expectations as module
from pathe.graph.adjacency import build_graph
from pathe.graph.expectations import PENALTY, expectations


def kinds_of(rows, n_entities, n_relations):
    """Which kinds of edges each entity has, as a matrix of counts: the plain version."""
    counts = np.zeros((n_entities, 2 * n_relations))
    for h, r, t in rows:
        counts[h, r] += 1
        counts[t, r + n_relations] += 1
    return counts


def plain(counts):
    """Predicts each kind from the others by its own ridge regression."""
    x = (counts > 0).astype(float)
    predicted = np.zeros_like(x)
    for k in range(x.shape[1]):
        others = np.delete(x, k, 1)
        gram = others.T @ others + PENALTY * np.eye(others.shape[1])
        predicted[:, k] = others @ np.linalg.solve(gram, others.T @ x[:, k])
    return predicted


@settings(max_examples=30, deadline=None)
@given(triple_lists())
def test_predictions_are_those_of_one_regression_per_kind(graph):
    rows, n_entities, n_relations = graph
    triples = torch.tensor(sorted(rows), dtype=torch.int32).view(-1, 3)
    found = expectations(build_graph(triples, n_entities, n_relations))
    counts = kinds_of(rows, n_entities, n_relations)
    wanted = plain(counts)
    entities, kinds = torch.cartesian_prod(
        torch.arange(n_entities), torch.arange(2 * n_relations)
    ).unbind(1)
    predicted = found.predicted(entities, kinds).view(n_entities, -1)
    np.testing.assert_allclose(predicted.numpy(), wanted, atol=1e-4)
    np.testing.assert_array_equal(found.counts(entities, kinds).view(n_entities, -1), counts)
    for kind in range(2 * n_relations):
        np.testing.assert_allclose(found.all_predicted(kind).numpy(), wanted[:, kind], atol=1e-4)


def test_an_entity_that_lacks_what_its_like_have_is_expected_to_have_it():
    """30 people are born somewhere and 25 of them have a nationality; cities have neither."""
    people, cities = range(30), range(30, 40)
    rows = [(p, 0, 30 + p % 10) for p in people] + [(p, 1, 41) for p in people if p < 25]
    rows += [(c, 2, 41) for c in cities]
    found = expectations(graph_of(rows))
    expected = found.all_predicted(1)
    assert expected[25:30].min() > 0.5
    assert expected[30:40].max() < 0.1


def test_rows_and_kinds_at_once_change_nothing(monkeypatch):
    rows = [(i, i % 3, (7 * i + 1) % 40) for i in range(40)]
    whole = expectations(graph_of(rows))
    monkeypatch.setattr(module, "ROWS", 7)
    assert torch.allclose(whole.weights_KK, expectations(graph_of(rows)).weights_KK, atol=1e-6)
    monkeypatch.setattr(module, "MOST", 4)
    few = expectations(graph_of(rows)).weights_KK
    assert int((few != 0).any(1).sum()) <= 4


def test_a_graph_of_one_triple():
    found = expectations(graph_of([(0, 0, 1)]))
    assert found.counts(torch.tensor([0, 1]), torch.tensor([0, 1])).tolist() == [1, 1]
    assert found.predicted(torch.tensor([0]), torch.tensor([0])).item() == pytest.approx(0)
