"""Benchmark data sets by name -> columns, through PyKEEN."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import socket
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from pathe.core.errors import DataError, UnknownNameError, nearest
from pathe.core.extras import require
from pathe.core.types import PARTS
from pathe.data.columns import EXAMPLES, coded_table

_TIMEOUT_S = 20  # so that a network that drops packets doesn't hang the command
_PLAIN = {"train": "training", "valid": "validation", "test": "testing"}
_INFERENCE = {
    "train": "inductive_inference", "valid": "inductive_validation", "test": "inductive_testing",
}  # fmt: skip


class Named(NamedTuple):
    """Tables by split. Inductive sets have `inference` tables; `alone` asks for these only."""

    name: str
    tables: dict[str, Any]
    inference: dict[str, Any] | None
    alone: bool


def read_named(name: str) -> Named:
    """Loads `fb15k-237`, `inductivewn18rr:v2`, `inductivewn18rr:v2_ind`, ..."""
    what = f"{name}: no such file or folder; loading a data set by its name"
    require("pykeen.datasets", "datasets", what)
    from pykeen.datasets import dataset_resolver
    from pykeen.datasets.inductive import inductive_dataset_resolver

    plain: dict[str, Any] = dict(dataset_resolver.lookup_dict)
    inductive: dict[str, Any] = dict(inductive_dataset_resolver.lookup_dict)
    wanted, _, version = name.partition(":")
    key = re.sub(r"[-_\s.]", "", wanted.lower())
    if key not in plain and key not in inductive:
        raise UnknownNameError(
            f"{name!r}: no such file or folder, and no data set of this name."
            f"{nearest(key, [*plain, *inductive, *EXAMPLES])}"
        )
    if key in plain:
        if version:
            raise UnknownNameError(f"{name!r}: the data set {key!r} has no versions; drop ':'.")
        with _loading(name, plain[key]):
            return Named(key, _tables(plain[key](), _PLAIN), None, False)
    version = version.lower()
    base, alone = version.removesuffix("ind").removesuffix("_"), version.endswith("ind")
    versions = [f"v{i}" for i in range(1, 5)]
    takes_version = "version" in inspect.signature(inductive[key].__init__).parameters
    if base not in (versions if takes_version else [""]):
        known = ", ".join(f"{key}:{v}" for v in versions) if takes_version else key
        hint = "add _ind for the inference graph alone"
        raise UnknownNameError(f"{name!r}: expected one of {known}; {hint}.")
    with _loading(name, inductive[key]):
        data = inductive[key](version=base) if takes_version else inductive[key]()
        title = f"{key}:{base}" if base else key
        train = _tables(data, {"train": "transductive_training"})
        return Named(title, train, _tables(data, _INFERENCE), alone)


@contextlib.contextmanager
def _loading(name: str, cls: type) -> Iterator[None]:
    """Hides PyKEEN's output and progress bars; turns its errors into a DataError."""
    from pykeen.constants import PYKEEN_DATASETS

    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_S)
    sink = io.StringIO()
    try:
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            yield
    except Exception as error:
        problem, cure = "this data set must be downloaded, and that failed", "Try with a network"
        if not isinstance(error, OSError):
            problem = "PyKEEN can't load this data set"
            cure = f"Delete a broken download in {Path(PYKEEN_DATASETS) / cls.__name__.lower()}"
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise DataError(
            f"{name}: {problem} ({what}). {cure}, or give a folder with its train, valid and test "
            "files."
        ) from error
    finally:
        socket.setdefaulttimeout(timeout)


def _tables(data: Any, splits: dict[str, str]) -> dict[str, Any]:
    """Returns tables by split; missing splits are left out."""
    tables = {}
    for split, theirs in splits.items():
        factory = getattr(data, theirs)  # downloads it if necessary
        if factory is None:
            continue
        rows = _original(data, theirs)
        if rows is None:
            entities = _labels(factory, "entity", factory.num_entities)
            relations = _labels(factory, "relation", factory.real_num_relations)
            ids = factory.mapped_triples.int().T.contiguous().numpy()
            table = coded_table(zip(ids, (entities, relations, entities), strict=True))
        else:
            arrays = [pa.array(c, pa.large_string()).dictionary_encode() for c in rows.T]
            table = pa.table(arrays, names=PARTS)
        if table.num_rows:
            tables[split] = table
    return tables


def _original(data: Any, split: str) -> Any:
    """Returns all names in the split's file, (n, 3); None if PyKEEN has no such file."""
    # PyKEEN itself leaves out valid and test triples with an entity that isn't in train.
    from pykeen.triples.utils import load_triples

    if path := getattr(data, f"{split}_path", None):
        return load_triples(path, **(getattr(data, "load_triples_kwargs", None) or {}))
    if member := getattr(data, f"relative_{split}_path", None):
        columns = (data.head_column, data.relation_column, data.tail_column)
        with zipfile.ZipFile(data.path) as archive, archive.open(member.as_posix()) as file:
            text = io.TextIOWrapper(file, "utf-8")
            return load_triples(text, delimiter=data.sep, column_remapping=columns)
    return None


def _labels(factory: Any, kind: str, n: int) -> Any:
    """Returns names in the order of PyKEEN's ids; the ids themselves if it has no names."""
    labels = getattr(factory, f"{kind}_id_to_label", None)
    return pa.array([labels[i] if labels else str(i) for i in range(n)], pa.large_string())
