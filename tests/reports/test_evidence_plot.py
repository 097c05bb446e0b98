"""Pictures of explanations: what is in them, in which colour and where."""

from __future__ import annotations

import re

import pytest
from support.models import BRIDGE, predictor

from pathe.predict.results import Explanation, PathEvidence, PatternEvidence
from pathe.reports.evidence_plot import _collect, _wrap, plot_evidence
from pathe.reports.fonts import fonts_for
from pathe.reports.plots import BLUE, ORANGE

pytestmark = pytest.mark.pictures


def pattern(*instances, effect=1.0, against=False):
    relations = [step[1] for step in instances[0]]
    return PatternEvidence(
        relations, list(instances), len(instances), True, effect, effect, 3, 4, against
    )


def reason(*patterns, head="h", tail="t"):
    return Explanation(head, "r", tail, 3.0, 0.5, 1, 1.0, [], bridged=2.0, patterns=list(patterns))


ONE = [("h", "born in", "a"), ("a", "located in", "t")]
TWO = [("h", "knows", "b"), ("b", "knows", "a"), ("a", "located in", "t")]
DIRECT = [("t", "twin of", "h")]


def test_the_head_is_left_the_answer_right_and_shared_entities_are_drawn_once(tmp_path):
    found = [pattern(DIRECT, effect=0.5), pattern(ONE), pattern(TWO, effect=0.1)]
    drawn = _collect("h", "t", found)
    x = {name: place[0] for name, place in drawn.places.items()}
    assert x["h"] < x["b"] < x["a"] < x["t"]
    assert drawn.over[("h", "t")]  # the direct edge passes the entities between
    heights = [drawn.places["a"][1], *drawn.over[("h", "t")]]
    assert len({round(y, 2) for y in heights[:2]}) == 2
    assert drawn.edges[("a", "t")][("a", "located in", "t")] is found[1]  # the larger effect
    plot_evidence(reason(*found), tmp_path / "why.svg")
    text = (tmp_path / "why.svg").read_text()
    assert len(re.findall(r">a</text>", text)) == 1
    assert text.count(">located in<") == 1
    assert BLUE in text
    assert ORANGE not in text
    assert "other paths" in text


def test_what_speaks_against_is_dashed_and_of_another_colour(tmp_path):
    found = reason(pattern(ONE), pattern(TWO, effect=-0.7, against=True))
    plot_evidence(found, tmp_path / "why.svg")
    text = (tmp_path / "why.svg").read_text()
    assert re.search(rf"stroke-dasharray: [^;]+;[^\"]*stroke: {ORANGE}", text)
    assert "against: 1 path" in text


def test_names_are_wrapped_and_never_cut(tmp_path):
    name = "The_Very_Long_Name of somebody, who has, among others, $ and _ in it"
    assert _wrap(name, 20).replace("\n", "").replace(" ", "") == name.replace(" ", "")
    assert max(map(len, _wrap(name, 20).split("\n"))) <= 22
    assert _wrap("", 20) == ""
    steps = [(name, "born in", "x" * 90), ("x" * 90, "located in", "t")]
    plot_evidence(reason(pattern(steps), head=name), tmp_path / "why.svg")
    shown = re.sub(r"<[^>]*>|\s", "", (tmp_path / "why.svg").read_text())
    assert "…" not in shown
    assert shown.count("x" * 20) >= 4


def test_characters_without_a_font_are_named_but_not_for_svg(tmp_path, recwarn):
    odd = "\U00030000"  # a rare character of Chinese: hardly any font has it
    families, lacking = fonts_for(f"abc {odd}\n")
    assert families == ["DejaVu Sans"]
    assert lacking == odd
    assert fonts_for("Björk, Łódź") == (["DejaVu Sans"], "")
    assert fonts_for("".join(map(chr, range(0x30000, 0x30014))))[1].endswith("and 10 more")
    found = reason(pattern([(odd, "r", "t")]), head=odd)
    assert plot_evidence(found, tmp_path / "why.png") == odd
    assert plot_evidence(found, tmp_path / "why.svg") == ""
    assert not recwarn.list


@pytest.mark.parametrize("more", [{}, BRIDGE])
def test_every_kind_of_model_is_drawn(tmp_path, more):
    why = predictor(**more).explain("e0001", "r1", "e0002")
    assert plot_evidence(why, tmp_path / "why.png") == ""
    assert (tmp_path / "why.png").stat().st_size > 5000
    nothing = Explanation("a", "r", "b", 1.0, 0.5, 1, 0.7, [PathEvidence("tail", [], 1, 0.0)])
    plot_evidence(nothing, tmp_path / "nothing.png")
    plot_evidence(reason(), tmp_path / "none.png")
