"""`pathe prepare`: data of any kind -> a folder that opens as a memory-mapped prepared graph.

The work is a list of phases. What is done is written down, so that a run that was killed continues:
files that were read aren't read again, and finished phases aren't repeated.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from pathe.core.errors import DataError
from pathe.core.files import check_new_folder, locked, read_json, write_json
from pathe.core.types import Progress
from pathe.data.array_files import (
    mapped,
    mapped_text,
    text_files,
    text_writer,
    write_array,
)
from pathe.data.columns import ReadOptions, ReadReport, existing_path, is_store, numbers
from pathe.data.iris import check_base
from pathe.data.knowledge_graph import KnowledgeGraph, source_files, split_sources
from pathe.data.names import BASE
from pathe.data.part_runs import (
    Part,
    changed_meanwhile,
    file_stamp,
    joined_labels,
    joined_report,
    merge_vocabularies,
    read_part,
    relations_of,
    sort_split,
)
from pathe.data.prepared_folder import (
    MANIFEST,
    VERSION,
    WORK,
    check_content,
    is_prepared,
    read_manifest,
    write_manifest,
)
from pathe.data.split_files import SPLITS
from pathe.graph.edges import CHUNK
from pathe.graph.indexing import PHASES, Place

Show = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Request:
    """What to prepare, and how to read it."""

    data: str
    options: ReadOptions
    split: tuple[float, float, float] | None = None
    seed: int = 0
    allow_unseen: bool = False


def prepare_folder(request: Request, out: Path, show: Show) -> dict[str, Any]:
    """Prepares a graph in the folder `out`, or continues to; returns the folder's manifest.

    `show` takes the title of a phase and returns a context that yields a progress function. If the
    folder is complete, the content of its files is checked instead.
    """
    files = _plain_files(request)
    source, stamps = _source(request, files), _stamps(request, files)
    if (out / MANIFEST).exists():
        about = read_manifest(out)
        if about["source"] != source:
            raise DataError(f"{out}: holds a graph from other data. Name another folder.")
        if _differ(about["stamps"], stamps):
            raise DataError(
                f"{out}: the data has changed since this graph was prepared. Name another folder, "
                "or delete this one."
            )
        with show("checking") as progress:
            check_content(out, progress)
        shutil.rmtree(out / WORK, ignore_errors=True)
        return about
    if not is_prepared(out):
        check_new_folder(out)
    work = out / WORK
    work.mkdir(parents=True, exist_ok=True)
    with locked(out):
        state = _State(work / "state.json", source, out)
        if _differ(state.done.get("reading", {}).get("stamps", []), stamps):
            raise _changed(out)
        for old in out.glob(".*.tmp"):
            old.unlink()
        if files is None:
            state.once("reading", show, partial(_store_graph, request, out))
        else:
            _store_files(files, request, out, state, show)
        place = Place(out, work, len(mapped_text(out / "entities")), _n_relations(out))
        for title, index in PHASES.items():
            state.once(title, show, partial(_indexed, index, place))
        told = {"source": source, "stamps": stamps}
        if _stamps(request, files) != stamps:
            raise _changed(out)
        with show("checksums") as progress:
            about = write_manifest(out, _about(state, out) | told, progress)
    shutil.rmtree(work)
    return about


def _indexed(index: Callable[[Place, Progress], None], place: Place, progress: Progress) -> Any:
    index(place, progress)
    return {}


def _n_relations(out: Path) -> int:
    return len(mapped_text(out / "relations"))


class _State:
    """Which phases are done and what they returned, on disk; raises an error if data changed."""

    def __init__(self, path: Path, source: Any, out: Path) -> None:
        self.path, self.done = path, {}
        if path.exists():
            try:
                saved = read_json(path)
                same = saved["source"] == source and saved["version"] == VERSION
                self.done = dict(saved["done"]) if same else {}
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{path}: can't be read ({error}). Delete {out} to begin again."
                ) from None
            if not same:
                raise _changed(out)
        self._source = source
        self._save()

    def once(self, title: str, show: Show, run: Callable[[Progress], Any]) -> Any:
        """Runs a phase unless it is done; returns its result."""
        if title not in self.done:
            with show(title) as progress:
                result = run(progress)
            self.done[title] = result
            self._save()
        return self.done[title]

    def _save(self) -> None:
        saved = {"source": self._source, "version": VERSION, "done": self.done}
        write_json(self.path, saved)


def _changed(out: Path) -> DataError:
    return DataError(
        f"{out}: was begun with other data or options, or the data has changed since. Delete the "
        "folder to begin again."
    )


def _plain_files(request: Request) -> dict[str, list[Path]] | None:
    """Returns the files of each split if these can be read part by part; None for other data."""
    path = None if is_store(request.data) else existing_path(request.data)
    if path is None or request.split is not None:
        return None
    if path.is_dir() and is_prepared(path):
        raise DataError(f"{path}: is prepared already.")
    return split_sources(path.resolve(), request.options)


def _source(request: Request, files: dict[str, list[Path]] | None) -> Any:
    """Returns what the graph is made from: a run continues only if it is the same."""
    parts = [[split, path.name] for split, paths in (files or {}).items() for path in paths]
    given = asdict(request) | {"files": parts}
    given["data"] = given["data"] if is_store(request.data) else Path(request.data).name
    query = request.options.sparql_query
    given["options"]["sparql_query"] = query.read_text(encoding="utf-8") if query else None
    return json.loads(json.dumps(given))


def _stamps(request: Request, files: dict[str, list[Path]] | None) -> list[list[Any]]:
    """Returns what tells whether files have changed; nothing for stores."""
    if files is not None:
        return [file_stamp(path) for paths in files.values() for path in paths]
    path = None if is_store(request.data) else existing_path(request.data)
    if path is None:
        return []
    if path.is_file():
        return [file_stamp(path)]
    files_of = sorted(source_files(path, request.options))
    return [[file.relative_to(path).as_posix(), *file_stamp(file)] for file in files_of]


def _differ(stored: list[list[Any]], stamps: list[list[Any]]) -> bool:
    """Whether files have changed; earlier versions stored nothing for most folders."""
    return bool(stored) and stored != stamps


def _store_graph(request: Request, out: Path, progress: Progress) -> Any:
    """Reads data into memory and writes its names and triples."""
    stamps = _stamps(request, None)
    kg = KnowledgeGraph.read(
        request.data,
        split=request.split,
        seed=request.seed,
        allow_unseen=request.allow_unseen,
        every_relation=request.options.on_error == "raise",
        options=request.options,
    )
    if kg.inference is not None:
        raise DataError(
            f"{request.data}: a GraIL pair can't be prepared; both graphs are small enough to be "
            "read from their files."
        )
    if _stamps(request, None) != stamps:
        raise changed_meanwhile(request.data)
    for stem, vocabulary in (("entities", kg.entities), ("relations", kg.relations)):
        with text_writer(out / stem) as append:
            append(vocabulary.array)
    for split, triples in kg.splits.items():
        write_array(out / f"{split}.npy", triples.numpy())
    used = np.bincount(kg.train[:, 1], minlength=kg.n_relations)
    lacking = kg.relations[int(used.argmin())] if not used.all() else None
    _write_labels(out, kg.names.labelled, kg.names.labels)
    told = {"name": kg.name, "lacking": lacking, "base": kg.names.base}
    told |= _told(kg.report, list(kg.names.prefixes), len(kg.names.labels))
    return told | {"stamps": stamps}


def _told(report: ReadReport, prefixes: list[tuple[str, str]], n_labels: int) -> dict[str, Any]:
    """Returns a report as JSON."""
    told = asdict(report) | {"labels": {}, "odd_first_rows": {}}
    del told["all_labels"]  # only those that are shown are stored
    return {"report": told, "prefixes": prefixes, "labels": n_labels}


def _store_files(
    files: dict[str, list[Path]], request: Request, out: Path, state: _State, show: Show
) -> None:
    """Reads files part by part and writes names and triples."""
    work, options = out / WORK / "runs", request.options
    work.mkdir(exist_ok=True)
    named = [(split, path) for split, paths in files.items() for path in paths]
    parts = [Part(i, split, path, work) for i, (split, path) in enumerate(named)]

    def read(progress: Progress) -> Any:
        known, done = None, 0
        total = sum(part.path.stat().st_size for part in parts)
        for part in parts:
            progress(done, total)
            if part.split != "train" and options.on_error == "skip" and known is None:
                known = relations_of([part for part in parts if part.split == "train"])
            read_part(part, options, known)
            done += part.path.stat().st_size
        return {"stamps": [file_stamp(part.path) for part in parts]}

    def names(progress: Progress) -> Any:
        merge_vocabularies(parts, out, progress)
        return _names(parts, request, out)

    def triples(progress: Progress) -> Any:
        return {"duplicates": sum(sort_split(parts, out, split, progress) for split in SPLITS)}

    state.once("reading", show, read)
    state.once("names", show, names)
    state.once("triples", show, triples)
    shutil.rmtree(work, ignore_errors=True)


def _names(parts: list[Part], request: Request, out: Path) -> dict[str, Any]:
    """Writes labels; returns what the manifest says about names and about what was read."""
    report = joined_report(parts)
    report.prefixes += request.options.prefixes
    known = [mapped_text(out / stem) for stem in ("entities", "relations")]
    labelled, labels, report.n_labels = joined_labels(parts, known)
    _write_labels(out, labelled, labels)
    others = [part for part in parts if part.split != "train"]
    lacking = None
    if others:
        theirs = relations_of(others)
        new = theirs.filter(
            pc.invert(pc.is_in(theirs, relations_of([p for p in parts if p.split == "train"])))
        )
        lacking = min(new.to_pylist(), default=None)
    prefixes = list(dict.fromkeys(report.prefixes))
    base = check_base(request.options.base_iri or BASE)
    name = _graph_name(Path(request.data).resolve())
    return {"name": name, "lacking": lacking, "base": base} | _told(report, prefixes, len(labels))


def _graph_name(path: Path) -> str:
    from pathe.data.columns import split_suffix

    return path.name if path.is_dir() else split_suffix(path)[0]


def _write_labels(out: Path, labelled: Any, labels: Any) -> None:
    """Writes labels by name and, for queries, sorted."""
    if not len(labels):
        return
    order = pc.sort_indices(labels)
    write_array(out / "label_order.npy", numbers(order, np.uint64))
    arrays = {"labelled": labelled, "labels": labels, "labels_sorted": labels.take(order)}
    for stem, array in arrays.items():
        with text_writer(out / stem) as append:
            append(array)


def _about(state: _State, out: Path) -> dict[str, Any]:
    """Returns what the manifest says besides files."""
    told = state.done.get("names") or state.done["reading"]
    report = dict(told["report"])
    report["duplicates"] += state.done.get("triples", {}).get("duplicates", 0)
    return {
        "name": told["name"],
        "fingerprint": _fingerprint(out),
        "n_entities": len(mapped_text(out / "entities")),
        "n_relations": _n_relations(out),
        "splits": {split: len(mapped(out / f"{split}.npy")) for split in SPLITS},
        "relations_not_in_train": told["lacking"],
        "report": report,
        "prefixes": told["prefixes"],
        "base": told["base"],
        "labels": told["labels"],
        "chunk_size": CHUNK,
    }


def _fingerprint(out: Path) -> str:
    """Returns the fingerprint of the graph, as `KnowledgeGraph.fingerprint` does."""
    digest = blake2b(digest_size=8)
    for stem in ("entities", "relations"):
        arrays = [mapped(path) for path in text_files(out / stem)]
        digest.update((len(arrays[0]) - 1).to_bytes(8, "little"))
        for array in arrays:
            digest.update(array.data)
    for split in SPLITS:
        triples = mapped(out / f"{split}.npy")
        digest.update(len(triples).to_bytes(8, "little"))
        digest.update(triples.data if triples.size else b"")
    return digest.hexdigest()
