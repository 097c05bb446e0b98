"""Brings a model and a graph to the workers: a graph lies once per node where it can.

A prepared folder is opened where it is if the node sees it. Otherwise it comes through Ray's object
store, is written to a folder of the node once, checked, and opened there by all of its workers. Any
other graph is sent as it is, and each worker builds its own index.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from pathe.core.errors import DataError, PatheError
from pathe.core.files import reason
from pathe.core.hardware import as_device
from pathe.data.knowledge_graph import SPLITS, KnowledgeGraph
from pathe.data.prepared_folder import MANIFEST, check_content, read_manifest
from pathe.graph.prepared import PreparedGraph, prepare
from pathe.model.artifact import Artifact
from pathe.predict.candidates import TypesOf
from pathe.predict.predictor import Predictor

BLOCK = 64 << 20
COPIES = "PATHE_GRAPHS"  # a node's folder for copies; if set, graphs are copied even if visible
Blocks = dict[str, list[Any]]  # references to the blocks of each file
_blocks: list[Blocks | None] = [None]


class NotHere(Exception):
    """The node doesn't see a prepared folder, and no blocks of it were sent."""


@dataclass(frozen=True)
class StoredGraph:
    """A prepared folder and the digest of its content."""

    path: Path
    digest: str

    def open(self) -> KnowledgeGraph:
        """Opens the folder, or a copy of it on this node."""
        if COPIES not in os.environ and self._is_at(self.path):
            return KnowledgeGraph.read(self.path, every_relation=True)
        root = Path(os.environ.get(COPIES) or Path(tempfile.gettempdir()) / "pathe-graphs")
        copy = root / self.digest
        if not self._is_at(copy):
            if _blocks[0] is None:
                raise NotHere
            self._fetch(copy, _blocks[0])
        return KnowledgeGraph.read(copy, every_relation=True)

    def _is_at(self, path: Path) -> bool:
        try:
            return bool(read_manifest(path)["digest"] == self.digest)
        except (DataError, OSError):
            return False

    def _fetch(self, copy: Path, blocks: Blocks) -> None:
        """Writes the folder from its blocks; one process of the node does it, others wait."""
        import ray

        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            with copy.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if self._is_at(copy):
                    return
                aside = copy.with_suffix(".partial")
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir()
                try:
                    for name, references in blocks.items():
                        with (aside / name).open("wb") as file:
                            for reference in references:
                                block: Any = ray.get(reference)
                                file.write(block)
                    check_content(aside, lambda done, total: None)
                    aside.rename(copy)
                finally:
                    shutil.rmtree(aside, ignore_errors=True)
        except OSError as error:
            raise PatheError(
                f"the graph can't be copied to {copy} ({reason(error)}). Make room, or set "
                f"{COPIES} to another folder on this node."
            ) from error


def blocks(put: Callable[[Any], Any], work: Any) -> Blocks:
    """Puts the files of a work's prepared folder into the object store; returns the references."""
    graph = work.source.graph
    assert isinstance(graph, StoredGraph)
    found: Blocks = {}
    for path in sorted(graph.path.iterdir()):
        if path.name != MANIFEST and path.suffix != ".npy":
            continue
        with path.open("rb") as file:
            found[path.name] = [put(block) for block in iter(lambda: file.read(BLOCK), b"")]
    return found


@contextmanager
def use_blocks(given: Blocks | None) -> Iterator[None]:
    """Lets graphs be fetched from these blocks."""
    _blocks[0] = given
    try:
        yield
    finally:
        _blocks[0] = None


@dataclass(frozen=True)
class Source:
    """A graph, and a model to use on it; each process opens it once."""

    graph: KnowledgeGraph | StoredGraph
    device: str
    key: str  # of what is open in this process
    artifact: Artifact | None = None
    types: str | TypesOf | None = None
    frontier: int | None = None

    def predictor(self) -> Predictor:
        """Returns the predictor of the model on the graph."""
        found = self._open()
        if not isinstance(found, Predictor):
            assert self.artifact is not None
            found = Predictor(
                self.artifact, found.kg, device=as_device(self.device), frontier=self.frontier
            )
            if self.types is not None:
                found.use_types(self.types)
            _open[self.key] = found
        return found

    def prepared(self) -> PreparedGraph:
        """Returns the prepared graph."""
        found = self._open()
        return found.prepared if isinstance(found, Predictor) else found

    def _open(self) -> Predictor | PreparedGraph:
        if self.key not in _open:
            kg = self.graph.open() if isinstance(self.graph, StoredGraph) else self.graph
            _open.clear()
            _open[self.key] = prepare(kg, as_device(self.device))
        return _open[self.key]

    def about(self) -> dict[str, Any]:
        """Returns what identifies graph and model, for a manifest."""
        found: dict[str, Any] = {"graph": self.prepared().kg.fingerprint()}
        if self.artifact is not None:
            found |= {"model": model_digest(self.artifact), "frontier": self.frontier}
        if self.types is not None:
            found["types"] = blake2b(repr(self.types).encode(), digest_size=8).hexdigest()
        return found


_open: dict[str, Predictor | PreparedGraph] = {}


def source_of(
    opened: Predictor | PreparedGraph,
    device: str = "cpu",
    artifact: Artifact | None = None,
    frontier: int | None = None,
) -> Source:
    """Returns what workers need of a predictor, or of a graph and a model."""
    kg = (opened.prepared if isinstance(opened, Predictor) else opened).kg
    folder = kg.stored(*SPLITS)
    if folder is not None and kg.fingerprint() == folder.about["fingerprint"]:
        graph: Any = StoredGraph(folder.path.absolute(), folder.about["digest"])
    else:
        graph = replace(kg, folder=None, inference=None)
    key, types = secrets.token_hex(8), None
    if isinstance(opened, Predictor):
        artifact, types, frontier = opened.artifact, opened.types, opened.frontier
    _open[key] = opened
    return Source(graph, device, key, artifact, types, frontier)


def model_digest(artifact: Artifact) -> str:
    """Returns 16 hex digits of a model's weights and settings."""
    digest = blake2b(repr(sorted(artifact.config.as_dict().items())).encode(), digest_size=8)
    digest.update(repr(sorted(artifact.temperatures.items())).encode())
    for name, value in sorted(artifact.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
