"""Neo4j's files and servers as data; a fake session gives the driver's own records."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.commands import pathe
from support.readers import read, refused

from pathe.core.errors import DataError, PatheError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.readers import ReadOptions

neo4j = pytest.importorskip("neo4j")

# The example of Neo4j's manual for neo4j-admin database import, with one more quote and a comma.
MOVIES = """movieId:ID,title,year:int,:LABEL
tt0133093,"The Matrix",1999,Movie
tt0234215,"The Matrix, Reloaded",2003,Movie;Sequel
tt0242653,"The ""Matrix"" Revolutions",2003,Movie;Sequel
"""
ACTORS = """personId:ID,name,:LABEL
keanu,"Keanu Reeves",Actor
laurence,"Laurence Fishburne",Actor
carrieanne,"Carrie-Anne Moss",Actor
"""
ROLES = """:START_ID,role,:END_ID,:TYPE
keanu,"Neo",tt0133093,ACTED_IN
keanu,"Neo
again",tt0234215,ACTED_IN
laurence,"Morpheus",tt0133093,ACTED_IN
carrieanne,"Trinity",tt0133093,ACTED_IN
"""
FACTS = [
    ("keanu", "ACTED_IN", "tt0133093"),
    ("keanu", "ACTED_IN", "tt0234215"),
    ("laurence", "ACTED_IN", "tt0133093"),
    ("carrieanne", "ACTED_IN", "tt0133093"),
]


def triples(kg: KnowledgeGraph) -> set[tuple[str, str, str]]:
    rows = kg.train.tolist()
    return {(kg.entities[h], kg.relations[r], kg.entities[t]) for h, r, t in rows}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {"nodes-movies": MOVIES, "nodes-actors": ACTORS, "relationships": ROLES}
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_file_of_relationships(tmp_path: Path) -> None:
    rows, report = read(tmp_path / "roles.csv", ROLES.encode())
    assert rows == FACTS
    assert report.notes == []
    semicolons = ROLES.replace(",", ";").encode()
    assert read(tmp_path / "roles.csv", semicolons, delimiter=";")[0] == FACTS


def test_a_folder_of_nodes_and_relationships(folder: Path) -> None:
    kg = KnowledgeGraph.read(folder)
    labels = [(x, ":LABEL", ":Actor") for x in ("keanu", "laurence", "carrieanne")]
    labels += [(x, ":LABEL", ":Movie") for x in ("tt0133093", "tt0234215", "tt0242653")]
    labels += [(x, ":LABEL", ":Sequel") for x in ("tt0234215", "tt0242653")]
    assert triples(kg) == {*FACTS, *labels}
    assert kg.names.show("tt0242653") == 'The "Matrix" Revolutions'
    assert kg.entities.exact("The Matrix, Reloaded") == "tt0234215"
    assert kg.report.notes == ["8 node labels read as triples with the relation :LABEL"]
    assert kg.report.rows == 12
    split = KnowledgeGraph.read(folder, split=(0.8, 0.2, 0), allow_unseen=True)
    assert len(split.train) + len(split.valid) == 12


def test_spaces_of_ids(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(":ID(Person),name\n1,Anna\n2,\n")
    (tmp_path / "b.csv").write_text("id:ID(Film){id-type: int},title:string\n1,Metropolis\n")
    (tmp_path / "c.csv").write_text(":START_ID(Person),:END_ID(Film),:TYPE\n1,1,SAW\n2,1,SAW\n")
    kg = KnowledgeGraph.read(tmp_path)
    assert triples(kg) == {("Person/1", "SAW", "Film/1"), ("Person/2", "SAW", "Film/1")}
    assert [kg.names.show(name) for name in kg.entities] == ["Metropolis", "Anna", "Person/2"]


def test_bad_files(tmp_path: Path) -> None:
    message = refused(tmp_path / "x.csv", b":START_ID,:END_ID\na,b\n")
    assert "expected :START_ID, :TYPE and :END_ID; no :TYPE. Add it." in message
    message = refused(tmp_path / "x.csv", MOVIES.encode())
    assert "no :START_ID. Give the folder, or the file of relationships." in message
    message = refused(tmp_path / "x.csv", (ROLES + "keanu,,tt0133093\n").encode())
    assert "x.csv, line 7: expected 4 columns" in message
    more = (ROLES + "keanu,,tt0133093\n").encode()
    assert read(tmp_path / "x.csv", more, on_error="skip")[1].skipped == 1


def test_bad_nodes(folder: Path) -> None:
    (folder / "nodes-actors.csv").write_text(f"{ACTORS}hugo\n")
    with pytest.raises(DataError, match=r"nodes-actors.csv, line 5: expected 3 columns and an id"):
        KnowledgeGraph.read(folder)
    kg = KnowledgeGraph.read(folder, options=ReadOptions(on_error="skip"))
    assert kg.report.skipped == 1
    (folder / "nodes-actors.csv").write_bytes(ACTORS.encode() + b"\xff,x,Actor\n")
    with pytest.raises(DataError, match=r"nodes-actors.csv, line 5: expected UTF-8"):
        KnowledgeGraph.read(folder)


def test_other_files_are_no_exports(tmp_path: Path) -> None:
    assert read(tmp_path / "x.csv", b"a:ID2,r,b\n")[0] == [("a:ID2", "r", "b")]
    rows = read(tmp_path / "x.csv", b":START_ID,:TYPE,:END_ID\n", header=False)[0]
    assert rows == [(":START_ID", ":TYPE", ":END_ID")]


def test_the_command_line_shows_names(folder: Path) -> None:
    done = pathe("predict", "--data", folder, "--head", "Keanu Reeves", "--relation", "ACTED_IN")
    assert done.returncode == 0, done.stderr
    assert "Keanu Reeves  -ACTED_IN->  ?" in done.stdout
    assert "Revolutions" in done.stdout


class Session:
    """Answers the two queries with the driver's records."""

    def __init__(self, rows: list[tuple[Any, ...]], nodes: list[tuple[Any, ...]]) -> None:
        self.rows, self.nodes = rows, nodes

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, query: str) -> Any:
        if "[r]" in query:
            keys, rows = ("head", "relation", "tail"), self.rows
        else:
            keys, rows = ("id", "name", "labels"), self.nodes
        return (neo4j.Record(zip(keys, row, strict=True)) for row in rows)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A driver that keeps what it was given."""
    rows = [("4:x:0", "KNOWS", "4:x:1"), ("4:x:1", "KNOWS", "4:x:2")]
    nodes = [("4:x:0", "Anna", ["Person"]), ("4:x:1", 7, []), ("4:x:2", None, ["Person", "Pet"])]
    kept = SimpleNamespace(session=Session(rows, nodes))

    class Driver(Session):
        def session(self, **config: Any) -> Session:
            kept.config = config
            return kept.session

    def connect(uri: str, *, auth: Any = None, **config: Any) -> Driver:
        kept.uri, kept.auth, kept.options = uri, auth, config
        return Driver([], [])

    monkeypatch.setattr(neo4j.GraphDatabase, "driver", connect)
    for name in ("NEO4J_USERNAME", "NEO4J_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return kept


def test_a_server(driver: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    kg = KnowledgeGraph.read("neo4j://db.example.org:7687/films")
    assert triples(kg) == {
        ("4:x:0", "KNOWS", "4:x:1"),
        ("4:x:1", "KNOWS", "4:x:2"),
        ("4:x:0", ":LABEL", ":Person"),
        ("4:x:2", ":LABEL", ":Person"),
        ("4:x:2", ":LABEL", ":Pet"),
    }
    assert [kg.names.show(f"4:x:{i}") for i in range(3)] == ["Anna", "7", "4:x:2"]
    assert kg.entities.exact("Anna") == "4:x:0"
    assert kg.name == "db.example.org-7687-films"
    assert (driver.uri, driver.auth) == ("neo4j://db.example.org:7687", None)
    assert driver.config == {"database": "films", "default_access_mode": neo4j.READ_ACCESS}
    monkeypatch.setenv("NEO4J_USERNAME", "me")
    monkeypatch.setenv("NEO4J_PASSWORD", "secret")
    KnowledgeGraph.read("bolt://localhost", split=(0.5, 0.5, 0), allow_unseen=True)
    assert (driver.uri, driver.auth) == ("bolt://localhost", ("me", "secret"))


def test_a_server_with_problems(driver: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.session = Session([], [("4:x:0", "Anna", [])])
    with pytest.raises(DataError, match="contains no relationships"):
        KnowledgeGraph.read("bolt://localhost")
    with pytest.raises(DataError, match="set NEO4J_USERNAME and NEO4J_PASSWORD") as caught:
        KnowledgeGraph.read("bolt://me:secret@localhost")
    assert "secret" not in str(caught.value)

    def refuse(_: str) -> None:
        raise neo4j.exceptions.AuthError("The client is unauthorized")

    driver.session.run = refuse
    with pytest.raises(DataError, match="user or password not accepted"):
        KnowledgeGraph.read("bolt://localhost")
    monkeypatch.setitem(sys.modules, "neo4j", None)
    with pytest.raises(PatheError, match=r"needs neo4j: pip install 'pathe\[neo4j\]'"):
        KnowledgeGraph.read("bolt://localhost")


def test_no_server() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with pytest.raises(DataError, match="can't read from the server"):  # the real driver
        KnowledgeGraph.read(f"bolt://127.0.0.1:{port}")
    options = ReadOptions(sparql_query=Path("q.rq"))
    with pytest.raises(DataError, match="--sparql-query doesn't apply"):
        KnowledgeGraph.read(f"bolt://127.0.0.1:{port}", options=options)
