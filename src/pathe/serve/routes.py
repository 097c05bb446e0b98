"""The calls of the REST interface."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from pathe.core.types import PARTS, Part, fill
from pathe.predict.predictor import Predictor
from pathe.serve import views
from pathe.serve.graphs import ServedGraph
from pathe.serve.queues import Job
from pathe.serve.requests import (
    Claims,
    Facts,
    Format,
    Given,
    K,
    Name,
    Offset,
    Overlay,
    Queries,
    Rescore,
    Text,
    Triples,
)
from pathe.serve.server import Server
from pathe.serve.tokens import has_token
from pathe.serve.views import AnswerOptions, Row

api = APIRouter(prefix="/api/v1")


async def server_of(request: Request) -> Server:
    """Returns the server that a request came to."""
    server: Server = request.app.state.server
    return server


Serving = Annotated[Server, Depends(server_of)]


async def graph_of(graph: str, server: Serving) -> ServedGraph:
    """Returns the graph that a path names."""
    return server.graph(graph)


Graph = Annotated[ServedGraph, Depends(graph_of)]


@api.get("/health")
async def health() -> Row:
    """Says that the server is up."""
    return {"status": "ok"}


@api.get("/graphs")
async def graphs(server: Serving) -> Row:
    """Lists the graphs that are served."""
    return {"graphs": [graph.about() for graph in server.graphs.values()]}


@api.get("/graphs/{graph}")
async def about(graph: Graph) -> Row:
    """Describes a graph: its sizes, relations and types, and the model's card."""
    more = {"relations_list": graph.relations(), "types": graph.types, "card": graph.card()}
    return graph.about() | more


@api.get("/graphs/{graph}/entities")
async def entities(
    server: Serving,
    graph: Graph,
    q: Text = "",
    type: Given = None,
    limit: K = 20,
) -> Row:
    """Finds entities by a part of their name or label, also with typos."""
    return await server.do(
        "fast", graph, "", lambda p, job: {"entities": graph.search(q, type, limit)}
    )


@api.get("/graphs/{graph}/relations")
async def relations(graph: Graph, q: Text = "", limit: K = 50) -> Row:
    """Finds relations by a part of their name or label."""
    return {"relations": graph.relations(q, limit)}


@api.get("/graphs/{graph}/entity")
async def entity(
    server: Serving,
    graph: Graph,
    name: Name,
    relation: Given = None,
    direction: Literal["both", "out", "in"] = "both",
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: K = 50,
    overlay: Overlay = "",
    format: Format = "json",
) -> Any:
    """Returns the facts of an entity."""
    more = relation, direction, offset, limit
    row = await server.do(
        "fast", graph, overlay, lambda p, job: views.entity(graph, p, name, *more)
    )
    return _as(format, graph, row, "facts")


@api.get("/graphs/{graph}/predict")
async def predict(
    request: Request,
    server: Serving,
    graph: Graph,
    head: Given = None,
    relation: Given = None,
    tail: Given = None,
    k: K = 10,
    offset: Offset = 0,
    known: bool = False,
    type: Given = None,
    plausible: bool = True,
    overlay: Overlay = "",
    format: Format = "json",
) -> Any:
    """Answers a query: give two of head, relation and tail; the third is predicted."""
    key, query = server.key(request), (head, relation, tail)
    options = AnswerOptions(k, offset, known, type, plausible)
    found = await server.answer(graph, overlay, query, options)
    if format == "json":
        return server.keep(key, request, Response(found, media_type="application/json"))
    row = json.loads(found)
    given = row["head"], row["relation"], row["tail"]
    rows = [
        dict(zip(PARTS, fill(given, answer["name"]), strict=True)) | answer
        for answer in row["answers"]
    ]
    return _as(format, graph, {"answers": rows}, "answers")


@api.post("/graphs/{graph}/predict")
async def predict_many(server: Serving, graph: Graph, body: Queries, overlay: Overlay = "") -> Row:
    """Answers many queries."""
    options = AnswerOptions(body.k, body.offset, body.known, body.type, body.plausible)
    queries = [(q.head, q.relation, q.tail) for q in body.queries]

    def work(p: Predictor, job: Job[Any, Any]) -> Row:
        found = views.answers(graph, p, queries, options)
        for number, result in enumerate(found):
            if isinstance(result, Exception):
                raise type(result)(f"queries.{number}: {result}")
        return {"results": found}

    return await server.do("medium", graph, overlay, work)


@api.post("/graphs/{graph}/score")
async def score(server: Serving, graph: Graph, body: Triples, overlay: Overlay = "") -> Row:
    """Returns scores, ranks and probabilities of triples."""
    facts = [triple.fact for triple in body.triples]
    return await server.do(
        "medium",
        graph,
        overlay,
        lambda p, job: {"triples": [vars(r) for r in p.score(facts, body.asked)]},
    )


@api.post("/graphs/{graph}/classify")
async def classify(server: Serving, graph: Graph, body: Claims, overlay: Overlay = "") -> Row:
    """Says of triples whether they are true, and how probable that is."""
    facts = [triple.fact for triple in body.triples]

    def work(p: Predictor, job: Job[Any, Any]) -> Row:
        return {"triples": [vars(row) for row in p.classify(facts, progress=job.progress)]}

    return await server.do("slow", graph, overlay, work)


