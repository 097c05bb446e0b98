"""A file, a folder or the name of a data set -> a knowledge graph of ids."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import torch
from torch import Tensor

from pathe.core import html
from pathe.core.errors import DataError
from pathe.core.files import check_new_folder, replacing
from pathe.core.types import PARTS, rows_of
from pathe.data.benchmarks import read_named
from pathe.data.columns import (
    READABLE,
    SPARQL,
    check_fractions,
    coded_table,
    collect,
    existing_path,
    is_store,
    named_table,
)
from pathe.data.delimited import recurs
from pathe.data.iris import check_base
from pathe.data.names import BASE, Names, names_of
from pathe.data.neo4j import header_fields, read_bolt, read_neo4j_folder
from pathe.data.openke import FILES as OPENKE_FILES
from pathe.data.openke import read_openke
from pathe.data.prepared_folder import PreparedFolder, is_prepared, open_folder
from pathe.data.readers import ReadOptions, ReadReport, locate_row, read_columns, split_suffix
from pathe.data.sparql import read_sparql
from pathe.data.split_files import SPLITS as SPLITS
from pathe.data.split_files import only_file, part_files, readable_files, split_files, stems
from pathe.data.triples import check_writable, encode, split_triples, unique_triples, write_rows
from pathe.data.vocabulary import Vocabulary

SHOWN = 8  # relations in a notebook
Relations = Vocabulary | Literal["train", "every"]  # given, or those of train or of every split


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """Names and triples; each split is int32 (n, 3), sorted and unique, empty if missing."""

    name: str
    entities: Vocabulary
    relations: Vocabulary
    train: Tensor
    valid: Tensor
    test: Tensor
    report: ReadReport
    inference: KnowledgeGraph | None = None
    folder: PreparedFolder | None = None  # where it is stored, if it was prepared

    def __repr__(self) -> str:
        sizes = " / ".join(f"{len(triples):,}" for triples in self.splits.values())
        return (
            f"KnowledgeGraph({self.name!r}, {self.n_entities:,} entities, {self.n_relations:,} "
            f"relations, {sizes} train / valid / test triples)"
        )

    def _repr_html_(self) -> str:
        sizes = ", ".join(f"{split} {len(t):,}" for split, t in self.splits.items() if len(t))
        about = f"{self.n_entities:,} entities, {self.n_relations:,} relations; triples: {sizes}"
        counts_R, order_R = torch.bincount(self.train[:, 1]).sort(descending=True, stable=True)
        rows = []
        for r, n in zip(order_R[:SHOWN].tolist(), counts_R[:SHOWN].tolist(), strict=True):
            head, _, tail = self.train[(self.train[:, 1] == r).nonzero()[0, 0]].tolist()
            names = self.relations[r], self.entities[head], self.entities[tail]
            relation, head, tail = self.names.shown(names)
            rows.append((relation, n, head, tail))
        columns = ("relation", "training triples", "a head", "its tail")
        rest = f"... and {self.n_relations - SHOWN:,} more relations"
        more = html.line(rest) if self.n_relations > SHOWN else ""
        return html.title(self.name, about) + html.table(columns, rows) + more

    @property
    def n_entities(self) -> int:
        return len(self.entities)

    @property
    def n_relations(self) -> int:
        return len(self.relations)

    @property
    def names(self) -> Names:
        """Prefixes and labels: how names may be written in queries, and how they are shown."""
        return self.entities.spellings

    @property
    def splits(self) -> dict[str, Tensor]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def fingerprint(self) -> str:
        """Returns 16 hex digits that depend on names and triples, not on file format or order."""
        if (folder := self.stored(*SPLITS)) and self._has_names_of(folder):
            return str(folder.about["fingerprint"])
        digest = blake2b(digest_size=8)
        for vocabulary in (self.entities, self.relations):
            digest.update(len(vocabulary).to_bytes(8, "little"))
            for buffer in vocabulary.buffers():
                digest.update(buffer)
        for triples in self.splits.values():
            digest.update(len(triples).to_bytes(8, "little"))
            digest.update(triples.contiguous().numpy().data)
        return digest.hexdigest()

    def stored(self, *splits: str) -> PreparedFolder | None:
        """Returns the folder that the graph was opened from if these splits are as they are there.

        Arrays that were computed from the splits may then be taken from the folder.
        """
        folder = self.folder
        if folder is None or self.n_entities != len(folder.entities):
            return None
        for split in splits:
            own, theirs = self.splits[split], folder.splits[split]
            if own is not theirs and (len(own) or len(theirs)):
                return None
        return folder if self.n_relations == len(folder.relations) else None

    def _has_names_of(self, folder: PreparedFolder) -> bool:
        same = self.relations.array is folder.relations.array
        return same and self.entities.array is folder.entities.array

    @classmethod
    def read(
        cls,
        data: str | Path,
        *,
        split: tuple[float, float, float] | None = None,
        seed: int = 0,
        allow_unseen: bool = False,
        every_relation: bool = False,
        options: ReadOptions | None = None,
    ) -> KnowledgeGraph:
        """Reads a file, a folder or a data set by name; `split` is for one file of triples.

        Relations of valid and test that train lacks are an error unless `every_relation` is set,
        which is for models trained on another graph.
        """
        relations: Relations = "every" if every_relation else "train"
        options = options or ReadOptions()
        if split is not None:
            check_fractions(split)
        if is_store(data):
            return _split(_read_store(str(data), relations, options), split, seed, allow_unseen)
        options.reject(("sparql_query",), f"{data} is no SPARQL endpoint")
        path = existing_path(data)
        if path is None:
            if split is not None:
                raise DataError(
                    f"{data}: has its own splits; only one file of triples can be split."
                )
            return _read_data_set(str(data), relations, options)
        if path.is_dir():
            path = path.resolve()
            if is_prepared(path):
                return _open_prepared(path, relations, options, (split, seed, allow_unseen))
            files = split_files(path)
            if not files and (graph := _read_neo4j(path, relations, options)):
                return _split(graph, split, seed, allow_unseen)
            if not files and not is_openke(path) and (parts := part_files(path)):
                graph = _read_files(path.name, {"train": parts}, relations, options)
                return _split(graph, split, seed, allow_unseen)
            if split is None:
                return _read_folder(path, files, relations, options)
            if set(files) != {"train"}:
                own = "train" in files or is_openke(path)
                raise DataError(
                    f"{path}: only one file of triples can be split; this folder has "
                    f"{'its own splits. Leave the split out, or' if own else 'no train file:'} "
                    "give one of the files."
                )
            name, parts = split_suffix(files["train"][0])[0], files["train"]
        else:
            name, parts = split_suffix(path)[0], [path]
        graph = _read_files(name, {"train": parts}, relations, options)
        return _split(graph, split, seed, allow_unseen)

    @classmethod
    def from_triples(
        cls,
        train: Iterable[Any],
        valid: Iterable[Any] = (),
        test: Iterable[Any] = (),
        name: str = "graph",
    ) -> KnowledgeGraph:
        """Builds a graph from (head, relation, tail) names: lists, arrays, dicts, data frames."""
        sources = []
        for split, rows in zip(SPLITS, (train, valid, test), strict=True):
            table = named_table(list(rows_of(rows)), f"{name} {split}")
            sources.append(_Source(split, f"{name} {split}", table, lambda i: f", triple {i + 1}"))
        return _build(name, sources, "train", ReadOptions(), ReadReport())

    def save(self, folder: Path | str, suffix: str = ".txt") -> dict[Path, KnowledgeGraph]:
        """Writes all splits or nothing to a new or empty folder; returns graphs by folder.

        An inference graph is written to the sibling folder with _ind, as GraIL does.
        """
        folder = Path(folder).absolute()
        graphs = {folder: self}
        if self.inference is not None:
            graphs[folder.with_name(f"{folder.name}_ind")] = self.inference
        for target, graph in graphs.items():
            check_new_folder(target)
            for split, triples in graph.splits.items():
                path = target / f"{split}{suffix}"
                check_writable(path, triples, graph.entities, graph.relations)
                if not len(triples):
                    raise DataError(
                        f"{target}: {split} is empty, and a folder without it can't be read back. "
                        "Split one file with --split 0.8,0.1,0.1; to keep triples without splits, "
                        f"name a file such as {folder.name}{suffix}."
                    )
        made = [parent for parent in folder.parents if not parent.exists()]
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as stack:  # all are written before the first is renamed
                for target, graph in graphs.items():
                    aside = stack.enter_context(replacing(target))
                    aside.mkdir()
                    for split, triples in graph.splits.items():
                        path = aside / f"{split}{suffix}"
                        write_rows(path, path, triples, graph.entities, graph.relations)
        except BaseException:
            for parent in made:
                with suppress(OSError):
                    parent.rmdir()
            raise
        return graphs


def split_sources(path: Path, options: ReadOptions) -> dict[str, list[Path]] | None:
    """Returns the files of each split if they alone make the graph, train first; else None.

    Folders of OpenKE and Neo4j and GraIL pairs need more than their rows.
    """
    if path.is_file():
        return None if header_fields(path, options) else {"train": [path]}
    files = split_files(path)
    if "train" in files:
        pair = path.with_name(f"{path.name}_ind").is_dir() or path.name.endswith("_ind")
        return None if pair or set(files) != set(SPLITS) else files
    if files or is_openke(path) or any(header_fields(p, options) for p in part_files(path)[:1]):
        return None
    parts = part_files(path)
    return {"train": parts} if parts else None


def source_files(folder: Path, options: ReadOptions) -> list[Path]:
    """Returns the files that a folder's graph is read from, of whichever kind the folder is."""
    if files := split_files(folder):
        return [path for paths in files.values() for path in paths]
    found = readable_files(folder)
    if neo4j := [path for path in found if header_fields(path, options)]:
        return neo4j
    if is_openke(folder):
        return [path for name in OPENKE_FILES for path in stems(folder).get(name, [])]
    return found


