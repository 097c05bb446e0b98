from __future__ import annotations

import random

import pytest
import torch
from support.graphs import knowledge_graph, toy
from support.models import predictor
from support.places import MODELS
from support.runs import train

import pathe
from pathe.core.errors import ConfigError
from pathe.evaluation.ranking import evaluate
from pathe.graph.paths import path_steps
from pathe.model.left_out import BridgeScore
from pathe.predict.evidence import path_evidence
from pathe.predict.results import (
    BridgeEvidence,
    Explanation,
    PathEvidence,
    PatternEvidence,
    near,
)


def test_effects_are_differences_of_scores_without_each_path():
    kg = toy()
    p = predictor(kg, aggregator="mean")
    why = p.explain("e0001", "r1", "e0002")
    judged = p.score([("e0001", "r1", "e0002")])[0]
    assert (why.score, why.probability, why.rank) == (
        judged.score, judged.probability, judged.rank)  # fmt: skip
    ends = torch.tensor([1, 2])
    model, featurizer, seed = p.artifact.model, p.scorer.featurizer, p.scorer.seed
    paths = featurizer.paths(ends, seed)
    with torch.no_grad():
        x = model.read(featurizer.batch(ends, seed))
    expected = {}
    for end, side in enumerate(("head", "tail")):
        for k in range(x.shape[1]):
            steps = path_steps(paths, end, k)
            kept = [j for j in range(x.shape[1]) if path_steps(paths, end, j) != steps]
            z = x.mean(1)
            z[end] = x[end, kept].mean(0)
            with torch.no_grad():
                score = float(model.link_scores(z[:1], torch.tensor([1]), z[1:]))
            names = tuple((kg.entities[a], kg.relations[b], kg.entities[c]) for a, b, c in steps)
            expected[side, names] = judged.score - score
    found = {(e.of, tuple(e.steps)): e.effect for e in why.paths}
    assert found.keys() == expected.keys()
    for key, effect in found.items():
        assert effect == pytest.approx(expected[key], abs=1e-4)
    sizes = [abs(e.effect) for e in why.paths]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("aggregator", ["mean", "lstm", "transformer", "transformer-joint"])
@pytest.mark.parametrize("task", ["link", "relation"])
def test_every_kind_of_model_explains(aggregator, task):
    why = predictor(aggregator=aggregator, task=task).explain("e0001", "r1", "e0002")
    assert {e.of for e in why.paths} == {"head", "tail"}
    assert any(abs(e.effect) > 1e-6 for e in why.paths)


def test_equal_paths_are_left_out_together_and_an_entity_may_stand_by_itself():
    kg = knowledge_graph([(0, 0, 1), (1, 1, 2)], [(0, 1, 3)])
    p = predictor(kg, task="link")
    why = p.explain("e0000", "r0", "e0003")  # e0003 has no edges in train
    [head] = [e for e in why.paths if e.of == "head"]
    [tail] = [e for e in why.paths if e.of == "tail"]
    assert head.count == 3
    assert abs(head.effect) > 1e-6
    assert tail.steps == []
    assert tail.effect == pytest.approx(0, abs=1e-6)  # nothing but itself to leave out
    assert "e0003 by itself" in why.words()


@pytest.fixture(scope="module")
def umls():
    kg = pathe.KnowledgeGraph.read("umls")
    return pathe.Predictor(pathe.load(MODELS / "umls"), kg), kg


@pytest.mark.parametrize("asked", ["tail", "relation"])
def test_removing_the_top_paths_moves_the_score_more_than_removing_random_ones(umls, asked):
    """Faithfulness, on a real model: the three paths that support a score most, against any three.

    A sum of effects says less: paths are left out together here. Of an explanation, only the paths
    of head and tail are computed: those between them take longer, and are not what is tested.
    """
    p, kg = umls
    chance = random.Random(0)
    top, others = [], []
    for ids in kg.test[::12]:
        h, r, t = ids.tolist()
        triple = kg.entities[h], kg.relations[r], kg.entities[t]
        score = p._triple_score(ids.long(), asked)
        paths = path_evidence(score, p._named)
        best = [path for path in paths if path.effect > 0][:3]
        if len(paths) < 12 or len(best) < 3:
            continue
        for chosen, falls in ((best, top), (chance.sample(paths, 3), others)):
            falls.append(score.without() - p.score_without(*triple, chosen, asked))
    why = p.explain(*triple, asked)
    assert why.paths == paths
    assert why.score == pytest.approx(score.without(), abs=1e-4)
    assert len(top) > 40
    assert sum(a > abs(b) for a, b in zip(top, others, strict=True)) > 0.8 * len(top)
    assert sum(top) > 2 * sum(map(abs, others))


def test_without_all_paths_an_entity_stands_by_itself(umls):
    p, _ = umls
    why = p.explain("virus", "causes", "disease_or_syndrome")
    triple = ("virus", "causes", "disease_or_syndrome")
    assert why.bridged > 0
    by_itself = p.score_without(*triple, why.paths) - why.bridged
    assert by_itself == pytest.approx(why.alone, abs=1e-4)
    assert p.score_without(*triple, []) == pytest.approx(why.score, abs=1e-4)
    first = why.paths[0]
    assert why.score - p.score_without(*triple, [first]) == pytest.approx(first.effect, abs=1e-4)
    assert f"{why.alone:.2f} without any path" in why.words()
    [one, two, *_] = why.bridges
    assert why.score - p.score_without(*triple, [one]) == pytest.approx(one.effect, abs=1e-4)
    both = why.score - p.score_without(*triple, [one, two])
    assert both != pytest.approx(one.effect, abs=1e-3)
    together = why.score - p.score_without(*triple, [one, two, first])
    assert together == pytest.approx(both + first.effect, abs=1e-4)


