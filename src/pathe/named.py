"""Benchmark names -> columns, through PyKEEN's data sets."""

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

from pathe.columns import ROLES, used_names
from pathe.errors import DataError, UnknownNameError, nearest

_TIMEOUT_S = 20  # a network that drops packets must not hang the command
_PLAIN = {"train": "training", "valid": "validation", "test": "testing"}
_INFERENCE = {
    "train": "inductive_inference",
    "valid": "inductive_validation",
    "test": "inductive_testing",
}


class Named(NamedTuple):
    """Tables by split; `inference` for inductive sets, which is meant alone when `alone`."""

    name: str
    tables: dict[str, Any]
    inference: dict[str, Any] | None
    alone: bool


def read_named(name: str) -> Named:
    """`fb15k-237`, `inductivewn18rr:v2`, `inductivewn18rr:v2_ind`, ..."""
    try:
        from pykeen.datasets import dataset_resolver
        from pykeen.datasets.inductive import inductive_dataset_resolver
    except ImportError as error:
        raise DataError(
            f"{name}: no such file or folder, and data sets by name need PyKEEN: "
            "run `pip install pykeen`."
        ) from error
    plain: dict[str, Any] = dict(dataset_resolver.lookup_dict)
    inductive: dict[str, Any] = dict(inductive_dataset_resolver.lookup_dict)
    wanted, _, version = name.partition(":")
    key = re.sub(r"[-_\s.]", "", wanted.lower())
    if key not in plain and key not in inductive:
        raise UnknownNameError(
            f"{name!r}: no such file or folder, and no data set of this name."
            f"{nearest(key, [*plain, *inductive])}"
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
        raise UnknownNameError(
            f"{name!r}: expected one of {known}, or one with _ind for the inference graph alone."
        )
    with _loading(name, inductive[key]):
        data = inductive[key](version=base) if takes_version else inductive[key]()
        title = f"{key}:{base}" if base else key
        train = _tables(data, {"train": "transductive_training"})
        return Named(title, train, _tables(data, _INFERENCE), alone)


@contextlib.contextmanager
def _loading(name: str, cls: type) -> Iterator[None]:
    """Keep PyKEEN's own lines and progress bars inside; say what a failed load means."""
    from pykeen.constants import PYKEEN_DATASETS

    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_S)
    sink = io.StringIO()
    try:
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            yield
    except OSError as error:
        raise DataError(
            f"{name}: this data set must be downloaded, and that failed ({_short(error)}). "
            "Try again with a network, or give a folder with its train, valid and test files."
        ) from error
    except Exception as error:
        raise DataError(
            f"{name}: PyKEEN can't load this data set ({_short(error)}). Give a folder with its "
            "train, valid and test files; a broken download would be in "
            f"{Path(PYKEEN_DATASETS) / cls.__name__.lower()}."
        ) from error
    finally:
        socket.setdefaulttimeout(timeout)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"


def _tables(data: Any, splits: dict[str, str]) -> dict[str, Any]:
    """Tables by split; absent ones are left out."""
    tables = {}
    for split, theirs in splits.items():
        factory = getattr(data, theirs)  # downloads what isn't there
        if factory is None:
            continue
        rows = _original(data, theirs)
        if rows is None:
            entities = _labels(factory, "entity", factory.num_entities)
            relations = _labels(factory, "relation", factory.real_num_relations)
            ids = factory.mapped_triples.int().T.contiguous().numpy()
            named = zip(ids, (entities, relations, entities), strict=True)
            coded = [pa.DictionaryArray.from_arrays(pa.array(i), names) for i, names in named]
            arrays = [used_names(column) for column in coded]
        else:
            arrays = [pa.array(c, pa.large_string()).dictionary_encode() for c in rows.T]
        if len(arrays[0]):
            tables[split] = pa.table(arrays, names=list(ROLES))
    return tables


def _original(data: Any, split: str) -> Any:
    """The split's names as its file has them, (n, 3): PyKEEN itself leaves out valid and test
    triples with an entity that isn't in train. None where it has no file of the split.
    """
    from pykeen.triples.utils import load_triples

    if path := getattr(data, f"{split}_path", None):
        return load_triples(path, **(getattr(data, "load_triples_kwargs", None) or {}))
    if member := getattr(data, f"relative_{split}_path", None):
        columns = (data.head_column, data.relation_column, data.tail_column)
        with zipfile.ZipFile(data.path) as archive, archive.open(member.as_posix()) as file:
            return load_triples(
                io.TextIOWrapper(file, "utf-8"), delimiter=data.sep, column_remapping=columns
            )
    return None


def _labels(factory: Any, kind: str, n: int) -> Any:
    """Names in the order of PyKEEN's ids; the ids themselves where it has no names."""
    labels = getattr(factory, f"{kind}_id_to_label", None)
    return pa.array([labels[i] if labels else str(i) for i in range(n)], pa.large_string())
