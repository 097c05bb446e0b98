"""How people write and read names: prefixes of IRIs, and labels.

A graph's vocabularies hold exact names. `Names` holds the other ways to write them, which are
accepted in queries, and decides how a name is shown. Neither reaches a model.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pathe.core.errors import nearest
from pathe.data.columns import ReadReport, text_array

BASE = "urn:pathe:"  # the start of IRIs made from names that are none
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Names:
    """Prefixes and labels of a graph's names, and the base of IRIs made from plain names."""

    prefixes: tuple[tuple[str, str], ...] = ()  # (prefix, IRI); two files may disagree on one
    labelled: Any = field(default_factory=lambda: pa.nulls(0, pa.large_string()))  # sorted names
    labels: Any = field(default_factory=lambda: pa.nulls(0, pa.large_string()))
    # names and their other labels, which are accepted but not shown; sorted by label
    other_labelled: Any = field(default_factory=lambda: pa.nulls(0, pa.large_string()))
    other_labels: Any = field(default_factory=lambda: pa.nulls(0, pa.large_string()))
    base: str = BASE

    def __repr__(self) -> str:
        return f"Names({len(self.prefixes)} prefixes, {len(self.labels):,} labels)"

    def expand(self, text: str) -> list[str]:
        """Returns the IRIs that `<IRI>` or `prefix:local` can stand for; none for other text."""
        if text.startswith("<") and text.endswith(">"):
            return [text[1:-1]]
        prefix, colon, local = text.partition(":")
        return [iri + local for own, iri in self.prefixes if colon and own == prefix]

    def full(self, text: str) -> str:
        """Returns the one IRI that the text can stand for; otherwise the text itself."""
        found = self.expand(text)
        return found[0] if len(found) == 1 else text

    def with_label(self, text: str) -> list[str]:
        """Returns the names that are shown with this label."""
        order, labels = self._by_label
        first, after = _equal(labels, text)
        return list(self.labelled.take(order[first:after]).to_pylist())

    def with_other_label(self, text: str) -> list[str]:
        """Returns the names that have this label, but are shown with another."""
        first, after = _equal(self.other_labels, text)
        return list(self.other_labelled[first:after].to_pylist())

    def label(self, name: str) -> str | None:
        """Returns a name's label, if it has one."""
        rows = range(len(self.labelled))
        i = bisect_left(rows, name, key=lambda i: self.labelled[i].as_py())
        found = i < len(rows) and self.labelled[i].as_py() == name
        return str(self.labels[i].as_py()) if found else None

    def short(self, name: str) -> str:
        """Returns `prefix:local` for an IRI with a known prefix; otherwise the name."""
        for prefix, iri in self._unambiguous:
            if name.startswith(iri) and len(name) > len(iri):
                return f"{prefix}:{name[len(iri) :]}"
        return name

    def show(self, name: str) -> str:
        """Returns the name as a reader likes it: its label, else its short form.

        A label that several names share is followed by the short form.
        """
        if name.startswith("^"):  # a relation that is followed backwards
            return f"^{self.show(name[1:])}"
        label = self.label(name)
        if label is None:
            return self.short(name)
        return label if len(self.with_label(label)) == 1 else f"{label} ({self.short(name)})"

    def shown(self, value: T) -> T:
        """Returns a copy of results in which every name is replaced by how it is shown."""
        return self._map(value) if self.prefixes or len(self.labels) else value

    def _map(self, value: Any) -> Any:
        match value:
            case str():
                return self.show(value)
            case dict():
                return {key: self._map(v) for key, v in value.items()}
            case list():
                rows = copy(value)  # it may be a class of its own, with attributes
                rows[:] = [self._map(v) for v in value]
                if hasattr(rows, "__dict__"):
                    vars(rows).update(self._map(vars(value)))
                return rows
            case tuple() if type(value) is tuple:
                return tuple(self._map(v) for v in value)
            case _ if is_dataclass(value) and not isinstance(value, type):
                own = {f.name: self._map(getattr(value, f.name)) for f in fields(value) if f.init}
                return replace(value, **own)
        return value

    def unknown_prefix(self, text: str) -> str:
        """Returns a sentence if the text looks like `prefix:local` with an unknown prefix."""
        found = re.fullmatch(r"([\w.-]*):(?!//)\S+", text)
        known = dict(self.prefixes)
        if not known or not found or found[1] in known:
            return ""
        close = nearest(found[1], known)
        some = ", ".join(f"{prefix}: <{iri}>" for prefix, iri in self.prefixes[:5])
        more = f" and {len(self.prefixes) - 5} more" if len(self.prefixes) > 5 else ""
        return f" The prefix {found[1]!r} isn't known.{close} Prefixes: {some}{more}."

    @cached_property
    def _by_label(self) -> tuple[Any, Any]:
        """The labels in order, and where they come from."""
        order = pc.sort_indices(self.labels)
        return order, self.labels.take(order)

    @property
    def sorted_labels(self) -> Any:
        """The labels in order, as an array."""
        return self._by_label[1]

    @cached_property
    def _unambiguous(self) -> list[tuple[str, str]]:
        """The prefixes with a single IRI, longest IRI first."""
        counted = [prefix for prefix, _ in self.prefixes]
        own = [pair for pair in self.prefixes if counted.count(pair[0]) == 1 and pair[1]]
        return sorted(own, key=lambda pair: -len(pair[1]))


def names_of(report: ReadReport, base: str, *known: Any) -> Names:
    """Returns the prefixes and labels that were read; labels only of names in `known` arrays."""
    prefixes = tuple(dict.fromkeys(report.prefixes))
    shown = {(name, label) for name, (_, label) in report.labels.items()}
    if not shown and not report.all_labels:
        return Names(prefixes, base=base)
    names = pa.chunked_array(known).combine_chunks()
    labelled, labels = _known(shown, names, by_label=False)
    others = _known(report.all_labels - shown, names, by_label=True)
    return Names(prefixes, labelled, labels, *others, base)


def _known(pairs: set[tuple[str, str]], known: Any, *, by_label: bool) -> tuple[Any, Any]:
    """Returns the names and labels of pairs whose name is known, sorted by one of the two."""
    names, labels = (text_array([pair[i] for pair in sorted(pairs)]) for i in (0, 1))
    kept = pc.is_in(names, value_set=known)
    names, labels = names.filter(kept), labels.filter(kept)
    order = pc.sort_indices(labels if by_label else names)
    return names.take(order), labels.take(order)


def _equal(texts: Any, text: str) -> tuple[int, int]:
    """Returns where a text starts and ends in a sorted array."""
    rows = range(len(texts))
    first = bisect_left(rows, text, key=lambda i: texts[i].as_py())
    return first, bisect_right(rows, text, lo=first, key=lambda i: texts[i].as_py())
