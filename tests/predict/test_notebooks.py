"""Results in a notebook: short reprs, HTML with names escaped, data frames; plain input."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import pandas
import pytest

import pathe
from pathe.core.errors import ConfigError, DataError, PatheError
from pathe.predict.picture import AGAINST, FOR, Drawn, draw_paths
from pathe.predict.results import Records

BAD = '<script>alert("x")</script>'
FACTS = [(BAD, "<b>&", f"t'{i}") for i in range(3)]
FACTS += [("t'1", "r", "<i>x"), (BAD, "r", "<i>x"), ("t'1", "r", "t'2"), ("日本", "r", BAD)]
VOID = {"br", "hr", "img"}


@pytest.fixture(scope="module")
def p() -> pathe.Predictor:
    return pathe.Predictor(pathe.KnowledgeGraph.from_triples(FACTS, name=BAD))


class Shown(HTMLParser):
    """The text of HTML, and its tags, which must match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_html_shows_names_and_runs_none_of_them(p: pathe.Predictor) -> None:
    kg = pathe.KnowledgeGraph.from_triples(FACTS, name=BAD)
    answers = p.tails(BAD, "<b>&", filter_known=False)
    results = (kg, answers, p.explain(BAD, "<b>&", "<i>x"), p.missing(5), p.similar(BAD),
               p.score(FACTS[:2]))  # fmt: skip
    for result in results:
        found = Shown(result._repr_html_())
        assert found.tags <= {"div", "b", "table", "tr", "th", "td", "svg", "defs", "marker",
                              "path", "line", "text", "title", "circle"}  # fmt: skip
        assert any("t'" in word or BAD in word for word in found.words), result
    whole = " ".join(Shown(answers._repr_html_()).words)
    assert all(a.name in whole for a in answers)


def test_an_explanation_has_a_picture(p: pathe.Predictor) -> None:
    reason = p.explain(BAD, "<b>&", "<i>x")
    svg = re.search(r"<svg.*</svg>", reason._repr_html_(), re.S)
    assert svg
    picture = ElementTree.fromstring(svg.group())  # well-formed
    texts = {"".join(node.itertext()) for node in picture.iter() if node.tag.endswith("title")}
    assert {BAD, "<i>x"} <= texts


def test_a_picture_merges_shared_nodes_and_keeps_directions() -> None:
    paths = [
        Drawn([("a", "r", "m"), ("m", "s", "z")], 2.0),
        Drawn([("z", "t", "m"), ("a", "r", "m")], -1.0),  # from the other end, with an edge shared
        Drawn([("a", "u", "z")], 0.5),
    ]
    svg = ElementTree.fromstring(draw_paths("a", "z", paths))
    by_tag: dict[str, list[ElementTree.Element]] = {}
    for node in svg.iter():
        by_tag.setdefault(node.tag.rpartition("}")[2], []).append(node)
    assert len(by_tag["circle"]) == 3
    titles = [node.text for node in by_tag["title"]]
    assert sorted(t for t in titles if t) == ["a", "m", "r", "s, t", "u", "z"]
    lines = {
        (float(x.get("x1", 0)) < float(x.get("x2", 0)), x.get("stroke")) for x in by_tag["line"]
    }
    assert len(by_tag["line"]) == 4  # a-m, m-z, z-m, a-z
    assert lines == {(True, FOR), (False, AGAINST)}
    widths = [float(x.get("stroke-width", 0)) for x in by_tag["line"]]
    assert widths[0] == max(widths) == 4


def test_reprs_are_short(p: pathe.Predictor) -> None:
    answers = p.tails(BAD, "<b>&", 5, filter_known=False)
    for result in (p, answers, answers[0], p.missing(50), p.explain(*FACTS[0]), p.similar(BAD)):
        assert len(repr(result)) < 450
        assert "\n" not in repr(result)
    assert repr(answers).startswith(f"Answers({BAD} -<b>&-> ?: ")
    assert re.fullmatch(r"Answer\(1, .*, \d+\.\d%(, known)?\)", repr(answers[0]))
    assert repr(Records()) == "Records()"


def test_data_frames_out(p: pathe.Predictor) -> None:
    answers = p.tails(BAD, "<b>&", 3, filter_known=False)
    frame = answers.to_pandas()
    assert list(frame["name"]) == [a.name for a in answers]
    assert {"rank", "score", "probability", "known"} <= set(frame.columns)
    assert len(p.missing(4).to_pandas()) == 4
    assert list(p.score(FACTS).to_pandas()["tail"]) == [fact[2] for fact in FACTS]


def test_without_pandas_it_says_what_to_install(
    p: pathe.Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PatheError, match=r"pip install 'pathe\[pandas\]'"):
        p.missing(2).to_pandas()


def test_queries_and_facts_as_dicts_frames_or_one_alone(p: pathe.Predictor) -> None:
    [expected] = p.answer([(BAD, "<b>&", None)], 3)
    asked = {"head": BAD, "relation": "<b>&"}
    for queries in ([asked], asked, [asked | {"tail": None}], (BAD, "<b>&", None)):
        assert list(p.answer(queries, 3)) == [expected]
    assert p.known_answers(asked) == p.known_answers((BAD, "<b>&", None))
    head, relation, tail = FACTS[0]
    scored = p.score([FACTS[0]])
    fact = {"tail": tail, "head": head, "relation": relation}
    frame = pandas.DataFrame([fact | {"weight": 0.5}])
    for facts in (FACTS[0], fact, [fact], frame, pandas.DataFrame([FACTS[0]])):
        assert p.score(facts) == scored
    assert pathe.KnowledgeGraph.from_triples(frame).fingerprint() == (
        pathe.KnowledgeGraph.from_triples([fact]).fingerprint()
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("a\tr\tb", "three names"),
        ({"head": "a", "rel": "r", "tail": "b"}, "'rel'"),
        ({"head": "a", "tail": "b"}, "three names"),
        (["a", "b"], "three names"),
    ],
)
def test_what_is_no_fact_is_refused(p: pathe.Predictor, wrong: object, words: str) -> None:
    with pytest.raises(DataError, match=words):
        p.score(wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=words):
        p.add(wrong)  # type: ignore[arg-type]


def test_what_is_no_query_is_refused(p: pathe.Predictor) -> None:
    for wrong in ({"head": BAD}, (None, None, BAD)):
        with pytest.raises(ConfigError, match="Give two of"):
            next(p.answer(wrong))  # type: ignore[arg-type]


def test_facts_are_added_and_removed_as_dicts() -> None:
    p = pathe.Predictor(pathe.KnowledgeGraph.from_triples(FACTS))
    fact = {"head": "new", "relation": "r", "tail": BAD}
    assert p.add(fact) == 1
    assert p.known_answers({"head": "new", "relation": "r"}) == [BAD]
    assert p.remove([fact]) == 1


def test_the_device_is_chosen_as_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("pathe.core.hardware.torch.cuda.is_available", lambda: asked.append(1))
    assert pathe.Predictor(pathe.KnowledgeGraph.from_triples(FACTS)).prepared.device.type == "cpu"
    assert asked
