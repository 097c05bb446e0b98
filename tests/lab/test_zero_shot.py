"""Zero-shot evaluation of the model for any graph on a folder of graphs."""

from __future__ import annotations

import json

import pytest
import torch
from support.commands import pathe
from support.graphs import knowledge_graph, toy
from support.models import any_graph_artifact

from pathe.evaluation.ranking import evaluate
from pathe.graph.prepared import PreparedGraph
from pathe.lab import zero_shot
from pathe.lab.results_page import BEGIN, END
from pathe.model.artifact import load_model
from pathe.model.scorer import GraphScorer

CPU = torch.device("cpu")


@pytest.fixture
def data(tmp_path):
    for name in ("one", "deeper/two"):
        toy().save(tmp_path / "data" / name)
    return tmp_path / "data"


def test_every_graph_of_a_folder_is_evaluated_once(data, tmp_path):
    (tmp_path / "page.md").write_text(f"before\n{BEGIN}\n{END}\nafter")
    asked = ("reproduce", "zero-shot", "--data", "data", "--results", "out", "--page", "page.md")
    told = pathe(*asked, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    found = json.loads((tmp_path / "out" / "zero-shot.json").read_text())
    assert set(found["graphs"]) == {"one", "deeper/two"}
    expected = evaluate(load_model(), toy(), test_set="all", task="link")
    graph = found["graphs"]["one"]
    assert graph["links"]["mrr"] == pytest.approx(expected["mrr"], abs=1e-6)
    assert graph["fingerprint"] == toy().fingerprint()
    assert graph["valid_and_test_pessimistic"]["count"] == 2 * (len(toy().valid) + len(toy().test))
    assert (
        f"| one | {graph['links']['mrr']:.3f}".replace(" 0.", " .")
        in (tmp_path / "page.md").read_text()
    )
    unreached = graph["unreached"]["count"]
    row = next(
        line for line in (tmp_path / "page.md").read_text().splitlines()[::-1] if "| one |" in line
    )
    assert row.split(" | ")[2:5:2] == [f"{graph['calibration']['ece']:.3f}"[1:], f"{unreached:,}"]
    again = pathe(*asked, cwd=tmp_path)
    assert again.stderr.count("done already") == 2


def test_bad_requests_are_refused_in_words(data, tmp_path):
    for args, words in (
        (("zero-shot",), "--data FOLDER"),
        (("zero-shot", "wn18rr-link", "--data", "data"), "can't be combined"),
        (("zero-shot", "--data", "."), None),
        (("zero-shot", "--data", "nothing"), "no folders"),
    ):
        told = pathe("reproduce", *args, "--results", "out", cwd=tmp_path)
        assert told.returncode == (2 if words else 0), told.stderr
        assert (words or "") in told.stderr


def test_answers_that_no_path_reaches_have_figures_of_their_own():
    """A line of edges and a part of the graph beyond reach."""
    line = [(i, 0, i + 1) for i in range(9)]
    apart = [(20 + i, 1, 21 + i) for i in range(4)]
    kg = knowledge_graph([*line, *apart], test=[(0, 0, 22), (0, 0, 3), (0, 0, 9)])
    scorer = GraphScorer(any_graph_artifact().model, PreparedGraph(kg))  # three hops
    triples = kg.test.long()
    assert zero_shot.is_reached(scorer, triples[:, 0], triples[:, 2]).tolist() == [
        True,
        False,
        False,
    ]
    before = scorer.model.link_contexts.second.weight.clone()
    found = zero_shot.unreached(scorer, triples, zero_shot.rank_sides(scorer, triples))
    assert found["count"] == 4
    assert found["without_contexts"]["count"] == 4
    assert torch.equal(scorer.model.link_contexts.second.weight, before)
    # without contexts, all that is out of reach shares its rank with the rest of it
    assert found["without_contexts"]["mrr"] < 0.5


def test_published_figures_are_those_of_listed_graphs():
    graphs = zero_shot.listed()["graphs"]
    assert sum(entry.get("mean", False) for entry in graphs.values()) == 12
    mean = [entry["ultra"][0] for entry in graphs.values() if entry.get("mean")]
    assert sum(mean) / 12 == pytest.approx(0.549, abs=5e-4)
    mean = [entry["trix"][0] for entry in graphs.values() if entry.get("mean")]
    assert sum(mean) / 12 == pytest.approx(0.580, abs=5e-4)
