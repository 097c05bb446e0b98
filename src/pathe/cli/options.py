"""Options that several commands share, alone and in groups."""

from __future__ import annotations

import functools
import inspect
import shlex
import sys
import typing
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import typer
from rich.console import RenderableType
from rich.markup import escape
from typer.models import OptionInfo

from pathe.cli.output import err, print_json, print_parts, rows_out, tell
from pathe.core.errors import DataError, PatheError
from pathe.core.files import write_json

if TYPE_CHECKING:
    import torch

    from pathe.data.columns import ReadOptions, ReadReport
    from pathe.data.knowledge_graph import KnowledgeGraph
    from pathe.data.names import Names
    from pathe.data.row_files import Columns, Write
    from pathe.data.schema import Unknown
    from pathe.model.artifact import Artifact
    from pathe.predict.predictor import Predictor

T = TypeVar("T")
FILES, OUTPUT, SAMPLING = "How to read the files", "Output", "Sampling"
MODEL_AND_DATA = "Model and data"
QUERY = "Query"
DATA_HELP = (
    "A file (.tsv .csv .txt .parquet .nt .nq .ttl .rdf, plain or .gz .zst .xz .bz2), a folder with "
    "train/valid/test files, a folder of part files, a folder from [cyan]pathe prepare[/], a "
    "GraIL, OpenKE or Neo4j folder, a store ([cyan]sparql:URL[/], [cyan]bolt://HOST[/]), a data "
    "set's name such as [cyan]umls[/] or [cyan]fb15k237[/], or an example graph of the package, "
    "[cyan]europe[/] or [cyan]films[/]."
)
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
DataOption = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="DATA",
        help="The graph: same kinds of DATA as for train.",
        rich_help_panel=MODEL_AND_DATA,
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder or a model folder.")]


def _checked(k: int) -> int:
    from pathe.core.types import check_k

    check_k(k)
    return k


