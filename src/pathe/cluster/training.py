"""Trains runs on the nodes of a cluster, one per task, and brings their folders here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pathe.cluster.job import Backend, Compute, Job, Part, shards_of
from pathe.core.config import Config
from pathe.core.errors import ConfigError
from pathe.core.files import replacing
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.prepared import prepare
from pathe.training.run import Options, train
from pathe.training.run_folder import SETTINGS, check_free

Wanted = tuple[Config, Path]  # a run: its settings, and the folder that it gets


@dataclass(frozen=True)
class Runs:
    """Trains runs: the files of their folders, as rows."""

    graph: KnowledgeGraph
    configs: tuple[Config, ...]
    command: str | None  # that was given, for results

    def open(self) -> Compute:
        prepared = prepare(self.graph)
        options = Options(progress_bar=False, command=self.command)

        def compute(first: int, stop: int) -> pa.Table:
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place) / "run"
                train(prepared, self.configs[first], folder, options)
                return packed(folder)

        return compute


def train_runs(
    graph: KnowledgeGraph,
    wanted: Sequence[Wanted],
    backend: Backend,
    say: Callable[[str], None] = lambda text: None,
    command: str | None = None,
) -> None:
    """Trains runs; each folder appears here, whole, as soon as its run is finished.

    `command` is the command line to record in their results.
    """
    for config, folder in wanted:
        if (folder / SETTINGS).exists():
            raise ConfigError(
                f"{folder}: this run was begun on this machine. Finish it without --cluster, or "
                "remove it."
            )
        check_free(folder)
        check_one_device(config)
    if not wanted:
        return
    inference = graph.inference and replace(graph.inference, folder=None)
    configs = tuple(config for config, _ in wanted)
    work = Runs(replace(graph, folder=None, inference=inference), configs, command)
    job = Job("runs", work, shards_of(len(wanted), 1), {}, configs[0].accelerator)
    for number, part in backend(job, range(len(wanted))):
        config, folder = wanted[number]
        unpack(rows_of(part), folder)
        say(f"seed {config.seed}: trained on {part.node} ({folder})")


def check_one_device(config: Config) -> None:
    """Raises an error for settings of several devices: a task has one."""
    if config.devices > 1:
        raise ConfigError(f"--cluster trains on one device per run; got devices={config.devices}.")


def rows_of(part: Part) -> pa.Table:
    """Returns the rows of a part."""
    return pq.read_table(pa.BufferReader(part.content))


def packed(folder: Path) -> pa.Table:
    """Returns the files of a folder as rows."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in files]
    contents = pa.array([path.read_bytes() for path in files], pa.large_binary())
    return pa.table({"file": pa.array(names, pa.string()), "content": contents})


def unpack(table: pa.Table, folder: Path) -> None:
    """Writes a folder of such rows: all of it, or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as aside:
        for name, content in zip(table["file"], table["content"], strict=True):
            path = aside / name.as_py()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.as_py())
