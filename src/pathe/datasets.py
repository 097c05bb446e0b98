"""What the user names (a file, a folder, a data set) -> a knowledge graph of ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import torch
from torch import Tensor

from pathe.columns import (
    COMPRESSIONS,
    KNOWN_SUFFIXES,
    ROLES,
    check_fractions,
    existing_path,
    named_table,
    used_names,
)
from pathe.errors import DataError
from pathe.files import check_new_folder, replacing
from pathe.named import read_named
from pathe.openke import FILES as OPENKE_FILES
from pathe.openke import read_openke
from pathe.readers import ReadOptions, ReadReport, locate_row, read_columns, split_suffix
from pathe.triples import (
    Vocabulary,
    check_writable,
    encode,
    split_triples,
    unique_triples,
    write_rows,
)

SPLITS = ("train", "valid", "test")
EVERY: Literal["every"] = "every"
Relations = Vocabulary | Literal["every"] | None  # those of a graph: given, all, or train's
_ALIASES = {"training": "train", "dev": "valid", "validation": "valid", "testing": "test"}


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """Names and triples; each split is int32 (n, 3), sorted and unique, empty where absent."""

    name: str
    entities: Vocabulary
    relations: Vocabulary
    train: Tensor
    valid: Tensor
    test: Tensor
    report: ReadReport
    inference: KnowledgeGraph | None = None

    def __repr__(self) -> str:
        sizes = f"{len(self.train):,} / {len(self.valid):,} / {len(self.test):,}"
        return (
            f"KnowledgeGraph({self.name!r}, {self.n_entities:,} entities, {self.n_relations:,} "
            f"relations, {sizes} train / valid / test triples)"
        )

    @property
    def n_entities(self) -> int:
        return len(self.entities)

    @property
    def n_relations(self) -> int:
        return len(self.relations)

    def fingerprint(self) -> str:
        """16 hex digits of the names and triples, whatever the files' format and order."""
        digest = blake2b(digest_size=8)
        for vocabulary in (self.entities, self.relations):
            digest.update(len(vocabulary).to_bytes(8, "little"))
            for buffer in vocabulary.buffers():
                digest.update(buffer)
        for triples in (self.train, self.valid, self.test):
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
        """Read a file, a folder or a data set by name; `split` is for one file of triples.

        Relations that train lacks are an error, unless `every_relation` is wanted: for use with a
        model that was trained elsewhere.
        """
        relations: Relations = EVERY if every_relation else None
        options = options or ReadOptions()
        if split is not None:
            check_fractions(split)
        path = existing_path(data)
        if path is None:
            if split is not None:
                raise DataError(f"{data}: --split is for one file of triples, not for a name")
            return _read_data_set(str(data), relations, options)
        if path.is_dir():
            path = path.resolve()
            files = _split_files(path)
            if split is None:
                return _read_folder(path, files, relations, options)
            if set(files) != {"train"}:
                own = "train" in files or OPENKE_FILES[2] in _stems(path)
                raise DataError(
                    f"{path}: --split is for one file of triples; this folder has "
                    f"{'its own splits. Drop --split, or' if own else 'no train file:'} give one "
                    "of the files."
                )
            path = files["train"]
        graph = _read_file(path, relations, options)
        if split is None:
            return graph
        parts = split_triples(graph.train, split, seed, not allow_unseen)
        return replace(graph, train=parts[0], valid=parts[1], test=parts[2])

    @classmethod
    def from_triples(
        cls,
        train: Iterable[tuple[str, str, str]],
        valid: Iterable[tuple[str, str, str]] = (),
        test: Iterable[tuple[str, str, str]] = (),
        name: str = "graph",
    ) -> KnowledgeGraph:
        """A graph of (head, relation, tail) names in memory: lists, arrays or data frames."""
        train, valid, test = (
            rows.itertuples(index=False) if hasattr(rows, "itertuples") else rows
            for rows in (train, valid, test)
        )
        report = ReadReport()
        sources = [
            _Source(split, f"{name} {split}", named_table(list(rows), f"{name} {split}"), _triple)
            for split, rows in zip(SPLITS, (train, valid, test), strict=True)
        ]
        return _build(name, sources, None, ReadOptions(), report)

    def save(self, folder: Path | str, suffix: str = ".txt") -> dict[Path, KnowledgeGraph]:
        """Write the splits to a new or empty folder, whole or not at all; gives what went where.

        An inference graph goes to the folder's sibling with _ind, as GraIL has it.
        """
        folder = Path(folder).absolute()
        graphs = {folder: self}
        if self.inference is not None:
            graphs[folder.with_name(f"{folder.name}_ind")] = self.inference
        for target, graph in graphs.items():
            check_new_folder(target)
            for split in SPLITS:
                triples, path = getattr(graph, split), target / f"{split}{suffix}"
                check_writable(path, triples, graph.entities, graph.relations)
                if not len(triples):
                    raise DataError(
                        f"{target}: {split} is empty, and a folder without it can't be read back. "
                        "Cut one file with --split 0.8,0.1,0.1; to keep triples without splits, "
                        f"name a file such as {folder.name}{suffix}."
                    )
        made = [parent for parent in folder.parents if not parent.exists()]
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as stack:  # all are written before the first takes its place
                for target, graph in graphs.items():
                    aside = stack.enter_context(replacing(target))
                    aside.mkdir()
                    for split in SPLITS:
                        name, triples = f"{split}{suffix}", getattr(graph, split)
                        paths = aside / name, target / name
                        write_rows(*paths, triples, graph.entities, graph.relations)
        except BaseException:
            for parent in made:
                with suppress(OSError):
                    parent.rmdir()
            raise
        return graphs


