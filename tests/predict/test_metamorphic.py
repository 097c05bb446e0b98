"""What must not change scores, and what must change them in a known way, for each kind of model.

Exactly means bit for bit. Up to rounding means within 1e-4: ids decide the order of additions.

| change | relation-free model | bridges of a table model | entity vectors |
|---|---|---|---|
| lines in another order, or repeated | exactly | exactly | exactly |
| names that keep their order | exactly | exactly | exactly |
| other names, thus other ids | rounding | rounding | rounding, given the same paths |
| a component of its own, sorted last | rounding (*) | rounding | rounding |
| a component of its own, sorted first | rounding (*) | rounding | rounding, given the same paths |
| some relations reversed, in queries too | rounding | rounding, weights exchanged (**) | no |

Draws of paths depend on ids, so that other ids give other paths, as another seed does. (*) If its
relations are its own, or if it is a copy of the graph: shares of a relation's entities are what the
model sees of it. (**) The rows of both directions of the table. The projector and the head have
different weights for incoming and outgoing edges, so there is no such equality for them.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from support.models import artifact_of
from torch import Tensor

from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.paths import Paths, sample_paths
from pathe.graph.prepared import PreparedGraph
from pathe.model import featurizer, scorer
from pathe.model.artifact import Artifact, load_model
from pathe.model.bridge import TableBridge
from pathe.model.builder import build_scorer
from pathe.model.scorer import Scorer
from pathe.predict.predictor import Predictor

Row = tuple[str, str, str]
Scores = dict[str, Tensor]  # (entity, relation, candidate), by the side that is predicted
PUBLISHED = {
    "path_form": "joined", "positions": "absolute", "aggregator": "transformer",
    "context_counts": "raw", "neighbour_contexts": True,
}  # fmt: skip
MODELS: dict[str, Callable[[KnowledgeGraph], Artifact]] = {
    "bridges": lambda kg: artifact_of(kg, bridge="paths", bridge_dim=6, bridge_hops=3),
    "published": lambda kg: artifact_of(kg, **PUBLISHED),
    "relation-free": lambda kg: load_model(),
}
VECTORS = ("bridges", "published")
R = 5  # relations; no other size of a model is 5, 10 or 11
every_model = pytest.mark.parametrize("model", MODELS)
seeds = pytest.mark.parametrize("seed", [0, 1, 2])


def facts(seed: int, n_entities: int = 18, n: int = 60, mark: str = "") -> list[Row]:
    """A random graph with hubs, loops and parallel edges, in which all relations occur."""
    draw = random.Random(seed)
    ends = [f"{mark}e{int(n_entities * draw.random() ** 1.5):02}" for _ in range(2 * n)]
    rows = [(ends[2 * i], f"{mark}r{i % R}", ends[2 * i + 1]) for i in range(n)]
    return list(dict.fromkeys([*rows, (rows[0][0], f"{mark}r1", rows[0][0])]))


def graph_of(rows: list[Row]) -> KnowledgeGraph:
    return KnowledgeGraph.from_triples(rows)


def scorer_of(artifact: Artifact, kg: KnowledgeGraph) -> Scorer:
    return build_scorer(artifact.model, artifact.config, PreparedGraph(kg))


def link_scores(artifact: Artifact, kg: KnowledgeGraph) -> Scores:
    """The scores of all entities in all queries."""
    made, n, r = scorer_of(artifact, kg), kg.n_entities, kg.n_relations
    entities_B, relations_B = torch.arange(n).repeat_interleave(r), torch.arange(r).repeat(n)
    return {
        side: made.links(entities_B, relations_B, side).view(n, r, n) for side in ("head", "tail")
    }


def relation_scores(artifact: Artifact, kg: KnowledgeGraph) -> Tensor:
    """The scores (head, tail, relation) of all pairs."""
    n = kg.n_entities
    heads_B, tails_B = torch.arange(n).repeat_interleave(n), torch.arange(n).repeat(n)
    return scorer_of(artifact, kg).relations(heads_B, tails_B).view(n, n, -1)


def assert_near(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


class Renaming:
    """A graph with other names, and where its entities and relations are now."""

    def __init__(self, rows: list[Row], names: dict[str, str]) -> None:
        self.kg = graph_of(rows)
        self.other = graph_of([(names[h], names[r], names[t]) for h, r, t in rows])
        self.entities_E, self.relations_R = (
            torch.tensor([new.id(names[name]) for name in old])
            for old, new in (
                (self.kg.entities, self.other.entities),
                (self.kg.relations, self.other.relations),
            )
        )

    def back(self, scores: Scores) -> Scores:
        """Scores of the other graph, in the order of this one's ids."""
        e, r = self.entities_E, self.relations_R
        return {side: found[e][:, r][:, :, e] for side, found in scores.items()}

    def artifact(self, artifact: Artifact) -> Artifact:
        """The model for the other graph: the rows of its relations have moved."""
        if artifact.relations is None:
            return artifact
        rows_R = self.relations_R.argsort()
        rows_2R = torch.cat([rows_R, rows_R + R])
        return with_rows(artifact, {R: rows_R, 2 * R: rows_2R}, self.other)

    def paths(self, graph: Any, entities_U: Tensor, *given: Any, **more: Any) -> Paths:
        """Paths of the other graph: those of this one, renamed."""
        own = PreparedGraph(self.kg).graph
        found = sample_paths(own, self.entities_E.argsort()[entities_U], *given, **more)
        is_relation_T = (torch.arange(found.tokens_UKT.shape[-1]) - found.focus) % 2 == 1
        old = found.tokens_UKT.long()
        entities = self.entities_E[old.clamp(max=len(self.entities_E) - 1)]
        relations = self.relations_R[old.clamp(max=len(self.relations_R) - 1)]
        tokens_UKT = torch.where(is_relation_T, relations, entities).int()
        return replace(found, tokens_UKT=tokens_UKT.masked_fill(~found.mask_UKT, 0))


