"""Real Ray clusters of several nodes on this machine: lost workers and nodes, wrong nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from support.cluster import Slowed, squares
from support.commands import COMMAND, refused
from support.graphs import toy
from support.models import any_graph_artifact
from support.places import ROOT
from support.prepared import prepare_data

from pathe.cluster import nodes, work
from pathe.cluster.graphs import COPIES, source_of
from pathe.cluster.job import Job, part_path, read_parts, run_job, shards_of
from pathe.cluster.nodes import Where, on_cluster, read_cluster
from pathe.cluster.search import search_steps
from pathe.core.errors import ConfigError, PatheError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.prepared import prepare
from pathe.model.artifact import load_model
from pathe.model.builder import build_scorer
from pathe.predict.predictor import Predictor
from pathe.predict.results import answer_rows

pytest.importorskip("ray")
QUERIES = [(f"e{i:04}", f"r{i % 3}", None) for i in range(60)]
SOURCE = ROOT / "src"


def test_the_option_is_read():
    assert read_cluster("local:3") == Where("local", 3)
    assert read_cluster("auto") == Where("auto")
    assert read_cluster("10.0.0.5:6379") == Where("10.0.0.5:6379")
    assert read_cluster("ray://head:10001") == Where("ray://head:10001")
    for bad in ("local", "local:", "local:0", "local:x", "here", "host:", ":6379", "host:99999"):
        with pytest.raises(ConfigError, match=r"--cluster|local:N"):
            read_cluster(bad)


def test_a_cluster_that_cannot_be_reached_is_an_error_at_once(tmp_path):
    args = ("embed", "--data", ROOT / "examples/europe.csv", "--out", tmp_path / "v.npy")
    said = refused(*args, "--cluster", "127.0.0.1:1")
    assert "127.0.0.1:1 can't be reached" in said
    assert "ray start --head" in said
    assert "local:N" in refused(*args, "--cluster", "somewhere")
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_a_cluster_is_refused(tmp_path):
    data = ("--data", ROOT / "examples/europe.csv")
    one = ("predict", *data, "--head", "Paris", "--relation", "lies on")
    assert "--queries FILE" in refused(*one, "--parts", tmp_path / "p")
    sampled = ("evaluate", *data, "--protocol", "sampled:50", "--parts", tmp_path / "p")
    assert "--protocol full" in refused(*sampled)


class FakeRay:
    """A cluster with some cores that finish nothing."""

    def __init__(self) -> None:
        self.cores = self.sent = 0

    def cluster_resources(self):
        return {"CPU": self.cores}

    def get_runtime_context(self):
        return None

    def put(self, given):
        return given

    def remote(self, *given):
        self.sent += len(given) == 3
        return object() if len(given) == 3 else self

    def options(self, **given):
        return self

    def wait(self, waiting, timeout):
        return [], waiting


def run_on(ray: FakeRay, node_seconds: float) -> nodes._Run:
    run = nodes._Run(ray, squares(27, 3), lambda text: None, node_seconds)
    run.queue.extend(range(9))
    return run


def test_a_cluster_that_grows_on_demand_sees_some():
    ray = FakeRay()
    run = run_on(ray, 60)
    for cores, sent in ((0, 1), (0, 1), (2, 4)):
        ray.cores = cores
        assert run._ready() == []
        assert ray.sent == sent


def test_the_wait_for_a_node_begins_when_there_is_none(monkeypatch):
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: None)
    monkeypatch.setattr(nodes, "time", clock)
    ray = FakeRay()
    run = run_on(ray, 10)
    for seconds, cores in ((0, 0), (100, 2), (100, 0), (9, 0)):  # between looks: parts are written
        now[0] += seconds
        ray.cores = cores
        run._ready()
    now[0] += 2
    with pytest.raises(PatheError, match="The cluster has no CPU"):
        run._ready()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head without work, and two nodes; one of them copies graphs to a folder of its own."""
    from ray.cluster_utils import Cluster

    copies = tmp_path_factory.mktemp("copies")
    paths = os.pathsep.join([str(SOURCE), str(ROOT / "tests")])
    before = {key: os.environ.get(key) for key in ("PYTHONPATH", "RAY_AUTH_MODE")}
    os.environ |= {"PYTHONPATH": paths, "RAY_AUTH_MODE": "disabled"}
    import ray

    found = Cluster()
    try:
        small = {"object_store_memory": 80 << 20, "include_dashboard": False}
        found.add_node(num_cpus=0, **small)
        found.plain = found.add_node(num_cpus=1, **small)
        found.copying = found.add_node(num_cpus=1, env_vars={COPIES: str(copies)}, **small)
        found.copies, found.small = copies, small
        options = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        ray.init(address=found.address, **options)
        yield found
    finally:
        ray.shutdown()
        found.shutdown()
        for key, value in before.items():
            os.environ.pop(key)
            if value is not None:
                os.environ[key] = value


