"""Commands that use a model: predict, similar, rules, embed, schema, push, pull."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from pathe.cli.candidates import CandidateOptions, QueryCandidateOptions
from pathe.cli.cluster import ClusterOptions
from pathe.cli.options import (
    OUTPUT,
    QUERY,
    DataOption,
    K,
    Model,
    ModelFiles,
    ModelOnData,
    OnlyRelations,
    Output,
    TripleOutput,
    grouped,
    option,
)
from pathe.cli.output import err, progress_bar, tell
from pathe.core.errors import PatheError, UnknownNameError
from pathe.core.types import fill, open_part
from pathe.predict.results import ANSWER_ROW, Neighbour, Rule, ScoredTriple, answer_rows
from pathe.reports import tables as show
from pathe.reports.plots import check_picture

if TYPE_CHECKING:
    from pathe.core.types import Query
    from pathe.predict.predictor import Predictor


HUB = "Hub"
Repository = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The hub repository.")]
EVIDENCE = ("patterns", "rest", "paths", "bridges", "bridged", "alone")


@dataclass(frozen=True)
class PredictOptions:
    """One query, one triple or a file of queries, and what to show of the answers."""

    panel: ClassVar[str] = QUERY
    head: str | None = option(None, "The head entity.")
    relation: str | None = option(None, "The relation.")
    tail: str | None = option(None, "The tail entity.")
    queries: Path | None = option(
        None,
        "Many queries: a .tsv or .csv of head, relation, tail with [cyan]?[/] for the part to "
        "predict.",
    )
    k: K = 10
    known: bool = option(
        False,
        "Also show answers that the data already contains. Each is scored with its own fact in the "
        "graph.",
        "--known",
    )
    explain: bool = option(
        False, "Show the reasons for each answer: paths, grouped by their relations.", "--explain"
    )
    paths: bool = option(False, "Show the reasons path by path.", "--paths")
    plot: Path | None = option(
        None, "Draw the paths behind the best answer, e.g. to [cyan]why.svg[/]."
    )

    @property
    def given(self) -> Query:
        """The query; no part of it is None if a triple is to be scored."""
        return self.head, self.relation, self.tail

    @property
    def reasons(self) -> bool:
        """Whether to show the reasons for each answer."""
        return self.explain or self.paths


@grouped
def predict(
    source: ModelOnData,
    options: PredictOptions,
    candidates: QueryCandidateOptions,
    output: TripleOutput,
    cluster: ClusterOptions,
) -> None:
    """Answer a query: give two of --head, --relation and --tail; the third is predicted.

    With all three, the triple is scored. [cyan]--queries FILE[/] answers many queries.
    Probabilities assume that one of the ranked candidates is correct; they are calibrated on
    validation triples (of other graphs, for the pre-trained model).

    Example: [cyan]pathe predict --data examples/europe.csv --head Paris --relation "lies on"[/]
    """
    output.check()
    cluster.check()
    if options.queries is not None:
        if any(options.given) or options.reasons or options.plot:
            others = "--head, --relation, --tail, --explain, --paths and --plot"
            raise PatheError(f"--queries is for many queries: leave {others} out.")
        if cluster.given:
            _answer_in_parts(source, options, candidates, output, cluster)
        else:
            _answer_file(source, options.queries, options, candidates, output)
    elif cluster.given:
        raise PatheError("--cluster and --parts are for many queries: add --queries FILE.")
    elif options.given.count(None) > 1:
        raise PatheError(
            "Give two of --head, --relation and --tail to predict the third, all three to score "
            "a triple, or --queries FILE."
        )
    elif named := candidates.useless(options.given):
        raise PatheError(f"{named} filter entities, but this query has no head or tail to predict.")
    else:
        _answer_one(source, options, candidates, output)


def _answer_one(
    source: ModelOnData,
    options: PredictOptions,
    candidates: QueryCandidateOptions,
    output: Output,
) -> None:
    """Answers a query or scores a triple; explains and draws it if asked to."""
    given, plot, filter_known = options.given, options.plot, not options.known
    if plot:
        check_picture(plot)
    p = source.predictor()
    given = p.exact(given)
    part = open_part(given) if None in given else None
    with err.status("encoding entities ..."):
        which = candidates.choose(p, source.on_error == "skip")
        answers = p.answer([given] if part else [], options.k, filter_known=filter_known, **which)
        found = next(answers, None)
        facts = [fill(given, a.name) for a in found] if found is not None else [fill(given, "")]
        scored = [] if part else p.score(facts)
        explained = facts if options.reasons else facts[:1] if plot else []
        reasons = [p.explain(*fact, part) for fact in explained]
        n_known = len(p.known_answers(given)) if part and filter_known else 0
    if plot and reasons:
        from pathe.reports.evidence_plot import plot_evidence

        lacking = plot_evidence(p.names.shown(reasons[0]), plot)
        tell(f"drawn to {plot}")
        if lacking:
            tell(f"no installed font has {lacking}: install one, or draw to .svg")
    reasons = reasons if options.reasons else []
    rows = [dict(vars(row)) for row in scored]
    if found is not None:
        rows = [
            {"name": answer.name} | row
            for answer, row in zip(found, answer_rows(given, found), strict=True)
        ]
    for row, reason in zip(rows, reasons, strict=False):
        evidence = reason.as_dict()
        row.update({key: evidence[key] for key in EVIDENCE})
    given, found, scored, reasons = p.names.shown((given, found, scored, reasons))
    if found is not None:
        shown = show.answers(given, found, reasons, n_known, options.paths)
        if not rows and (output.as_json or output.as_jsonl or output.out):  # no row can say it
            tell("\n".join([show.NO_ANSWERS, *found.notes]))
        output.show(rows, shown, ANSWER_ROW, names=p.names)
    else:
        shown = show.judged(scored[0], reasons, options.paths)
        output.show(rows[0], shown, ScoredTriple, rows, p.names)


def _answer_file(
    source: ModelOnData,
    path: Path,
    options: PredictOptions,
    candidates: QueryCandidateOptions,
    output: Output,
) -> None:
    """Writes the answers to a file of queries, to a file or to stdout."""
    from pathe.data.row_files import read_queries

    read = read_queries(path)
    p = source.predictor()
    queries = with_known_names(p, read, path, source.on_error == "skip")
    which = candidates.choose(p, source.on_error == "skip")
    with output.rows(ANSWER_ROW, p.names) as write, progress_bar("answering") as progress:
        found = p.answer(queries, options.k, filter_known=not options.known, **which)
        for n, (query, best) in enumerate(zip(queries, found, strict=True), 1):
            write(answer_rows(query, best))
            if n % 100 == 0 or n == len(queries):
                progress(n, len(queries))
    if output.out:
        tell(f"wrote {output.out}: answers to {len(queries):,} queries")


def _answer_in_parts(
    source: ModelOnData,
    options: PredictOptions,
    candidates: QueryCandidateOptions,
    output: Output,
    cluster: ClusterOptions,
) -> None:
    """Writes the answers to a file of queries, computed in parts."""
    from pathe.cluster.graphs import source_of
    from pathe.cluster.work import answer_job
    from pathe.data.row_files import read_queries

    assert options.queries is not None
    read = read_queries(options.queries)
    p = source.predictor()
    queries = with_known_names(p, read, options.queries, source.on_error == "skip")
    which = candidates.choose(p, source.on_error == "skip")
    given = source_of(p, source.device)
    job = answer_job(given, queries, options.k, filter_known=not options.known, which=which)
    with cluster.running("predict", output.out) as run:
        tables = run(job)
        with output.rows(ANSWER_ROW, p.names) as write:
            for table in tables:
                write(table.to_pylist())
    if output.out:
        tell(f"wrote {output.out}: answers to {len(queries):,} queries")


def with_known_names(
    p: Predictor,
    read: Sequence[tuple[int, Query]],
    path: Path,
    skip: bool,
    one: str = "query",
    several: str = "queries",
) -> list[Query]:
    """Returns the queries whose names are known; others are skipped, or an error with the line."""
    known = []
    for number, query in read:
        try:
            known.append(p.exact(query))
        except UnknownNameError as error:
            if not skip:
                raise UnknownNameError(f"{path}, line {number}: {error}") from None
    if n_skipped := len(read) - len(known):
        tell(f"{n_skipped:,} {one if n_skipped == 1 else several} with unknown names skipped")
    return known


@grouped
def similar(
    source: ModelOnData,
    entity: Annotated[str, typer.Option(help="The entity to start from.", rich_help_panel=QUERY)],
    candidates: CandidateOptions,
    *,
    k: K = 10,
    output: Output,
) -> None:
    """Find the entities most similar to another one, by the cosine of their vectors.

    The vectors are those that [cyan]pathe embed[/] writes; its help says what they are.

    Example: [cyan]pathe similar --data examples/europe.csv --entity Vienna[/]
    """
    output.check()
    p = source.predictor()
    with err.status("encoding entities ..."):
        entity = p.entity_names.exact(entity)
        found = p.similar(entity, k, **candidates.choose(p, source.on_error == "skip"))
    rows = [vars(row) for row in found]
    output.show(rows, show.neighbours(*p.names.shown((entity, found))), Neighbour)


@grouped
def rules(
    source: ModelOnData,
    *,
    relation: OnlyRelations = None,
    k: K = 5,
    facts: Annotated[
        int,
        typer.Option(
            min=1, help="Triples per relation to hold out and explain.", rich_help_panel=QUERY
        ),
    ] = 32,
    instances: Annotated[
        bool,
        typer.Option(
            "--instances", help="Show some instances of each path.", rich_help_panel=OUTPUT
        ),
    ] = False,
    output: Output,
) -> None:
    """List, for each relation, the paths between two entities that the model trusts most.

    Some triples of the relation are held out and scored; trust is a path's share of what all paths
    add to these scores. The other columns count pairs in the graph: those that the path connects,
    those of them that have the relation (support), and their share (confidence). Works
    with the pre-trained model, models fine-tuned from it, and new models with
    [cyan]bridge=paths[/]. JSON and files have some instances of each path, too.

    Example: [cyan]pathe rules --data examples/europe.csv --relation "member of"[/]
    """
    output.check()
    from pathe.model.artifact import load_model
    from pathe.predict.rules import check_has_rules

    artifact = load_model(source.places()[0])
    check_has_rules(artifact.config)  # before a graph is read
    p = source.predictor(artifact)
    found = []
    with err.status("explaining triples ...") as status:
        for rule in p.rules(relation, k, facts=facts):
            status.update(f"explaining triples of {p.names.show(rule.relation)} ...")
            found.append(rule)
    output.show([vars(rule) for rule in found], show.rules(p.names.shown(found), instances), Rule)


@grouped
def embed(
    source: ModelOnData,
    out: Annotated[
        Path,
        typer.Option(
            help="[cyan].parquet[/] (entity, vector), [cyan].npy[/] (names in a .names.txt beside "
            "it), [cyan].tsv[/], or [cyan].vec[/] (word2vec's text format; spaces in names become "
            "_).",
            rich_help_panel=OUTPUT,
        ),
    ],
    cluster: ClusterOptions,
) -> None:
    """Write a vector for every entity of a graph, seen in training or not.

    New models ([cyan]--set init=none[/]) learn to encode entities. The pre-trained model and models
    fine-tuned from it have no entity vectors. For these, vectors are computed from the graph alone:
    from each entity's relations and neighbours, and those of its neighbours. They are not learned
    and do not depend on the model.

    Example: [cyan]pathe embed --data examples/europe.csv --out vectors.parquet[/]
    """
    from pathe.data.row_files import VECTOR_FORMATS, check_file, write_vectors

    check_file(out, VECTOR_FORMATS)
    cluster.check()
    p = source.predictor()
    names = list(p.entity_names.vocabulary)
    if cluster.given:
        from pathe.cluster.graphs import source_of
        from pathe.cluster.work import embedded

        with cluster.running("embed", out) as run:
            vectors = embedded(source_of(p, source.device), run)
            written = write_vectors(out, names, vectors)
    else:
        with progress_bar("encoding entities") as progress:
            vectors = p.embed(progress=progress)
        written = write_vectors(out, names, vectors)
    for path in written:
        what = f"{vectors.shape[1]} dimensions" if path == out else "names, one per line"
        tell(f"wrote {path}: {len(vectors):,} entities, {what}")
    if out.suffix.lower() == ".vec" and (n := sum(" " in name for name in names)):
        tell(f"spaces became _ in {n:,} of {len(names):,} names: .vec allows no spaces")
    if n := len(vectors) - int(vectors.any(1).sum()):
        tell(f"zeros for {n:,} of {len(names):,} entities: they have no training triples")


@grouped
def schema(model: Model, data: DataOption, files: ModelFiles, output: Output) -> None:
    """Report how much of a graph's schema a model knows: which relations, how many triples.

    Example: [cyan]pathe schema models/umls --data umls[/]
    """
    output.check()
    from pathe.data.schema import Match, coverage
    from pathe.model.artifact import load_model

    artifact, names = load_model(model), files.relation_names or None
    if artifact.relations is None:
        raise PatheError(
            "This model has no relation table and works with any relations: there is no schema to "
            "compare."
        )
    kg = files.read(data, every_relation=True)
    found = coverage(kg, artifact.relations, names)
    rows = [vars(match) for match in found.matches]
    output.show(found.as_dict(), show.coverage(kg.name, kg.names.shown(found)), Match, rows)


def push(
    model: Model,
    repository: Repository,
    private: Annotated[
        bool,
        typer.Option("--private", help="Make a new repository private.", rich_help_panel=HUB),
    ] = False,
) -> None:
    """Upload a model folder to a hub repository (needs [cyan]pathe\\[hub][/]).

    Example: [cyan]pathe push runs/umls-link me/umls-link --private[/]
    """
    from pathe.model.hub import push_model

    tell(f"pushed to {push_model(model, repository, private=private)}")


def pull(
    repository: Repository,
    folder: Annotated[
        Path | None, typer.Argument(help="A new folder for the model. Default: NAME.")
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(help="A branch, tag or commit. Default: the latest.", rich_help_panel=HUB),
    ] = None,
) -> None:
    """Download a model from a hub repository and check it.

    Example: [cyan]pathe pull me/umls-link[/]
    """
    from pathe.model.hub import pull_model

    tell(f"pulled to {pull_model(repository, folder, revision=revision)}")
