"""A file, a folder or the name of a data set -> a knowledge graph of ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
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
    existing_path,
    is_store,
    named_table,
)
from pathe.data.delimited import recurs
from pathe.data.iris import check_base
from pathe.data.names import BASE, Names, names_of
from pathe.data.neo4j import read_bolt, read_neo4j_folder
from pathe.data.openke import FILES as OPENKE_FILES
from pathe.data.openke import read_openke
from pathe.data.readers import ReadOptions, ReadReport, locate_row, read_columns, split_suffix
from pathe.data.sparql import read_sparql
from pathe.data.triples import check_writable, encode, split_triples, unique_triples, write_rows
from pathe.data.vocabulary import Vocabulary

SPLITS = ("train", "valid", "test")
SHOWN = 8  # relations in a notebook
Relations = Vocabulary | Literal["train", "every"]  # given, or those of train or of every split
_ALIASES = {"training": "train", "dev": "valid", "validation": "valid", "testing": "test"}


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
        digest = blake2b(digest_size=8)
        for vocabulary in (self.entities, self.relations):
            digest.update(len(vocabulary).to_bytes(8, "little"))
            for buffer in vocabulary.buffers():
                digest.update(buffer)
        for triples in self.splits.values():
            digest.update(len(triples).to_bytes(8, "little"))
            digest.update(triples.contiguous().numpy().data)
        return digest.hexdigest()

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
            files = _split_files(path)
            if not files and (graph := _read_neo4j(path, relations, options)):
                return _split(graph, split, seed, allow_unseen)
            if split is None:
                return _read_folder(path, files, relations, options)
            if set(files) != {"train"}:
                own = "train" in files or OPENKE_FILES[2] in _stems(path)
                raise DataError(
                    f"{path}: only one file of triples can be split; this folder has "
                    f"{'its own splits. Leave the split out, or' if own else 'no train file:'} "
                    "give one of the files."
                )
            path = files["train"]
        graph = _read_files(split_suffix(path)[0], {"train": path}, relations, options)
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
    known = [_known_only(source, relations, options, report) for source in sources]
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


def _known_only(
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
    name: str, files: dict[str, Path], relations: Relations, options: ReadOptions
) -> KnowledgeGraph:
    """Reads files by split, train first."""
    report, sources = ReadReport(), []
    for split, path in files.items():
        table = read_columns(path, options, report)
        sources.append(_Source(split, str(path), table, partial(locate_row, path, options)))
    for path, first in report.odd_first_rows.items():
        if not any(recurs(first, source.table) for source in sources):
            report.notes.append(
                f"first line of {path} read as a triple: {', '.join(first)}; if it is a header, "
                "add --header"
            )
    return _build(name, sources, relations, options, report)


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


def _only(folder: Path, name: str, paths: list[Path]) -> Path:
    if len(paths) > 1:
        found = " and ".join(sorted(p.name for p in paths))
        raise DataError(f"{folder}: expected one {name} file, found {found}. Remove one.")
    return paths[0]


def _stems(folder: Path) -> dict[str, list[Path]]:
    """Returns the readable files by their name in lower case without suffixes."""
    stems: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        stem, suffix, _ = split_suffix(path)
        if suffix and path.is_file():
            stems.setdefault(stem.lower(), []).append(path)
    return stems


def _split_files(folder: Path) -> dict[str, Path]:
    """Returns the files named train, valid (or dev, validation) and test, by split."""
    found: dict[str, list[Path]] = {split: [] for split in SPLITS}
    for stem, paths in _stems(folder).items():
        found.get(_ALIASES.get(stem, stem), []).extend(paths)
    return {split: _only(folder, split, paths) for split, paths in found.items() if paths}


def _read_folder(
    folder: Path, files: dict[str, Path], relations: Relations, options: ReadOptions
) -> KnowledgeGraph:
    """Reads a folder of splits or of OpenKE ids; with a sibling NAME_ind, both (as GraIL)."""
    if "train" not in files:
        return _read_openke_folder(folder, relations, options)
    missing = [split for split in SPLITS if split not in files]
    if missing:
        raise DataError(
            f"{folder}: expected files named train, valid and test; no {' and no '.join(missing)} "
            f"file. To read only the training triples, give {files['train']} itself; add --split "
            "0.8,0.1,0.1 to split them."
        )
    if relations == "train" and folder.name.endswith("_ind"):
        base = folder.with_name(folder.name.removesuffix("_ind"))
        base_files = _split_files(base) if base.is_dir() else {}
        if "train" in base_files:
            relations = _relations_of([read_columns(base_files["train"], options)])
    graph = _read_files(folder.name, files, relations, options)
    sibling = folder.with_name(f"{folder.name}_ind")
    if sibling.is_dir() and "train" in (sibling_files := _split_files(sibling)):
        theirs = relations if relations == "every" else graph.relations
        return replace(graph, inference=_read_folder(sibling, sibling_files, theirs, options))
    return graph


def _read_openke_folder(folder: Path, relations: Relations, options: ReadOptions) -> KnowledgeGraph:
    stems = _stems(folder)
    if not set(OPENKE_FILES[:3]) & set(stems):
        found = sorted(p.name for p in folder.iterdir())
        more = f" and {len(found) - 10} more" if len(found) > 10 else ""
        raise DataError(
            f"{folder}: unknown kind of folder. Expected train, valid and test files ({READABLE}) "
            f"or OpenKE's {', '.join(f'{f}.txt' for f in OPENKE_FILES)}; found "
            f"{', '.join(found[:10]) or 'nothing'}{more}."
        )
    missing = [f"{name}.txt" for name in OPENKE_FILES if name not in stems]
    if missing:
        raise DataError(f"{folder}: an OpenKE folder without {' and '.join(missing)}")
    options.reject(("columns", "header", "delimiter"), f"{folder} is an OpenKE folder")
    report = ReadReport()
    files = {name: _only(folder, name, stems[name]) for name in OPENKE_FILES}
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
