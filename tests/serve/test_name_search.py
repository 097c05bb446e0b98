"""Search by prefix, part and similar spelling."""

from __future__ import annotations

import numpy as np

from pathe.serve.search import NameIndex

NAMES = ["Paris", "Parma", "New Paris", "Sparise", "paris", "Rome", "北京", ""]
INDEX = NameIndex(NAMES, [5, 9, 3, 2, 1, 7, 4, 0])


def found(text, limit=10, allowed=None):
    return [NAMES[i] for i in INDEX.find(text, limit, allowed)]


def test_equal_names_come_first_then_prefixes_words_and_parts():
    assert found("paris")[:4] == ["Paris", "paris", "New Paris", "Sparise"]
    assert found("PAR")[:3] == ["Parma", "Paris", "paris"]
    assert found("北")[0] == "北京"


def test_typos_are_forgiven():
    assert "Paris" in found("Pariss")
    assert "Paris" in found("Parsi")
    assert found("Romme") == ["Rome"]
    assert found("zzzz") == []


def test_accents_may_be_left_out():
    names = ["Björn Ångström", "Bjorn", "서울", "東京 (Tōkyō)", "Straße", "हिन्दी", "Łódź"]
    index = NameIndex(names, [1] * len(names))
    decomposed = "A\u030angstro\u0308m"
    asked = {
        "angstrom": 0, "Ångström": 0, decomposed: 0, "bjorn a": 0, "서": 2, "tokyo": 3, "東": 3,
        "STRASSE": 4, "हिन्दी": 5, "Łodz": 6,
    }  # fmt: skip
    assert {text: index.find(text, 1)[0] for text in asked} == asked
    assert index.find("bjorn", 2) == [1, 0]


def test_no_text_lists_the_most_important():
    assert found("", 3) == ["Parma", "Rome", "Paris"]


def test_only_allowed_names_are_found():
    allowed = np.array([name != "Paris" for name in NAMES])
    assert found("paris", 2, allowed) == ["paris", "New Paris"]
