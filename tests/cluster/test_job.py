"""Jobs in one process: parts, manifests, continuing, and what can go wrong with them."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cluster import squares
from support.graphs import toy
from support.models import BRIDGE, any_graph_artifact, artifact_of
from support.prepared import prepare_data

from pathe.cluster import job as jobs
from pathe.cluster import work, worker
from pathe.cluster.graphs import COPIES, NotHere, StoredGraph, source_of, use_blocks
from pathe.cluster.job import Part, in_this_process, part_path, read_parts, run_job, shards_of
from pathe.core.errors import PatheError
from pathe.core.files import _owner, locked
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.ranking import evaluate
from pathe.graph.named_paths import PathSettings, paths_of_range
from pathe.graph.prepared import prepare
from pathe.model import scorer as scoring
from pathe.predict import predictor as predicting
from pathe.predict.predictor import Predictor
from pathe.predict.results import answer_rows

EXPECTED = [n * n for n in range(20)]


def values(job, folder):
    return pa.concat_tables(read_parts(job, folder))["square"].to_pylist()


def counting(into):
    """A backend of this process that notes which shards it was asked for."""

    def backend(job, numbers):
        into.extend(numbers)
        return in_this_process(job, numbers)

    return backend


@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 5))
def test_shards_cover_every_row_once(n, size, start):
    shards = shards_of(n, size, start)
    assert [row for shard in shards for row in range(*shard)] == list(range(start, start + n))
    assert all(0 < stop - first <= size for first, stop in shards)


def test_a_job_writes_parts_and_a_manifest(tmp_path):
    job, seen = squares(), []
    run_job(job, tmp_path / "parts", progress=lambda *now: seen.append(now))
    assert values(job, tmp_path / "parts") == EXPECTED
    assert seen == [(n, 7) for n in range(8)]
    found = json.loads((tmp_path / "parts" / "manifest.json").read_text())
    assert found["complete"]
    assert found["job"] == "squares"
    assert found["settings"] == {"n": 20}
    assert found["versions"]["pathe"]
    assert [part["first_row"] for part in found["parts"]] == [0, 3, 6, 9, 12, 15, 18]
    for part in found["parts"]:
        content = (tmp_path / "parts" / part["file"]).read_bytes()
        assert jobs.digest_of(content) == part["digest"]
        assert len(content) == part["bytes"]


def test_a_rerun_does_only_what_is_missing(tmp_path):
    job, asked = squares(), []

    def stops(job, numbers):
        for n, found in enumerate(in_this_process(job, numbers)):
            if n == 3:
                raise PatheError("stopped")
            yield found

    with pytest.raises(PatheError, match="stopped"):
        run_job(job, tmp_path, stops)
    assert not json.loads((tmp_path / "manifest.json").read_text())["complete"]
    run_job(job, tmp_path, counting(asked))
    assert asked == [3, 4, 5, 6]
    assert values(job, tmp_path) == EXPECTED
    run_job(job, tmp_path, counting(asked))
    assert asked == [3, 4, 5, 6]


@pytest.mark.parametrize("harm", ["changed", "cut off", "removed", "line cut off"])
def test_a_damaged_part_is_computed_again(tmp_path, harm):
    job, asked, said = squares(), [], []
    run_job(job, tmp_path)
    path = part_path(tmp_path, 2)
    before = path.read_bytes()
    match harm:
        case "changed":
            path.write_bytes(before[:50] + bytes([before[50] ^ 1]) + before[51:])
        case "cut off":
            path.write_bytes(before[:-10])
        case "removed":
            path.unlink()
        case "line cut off":
            log = tmp_path / "finished.jsonl"
            lines = log.read_text().splitlines()
            log.write_text("\n".join([*lines[:2], *lines[3:], lines[2][:20]]))
    run_job(job, tmp_path, counting(asked), say=said.append)
    assert asked == [2]
    assert path.read_bytes() == before
    if harm != "line cut off":
        assert "computed again" in said[0]
        assert path.name in said[0]


def test_parts_of_another_job_are_refused(tmp_path):
    run_job(squares(), tmp_path)
    with pytest.raises(PatheError, match="n was 20, now 30"):
        run_job(squares(30), tmp_path)
    with pytest.raises(PatheError, match="shards"):
        run_job(squares(size=4), tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(PatheError, match="can't be read"):
        run_job(squares(), tmp_path)


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(PatheError, match="holds files already"):
        run_job(squares(), tmp_path)
    with pytest.raises(PatheError, match="can't be created"):
        run_job(squares(), tmp_path / "mine.txt" / "parts")


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    job, asked = squares(), []
    real = jobs.replacing

    def full(path):
        if path.name == "part-000004.parquet":
            raise PatheError(f"{path}: can't be written (No space left on device)")
        return real(path)

    monkeypatch.setattr(jobs, "replacing", full)
    with pytest.raises(PatheError, match="No space left"):
        run_job(job, tmp_path)
    monkeypatch.setattr(jobs, "replacing", real)
    run_job(job, tmp_path, counting(asked))
    assert asked == [4, 5, 6]
    assert values(job, tmp_path) == EXPECTED


def test_the_order_in_which_parts_come_changes_nothing(tmp_path):
    def backwards(job, numbers):
        return in_this_process(job, numbers[::-1])

    for name, backend in (("a", in_this_process), ("b", backwards)):
        run_job(squares(), tmp_path / name, backend)
    for number in range(7):
        one, other = (part_path(tmp_path / name, number).read_bytes() for name in "ab")
        assert one == other


def runner(folder):
    """Runs jobs in this process, as the command does."""

    def run(job):
        run_job(job, folder / job.name)
        return read_parts(job, folder / job.name)

    return run


MODELS = {
    "vectors": lambda kg: artifact_of(kg),
    "bridges": lambda kg: artifact_of(kg, **BRIDGE),
    "any graph": lambda kg: any_graph_artifact(),
}


@pytest.mark.parametrize("kind", MODELS)
def test_parts_together_are_the_result_of_one_process(kind, tmp_path, monkeypatch):
    """Bit for bit, with several shards of each kind."""
    monkeypatch.setattr(predicting, "AT_ONCE", 7)
    for module in (scoring, work):
        monkeypatch.setattr(module, "BLOCK", 5)
        monkeypatch.setattr(module, "PAIR_CHUNK", 4)
    monkeypatch.setattr(work, "ENTITIES", 9)
    monkeypatch.setattr(work, "entities_at_once", lambda featurizer: 4)
    monkeypatch.setattr("pathe.model.featurizer.entities_at_once", lambda featurizer: 4)
    kg = toy()
    artifact = MODELS[kind](kg)
    p, run = Predictor(artifact, kg), runner(tmp_path)
    source = source_of(p)
    vectors = work.embedded(source, run)
    assert len(list((tmp_path / "vectors").glob("part-*"))) > 2
    assert vectors.tobytes() == Predictor(artifact, kg).embed().tobytes()
    queries = [(f"e{i:04}", "r0", None) for i in range(20)]
    queries += [(None, "r2", "e0003"), ("e0001", None, "e0003")]
    job = work.answer_job(source, queries, 4)
    assert len(job.shards) == 4
    rows = [row for table in run(job) for row in table.to_pylist()]
    found = Predictor(artifact, kg).answer(queries, 4)
    assert rows == [r for q, a in zip(queries, found, strict=True) for r in answer_rows(q, a)]
    prepared = prepare(kg)

    def rank(scorer, triples, parts):
        job = work.rank_job(source_of(prepared, artifact=artifact), scorer, triples, parts)
        assert len(job.shards) > 6
        return work.joined_ranks(run(job), scorer, triples, parts)

    assert evaluate(artifact, prepared, rank=rank) == evaluate(artifact, kg)


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("form", ["single", "joined"])
def test_paths_do_not_depend_on_the_shards(tmp_path, unique, form):
    prepared = prepare(toy())
    settings = PathSettings(3, 2, form, unique, 7)
    whole = list(paths_of_range(prepared, settings, 0, 60))
    job = work.path_job(source_of(prepared), settings)
    job = replace(job, shards=shards_of(60, 7))
    run_job(job, tmp_path)
    rows = [row for table in read_parts(job, tmp_path) for row in table.to_pylist()]
    found = [(row["entity"], [tuple(step) for step in json.loads(row["path"])]) for row in rows]
    assert found == whole
    assert [name for name, _ in whole] == sorted(name for name, _ in whole)
    kg = prepared.kg
    facts = {(kg.entities[h], kg.relations[r], kg.entities[t]) for h, r, t in kg.train.tolist()}
    assert {step for _, path in whole for step in path} <= facts
    if unique:
        assert len({(name, tuple(path)) for name, path in whole}) == len(whole)


def test_a_prepared_folder_is_opened_where_it_is_or_copied(tmp_path, monkeypatch):
    toy().save(tmp_path / "data")
    prepare_data(tmp_path / "data", tmp_path / "graph")
    kg = KnowledgeGraph.read(tmp_path / "graph")
    source = source_of(prepare(kg))
    assert isinstance(source.graph, StoredGraph)
    assert source.graph.open().folder.path == tmp_path / "graph"
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))
    with pytest.raises(NotHere):
        source.graph.open()
    from pathe.cluster.graphs import blocks

    class Sent:
        def __init__(self, content):
            self.content = content

    import types

    fake = types.SimpleNamespace(get=lambda sent: sent.content)
    monkeypatch.setitem(__import__("sys").modules, "ray", fake)
    holder = types.SimpleNamespace(source=source)
    monkeypatch.setattr("pathe.cluster.graphs.BLOCK", 100)
    sent = blocks(Sent, holder)
    with use_blocks(sent):
        copied = source.graph.open()
    assert copied.folder.path.parent == tmp_path / "copies"
    assert copied.fingerprint() == kg.fingerprint()
    assert source.graph.open().fingerprint() == kg.fingerprint()  # it stays


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EACCES, "Permission denied"),
    ],
)
def test_a_node_that_cannot_hold_the_graph_is_named(tmp_path, monkeypatch, code, said):
    monkeypatch.setenv(COPIES, str(tmp_path / "copies"))

    def fails(self, *args, **more):
        raise OSError(code, "Permission denied")

    monkeypatch.setattr("pathe.cluster.graphs.Path.mkdir", fails)
    with use_blocks({}), pytest.raises(PatheError, match=said) as found:
        StoredGraph(tmp_path / "nowhere", "abc").open()
    assert COPIES in str(found.value)


def test_a_graph_without_a_folder_is_sent_as_it_is():
    import pickle

    p = Predictor(any_graph_artifact(), toy())
    p.use_types({"e0000": ["x"]})
    source = pickle.loads(pickle.dumps(source_of(p)))
    assert isinstance(source.graph, KnowledgeGraph)
    import pathe.cluster.graphs as graphs

    graphs._open.clear()
    again = source.predictor()
    assert again is not p
    assert again.types == {"e0000": ["x"]}
    np.testing.assert_array_equal(again.embed(), p.embed())


def test_a_part_says_where_it_comes_from():
    part = jobs.make_part(pa.table({"a": [1]}), 0.5, "there")
    assert isinstance(part, Part)
    assert part.digest == jobs.digest_of(part.content)
    assert part.node == "there"


def test_a_job_killed_before_its_manifest_is_there_starts_again(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    machine = _owner().split("-")[0]
    (tmp_path / f".manifest.json.{machine}-{process.pid}-0a1b2c3d.tmp").write_text("{")
    run_job(squares(), tmp_path)
    assert values(squares(), tmp_path) == EXPECTED
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "line", [b"\x80", b'{"part": "2"}', b'{"part": [2]}', b"[" * 100_000, b"[]", b'{"part": 2}']
)
def test_a_damaged_log_loses_no_part(tmp_path, line):
    job = squares()
    run_job(job, tmp_path)
    with (tmp_path / "finished.jsonl").open("ab") as log:
        log.write(line + b"\n")
    run_job(job, tmp_path)
    assert values(job, tmp_path) == EXPECTED


def test_a_deeply_nested_manifest_is_refused(tmp_path):
    run_job(squares(), tmp_path)
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(PatheError, match="can't be read"):
        run_job(squares(), tmp_path)


def test_two_processes_do_not_share_parts(tmp_path):
    with locked(tmp_path), pytest.raises(PatheError, match="another process"):
        run_job(squares(), tmp_path)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")], ids=repr
)
def test_a_worker_without_memory_names_its_node(monkeypatch, error):
    def fails(first, stop):
        raise error

    monkeypatch.setattr(worker, "_open", lambda given: fails)
    assert worker.run([], (0, 1), "there") == {"node": "there", "error": "out of memory."}