class _Source(NamedTuple):
    """One split's rows; `locate` turns a row number into words such as `, line 7`."""

    split: str
    where: str
    table: Any
    locate: Callable[[int], str]


def _triple(row: int) -> str:
    return f", triple {row + 1}"


def _build(
    name: str,
    sources: list[_Source],
    relations: Relations,
    options: ReadOptions,
    report: ReadReport,
) -> KnowledgeGraph:
    """Sources of train first, then valid and test -> a graph."""
    if relations == EVERY:
        relations = relations_of([source.table for source in sources])
    elif relations is None:
        relations = relations_of([sources[0].table])
    assert isinstance(relations, Vocabulary)
    known = [_known_only(source, relations, options, report) for source in sources]
    names = [t.column(role).chunk(0).dictionary for t in known for role in ("head", "tail")]
    entities = Vocabulary(pa.chunked_array(names))
    splits = dict.fromkeys(SPLITS, torch.empty((0, 3), dtype=torch.int32))
    for source, table in zip(sources, known, strict=True):
        triples, n_duplicates = unique_triples(encode(table, entities, relations))
        splits[source.split] = triples
        report.duplicates += n_duplicates
    train, valid, test = (splits[split] for split in SPLITS)
    return KnowledgeGraph(name, entities, relations, train, valid, test, report)


def relations_of(tables: list[Any]) -> Vocabulary:
    """The vocabulary of the tables' relation columns."""
    names = [table.column("relation").chunk(0).dictionary for table in tables]
    return Vocabulary(pa.chunked_array(names), "relation")


def _known_only(
    source: _Source, relations: Vocabulary, options: ReadOptions, report: ReadReport
) -> Any:
    """The source's table without rows of unknown relations, which raise unless skipped."""
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
        raise DataError(f"{source.where}: no triple in it has a training relation")
    table = source.table.filter(pa.array(known)).combine_chunks()
    columns = [used_names(table.column(role).chunk(0)) for role in ROLES]
    return pa.table(columns, names=list(ROLES))


def _read_source(split: str, path: Path, options: ReadOptions, report: ReadReport) -> _Source:
    table = read_columns(path, options, report)
    return _Source(split, str(path), table, lambda row: locate_row(path, options, row))


def _read_file(path: Path, relations: Relations, options: ReadOptions) -> KnowledgeGraph:
    report = ReadReport()
    source = _read_source("train", path, options, report)
    return _build(split_suffix(path)[0], [source], relations, options, report)


def _only(folder: Path, name: str, paths: list[Path]) -> Path:
    if len(paths) > 1:
        found = " and ".join(sorted(p.name for p in paths))
        raise DataError(f"{folder}: expected one {name} file, found {found}. Remove one.")
    return paths[0]


