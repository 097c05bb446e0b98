"""The REST interface: every call, bad input, visitors' changes, tokens, limits."""

from __future__ import annotations

import csv
import io
import json
import pydoc
import time
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread, current_thread
from urllib.parse import urlencode

import pytest
from support.models import artifact_of

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from pathe import Predictor
from pathe.core.errors import ConfigError, DataError, PatheError, UnknownNameError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.model.artifact import save_model
from pathe.serve import views
from pathe.serve.app import build_app
from pathe.serve.graphs import ServedGraph, Source
from pathe.serve.journal import Changes
from pathe.serve.queues import Batch, Cancelled
from pathe.serve.search import NameIndex
from pathe.serve.server import Limits

ROOT = Path(__file__).parents[2]
BASE = "/api/v1/graphs/europe"
CAPITAL = {"head": "Paris", "relation": "capital of", "tail": "France"}
FACT = tuple(CAPITAL.values())
TOKEN = "secret"


def europe() -> KnowledgeGraph:
    return KnowledgeGraph.read(ROOT / "examples" / "europe.csv", split=(0.8, 0.1, 0.1), seed=3)


def served(**options) -> ServedGraph:
    return ServedGraph(Source("europe", europe(), **options), "cpu")


@pytest.fixture(scope="module")
def client():
    with TestClient(build_app([served()]), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def plain() -> Predictor:
    kg = europe()
    return Predictor(replace(kg, valid=kg.valid[:0], test=kg.test[:0]), device="cpu")


def get(client, path, status=200, **query):
    response = client.get(f"{BASE}{path}", params=query)
    assert response.status_code == status, response.text
    return response.json()


def test_the_graph_is_described(client):
    [about] = client.get("/api/v1/graphs").json()["graphs"]
    kg = europe()
    assert about["name"] == "europe"
    assert about["triples"] == len(kg.train)
    assert about["held_out"] == len(kg.valid) + len(kg.test)
    assert about["model"]["title"] == "pre-trained"
    more = get(client, "")
    assert sum(relation["facts"] for relation in more["relations_list"]) == len(kg.train)
    assert "PathE" in more["card"]


def test_entities_are_found_and_shown(client):
    assert get(client, "/entities", q="itly")["entities"][0]["name"] == "Italy"
    assert len(get(client, "/entities", q="a", limit=3)["entities"]) == 3
    card = get(client, "/entity", name="Italy", limit=2)
    assert len(card["facts"]) == 2
    assert card["total"] == sum(row["facts"] for row in card["counts"])
    rest = get(client, "/entity", name="Italy", offset=2, limit=1000)
    assert len(rest["facts"]) == card["total"] - 2
    borders = get(client, "/entity", name="Italy", relation="borders", direction="out")
    assert {(f["head"], f["relation"]) for f in borders["facts"]} == {("Italy", "borders")}


def test_answers_are_those_of_the_predictor(client, plain):
    found = get(client, "/predict", head="Italy", relation="borders", k=5)
    expected = plain.tails("Italy", "borders", k=5)
    assert [a["name"] for a in found["answers"]] == [a.name for a in expected]
    assert found["answers"][0]["score"] == pytest.approx(expected[0].score, abs=1e-4)
    second = get(client, "/predict", head="Italy", relation="borders", k=2, offset=3)
    assert second["answers"] == found["answers"][3:]
    heads = get(client, "/predict", relation="capital of", tail="France", k=2)
    assert heads["asked"] == "head"
    between = get(client, "/predict", head="Paris", tail="France", k=1)
    assert between["asked"] == "relation"


def test_held_out_facts_are_marked_not_filtered(client):
    kg = europe()
    held_out = {
        (kg.entities[h], kg.relations[r], kg.entities[t])
        for split in (kg.valid, kg.test)
        for h, r, t in split.tolist()
    }
    head, relation, _ = min(held_out)
    found = get(client, "/predict", head=head, relation=relation, k=300, plausible=False)
    assert {a["name"] for a in found["answers"] if a["held_out"]} == {
        t for h, r, t in held_out if (h, r) == (head, relation)
    }


def test_many_queries_are_answered_in_one_request(client):
    queries = [{"head": "Italy", "relation": "borders"}, {"head": "Paris", "tail": "France"}]
    found = client.post(f"{BASE}/predict", json={"queries": queries, "k": 2}).json()["results"]
    one = get(client, "/predict", head="Italy", relation="borders", k=2)
    assert [a["name"] for a in found[0]["answers"]] == [a["name"] for a in one["answers"]]
    assert found[1]["asked"] == "relation"
    queries[1]["tail"] = "Nowhere"
    response = client.post(f"{BASE}/predict", json={"queries": queries})
    assert response.status_code == 404
    assert response.json()["detail"].startswith("queries.1: unknown entity 'Nowhere'")


def test_a_query_that_cant_be_answered_leaves_the_others(tmp_path):
    kg = europe()
    save_model(tmp_path / "model", artifact_of(kg, task="link"))
    graph = ServedGraph(Source("europe", kg, tmp_path / "model"), "cpu")
    p, good = graph.predictor("fast"), ("Italy", "borders", None)
    queries = [good, ("Paris", None, "France"), (None, "borders", "Nowhere"), good]
    steps = []
    found = views.answers(graph, p, queries, views.AnswerOptions(), lambda *own: steps.append(own))
    assert [type(one) for one in found] == [dict, ConfigError, UnknownNameError, dict]
    assert found[0] == found[3]
    [alone] = views.answers(graph, p, [good], views.AnswerOptions(), lambda done, total: None)
    assert [a["name"] for a in alone["answers"]] == [a["name"] for a in found[0]["answers"]]
    found = views.answers(
        graph, p, [good] * 130, views.AnswerOptions(k=1), lambda *own: steps.append(own)
    )
    assert len(found) == 130
    assert steps == [(0, 4), (0, 130), (64, 130), (128, 130)]


def test_triples_are_scored_and_judged(client):
    wrong = CAPITAL | {"tail": "Spain"}
    found = client.post(f"{BASE}/score", json={"triples": [CAPITAL, wrong]}).json()["triples"]
    assert found[0]["rank"] < found[1]["rank"]
    judged = client.post(f"{BASE}/classify", json={"triples": [CAPITAL, wrong]}).json()["triples"]
    assert judged[0]["probability"] > judged[1]["probability"]


def test_reasons_can_be_left_out(client):
    why = get(client, "/explain", **CAPITAL)
    pattern = why["patterns"][0]
    assert pattern["effect"] > 0
    assert why["labels"]["Paris"] == "Paris"
    body = CAPITAL | {"without": {"patterns": [pattern["relations"]]}}
    found = client.post(f"{BASE}/explain", json=body).json()
    assert found["score_before"] == pytest.approx(why["score"], abs=0.1)
    assert found["score"] == pytest.approx(why["score"] - pattern["effect"], abs=0.1)
    assert found["rank"] >= found["rank_before"]
    alone = client.post(f"{BASE}/explain", json=CAPITAL).json()
    assert alone["score"] == alone["score_before"]


def test_missing_suspicious_similar_and_rules(client):
    lacking = get(client, "/missing", relation="borders", k=5)["triples"]
    assert len(lacking) == 5
    assert {row["relation"] for row in lacking} == {"borders"}
    doubted = get(client, "/suspicious", entity="Paris", k=2)["facts"]
    assert all("Paris" in (row["head"], row["tail"]) for row in doubted)
    assert len(get(client, "/similar", entity="Paris", k=3)["entities"]) == 3
    [rule] = get(client, "/rules", relation="capital of", k=1)["rules"]
    assert rule["relation"] == "capital of"
    assert 1 <= len(rule["instances"]) <= 3
    for entities, labels in zip(rule["instances"], rule["instance_labels"], strict=True):
        assert len(entities) == len(labels) == len(rule["path"]) + 1
        card = get(client, "/entity", name=entities[0], relation="capital of", direction="out")
        assert entities[-1] in {row["tail"] for row in card["facts"]}
    wanted = {"relation": "capital of", "k": 1, "format": "csv"}
    text = client.get(f"{BASE}/rules", params=wanted).text
    assert " > ".join(rule["instances"][0]) in text


def test_changes_are_a_visitors_own(client):
    query = {"head": "Paris", "relation": "capital of", "k": 1, "known": True}
    before = get(client, "/predict", **query)
    card = get(client, "/entity", name="Paris")["total"]
    body = {"add": [{"head": "Atlantis", "relation": "borders", "tail": "Paris"}]}
    made = client.post(f"{BASE}/overlays", json=body).json()
    assert (made["added"], made["removed"]) == (1, 0)
    same = client.post(f"{BASE}/overlays", json=body).json()
    assert same["overlay"] == made["overlay"]  # a hash of the facts
    overlay = made["overlay"]
    assert get(client, f"/overlays/{overlay}") == body | {"remove": []}
    assert get(client, "/entity", name="Paris", overlay=overlay)["total"] == card + 1
    get(client, "/entity", name="Atlantis", overlay=overlay)
    changed = get(client, "/predict", head="Atlantis", relation="borders", overlay=overlay)
    assert changed["answers"]
    get(client, "/entity", 404, name="Atlantis")
    assert get(client, "/entity", name="Paris")["total"] == card
    assert get(client, "/predict", **query) == before
    get(client, "/predict", 404, **query, overlay="0123456789abcdef")


def test_lists_can_be_downloaded(client):
    response = client.get(f"{BASE}/predict", params={"head": "Italy", "relation": "borders",
                                                     "k": 3, "format": "csv"})  # fmt: skip
    assert response.headers["content-type"].startswith("text/csv")
    assert "attachment" in response.headers["content-disposition"]
    lines = response.text.splitlines()
    assert lines[0].startswith("head,relation,tail,rank")
    assert len(lines) == 4
    response = client.get(f"{BASE}/entity", params={"name": "Italy", "format": "ttl"})
    assert response.text.count(" .\n") > 10
    similar = client.get(f"{BASE}/similar", params={"entity": "Italy", "format": "ttl"})
    assert similar.status_code == 400


TABLES = [
    ("/predict", {"head": "Italy", "relation": "borders"}, {"offset": 10_000}),
    ("/entity", {"name": "Italy"}, {"offset": 10_000}),
    ("/missing", {"relation": "borders"}, {"min_probability": 1}),
    ("/suspicious", {"relation": "lies on"}, {"entity": "Andorra"}),
    ("/rules", {"relation": "capital of"}, {}),
    ("/similar", {"entity": "Italy"}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "query", "none"), TABLES)
def test_a_list_without_rows_has_the_same_header(client, path, query, none):
    texts = [
        client.get(f"{BASE}{path}", params=query | more | {"format": "csv"}).text
        for more in ({}, none)
    ]
    some, empty = (list(csv.reader(io.StringIO(text))) for text in texts)
    assert len(some) > 1
    assert empty[0] == some[0]
    assert len(empty) == 1 or not none
    rows = get(client, path, **query)
    [key] = [key for key in ("answers", "facts", "triples", "rules", "entities") if key in rows]
    own = ["head", "relation", "tail"] * (path == "/predict")
    assert some[0] == [*own, *rows[key][0]]


BAD = [
    ("GET", "/predict?head=Paris", None, 400, "Give two of head, relation and tail"),
    ("GET", "/predict?head=Paris&relation=capitalof", None, 404, "Closest: 'capital of'"),
    ("GET", "/predict?head=Paris&relation=borders&k=0", None, 422, "k: Input should be"),
    ("GET", "/predict?head=Paris&relation=borders&k=x", None, 422, "k: "),
    ("GET", "/predict?head=Paris&relation=borders&type=City", None, 400, "no types"),
    ("GET", "/predict?head=&relation=borders", None, 422, "head: "),
    ("GET", f"/predict?head={'x' * 2001}&relation=borders", None, 422, "head: "),
    ("GET", "/predict?head=%ff&relation=borders", None, 404, "unknown entity"),
    ("GET", "/predict?head=%00&relation=borders", None, 404, "unknown entity"),
    ("GET", "/predict?head=..%2F..%2Fetc%2Fpasswd&relation=borders", None, 404, "unknown entity"),
    ("GET", "/entity", None, 422, "name: Field required"),
    ("GET", "/entity?name=Nowhere", None, 404, "unknown entity 'Nowhere'"),
    ("GET", "/entity?name=Paris&direction=up", None, 422, "direction: "),
    ("GET", "/explain?head=Paris&relation=borders", None, 422, "tail: Field required"),
    ("GET", "/explain?head=Paris&relation=borders&tail=Nowhere", None, 404, "unknown entity"),
    ("GET", "/missing?relation=unknown", None, 404, "unknown relation"),
    ("GET", "/missing?min_probability=2", None, 422, "min_probability: "),
    ("GET", "/suspicious?sample=0", None, 422, "sample: "),
    ("GET", "/similar?entity=Nowhere", None, 404, "unknown entity"),
    ("GET", "/rules?relation=unknown", None, 404, "unknown relation"),
    ("GET", "/nothing", None, 404, "No such endpoint"),
    ("GET", "/overlays/zzz", None, 404, "Overlay 'zzz' doesn't exist"),
    ("POST", "/predict", {"queries": []}, 422, "queries: "),
    ("POST", "/predict", {"queries": [{"head": "Paris"}]}, 400, "queries.0: Give two"),
    ("POST", "/predict", {"queries": [{"head": "Paris", "what": 1}]}, 422, "what: "),
    ("POST", "/score", {"triples": [CAPITAL], "asked": "both"}, 422, "asked: "),
    ("POST", "/score", {"triples": [CAPITAL] * 1001}, 422, "triples: "),
    ("POST", "/score", {"triples": [{"head": 1}]}, 422, "head: "),
    ("POST", "/classify", {}, 422, "triples: Field required"),
    ("POST", "/explain", CAPITAL | {"without": {"patterns": [["x"]]}}, 404, "unknown relation"),
    ("POST", "/explain", CAPITAL | {"without": {"paths": [[["a", "b", "c"]]]}}, 404, "unknown"),
    ("POST", "/explain", CAPITAL | {"without": {"patterns": [[]]}}, 422, "at least 1 item"),
    ("POST", "/explain", CAPITAL | {"without": {"paths": [[]]}}, 422, "at least 1 item"),
    ("POST", "/explain", CAPITAL | {"without": {"patterns": [["x"] * 17]}}, 422, "at most 16"),
    ("POST", "/explain", CAPITAL | {"without": {"paths": [[FACT] * 17]}}, 422, "at most 16"),
    ("POST", "/overlays", {"add": [CAPITAL | {"relation": "new"}]}, 404, "unknown relation"),
    ("POST", "/overlays", {"remove": [CAPITAL | {"tail": "Spain"}]}, 400, "can't be removed"),
    ("POST", "/overlays", {"add": [CAPITAL] * 101}, 400, "at most 100"),
    ("POST", "/facts", {"add": [CAPITAL]}, 400, "read-only"),
    ("POST", "/score", b"{not json", 422, "The body should be JSON"),
    ("POST", "/score", b"", 422, "body: "),
    ("DELETE", "/facts", None, 405, "No such endpoint"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status", "words"), BAD)
def test_bad_input_gets_a_sentence(client, method, path, body, status, words):
    given = {"content": body} if isinstance(body, bytes) else {} if body is None else {"json": body}
    headers = {"content-type": "application/json"}
    response = client.request(method, f"{BASE}{path}", headers=headers, **given)
    found = response.json()
    assert response.status_code == found["status"] == status, found
    assert response.headers["content-type"] == "application/problem+json"
    assert words in found["detail"]
    assert "Traceback" not in response.text


def test_an_unknown_graph(client):
    response = client.get("/api/v1/graphs/asia/predict")
    assert response.status_code in (404, 422)
    assert "europe" in client.get("/api/v1/graphs/asia").json()["detail"]


def test_large_bodies_are_refused():
    with TestClient(build_app([served()], limits=Limits(body=1000))) as client:
        response = client.post(f"{BASE}/score", json={"triples": [CAPITAL] * 50})
        assert response.status_code == 413
        endless = (b"x" for _ in range(10))  # sent in chunks, without a length
        assert client.post(f"{BASE}/score", content=endless).status_code == 413


def test_a_full_queue_says_when_to_come_back():
    with TestClient(build_app([served()], limits=Limits(waiting=0))) as client:
        response = client.get(f"{BASE}/similar", params={"entity": "Paris"})
        assert response.status_code == 429
        assert response.headers["retry-after"] == "1"


def test_answers_are_kept_until_the_graph_changes(tmp_path):
    graph = served(journal=tmp_path / "changes.jsonl")
    app = build_app([graph], token=TOKEN, public=True)
    cache, query = app.state.server.cache, {"head": "Italy", "relation": "borders", "k": 300}
    new = {"head": "Italy", "relation": "borders", "tail": "Iceland"}
    with TestClient(app) as client:
        first = client.get(f"{BASE}/predict", params=query)
        assert cache.hits == 0
        again = client.get(f"{BASE}/predict", params=query)
        assert cache.hits == 1
        assert (again.content, again.headers["content-type"]) == (first.content, "application/json")
        assert "content-security-policy" in again.headers
        assert get(client, "/explain", **CAPITAL) == get(client, "/explain", **CAPITAL)
        assert cache.hits == 2
        headers = {"authorization": f"Bearer {TOKEN}"}
        client.post(f"{BASE}/facts", json={"add": [new]}, headers=headers)
        changed = get(client, "/predict", **query)
        assert cache.hits == 2
        assert changed["n_known"] == first.json()["n_known"] + 1
        shown = 'pathe_requests_total{path="/api/v1/graphs/{graph}/predict",status="200"} 3.0'
        assert shown in client.get("/metrics").text


def test_kept_answers_have_a_size_in_all():
    app = build_app([served()], limits=Limits(cached=20_000))
    with TestClient(app) as client:
        for name in ("Italy", "Paris", "France", "Vienna", "Spain", "Rhine"):
            get(client, "/predict", head=name, relation="borders", k=100)
        cache = app.state.server.cache
        assert 1 <= len(cache._values) < 6
        assert cache.total == sum(map(cache.size, cache._values.values())) <= 20_000


def test_long_work_ends_in_time():
    with TestClient(build_app([served()], limits=Limits(slow_seconds=0.05))) as client:
        response = client.get(f"{BASE}/missing")
        assert response.status_code == 504
        assert "within 0.05 seconds" in response.json()["detail"]


LONG = [
    ("POST", "/predict", {"queries": [{"head": "Italy", "relation": "borders"}] * 65}, 2),
    ("GET", "/predict?head=Italy&relation=borders&offset=1", None, 1),
    ("POST", "/score", {"triples": [CAPITAL] * 3}, 3),
    ("POST", "/classify", {"triples": [CAPITAL]}, 1),
    ("GET", "/explain?" + urlencode(CAPITAL | {"asked": "tail"}), None, 4),
    ("POST", "/explain", CAPITAL | {"without": {"patterns": [["city in"]] * 9}}, 11),
    ("GET", "/missing?relation=borders", None, 1),
    ("GET", "/suspicious?sample=5", None, 1),
    ("GET", "/rules?k=1", None, 20),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "least"), LONG)
def test_long_work_asks_whether_anybody_waits(client, monkeypatch, method, path, body, least):
    asked = []
    monkeypatch.setattr(Batch, "progress", lambda *given: asked.append(given))
    assert client.request(method, f"{BASE}{path}", json=body).status_code == 200
    assert len(asked) >= least

    def stop(*given):
        raise Cancelled

    monkeypatch.setattr(Batch, "progress", stop)
    path = path if body else f"{path}&overlay="  # an equal request would get the kept answer
    response = client.request(method, f"{BASE}{path}", json=body)
    assert response.status_code == 504
    assert response.json()["detail"] == "The request was cancelled."


def test_a_token_is_needed_where_one_is_set():
    app = build_app([served()], token=TOKEN)
    with TestClient(app) as client:
        assert client.get("/api/v1/graphs").status_code == 401
        for given in ("Bearer wrong", TOKEN, "Bearer ", f"Bearer {TOKEN}x", "Bearer \xff"):
            headers = {"authorization": given.encode("latin-1")}
            assert client.get("/api/v1/graphs", headers=headers).status_code == 401
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert client.get("/api/v1/graphs", headers=headers).status_code == 200
        assert client.get("/metrics").status_code == 401
        assert client.get("/").status_code == 200  # the page asks for it
        assert client.get("/api/v1/health").status_code == 200  # for load balancers
    with TestClient(build_app([served()], token=TOKEN, public=True)) as client:
        assert client.get("/api/v1/graphs").status_code == 200


def test_facts_are_changed_for_everyone_and_stay(tmp_path):
    journal = tmp_path / "changes.jsonl"
    new = {"head": "Atlantis", "relation": "borders", "tail": "Portugal"}
    headers = {"authorization": f"Bearer {TOKEN}"}
    graph = served(journal=journal)
    with TestClient(build_app([graph], token=TOKEN, public=True)) as client:
        before = get(client, "/entity", name="Portugal")["total"]
        assert client.post(f"{BASE}/facts", json={"add": [new]}).status_code == 401
        done = client.post(f"{BASE}/facts", json={"add": [new]}, headers=headers).json()
        assert done == {"added": 1, "removed": 0}
        assert get(client, "/entity", name="Portugal")["total"] == before + 1
        assert get(client, "/entities", q="Atlantis")["entities"][0]["name"] == "Atlantis"
        bad = {"add": [new | {"relation": "new"}], "remove": [new]}
        assert client.post(f"{BASE}/facts", json=bad, headers=headers).status_code == 404
        assert get(client, "/entity", name="Portugal")["total"] == before + 1
    assert len(journal.read_text().splitlines()) == 1
    graph = served(journal=journal)
    with TestClient(build_app([graph], token=TOKEN, public=True)) as client:
        assert get(client, "/entity", name="Portugal")["total"] == before + 1
        gone = client.post(f"{BASE}/facts", json={"remove": [new]}, headers=headers).json()
        assert gone == {"added": 0, "removed": 1}
    journal.write_text(json.dumps({"add": [], "remove": [["No", "borders", "Portugal"]]}) + "\n")
    with pytest.raises(PatheError, match="line 1: unknown entity 'No'"):
        served(journal=journal)


@pytest.mark.parametrize("part", ["pathe.serve.graphs.apply", "os.fsync"])
def test_a_change_that_took_too_long_was_not_made_and_one_that_was_made_is_told(
    tmp_path, monkeypatch, part
):
    journal, real = tmp_path / "changes.jsonl", pydoc.locate(part)
    new = {"add": [{"head": "Atlantis", "relation": "borders", "tail": "Portugal"}]}
    headers = {"authorization": f"Bearer {TOKEN}"}
    app = build_app([served(journal=journal)], token=TOKEN, public=True, limits=Limits(seconds=0.5))
    with TestClient(app) as client:
        before = get(client, "/entity", name="Portugal")["total"]

        def slow(*given):
            time.sleep(1)
            return real(*given)

        monkeypatch.setattr(part, slow)
        told = client.post(f"{BASE}/facts", json=new, headers=headers).status_code == 200
        assert told == (part == "os.fsync")  # which is after the change is made in memory
        time.sleep(1)
        assert get(client, "/entity", name="Portugal")["total"] == before + told
    assert journal.read_text().count("Atlantis") == told


def test_a_search_during_a_change_keeps_no_old_names(tmp_path, monkeypatch):
    class Slow(NameIndex):
        def __init__(self, *given):
            super().__init__(*given)
            started.set()
            go.wait(10)

    graph, started, go = served(journal=tmp_path / "changes.jsonl"), Event(), Event()
    monkeypatch.setattr("pathe.serve.graphs.NameIndex", Slow)
    search = Thread(target=graph.search, args=("Paris", None, 5))
    search.start()
    started.wait(10)
    graph.change(Changes([("Atlantis", "borders", "Portugal")]), lambda: None)
    go.set()
    search.join(10)
    assert graph.search("Atlantis", None, 1)[0]["name"] == "Atlantis"
    graph.close()


def test_a_graph_is_described_off_the_event_loop(monkeypatch):
    graph, threads = served(), list[str]()

    def spied(real):
        def spy(*given):
            threads.append(current_thread().name)
            return real(*given)

        return spy

    for name in ("about", "relations", "search", "card"):
        monkeypatch.setattr(graph, name, spied(getattr(graph, name)))
    with TestClient(build_app([graph])) as client:
        for path in ("", "/relations", "/entities"):
            get(client, path)
    assert len(threads) == 5
    assert not [name for name in threads if not name.startswith(("pathe-fast", "AnyIO worker"))]


def test_a_graph_is_described_while_predictions_run():
    graph = served()
    with TestClient(build_app([graph], limits=Limits(waiting=0))) as client:
        get(client, "", status=429)  # its relations have yet to be computed
        assert client.get("/api/v1/graphs").json()["graphs"] == [graph.about()]
        graph.warm()
        assert get(client, "")["relations_list"] == graph.relations()
        assert get(client, "/relations", q="bord")["relations"][0]["name"] == "borders"
        get(client, "/predict", status=429, head="Italy", relation="borders")


def test_no_graphs_are_an_empty_list():
    with TestClient(build_app([])) as client:
        assert client.get("/api/v1/graphs").json() == {"graphs": []}


def test_what_cant_be_made_is_not_written_down(tmp_path):
    path = tmp_path / "twins.ttl"
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    lines = [f"<x:{i}> <x:r> <x:{i + 1}> ." for i in range(5)]
    path.write_text("\n".join([*lines, f'<x:1> {label} "Twin" .', f'<x:2> {label} "Twin" .']))
    journal = tmp_path / "changes.jsonl"
    source = Source("twins", KnowledgeGraph.read(path), journal=journal)
    ambiguous = {"add": [{"head": "Twin", "relation": "x:r", "tail": "x:5"}]}
    with TestClient(build_app([ServedGraph(source, "cpu")], token=TOKEN, public=True)) as client:
        headers = {"authorization": f"Bearer {TOKEN}"}
        found = client.post("/api/v1/graphs/twins/facts", json=ambiguous, headers=headers)
        assert found.status_code == 404
        assert client.post("/api/v1/graphs/twins/overlays", json=ambiguous).status_code == 404
    assert journal.read_text() == ""
    ServedGraph(source, "cpu").close()  # it starts again


def test_a_full_disk_is_said_and_nothing_changes(tmp_path, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    graph = served(journal=tmp_path / "changes.jsonl")
    headers = {"authorization": f"Bearer {TOKEN}"}
    with TestClient(build_app([graph], token=TOKEN, public=True)) as client:
        before = get(client, "/entity", name="France")["total"]
        monkeypatch.setattr("os.fsync", full)
        new = {"add": [{"head": "Atlantis", "relation": "borders", "tail": "France"}]}
        found = client.post(f"{BASE}/facts", json=new, headers=headers)
        assert found.status_code == 507
        assert "No space left" in found.json()["detail"]
        assert get(client, "/entity", name="France")["total"] == before


def test_every_response_has_security_headers(client):
    for path in ("/", "/api/v1/health", "/nothing", "/metrics"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert (
        "access-control-allow-origin"
        not in client.get("/api/v1/health", headers={"origin": "http://evil.example"}).headers
    )


def test_other_pages_need_a_name(client):
    app = build_app([served()], origins=("http://ours.example",), hosts=("testserver",))
    with TestClient(app) as other:
        headers = {"origin": "http://ours.example"}
        allowed = other.get("/api/v1/health", headers=headers).headers
        assert allowed["access-control-allow-origin"] == "http://ours.example"
        for host in ("evil.example", "[", ""):
            assert other.get("/api/v1/health", headers={"host": host}).status_code == 400
    with TestClient(build_app([served()], origins=("http://ours.example",), token=TOKEN)) as other:
        asks = {"access-control-request-method": "GET",
                "access-control-request-headers": "authorization"}  # fmt: skip
        assert other.options("/api/v1/graphs", headers=headers | asks).status_code == 200
        assert other.get("/api/v1/graphs", headers=headers).status_code == 401


def test_figures_are_counted(client):
    client.get("/api/v1/health")
    text = client.get("/metrics").text
    assert 'pathe_requests_total{path="/api/v1/health",status="200"}' in text


def test_the_interface_is_described(client):
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    assert "/api/v1/graphs/{graph}/explain" in paths
    for path in paths.values():
        assert all(call.get("description") for call in path.values())


def test_names_are_data(tmp_path):
    path = tmp_path / "names.tsv"
    rows = [("<script>alert(1)</script>", "r", "a"), ("a", "r", "b"), ("b", "r", "=1+1")]
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    graph = ServedGraph(Source("names", KnowledgeGraph.read(path)), "cpu")
    with TestClient(build_app([graph])) as client:
        found = client.get("/api/v1/graphs/names/entities", params={"q": "<script>"})
        assert found.headers["content-type"] == "application/json"
        assert found.json()["entities"][0]["name"] == "<script>alert(1)</script>"


def test_a_journal_in_use(tmp_path):
    graph = served(journal=tmp_path / "changes.jsonl")
    with pytest.raises(DataError, match="another server"):
        served(journal=tmp_path / "changes.jsonl")
    graph.close()