def add_copying(cluster) -> None:
    env = {COPIES: str(cluster.copies)}
    cluster.copying = cluster.add_node(num_cpus=1, env_vars=env, **cluster.small)


def nodes_of(folder: Path) -> set[str]:
    """The nodes that computed parts."""
    parts = json.loads((folder / "manifest.json").read_text())["parts"]
    return {part["node"] for part in parts}


def start_workers(cluster, folder: Path) -> None:
    """Waits until both nodes compute: starting a worker takes seconds on a busy machine."""
    for number in range(20):
        parts = folder / f"start-{number}"
        run_job(squares(12, 3, seconds=0.5), parts, backend(cluster))
        if len(nodes_of(parts)) == 2:
            return
    raise AssertionError("one of two nodes got no work")


def backend(cluster, said=None):
    return on_cluster(Where(cluster.address), (said if said is not None else []).append)


@pytest.mark.slow
def test_answers_of_a_cluster_are_those_of_one_process(cluster, tmp_path):
    """The graph is mapped from its folder by one node, and copied to the other."""
    toy().save(tmp_path / "data")
    prepare_data(tmp_path / "data", tmp_path / "graph")
    kg = KnowledgeGraph.read(tmp_path / "graph")
    artifact, said = any_graph_artifact(), []
    k = predicting_at_once(6)
    job = work.answer_job(source_of(Predictor(artifact, kg)), QUERIES, k)
    assert len(job.shards) == 10
    start_workers(cluster, tmp_path)
    slowed = replace(job, work=Slowed(job.work, seconds=0.5))
    run_job(slowed, tmp_path / "parts", backend(cluster, said))
    rows = [row for table in read_parts(job, tmp_path / "parts") for row in table.to_pylist()]
    found = Predictor(artifact, toy()).answer(QUERIES, k)
    assert rows == [r for q, a in zip(QUERIES, found, strict=True) for r in answer_rows(q, a)]
    assert len(nodes_of(tmp_path / "parts")) == 2
    assert len([line for line in said if "copying" in line]) == 1
    digest = json.loads((tmp_path / "graph" / "prepared.json").read_text())["digest"]
    assert (cluster.copies / digest / "prepared.json").exists()


def predicting_at_once(n: int) -> int:
    """How many answers to ask for, so that chunks have n queries."""
    from pathe.predict.predictor import ANSWERS

    return ANSWERS // n


@pytest.mark.slow
def test_a_lost_worker_a_lost_node_and_a_new_one_change_nothing(cluster, tmp_path):
    job = squares(60, 3, seconds=0.5, fatal=12, marks=tmp_path)
    lost = []

    def meanwhile(done, total):
        if done == 5 and not lost:
            lost.append(time.monotonic())
            cluster.remove_node(cluster.copying, allow_graceful=False)
            add_copying(cluster)

    folder = tmp_path / "parts"
    run_job(job, folder, backend(cluster), meanwhile)
    assert lost
    assert (tmp_path / "killed").exists()
    run_job(squares(60, 3), tmp_path / "here")
    for number in range(20):
        one, other = (part_path(tmp_path / name, number) for name in ("parts", "here"))
        assert one.read_bytes() == other.read_bytes()
    assert len(nodes_of(folder)) >= 2


def ranks_of_europe(folder: Path) -> Job:
    """Ranks of `pathe evaluate` with the shipped model, in small shards."""
    kg, artifact = KnowledgeGraph.read("europe", split=(0.8, 0.1, 0.1)), load_model()
    prepared = prepare(kg)
    scorer = build_scorer(artifact.model, artifact.config, prepared)
    source = source_of(prepared, artifact=artifact)
    job = work.rank_job(source, scorer, kg.test.long(), ("head", "tail"))
    n = len(kg.test)
    return replace(job, shards=[*shards_of(n, 4), *shards_of(n, 4, n)])


def vectors_of_a_prepared_graph(folder: Path) -> Job:
    """Vectors of `pathe embed` with the shipped model; a node copies the graph."""
    toy().save(folder / "data")
    prepare_data(folder / "data", folder / "graph")
    job = work.embed_job(source_of(Predictor(load_model(), KnowledgeGraph.read(folder / "graph"))))
    return replace(job, shards=shards_of(60, 6))


