"""Names as IRIs and back, and triples as lines of N-Triples and Turtle."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from pathe.core.errors import ConfigError
from pathe.core.extras import require
from pathe.data.names import BASE, Names

Line = Callable[[str, str, str], str]

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|^`\\]*")

# Turtle's letters, and the local names that need no escapes.
_LETTER = "A-Za-zÀ-ÖØ-öø-\u02ff\u0370-\u037d\u037f-\u1fff\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff"
_BYTE = "%[0-9A-Fa-f]{2}"
_LOCAL = re.compile(
    f"(?:[{_LETTER}_0-9]|{_BYTE})(?:(?:[{_LETTER}_0-9.-]|{_BYTE})*(?:[{_LETTER}_0-9-]|{_BYTE}))?"
)
_PREFIX = re.compile(f"(?:[{_LETTER}](?:[{_LETTER}_0-9.-]*[{_LETTER}_0-9-])?)?")


def check_base(base: str) -> str:
    """Returns the base IRI; raises ConfigError if it isn't an absolute IRI."""
    if not _ABSOLUTE.fullmatch(base) or "%" in base:
        raise ConfigError(
            f"--base-iri: expected the start of an IRI, such as {BASE} or http://example.org/; "
            f"got {base!r}."
        )
    return base


def to_iri(name: str, base: str) -> str:
    """Returns base and percent-encoded name; letters and digits of any script stay as they are."""
    return base + "".join(c if c.isalnum() or c in "-._~" else quote(c, safe="") for c in name)


def from_iri(iri: str, base: str) -> str:
    """Returns the name if `to_iri` made this IRI from one; otherwise the IRI itself."""
    if len(iri) <= len(base) or not iri.startswith(base):
        return iri
    name = unquote(iri[len(base) :], errors="replace")
    return name if to_iri(name, base) == iri else iri


def rdf_lines(suffix: str, names: Names) -> tuple[str, Line]:
    """Returns the start of a file, and a function from a triple's names to its line.

    IRIs and blank nodes are written as they are. Other names become IRIs by `to_iri`.
    """
    ox = require("pyoxigraph", "rdf", "Writing RDF")
    turtle = suffix == ".ttl"
    prefixes = _prefixes(names) if turtle else {}
    terms = lru_cache(1 << 18)(lambda name, blank: _term(ox, name, blank, names.base, prefixes))

    def line(head: str, relation: str, tail: str) -> str:
        return f"{terms(head, True)} {terms(relation, False)} {terms(tail, True)} .\n"

    start = "".join(f"@prefix {prefix}: <{iri}> .\n" for iri, prefix in prefixes.items())
    return start and f"{start}\n", line


def _prefixes(names: Names) -> dict[str, str]:
    """Returns prefixes by IRI: the graph's, or one for the base IRI if there are none."""
    found: dict[str, str] = {}
    for prefix, iri in names.prefixes:
        good = _PREFIX.fullmatch(prefix) and _ABSOLUTE.fullmatch(iri)
        if good and prefix not in found.values():
            found.setdefault(iri, prefix)
    return found or {names.base: ""}


def _term(ox: Any, name: str, blank: bool, base: str, prefixes: dict[str, str]) -> str:
    """Returns a name as a term; blank nodes are IRIs where RDF doesn't allow them."""
    if blank and name.startswith("_:"):
        try:
            return str(ox.BlankNode(name[2:]))
        except ValueError:
            pass
    try:
        iri = str(ox.NamedNode(to_iri(name, base) if name.startswith(base) else name).value)
    except ValueError:
        iri = to_iri(name, base)
    # From the longest namespace on: its local name is the shortest.
    for start in sorted(prefixes, key=len, reverse=True):
        if iri.startswith(start) and _LOCAL.fullmatch(iri, len(start)):
            return f"{prefixes[start]}:{iri[len(start) :]}"
    return f"<{iri}>"
