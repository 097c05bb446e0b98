"""Small types that every layer shares: parts of a triple, queries, facts. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal

from pathe.core.errors import ConfigError, DataError

Part = Literal["head", "relation", "tail"]
PARTS: tuple[Part, Part, Part] = ("head", "relation", "tail")
Side = Literal["head", "tail"]
SIDES: tuple[Side, Side] = ("tail", "head")
Query = tuple[str | None, str | None, str | None]  # None marks the part to predict
Fact = tuple[str, str, str]
Progress = Callable[[int, int], None]  # (done, total)
DIGITS = 18  # more would leave 64 bits, and Python refuses to read thousands


def open_part(query: Query) -> Part:
    """Returns the part that a query leaves open."""
    parts = [part for part, name in zip(PARTS, query, strict=False) if name is None]
    if len(query) != 3 or len(parts) != 1:
        raise ConfigError("Give two of head, relation and tail; the third is predicted.")
    return parts[0]


def fill(query: Query, name: str) -> Fact:
    """Returns the query with an answer filled in."""
    head, relation, tail = (name if part is None else part for part in query)
    return head, relation, tail


def is_fact(fact: Any) -> bool:
    """Whether this is three names, none of them empty or undecodable."""
    return (
        not isinstance(fact, str)
        and hasattr(fact, "__len__")
        and len(fact) == 3
        and all(isinstance(name, str) and name and is_encodable(name) for name in fact)
    )


def is_encodable(name: str) -> bool:
    """Whether UTF-8 can encode it: a command line may hold bytes that it can't."""
    return name.isascii() or not any("\ud800" <= c <= "\udfff" for c in name)


def check_fact(fact: Any) -> None:
    if not is_fact(fact):
        raise DataError(f"A fact is three names: head, relation and tail; got {fact!r}.")


def rows_of(given: Any) -> Iterator[Any]:
    """Yields queries or facts: of a list, a data frame, or a single one; dicts become tuples.

    A dict has the keys head, relation and tail; a part that it lacks is None.
    """
    if hasattr(given, "itertuples"):  # a data frame
        named = set(PARTS) <= set(given.columns)
        given = (given[list(PARTS)] if named else given).itertuples(index=False, name=None)
    elif isinstance(given, Mapping) or _is_row(given):
        given = [given]
    elif isinstance(given, str):
        raise DataError(f"Expected head, relation and tail, as three names; got {given!r}.")
    for row in given:
        if isinstance(row, Mapping):
            if unknown := [key for key in row if key not in PARTS]:
                raise DataError(f"A dict has the keys head, relation and tail; got {unknown[0]!r}.")
            row = tuple(row.get(part) for part in PARTS)
        yield row


def _is_row(given: Any) -> bool:
    """Whether this is one query or fact, rather than several."""
    names = isinstance(given, tuple | list) and len(given) == 3
    return names and all(part is None or isinstance(part, str) for part in given)


def check_k(k: Any) -> None:
    if not isinstance(k, int) or k < 1:
        raise ConfigError(f"k must be a whole number of at least 1; got {k!r}.")


def check_frontier(frontier: Any) -> None:
    if frontier is not None and (not isinstance(frontier, int) or frontier < 0):
        raise ConfigError(
            "The frontier is the number of entities to keep per query, or 0 for all of them; got "
            f"{frontier!r}."
        )


def whole_number(text: str | bytes) -> int | None:
    """Returns a number of at most 18 decimal digits; None for any other text."""
    is_number = text.isdecimal() if isinstance(text, str) else text.isdigit()
    return int(text) if is_number and len(text) <= DIGITS else None


def chunks(items: Iterable[Any], n: int) -> Iterator[list[Any]]:
    """Yields the items, n at a time."""
    source = iter(items)
    while chunk := list(islice(source, n)):
        yield chunk