K = Annotated[
    int,
    typer.Option("-k", callback=_checked, help="Number of results.", rich_help_panel=QUERY),
]
OnlyRelations = Annotated[
    list[str] | None,
    typer.Option(help="Only this relation; repeatable.", rich_help_panel=QUERY),
]
AnyModel = Annotated[
    Path | None,
    typer.Argument(
        metavar="MODEL",
        help="A run folder or a model folder. Default: the pre-trained model of the package, which "
        "works on any graph; then the graph may be given here instead of as --data.",
        show_default=False,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print only JSON on stdout.", rich_help_panel=OUTPUT)
]
Seed = Annotated[int, typer.Option(help="Random seed.", rich_help_panel=SAMPLING)]


def option(default: T, help: str, *names: str, **more: Any) -> T:
    """Declares a field of an option group: its default, its help text and its names."""
    declared = typer.Option(default, *names, help=help, **more)
    return field(default=default, metadata={"option": declared})


def _file_option(default: T, help: str, *names: str, **more: Any) -> T:
    return option(default, help, *names, rich_help_panel=FILES, **more)


_CUT_HELP = "Split one file into train,valid,test, e.g. [cyan]0.8,0.1,0.1[/]."


@dataclass(frozen=True)
class Output:
    """Where a result goes: to the terminal as a table, to stdout as JSON, or to a file."""

    panel: ClassVar[str] = OUTPUT
    triples: ClassVar[bool] = False  # whether rows have a head, a relation and a tail
    out: Path | None = option(
        None,
        "Write to a file instead: [cyan].json[/], .jsonl, .csv, .tsv or .parquet.",
        metavar="FILE",
    )
    as_json: bool = option(False, "Print JSON on stdout: one array or object.", "--json")
    as_jsonl: bool = option(False, "Print JSON lines on stdout: one row per line.", "--jsonl")

    def check(self, table: bool = True) -> None:
        """Raises an error for options that contradict each other, or a file that can't be written.

        Call it before a long computation. Results that are no `table` are written as JSON only.
        """
        if (self.out is not None) + self.as_json + self.as_jsonl > 1:
            raise PatheError("Give only one of --out, --json and --jsonl.")
        if self.out is not None:
            from pathe.data.row_files import OBJECT_FORMATS, ROW_FORMATS, TRIPLE_FORMATS, check_file

            formats = TRIPLE_FORMATS if self.triples else ROW_FORMATS
            check_file(self.out, formats if table else OBJECT_FORMATS)

    def show(
        self,
        value: Any,
        parts: Iterable[RenderableType],
        columns: Columns | type,
        rows: Sequence[dict[str, Any]] | None = None,
        names: Names | None = None,
    ) -> None:
        """Writes a result, or prints it as JSON or as tables and text.

        `columns` are those of a table, or a dataclass that has them as fields. `rows` are what a
        table or JSON lines hold, if that isn't the value itself. `names` has the prefixes for
        Turtle.
        """
        rows = value if rows is None else rows
        if self.out is not None and self.out.suffix.lower() == ".json":
            write_json(self.out, value)
        elif self.out is not None or self.as_jsonl:
            with self.rows(columns, names) as write:
                write(rows)
        elif self.as_json:
            print_json(value)
        else:
            print_parts(parts)
        if self.out is not None:
            tell(f"wrote {self.out}: {len(rows):,} {'row' if len(rows) == 1 else 'rows'}")

    def rows(
        self, columns: Columns | type, names: Names | None = None
    ) -> AbstractContextManager[Write]:
        """Returns a context that writes rows: to the file, or to stdout as JSON or TSV."""
        from pathe.data.row_files import columns_of

        columns = columns_of(columns) if isinstance(columns, type) else columns
        suffix: Any = ".json" if self.as_json else ".jsonl" if self.as_jsonl else ".tsv"
        return rows_out(self.out, columns, suffix, names)


@dataclass(frozen=True)
class TripleOutput(Output):
    """Where triples go: as other results, or to a file as RDF."""

    triples: ClassVar[bool] = True
    out: Path | None = option(
        None,
        "Write to a file instead: [cyan].json[/], .jsonl, .csv, .tsv or .parquet; as "
        "[cyan].ttl[/] or .nt, only the triples.",
        metavar="FILE",
    )


@dataclass(frozen=True)
class Files:
    """Options that say how to read DATA."""

    cut: str | None = _file_option(None, _CUT_HELP, "--split", "--cut")
    cut_seed: int = _file_option(0, "Seed for the split.")
    allow_unseen: bool = _file_option(
        False, "When splitting, allow entities that occur only in valid or test.", "--allow-unseen"
    )
    columns: str | None = _file_option(
        None,
        "Which columns are head,relation,tail: numbers from 1 or header names, e.g. "
        "[cyan]1,3,2[/] or [cyan]subject,predicate,object[/].",
    )
    header: bool | None = _file_option(
        None,
        "Whether the first line is a header. Default: only if it has names such as head, relation, "
        "tail.",
        "--header/--no-header",
    )
    delimiter: str | None = _file_option(None, "Column separator. Default: tab; comma for .csv.")
    on_error: Literal["raise", "skip"] = _file_option(
        "raise", "Stop at a bad line, or skip and count it."
    )
    language: str | None = _file_option(
        None,
        "RDF: languages of labels, in order of preference, e.g. [cyan]de,en[/]. Default: en; then "
        "labels without a language, then others.",
    )
    prefix: list[str] | None = _file_option(
        None,
        "A prefix of IRIs that the data doesn't declare, e.g. [cyan]ex=http://example.org/[/]; "
        "repeatable.",
        metavar="PREFIX=IRI",
    )
    base_iri: str | None = _file_option(
        None,
        "RDF: base IRI for names that aren't IRIs, when reading and writing. Default: urn:pathe:",
    )
    sparql_query: Path | None = _file_option(
        None, "For sparql:URL: a file with a CONSTRUCT query, or a SELECT of three variables."
    )

    def read(
        self, data: str, model: Artifact | None = None, *, every_relation: bool = False
    ) -> KnowledgeGraph:
        """Reads DATA and reports on stderr; maps relations to the model's if one is given."""
        fractions, options = self.parsed(data)
        from pathe.data.knowledge_graph import KnowledgeGraph

        with err.status(f"reading {escape(data)} ..."):
            kg = KnowledgeGraph.read(
                data,
                split=fractions,
                seed=self.cut_seed,
                allow_unseen=self.allow_unseen,
                every_relation=every_relation or model is not None,
                options=options,
            )
            kg = self.changed(kg)
            if model is not None:
                from pathe.data.schema import align

                unknown: Unknown = "drop" if self.on_error == "skip" else "raise"
                kg = align(kg, model.relations, self.relation_names, unknown)
        _report(kg.report)
        if kg.inference is not None:
            _report(kg.inference.report, "inference graph: ")
        _warn_of_empty_splits(kg, fractions or ())
        return kg

    def parsed(self, data: str) -> tuple[tuple[float, float, float] | None, ReadOptions]:
        """Returns the fractions of a split and the options of the readers; checks them and DATA."""
        if self.allow_unseen and self.cut is None:
            raise DataError("--allow-unseen is for splitting one file: add --split 0.8,0.1,0.1.")
        shares = "fractions, train,valid,test, such as 0.8,0.1,0.1"
        fractions = _three(self.cut, "--split", shares, float)
        wanted = _three(self.columns or None, "--columns", "values, head,relation,tail", str.strip)
        from pathe.data.columns import ReadOptions, check_fractions, existing_path

        if fractions is not None:
            check_fractions(fractions)
        existing_path(data)  # report what is plainly wrong before the slow imports
        options = ReadOptions(
            wanted,
            self.header,
            self.delimiter,
            self.on_error,
            self.language,
            _prefixes(self.prefix or []),
            self.base_iri,
            self.sparql_query,
        )
        return fractions, options

    def changed(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        """Returns the graph with the changes that options ask for."""
        return kg

    @property
    def relation_names(self) -> dict[str, str]:
        """The model's name for each relation that the graph calls differently."""
        return {}


@dataclass(frozen=True)
class ModelFiles(Files):
    """Options that say how to read DATA for a model."""

    relation_map: Path | None = _file_option(
        None,
        "A relation map: a .tsv or .csv of the graph's name and the model's name. Prefix the "
        "model's name with [cyan]^[/] for the inverse relation.",
    )

    @property
    def relation_names(self) -> dict[str, str]:
        """The model's name for each relation in the relation map."""
        from pathe.data.schema import read_relation_map

        return read_relation_map(self.relation_map) if self.relation_map else {}


@dataclass(frozen=True, kw_only=True)
class ModelOnData(ModelFiles):
    """A model, the data to use it on and the device to run on."""

    panel: ClassVar[str] = MODEL_AND_DATA
    model: AnyModel = None
    data: str | None = option(
        None,
        "The graph: same kinds of DATA as for train. [red]\\[required][/]",
        metavar="DATA",
        show_default=False,
    )
    device: str = option(
        "auto", "[cyan]auto[/] (a GPU if there is one), [cyan]cpu[/] or [cyan]gpu[/]."
    )

    frontier: int | None = option(
        None,
        "Entities per query that messages pass between, e.g. [cyan]4096[/]; 0: all, which is "
        "exact. Default: all; for models that work on any graph, 4096 on graphs of a million "
        "triples and more.",
        show_default=False,
    )
    add: Path | None = option(
        None,
        "Facts to add to the graph for this command, also about new entities: a file of head, "
        "relation, tail. --data's file stays as it is.",
        metavar="FILE",
    )
    remove: Path | None = option(
        None, "Facts to leave out of the graph for this command, before --add.", metavar="FILE"
    )

    def changed(self, kg: KnowledgeGraph) -> KnowledgeGraph:
        """Returns the graph without the facts of --remove and with those of --add."""
        if self.add is None and self.remove is None:
            return kg
        from pathe.data.changes import with_facts, without_facts
        from pathe.data.columns import ReadOptions

        said, options = [], ReadOptions(on_error=self.on_error, language=self.language)
        if self.remove is not None:
            kg, n = without_facts(kg, self.remove, options)
            said.append(f"{n:,} fact{'s' * (n != 1)} of {self.remove} removed")
        if self.add is not None:
            kg, n = with_facts(kg, self.add, options)
            said.append(f"{n:,} new fact{'s' * (n != 1)} of {self.add} added")
        tell(", ".join(said))
        return kg

    def load(
        self, artifact: Artifact | None = None
    ) -> tuple[Artifact, KnowledgeGraph, torch.device]:
        """Loads the model unless it is given, reads data in its relations, picks the device."""
        from pathe.core.hardware import pick_device
        from pathe.model.artifact import load_model

        model, data = self.places()
        artifact = artifact or load_model(model)
        return artifact, self.read(data, artifact), pick_device(self.device)

    def places(self) -> tuple[Path | None, str]:
        """Returns the model's folder, None for the pre-trained one, and DATA."""
        from pathe.model.artifact import is_model

        model, data = self.model, self.data
        if data is None and model is not None and not is_model(model):
            model, data = None, str(model)  # a graph alone
        if data is None:
            raise PatheError("Give the graph: --data DATA, a file, a folder or a data set's name.")
        return model, data

    def tell_frontier(self, artifact: Artifact, kg: KnowledgeGraph) -> None:
        """Says so if the size of the graph alone decides that scores aren't exact."""
        from pathe.model.frontier import frontier_size

        most = frontier_size(self.frontier, len(kg.train), kg.n_entities)
        if self.frontier is None and most and artifact.config.relation_vectors != "table":
            tell(
                f"The graph is large: messages pass between the {most:,} entities that matter most "
                "to a query. --frontier changes their number; 0 is exact."
            )

    def predictor(self, artifact: Artifact | None = None) -> Predictor:
        """Returns a predictor for the model on the data; encodes nothing yet."""
        artifact, kg, device = self.load(artifact)
        from pathe.predict.predictor import Predictor

        p = Predictor(artifact, kg, device=device, frontier=self.frontier)
        self.tell_frontier(artifact, kg)
        p.relation_map = self.relation_names  # for queries in the graph's own names
        return p


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Expands each parameter that is an option group into the group's fields.

    A group is a frozen dataclass of fields declared by `option` or by `Annotated[...]`. Typer sees
    them as options of the command; the command receives an instance of the group.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, type] = {}
    shown: list[inspect.Parameter] = []
    for name, own in inspect.signature(command).parameters.items():
        if not is_dataclass(hints[name]):
            shown.append(own.replace(annotation=hints[name]))
            continue
        groups[name] = hints[name]
        types = typing.get_type_hints(groups[name], include_extras=True)
        panel = getattr(groups[name], "panel", None)
        for f in fields(groups[name]):
            default = own.empty if f.default is MISSING else f.metadata.get("option", f.default)
            default, kind = _in_panel(default, panel), types[f.name]
            if typing.get_origin(kind) is Annotated:
                placed: Any = tuple(_in_panel(part, panel) for part in typing.get_args(kind))
                kind = Annotated[placed]
            shown.append(own.replace(name=f.name, default=default, annotation=kind))

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in fields(group)})
        command(**given)

    shown = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in shown]
    # Options for reading files come last on the help page: few commands need them.
    shown.sort(key=lambda p: getattr(p.default, "rich_help_panel", None) == FILES)
    wrapper.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in shown} | {"return": None}
    return wrapper