def with_rows(artifact: Artifact, rows: dict[int, Tensor], kg: KnowledgeGraph) -> Artifact:
    """A table model whose weights of relations, known by their number, are in another order."""
    rows = rows | {2 * R + 1: torch.cat([rows[2 * R], torch.tensor([2 * R])])}
    model = copy.deepcopy(artifact.model)
    for weight in model.parameters():
        for axis, size in enumerate(weight.shape):
            if size in rows:
                weight.data = weight.data.index_select(axis, rows[size])
    return replace(artifact, model=model, relations=kg.relations)


def other_names(rows: list[Row], seed: int, keeps_order: bool) -> dict[str, str]:
    """New names, some of them not ASCII, in the same order or in another."""
    draw, found = random.Random(seed), {}
    for i, name in enumerate(sorted({name for row in rows for name in row})):
        start = f"n{i:03}" if keeps_order else draw.choice(["a", "z", "Ä", "日", "_ "])
        found[name] = f"{start}{draw.getrandbits(40):x}"
    return found


@every_model
def test_the_order_and_repetition_of_lines_change_nothing(tmp_path, model):
    rows = facts(0)
    valid, test, train = rows[:6], rows[6:12], rows[12:]
    graphs = []
    for seed in range(3):
        draw, folder = random.Random(seed), tmp_path / str(seed)
        folder.mkdir()
        for split, own in (("train", train), ("valid", valid), ("test", test)):
            lines = ["\t".join(row) + "\n" for row in own]
            if seed:
                lines += draw.sample(lines, 3)
                draw.shuffle(lines)
            (folder / f"{split}.tsv").write_text("".join(lines))
        graphs.append(KnowledgeGraph.read(folder))
    first = graphs[0]
    wanted = link_scores(MODELS[model](first), first)
    for kg in graphs[1:]:
        assert kg.fingerprint() == first.fingerprint()
        assert kg.report.duplicates == 9
        found = link_scores(MODELS[model](kg), kg)
        assert all(torch.equal(found[side], wanted[side]) for side in wanted)


@seeds
@every_model
def test_names_that_keep_their_order_change_nothing(model, seed):
    rows = facts(seed)
    made = Renaming(rows, other_names(rows, seed, keeps_order=True))
    artifact = MODELS[model](made.kg)
    ours, theirs = (link_scores(artifact, kg) for kg in (made.kg, made.other))
    assert all(torch.equal(theirs[side], ours[side]) for side in ours)
    between = (relation_scores(artifact, kg) for kg in (made.kg, made.other))
    assert torch.equal(*between)


@seeds
@every_model
def test_other_names_permute_the_scores(model, seed):
    """Of entity vectors given the same paths: draws of paths depend on ids."""
    rows = facts(seed)
    made = Renaming(rows, other_names(rows, seed, keeps_order=False))
    assert made.entities_E.tolist() != sorted(made.entities_E.tolist())
    assert made.relations_R.tolist() != sorted(made.relations_R.tolist())
    artifact = MODELS[model](made.kg)
    theirs = made.artifact(artifact)
    wanted, between = link_scores(artifact, made.kg), relation_scores(artifact, made.kg)
    with mock.patch.object(featurizer, "sample_paths", made.paths):
        found = made.back(link_scores(theirs, made.other))
        found_EER = relation_scores(theirs, made.other)
    for side in wanted:
        assert_near(found[side], wanted[side])
    e, r = made.entities_E, made.relations_R
    assert_near(found_EER[e][:, e][:, :, r], between)