def _stems(folder: Path) -> dict[str, list[Path]]:
    """Readable files by name without suffixes, lower case."""
    stems: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        stem, suffix, _ = split_suffix(path)
        if suffix and path.is_file():
            stems.setdefault(stem.lower(), []).append(path)
    return stems


def _split_files(folder: Path) -> dict[str, Path]:
    """Files named train, valid (or dev, validation) and test, by split."""
    files: dict[str, Path] = {}
    for stem, paths in _stems(folder).items():
        split = _ALIASES.get(stem, stem)
        if split not in SPLITS:
            continue
        paths = [*paths, files[split]] if split in files else paths
        files[split] = _only(folder, split, paths)
    return files


def _read_folder(
    folder: Path, files: dict[str, Path], relations: Relations, options: ReadOptions
) -> KnowledgeGraph:
    """A folder of splits or of OpenKE ids; a GraIL pair when its sibling is there."""
    if "train" not in files:
        return _read_openke_folder(folder, relations, options)
    missing = [split for split in SPLITS if split not in files]
    if missing:
        raise DataError(
            f"{folder}: expected files named train, valid and test; no {' and no '.join(missing)} "
            f"file. To read only the training triples give {files['train']} itself, with --split "
            "0.8,0.1,0.1 to make splits of them."
        )
    if relations is None and folder.name.endswith("_ind"):
        base = folder.with_name(folder.name.removesuffix("_ind"))
        base_files = _split_files(base) if base.is_dir() else {}
        if "train" in base_files:
            relations = relations_of([read_columns(base_files["train"], options)])
    report = ReadReport()
    sources = [_read_source(split, files[split], options, report) for split in SPLITS]
    graph = _build(folder.name, sources, relations, options, report)
    sibling = folder.with_name(f"{folder.name}_ind")
    if sibling.is_dir() and "train" in (sibling_files := _split_files(sibling)):
        theirs = EVERY if relations == EVERY else graph.relations
        inference = _read_folder(sibling, sibling_files, theirs, options)
        return replace(graph, inference=inference)
    return graph


def _read_openke_folder(folder: Path, relations: Relations, options: ReadOptions) -> KnowledgeGraph:
    stems = _stems(folder)
    if not set(OPENKE_FILES[:3]) & set(stems):
        found = sorted(p.name for p in folder.iterdir())
        more = f" and {len(found) - 10} more" if len(found) > 10 else ""
        raise DataError(
            f"{folder}: no known kind of folder. Expected train, valid and test files "
            f"({', '.join(KNOWN_SUFFIXES)}, also with {', '.join(COMPRESSIONS)}) or OpenKE's "
            f"{', '.join(f'{f}.txt' for f in OPENKE_FILES)}; found "
            f"{', '.join(found[:10]) or 'nothing'}{more}."
        )
    missing = [f"{name}.txt" for name in OPENKE_FILES if name not in stems]
    if missing:
        raise DataError(f"{folder}: an OpenKE folder without {' and '.join(missing)}")
    options.refuse(("columns", "header", "delimiter"), f"{folder} is an OpenKE folder")
    report = ReadReport()
    files = {name: _only(folder, name, stems[name]) for name in OPENKE_FILES}
    tables = read_openke(files, options, report)
    sources = [
        # Exact when no line is blank, which the format has no use for; line 1 is the count.
        _Source(split, str(files[f"{split}2id"]), tables[split], lambda row: f", line {row + 2}")
        for split in SPLITS
    ]
    return _build(folder.name, sources, relations, options, report)


def _read_data_set(name: str, relations: Relations, options: ReadOptions) -> KnowledgeGraph:
    options.refuse(("columns", "header", "delimiter"), f"{name} is a data set's name")
    named = read_named(name)
    if relations is None:
        options = replace(options, on_error="skip")  # what no one can put right is counted

    def build(title: str, tables: dict[str, Any], theirs: Relations) -> KnowledgeGraph:
        report = ReadReport(rows=sum(t.num_rows for t in tables.values()))
        sources = [_Source(s, f"{title} {s}", t, lambda _: "") for s, t in tables.items()]
        return _build(title, sources, theirs, options, report)

    graph = build(named.name, named.tables, relations)
    if named.inference is None:
        return graph
    theirs = EVERY if relations == EVERY else graph.relations
    inference = build(f"{named.name}_ind", named.inference, theirs)
    return inference if named.alone else replace(graph, inference=inference)
