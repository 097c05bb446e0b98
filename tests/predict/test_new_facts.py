"""Facts and entities added to a graph in use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.graphs import knowledge_graph, toy
from support.models import any_graph_predictor, predictor

from pathe.core.errors import UnknownNameError
from pathe.core.types import PARTS
from pathe.data.vocabulary import Vocabulary


def test_what_is_named_is_up_to_date_in_either_place():
    kg, grown = toy(), enlarged()
    p, fresh = predictor(kg), predictor(grown)
    p.warm()
    p.add(NEW)
    triple = ("e0050", "r0", "e0041")
    assert p.score([triple])[0].score == pytest.approx(fresh.score([triple])[0].score, abs=1e-6)


def test_many_facts_at_once_are_put_in_as_few_are():
    kg = toy()
    facts = [(f"n{i}", f"r{i % 3}", f"e{i % 60:04}") for i in range(400)]
    at_once, in_parts = predictor(kg), predictor(kg)
    assert at_once.add(facts) == 400
    assert sum(in_parts.add(facts[i : i + 100]) for i in range(0, 400, 100)) == 400
    for part in ("outgoing", "incoming"):
        for name in ("offsets_E1", "neighbours_M", "relations_M", "triples_M"):
            ours, theirs = (
                getattr(getattr(p.prepared.graph, part), name) for p in (at_once, in_parts)
            )
            assert torch.equal(ours, theirs)
    assert at_once.add(facts) == 0


def test_adding_keeps_no_gradients():
    p = predictor()
    p.tails("e0001", "r1")
    p.add([("new", "r0", "e0003")])
    assert not p.scorer.vectors.candidates("tail").requires_grad


NEW = [("zz new", "r0", "e0010"), ("e0020", "r1", "zz new"), ("zz new", "r2", "zz other"),
       ("e0030", "r2", "e0040"), ("e0030", "r2", "e0040")]  # fmt: skip


def enlarged():
    """The toy graph with the new facts, read as one: the new names sort last."""
    kg = toy()
    names = [*kg.entities, "zz new", "zz other"]
    ids = {name: i for i, name in enumerate(names)}
    rows = [(ids[h], kg.relations.id(r), ids[t]) for h, r, t in NEW]
    grown = knowledge_graph([*kg.train.tolist(), *rows], kg.valid.tolist(), kg.test.tolist())
    return replace(grown, entities=Vocabulary(names))


@pytest.mark.parametrize("source", ["fresh", "mined"])
@pytest.mark.parametrize("aggregator", ["transformer", "transformer-joint"])
@pytest.mark.parametrize("also", [{}, {"neighbour_contexts": True}, {"path_form": "joined"}])
def test_new_facts_give_what_a_new_graph_gives(source, aggregator, also):
    more = {"path_source": source, "hold_out_batch": False, "n_mined": 3, "aggregator": aggregator}
    more |= also
    kg, grown = toy(), enlarged()
    p, fresh = predictor(kg, **more), predictor(grown, **more)
    p.warm()
    assert p.add(NEW) == 4
    ours, theirs = p.prepared, fresh.prepared
    pairs = [(ours.graph, theirs.graph)]
    pairs += [(ours.known().lists(part), theirs.known().lists(part)) for part in PARTS]
    for one, other in pairs:
        for a, b in zip(one.tensors(), other.tensors(), strict=True):
            assert torch.equal(a, b)
    named_in_facts = ["zz new", "zz other", "e0010", "e0020", "e0030", "e0040"]
    assert np.allclose(p.embed(named_in_facts), fresh.embed(named_in_facts), atol=1e-6)
    # an entity that is queried is up to date at once, in embedding and as a head
    assert np.allclose(p.embed(["e0011"]), fresh.embed(["e0011"]), atol=1e-6)
    before = p.tails("zz new", "r0", 100)
    assert "e0010" not in [a.name for a in before]  # known now
    assert "zz other" in [a.name for a in before]
    p.refresh()
    after, wanted = p.tails("zz new", "r0", 100), fresh.tails("zz new", "r0", 100)
    assert [a.name for a in after] == [a.name for a in wanted]
    assert [a.score for a in after] == pytest.approx([a.score for a in wanted], abs=1e-5)
    assert np.allclose(p.embed(), fresh.embed(), atol=1e-6)


def test_adding_encodes_only_what_is_named(encoded):
    p = predictor()
    p.tails("e0001", "r1")
    p.heads("r1", "e0001")
    encoded.clear()
    p.add([("new one", "r0", "e0003"), ("new one", "r1", "e0004")])
    assert encoded == [3]
    p.tails("new one", "r2")
    assert encoded == [3]
    p.tails("e0050", "r2")  # queried: brought up to date by itself
    p.tails("e0050", "r2")
    assert encoded == [3, 1]


def test_adding_what_is_there_changes_nothing():
    kg = toy()
    p = predictor(kg)
    fact = tuple(
        v[i] for v, i in zip((kg.entities, kg.relations, kg.entities), kg.train[0].tolist(),
                             strict=True)
    )  # fmt: skip
    z = p.embed()
    assert p.add([fact]) == 0
    assert p.add([]) == 0
    assert np.array_equal(p.embed(), z)
    held = [(kg.entities[h], kg.relations[r], kg.entities[t]) for h, r, t in kg.test[:1].tolist()]
    assert p.add(held) == 1  # known, but it described no entity so far
    everything = torch.cat([kg.train, kg.valid, kg.test])
    assert len(p.prepared.known().lists("tail").codes_V1) == len(everything) + 1


def test_a_misspelt_new_name_is_found_again():
    p = predictor()
    p.add([("Ouagadougou", "r0", "e0003")])
    with pytest.raises(UnknownNameError, match="Closest: 'Ouagadougou'"):
        p.tails("Ougadougou", "r0")


def test_an_entity_that_was_encoded_alone_is_described_anew():
    """Vectors that were encoded before all were needed must not outlive a fact about them."""
    kg = toy()
    p, fresh = predictor(kg), predictor(kg)
    p.embed("e0001")  # one row, before any query
    facts = [("e0001", "r2", "e0030"), ("e0001", "r0", "new one")]
    for made in (p, fresh):
        made.add(facts)
    ours, theirs = (made.tails("e0005", "r1", 60) for made in (p, fresh))
    scores = {answer.name: answer.score for answer in theirs}
    assert {answer.name: answer.score for answer in ours} == pytest.approx(scores, abs=1e-5)
    np.testing.assert_allclose(p.embed("e0001"), fresh.embed("e0001"), atol=1e-6)


def test_cached_candidates_follow_added_and_removed_facts():
    """All kinds are asked before, so that whatever is cached would be stale."""
    queries = [(f"e00{i}", f"r{i % 3}", None) for i in range(10, 22)]
    p, grown = any_graph_predictor(toy()), any_graph_predictor(enlarged())

    def scores(own):
        found = own.answer(queries, 100, filter_known=False, plausible=False)
        return [{a.name: a.score for a in one if not a.name.startswith("zz")} for one in found]

    before, wanted = scores(p), scores(grown)
    assert p.add(NEW) == 4
    after = scores(p)
    assert after == [pytest.approx(one, abs=1e-4) for one in wanted]
    assert after != [pytest.approx(one, abs=1e-4) for one in before]
    p.remove(NEW)
    assert scores(p) == [pytest.approx(one, abs=1e-4) for one in before]
