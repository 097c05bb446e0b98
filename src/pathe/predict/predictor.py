"""`Predictor`: answers queries by name, with a model on a graph."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pathe.core.errors import ConfigError, DataError, UnknownNameError
from pathe.core.hardware import as_device
from pathe.core.randomness import keyed, name_keys
from pathe.core.types import (
    PARTS,
    SIDES,
    Fact,
    Part,
    Progress,
    Query,
    Side,
    check_fact,
    check_frontier,
    check_k,
    chunks,
    open_part,
    rows_of,
)
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.names import Names
from pathe.data.schema import RelationMap, Unknown, align
from pathe.data.vocabulary import GrowingVocabulary
from pathe.evaluation.ranking import check_task
from pathe.graph.context_vectors import context_vectors
from pathe.graph.growth import holds
from pathe.graph.held_out import HeldOut
from pathe.graph.prepared import PreparedGraph, prepare
from pathe.model.artifact import Artifact, load_model
from pathe.model.builder import build_scorer, replace_graph
from pathe.model.left_out import TripleScore
from pathe.model.ranks import rank
from pathe.model.scorer import Scorer, VectorScorer
from pathe.model.vectors import nearest
from pathe.predict.candidates import (
    Candidates,
    Choices,
    FactsOf,
    QueryCandidates,
    Ranked,
    TypesOf,
)
from pathe.predict.evidence import bridge_evidence, path_evidence
from pathe.predict.judge import Judge, expected_tails, without_own
from pathe.predict.missing import (
    HERE,
    Learned,
    Steps,
    Wanted,
    Work,
    find_missing,
    learn,
    queries_for,
)
from pathe.predict.patterns import from_head, pattern_triples
from pathe.predict.results import (
    Answer,
    Answers,
    BridgeEvidence,
    ClassifiedTriple,
    Explanation,
    MissingTriple,
    Neighbour,
    PathEvidence,
    PatternEvidence,
    Records,
    Rule,
    ScoredTriple,
    SuspiciousFact,
    notes_on,
    walked,
)
from pathe.predict.rules import check_has_rules, learned_rules

if TYPE_CHECKING:
    from typing_extensions import Unpack

AT_ONCE = 1024  # queries per chunk,
ANSWERS = 1 << 17  # and answers per chunk


Source = KnowledgeGraph | str | Path
Method = TypeVar("Method", bound=Callable[..., Any])
Row = Mapping[str, str | None]  # a query or a fact with the keys head, relation and tail


def on_snapshot(method: Method) -> Method:
    """Makes a method work on the graph as it is when the method is called."""

    @functools.wraps(method)
    def run(self: Predictor, *given: Any, **more: Any) -> Any:
        return method(self._snapshot(), *given, **more)

    return run  # type: ignore[return-value]


def as_one_change(method: Method) -> Method:
    """Makes a method change a copy, which then takes the predictor's place; one at a time."""

    @functools.wraps(method)
    def run(self: Predictor, *given: Any, **more: Any) -> Any:
        with self._writing:
            changed = self._copied()
            result = method(changed, *given, **more)
            self.__dict__ = changed.__dict__
        return result

    return run  # type: ignore[return-value]


