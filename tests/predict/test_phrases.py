"""Patterns in words."""

from __future__ import annotations

import pytest
from support.graphs import kg_of

from pathe import Predictor
from pathe.predict.phrases import phrase, plain_words


@pytest.mark.parametrize(
    ("relations", "between", "words"),
    [
        (["born_in", "located_in"], ["City"], "born in a city located in India"),
        (["born_in", "located_in"], [""], "born in something located in India"),
        (["bornIn", "capitalOf"], ["Area"], "born in an area that is capital of India"),
        (["nationality"], [], "with nationality India"),
        (["^capital of"], [], "with capital India"),
        (["^seat_of_government"], [], "seat of government of India"),
        (["^directed", "nationality"], [], "that something directed with nationality India"),
        (["http://x.org/p#livesIn"], [], "lives in India"),
        (["lies on", "flows through"], [""], "lies on something that flows through India"),
        (["lives in", "^based in"], [""], "lives in something that India is based in"),
        (["^citizen of", "lives in"], [""], "with a citizen that lives in India"),
        (["^citizen of", "lives in"], ["Person"], "with citizen a person that lives in India"),
        (["^located_in", "^born_in"], [""], "that something is located in that India is born in"),
        (["knows", "directed"], [""], "knows something that directed India"),
    ],
)
def test_relations_in_words(relations, between, words):
    assert phrase(relations, between, "India") == words


def test_odd_names_stay_readable():
    assert plain_words("P31") == "P31"
    assert plain_words("_") == "_"
    assert plain_words("ex:part_of") == "part of"


def test_types_of_the_entities_between_are_named():
    rows = [f"p{i} born_in c{i % 4}; p{i} nationality n{i % 2}" for i in range(12)]
    rows += [f"c{i} located_in n{i % 2}; c{i} type City" for i in range(4)]
    p = Predictor(kg_of("; ".join([*rows, "p20 born_in c1"])))
    why = p.explain("p20", "nationality", "n1")
    assert why.patterns[0].words() == "born in a city located in n1"
    assert why.patterns[0].between == ["City"]
    assert why.as_dict()["patterns"][0]["words"] == why.patterns[0].words()
    [reason] = [m.reason for m in p.missing(5, reasons=True) if m.head == "p20"]
    assert reason.startswith("born in a city located in n1 (1 path, holds for 100% of ")