def _in_panel(declared: T, panel: str | None) -> T:
    """Returns an option with its group's panel of the help page, unless it has its own."""
    if panel is None or not isinstance(declared, OptionInfo) or declared.rich_help_panel:
        return declared
    placed = copy(declared)
    placed.rich_help_panel = panel
    return placed


def read_settings(assignments: list[str] | None) -> dict[str, Any]:
    """Reads the words of --set, and tells the user about settings that were renamed."""
    from pathe.core.config import read_overrides

    return read_overrides(assignments or [], tell)


def command_line() -> str:
    """Returns the command that was given, for results."""
    return shlex.join(["pathe", *sys.argv[1:]])


def _three(
    text: str | None, name: str, meaning: str, read: Callable[[str], T]
) -> tuple[T, T, T] | None:
    """Reads three values separated by commas; None if the option isn't given."""
    if text is None:
        return None
    try:
        first, second, third = map(read, text.split(","))
    except ValueError:
        raise DataError(f"{name} takes three {meaning}; got {text!r}.") from None
    return first, second, third


def _prefixes(assignments: list[str]) -> tuple[tuple[str, str], ...]:
    """Reads the words of --prefix."""
    pairs = [word.partition("=") for word in assignments]
    for word, (prefix, _, iri) in zip(assignments, pairs, strict=True):
        if ":" in prefix.removesuffix(":") or ":" not in iri:
            raise DataError(f"--prefix: expected prefix=IRI, as ex=http://x.org/; got {word!r}.")
    return tuple((prefix.removesuffix(":"), iri.strip("<>")) for prefix, _, iri in pairs)


