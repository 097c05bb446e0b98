"""Commands that use a model: predict, similar, rules, missing, embed, schema, push, pull."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pathe.answers import PARTS, fill, open_part
from pathe.errors import PatheError, UnknownNameError
from pathe.options import (
    DataOption,
    Device,
    Json,
    Model,
    ReadData,
    RelationMap,
    err,
    print_json,
    print_parts,
    progress_bar,
    reads_data,
    rows_out,
    tell,
)

if TYPE_CHECKING:
    from pathe.answers import Answer, Question
    from pathe.predict import Predictor

K = Annotated[int, typer.Option("-k", min=1, help="How many.")]
Known = Annotated[
    bool, typer.Option("--known", help="Show answers that the data holds already, too.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Write rows to a [cyan].parquet[/], [cyan].jsonl[/], .tsv or .csv."),
]
ANSWER_ROW = {
    "head": str, "relation": str, "tail": str, "asked": str,
    "rank": int, "score": float, "probability": float, "known": bool,
}  # fmt: skip


MISSING_ROW = {
    "rank": int, "head": str, "relation": str, "tail": str, "score": float, "plausibility": float,
}  # fmt: skip


@reads_data
def predict(
    read: ReadData,
    model: Model,
    data: DataOption,
    head: Annotated[str | None, typer.Option(help="The head entity, if it is known.")] = None,
    relation: Annotated[str | None, typer.Option(help="The relation, if it is known.")] = None,
    tail: Annotated[str | None, typer.Option(help="The tail entity, if it is known.")] = None,
    k: K = 10,
    known: Known = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the paths behind each answer.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the paths behind the best answer, e.g. to [cyan]why.svg[/]."),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="Many questions: a .tsv or .csv of head, relation, tail with [cyan]?[/] for what "
            "is asked."
        ),
    ] = None,
    out: Out = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Answer a question: give two of --head, --relation and --tail, the third is predicted.

    With all three the triple is judged. [cyan]--queries FILE[/] answers many. Probabilities are
    given that one of the answers is right; they are fitted on validation triples in training.
    """
    given = (head, relation, tail)
    if queries is not None:
        if any(given) or explain or plot:
            raise PatheError(
                "--queries is for many questions: leave --head, --relation, --tail, --explain and "
                "--plot out."
            )
        _bulk(read, model, data, queries, k, known, out, device, as_json)
        return
    if given.count(None) > 1:
        raise PatheError(
            "Give two of --head, --relation and --tail to ask for the third, all three to judge "
            "a triple, or --queries FILE."
        )
    if out:
        raise PatheError("--out is for --queries FILE; use --json here.")
    if plot:
        from pathe.plots import check_picture

        check_picture(plot)
    p = _open(read, model, data, device)
    asks = None in given
    asked = open_part(given) if asks else None
    with err.status("describing entities ..."):
        found = next(p.answer([given], k, filter_known=not known)) if asks else []
        facts = [fill(given, a.name) for a in found] if asks else [fill(given, "")]
        judged = [] if asks else p.score(facts)
        wanted = facts if explain else facts[:1] if plot else []
        reasons = [p.explain(*fact, asked) for fact in wanted]
    if plot and reasons:
        from pathe.plot_reasons import plot_evidence

        plot_evidence(reasons[0], plot)
        tell(f"drawn to {plot}")
    reasons = reasons if explain else []
    if as_json:
        rows: list[dict[str, Any]] = [vars(row) for row in found or judged]
        for row, reason in zip(rows, reasons, strict=False):
            row["paths"] = reason.as_dict()["paths"]
        print_json(rows if asks else rows[0])
        return
    from pathe import show

    if asks:
        held = 0 if known else len(p.known_answers(given))
        print_parts(show.answers(given, found, reasons, held))
    else:
        print_parts(show.judged(judged[0], reasons))


def _open(read: ReadData, model: Path, data: str, device: str) -> Predictor:
    """The model on the data, its entities not yet encoded."""
    from pathe.artifact import load_model
    from pathe.machine import pick_device

    artifact = load_model(model)
    kg = read(data, artifact)
    from pathe.predict import Predictor

    p = Predictor(artifact, kg, device=pick_device(device))
    p.relation_map = read.relation_names  # for who asks in the graph's words
    return p