@pytest.mark.slow
@pytest.mark.parametrize("job_of", [ranks_of_europe, vectors_of_a_prepared_graph])
def test_a_real_job_that_loses_a_worker_has_the_bytes_of_one_process(cluster, tmp_path, job_of):
    job = job_of(tmp_path)
    start_workers(cluster, tmp_path)
    fatal = job.shards[len(job.shards) // 2][0]
    deadly = replace(job, work=Slowed(job.work, 0.3, fatal, tmp_path))
    run_job(deadly, tmp_path / "parts", backend(cluster))
    assert (tmp_path / "killed").exists()
    run_job(job, tmp_path / "here")
    for number in range(len(job.shards)):
        one, other = (part_path(tmp_path / name, number) for name in ("parts", "here"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_a_job_waits_for_a_node_when_all_are_gone(cluster, tmp_path):
    job, folder, lost = squares(60, 3, seconds=0.3), tmp_path / "parts", []

    def lose(done, total):
        if done >= 3 and not lost:
            lost.append(done)
            for node in (cluster.plain, cluster.copying):
                cluster.remove_node(node, allow_graceful=False)

    def say(text):
        said.append(text)
        if text.startswith("no workers: waiting 120 s"):
            cluster.plain = cluster.add_node(num_cpus=1, **cluster.small)
            add_copying(cluster)

    with pytest.raises(PatheError, match=r"The cluster has no CPU.*run the same command again"):
        run_job(job, folder, on_cluster(Where(cluster.address), node_seconds=2), lose)
    kept, said = len(list(folder.glob("part-*"))), []
    assert kept >= 3
    run_job(job, folder, on_cluster(Where(cluster.address), say))
    assert said[0].startswith("no workers")
    assert pa.concat_tables(read_parts(job, folder))["square"].to_pylist() == [
        n * n for n in range(60)
    ]


LOSES_ITS_HEAD = """
import sys, time
from pathlib import Path
from ray.cluster_utils import Cluster
from support.cluster import squares
from pathe.cluster import nodes
from pathe.cluster.job import run_job
from pathe.core.errors import PatheError

nodes.HEAD_SECONDS, nodes.WAIT_SECONDS = 3.0, 1.0
cluster, small = Cluster(), {"object_store_memory": 80 << 20, "include_dashboard": False}
head = cluster.add_node(num_cpus=0, **small)
cluster.add_node(num_cpus=1, **small)

def kill(done, total):
    if done == 2:
        head.kill_gcs_server()

backend = nodes.on_cluster(nodes.Where(cluster.address))
try:
    run_job(squares(300, 3, seconds=0.3), Path(sys.argv[1]), backend, kill)
except PatheError as error:
    print(error, flush=True)
finally:
    cluster.shutdown()
"""


@pytest.mark.slow
def test_a_lost_head_is_an_error_in_words_and_parts_are_kept(cluster, tmp_path):
    command = [sys.executable, "-c", LOSES_ITS_HEAD, str(tmp_path / "parts")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert "The connection to the cluster is lost (its head doesn't answer" in found.stdout
    assert "run the same command again" in found.stdout
    assert "Traceback" not in found.stderr
    assert len(list((tmp_path / "parts").glob("part-*"))) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["another version", "no package"])
def test_a_wrong_node_is_named_and_nothing_is_lost(cluster, tmp_path, wrong):
    package = tmp_path / "other" / "pathe"
    package.mkdir(parents=True)
    if wrong == "no package":
        (package / "__init__.py").write_text("raise ImportError('no pathe here')\n")
        expected = "can't import pathe (no pathe here)"
    else:
        import shutil

        shutil.copytree(SOURCE / "pathe", package, dirs_exist_ok=True)
        with (package / "core" / "types.py").open("a") as file:
            file.write("# changed\n")
        expected = "has other versions: pathe"
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "other"), str(ROOT / "tests")])}
    node = cluster.add_node(num_cpus=1, env_vars=env, **cluster.small)
    job, folder = squares(120, 3, seconds=0.3), tmp_path / "parts"
    with pytest.raises(PatheError, match="run the same command again") as found:
        run_job(job, folder, backend(cluster))
    assert expected in str(found.value)
    cluster.remove_node(node)
    kept = len(list(folder.glob("part-*")))
    said = []
    run_job(job, folder, backend(cluster), say=said.append)
    assert kept == 0 or said[0].startswith(f"{kept} of 40 parts")
    assert pa.concat_tables(read_parts(job, folder))["square"].to_pylist() == [
        n * n for n in range(120)
    ]


@pytest.mark.slow
def test_a_node_with_a_full_disk_is_named_and_nothing_is_lost(cluster, tmp_path):
    node = cluster.add_node(num_cpus=1, env_vars={"PATHE_TEST_FULL": "1"}, **cluster.small)
    job, folder = squares(60, 3, seconds=0.3), tmp_path / "parts"
    with pytest.raises(PatheError, match="run the same command again") as found:
        run_job(job, folder, backend(cluster))
    assert "the disk is full" in str(found.value)
    assert f"({node.node_id[:8]})" in str(found.value)
    cluster.remove_node(node)
    kept = len(list(folder.glob("part-*")))
    said = []
    run_job(job, folder, backend(cluster), say=said.append)
    assert kept == 0 or said[0].startswith(f"{kept} of 20 parts")
    assert pa.concat_tables(read_parts(job, folder))["square"].to_pylist() == [
        n * n for n in range(60)
    ]


