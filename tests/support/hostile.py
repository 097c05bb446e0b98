"""Damaged and hostile files of every kind that PathE reads, and what must hold for each.

An input is the content of some files. A kind has valid files, and a check that opens them: it may
raise a PatheError, and what it reads must equal what a plain reader reads.
"""

from __future__ import annotations

import csv
import io
import re
import resource
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from support.cluster import squares
from support.graphs import toy
from support.models import any_graph_artifact, artifact_of
from support.prepared import prepare_data
from support.readers import COMPRESS, rows_of
from support.runs import train
from support.tally import SEED

from pathe.cli.serve import ServeOptions, _several
from pathe.cluster.job import read_parts, run_job
from pathe.core.config import preset_text, read_preset
from pathe.core.errors import DataError, PatheError
from pathe.data import row_files
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.readers import ReadOptions, read_columns
from pathe.data.schema import read_relation_map
from pathe.graph.prepared import PreparedGraph
from pathe.lab.experiments import read_experiment
from pathe.lab.tuning import read_space, settings_of
from pathe.model.artifact import load_model, save_model
from pathe.predict.predictor import Predictor
from pathe.serve.journal import Changes, Journal
from pathe.training import pretraining_run, run_folder, selection

Files = dict[str, bytes]
SECONDS, MEMORY = 20, 1 << 30  # that one input may take
CORPUS = Path(__file__).parents[1] / "torture" / "corpus"
MARKS = [
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b'"', b"'", b"\n", b"\r", b"\r\n", b"\t",
    b",", b" ", b"?", b"<", b">", b"&x;", b"<!--", b"<![CDATA[", b"]]>", b"\\u0000", b"\\uD800",
    b"_:", b"@", b"{", b"[", b"{}", b"[]", b"null", b"true", b"-1", b"1e999", b"nan", b".inf",
    b"9" * 5000, b"x" * 70_000, b"[" * 3000, b"{a: " * 200, b"&a [*a]", b"!!python/name:os.system ",
    b"2026-13-45", b"0x", b": ", b"- ", b"? ", b"|", b"\x1eend\x1e", b"\xf0\x9f\x98\x80", b"^",
]  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """Files of one kind: valid ones, the check that opens them, and those that are damaged."""

    name: str
    valid: Callable[[], Files]
    check: Callable[[Path], None]
    weight: float = 1.0
    damaged: Callable[[str], bool] = lambda name: True


@st.composite
def mutated(draw: st.DrawFn, raw: bytes) -> bytes:
    """Changes bytes in one to four places."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        end = min(at + draw(st.sampled_from([1, 2, 7, 40, 1000])), len(raw))
        match draw(st.sampled_from(["flip", "byte", "cut", "insert", "repeat", "splice", "end"])):
            case "flip" if at < len(raw):
                raw = raw[:at] + bytes([raw[at] ^ 1 << draw(st.integers(0, 7))]) + raw[at + 1 :]
            case "byte" if at < len(raw):
                raw = raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1 :]
            case "cut":
                raw = raw[:at] + raw[end:]
            case "insert":
                raw = raw[:at] + draw(st.sampled_from(MARKS) | st.binary(max_size=20)) + raw[at:]
            case "repeat":
                raw = raw[:end] + raw[at:end] * draw(st.integers(1, 50)) + raw[end:]
            case "splice":
                other = draw(st.integers(0, len(raw)))
                raw = raw[:at] + raw[other : other + end - at] + raw[end:]
            case "end":
                raw = raw[:at]
    return raw


@st.composite
def hostile(draw: st.DrawFn, kind: Kind) -> Files:
    """Damages one file of a kind, or two; adds no others."""
    valid = kind.valid()
    changed = {}
    names = [name for name in valid if kind.damaged(name)]
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)):
        raw = valid[name]
        compression = Path(name).suffix if Path(name).suffix in COMPRESS else ""
        match draw(st.integers(0, 9)):
            case 0:
                changed[name] = draw(st.binary(max_size=60) | st.sampled_from(MARKS))
            case 1:
                changed[name] = draw(st.text(max_size=60)).encode("utf-8", "surrogatepass")
            case 2 | 3 if compression:  # the compressed bytes
                changed[name] = draw(mutated(raw))
            case _ if compression:
                plain = Path(name).with_suffix("").name
                changed[name] = COMPRESS[compression](draw(mutated(_plain(kind, plain))))
            case _:
                changed[name] = draw(mutated(raw))
    return changed


@cache
def _plain(kind: Kind, name: str) -> bytes:
    return RENDER[Path(name).suffix](ROWS)


def lay(kind: Kind, changed: Mapping[str, bytes], folder: Path) -> Path:
    """Writes the files of a kind, some of them changed; returns their folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, raw in {**kind.valid(), **changed}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
    return folder