def _bulk(
    read: ReadData,
    model: Path,
    data: str,
    queries: Path,
    k: int,
    known: bool,
    out: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """Answers to a file of questions, to a file or to stdout."""
    from pathe.tables import check_rows_file, read_questions

    if out:
        check_rows_file(out)
    questions = read_questions(queries)
    p = _open(read, model, data, device)
    answerable = []
    for number, question in questions:  # before the work, and with the line
        try:
            p.check_names(question)
            answerable.append(question)
        except UnknownNameError as error:
            if not read.skips:
                raise UnknownNameError(f"{queries}, line {number}: {error}") from None
    if len(answerable) < len(questions):
        n_skipped = len(questions) - len(answerable)
        tell(f"{n_skipped:,} question{'s' * (n_skipped > 1)} with unknown names skipped")
    with rows_out(out, ANSWER_ROW, as_json) as write, progress_bar("answering") as progress:
        answers = p.answer(answerable, k, filter_known=not known)
        for n, (question, found) in enumerate(zip(answerable, answers, strict=True), 1):
            write([_answer_row(question, answer) for answer in found])
            if n % 100 == 0 or n == len(answerable):
                progress(n, len(answerable))
    if out:
        tell(f"wrote {out}: answers to {len(answerable):,} questions")


def _answer_row(question: Question, answer: Answer) -> dict[str, Any]:
    """The whole triple, which part of it was asked, and how good an answer it is."""
    rest = {key: value for key, value in vars(answer).items() if key != "name"}
    names = dict(zip(PARTS, fill(question, answer.name), strict=True))
    return names | {"asked": open_part(question)} | rest


@reads_data
def similar(
    read: ReadData,
    model: Model,
    data: DataOption,
    entity: Annotated[str, typer.Option(help="The entity to start from.", show_default=False)],
    k: K = 10,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Find the entities that the model describes most alike: the nearest by vector."""
    p = _open(read, model, data, device)
    with err.status("describing entities ..."):
        found = p.similar(entity, k)
    if as_json:
        print_json([vars(row) for row in found])
    else:
        from pathe import show

        print_parts(show.neighbours(entity, found))


@reads_data
def rules(
    read: ReadData,
    model: Model,
    data: DataOption,
    relation: Annotated[
        list[str] | None, typer.Option(help="Only this relation; may be given again.")
    ] = None,
    k: K = 5,
    facts: Annotated[
        int, typer.Option(min=1, help="Facts of each relation to look at, as if missing.")
    ] = 32,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """List, for each relation, the paths between two entities that the model trusts most.

    Some facts of the relation are looked at as if they were missing; trust is a path's share of
    what all paths brought to their scores. Counted in the graph: the pairs a path connects, those
    of them that have the relation (support), and their share (confidence). Needs a model that was
    trained with [cyan]bridge=paths[/].
    """
    p = _open(read, model, data, device)
    found = []
    with err.status("looking at facts ...") as status:
        for rule in p.rules(relation, k, facts=facts):
            status.update(f"looking at facts of {rule.relation} ...")
            found.append(rule)
    if as_json:
        print_json([vars(rule) for rule in found])
    else:
        from pathe import show

        print_parts(show.rules(found))


@reads_data
def missing(
    read: ReadData,
    model: Model,
    data: DataOption,
    k: K = 100,
    relation: Annotated[
        list[str] | None, typer.Option(help="Only this relation; may be given again.")
    ] = None,
    out: Out = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """List the most plausible triples that the graph lacks, best first.

    Every head and tail that a relation has in the graph is tried with every other, a chunk at a
    time; about an entity without any fact of a relation ask [cyan]pathe predict[/]. Plausibility is
    the geometric mean of two probabilities: of the tail among all tails of head and relation, and
    of the head among all heads of relation and tail.
    """
    from pathe.tables import check_rows_file

    if out:
        check_rows_file(out)
    p = _open(read, model, data, device)
    with progress_bar("scoring") as progress:
        found = list(p.missing(k, relations=relation, progress=progress))
    rows = [vars(row) for row in found]
    if out or as_json:
        with rows_out(out, MISSING_ROW, as_json) as write:
            write(rows)
        if out:
            tell(f"wrote {out}: {len(rows):,} triples")
    else:
        from pathe import show

        print_parts(show.missing(found))


@reads_data
def embed(
    read: ReadData,
    model: Model,
    data: DataOption,
    out: Annotated[
        Path,
        typer.Option(
            help="[cyan].parquet[/] (entity, vector), [cyan].npy[/] (names in a .names.txt beside "
            "it), [cyan].tsv[/], or [cyan].vec[/] (word2vec's text format; spaces in names become "
            "_).",
            show_default=False,
        ),
    ],
    device: Device = "auto",
) -> None:
    """Write a vector for every entity of a graph: of training or not."""
    from pathe.tables import check_vectors_file, write_vectors

    check_vectors_file(out)
    p = _open(read, model, data, device)
    with progress_bar("describing entities") as progress:
        p.warm(progress)
    vectors = p.embed()
    names = list(p.entity_names.vocabulary)
    for path in write_vectors(out, names, vectors):
        tell(f"wrote {path}: {len(vectors):,} entities, {vectors.shape[1]} numbers each")


@reads_data
def schema(
    read: ReadData,
    model: Model,
    data: DataOption,
    relation_map: RelationMap = None,
    as_json: Json = False,
) -> None:
    """Report how much of a graph's schema a model knows: which relations, how many triples."""
    from pathe.artifact import load_model
    from pathe.schema import coverage, read_relation_map

    artifact = load_model(model)
    names = read_relation_map(relation_map) if relation_map else None
    kg = read(data, every_relation=True)
    found = coverage(kg, artifact.relations, names)
    if as_json:
        print_json(found.as_dict())
    else:
        from pathe import show

        print_parts(show.coverage(kg.name, found))


def push(
    model: Model,
    repository: Annotated[
        str, typer.Argument(metavar="OWNER/NAME", help="The repository.", show_default=False)
    ],
    private: Annotated[
        bool, typer.Option("--private", help="Make a new repository private.")
    ] = False,
) -> None:
    """Share a model: upload its folder to a hub repository (needs [cyan]pathe\\[hub][/])."""
    from pathe.hub import push_model

    tell(f"pushed to {push_model(model, repository, private=private)}")


def pull(
    repository: Annotated[
        str, typer.Argument(metavar="OWNER/NAME", help="The repository.", show_default=False)
    ],
    folder: Annotated[
        Path | None, typer.Argument(help="A new folder for the model. Default: NAME.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="A branch, tag or commit. Default: the latest.")
    ] = None,
) -> None:
    """Fetch a shared model from a hub repository, and check it."""
    from pathe.hub import pull_model

    tell(f"pulled to {pull_model(repository, folder, revision=revision)}")