@pytest.mark.slow
def test_a_node_with_too_little_memory_loses_nothing(cluster, tmp_path):
    """It is named, or the system has ended its workers; the rest is done elsewhere."""
    env = {"PATHE_TEST_MEMORY": str(1 << 20)}
    node = cluster.add_node(num_cpus=1, env_vars=env, **cluster.small)
    job, folder = vectors_of_a_prepared_graph(tmp_path), tmp_path / "parts"
    slowed = replace(job, work=Slowed(job.work, seconds=0.5))
    with pytest.raises(PatheError, match="out of memory") as found:
        run_job(slowed, folder, backend(cluster))
    said = str(found.value)
    assert f"({node.node_id[:8]}): out of memory." in said or "its worker died" in said
    assert "run the same command again" in said
    cluster.remove_node(node)
    kept, said = len(list(folder.glob("part-*"))), []
    run_job(slowed, folder, backend(cluster), say=said.append)
    assert kept == 0 or said[0].startswith(f"{kept} of 10 parts")
    run_job(job, tmp_path / "here")
    for number in range(10):
        one, other = (part_path(tmp_path / name, number) for name in ("parts", "here"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_a_shard_that_ends_every_worker_is_named_and_nothing_is_lost(cluster, tmp_path):
    """As one that needs more memory than any node has: the system kills its workers."""
    folder = tmp_path / "parts"
    with pytest.raises(PatheError, match="possibly out of memory") as found:
        run_job(squares(18, 3, seconds=0.2, fatal=9), folder, backend(cluster))
    assert "Shard 3 failed" in str(found.value)
    assert "run the same command again" in str(found.value)
    kept, said = len(list(folder.glob("part-*"))), []
    run_job(squares(18, 3), folder, say=said.append)
    assert said[0].startswith(f"{kept} of 6 parts")
    assert pa.concat_tables(read_parts(squares(18, 3), folder))["square"].to_pylist() == [
        n * n for n in range(18)
    ]


@pytest.mark.slow
def test_a_search_on_a_cluster_finds_what_one_process_finds(cluster, tmp_path):
    """Missing facts: every query is asked on some node; a copy of the graph on one of them."""
    toy().save(tmp_path / "data")
    prepare_data(tmp_path / "data", tmp_path / "graph")
    kg, artifact = KnowledgeGraph.read(tmp_path / "graph"), any_graph_artifact()
    p, plain = (Predictor(artifact, kg, frontier=20) for _ in range(2))
    for each in (p, plain):
        each.use_functional(*2 * [dict.fromkeys(("r0", "r1", "r2"), False)])

    def run(job):
        run_job(job, tmp_path / job.name, backend(cluster))
        return read_parts(job, tmp_path / job.name)

    expected = plain.missing(30, queries=60)
    assert expected
    assert p.missing(30, queries=60, steps=search_steps(source_of(p), run)) == expected


@pytest.mark.slow
def test_the_command_starts_workers_and_continues(tmp_path):
    """`local:2` is killed in the middle; the same command does the rest, with the same bytes."""
    data = ["--data", str(ROOT / "examples/europe.csv"), "--split", "0.8,0.1,0.1"]
    env = os.environ | {"PYTHONPATH": str(SOURCE)}

    def command(out: str, *more: str) -> list[str]:
        return [*COMMAND, "evaluate", *data, "--out", out, *more]

    subprocess.run(command("plain.json"), cwd=tmp_path, env=env, check=True, timeout=120)
    first = command("ours.json", "--cluster", "local:1", "--parts", "parts")
    with subprocess.Popen(first, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL) as process:
        started = time.monotonic()
        log = tmp_path / "parts" / "ranks" / "finished.jsonl"
        while process.poll() is None and time.monotonic() - started < 120:
            if log.exists() and log.read_text().count("\n"):
                process.terminate()
                break
            time.sleep(0.02)
    assert not (tmp_path / "ours.json").exists() or process.returncode == 0
    again = subprocess.run(
        command("ours.json", "--cluster", "local:2", "--parts", "parts"),
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "ours.json").read_bytes() == (tmp_path / "plain.json").read_bytes()
    assert sys.executable


@pytest.mark.parametrize(
    "text", [f"local:{'9' * 5000}", f"host:{'9' * 5000}", "local:²", "local:0"]
)
def test_odd_numbers_of_workers_and_ports_are_refused(text):
    with pytest.raises(ConfigError, match="--cluster"):
        read_cluster(text)
