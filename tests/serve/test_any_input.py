"""Whatever a request holds: a result, or a sentence that says what is wrong; never a traceback."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tally import INPUTS

from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.serve.app import build_app
from pathe.serve.graphs import ServedGraph, Source
from pathe.serve.routes import api

FACTS = [
    *((f"city {i}", "in", f"country {i % 3}") for i in range(9)),
    *((f"country {i}", "borders", f"country {(i + 1) % 3}") for i in range(3)),
    *((f"city {i}", "type", "City") for i in range(9)),
]
ROUTES = sorted((method, route.path) for route in api.routes for method in route.methods)
TOKEN = "secret"

names = st.one_of(
    st.sampled_from(["city 1", "country 0", "in", "borders", "City", "Citi", "europe"]),
    st.text(max_size=20),
    st.sampled_from(["", "\0", "x" * 3000, "../../etc/passwd", "<b>", "\u202e", "NaN", "^in"]),
)
numbers = st.one_of(st.integers(-5, 1200), st.sampled_from([10**30, 1.5, "ten", "", "nan", "inf"]))
words = st.sampled_from(["head", "relation", "tail", "json", "csv", "ttl", "out", "true", "maybe"])
values = st.one_of(names, numbers, words, st.none(), st.booleans())
triples = st.one_of(
    st.fixed_dictionaries({}, optional=dict.fromkeys(("head", "relation", "tail"), values)),
    st.sampled_from([dict(zip(("head", "relation", "tail"), fact, strict=True)) for fact in FACTS]),
    st.lists(values, max_size=4),
    values,
)
lists = st.one_of(st.lists(triples, max_size=3), st.lists(st.lists(triples, max_size=3)), values)
KEYS = [
    "queries",
    "triples",
    "add",
    "remove",
    "without",
    "asked",
    "k",
    "offset",
    "known",
    "type",
    "plausible",
    "head",
    "relation",
    "tail",
    "patterns",
    "paths",
]
bodies = st.one_of(
    st.dictionaries(st.sampled_from(KEYS), lists | values, max_size=5),
    st.fixed_dictionaries({"triples": st.lists(triples, max_size=3)}),
    st.fixed_dictionaries({"queries": st.lists(triples, max_size=3), "k": numbers}),
    st.fixed_dictionaries({"add": st.lists(triples, max_size=2)}, optional={"remove": lists}),
    st.builds(
        lambda fact, without: {**fact, "without": without},
        st.sampled_from([{"head": "city 1", "relation": "in", "tail": "country 1"}]),
        st.dictionaries(st.sampled_from(["patterns", "paths"]), lists),
    ),
    lists,
)
queries = st.dictionaries(
    st.sampled_from(
        [
            "head",
            "relation",
            "tail",
            "name",
            "entity",
            "q",
            "k",
            "limit",
            "offset",
            "type",
            "known",
            "plausible",
            "overlay",
            "format",
            "asked",
            "direction",
            "min_probability",
            "sample",
        ]
    ),
    st.one_of(names, numbers.map(str), words),
    max_size=6,
)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    journal = tmp_path_factory.mktemp("any") / "journal"
    graph = ServedGraph(Source("tiny", KnowledgeGraph.from_triples(FACTS), journal=journal), "cpu")
    app = build_app([graph], token=TOKEN, public=True)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.mark.torture
@pytest.mark.parametrize(("method", "path"), ROUTES, ids=" ".join)
def test_a_result_or_a_sentence(client, method, path, tally):
    tried = 0

    @settings(max_examples=max(40, INPUTS // 100), deadline=None)
    @given(query=queries, body=bodies, raw=st.none() | st.binary(max_size=30), graph=st.booleans())
    def run(query, body, raw, graph):
        nonlocal tried
        tried += 1
        check(client, method, path, query, body, raw, graph)

    run()
    tally("fuzz: REST", tried, [])


def check(client, method, path, query, body, raw, graph):
    path = path.replace("{graph}", "tiny" if graph or "{" not in path else "other")
    overlay = str(query.get("overlay", "x")).replace("/", "") or "x"
    path = path.replace("{overlay}", quote(overlay.encode("utf-8", "replace")))
    text = raw if raw is not None else json.dumps(body)
    headers = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}
    given_body = {"content": text, "headers": headers} if method == "POST" else {}
    response = client.request(method, path, params=query, **given_body)
    assert response.status_code == 200 or 400 <= response.status_code < 500, response.text
    assert "Traceback" not in response.text
    if response.status_code != 200:
        assert response.headers["content-type"] == "application/problem+json"
        found = response.json()
        assert found["status"] == response.status_code
        assert len(found["detail"].split()) >= 2, "not a sentence"


def test_every_call_is_tried():
    assert len(ROUTES) >= 18