def check(kind: Kind, changed: Files, folder: Path) -> None:
    """Opens a kind's files, some of them changed: a result or a PatheError, in bounds."""
    lay(kind, changed, folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with _in_time(), suppress(PatheError):
        kind.check(folder)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MEMORY, f"took {grown:,} bytes"
    left = [str(path) for path in folder.rglob("*.tmp")]
    assert not left, left


@contextmanager
def _in_time() -> Iterator[None]:
    def late(signum: int, frame: Any) -> None:
        raise TimeoutError(f"took over {SECONDS} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the processor: the machine may be busy
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fuzz(kind: Kind, n: int, folder: Path) -> tuple[int, list[str]]:
    """Tries n inputs; keeps the smallest that fails in the corpus. Returns (tried, failures)."""
    tried = 0
    kind.check(lay(kind, {}, folder))

    @seed(SEED)
    @settings(
        max_examples=n,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )
    @given(hostile(kind))
    def run(changed: Files) -> None:
        nonlocal tried
        tried += 1
        try:
            check(kind, changed, folder)
        except BaseException:
            keep(kind, changed)
            raise

    try:
        run()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        text = "".join(traceback.format_exception(error, limit=-4))
        return tried, [f"{kind.name}: {text[-2500:]}"]
    return tried, []


def keep(kind: Kind, changed: Files) -> None:
    """Writes an input that has failed to the corpus, in place of the last one of its kind."""
    place = CORPUS / kind.name / "failed"
    shutil.rmtree(place, ignore_errors=True)
    for name, raw in changed.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(raw)


# graphs

ROWS = [
    ("Vienna", "capital of", "Austria"), ("Wien", "same as", "Vienna"), ("é\U0001f600", "r", "a b"),
    ('say "hi"', "r", "x, y"), ("Austria", "borders", "Italy"), ("Rome", "capital of", "Italy"),
]  # fmt: skip
IRI = "http://e.org/"
LINK = re.compile(rb"<([^<>\s]*)> <([^<>\s]*)> <([^<>\s]*)> \.")


def _iris(rows: list[Any]) -> list[tuple[str, ...]]:
    return [tuple(IRI + re.sub(r"\W", "_", name) for name in row) for row in rows]


def _csv(rows: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: list[Any]) -> bytes:
    sink = io.BytesIO()
    columns = list(zip(*rows, strict=True))
    names = ("head", "relation", "tail")
    pq.write_table(pa.table(dict(zip(names, map(list, columns), strict=True))), sink)
    return sink.getvalue()


def _triples(rows: list[Any]) -> bytes:
    text = "".join(f"<{h}> <{r}> <{t}> .\n" for h, r, t in _iris(rows))
    return (
        text.encode() + f'<{IRI}a> <{IRI}label> "text \\u00e9"@en .\n_:b <{IRI}r> _:c .\n'.encode()
    )


def _turtle(rows: list[Any]) -> bytes:
    text = f"@prefix e: <{IRI}> .\n"
    for h, r, t in _iris(rows):
        text += f"e:{h[len(IRI) :]} <{r}> e:{t[len(IRI) :]} ; a e:Thing .\n"
    return (text + 'e:a e:n 3 , "x"@de ; e:of [ e:r ( e:b e:c ) ] .\n').encode()


def _xml(rows: list[Any]) -> bytes:
    space = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    facts = "".join(
        f'<rdf:Description rdf:about="{h}"><e:{r[len(IRI) :]} rdf:resource="{t}"/>'
        "</rdf:Description>\n"
        for h, r, t in _iris(rows)
    )
    start = f'<!DOCTYPE rdf:RDF [<!ENTITY x "{IRI}">]>\n'
    return (
        f'<?xml version="1.0"?>\n{start}<rdf:RDF xmlns:rdf="{space}" xmlns:e="{IRI}">\n{facts}'
        f'<rdf:Description rdf:about="&x;z"><e:r rdf:resource="&x;y"/></rdf:Description>'
        "</rdf:RDF>\n"
    ).encode()


def _tsv(rows: list[Any]) -> bytes:
    return "".join("\t".join(row) + "\n" for row in rows).encode()


RENDER: dict[str, Callable[[list[Any]], bytes]] = {
    ".tsv": _tsv, ".txt": _tsv, ".csv": _csv, ".parquet": _parquet, ".nt": _triples,
    ".nq": _triples, ".ttl": _turtle, ".trig": _turtle, ".n3": _turtle, ".rdf": _xml, ".owl": _xml,
    ".xml": _xml,
}  # fmt: skip


def _plain_tsv(raw: bytes) -> list[tuple[str, ...]]:
    lines = raw.removeprefix(b"\xef\xbb\xbf").splitlines()
    rows = [line.split(b"\t") for line in lines if line.strip(b" ")]
    return [tuple(cell.decode() for cell in row) for row in rows]


def _plain_csv(raw: bytes) -> list[tuple[str, ...]]:
    text = raw.removeprefix(b"\xef\xbb\xbf").decode("latin-1") + "\nE,E,E\n"
    *rows, last = csv.reader(io.StringIO(text, newline=""))
    if last != ["E", "E", "E"]:
        raise ValueError("an open quote")
    rows = [row for row in rows if row and (len(row) > 1 or row[0].strip(" "))]
    return [tuple(cell.encode("latin-1").decode() for cell in row) for row in rows]


def plain_rows(raw: bytes, suffix: str) -> list[tuple[str, ...]] | None:
    """Returns the rows of a file as a plain reader reads them; None if it isn't valid."""
    try:
        rows = (_plain_csv if suffix == ".csv" else _plain_tsv)(raw)
    except (ValueError, csv.Error):
        return None
    return rows if rows and all(len(row) == 3 and all(row) for row in rows) else None


def _check_reader(folder: Path) -> None:
    [path] = folder.iterdir()
    suffix = next(s for s in reversed(path.suffixes) if s not in COMPRESS)
    is_text = suffix in (".tsv", ".txt", ".csv")
    options = ReadOptions(header=False) if is_text else ReadOptions()
    compressed = path.suffix if path.suffix in COMPRESS else ""
    raw = None if compressed else path.read_bytes()
    expected = plain_rows(raw, suffix) if is_text and raw is not None else None
    try:
        rows = rows_of(read_columns(path, options))
    except DataError as error:
        if expected is not None and "UTF-16" not in str(error):
            raise AssertionError(f"refused, though it is valid: {error}") from None
        with suppress(DataError):
            read_columns(path, ReadOptions(on_error="skip"))
        raise
    assert all(name and name.encode() for row in rows for name in row)
    if is_text and raw is not None:
        assert rows == expected
    elif suffix == ".parquet":
        table = pq.read_table(path).select([0, 1, 2])
        columns = [column.cast(pa.large_binary()).to_pylist() for column in table.columns]
        assert rows == [tuple(map(bytes.decode, row)) for row in zip(*columns, strict=True)]
    elif suffix in (".nt", ".nq") and raw is not None:
        links = [match for line in raw.splitlines() if (match := LINK.fullmatch(line))]
        assert {tuple(map(bytes.decode, link.groups())) for link in links} <= set(rows)


def _readers() -> list[Kind]:
    return [
        Kind(f"read{suffix}{more}", lambda s=suffix, m=more: {f"x{s}{m}": _packed(s, m)},
             _check_reader, 1.0 if not more else 0.25)
        for suffix in RENDER
        for more in COMPRESS
        if not (suffix == ".parquet" and more)
    ]  # fmt: skip


@cache
def _packed(suffix: str, compression: str) -> bytes:
    return COMPRESS[compression](RENDER[suffix](ROWS))


def _check_graph(folder: Path) -> None:
    for options in (ReadOptions(), ReadOptions(on_error="skip")):
        with suppress(DataError):
            kg = KnowledgeGraph.read(folder, options=options)
            _use(kg)


def _use(kg: KnowledgeGraph) -> None:
    list(kg.entities)
    list(kg.relations)
    kg.fingerprint()
    for triples in kg.splits.values():
        assert (triples >= 0).all()
        assert (triples[:, [0, 2]] < kg.n_entities).all()
        assert (triples[:, 1] < kg.n_relations).all()


def _check_prepared(folder: Path) -> None:
    kg = KnowledgeGraph.read(folder)
    _use(kg)
    prepared = PreparedGraph(kg)
    for part in (prepared.graph, prepared.edges, prepared.arrivals):
        for tensor in part.tensors():
            tensor.sum()
    p = Predictor(load_model(_any_graph()), kg)
    p.tails(kg.entities[0], kg.relations[0], k=3)


def _openke() -> Files:
    return {
        "entity2id.txt": b"4\nb c\t1\na\t0\nnew\t2\nunused\t3\n",
        "relation2id.txt": b"2\nr\t0\ns\t1\n",
        "train2id.txt": b"3\n0 1 0\n1\t0\t1\n1 0 1\n",
        "valid2id.txt": b"1\n0 1 1\n",
        "test2id.txt": b"1\n2 0 0\n",
    }


def _neo4j() -> Files:
    return {
        "nodes.csv": b"id:ID(p),name,:LABEL\n1,Ann,Person;Friend\n2,Bob,Person\n3,,Person\n",
        "links.csv": b":START_ID(p),:END_ID(p),:TYPE,since:int\n1,2,KNOWS,3\n2,3,KNOWS,4\n",
    }


def _splits() -> Files:
    return {"train.tsv": _tsv(ROWS), "valid.csv": _csv(ROWS[:2]), "test.txt": _tsv(ROWS[:1])}


def _parts_of_graph() -> Files:
    return {f"part-{i:05}.tsv": _tsv(ROWS[i::2]) for i in range(2)}


# folders of PathE


@cache
def _files(make: Callable[[Path], Any]) -> Files:
    """Makes a folder once; returns its files."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "made"
        make(folder)
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@cache
def _any_graph() -> Path:
    folder = Path(tempfile.mkdtemp()) / "any-graph"
    _make_any_graph(folder)
    return folder


def _make_prepared(folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    lay(KINDS["splits"], {}, folder.with_name("splits"))
    prepare_data(folder.with_name("splits"), folder)


def _make_model(folder: Path) -> None:
    save_model(folder, artifact_of(toy()))


def _make_any_graph(folder: Path) -> None:
    save_model(folder, any_graph_artifact())


def _make_parts(folder: Path) -> None:
    run_job(squares(), folder)


def _make_run(folder: Path) -> None:
    train(toy(), folder, max_epochs=1)


def _make_pretraining(folder: Path) -> None:
    _pretrain(folder, False)


def _pretrain(folder: Path, resume: bool) -> None:
    from pathe.training.pretraining import Pretraining

    sizes = {"dim": 4, "n_hops": 1, "n_layers": 1, "steps": 1, "valid_triples": 2}
    sizes |= {"least_batch": 2, "most_batch": 4}
    place = pretraining_run.Place(folder, resume)
    pretraining_run.pretrain([toy()], Pretraining(**sizes), place)


def _check_model(folder: Path) -> None:
    p = Predictor(load_model(folder), toy())
    for answer in p.tails("e0000", "r0", k=3):
        assert answer.score == answer.score


def _check_run(folder: Path) -> None:
    for read in (
        run_folder.resumed_config,
        run_folder.read_result,
        run_folder.read_metrics,
        load_model,
    ):
        with suppress(PatheError):
            read(folder)
    train(toy(), folder, resume=True, max_epochs=1)


def _check_pretraining(folder: Path) -> None:
    _pretrain(folder, True)


def _check_parts(folder: Path) -> None:
    job = squares()
    run_job(job, folder)
    table = pa.concat_tables(read_parts(job, folder))
    assert table["square"].to_pylist() == [n * n for n in range(20)]


def _check_journal(folder: Path) -> None:
    journal = Journal(folder / "journal.jsonl")
    journal.close()


def _make_journal(folder: Path) -> None:
    folder.mkdir()
    journal = Journal(folder / "journal.jsonl")
    journal.append(Changes([("a", "r", "b"), ("é", "r", '"')], []))
    journal.append(Changes([("c", "r", "d")], [("a", "r", "b")]))
    journal.close()


# settings


def _check_experiment(folder: Path) -> None:
    experiment = read_experiment(str(folder / "x.yaml"), folder)
    for one in (experiment, *map(experiment.variant, experiment.variants)):
        for number in one.seeds:
            one.config(number)
        f"{one.title:>10} {one.note} {one.data} {Path(one.data)}"


def _check_space(folder: Path) -> None:
    space = read_space(str(folder / "x.yaml"))
    settings_of(space, {key: choices[0] for key, choices in space.choices.items()})


def _check_graphs(folder: Path) -> None:
    from pathe.cli.options import ModelOnData

    sources = _several(ModelOnData(), ServeOptions(graphs=folder / "graphs.yaml"))
    assert sources


EXPERIMENT = b"""title: An experiment
table: recipes
data: films
named: films
settings: {task: link, dim: 16, learning_rate: 1e-3}
seeds: [0, 1]
note: it is one
variants:
  wider: {dim: 32}
"""
SPACE = b"fixed: {task: link}\nspace:\n  dim: [16, 32]\n  learning_rate: [0.001, 1e-2]\n"
GRAPHS = b"graphs:\n  one: {data: g.tsv, types: types.tsv}\n  two:\n    data: g.tsv\n"


def _check_tables(folder: Path) -> None:
    for path in folder.iterdir():
        for read in (row_files.read_queries, row_files.read_facts, row_files.read_names,
                     row_files.read_types, read_relation_map):  # fmt: skip
            with suppress(PatheError):
                read(path)


def _check_queries(folder: Path) -> None:
    p = _predictor()
    queries = [query for _, query in row_files.read_queries(folder / "queries.tsv")]
    p.answer(queries, 2)


@cache
def _predictor() -> Predictor:
    return Predictor(load_model(_any_graph()), toy())


def _kinds() -> list[Kind]:
    tables = {"a.tsv": b"e0001\tr0\t?\n?\tr1\te0002\n", "b.csv": b'name,type\n"a ""b""",c\nd,e\n'}
    return [
        *_readers(),
        Kind("openke", _openke, _check_graph, 2),
        Kind("neo4j", _neo4j, _check_graph, 2),
        Kind("splits", _splits, _check_graph, 2),
        Kind("part folder", _parts_of_graph, _check_graph),
        Kind("prepared folder", lambda: _files(_make_prepared), _check_prepared, 3),
        Kind("model", lambda: _files(_make_model), _check_model, 2),
        Kind("model for any graph", lambda: _files(_make_any_graph), _check_model),
        Kind("run", lambda: _files(_make_run), _check_run, 2,
             lambda name: not name.startswith(("logs", "tensorboard"))),
        Kind("pre-training run", lambda: _files(_make_pretraining), _check_pretraining),
        Kind("parts", lambda: _files(_make_parts), _check_parts, 2),
        Kind("journal", lambda: _files(_make_journal), _check_journal, 2),
        Kind("candidates", lambda: {"candidates.yaml": b"a: {dim: 16}\nb: {init: none}\n"},
             selection.stored_candidates),
        Kind("preset", lambda: {"x.yaml": preset_text("paper-fb15k237-link").encode()},
             lambda f: read_preset(str(f / "x.yaml")), 2),
        Kind("experiment", lambda: {"x.yaml": EXPERIMENT}, _check_experiment, 2),
        Kind("search space", lambda: {"x.yaml": SPACE}, _check_space, 2),
        Kind("graphs", lambda: {"graphs.yaml": GRAPHS, "g.tsv": _tsv(ROWS),
                                "types.tsv": b"Vienna\tCity\n"}, _check_graphs),
        Kind("tables", lambda: tables, _check_tables, 2),
        Kind("queries", lambda: {"queries.tsv": tables["a.tsv"]}, _check_queries),
    ]  # fmt: skip


KINDS = {kind.name: kind for kind in _kinds()}
