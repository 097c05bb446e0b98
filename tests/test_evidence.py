from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from graphs import knowledge_graph, toy
from test_predict import predictor

import pathe
from pathe.answers import Explanation, PathEvidence, near
from pathe.evidence import same_paths
from pathe.paths import path_steps

MODELS = Path(__file__).resolve().parents[1] / "models"


def test_effects_are_differences_of_scores_without_each_path():
    kg = toy()
    p = predictor(kg, aggregator="mean")
    why = p.explain("e0001", "r1", "e0002")
    judged = p.score([("e0001", "r1", "e0002")])[0]
    assert (why.score, why.probability, why.rank) == (
        judged.score, judged.probability, judged.rank)  # fmt: skip
    ends = torch.tensor([1, 2])
    paths = p.describe.paths(ends, p.seed)
    with torch.no_grad():
        x = p.model.read(p.describe.batch(ends, p.seed))
    expected = {}
    for end, side in enumerate(("head", "tail")):
        for k in range(x.shape[1]):
            steps = path_steps(paths, end, k)
            kept = [j for j in range(x.shape[1]) if path_steps(paths, end, j) != steps]
            z = x.mean(1)
            z[end] = x[end, kept].mean(0)
            with torch.no_grad():
                score = float(p.model.link_scores(z[:1], torch.tensor([1]), z[1:]))
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
    groups = same_paths(p.describe.paths(torch.tensor([0]), p.seed), 0)
    assert groups == [[0, 1, 2]]  # one way through 0
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


def test_removing_the_top_paths_moves_the_score_more_than_removing_random_ones(umls):
    """Faithfulness, on a real model: two paths of the head and two of the tail are left out."""
    p, kg = umls
    chance = random.Random(0)
    top_moves, random_moves = [], []
    for h, r, t in kg.test[::12].tolist():
        ends = torch.tensor([h, t])
        paths = p.describe.paths(ends, p.seed)
        why = p.explain(kg.entities[h], kg.relations[r], kg.entities[t])
        with torch.no_grad():
            x = p.model.read(p.describe.batch(ends, p.seed))

        def moved(groups, ends=ends, x=x, r=r, p=p):
            """How far the score moves without these groups of paths."""
            scores = []
            for left_out in ([[], []], groups):
                z = [
                    p.model.aggregate(x[i, [k for k in range(x.shape[1]) if k not in gone]][None])
                    for i, gone in enumerate(left_out)
                ]
                with torch.no_grad():
                    scores.append(float(p.model.link_scores(z[0], torch.tensor([r]), z[1])))
            return abs(scores[1] - scores[0])

        grouped = [same_paths(paths, end) for end in (0, 1)]
        if min(map(len, grouped)) < 5:
            continue
        by_names = [
            {
                tuple((kg.entities[a], kg.relations[b], kg.entities[c]) for a, b, c in
                      path_steps(paths, end, group[0])): group
                for group in grouped[end]
            }
            for end in (0, 1)
        ]  # fmt: skip
        top = []
        for end, side in enumerate(("head", "tail")):
            best = [e for e in why.paths if e.of == side]
            sign = 1 if sum(e.effect for e in best[:2]) > 0 else -1
            best = sorted(best, key=lambda e, s=sign: -s * e.effect)[:2]
            top.append([k for e in best for k in by_names[end][tuple(e.steps)]])
        top_moves.append(moved(top))
        picks = [[k for g in chance.sample(grouped[end], 2) for k in g] for end in (0, 1)]
        random_moves.append(moved(picks))
    assert len(top_moves) > 40
    wins = sum(a > b for a, b in zip(top_moves, random_moves, strict=True))
    assert wins > 0.75 * len(top_moves)
    assert sum(top_moves) > 1.5 * sum(random_moves)


def test_words_and_data(umls):
    p, _ = umls
    why = p.explain("virus", "causes", "disease_or_syndrome")
    first, *lines = why.words(3).splitlines()
    assert first.startswith("virus -causes-> disease_or_syndrome: score")
    assert len(lines) == 3
    for line, path in zip(lines, why.paths, strict=False):
        assert f"{path.effect:+.3f} {path.of}: " in line
    data = why.as_dict()
    assert data["paths"][0].keys() == {"of", "steps", "count", "effect"}


def test_only_the_steps_near_the_entity_are_shown():
    steps = [(str(i), "r", str(i + 1)) for i in range(9)]
    assert near(steps, "5") == steps[3:7]
    assert near(steps, "0") == steps[:2]
    assert near(steps, "9") == steps[7:]
    assert near([], "x") == []
    path = PathEvidence("tail", steps, 1, 0.5)
    why = Explanation("a", "r", "5", 1.0, 0.5, 1, [path])
    assert why.words().splitlines()[1] == ("+0.500 tail: 3 -r-> 4 -r-> 5 -r-> 6 -r-> 7 (9 hops)")