@seeds
def test_other_names_permute_the_scores_of_bridges_whatever_the_paths(seed):
    rows = facts(seed)
    made = Renaming(rows, other_names(rows, seed, keeps_order=False))
    artifact = MODELS["bridges"](made.kg)
    wanted, found = (
        bridge_scores(own, kg)
        for own, kg in ((artifact, made.kg), (made.artifact(artifact), made.other))
    )
    kinds_2R = torch.cat([made.relations_R, made.relations_R + R])
    e = made.entities_E
    assert_near(found[e][:, kinds_2R][:, :, e], wanted)


def bridge_scores(artifact: Artifact, kg: KnowledgeGraph) -> Tensor:
    """The bridges' scores (entity, kind, candidate) of a table model."""
    prepared, n, k = PreparedGraph(kg), kg.n_entities, 2 * R
    bridge = artifact.model.bridge
    assert isinstance(bridge, TableBridge)
    entities_B, kinds_B = torch.arange(n).repeat_interleave(k), torch.arange(k).repeat(n)
    with torch.no_grad():
        found_BE = bridge.links(prepared.edges, prepared.edges.keep(), entities_B, kinds_B)
    return found_BE.view(n, k, n)


def test_answers_and_probabilities_follow_their_names():
    rows = facts(3)
    names = other_names(rows, 3, keeps_order=False)
    one, two = (Predictor(kg) for kg in (graph_of(rows), Renaming(rows, names).other))
    for head, relation, _ in rows[::9]:
        ours = {names[a.name]: a for a in one.tails(head, relation, 99, filter_known=False)}
        theirs = two.tails(names[head], names[relation], 99, filter_known=False)
        assert {a.name for a in theirs} == ours.keys()
        for answer in theirs:
            assert answer.score == pytest.approx(ours[answer.name].score, abs=1e-3)
            assert answer.probability == pytest.approx(ours[answer.name].probability, abs=1e-4)
            assert answer.known == ours[answer.name].known


def within(scores: Scores, some: KnowledgeGraph, whole: KnowledgeGraph) -> Scores:
    """The scores of a graph's entities and relations within a larger graph."""
    e = torch.tensor([whole.entities.id(name) for name in some.entities])
    r = torch.tensor([whole.relations.id(name) for name in some.relations])
    return {side: found[e][:, r][:, :, e] for side, found in scores.items()}


@pytest.mark.parametrize("mark", ["A", "z"])  # sorted first, last
@pytest.mark.parametrize("relations", ["own", "copy"])
@seeds
def test_a_component_of_its_own_leaves_relation_free_scores_alone(mark, relations, seed):
    rows = facts(seed)
    kg, artifact = graph_of(rows), load_model()
    more = facts(seed + 7, 30, 90, mark)
    if relations == "copy":
        more = [(mark + h, r, mark + t) for h, r, t in rows]
    whole = graph_of([*rows, *more])
    wanted, found = link_scores(artifact, kg), within(link_scores(artifact, whole), kg, whole)
    for side in wanted:
        assert_near(found[side], wanted[side])


@seeds
@pytest.mark.parametrize("model", VECTORS)
def test_a_component_that_is_sorted_last_leaves_table_models_alone(model, seed):
    rows = facts(seed)
    kg, more = graph_of(rows), facts(seed + 7, 30, 90)
    whole = graph_of([*rows, *(("z" + h, r, "z" + t) for h, r, t in more)])
    artifact = MODELS[model](kg)
    wanted, found = link_scores(artifact, kg), within(link_scores(artifact, whole), kg, whole)
    for side in wanted:
        assert_near(found[side], wanted[side])