def _split(
    graph: KnowledgeGraph,
    fractions: tuple[float, float, float] | None,
    seed: int,
    allow_unseen: bool,
) -> KnowledgeGraph:
    """Splits the training triples if there are fractions."""
    if fractions is None:
        return graph
    train, valid, test = split_triples(graph.train, fractions, seed, not allow_unseen)
    return replace(graph, train=train, valid=valid, test=test)


class _Source(NamedTuple):
    """One split's rows; `locate` turns a row number into text such as `, line 7`."""

    split: str
    where: str
    table: Any
    locate: Callable[[int], str]


def _build(
    name: str,
    sources: list[_Source],
    relations: Relations,
    options: ReadOptions,
    report: ReadReport,
) -> KnowledgeGraph:
    """Builds a graph from its sources: train first, then valid and test."""
    if isinstance(relations, str):
        read = sources if relations == "every" else sources[:1]
        relations = _relations_of([source.table for source in read])
    known = [_knownonly_file(source, relations, options, report) for source in sources]
    names = [t.column(role).chunk(0).dictionary for t in known for role in ("head", "tail")]
    entities = Vocabulary(pa.chunked_array(names))
    splits = dict.fromkeys(SPLITS, torch.empty((0, 3), dtype=torch.int32))
    for source, table in zip(sources, known, strict=True):
        splits[source.split], n = unique_triples(encode(table, entities, relations))
        report.duplicates += n
    train, valid, test = (splits[split] for split in SPLITS)
    report.prefixes += options.prefixes
    base, vocabularies = check_base(options.base_iri or BASE), (entities, relations)
    spellings = names_of(report, base, *(vocabulary.array for vocabulary in vocabularies))
    report.labels, report.all_labels = {}, set()  # the graph keeps them in less memory
    entities, relations = (vocabulary.with_spellings(spellings) for vocabulary in vocabularies)
    return KnowledgeGraph(name, entities, relations, train, valid, test, report)


