"""Benchmark names -> columns, through PyKEEN's data sets."""

from __future__ import annotations

import contextlib
import inspect
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from pathe.columns import ROLES, used_names
from pathe.errors import DataError, UnknownNameError, nearest

_TIMEOUT_S = 20  # a network that drops packets must not hang the command


class Named(NamedTuple):
    """Tables by split; `inference` for inductive sets, which is meant alone when `alone`."""

    name: str
    tables: dict[str, Any]
    inference: dict[str, Any] | None
    alone: bool


def read_named(name: str) -> Named:
    """`fb15k-237`, `inductivewn18rr:v2`, `inductivewn18rr:v2_ind`, ...

    PyKEEN leaves out valid and test triples with an entity that isn't in train.
    """
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
            data = plain[key]()
            splits = {"train": data.training, "valid": data.validation, "test": data.testing}
            return Named(key, _tables(splits), None, False)
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
        inference = {
            "train": data.inductive_inference,
            "valid": data.inductive_validation,
            "test": data.inductive_testing,
        }
        title = f"{key}:{base}" if base else key
        train = _tables({"train": data.transductive_training})
        return Named(title, train, _tables(inference), alone)


@contextlib.contextmanager
def _loading(name: str, cls: type) -> Iterator[None]:
    """Keep PyKEEN off stdout; say what a failed load means, and leave no part of it behind."""
    from pykeen.constants import PYKEEN_DATASETS

    cache = Path(PYKEEN_DATASETS) / cls.__name__.lower()
    before = set(cache.rglob("*"))
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_S)
    done = False
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
        done = True
    except OSError as error:
        raise DataError(
            f"{name}: this data set must be downloaded, and that failed ({_short(error)}). "
            "Try again with a network, or give a folder with its train, valid and test files."
        ) from error
    except Exception as error:
        raise DataError(
            f"{name}: PyKEEN can't load this data set ({_short(error)}). Give a folder with its "
            f"train, valid and test files; a broken download would be in {cache}."
        ) from error
    finally:
        socket.setdefaulttimeout(timeout)
        if not done:
            for path in sorted(set(cache.rglob("*")) - before, reverse=True):
                path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"


def _tables(splits: dict[str, Any]) -> dict[str, Any]:
    """Triples factories by split -> tables by split; absent ones are left out."""
    tables = {}
    for split, factory in splits.items():
        if factory is None or not len(factory.mapped_triples):
            continue
        entities, relations = (
            _labels(factory, "entity", factory.num_entities),
            _labels(factory, "relation", factory.real_num_relations),
        )
        ids = factory.mapped_triples.int().T.contiguous().numpy()
        columns = zip(ids, (entities, relations, entities), strict=True)
        arrays = [pa.DictionaryArray.from_arrays(pa.array(i), names) for i, names in columns]
        tables[split] = pa.table([used_names(a) for a in arrays], names=list(ROLES))
    return tables


def _labels(factory: Any, kind: str, n: int) -> Any:
    """Names in the order of PyKEEN's ids; the ids themselves where it has no names."""
    labels = getattr(factory, f"{kind}_id_to_label", None)
    return pa.array([labels[i] if labels else str(i) for i in range(n)], pa.large_string())
