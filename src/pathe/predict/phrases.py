"""Puts a sequence of relations into words: "born in a city located in India".

Names of relations are all there is to go by. One that ends in a preposition or starts like a verb
is read as a verb ("born in", "directed"), others as a noun ("nationality", "capital of").
"""

from __future__ import annotations

import re
from collections.abc import Sequence

PREPOSITIONS = ("in", "on", "at", "by", "to", "from", "with", "for", "as", "into", "about", "near")
VERBS = ("isa", "born", "made", "won", "led", "wrote", "held")  # without the ending -ed or -s
ANY = "something"


def phrase(relations: Sequence[str], between: Sequence[str], end: str) -> str:
    """Returns the path from an entity to `end` in words.

    Relations that are followed backwards have ^ before their names. `between` are the types of the
    entities between the ends, as far as they are known.
    """
    stops = [_a(kind) if kind else ANY for kind in between] or [ANY] * (len(relations) - 1)
    steps = zip(relations, [*stops, end], strict=True)
    return " ".join(_step(relation, stop, i == 0) for i, (relation, stop) in enumerate(steps))


def _step(relation: str, stop: str, first: bool) -> str:
    """Returns one step to the next entity in words."""
    back, words = relation.startswith("^"), plain_words(relation.removeprefix("^"))
    start, last = words.split(" ")[0], words.split(" ")[-1]
    if last == "of" and words != "of":
        forward = f"{words} {stop}" if first else f"that is {words} {stop}"
        return f"with {words[:-3]} {stop}" if back else forward
    if last in PREPOSITIONS or start in VERBS or start.endswith(("ed", "s")):
        return f"that {stop} {words}" if back else f"{words} {stop}"
    return f"{words} of {stop}" if back else f"with {words} {stop}"


def plain_words(name: str) -> str:
    """Returns a relation's name in words, without namespace: bornIn and born_in are "born in"."""
    local = re.split(r"[#/]", name.rstrip("#/"))[-1].rsplit(":", 1)[-1] or name
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", local.replace("_", " "))
    return " ".join(
        word.lower() if word.isalpha() and word.istitle() else word
        for word in spaced.split() or [name]
    )


def _a(kind: str) -> str:
    """Returns a type with its article."""
    words = plain_words(kind)
    return f"{'an' if words[:1].lower() in 'aeiou' else 'a'} {words}"