def _relations_of(tables: list[Any]) -> Vocabulary:
    """Returns the vocabulary of the tables' relation columns."""
    names = [table.column("relation").chunk(0).dictionary for table in tables]
    return Vocabulary(pa.chunked_array(names), "relation")


def _knownonly_file(
    source: _Source, relations: Vocabulary, options: ReadOptions, report: ReadReport
) -> Any:
    """Returns the source's rows with known relations; others raise DataError or are dropped."""
    column = source.table.column("relation").chunk(0)
    known_names = relations.ids(column.dictionary, missing="mark").numpy() >= 0
    if known_names.all():
        return source.table
    known = known_names[column.indices.to_numpy()]
    if options.on_error == "raise":
        row = int(known.argmin())
        raise DataError(
            f"{source.where}{source.locate(row)}: the relation {column[row].as_py()!r} isn't "
            "among the training relations. Add it to train, or drop such triples with "
            "--on-error skip."
        )
    report.unknown_relations += int((~known).sum())
    if not known.any():
        raise DataError(f"{source.where}: no triple in it has a training relation.")
    columns = [source.table.column(part).chunk(0) for part in PARTS]
    return coded_table((c.indices.to_numpy()[known], c.dictionary) for c in columns)


def _read_files(
    name: str, files: dict[str, list[Path]], relations: Relations, options: ReadOptions
) -> KnowledgeGraph:
    """Reads the files of each split, train first."""
    report = ReadReport()
    sources = [_read_parts(split, paths, options, report) for split, paths in files.items()]
    for path, first in report.odd_first_rows.items():
        if not any(recurs(first, source.table) for source in sources):
            report.notes.append(
                f"first line of {path} read as a triple: {', '.join(first)}; if it is a header, "
                "add --header"
            )
    return _build(name, sources, relations, options, report)


