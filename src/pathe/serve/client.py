"""A client of `pathe serve`, with the results of `Predictor`; it needs no extra."""

from __future__ import annotations

import http.client
import inspect
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import Any, TypeVar

from pathe.core.errors import PatheError, UnknownNameError
from pathe.core.types import PARTS, Fact, Part, Query
from pathe.predict.results import (
    Answer,
    Answers,
    ClassifiedTriple,
    MissingTriple,
    Neighbour,
    Records,
    Rule,
    ScoredTriple,
    SuspiciousFact,
)

T = TypeVar("T")
PAGE = 1000  # facts per request


class Client:
    """Asks a server about one graph.

    >>> client = Client("http://127.0.0.1:8080")
    >>> client.tails("Paris", "capital of", k=3)
    """

    def __init__(
        self,
        url: str,
        graph: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 330.0,
    ) -> None:
        """`graph` is the name of the graph; it may be left out if the server has only one."""
        self.url, self.token, self.timeout = url.rstrip("/"), token, timeout
        self.overlay = ""  # see `what_if`
        names = [about["name"] for about in self.call("GET", "/graphs")["graphs"]]
        if graph is None and len(names) > 1:
            raise PatheError(f"The server has several graphs: name one of {', '.join(names)}.")
        self.graph = graph or names[0]

    def about(self) -> dict[str, Any]:
        """Describes the graph and the model."""
        return self._graph("GET", "")

    def search(self, text: str, k: int = 20, *, type: str | None = None) -> list[dict[str, Any]]:
        """Finds entities by a part of their name or label, also with typos."""
        found = self._graph("GET", "/entities", q=text, limit=k, type=type)
        return list(found["entities"])

    def facts(self, name: str, k: int | None = None) -> list[Fact]:
        """Returns the facts of an entity: all of them, or the first k."""
        found: list[Fact] = []
        while k is None or len(found) < k:
            limit = PAGE if k is None else min(PAGE, k - len(found))
            page = self._graph("GET", "/entity", name=name, offset=len(found), limit=limit)
            found += [(row["head"], row["relation"], row["tail"]) for row in page["facts"]]
            if len(found) >= page["total"] or not page["facts"]:
                break
        return found

    def tails(self, head: str, relation: str, k: int = 10, **options: Any) -> Answers:
        """Returns the k best answers to (head, relation, ?).

        Options: offset, known, type, plausible.
        """
        return self._answers("/predict", head=head, relation=relation, k=k, **options)

    def heads(self, relation: str, tail: str, k: int = 10, **options: Any) -> Answers:
        """Returns the k best answers to (?, relation, tail)."""
        return self._answers("/predict", relation=relation, tail=tail, k=k, **options)

    def relations(self, head: str, tail: str, k: int = 10, **options: Any) -> Answers:
        """Returns the k best answers to (head, ?, tail)."""
        return self._answers("/predict", head=head, tail=tail, k=k, **options)

    def answer(self, queries: Iterable[Query], k: int = 10, **options: Any) -> list[Answers]:
        """Returns the k best answers to each query: a triple with None for the part to predict."""
        rows = [dict(zip(PARTS, query, strict=True)) for query in queries]
        found = self._graph("POST", "/predict", {"queries": rows, "k": k, **options})
        return [_answers(row) for row in found["results"]]

    def score(self, triples: Iterable[Fact], asked: Part | None = None) -> Records[ScoredTriple]:
        """Returns the score, rank and probability of each triple."""
        body = {"triples": _rows(triples), "asked": asked}
        return _records(ScoredTriple, self._graph("POST", "/score", body)["triples"])

    def classify(self, triples: Iterable[Fact]) -> Records[ClassifiedTriple]:
        """Says of each triple whether it is true, and how probable that is."""
        found = self._graph("POST", "/classify", {"triples": _rows(triples)})
        return _records(ClassifiedTriple, found["triples"])

    def explain(
        self, head: str, relation: str, tail: str, asked: Part | None = None
    ) -> dict[str, Any]:
        """Explains a triple's score."""
        return self._graph("GET", "/explain", head=head, relation=relation, tail=tail, asked=asked)

    def score_without(
        self,
        triple: Fact,
        *,
        patterns: Iterable[list[str]] = (),
        paths: Iterable[list[Fact]] = (),
        asked: Part | None = None,
    ) -> dict[str, Any]:
        """Returns score and rank of a triple without some patterns or paths, and with them."""
        [row] = _rows([triple])
        without = {"patterns": list(patterns), "paths": list(paths)}
        return self._graph("POST", "/explain", row | {"asked": asked, "without": without})

    def missing(self, k: int = 20, **of: Any) -> Records[MissingTriple]:
        """Lists what the graph lacks; options: entity, relation, type, min_probability."""
        return _records(MissingTriple, self._graph("GET", "/missing", k=k, **of)["triples"])

    def suspicious(self, k: int = 20, **of: Any) -> Records[SuspiciousFact]:
        """Lists facts that look wrong; options: entity, relation, type, sample."""
        return _records(SuspiciousFact, self._graph("GET", "/suspicious", k=k, **of)["facts"])

    def similar(self, entity: str, k: int = 10, *, type: str | None = None) -> Records[Neighbour]:
        """Lists similar entities."""
        found = self._graph("GET", "/similar", entity=entity, k=k, type=type)
        return _records(Neighbour, found["entities"])

    def rules(self, relation: str | None = None, k: int = 5) -> Records[Rule]:
        """Lists the paths that the model trusts most, of one relation or of all."""
        return _records(Rule, self._graph("GET", "/rules", relation=relation, k=k)["rules"])

    def what_if(self, add: Iterable[Fact] = (), remove: Iterable[Fact] = ()) -> Client:
        """Returns a client that sees the graph with changes; others don't see them."""
        body = {"add": _rows(add), "remove": _rows(remove)}
        other = Client(self.url, self.graph, token=self.token, timeout=self.timeout)
        other.overlay = self._graph("POST", "/overlays", body)["overlay"]
        return other

    def change(self, add: Iterable[Fact] = (), remove: Iterable[Fact] = ()) -> dict[str, int]:
        """Changes the graph for everyone; the server must be writable, and the token given."""
        return dict(self._graph("POST", "/facts", {"add": _rows(add), "remove": _rows(remove)}))

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Sends one request; returns its JSON. Errors have the server's words."""
        given = {key: _text(value) for key, value in query.items() if value is not None}
        url = f"{self.url}/api/v1{path}" + (f"?{urllib.parse.urlencode(given)}" if given else "")
        headers = {"Accept": "application/json"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise _error(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:  # also a part of one
            raise PatheError(
                f"{self.url}: no answer ({getattr(error, 'reason', error)})."
            ) from None

    def _graph(self, method: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        graph = urllib.parse.quote(self.graph, safe="")
        if self.overlay:
            query["overlay"] = self.overlay
        return dict(self.call(method, f"/graphs/{graph}{path}", body, **query))

    def _answers(self, path: str, **query: Any) -> Answers:
        return _answers(self._graph("GET", path, **query))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rows(facts: Iterable[Fact]) -> list[dict[str, str]]:
    return [dict(zip(PARTS, fact, strict=True)) for fact in facts]


def _records(kind: type[T], rows: list[dict[str, Any]]) -> Records[T]:
    names = list(inspect.signature(kind).parameters)
    return Records(kind(**{name: row[name] for name in names}) for row in rows)


def _answers(row: dict[str, Any]) -> Answers:
    return Answers(
        _records(Answer, row["answers"]),
        (row["head"], row["relation"], row["tail"]),
        complete=row["complete"],
        implausible=row["implausible"],
        left_out=row["left_out"],
    )


def _error(error: urllib.error.HTTPError) -> PatheError:
    try:
        detail = json.load(error)["detail"]
    except (ValueError, KeyError, TypeError):
        detail = f"{error.code} {error.reason}"
    return UnknownNameError(detail) if error.code == 404 else PatheError(detail)
