"""Finds names by prefix, by a part of them, or in spite of typos and missing accents."""

from __future__ import annotations

import difflib
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ALIKE = 0.6  # least similarity of a name with typos
CLOSE = 50  # names whose similarity is computed


class NameIndex:
    """Searches texts, such as the names and labels of entities; important ones come first."""

    def __init__(self, texts: Sequence[str], weights: Sequence[int]) -> None:
        self.folded = [folded(text) for text in texts]
        self.array = pa.array(self.folded, pa.large_string())
        self.weights = np.asarray(weights)

    def find(self, text: str, limit: int, allowed: np.ndarray | None = None) -> list[int]:
        """Returns the places of matching texts: equal, prefixes, parts, then similar ones.

        `allowed` says of each place whether it may be found. Without a text, the most important.
        """
        text = folded(text.strip())
        found: dict[int, None] = {}
        for places in self._stages(text):
            places = places if allowed is None else places[allowed[places]]
            found |= dict.fromkeys(places[:limit].tolist())
            if len(found) >= limit:
                break
        return list(found)[:limit]

    def _stages(self, text: str) -> Iterator[np.ndarray]:
        if not text:
            yield self._sorted(np.arange(len(self.folded)))
            return
        yield self._sorted(self._where(pc.equal(self.array, text)))
        yield self._sorted(self._where(pc.starts_with(self.array, text)))
        inside = self._where(pc.match_substring(self.array, text))
        starts = np.array([f" {text}" in self.folded[i] for i in inside], dtype=bool)
        yield self._sorted(inside[starts])
        yield self._sorted(inside)
        yield np.array(self._similar(text), dtype=np.int64)

    def _where(self, mask: pa.Array) -> np.ndarray:
        return np.flatnonzero(mask.to_numpy(zero_copy_only=False))

    def _sorted(self, places: np.ndarray) -> np.ndarray:
        return places[np.argsort(-self.weights[places], kind="stable")]

    def _similar(self, text: str) -> list[int]:
        """Returns places of texts with the same letters but for a few, most similar first."""
        counts = np.zeros(len(self.folded), dtype=np.int32)
        for part in set(_trigrams(text)):
            if part in self._by_trigram:
                counts[self._by_trigram[part]] += 1
        places = np.argsort(-counts, kind="stable")[:CLOSE]
        matcher = difflib.SequenceMatcher(b=text)
        scored = []
        for i in places[counts[places] > 0].tolist():
            matcher.set_seq1(self.folded[i])
            if (ratio := matcher.ratio()) >= ALIKE:
                scored.append((-ratio, -int(self.weights[i]), i))
        return [i for *_, i in sorted(scored)]

    @cached_property
    def _by_trigram(self) -> dict[str, np.ndarray]:
        found: dict[str, list[int]] = defaultdict(list)
        for i, text in enumerate(self.folded):
            for part in set(_trigrams(text)):
                found[part].append(i)
        return {part: np.array(places) for part, places in found.items()}


def folded(text: str) -> str:
    """Returns a text without case and accents: "Ångström" is found by "angstrom"."""
    text = text.casefold()
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(c for c in letters if not unicodedata.combining(c)))


def _trigrams(text: str) -> Iterable[str]:
    padded = f"  {text} "
    return (padded[i : i + 3] for i in range(len(padded) - 2))