def _read_parts(split: str, paths: list[Path], options: ReadOptions, report: ReadReport) -> _Source:
    """Reads the files of one split."""
    tables = [read_columns(path, options, report) for path in paths]
    if len(paths) == 1:
        locate = partial(locate_row, paths[0], options)
        return _Source(split, str(paths[0]), tables[0], locate)
    starts = list(accumulate((table.num_rows for table in tables), initial=0))

    def locate_in_part(row: int) -> str:
        i = bisect_right(starts, row) - 1
        return f"/{paths[i].name}{locate_row(paths[i], options, row - starts[i])}"

    table = collect([table.column(part).chunk(0) for part in PARTS] for table in tables)
    return _Source(split, str(_place(paths)), table, locate_in_part)


def _open_prepared(
    path: Path,
    relations: Relations,
    options: ReadOptions,
    split: tuple[tuple[float, float, float] | None, int, bool],
) -> KnowledgeGraph:
    """Opens a folder that `pathe prepare` has written."""
    folder = open_folder(path, options)
    lacking = folder.about["relations_not_in_train"]
    if relations == "train" and lacking:
        raise DataError(
            f"{path}: the relation {lacking!r} isn't among the training relations. Add it to train "
            "and prepare the graph again, or drop such triples by preparing with --on-error skip."
        )
    graph = KnowledgeGraph(
        folder.about["name"],
        folder.entities,
        folder.relations,
        folder.splits["train"],
        folder.splits["valid"],
        folder.splits["test"],
        folder.report(),
        folder=folder,
    )
    if split[0] is not None and (len(graph.valid) or len(graph.test)):
        raise DataError(f"{path}: has its own splits; only one file of triples can be split.")
    return _split(graph, *split)


def _read_store(data: str, relations: Relations, options: ReadOptions) -> KnowledgeGraph:
    """Reads from a SPARQL endpoint or a Neo4j server."""
    report = ReadReport()
    if data.startswith(SPARQL):
        table = read_sparql(data, options, report)
    else:
        options.reject(("sparql_query", "language"), f"{data} is a Neo4j server")
        table = read_bolt(data, options, report)
    name = re.sub(r"[^\w.-]+", "-", data.split("://", 1)[-1]).strip("-.")
    return _build(name, [_Source("train", data, table, lambda _: "")], relations, options, report)


def _read_neo4j(folder: Path, relations: Relations, options: ReadOptions) -> KnowledgeGraph | None:
    """Reads a folder of Neo4j's files; None if it is another kind of folder."""
    report = ReadReport()
    table = read_neo4j_folder(folder, options, report)
    if table is None:
        return None
    options.reject(("language",), f"{folder} holds Neo4j's files")
    report.rows += table.num_rows
    source = _Source("train", str(folder), table, lambda _: "")
    return _build(folder.name, [source], relations, options, report)


