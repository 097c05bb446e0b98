"""Commands about facts: missing, classify, check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from pathe.cli.candidates import EntityOptions
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
class _OfRelations:
    """The first options of `FactFilter`."""

    relation: OnlyRelations = None
    entity: list[str] | None = option(None, "Only facts of this entity; repeatable.")


@dataclass(frozen=True)
class FactFilter(EntityOptions, _OfRelations):
    """Which facts: by relation, and by one of their entities."""

    panel: ClassVar[str] = QUERY

    @property
    def given(self) -> bool:
        """Whether the facts are limited."""
        return any(x is not None for x in (self.relation, self.entity, self.type, self.among))

    def facts(self, p: Predictor, skip: bool = False) -> FactsOf:
        """Returns which facts, for `Predictor.missing` and `Predictor.check`.

        `skip` skips unknown names in files.
        """
        which = self.choose(p, skip)
        entities, among = self.entity, which.get("among")
        if among is not None:
            entities = [*(entities or ()), *among]
        return {
            "relations": self.relation, "entities": entities,
            "type": which.get("type"), "exclude": which.get("exclude"),
        }  # fmt: skip


@dataclass(frozen=True)
class FunctionalOptions:
    """Which relations have one tail per head or one head per tail, where it isn't learned."""

    panel: ClassVar[str] = QUERY
    one_tail: list[str] | None = option(
        None, "A head of this relation has one tail at most; repeatable."
    )
    one_head: list[str] | None = option(
        None, "A tail of this relation has one head at most; repeatable."
    )
    many: list[str] | None = option(
        None,
        "Allow several tails per head and heads per tail of this relation; repeatable. [cyan]pathe "
        "analyze[/] shows what was learned from the graph.",
    )

    def apply(self, p: Predictor) -> None:
        """Tells the predictor which relations are functional."""
        many = dict.fromkeys(self.many or (), False)
        p.use_functional(
            many | dict.fromkeys(self.one_tail or (), True),
            many | dict.fromkeys(self.one_head or (), True),
        )


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
class MissingOptions(FactFilter):
    """Which missing facts to look for, and how hard."""

    min_probability: float = option(0.0, "Only facts of at least this probability, e.g. 0.5.")
    n_queries: int | None = option(
        None,
        "How many queries to ask. Default: 25 per fact, from 1,000 to 10,000; 200,000 for models "
        "without bridges.",
    )
    queries: int | None = option(None, "The old name of --n-queries.", hidden=True)

    def check(self) -> None:
        """Raises an error for numbers out of bounds."""
        if not 0 <= self.min_probability <= 1:
            raise PatheError(f"--min-probability is from 0 to 1; got {self.min_probability}.")
        if self.asked is not None and self.asked < 1:
            raise PatheError(f"--n-queries must be at least 1; got {self.asked}.")
        if self.queries is not None:
            tell("--queries is now --n-queries: --queries FILE of predict means something else")

    @property
    def asked(self) -> int | None:
        """How many queries to ask; None for the default."""
        return self.queries if self.n_queries is None else self.n_queries


@grouped
def missing(
    source: ModelOnData,
    options: MissingOptions,
    functional: FunctionalOptions,
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
    options.check()
    cluster.check()
    p = source.predictor()
    functional.apply(p)
    how: dict[str, Any] = {**options.facts(p, source.on_error == "skip")}
    how |= {"min_probability": options.min_probability, "queries": options.asked}
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
            "ignoring --cluster and --parts: on a graph of this size, queries are scored in "
            "batches that can't be split"
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
    functional: FunctionalOptions,
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
    relation where there are enough examples. Triples of the graph are scored as if they were
    missing.

    Example: [cyan]pathe classify examples/films.csv --triples examples/film-claims.csv[/]
    """
    output.check()
    p = source.predictor()
    functional.apply(p)
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
    of: FactFilter,
    functional: FunctionalOptions,
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
    """List the facts that look wrong, given the rest of the graph.

    Each fact is scored as if it were missing. A low probability doesn't make it wrong: it is unlike
    what the graph would suggest. The table shows which tails are more probable, the main reason for
    the first of them, and the main reason for the fact itself.

    Example: [cyan]pathe check examples/films.csv --relation nationality -k 10[/]
    """
    output.check()
    if sample is not None and sample < 1:
        raise PatheError(f"--sample must be at least 1; got {sample}.")
    p = source.predictor()
    functional.apply(p)
    n = p.prepared.graph.n_triples if sample is None else sample
    if n > 20_000 and not of.given:
        tell(f"judging {n:,} facts may take a while; --sample 5000 checks a random sample")
    with progress_bar("judging") as progress:
        with_reasons = _with_reasons(reasons, k)
        which = of.facts(p, source.on_error == "skip")
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
