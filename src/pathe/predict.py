"""Names in, names out: a model and a graph that answer questions, give vectors and reasons.

Entities are encoded once, when the first question comes; each question then is one row of scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pathe.answers import (
    PARTS,
    Answer,
    BridgeEvidence,
    Explanation,
    Fact,
    Judged,
    Missing,
    Neighbour,
    Part,
    PathEvidence,
    Question,
    Rule,
    check_fact,
    check_k,
    chunks,
    open_part,
)
from pathe.artifact import Artifact, load_model
from pathe.bridging import bridge_links, bridge_relations
from pathe.builder import TEST, build_describer, derived_seed
from pathe.connections import effects, joint_effect
from pathe.datasets import KnowledgeGraph
from pathe.encoding import Progress
from pathe.errors import ConfigError, DataError, UnknownNameError
from pathe.evaluation import check_task, rows_at_once
from pathe.evidence import Pair
from pathe.facts import graphs_of, grow
from pathe.graph import known_answers
from pathe.machine import pick_device
from pathe.missing import most_plausible
from pathe.model import on_device
from pathe.names import Names
from pathe.ranking import rank
from pathe.rules import learned_rules
from pathe.schema import RelationMap, Unknown, align
from pathe.vectors import Vectors

AT_ONCE = 1024  # questions looked at together,
ANSWERS = 1 << 17  # and answers to them


class Predictor:
    """A model on a graph, or their folders: questions, vectors, reasons, new facts.

    The graph's train split describes the entities; triples of any split count as known.
    """

    def __init__(
        self,
        model: Artifact | str | Path,
        kg: KnowledgeGraph | str | Path,
        *,
        relation_map: RelationMap | None = None,
        unknown: Unknown = "raise",
        n_paths: int | None = None,
        seed: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        model = model if isinstance(model, Artifact) else load_model(model)
        kg = kg if isinstance(kg, KnowledgeGraph) else KnowledgeGraph.read(kg, every_relation=True)
        if n_paths is not None and n_paths < 1:
            raise ConfigError(f"n_paths must be at least 1; got {n_paths}.")
        device = pick_device(device) if device in ("auto", "gpu") else torch.device(device)
        kg = align(kg, model.relations, relation_map, unknown)
        if not len(kg.train):
            raise DataError(f"{kg.name}: no training triples, so nothing describes its entities.")
        self.artifact, self.model = model, on_device(model.model, device).eval()
        self.relation_map = dict(relation_map or {})
        self.entity_names, self.relation_names = Names(kg.entities), model.relations
        self.n_paths = n_paths or model.config.eval_paths
        self.seed = derived_seed(model.config.seed, TEST) if seed is None else seed
        self.graph, self.known = graphs_of(kg, len(model.relations), device)
        describe = build_describer(model.config, self.graph, self.n_paths)
        self.vectors = Vectors(self.model, describe, self.seed)

    def __repr__(self) -> str:
        sizes = f"{len(self.entity_names):,} entities, {self.graph.n_triples:,} triples"
        return f"Predictor({self.artifact}, {sizes})"

    # questions

    def tails(
        self, head: str, relation: str, k: int = 10, *, filter_known: bool = True
    ) -> list[Answer]:
        """The k best answers to (head, relation, ?)."""
        return next(self.answer([(head, relation, None)], k, filter_known=filter_known))

    def heads(
        self, relation: str, tail: str, k: int = 10, *, filter_known: bool = True
    ) -> list[Answer]:
        """The k best answers to (?, relation, tail)."""
        return next(self.answer([(None, relation, tail)], k, filter_known=filter_known))

    def relations(
        self, head: str, tail: str, k: int = 10, *, filter_known: bool = True
    ) -> list[Answer]:
        """The k best answers to (head, ?, tail)."""
        return next(self.answer([(head, None, tail)], k, filter_known=filter_known))

    def answer(
        self, questions: Iterable[Question], k: int = 10, *, filter_known: bool = True
    ) -> Iterator[list[Answer]]:
        """The k best answers to each of many questions, in their order, as they are found.

        A question is (head, relation, tail) with None for what is asked. Answers that the graph
        holds already are left out unless `filter_known` is False.
        """
        check_k(k)
        for chunk in chunks(questions, max(min(AT_ONCE, ANSWERS // k), 1)):
            asked = [open_part(question) for question in chunk]
            found: dict[int, list[Answer]] = {}
            for part in PARTS:
                rows = [i for i, p in enumerate(asked) if p == part]
                if rows:
                    ids_B3 = self._ids([chunk[i] for i in rows])
                    answers = self._best(ids_B3, part, k, filter_known)
                    found |= dict(zip(rows, answers, strict=True))
            yield from (found[i] for i in range(len(chunk)))

    def known_answers(self, question: Question) -> list[str]:
        """The answers that the graph holds already."""
        part = open_part(question)
        ids = known_answers(self.known, self._ids([question]), part)[1]
        return (self.relation_names if part == "relation" else self.entity_names).names(ids.cpu())

    def check_names(self, question: Question) -> None:
        """Raises UnknownNameError, with the closest names, unless all are known."""
        for part, name in zip(PARTS, question, strict=True):
            if name is not None:
                if part == "relation":
                    self._relation_ids([name])
                else:
                    self.entity_names.id(name)

    def score(self, triples: Iterable[Fact], asked: Part | None = None) -> list[Judged]:
        """Each triple's score, and the rank and probability of its tail, or of what is `asked`.

        A model that was trained for relations alone judges the relation.
        """
        triples, judged = list(triples), []
        if asked is not None and asked not in PARTS:
            raise ConfigError(f"asked is head, relation or tail; got {asked!r}.")
        part: Part = asked or ("tail" if self.model.link_head else "relation")
        for chunk in chunks(triples, AT_ONCE):
            for fact in chunk:
                check_fact(fact)
            for at, scores_BC in self._scores(self._ids(chunk), part):
                true_B1 = at[:, PARTS.index(part)][:, None]
                own_B1 = scores_BC.gather(1, true_B1)
                known_BC = torch.zeros_like(scores_BC, dtype=torch.bool)
                known_BC[known_answers(self.known, at, part)] = True
                scores_BC.masked_fill_(known_BC, float("-inf")).scatter_(1, true_B1, own_B1)
                rank_B = rank(scores_BC, true_B1[:, 0]).realistic_B.floor().long()
                chance_B = self._log_probabilities(scores_BC, part, own_B1)[:, 0].exp()
                rows = (own_B1[:, 0], chance_B, rank_B, known_BC.gather(1, true_B1)[:, 0])
                judged += list(zip(*(row.tolist() for row in rows), strict=True))
        return [Judged(*fact, *rest) for fact, rest in zip(triples, judged, strict=True)]

    # vectors

    def embed(self, names: str | Iterable[str] | None = None) -> npt.NDArray[np.float32]:
        """A row of numbers for each of the entities, or for all in the order of their ids."""
        if names is None:
            self.refresh()
            return self.vectors.flat().float().cpu().numpy()
        ids = self.entity_names.ids([names] if isinstance(names, str) else names)
        return self.vectors.flat(ids.to(self.graph.device)).float().cpu().numpy()

    def similar(self, name: str, k: int = 10) -> list[Neighbour]:
        """The k entities whose vectors point most nearly the same way."""
        check_k(k)
        ids, near = self.vectors.nearest(self.entity_names.id(name), k)
        names = self.entity_names.names(ids)
        return [Neighbour(i + 1, names[i], value) for i, value in enumerate(near)]

    # what is missing

    def missing(
        self,
        k: int = 100,
        *,
        relations: str | Iterable[str] | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Missing]:
        """The k most plausible triples that the graph lacks, best first.

        Every head and tail that a relation (of those given, or any) has in the graph is tried with
        every other, a bounded number at a time.
        """
        check_task(self.artifact.config.task, "link")
        check_k(k)
        self.refresh()
        wanted = self._wanted(relations)
        triples_K3, scores_K, plausible_K = most_plausible(
            self.model, self.vectors.all, self.vectors.describe, self.known, wanted, k,
            self._temperature("tail"), rows_at_once(self.model, self.vectors.all), progress,
        )  # fmt: skip
        heads, tails = (self.entity_names.names(triples_K3[:, i].cpu()) for i in (0, 2))
        names = zip(heads, self.relation_names.names(triples_K3[:, 1]), tails, strict=True)
        rows = zip(names, scores_K.tolist(), plausible_K.tolist(), strict=True)
        for i, (triple, score, plausible) in enumerate(rows):
            yield Missing(i + 1, *triple, score, plausible)

    # reasons

    def explain(
        self, head: str, relation: str, tail: str, asked: Part | None = None
    ) -> Explanation:
        """The paths that moved the triple's score, each by leaving it out.

        They are paths of the head and of the tail and, where the model has bridges, between them.
        `asked` is the part that the score, rank and probability are of, as in `score`.
        """
        [judged] = self.score([(head, relation, tail)], asked)
        pair = self._pair(head, relation, tail, asked)
        whole, alone = pair.without(), pair.without(pair.paths) - float(pair.bridged)
        paths = [
            PathEvidence(p.of, self._named(p.steps), len(p.numbers), whole - pair.without([p]))
            for p in pair.paths
        ]
        paths.sort(key=lambda path: -abs(path.effect))
        bridged, found = effects(self.model, self.vectors.describe, pair.triple_3, pair.part)
        bridges = [BridgeEvidence(self._named(path.steps), effect) for path, effect in found]
        figures = judged.score, judged.probability, judged.rank, alone
        return Explanation(head, relation, tail, *figures, paths, bridged, bridges)

    def score_without(
        self, head: str, relation: str, tail: str,
        paths: Iterable[PathEvidence | BridgeEvidence], asked: Part | None = None,
    ) -> float:  # fmt: skip
        """The triple's score when some paths of its explanation are left out together."""
        pair = self._pair(head, relation, tail, asked)
        gone = {(getattr(path, "of", "between"), tuple(path.steps)) for path in paths}
        left = pair.without(p for p in pair.paths if (p.of, tuple(self._named(p.steps))) in gone)
        return left - joint_effect(
            self.model, self.vectors.describe, pair.triple_3, pair.part,
            lambda path: ("between", tuple(self._named(path.steps))) in gone,
        )  # fmt: skip

    def _pair(self, head: str, relation: str, tail: str, asked: Part | None) -> Pair:
        part: Part = asked or ("tail" if self.model.link_head else "relation")
        check_task(self.artifact.config.task, "relation" if part == "relation" else "link")
        triple_3 = self._ids([(head, relation, tail)])[0]
        return Pair(self.model, self.vectors.describe, triple_3, part, self.seed)

    def rules(
        self, relations: str | Iterable[str] | None = None, k: int = 5, *, facts: int = 32
    ) -> Iterator[Rule]:
        """For each relation (of those given, or all) the k paths that the model trusts most.

        Judged by some facts of the relation, each looked at as if it were missing.
        """
        if self.model.bridge is None or self.model.link_head is None:
            raise ConfigError("Rules need bridges: train links with --set bridge=paths.")
        check_k(k)
        for found in learned_rules(
            self.model, self.vectors.describe, self._wanted(relations), k=k, n_facts=facts,
            seed=self.seed, whole_pairs=self.artifact.config.hold_out_pairs,
        ):  # fmt: skip
            yield from (rule.named(self.relation_names) for rule in found)

    def _wanted(self, relations: str | Iterable[str] | None) -> list[int]:
        """Ids of the relations given, or of all."""
        if relations is None:
            return list(range(len(self.relation_names)))
        relations = [relations] if isinstance(relations, str) else relations
        return sorted(set(self.relation_names.ids(relations).tolist()))

    def _named(self, steps: Iterable[tuple[int, int, int]]) -> list[Fact]:
        entities, relations = self.entity_names, self.relation_names
        return [(entities[h], relations[r], entities[t]) for h, r, t in steps]

    # new facts

    def add(self, facts: Iterable[Fact]) -> int:
        """Puts facts, with new entities or not, into the graph; gives how many were new to it.

        Entities named in them, and those asked about later, are described anew at once. Others
        keep their vectors, though some of their paths might now run through the new facts:
        `refresh` brings all up to date. (A model of mined paths mines them all again.)
        """
        facts = list(facts)
        for fact in facts:
            check_fact(fact)
        relations = self._relation_ids([fact[1] for fact in facts])  # unknown ones raise first
        heads, tails = (torch.tensor([self.entity_names.add(f[i]) for f in facts]) for i in (0, 2))
        rows_N3 = torch.stack([heads, relations, tails], 1)
        grown = grow(self.graph, self.known, rows_N3, len(self.entity_names))
        self.graph, self.known, new_N3 = grown
        if len(new_N3):
            describe = self.vectors.describe.on(self.graph)
            if describe.store is not None:  # mined paths are fixed: they are mined again
                describe = build_describer(self.artifact.config, self.graph, self.n_paths)
            self.vectors.grow(describe, new_N3[:, [0, 2]].unique().long())
        return len(new_N3)

    def refresh(self) -> None:
        """Brings every vector up to date with the facts added, at the next question."""
        self.vectors.refresh()

    def warm(self, progress: Progress | None = None) -> None:
        """Encodes every entity now, rather than at the first question."""
        self.vectors.warm(progress)

    # within

    def _ids(self, questions: list[Any]) -> Tensor:
        """(B, 3) ids of questions that leave the same part open, -1 there."""
        columns = []
        for place in range(3):
            names = [question[place] for question in questions]
            if names[0] is None:
                columns.append(torch.full((len(names),), -1))
            else:
                ids = self._relation_ids if place == 1 else self.entity_names.ids
                columns.append(ids(names))
        return torch.stack(columns, 1).to(self.graph.device)

    def _relation_ids(self, names: list[str]) -> Tensor:
        try:
            return self.relation_names.ids(names)
        except UnknownNameError as error:
            for name in names:
                if name in self.relation_map and name not in self.relation_names:
                    theirs = self.relation_map[name]
                    raise UnknownNameError(
                        f"{error} The relation map makes {name!r} {theirs!r}: ask with that."
                    ) from None
            raise

    @torch.no_grad()
    def _scores(self, ids_B3: Tensor, part: Part) -> Iterator[tuple[Tensor, Tensor]]:
        """(questions, a score for every answer), as many questions at a time as memory takes."""
        check_task(self.artifact.config.task, "relation" if part == "relation" else "link")
        describe = self.vectors.describe
        if part == "relation":
            for at in ids_B3.split(AT_ONCE):
                z_B2 = self.vectors.current(at[:, [0, 2]].flatten()).unflatten(0, (-1, 2))
                z_h, z_t = z_B2.unbind(1)
                scores = self.model.relation_scores(z_h, z_t).float()
                yield at, bridge_relations(self.model, describe, scores, at[:, 0], at[:, 2])
            return
        answers_E = self.vectors.candidates(part)
        for at in ids_B3.split(rows_at_once(self.model, self.vectors.all)):
            ends = at[:, [0, 2]].flatten()
            self.vectors.current(ends[ends >= 0])  # those named are up to date, as answers, too
            fixed_B = at[:, 2 if part == "head" else 0]
            z_B = self.vectors.current(fixed_B)
            scores = self.model.candidate_scores(z_B, at[:, 1], answers_E, part).float()
            yield at, bridge_links(self.model, describe, scores, fixed_B, at[:, 1], part)

    def _temperature(self, part: Part) -> float:
        return self.artifact.temperatures.get("relation" if part == "relation" else "link", 1.0)

    def _log_probabilities(self, scores_BC: Tensor, part: Part, of_BK: Tensor) -> Tensor:
        """Of some scores among all of a row."""
        warmth = self._temperature(part)
        return of_BK / warmth - (scores_BC / warmth).logsumexp(1, keepdim=True)

    def _best(
        self, ids_B3: Tensor, part: Part, k: int, filter_known: bool
    ) -> Iterator[list[Answer]]:
        names = self.relation_names if part == "relation" else self.entity_names
        for at, scores_BC in self._scores(ids_B3, part):
            pairs = known_answers(self.known, at, part)
            known_BC = torch.zeros_like(scores_BC, dtype=torch.bool)
            known_BC[pairs] = True
            if filter_known:
                scores_BC.masked_fill_(known_BC, float("-inf"))
            best = scores_BC.topk(min(k, scores_BC.shape[1]))
            chances_BK = self._log_probabilities(scores_BC, part, best.values).exp()
            known_BK = known_BC.gather(1, best.indices)
            all_names = iter(names.names(best.indices.flatten().cpu()))
            for row in zip(
                best.values.tolist(), chances_BK.tolist(), known_BK.tolist(), strict=True
            ):
                cells = list(zip(islice(all_names, len(row[0])), *row, strict=True))
                yield [
                    Answer(i + 1, name, score, chance, known)
                    for i, (name, score, chance, known) in enumerate(cells)
                    if score > float("-inf")
                ]