class Predictor:
    """Answers queries with a model on a graph; both may be given as objects or as paths.

    `Predictor(kg)` uses the pre-trained model that comes with the package. What the model knows of
    the graph is its train split; triples of all splits count as known.

    Threads can share a predictor. Each call, also one that yields answers later, works on the graph
    as it was when the call was made. Changes are made one after the other, and each becomes visible
    at once and whole, or not at all if it fails. Queries don't wait for changes.
    """

    def __init__(
        self,
        model: Artifact | Source,
        kg: Source | None = None,
        *,
        relation_map: RelationMap | None = None,
        unknown: Unknown = "raise",
        n_paths: int | None = None,
        seed: int | None = None,
        device: torch.device | str = "auto",
        frontier: int | None = None,
    ) -> None:
        """`frontier` is the number of entities per query that bridges pass messages between.

        0 is all of them, which is exact. By default, models that work on any graph have a frontier
        on graphs of a million triples and more, and others have none.
        """
        check_frontier(frontier)
        model, kg = _model_and_graph(model, kg)
        if n_paths is not None and n_paths < 1:
            raise ConfigError(f"n_paths must be at least 1; got {n_paths}.")
        kg = align(kg, model.relations, relation_map, unknown)
        if not len(kg.train):
            raise DataError(f"{kg.name}: no training triples to encode its entities from.")
        self.artifact, self.relation_map = model, dict(relation_map or {})
        self.entity_names, self.relation_names = GrowingVocabulary(kg.entities), kg.relations
        self.scorer = build_scorer(
            model.model, model.config, prepare(kg, as_device(device)), n_paths=n_paths, seed=seed,
            frontier=frontier,
        )  # fmt: skip
        self.frontier = frontier
        self._writing = threading.Lock()
        self._types: str | TypesOf | None = None
        self._chosen: Choices | None = None
        self._functional: dict[tuple[int, Side], bool] = {}
        self._judged: Judge | None = None
        self._learned: Learned | None = None  # from hidden facts, for `missing`
        self._contexts_ED: Tensor | None = None  # vectors for models that have none, once needed

    def __repr__(self) -> str:
        n_triples = self.prepared.graph.n_triples
        sizes = f"{len(self.entity_names):,} entities, {n_triples:,} triples"
        return f"Predictor({self.artifact}, {sizes})"

    @property
    def prepared(self) -> PreparedGraph:
        """The graph with the facts added so far."""
        return self.scorer.prepared

    @property
    def names(self) -> Names:
        """Prefixes and labels of the graph: `names.show(name)`, `names.shown(answers)`."""
        return self.entity_names.vocabulary.spellings

    def fork(self) -> Predictor:
        """Returns another predictor with the same model and graph.

        Facts that are added to or removed from one don't change the other.
        """
        other = self._snapshot()._copied()
        other._writing, scorer = threading.Lock(), other.scorer
        other.scorer = build_scorer(
            self.artifact.model, self.artifact.config, other.prepared,
            n_paths=scorer.n_paths, seed=scorer.seed, frontier=other.frontier,
        )  # fmt: skip
        other._chosen = other._judged = other._learned = None
        return other

    # answers

    def tails(
        self,
        head: str,
        relation: str,
        k: int = 10,
        *,
        filter_known: bool = True,
        **which: Unpack[QueryCandidates],
    ) -> Answers:
        """Returns the k best answers to (head, relation, ?); `answer` describes the options."""
        return next(self.answer([(head, relation, None)], k, filter_known=filter_known, **which))

    def heads(
        self,
        relation: str,
        tail: str,
        k: int = 10,
        *,
        filter_known: bool = True,
        **which: Unpack[QueryCandidates],
    ) -> Answers:
        """Returns the k best answers to (?, relation, tail); `answer` describes the options."""
        return next(self.answer([(None, relation, tail)], k, filter_known=filter_known, **which))

    def relations(
        self,
        head: str,
        tail: str,
        k: int = 10,
        *,
        filter_known: bool = True,
        plausible: bool = True,
    ) -> Answers:
        """Returns the k best answers to (head, ?, tail); `answer` describes the options."""
        query = (head, None, tail)
        return next(self.answer([query], k, filter_known=filter_known, plausible=plausible))

    @on_snapshot
    def answer(
        self,
        queries: Iterable[Query | Row],
        k: int = 10,
        *,
        filter_known: bool = True,
        **which: Unpack[QueryCandidates],
    ) -> Iterator[Answers]:
        """Yields the k best answers to each of many queries, in their order.

        A query is (head, relation, tail) with None for the part to predict, or a dict without it.
        Answers that the graph already has are left out unless `filter_known` is False; then each is
        scored with its own fact in the graph, which `score` and `classify` leave out. `among`
        (names), `type` (see `use_types`) and `exclude` (names) choose the entities that are ranked.
        Without `among` and `type`, entities that are unlike all known answers of the relation are
        left out, too, unless `plausible` is False; and so are relations that no entity like the
        head, or no entity like the tail, has.
        """
        check_k(k)
        choices = self._choices()
        ranked = choices.ranked(which)
        for chunk in chunks(rows_of(queries), queries_at_once(k)):
            open_parts = [open_part(query) for query in chunk]
            found: dict[int, Answers] = {}
            for part in PARTS:
                rows = [i for i, p in enumerate(open_parts) if p == part]
                if rows:
                    ids_B3 = self._ids([chunk[i] for i in rows])
                    answers = list(self._best(ids_B3, part, k, filter_known, ranked))
                    choices.describe(answers, [chunk[i] for i in rows], ids_B3, part)
                    found |= dict(zip(rows, answers, strict=True))
            yield from (found[i] for i in range(len(chunk)))

    @on_snapshot
    def known_answers(self, query: Query | Row) -> list[str]:
        """Returns the answers that the graph already has."""
        [found] = self.known_answers_to(rows_of(query))
        return found

    @on_snapshot
    def known_answers_to(self, queries: Iterable[Query | Row]) -> list[list[str]]:
        """Returns the answers that the graph already has to each of many queries."""
        rows = list(rows_of(queries))
        found: list[list[str]] = [[] for _ in rows]
        open_parts = [open_part(row) for row in rows]
        for part in PARTS:
            asked = [i for i, own in enumerate(open_parts) if own == part]
            if asked:
                ids_B3 = self._ids([rows[i] for i in asked])
                rows_N, ids_N = self.prepared.known().find(ids_B3, part)
                names = self.relation_names if part == "relation" else self.entity_names
                for row, name in zip(rows_N.tolist(), names.names(ids_N.cpu()), strict=True):
                    found[asked[row]].append(name)
        return found

    @on_snapshot
    def facts_of(self, entity: str) -> tuple[list[Fact], list[Fact]]:
        """Returns the facts that the model sees of an entity: as their head, and as their tail."""
        own, facts_M3 = self.entity_names.id(entity), self.prepared.train_M3
        out, into = (facts_M3[facts_M3[:, column] == own].tolist() for column in (0, 2))
        return self._named(out), self._named(into)

    @on_snapshot
    def exact(self, query: Query) -> Query:
        """Returns a query with exact names: prefixes and labels are resolved.

        Raises UnknownNameError, which suggests the closest names, if a name is unknown.
        """
        names: list[str | None] = []
        for part, name in zip(PARTS, query, strict=True):
            if name is not None and part == "relation":
                name = self.relation_names[self._asked_relation(name)]
            elif name is not None:
                name = self.entity_names.exact(name)
            names.append(name)
        return names[0], names[1], names[2]

    @on_snapshot
    def score(
        self,
        triples: Iterable[Fact | Row],
        asked: Part | None = None,
        *,
        progress: Progress | None = None,
    ) -> Records[ScoredTriple]:
        """Returns each triple's score, and the rank and probability of one part of it.

        `asked` is that part: by default the tail, or the relation if the model was trained for
        relations only. Triples of the graph are scored without their own edges.
        """
        facts, named = list(rows_of(triples)), list[Fact]()
        if asked is not None and asked not in PARTS:
            raise ConfigError(f"asked must be head, relation or tail; got {asked!r}.")
        part, rows = self._part(asked), list[tuple[Any, ...]]()
        for chunk in chunks(facts, AT_ONCE):
            for fact in chunk:
                check_fact(fact)
            ids_M3 = self._ids(chunk)
            own_M, found = holds(self.prepared.graph, ids_M3), dict[int, tuple[Any, ...]]()
            for scorer, rows_G in without_own(self.scorer, self.artifact.config, ids_M3, own_M):
                figures = self._scored(scorer, ids_M3[rows_G], part)
                for row, figure in zip(rows_G.tolist(), figures, strict=True):
                    found[row] = figure
                    if progress:
                        progress(len(rows) + len(found), len(facts))
            named += (own := self._named(ids_M3.tolist()))
            about = self._about(ids_M3, own)
            rows += [(*found[row], *notes) for row, notes in enumerate(about)]
        return Records(ScoredTriple(*fact, *rest) for fact, rest in zip(named, rows, strict=True))

    def _scored(
        self, scorer: Scorer, ids_M3: Tensor, part: Part
    ) -> Iterator[tuple[float, float, int, bool]]:
        """Yields the score, probability and rank of each triple, and whether it is known."""
        for ids_B3, scores_BC, known_BC in self._scores(scorer, ids_M3, part):
            true_B1 = ids_B3[:, PARTS.index(part)][:, None]
            own_B1 = scores_BC.gather(1, true_B1)
            scores_BC.masked_fill_(known_BC, float("-inf")).scatter_(1, true_B1, own_B1)
            rank_B = rank(scores_BC, true_B1[:, 0]).realistic_B.floor().long()
            chance_B = self._log_probabilities(scores_BC, part, own_B1)[:, 0].exp()
            columns = (own_B1[:, 0], chance_B, rank_B, known_BC.gather(1, true_B1)[:, 0])
            yield from zip(*(column.tolist() for column in columns), strict=True)

    def _about(self, ids_B3: Tensor, named: list[Fact]) -> Iterator[tuple[bool, bool, list[str]]]:
        """Yields whether a query of each triple is complete or implausible, and this in words."""
        sides = (self._choices().about(ids_B3, side) for side in SIDES)
        for fact, *about in zip(named, *sides, strict=True):
            head, relation, tail = self.names.shown(fact)
            queries: list[Query] = [(head, relation, None), (None, relation, tail)]
            notes = [
                note
                for query, (known, odd) in zip(queries, about, strict=True)
                for note in notes_on(query, self.names.shown(known), odd)
            ]
            yield any(known for known, _ in about), any(odd for _, odd in about), notes

    @as_one_change
    def use_types(self, types: str | TypesOf) -> None:
        """Sets the types that `type` chooses by: the name of a relation, or types by entity.

        By default, a relation such as rdf:type, type, "instance of" or isa gives them.
        """
        if isinstance(types, str):
            self._relation_ids([types])
        self._types, self._chosen = types, None

    @property
    def types(self) -> str | TypesOf | None:
        """What `use_types` was given."""
        return self._types

    @on_snapshot
    def types_of_entities(self) -> dict[str, list[str]]:
        """Returns the types of each entity that has any; of none in a graph without types."""
        choices, found = self._choices(), dict[str, list[str]]()
        if choices.has_types:
            names, rows_N2 = choices.types
            entities = self.entity_names.names(rows_N2[:, 0])
            for entity, type in zip(entities, rows_N2[:, 1].tolist(), strict=True):
                found.setdefault(entity, []).append(names[type])
        return found

    @on_snapshot
    def entity_ids(self, **which: Unpack[Candidates]) -> npt.NDArray[np.int64]:
        """Returns the ids of all entities, or of those chosen by `among`, `type` and `exclude`."""
        allowed_E = self._choices().allowed(which)
        if allowed_E is None:
            return np.arange(len(self.entity_names))
        return allowed_E.nonzero().squeeze(1).cpu().numpy()

    # vectors

    @on_snapshot
    def embed(
        self, names: str | Iterable[str] | None = None, *, progress: Progress | None = None
    ) -> npt.NDArray[np.float32]:
        """Returns a vector per entity: of those named, or of all in the order of their ids.

        A model with entity vectors encodes them. For other models, a vector describes the relations
        and neighbours of an entity and of its neighbours, without the model's weights; it is zero
        for entities without training triples.
        """
        if names is None:
            self.refresh()
            if isinstance(self.scorer, VectorScorer):
                self.scorer.warm(progress)
            return self._vectors().float().cpu().numpy()
        ids = self.entity_names.ids([names] if isinstance(names, str) else names)
        return self._vectors(ids.to(self.prepared.device)).float().cpu().numpy()

    @on_snapshot
    def similar(self, name: str, k: int = 10, **which: Unpack[Candidates]) -> Records[Neighbour]:
        """Returns the k entities with the most similar vectors (see `embed`), by cosine.

        `among` (names), `type` (see `use_types`) and `exclude` (names) choose from which.
        """
        check_k(k)
        allowed_E = self._choices().allowed(which)
        entity = self.entity_names.id(name)
        vectors_ED = self._vectors()
        own_1D = self._vectors(torch.tensor([entity], device=vectors_ED.device))
        if not own_1D.any():
            raise DataError(
                f"{name!r} has no training triples, so there is nothing to compare it by."
            )
        ids, near = nearest(vectors_ED, own_1D, entity, k, allowed_E)
        names = self.entity_names.names(ids)
        return Records(Neighbour(i + 1, names[i], value) for i, value in enumerate(near))

    # facts

    @on_snapshot
    def missing(
        self,
        k: int = 100,
        *,
        min_probability: float = 0.0,
        queries: int | None = None,
        reasons: bool = False,
        progress: Progress | None = None,
        steps: Steps = HERE,
        **of: Unpack[FactsOf],
    ) -> Records[MissingTriple]:
        """Returns the k most probable triples that the graph lacks.

        The most promising `queries` are asked (default: 25 per fact, from 1,000 to 10,000; 200,000
        for models without bridges): entities that lack a relation which others of their kind have,
        and relations with several answers. `relations` limits the search to these, `entities` and
        `type` (see `use_types`) to facts of these entities; `exclude` leaves out facts of others.
        `reasons` adds the main pattern of paths to each, which takes a moment per triple.

        Some facts of the graph are hidden to learn from, whatever is asked for: the probability of
        a triple doesn't depend on `k` or on what limits the search. `steps` does the long parts of
        the search elsewhere (see `pathe.cluster.search`).
        """
        check_task(self.artifact.config.task, "link")
        check_k(k)
        wanted = Wanted(self._wanted(of.get("relations")), self._owners(of), self._not_of(of))
        if not wanted.relations:
            return Records()
        judge, work = self._judge(), Work(progress, steps)
        if self._learned is None:
            self._learned = learn(judge, work)
        n_queries = queries or queries_for(k, self.scorer.bridged)
        found = find_missing(judge, wanted, self._learned, n_queries, work)
        n = int((found.probability_K[:k] >= min_probability).sum())
        facts = self._named(found.triples_K3[:n].tolist())
        rows = zip(facts, found.scores_K.tolist(), found.probability_K.tolist(), strict=False)
        return Records(
            MissingTriple(i, *fact, score, chance, self._reason(fact) if reasons else "")
            for i, (fact, score, chance) in enumerate(rows, 1)
        )

    @on_snapshot
    def classify(
        self,
        triples: Iterable[Fact],
        *,
        negatives: Iterable[Fact] | None = None,
        reasons: bool = False,
        progress: Progress | None = None,
    ) -> Records[ClassifiedTriple]:
        """Returns for each triple the probability that it is true, and whether it counts as true.

        Triples of the graph are judged without their own edges. What separates true from false is
        fitted on validation triples, or on hidden training triples where there are few of them, and
        on triples made false by another head or tail; `negatives` are validation triples that are
        known to be false, and used instead of the latter. `reasons` adds the main pattern of paths
        behind each triple, without its own edge.
        """
        check_task(self.artifact.config.task, "link")
        facts = list(rows_of(triples))
        for fact in facts:
            check_fact(fact)
        if not facts:
            return Records()
        ids_B3 = self._ids(facts)
        found = self._judge(negatives)(ids_B3, progress)
        columns: list[Tensor] = [
            found.probability_B >= found.threshold_B, found.probability_B, found.threshold_B,
        ]  # fmt: skip
        for ranks in (found.ranks["tail"], found.ranks["head"]):
            columns += [ranks.ranks_B.floor().long(), ranks.log_chances_B.exp()]
        rows = zip(*(column.tolist() for column in (*columns, found.known_B)), strict=True)
        named = self._named(ids_B3.tolist())
        judged = (ClassifiedTriple(*fact, *row) for fact, row in zip(named, rows, strict=True))
        if not reasons:
            return Records(judged)
        facts_in_order = zip(judged, named, strict=True)
        return Records(replace(row, reason=self._reason(fact)) for row, fact in facts_in_order)

    @on_snapshot
    def check(
        self,
        k: int = 100,
        *,
        sample: int | None = None,
        reasons: bool = False,
        progress: Progress | None = None,
        **of: Unpack[FactsOf],
    ) -> Records[SuspiciousFact]:
        """Returns the k facts that look most wrong, given the rest of the graph.

        Each fact is scored as if it were missing. `relations`, `entities`, `type` and `exclude`
        limit which facts are judged, `sample` how many. `reasons` adds the main pattern of paths
        behind each fact, and behind what the graph suggests instead.
        """
        check_task(self.artifact.config.task, "link")
        check_k(k)
        facts_M3, own = self.prepared.train_M3, self._owners(of)
        relations = torch.tensor(self._wanted(of.get("relations")), device=facts_M3.device)
        wanted_M = torch.isin(facts_M3[:, 1], relations)
        if own is not None:
            wanted_M &= torch.isin(facts_M3[:, [0, 2]], own).any(1)
        if (not_of := self._not_of(of)) is not None:
            wanted_M &= ~torch.isin(facts_M3[:, [0, 2]], not_of).any(1)
        rows = wanted_M.nonzero().squeeze(1)
        rows = rows[keyed(self.scorer.seed, rows).argsort()[:sample]]
        if not len(rows):
            return Records()
        judged = self._judge()(facts_M3[rows], progress)
        order = judged.probability_B.argsort(stable=True)[:k]
        expected = expected_tails(self.scorer, self.artifact.config, judged.triples_B3[order])
        columns = (
            self._named(judged.triples_B3[order].tolist()),
            judged.probability_B[order].tolist(),
            judged.ranks["tail"].ranks_B[order].long().tolist(),
            judged.ranks["head"].ranks_B[order].long().tolist(),
            map(self.entity_names.names, expected),
        )
        found = Records[SuspiciousFact]()
        for i, row in enumerate(zip(*columns, strict=True), 1):
            fact, chance, tail_rank, head_rank, instead = row
            why = self._reasons(fact, instead) if reasons else ("", "")
            found.append(SuspiciousFact(i, *fact, chance, tail_rank, head_rank, instead, *why))
        return found

    # evidence

    @on_snapshot
    def explain(
        self,
        head: str,
        relation: str,
        tail: str,
        asked: Part | None = None,
        *,
        progress: Progress | None = None,
    ) -> Explanation:
        """Explains a triple's score by the effect of leaving out paths.

        The paths are those of the head, of the tail and, if the model has bridges, between them;
        these are also grouped by pattern. If the triple is in the graph, its own edge is left out
        between them. `asked` is the part that is ranked, as in `score`.
        """
        [scored] = self.score([(head, relation, tail)], asked)
        head, relation, tail = scored.head, scored.relation, scored.tail
        ids_3 = self._ids([(head, relation, tail)])[0]
        score = self._triple_score(ids_3, asked)
        patterns, bridges = bridge_evidence(
            score, int(ids_3[1]), self._named, self.relation_names, progress
        )
        return Explanation(
            head,
            relation,
            tail,
            score=score.without() if score.own_left_out else scored.score,
            probability=scored.probability,
            rank=scored.rank,
            alone=score.without(score.paths) - score.bridged,
            paths=path_evidence(score, self._named),
            bridged=score.bridged,
            bridges=bridges,
            patterns=[self._typed(pattern, head) for pattern in patterns],
        )

    def _typed(self, pattern: PatternEvidence, head: str) -> PatternEvidence:
        """Adds the types of the entities between head and tail to a pattern."""
        stops = [[name for _, _, name in walked(steps, head)] for steps in pattern.instances]
        between = [self._choices().shared_type(names) for names in zip(*stops, strict=True)][:-1]
        return replace(pattern, between=between)

    @on_snapshot
    def score_without(
        self,
        head: str,
        relation: str,
        tail: str,
        paths: Iterable[PathEvidence | BridgeEvidence | PatternEvidence],
        asked: Part | None = None,
        *,
        progress: Progress | None = None,
    ) -> float:
        """Returns the triple's score without some paths or patterns of its explanation."""
        score, paths = (
            self._triple_score(self._ids([(head, relation, tail)])[0], asked),
            list(paths),
        )
        for path in paths:  # those of one entity may be empty: it has no edges
            steps = path.relations if isinstance(path, PatternEvidence) else path.steps
            if not steps and not isinstance(path, PathEvidence):
                raise ConfigError(f"A path or pattern to leave out has steps; got {path}.")
        own = {(path.of, tuple(path.steps)) for path in paths if isinstance(path, PathEvidence)}
        left_out = [p for p in score.paths if (p.of, tuple(self._named(p.steps))) in own]
        triples: set[int] = set()
        for number, path in enumerate(paths):
            if progress:
                progress(number, len(paths))
            if isinstance(path, BridgeEvidence):
                triples.update(self.prepared.ids(self._ids(path.steps)).tolist())
            elif isinstance(path, PatternEvidence) and score.bridge is not None:
                kinds = self._kinds(path.relations)
                triples |= pattern_triples(score.bridge, from_head(score.bridge, kinds))
        return score.without(left_out, triples)

    @on_snapshot
    def rank_with(
        self, head: str, relation: str, tail: str, score: float, asked: Part | None = None
    ) -> int:
        """Returns the rank that a triple would have with another score, as in `score`."""
        ids_13, part = self._ids([(head, relation, tail)]), self._part(asked)
        own_1 = holds(self.prepared.graph, ids_13)
        [(scorer, _)] = without_own(self.scorer, self.artifact.config, ids_13, own_1)
        [(_, scores_1C, known_1C)] = self._scores(scorer, ids_13, part)
        known_1C[0, ids_13[0, PARTS.index(part)]] = True  # it doesn't compete with itself
        others_C = scores_1C[0][~known_1C[0]]
        return 1 + int((others_C > score).sum()) + int((others_C == score).sum()) // 2

    @on_snapshot
    def rules(
        self,
        relations: str | Iterable[str] | None = None,
        k: int = 5,
        *,
        facts: int = 32,
        progress: Progress | None = None,
    ) -> Iterator[Rule]:
        """Yields the k paths that the model trusts most, per relation (default: all).

        Trust is estimated from a sample of each relation's facts, scored as if they were missing.
        Each rule has up to three instances: paths that it follows between entities of these facts.
        """
        check_has_rules(self.artifact.config)
        check_k(k)
        whole_pairs = self.artifact.config.hold_out_pairs
        wanted = self._wanted(relations)
        for found in learned_rules(
            self.scorer, wanted, k=k, n_facts=facts, whole_pairs=whole_pairs, progress=progress
        ):
            yield from (rule.named(self.relation_names, self.entity_names) for rule in found)

    # changed facts

    @as_one_change
    def add(self, facts: Iterable[Fact | Row]) -> int:
        """Adds facts to the graph, also about new entities; returns how many were new.

        Entities in these facts, and in later queries, are encoded again. Other vectors stay as they
        are, although their paths may now include the new facts, until `refresh`. With mined paths,
        all paths are mined again.
        """
        new = list(rows_of(facts))
        for fact in new:
            check_fact(fact)
        relations = self._relation_ids([fact[1] for fact in new])  # may raise: before any change
        heads, tails = (torch.tensor([self.entity_names.add(f[i]) for f in new]) for i in (0, 2))
        larger, new_N3 = self.prepared.add(
            torch.stack([heads, relations, tails], 1), len(self.entity_names)
        )
        if len(new_N3):
            changed_U = new_N3[:, [0, 2]].unique().long()
            self._replace_graph(larger, changed_U)
        return len(new_N3)

    @as_one_change
    def remove(self, facts: Iterable[Fact | Row]) -> int:
        """Removes facts from the graph; returns how many. They must all be known.

        Their entities stay, even those without other facts, and are encoded again; see `add`.
        """
        old = list(rows_of(facts))
        for fact in old:
            check_fact(fact)
        if not old:
            return 0
        ids_N3 = self._ids(old).unique(dim=0)
        for known, ids in zip(self.prepared.known().contains(ids_N3).tolist(), ids_N3, strict=True):
            if not known:
                [(head, relation, tail)] = self._named([tuple(ids.tolist())])
                raise DataError(
                    f"({head!r}, {relation!r}, {tail!r}) can't be removed: the graph doesn't have "
                    "it. Nothing was removed."
                )
        self._replace_graph(self.prepared.remove(ids_N3), ids_N3[:, [0, 2]].unique().long())
        return len(ids_N3)

    def _replace_graph(self, prepared: PreparedGraph, changed_U: Tensor) -> None:
        replace_graph(self.scorer, self.artifact.config, prepared, changed_U)
        self._contexts_ED = self._judged = self._learned = None

    def refresh(self) -> None:
        """Makes the next query encode all entities again, if facts were added or removed."""
        self.scorer.refresh()

    def warm(self, progress: Progress | None = None) -> None:
        """Encodes every entity now, rather than at the first query."""
        self.scorer.warm(progress)

    # internals

    def _snapshot(self) -> Predictor:
        """Returns the predictor as it is now: later changes of the graph don't reach it.

        It shares all attributes, so what it caches is kept until the graph changes.
        """
        view = object.__new__(Predictor)
        view.__dict__ = self.__dict__
        return view

    def _copied(self) -> Predictor:
        """Returns a copy that can be changed without changing this one."""
        other = object.__new__(Predictor)
        other.__dict__ = dict(self.__dict__)
        other.entity_names, other._functional = self.entity_names.copy(), dict(self._functional)
        other.scorer = copy(self.scorer)
        if isinstance(other.scorer, VectorScorer):
            other.scorer.vectors = other.scorer.vectors.copy()
        return other

    @as_one_change
    def use_functional(
        self,
        one_tail: Mapping[str, bool] | None = None,
        one_head: Mapping[str, bool] | None = None,
    ) -> None:
        """Sets for relations whether a head has one tail at most, and a tail one head.

        By default, this is learned from the graph. `missing` and `classify` use it.
        """
        sides: dict[Side, Mapping[str, bool] | None] = {"tail": one_tail, "head": one_head}
        for side, given in sides.items():
            for name, verdict in (given or {}).items():
                self._functional[int(self._relation_ids([name])), side] = verdict
        self._judged = self._learned = None

    def _judge(self, negatives: Iterable[Fact] | None = None) -> Judge:
        """Returns what judges triples, for the graph as it is now.

        It is kept until the graph changes, unless it learns from given negatives.
        """
        self.refresh()
        if self._judged is not None and not negatives:
            return self._judged
        ids_N3 = self._ids(list(negatives)) if negatives else None
        given = self.scorer, self.artifact.config, self._temperature("tail")
        judge = Judge(*given, self._functional, ids_N3)
        if ids_N3 is None:
            self._judged = judge
        return judge

    def _owners(self, of: FactsOf) -> Tensor | None:
        """Returns the ids of the entities that facts are wanted of; None for any."""
        if unknown := set(of) - set(FactsOf.__annotations__):
            raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
        which: Candidates = {}
        if (entities := of.get("entities")) is not None:
            which["among"] = [entities] if isinstance(entities, str) else entities
        if (type := of.get("type")) is not None:
            which["type"] = type
        allowed_E = self._choices().allowed(which)
        return None if allowed_E is None else allowed_E.nonzero().squeeze(1)

    def _not_of(self, of: FactsOf) -> Tensor | None:
        """Returns the ids of the entities that facts must not have; None for none."""
        if (names := of.get("exclude")) is None:
            return None
        names = [names] if isinstance(names, str) else names
        return self.entity_names.ids(names).to(self.prepared.device)

    def _reason(self, fact: Fact, doubted: Fact | None = None) -> str:
        """Returns the main pattern of paths behind a triple in words, or nothing.

        A pattern whose paths use a doubted fact doesn't count.
        """
        patterns = self.explain(*fact).patterns if self.scorer.bridged else []
        patterns = [p for p in patterns if not any(doubted in steps for steps in p.instances)]
        patterns = self.names.shown(patterns[:1])
        return f"{patterns[0].words()} ({patterns[0].figures()})" if patterns else ""

    def _reasons(self, fact: Fact, expected: list[str]) -> tuple[str, str]:
        """Returns the main reason for a fact, and for the tail that is expected instead."""
        head, relation, _ = fact
        instead = [self._reason((head, relation, tail), fact) for tail in expected[:1]]
        return self._reason(fact), "".join(instead)

    def _choices(self) -> Choices:
        """Returns what chooses candidates, for the graph as it is now."""
        if self._chosen is None or self._chosen.prepared is not self.prepared:
            names = self.entity_names, self.relation_names
            self._chosen = Choices(self.prepared, *names, self._types)
        return self._chosen

    def _vectors(self, entities_U: Tensor | None = None) -> Tensor:
        """Returns one vector per entity, for some entities or for all."""
        if isinstance(self.scorer, VectorScorer):
            return self.scorer.vectors.flat(entities_U)
        if self._contexts_ED is None:
            self._contexts_ED = context_vectors(self.prepared, *self.keys())
        return self._contexts_ED if entities_U is None else self._contexts_ED[entities_U]

    def keys(self) -> tuple[Tensor, Tensor]:
        """Returns numbers that stand for the names of entities and of relations."""
        names = self.entity_names.names(torch.arange(len(self.entity_names)))
        device = self.prepared.device
        return name_keys(names).to(device), name_keys(self.relation_names).to(device)

    def _part(self, asked: Part | None) -> Part:
        return asked or ("relation" if self.artifact.config.task == "relation" else "tail")

    def _triple_score(self, ids_3: Tensor, asked: Part | None) -> TripleScore:
        """Returns a triple's score, as if the graph lacked the triple."""
        part = self._part(asked)
        check_task(self.artifact.config.task, "relation" if part == "relation" else "link")
        own_N = self.prepared.ids(ids_3[None])
        return self.scorer.triple(ids_3, part, HeldOut(own_N) if len(own_N) else None)

    def _kinds(self, relations: list[str]) -> tuple[int, ...]:
        """Returns the ids of relations, those with ^ after all others."""
        n = len(self.relation_names)
        names = self.relation_names
        return tuple(n + names.id(r[1:]) if r.startswith("^") else names.id(r) for r in relations)

    def _wanted(self, relations: str | Iterable[str] | None) -> list[int]:
        """Returns the ids of the relations given, or of all."""
        if relations is None:
            return list(range(len(self.relation_names)))
        relations = [relations] if isinstance(relations, str) else relations
        return sorted(set(self._asked_relations(list(relations)).tolist()))

    def _named(self, steps: Iterable[tuple[int, int, int]]) -> list[Fact]:
        entities, relations = self.entity_names, self.relation_names
        return [(entities[h], relations[r], entities[t]) for h, r, t in steps]

    def _ids(self, queries: list[Any]) -> Tensor:
        """Returns (B, 3) ids of queries for the same part, with -1 in its place."""
        columns = []
        for place in range(3):
            names = [query[place] for query in queries]
            if names[0] is None:
                columns.append(torch.full((len(names),), -1))
            else:
                ids = self._asked_relations if place == 1 else self.entity_names.ids
                columns.append(ids(names))
        return torch.stack(columns, 1).to(self.prepared.device)

    def _asked_relations(self, names: list[str]) -> Tensor:
        """Returns the ids of relations to predict with.

        Without a table of relations, the model must have seen triples of them in the graph.
        """
        ids_B = self._relation_ids(names)
        if self.artifact.relations is None:
            for name, seen in zip(names, self.prepared.seen_R[ids_B].tolist(), strict=True):
                if not seen:
                    raise UnknownNameError(
                        f"The relation {name!r} occurs only in valid or test, but this model knows "
                        "relations by their training triples. Add some to train."
                    )
        return ids_B

    def _asked_relation(self, name: str) -> int:
        """Returns `_asked_relations` of one name; faster if it is known."""
        found = self.relation_names.find(name) if isinstance(name, str) else None
        if found is None or not self.prepared.seen_R[found]:
            return int(self._asked_relations([name])[0])
        return found

    def _relation_ids(self, names: list[str]) -> Tensor:
        try:
            return self.relation_names.ids(names)
        except UnknownNameError as error:
            for name in names:
                if name in self.relation_map and name not in self.relation_names:
                    mapped = self.relation_map[name]
                    raise UnknownNameError(
                        f"{error} The relation map renames {name!r} to {mapped!r}: use that name."
                    ) from None
            raise

    def _scores(
        self, scorer: Scorer, ids_M3: Tensor, part: Part
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yields (queries, scores of all candidates, which are known) per chunk."""
        check_task(self.artifact.config.task, "relation" if part == "relation" else "link")
        known = self.prepared.known()
        for ids_B3 in scorer.chunks(ids_M3, part):
            scores_BC = scorer.scores(ids_B3, part)
            known_BC = torch.zeros_like(scores_BC, dtype=torch.bool)
            known_BC[known.find(ids_B3, part)] = True
            yield ids_B3, scores_BC, known_BC

    def _temperature(self, part: Part) -> float:
        return self.artifact.temperatures.get("relation" if part == "relation" else "link", 1.0)

    def _log_probabilities(self, scores_BC: Tensor, part: Part, of_BK: Tensor) -> Tensor:
        """Returns the log-softmax of some scores over all scores of a row."""
        temperature = self._temperature(part)
        return of_BK / temperature - (scores_BC / temperature).logsumexp(1, keepdim=True)

    def _best(
        self, ids_M3: Tensor, part: Part, k: int, filter_known: bool, ranked: Ranked
    ) -> Iterator[Answers]:
        names = self.relation_names if part == "relation" else self.entity_names
        for ids_B3, scores_BC, known_BC in self._scores(self.scorer, ids_M3, part):
            n_implausible_B = ranked.leave_out(scores_BC, ids_B3, part, known_BC)
            if filter_known:
                scores_BC.masked_fill_(known_BC, float("-inf"))
            best = scores_BC.topk(min(k, scores_BC.shape[1]))
            chances_BK = self._log_probabilities(scores_BC, part, best.values).exp()
            known_BK = known_BC.gather(1, best.indices)
            all_names = iter(names.names(best.indices.flatten().cpu()))
            columns = (column.tolist() for column in (best.values, chances_BK, known_BK))
            for *row, n_implausible in zip(*columns, n_implausible_B, strict=True):
                cells = list(zip(islice(all_names, len(row[0])), *row, strict=True))
                answers = [
                    Answer(i + 1, name, score, chance, known)
                    for i, (name, score, chance, known) in enumerate(cells)
                    if score > float("-inf")
                ]
                yield Answers(answers, left_out=n_implausible)


def queries_at_once(k: int) -> int:
    """Returns how many queries with k answers each are answered per chunk."""
    return max(min(AT_ONCE, ANSWERS // k), 1)


def _model_and_graph(
    first: Artifact | Source, second: Source | None
) -> tuple[Artifact, KnowledgeGraph]:
    """Returns the model and the graph of `Predictor(model, kg)` or `Predictor(kg)`."""
    if second is None:
        if isinstance(first, Artifact):
            raise ConfigError("Give the graph, too: Predictor(model, kg).")
        model, kg = load_model(), first
    elif isinstance(first, KnowledgeGraph):
        raise ConfigError("The model comes first: Predictor(model, kg), or Predictor(kg) alone.")
    else:
        model, kg = (first if isinstance(first, Artifact) else load_model(first)), second
    if not isinstance(kg, KnowledgeGraph):
        kg = KnowledgeGraph.read(kg, every_relation=True)
    return model, kg
