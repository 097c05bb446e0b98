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
    kinds = between or [""] * (len(relations) - 1)
    stops = [_article(plain_words(kind)) if kind else ANY for kind in kinds]
    steps = zip(relations, [*stops, end], strict=True)
    return " ".join(_step(relation, stop, i == 0) for i, (relation, stop) in enumerate(steps))


def _step(relation: str, stop: str, first: bool) -> str:
    """Returns one step to the next entity in words."""
    back, words = relation.startswith("^"), plain_words(relation.removeprefix("^"))
    start, last = words.split(" ")[0], words.split(" ")[-1]
    if last == "of" and words != "of":
        if back:
            noun = words.removesuffix(" of")
            return f"with {_article(noun)}" if stop == ANY else f"with {noun} {stop}"
        return f"{words} {stop}" if first else f"that is {words} {stop}"
    if last in PREPOSITIONS or start in VERBS or start.endswith(("ed", "s")):
        passive = last in PREPOSITIONS and (start in VERBS or start.endswith("ed"))  # located in
        if back:
            return f"that {stop} is {words}" if passive else f"that {stop} {words}"
        bare = first or passive or start in PREPOSITIONS
        return f"{words} {stop}" if bare else f"that {words} {stop}"
    return f"{words} of {stop}" if back else f"with {words} {stop}"


def plain_words(name: str) -> str:
    """Returns a relation's name in words, without namespace: bornIn and born_in are "born in"."""
    local = re.split(r"[#/]", name.rstrip("#/"))[-1].rsplit(":", 1)[-1] or name
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", local.replace("_", " "))
    return " ".join(
        word.lower() if word.isalpha() and word.istitle() else word
        for word in spaced.split() or [name]
    )


def _article(words: str) -> str:
    """Returns words with their article."""
    return f"{'an' if words[:1].lower() in 'aeiou' else 'a'} {words}"
