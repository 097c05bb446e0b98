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
from pathe.serve.queues import Batch
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
from pathe.serve.server import Caller
from pathe.serve.tokens import has_token
from pathe.serve.views import AnswerOptions, Row, Table

api = APIRouter(prefix="/api/v1")


async def caller_of(request: Request) -> Caller:
    """Returns the client that a request came from, with the server that it came to."""
    return Caller(request.app.state.server, request)


Calling = Annotated[Caller, Depends(caller_of)]


async def graph_of(graph: str, caller: Calling) -> ServedGraph:
    """Returns the graph that a path names."""
    return caller.server.graph(graph)


Graph = Annotated[ServedGraph, Depends(graph_of)]


async def which_facts(entity: Given = None, relation: Given = None, type: Given = None) -> Row:
    """Returns which facts are looked for, as options of `Predictor.missing` and `check`."""
    given = {"entities": entity, "relations": relation, "type": type}
    return {key: value for key, value in given.items() if value is not None}


Of = Annotated[Row, Depends(which_facts)]


@api.get("/health")
async def health() -> Row:
    """Says that the server is up."""
    return {"status": "ok"}


@api.get("/graphs")
async def graphs(caller: Calling) -> Row:
    """Lists the graphs that are served."""
    return {"graphs": [graph.about() for graph in caller.server.graphs.values()]}


@api.get("/graphs/{graph}")
async def about(caller: Calling, graph: Graph) -> Row:
    """Describes a graph: its sizes, relations and types, and the model's card."""

    def work() -> Row:
        types = graph.version.types
        more = {"relations_list": graph.relations(), "types": types, "card": graph.card()}
        return graph.about() | more

    return await caller.look_up(graph, work)


@api.get("/graphs/{graph}/entities")
async def entities(
    caller: Calling,
    graph: Graph,
    q: Text = "",
    type: Given = None,
    limit: K = 20,
) -> Row:
    """Finds entities by a part of their name or label, also with typos."""
    return await caller.do(
        "fast", graph, "", lambda p, batch: {"entities": graph.search(q, type, limit)}
    )


@api.get("/graphs/{graph}/relations")
async def relations(caller: Calling, graph: Graph, q: Text = "", limit: K = 50) -> Row:
    """Finds relations by a part of their name or label."""
    return await caller.look_up(graph, lambda: {"relations": graph.relations(q, limit)})