@api.get("/graphs/{graph}/explain")
async def explain(
    request: Request,
    server: Serving,
    graph: Graph,
    head: Name,
    relation: Name,
    tail: Name,
    asked: Part | None = None,
    overlay: Overlay = "",
) -> Any:
    """Explains a triple's score by patterns of paths."""
    fact = head, relation, tail
    key = server.key(request)
    found = await server.do(
        "medium", graph, overlay, lambda p, job: to_json(views.explanation(graph, p, fact, asked))
    )
    return server.keep(key, request, Response(found, media_type="application/json"))


@api.post("/graphs/{graph}/explain")
async def rescore(server: Serving, graph: Graph, body: Rescore, overlay: Overlay = "") -> Row:
    """Scores a triple without some patterns or paths of its explanation."""
    without = body.without
    more = body.fact, body.asked, without.patterns, [list(path) for path in without.paths]
    return await server.do("medium", graph, overlay, lambda p, job: views.rescored(p, *more))


@api.get("/graphs/{graph}/missing")
async def missing(
    server: Serving,
    graph: Graph,
    entity: Given = None,
    relation: Given = None,
    type: Given = None,
    k: K = 20,
    min_probability: Annotated[float, Query(ge=0, le=1)] = 0.0,
    overlay: Overlay = "",
    format: Format = "json",
) -> Any:
    """Lists the facts that the graph most probably lacks; this takes seconds to minutes."""
    of = _of(entity, relation, type)
    row = await server.do(
        "slow",
        graph,
        overlay,
        lambda p, job: views.missing(graph, p, of, k, min_probability, job.progress),
    )
    return _as(format, graph, row, "triples")


@api.get("/graphs/{graph}/suspicious")
async def suspicious(
    server: Serving,
    graph: Graph,
    entity: Given = None,
    relation: Given = None,
    type: Given = None,
    k: K = 20,
    sample: Annotated[int | None, Query(ge=1)] = None,
    overlay: Overlay = "",
    format: Format = "json",
) -> Any:
    """Lists the facts that the rest of the graph speaks against; may take minutes."""
    of = _of(entity, relation, type)
    row = await server.do(
        "slow",
        graph,
        overlay,
        lambda p, job: views.suspicious(graph, p, of, k, sample, job.progress),
    )
    return _as(format, graph, row, "facts")


@api.get("/graphs/{graph}/similar")
async def similar(
    server: Serving,
    graph: Graph,
    entity: Name,
    k: K = 10,
    type: Given = None,
    overlay: Overlay = "",
    format: Format = "json",
) -> Any:
    """Lists similar entities."""
    which: Any = {"type": type} if type else {}

    def work(p: Predictor, job: Job[Any, Any]) -> Row:
        found = p.similar(p.entity_names.exact(entity), k, **which)
        return {"entities": [vars(row) | {"label": graph.show(row.name)} for row in found]}

    return _as(format, graph, await server.do("medium", graph, overlay, work), "entities")


@api.get("/graphs/{graph}/rules")
async def rules(
    server: Serving,
    graph: Graph,
    relation: Given = None,
    k: K = 5,
    overlay: Overlay = "",
    format: Format = "json",
) -> Any:
    """Lists the paths that the model trusts most to predict a relation."""
    row = await server.do("slow", graph, overlay, lambda p, job: views.rules(graph, p, relation, k))
    return _as(format, graph, row, "rules")


@api.post("/graphs/{graph}/overlays")
async def add_overlay(server: Serving, graph: Graph, body: Facts) -> Row:
    """Keeps changes for "what if" questions; give their id as `overlay` in other requests."""
    changes = body.changes

    def work(p: Predictor, job: Job[Any, Any]) -> Row:
        overlay, n_added, n_removed = graph.add_overlay(changes)
        return {"overlay": overlay, "added": n_added, "removed": n_removed}

    return await server.do("medium", graph, "", work)


@api.get("/graphs/{graph}/overlays/{overlay}")
async def get_overlay(graph: Graph, overlay: Annotated[str, Field(max_length=64)]) -> Row:
    """Returns the changes of an overlay."""
    changes = graph.overlay(overlay)
    return {
        key: [dict(zip(PARTS, fact, strict=True)) for fact in getattr(changes, key)]
        for key in ("add", "remove")
    }


@api.post("/graphs/{graph}/facts")
async def change(server: Serving, graph: Graph, body: Facts, request: Request) -> Row:
    """Adds and removes facts for everyone; needs --writable and the token."""
    token = request.app.state.token
    if graph.journal is not None and not (token and has_token(request, token)):
        raise HTTPException(401, "Give the token: Authorization: Bearer TOKEN.")
    added, removed = await server.do("medium", graph, "", lambda p, job: graph.change(body.changes))
    return {"added": added, "removed": removed}


def _of(entity: str | None, relation: str | None, type: str | None) -> Row:
    given = {"entities": entity, "relations": relation, "type": type}
    return {key: value for key, value in given.items() if value is not None}


def _as(format: Format, graph: ServedGraph, row: Row, key: str) -> Any:
    """Returns rows as they are, or as a file."""
    if format == "json":
        return row
    is_csv = format == "csv"
    text = views.as_csv(row[key]) if is_csv else views.as_turtle(graph, row[key])
    return Response(
        text,
        media_type="text/csv; charset=utf-8" if is_csv else "text/turtle; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{key}.{format}"'},
    )