def test_a_path_without_steps_cant_be_left_out(umls):
    p, _ = umls
    triple = ("virus", "causes", "disease_or_syndrome")
    pattern = PatternEvidence([], [], 0, True, 0.0, 0.0, 0, 0)
    for empty in (pattern, BridgeEvidence([], 0.0)):
        with pytest.raises(ConfigError, match="has steps"):
            p.score_without(*triple, [empty])
    p.score_without(*triple, [PathEvidence("head", [], 1, 0.0)])  # of an entity without edges


def test_nothing_is_left_out_twice(umls, monkeypatch):
    """An explanation asks for the same score again where a pattern has one path."""
    p, _ = umls
    runs, real = [], BridgeScore._run

    def run(self, keep):
        runs.append(tuple(keep.nonzero().flatten().tolist()))
        return real(self, keep)

    monkeypatch.setattr(BridgeScore, "_run", run)
    p.explain("virus", "causes", "disease_or_syndrome")
    assert len(runs) > 20
    assert len(set(runs)) == len(runs)


def test_words_and_data(umls):
    p, _ = umls
    why = p.explain("virus", "causes", "disease_or_syndrome")
    first, *lines = why.words(3, paths=True).splitlines()
    assert first.startswith("virus -causes-> disease_or_syndrome: score")
    assert lines[0] == f"{why.bridged:+.3f} from all paths between them"
    assert len(lines) == 4
    for line, path in zip(lines[1:], why.bridges, strict=False):
        assert f"{path.effect:+.3f} between: " in line
    by_pattern = why.words(3)
    best = why.patterns[0]
    assert f"{best.added:+.3f} {best.words()} ({best.figures()})" in by_pattern
    assert best.example("virus").startswith("virus ")
    data = why.as_dict()
    assert data["paths"][0].keys() == {"of", "steps", "count", "effect"}
    assert data["patterns"][0]["confidence"] == best.confidence
    assert data["rest"] == why.rest


def test_only_the_steps_near_the_entity_are_shown():
    steps = [(str(i), "r", str(i + 1)) for i in range(9)]
    assert near(steps, "5") == steps[3:7]
    assert near(steps, "0") == steps[:2]
    assert near(steps, "9") == steps[7:]
    assert near([], "x") == []
    path = PathEvidence("tail", steps, 1, 0.5)
    why = Explanation("a", "r", "5", 1.0, 0.5, 1, 0.7, [path])
    assert why.words().splitlines()[1] == ("+0.500 tail: 3 -r-> 4 -r-> 5 -r-> 6 -r-> 7 (9 hops)")


def test_paths_that_look_alike_near_the_entity_are_shown_once():
    far = [[("b", "s", f"far{i}"), (f"far{i}", "s", "end")] for i in range(3)]
    steps = [[("a", "r", "b"), ("b", "r", "m"), *[("m", "q", "n")], *rest] for rest in far]
    paths = [PathEvidence("head", s, 1, e) for s, e in zip(steps, (0.5, -0.4, 0.3), strict=True)]
    paths.insert(1, PathEvidence("tail", [("a", "r", "b")], 1, 0.45))
    why = Explanation("a", "r", "b", 1.0, 0.5, 1, 0.7, paths)
    shown = why.shown(5)
    assert [(p.effect, remark) for p, _, remark in shown] == [
        (0.5, " (5 hops, and 2 like it)"), (0.45, "")]  # fmt: skip
    assert len(why.shown(1)) == 1
    assert why.words().count("and 2 like it") == 1


def test_of_paths_between_and_of_either_end_the_strongest_are_shown():
    def path(effect):
        return PathEvidence("head", [("a", f"r{effect}", "b")], 1, effect)

    def bridge(effect):
        return BridgeEvidence([("a", "s", "c"), ("c", "t", "b")], effect)

    paths, bridges = [path(x) for x in (0.5, -0.3, 0.1)], [bridge(x) for x in (-0.9, 0.4, 0.2)]
    why = Explanation("a", "r", "b", 1.0, 0.5, 1, 0.2, paths, 0.6, bridges)
    for n, between, own in ((1, 1, 0), (2, 1, 1), (3, 2, 1), (4, 2, 2), (6, 3, 3), (9, 3, 3)):
        found = why.strongest(n)
        assert found[0] == bridges[:between]
        assert [p for p, *_ in found[1]] == paths[:own]
        assert len(why.words(n).splitlines()) == 2 + between + own


@pytest.mark.parametrize(
    "how", [{"path_form": "joined", "path_source": "mined"}, {"positions": "absolute"}]
)
def test_every_form_of_path_is_trained_saved_evaluated_and_explained(how, tmp_path):
    kg = toy()
    held_out = how.get("path_source") != "mined"
    result = train(kg, tmp_path / "run", hold_out_batch=held_out, max_epochs=2, **how)
    model = pathe.load(tmp_path / "run")
    assert evaluate(model, kg)["mrr"] == pytest.approx(result["mrr"], abs=1e-6)
    why = pathe.Predictor(model, kg).explain("e0001", "r1", "e0000")
    edges = {(kg.entities[h], kg.relations[r], kg.entities[t]) for h, r, t in kg.train.tolist()}
    assert all(step in edges for path in why.paths for step in path.steps)