@api.get("/graphs/{graph}/entity")
async def entity(
    caller: Calling,
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
    row = await caller.do(
        "fast", graph, overlay, lambda p, batch: views.entity(graph, p, name, *more)
    )
    return _as(format, graph, row, views.FACTS)


@api.get("/graphs/{graph}/predict")
async def predict(
    request: Request,
    caller: Calling,
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
    key, query = caller.server.key(request), (head, relation, tail)
    options = AnswerOptions(k, offset, known, type, plausible)
    found = await caller.answer(graph, overlay, query, options)
    if format == "json":
        return caller.server.keep(key, request, Response(found, media_type="application/json"))
    row = json.loads(found)
    given = row["head"], row["relation"], row["tail"]
    rows = [
        dict(zip(PARTS, fill(given, answer["name"]), strict=True)) | answer
        for answer in row["answers"]
    ]
    return _as(format, graph, {"answers": rows}, views.ANSWERS)


@api.post("/graphs/{graph}/predict")
async def predict_many(caller: Calling, graph: Graph, body: Queries, overlay: Overlay = "") -> Row:
    """Answers many queries."""
    options = AnswerOptions(body.k, body.offset, body.known, body.type, body.plausible)
    queries = [(q.head, q.relation, q.tail) for q in body.queries]

    def work(p: Predictor, batch: Batch) -> Row:
        found = views.answers(graph, p, queries, options, batch.progress)
        for number, result in enumerate(found):
            if isinstance(result, Exception):
                raise type(result)(f"queries.{number}: {result}")
        return {"results": found}

    return await caller.do("medium", graph, overlay, work)


@api.post("/graphs/{graph}/score")
async def score(caller: Calling, graph: Graph, body: Triples, overlay: Overlay = "") -> Row:
    """Returns scores, ranks and probabilities of triples."""
    facts = [triple.fact for triple in body.triples]
    return await caller.do(
        "medium",
        graph,
        overlay,
        lambda p, batch: {
            "triples": [vars(row) for row in p.score(facts, body.asked, progress=batch.progress)]
        },
    )


@api.post("/graphs/{graph}/classify")
async def classify(caller: Calling, graph: Graph, body: Claims, overlay: Overlay = "") -> Row:
    """Says of triples whether they are true, and how probable that is."""
    facts = [triple.fact for triple in body.triples]

    def work(p: Predictor, batch: Batch) -> Row:
        return {"triples": [vars(row) for row in p.classify(facts, progress=batch.progress)]}

    return await caller.do("slow", graph, overlay, work)


@api.get("/graphs/{graph}/explain")
async def explain(
    request: Request,
    caller: Calling,
    graph: Graph,
    head: Name,
    relation: Name,
    tail: Name,
    asked: Part | None = None,
    overlay: Overlay = "",
) -> Any:
    """Explains a triple's score by patterns of paths."""
    fact = head, relation, tail
    key = caller.server.key(request)
    found = await caller.do(
        "medium",
        graph,
        overlay,
        lambda p, batch: to_json(views.explanation(graph, p, fact, asked, batch.progress)),
    )
    return caller.server.keep(key, request, Response(found, media_type="application/json"))


@api.post("/graphs/{graph}/explain")
async def rescore(caller: Calling, graph: Graph, body: Rescore, overlay: Overlay = "") -> Row:
    """Scores a triple without some patterns or paths of its explanation."""
    without = body.without
    more = body.fact, body.asked, without.patterns, [list(path) for path in without.paths]
    return await caller.do(
        "medium", graph, overlay, lambda p, batch: views.rescored(p, *more, batch.progress)
    )


@api.get("/graphs/{graph}/missing")
async def missing(
    caller: Calling,
    graph: Graph,
    of: Of,
    k: K = 20,
    min_probability: Annotated[float, Query(ge=0, le=1)] = 0.0,
    overlay: Overlay = "",
    format: Format = "json",
) -> Any:
    """Lists the facts that the graph most probably lacks; this takes seconds to minutes."""
    row = await caller.do(
        "slow",
        graph,
        overlay,
        lambda p, batch: views.missing(graph, p, of, k, min_probability, batch.progress),
    )
    return _as(format, graph, row, views.MISSING)


@api.get("/graphs/{graph}/suspicious")
async def suspicious(
    caller: Calling,
    graph: Graph,
    of: Of,
    k: K = 20,
    sample: Annotated[int | None, Query(ge=1)] = None,
    overlay: Overlay = "",
    format: Format = "json",
) -> Any:
    """Lists the facts that look wrong, given the rest of the graph; may take minutes."""
    row = await caller.do(
        "slow",
        graph,
        overlay,
        lambda p, batch: views.suspicious(graph, p, of, k, sample, batch.progress),
    )
    return _as(format, graph, row, views.SUSPICIOUS)


@api.get("/graphs/{graph}/similar")
async def similar(
    caller: Calling,
    graph: Graph,
    entity: Name,
    k: K = 10,
    type: Given = None,
    overlay: Overlay = "",
    format: Format = "json",
) -> Any:
    """Lists similar entities."""
    which: Any = {"type": type} if type else {}

    def work(p: Predictor, batch: Batch) -> Row:
        found = p.similar(p.entity_names.exact(entity), k, **which)
        return {"entities": [vars(row) | {"label": graph.show(row.name)} for row in found]}

    return _as(format, graph, await caller.do("medium", graph, overlay, work), views.SIMILAR)


@api.get("/graphs/{graph}/rules")
async def rules(
    caller: Calling,
    graph: Graph,
    relation: Given = None,
    k: K = 5,
    overlay: Overlay = "",
    format: Format = "json",
) -> Any:
    """Lists the paths that the model trusts most to predict a relation."""
    row = await caller.do(
        "slow",
        graph,
        overlay,
        lambda p, batch: views.rules(graph, p, relation, k, batch.progress),
    )
    return _as(format, graph, row, views.RULES)


@api.post("/graphs/{graph}/overlays")
async def add_overlay(caller: Calling, graph: Graph, body: Facts) -> Row:
    """Keeps changes for "what if" questions; give their id as `overlay` in other requests."""
    changes = body.changes

    def work(p: Predictor, batch: Batch) -> Row:
        overlay, n_added, n_removed = graph.add_overlay(changes)
        return {"overlay": overlay, "added": n_added, "removed": n_removed}

    return await caller.do("medium", graph, "", work)


@api.get("/graphs/{graph}/overlays/{overlay}")
async def get_overlay(graph: Graph, overlay: Annotated[str, Field(max_length=64)]) -> Row:
    """Returns the changes of an overlay."""
    changes = graph.overlay(overlay)
    return {
        key: [dict(zip(PARTS, fact, strict=True)) for fact in getattr(changes, key)]
        for key in ("add", "remove")
    }


@api.post("/graphs/{graph}/facts")
async def change(caller: Calling, graph: Graph, body: Facts, request: Request) -> Row:
    """Adds and removes facts for everyone; needs --writable and the token."""
    token = request.app.state.token
    if graph.journal is not None and not (token and has_token(request, token)):
        raise HTTPException(401, "Give the token: Authorization: Bearer TOKEN.")
    added, removed = await caller.do(
        "medium", graph, "", lambda p, batch: graph.change(body.changes, batch.commit)
    )
    return {"added": added, "removed": removed}


def _as(format: Format, graph: ServedGraph, row: Row, table: Table) -> Any:
    """Returns rows as they are, or as a file."""
    if format == "json":
        return row
    is_csv, rows = format == "csv", row[table.key]
    text = views.as_csv(table, rows) if is_csv else views.as_turtle(graph, table, rows)
    return Response(
        text,
        media_type="text/csv; charset=utf-8" if is_csv else "text/turtle; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{table.key}.{format}"'},
    )
