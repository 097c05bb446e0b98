"""Commands about facts: missing, classify, check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pathe.cli.candidates import entities_in, excluded
from pathe.cli.cluster import ClusterOptions
from pathe.cli.options import (
    QUERY,
    K,
    ModelOnData,
    OnlyRelations,
    Output,
    TripleOutput,
    grouped,
    option,
)
from pathe.cli.output import progress_bar, tell
from pathe.core.errors import PatheError
from pathe.predict.results import ClassifiedTriple, MissingTriple, SuspiciousFact
from pathe.reports import tables as show

if TYPE_CHECKING:
    from pathe.predict.candidates import FactsOf
    from pathe.predict.predictor import Predictor

SHOWN_REASONS = 25  # rows that get a reason by default


@dataclass(frozen=True)
class Of:
    """Which facts: by relation, by entity, and by the type of an entity."""

    relation: OnlyRelations = None
    entity: list[str] | None = option(
        None, "Only facts of this entity; repeatable.", rich_help_panel=QUERY
    )
    type: str | None = option(
        None, "Only facts of entities of this type, e.g. [cyan]person[/].", rich_help_panel=QUERY
    )
    types: Path | None = option(
        None,
        "The types of entities: a .tsv or .csv of entity and type. Default: from the graph.",
        rich_help_panel=QUERY,
    )

    type_relation: str | None = option(
        None,
        "The relation that gives the types. Default: one such as rdf:type, type or instance of.",
        rich_help_panel=QUERY,
    )

    among: Path | None = option(
        None,
        "Only facts of the entities in this file: one per line, or the first column of a .tsv or "
        ".csv.",
        rich_help_panel=QUERY,
    )
    exclude: list[str] | None = option(
        None,
        "No facts of this entity, or of those in this file; repeatable.",
        rich_help_panel=QUERY,
    )

    @property
    def given(self) -> bool:
        """Whether the facts are limited."""
        return any(x is not None for x in (self.relation, self.entity, self.type, self.among))

    def choose(self, p: Predictor, skip: bool = False) -> FactsOf:
        """Returns which facts, for `Predictor.missing` and `Predictor.check`.

        `skip` skips unknown names in files.
        """
        if self.types is not None and self.type_relation is not None:
            raise PatheError("Give --types or --type-relation, not both.")
        if self.type_relation is not None:
            p.use_types(self.type_relation)
        if self.types is not None:
            from pathe.data.row_files import read_types

            p.use_types(read_types(self.types))
        entities, exclude = self.entity, None
        if self.among is not None:
            entities = [*(self.entity or ()), *entities_in(p, self.among, skip)]
        if self.exclude is not None:
            exclude = [name for one in self.exclude for name in excluded(p, one, skip)]
        return {
            "relations": self.relation, "entities": entities, "type": self.type, "exclude": exclude,
        }  # fmt: skip


Reasons = Annotated[
    bool | None,
    typer.Option(
        "--reasons/--no-reasons",
        help=f"Show the main reason for each fact. Default: for at most {SHOWN_REASONS} facts.",
        rich_help_panel=QUERY,
    ),
]


def _with_reasons(given: bool | None, n: int) -> bool:
    """Returns whether to add reasons to n facts."""
    return n <= SHOWN_REASONS if given is None else given


def _tell_left_out(given: bool | None, n: int) -> None:
    """Says that reasons were left out, unless that was asked for."""
    if given is None and n > SHOWN_REASONS:
        tell(f"no reasons for more than {SHOWN_REASONS} facts: --reasons adds them, but is slower")


@dataclass(frozen=True)
class MissingOptions(Of):
    """Which missing facts to look for, and how hard."""

    min_probability: float = option(
        0.0, "Only facts of at least this probability, e.g. 0.5.", rich_help_panel=QUERY
    )
    queries: int | None = option(
        None,
        "How many queries to ask. Default: 25 per fact, from 1,000 to 10,000; 200,000 for models "
        "without bridges.",
        rich_help_panel=QUERY,
    )
    one_tail: list[str] | None = option(
        None, "A head of this relation has one tail at most; repeatable.", rich_help_panel=QUERY
    )
    one_head: list[str] | None = option(
        None, "A tail of this relation has one head at most; repeatable.", rich_help_panel=QUERY
    )
    many: list[str] | None = option(
        None,
        "Heads and tails of this relation may have several; repeatable. What is learned from the "
        "graph shows in [cyan]pathe analyze[/].",
        rich_help_panel=QUERY,
    )

    def apply(self, p: Predictor) -> None:
        """Tells the predictor which relations are functional."""
        many = dict.fromkeys(self.many or (), False)
        p.use_functional(
            many | dict.fromkeys(self.one_tail or (), True),
            many | dict.fromkeys(self.one_head or (), True),
        )


@grouped
def missing(
    source: ModelOnData,
    options: MissingOptions,
    output: TripleOutput,
    cluster: ClusterOptions,
    k: K = 20,
    reasons: Reasons = None,
) -> None:
    """List the facts that the graph most probably lacks.

    The model is asked about entities that lack a relation which others of their kind have, and
    about relations with several answers. The probability is learned from the graph itself: some of
    its facts are hidden, and the same search has to find them. It assumes that the graph lacks
    about a tenth of its facts.

    Example: [cyan]pathe missing examples/films.csv --relation nationality -k 10[/]
    """
    output.check()
    if not 0 <= options.min_probability <= 1:
        raise PatheError(f"--min-probability is from 0 to 1; got {options.min_probability}.")
    if options.queries is not None and options.queries < 1:
        raise PatheError(f"--queries must be at least 1; got {options.queries}.")
    cluster.check()
    p = source.predictor()
    options.apply(p)
    how: dict[str, Any] = {**options.choose(p, source.on_error == "skip")}
    how |= {"min_probability": options.min_probability, "queries": options.queries}
    how["reasons"] = _with_reasons(reasons, k)
    if cluster.given and _can_split(p):
        from pathe.cluster.graphs import source_of
        from pathe.cluster.search import search_steps

        with cluster.running("missing", output.out) as run:
            steps = search_steps(source_of(p, source.device), run)
            found = p.missing(k, steps=steps, **how)
    else:
        with progress_bar("searching") as progress:
            found = p.missing(k, progress=progress, **how)
    rows = [vars(row) for row in found]
    output.show(rows, show.missing(p.names.shown(found)), MissingTriple, names=p.names)
    _tell_left_out(reasons, k)


def _can_split(p: Predictor) -> bool:
    """Returns whether a search can be done in parts; says so if not."""
    from pathe.cluster.search import can_split

    if not can_split(p.scorer):
        tell(
            "searching in one process, without --cluster and --parts: this model scores several "
            "queries of this graph at once"
        )
        return False
    return True


@grouped
def classify(
    source: ModelOnData,
    triples: Annotated[
        Path,
        typer.Option(
            help="The triples to judge: a .tsv or .csv of head, relation, tail.",
            rich_help_panel=QUERY,
        ),
    ],
    output: Output,
    negatives: Annotated[
        Path | None,
        typer.Option(
            help="Triples known to be false, to learn from, e.g. the valid_negatives of CoDEx.",
            rich_help_panel=QUERY,
        ),
    ] = None,
    reasons: Reasons = None,
) -> None:
    """Tell true triples from false ones, with the probability that each is true.

    What tells them apart is learned from validation triples, or from hidden training triples if
    there are few, and from triples made false by another head or tail. The threshold is learned per
    relation where there are enough examples. Triples of the graph are judged without themselves.

    Example: [cyan]pathe classify examples/films.csv --triples examples/film-claims.csv[/]
    """
    output.check()
    p = source.predictor()
    facts = _facts(p, triples, source.on_error == "skip")
    false = _facts(p, negatives, source.on_error == "skip") if negatives else None
    with progress_bar("judging") as progress:
        with_reasons = _with_reasons(reasons, len(facts))
        found = p.classify(facts, negatives=false, reasons=with_reasons, progress=progress)
    output.show(
        [vars(row) for row in found], show.classified(p.names.shown(found)), ClassifiedTriple
    )
    _tell_left_out(reasons, len(facts))


@grouped
def check(
    source: ModelOnData,
    of: Of,
    output: TripleOutput,
    k: K = 20,
    sample: Annotated[
        int | None,
        typer.Option(
            help="Judge only so many facts, drawn at random. Default: all.", rich_help_panel=QUERY
        ),
    ] = None,
    reasons: Reasons = None,
) -> None:
    """List the facts of a graph that the rest of the graph speaks against.

    Each fact is judged without itself. A low probability doesn't make it wrong: it is unlike what
    the graph would suggest. The table shows which tails are more probable, the main reason for the
    first of them, and the main reason for the fact itself.

    Example: [cyan]pathe check examples/films.csv --relation nationality -k 10[/]
    """
    output.check()
    if sample is not None and sample < 1:
        raise PatheError(f"--sample must be at least 1; got {sample}.")
    p = source.predictor()
    n = p.prepared.graph.n_triples if sample is None else sample
    if n > 20_000 and not of.given:
        tell(f"judging {n:,} facts may take long; --sample 5000 judges a part of them")
    with progress_bar("judging") as progress:
        with_reasons = _with_reasons(reasons, k)
        which = of.choose(p, source.on_error == "skip")
        found = p.check(k, sample=sample, reasons=with_reasons, progress=progress, **which)
    rows = [vars(row) for row in found]
    output.show(rows, show.suspicious(p.names.shown(found)), SuspiciousFact, names=p.names)
    _tell_left_out(reasons, k)


def _facts(p: Predictor, path: Path, skip: bool) -> list[Any]:
    """Returns the triples of a file; unknown names are skipped, or an error with the line."""
    from pathe.cli.use import with_known_names
    from pathe.data.row_files import read_facts

    facts = with_known_names(p, read_facts(path), path, skip, "triple", "triples")
    if not facts:
        raise PatheError(f"{path} has no triples to judge.")
    return facts