def _warn_of_empty_splits(kg: KnowledgeGraph, fractions: Iterable[float]) -> None:
    sizes = {split: len(triples) for split, triples in kg.splits.items()}
    empty = [s for s, f in zip(sizes, fractions, strict=False) if f and not sizes[s]]
    if empty:
        found = ", ".join(f"{split} {n:,}" for split, n in sizes.items())
        err.print(
            f"[yellow]warning:[/] the split left {' and '.join(empty)} empty ({found} triples)."
            " Use larger fractions, or add --allow-unseen to allow entities that train lacks.",
            soft_wrap=True,
        )


def _report(report: ReadReport, whose: str = "") -> None:
    """Prints on stderr what the reader removed or skipped."""
    counts = (
        (report.duplicates, "duplicate triple", "removed"),
        (report.n_labels, "label", "read"),
        (report.literals, "triple", "with a literal left out"),
        (report.quoted, "triple", "about triples (RDF-star) left out"),
        (report.skipped, "bad line", f"skipped; the first: {report.first_skipped}"),
        (report.unknown_relations, "triple", "with an unknown relation dropped"),
    )
    lines = [f"{n:,} {what}{'s' * (n > 1)} {done}" for n, what, done in counts if n]
    for line in [*lines, *report.notes]:
        err.print(f"{whose}{line}", style="dim", markup=False, soft_wrap=True)
