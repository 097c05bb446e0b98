"""Commands about facts: missing, classify, check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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

    def choose(self, p: Predictor) -> FactsOf:
        """Returns which facts, for `Predictor.missing` and `Predictor.check`."""
        if self.types is not None and self.type_relation is not None:
            raise PatheError("Give --types or --type-relation, not both.")
        if self.type_relation is not None:
            p.use_types(self.type_relation)
        if self.types is not None:
            from pathe.data.row_files import read_types

            p.use_types(read_types(self.types))
        return {"relations": self.relation, "entities": self.entity, "type": self.type}


@dataclass(frozen=True)
class MissingOptions(Of):
    """Which missing facts to look for, and how hard."""

    min_probability: float = option(
        0.0, "Only facts of at least this probability, e.g. 0.5.", rich_help_panel=QUERY
    )
    queries: int | None = option(
        None,
        "How many queries to ask. Default: 10,000; 200,000 for models without bridges.",
        rich_help_panel=QUERY,
    )
    reasons: bool | None = option(
        None,
        f"Show the main reason for each fact. Default: if -k is at most {SHOWN_REASONS}.",
        "--reasons/--no-reasons",
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
def missing(source: ModelOnData, options: MissingOptions, output: TripleOutput, k: K = 20) -> None:
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
    p = source.predictor()
    options.apply(p)
    reasons = k <= SHOWN_REASONS if options.reasons is None else options.reasons
    with progress_bar("searching") as progress:
        found = p.missing(
            k,
            min_probability=options.min_probability,
            queries=options.queries,
            reasons=reasons,
            progress=progress,
            **options.choose(p),
        )
    rows = [vars(row) for row in found]
    output.show(rows, show.missing(p.names.shown(found)), MissingTriple, names=p.names)
    if options.reasons is None and not reasons:
        tell(f"no reasons, as -k is above {SHOWN_REASONS}: --reasons adds them, which takes longer")


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
        found = p.classify(facts, negatives=false, progress=progress)
    output.show(
        [vars(row) for row in found], show.classified(p.names.shown(found)), ClassifiedTriple
    )


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
) -> None:
    """List the facts of a graph that the rest of the graph speaks against.

    Each fact is judged without itself. A low probability doesn't make it wrong: it is unlike what
    the graph would suggest. The last column shows what it would suggest.

    Example: [cyan]pathe check examples/films.csv --relation nationality -k 10[/]
    """
    output.check()
    if sample is not None and sample < 1:
        raise PatheError(f"--sample must be at least 1; got {sample}.")
    p = source.predictor()
    n = p.prepared.graph.n_triples if sample is None else sample
    if n > 20_000 and not of.relation and not of.entity and not of.type:
        tell(f"judging {n:,} facts may take long; --sample 5000 judges a part of them")
    with progress_bar("judging") as progress:
        found = p.check(k, sample=sample, progress=progress, **of.choose(p))
    rows = [vars(row) for row in found]
    output.show(rows, show.suspicious(p.names.shown(found)), SuspiciousFact, names=p.names)


def _facts(p: Predictor, path: Path, skip: bool) -> list[Any]:
    """Returns the triples of a file; unknown names are skipped, or an error with the line."""
    from pathe.cli.use import with_known_names
    from pathe.data.row_files import read_facts

    facts = with_known_names(p, read_facts(path), path, skip, "triple", "triples")
    if not facts:
        raise PatheError(f"{path} has no triples to judge.")
    return facts