def _read_folder(
    folder: Path, files: dict[str, list[Path]], relations: Relations, options: ReadOptions
) -> KnowledgeGraph:
    """Reads a folder of splits or of OpenKE ids; with a sibling NAME_ind, both (as GraIL)."""
    if "train" not in files:
        return _read_openke_folder(folder, relations, options)
    missing = [split for split in SPLITS if split not in files]
    if missing:
        raise DataError(
            f"{folder}: expected files named train, valid and test; no {' and no '.join(missing)} "
            f"file. To read only the training triples, give {_place(files['train'])} itself; add "
            "--split 0.8,0.1,0.1 to split them."
        )
    if relations == "train" and folder.name.endswith("_ind"):
        base = folder.with_name(folder.name.removesuffix("_ind"))
        base_files = split_files(base) if base.is_dir() else {}
        if "train" in base_files:
            tables = [read_columns(path, options) for path in base_files["train"]]
            relations = _relations_of(tables)
    graph = _read_files(folder.name, files, relations, options)
    sibling = folder.with_name(f"{folder.name}_ind")
    if sibling.is_dir() and "train" in (sibling_files := split_files(sibling)):
        theirs = relations if relations == "every" else graph.relations
        return replace(graph, inference=_read_folder(sibling, sibling_files, theirs, options))
    return graph


def _place(parts: list[Path]) -> Path:
    """Returns the file, or the folder of several parts."""
    return parts[0] if len(parts) == 1 else parts[0].parent


def is_openke(folder: Path) -> bool:
    """Whether a folder has files with OpenKE's names."""
    return bool(set(OPENKE_FILES[:3]) & set(stems(folder)))


def _read_openke_folder(folder: Path, relations: Relations, options: ReadOptions) -> KnowledgeGraph:
    found_files = stems(folder)
    if not is_openke(folder):
        found = sorted(p.name for p in folder.iterdir())
        more = f" and {len(found) - 10} more" if len(found) > 10 else ""
        raise DataError(
            f"{folder}: unknown kind of folder. Expected train, valid and test files ({READABLE}) "
            f"or OpenKE's {', '.join(f'{f}.txt' for f in OPENKE_FILES)}; found "
            f"{', '.join(found[:10]) or 'nothing'}{more}."
        )
    missing = [f"{name}.txt" for name in OPENKE_FILES if name not in found_files]
    if missing:
        raise DataError(f"{folder}: an OpenKE folder without {' and '.join(missing)}")
    options.reject(("columns", "header", "delimiter"), f"{folder} is an OpenKE folder")
    report = ReadReport()
    files = {name: only_file(folder, name, found_files[name]) for name in OPENKE_FILES}
    tables = read_openke(files, options, report)
    sources = [
        # Line 1 is the count. Exact unless lines are blank, which the format doesn't allow.
        _Source(split, str(files[f"{split}2id"]), tables[split], lambda row: f", line {row + 2}")
        for split in SPLITS
    ]
    return _build(folder.name, sources, relations, options, report)


def _read_data_set(name: str, relations: Relations, options: ReadOptions) -> KnowledgeGraph:
    options.reject(("columns", "header", "delimiter"), f"{name} is a data set's name")
    named = read_named(name)
    if relations == "train":
        options = replace(options, on_error="skip")  # users can't correct these files

    def build(title: str, tables: dict[str, Any], theirs: Relations) -> KnowledgeGraph:
        report = ReadReport(rows=sum(t.num_rows for t in tables.values()))
        sources = [_Source(s, f"{title} {s}", t, lambda _: "") for s, t in tables.items()]
        return _build(title, sources, theirs, options, report)

    graph = build(named.name, named.tables, relations)
    if named.inference is None:
        return graph
    theirs = relations if relations == "every" else graph.relations
    inference = build(f"{named.name}_ind", named.inference, theirs)
    return inference if named.alone else replace(graph, inference=inference)
