"""Vectors of entities from their surroundings."""

from __future__ import annotations

import math

import pytest
import torch
from support.graphs import DEVICES, kg_of, toy

from pathe.core.randomness import keyed, name_keys
from pathe.graph import context_vectors as module
from pathe.graph.context_vectors import ANY, ENTITY, INTO, OUT_OF, WIDTH, context_vectors, signs
from pathe.graph.prepared import PreparedGraph


def vectors_of(kg, device="cpu"):
    keys = (name_keys(names).to(device) for names in (kg.entities, kg.relations))
    return context_vectors(PreparedGraph(kg, device), *keys)


def by_name(kg):
    return dict(zip(kg.entities, vectors_of(kg), strict=True))


def sign(purpose, *names):
    return signs(keyed(purpose, *(name_keys([name]) for name in names)).reshape(1))[0]


def length_one(x):
    return x / x.norm()


def test_a_small_graph_by_hand():
    """Edges a -r-> b, c -r-> b and b -s-> c, along which b gets two r and an inverse s."""
    r, s = sign(INTO, "r"), sign(INTO, "s")
    from_r, from_s = sign(OUT_OF, "r"), sign(OUT_OF, "s")
    sent = {name: (sign(ANY) + 2 * sign(ENTITY, name)).roll(1) for name in "abc"}
    log2, log3 = math.log(2), math.log(3)

    def arriving(sent):
        return {
            "a": log2 * from_r * sent["b"],
            "b": log3 * r * (sent["a"] + sent["c"]) / 2 + log2 * from_s * sent["c"],
            "c": log2 * from_r * sent["b"] + log2 * s * sent["b"],
        }

    first = {name: length_one(x) for name, x in arriving(sent).items()}
    second = arriving({name: x.roll(1) for name, x in first.items()})
    found = by_name(kg_of("a r b; c r b; b s c"))
    for name in "abc":
        expected = torch.cat([first[name], length_one(second[name])]) / math.sqrt(2)
        torch.testing.assert_close(found[name], expected)
        assert float(found[name].norm()) == pytest.approx(1)


def test_signs_are_balanced_and_unrelated():
    found = signs(keyed(ENTITY, torch.arange(2000)))
    assert found.shape == (2000, WIDTH)
    assert set(found.unique().tolist()) == {-1, 1}
    assert found.mean(0).abs().max() < 0.15  # over six standard deviations
    near = found[:200] @ found[:200].T / WIDTH
    assert near.fill_diagonal_(0).abs().max() < 0.55


def test_entities_with_the_same_edges_have_the_same_vector():
    found = by_name(kg_of("a r x; b r x; a s y; b s y; c r x; c s z; x q y"))
    torch.testing.assert_close(found["a"], found["b"])
    assert float(found["a"] @ found["c"]) < 0.95


def test_the_direction_of_edges_counts():
    found = by_name(kg_of("; ".join(f"h{i} r x; y r t{i}; z r u{i}" for i in range(20))))
    assert float(found["y"][:WIDTH] @ found["z"][:WIDTH]) > 0.3  # of at most 0.5
    assert abs(float(found["x"][:WIDTH] @ found["y"][:WIDTH])) < 0.15


def test_the_order_of_relations_counts():
    """Two paths to the same entity: of the same relations, in the same order or the other one."""
    found = by_name(kg_of("a r m; m s z; b r n; n s z; c s o; o r z"))
    assert float(found["a"][WIDTH:] @ found["b"][WIDTH:]) > 0.15  # of at most 0.5
    assert abs(float(found["a"][WIDTH:] @ found["c"][WIDTH:])) < 0.1


def test_an_entity_without_training_triples_has_zeros():
    found = by_name(kg_of("a r b; b r c", "", "d r a"))
    assert not found["d"].any()
    assert all(float(found[name].norm()) == pytest.approx(1) for name in "abc")


def test_a_vector_depends_on_two_edges_around_it_only():
    near = "a r b; b s c; c s b"
    one, two = by_name(kg_of(near)), by_name(kg_of(f"{near}; c r d; d q e; 0 q 1"))
    torch.testing.assert_close(one["a"], two["a"])
    assert not torch.allclose(one["b"], two["b"])


@pytest.mark.parametrize("device", DEVICES)
def test_chunks_and_devices_change_nothing(device, monkeypatch):
    whole = vectors_of(toy())
    monkeypatch.setattr(module, "SLOTS", 7)
    torch.testing.assert_close(vectors_of(toy(), device).cpu(), whole, atol=1e-6, rtol=1e-5)