@seeds
@pytest.mark.parametrize("model", VECTORS)
def test_a_component_that_is_sorted_first_changes_draws_of_paths_alone(model, seed):
    rows = facts(seed)
    kg, more = graph_of(rows), facts(seed + 7, 30, 90)
    whole = graph_of([*rows, *(("A" + h, r, "A" + t) for h, r, t in more)])
    artifact = MODELS[model](kg)
    n = whole.n_entities - kg.n_entities
    wanted, own = link_scores(artifact, kg), PreparedGraph(kg).graph
    old = torch.arange(kg.n_entities)

    def paths(graph: Any, entities_U: Tensor, *given: Any, **more: Any) -> Paths:
        """The component's own paths, and those of the smaller graph, shifted."""
        first_U = entities_U < n
        found = sample_paths(graph, entities_U, *given, **more)
        smaller = sample_paths(own, old[(entities_U.long() - n).clamp(min=0)], *given, **more)
        is_relation_T = (torch.arange(found.tokens_UKT.shape[-1]) - found.focus) % 2 == 1
        shifted = torch.where(is_relation_T, smaller.tokens_UKT, smaller.tokens_UKT + n)
        shifted = shifted.masked_fill(~smaller.mask_UKT, 0)
        parts = (
            (found.tokens_UKT, shifted), (found.mask_UKT, smaller.mask_UKT)
        )  # fmt: skip
        tokens, mask = (torch.where(first_U[:, None, None], *pair) for pair in parts)
        incoming = torch.where(first_U[:, None], found.incoming_UK, smaller.incoming_UK)
        return Paths(tokens, mask, found.focus, incoming)

    with mock.patch.object(featurizer, "sample_paths", paths):
        found = within(link_scores(artifact, whole), kg, whole)
    for side in wanted:
        assert_near(found[side], wanted[side])
    if model == "bridges":
        e = torch.tensor([whole.entities.id(name) for name in kg.entities])
        assert_near(bridge_scores(artifact, whole)[e][:, :, e], bridge_scores(artifact, kg))


def reversed_facts(rows: list[Row], which: set[str]) -> list[Row]:
    return [(t, r, h) if r in which else (h, r, t) for h, r, t in rows]


@seeds
@pytest.mark.parametrize("which", [{"r0", "r1", "r2", "r3", "r4"}, {"r1", "r3"}])
def test_reversed_relations_swap_the_sides_of_relation_free_scores(which, seed):
    """The direction of a relation is a choice of its name: `parent of` or `child of`.

    Relation queries have a direction of their own, from head to tail, which isn't reversed.
    """
    rows = facts(seed)
    kg, other, artifact = graph_of(rows), graph_of(reversed_facts(rows, which)), load_model()
    ours, theirs = link_scores(artifact, kg), link_scores(artifact, other)
    for r, name in enumerate(kg.relations):
        sides = ("tail", "head") if name in which else ("head", "tail")
        for side, its in zip(("head", "tail"), sides, strict=True):
            assert_near(theirs[its][:, r], ours[side][:, r])


@seeds
def test_reversed_relations_swap_the_rows_of_a_tables_bridges(seed):
    rows, which = facts(seed), {"r1", "r3"}
    kg, other = graph_of(rows), graph_of(reversed_facts(rows, which))
    artifact = MODELS["bridges"](kg)
    flipped_R = torch.tensor([name in which for name in kg.relations])
    kinds_2R = torch.arange(2 * R)
    kinds_2R = torch.where(flipped_R.repeat(2), (kinds_2R + R) % (2 * R), kinds_2R)
    swapped = with_rows(artifact, {R: torch.arange(R), 2 * R: kinds_2R}, kg)
    assert_near(bridge_scores(swapped, other)[:, kinds_2R], bridge_scores(artifact, kg))


@every_model
@pytest.mark.parametrize("part", ["head", "relation", "tail"])
def test_chunks_and_batches_change_no_rank_and_scores_only_by_rounding(model, part, monkeypatch):
    kg = graph_of(facts(5))
    artifact = MODELS[model](kg)
    triples = PreparedGraph(kg).train_M3
    made = scorer_of(artifact, kg)
    wanted, known = made.scores(triples, part), made.prepared.known()
    ranks = made.rank(triples, part, known)
    one_by_one = torch.cat([made.scores(ids_13, part) for ids_13 in triples.split(1)])
    assert_near(one_by_one, wanted)
    monkeypatch.setattr(scorer, "STATE_CACHE", 1)
    monkeypatch.setattr(scorer, "MOST_PAIRS", 1)
    monkeypatch.setattr(scorer, "BLOCK", 7)
    monkeypatch.setattr(featurizer, "CPU_TOKENS", 1)
    small = scorer_of(artifact, kg)
    assert_near(small.scores(triples, part), wanted)
    again = small.rank(triples, part, known, budget=1)
    assert torch.equal(again.optimistic_B, ranks.optimistic_B)
    assert torch.equal(again.pessimistic_B, ranks.pessimistic_B)
