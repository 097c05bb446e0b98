"""The work of each command, by ranges of queries, triples or entities.

Shards end where the chunks of one process end, so that sums are rounded alike everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from pathe.cluster.graphs import Source
from pathe.cluster.job import Compute, Job, shards_of
from pathe.core.types import Part, Query
from pathe.data.array_files import read_only_tensor
from pathe.data.row_files import arrow_schema
from pathe.graph.context_vectors import arriving, both_halves, own_signs
from pathe.graph.named_paths import PATH_ROW, PathSettings, paths_of_range
from pathe.model.builder import build_scorer
from pathe.model.featurizer import chunk_encoder, entities_at_once
from pathe.model.ranks import Ranks
from pathe.model.scorer import BLOCK, PAIR_CHUNK, Scorer, VectorScorer
from pathe.predict.candidates import QueryCandidates
from pathe.predict.predictor import queries_at_once
from pathe.predict.results import ANSWER_ROW, answer_rows

ENTITIES = 1 << 13  # per shard, about
Floats = npt.NDArray[np.float32]
RANK_COLUMNS: dict[str, type] = {"optimistic": int, "pessimistic": int, "candidates": int}


def _digest(value: Any) -> str:
    return blake2b(repr(value).encode(), digest_size=8).hexdigest()


# answers


@dataclass(frozen=True)
class Answering:
    """Answers queries: rows of ANSWER_ROW."""

    source: Source
    queries: Sequence[Query]
    k: int
    filter_known: bool
    which: QueryCandidates

    def open(self) -> Compute:
        p, schema = self.source.predictor(), arrow_schema(ANSWER_ROW)

        def compute(first: int, stop: int) -> pa.Table:
            queries = self.queries[first:stop]
            found = p.answer(queries, self.k, filter_known=self.filter_known, **self.which)
            pairs = zip(queries, found, strict=True)
            rows = [row for query, answers in pairs for row in answer_rows(query, answers)]
            return pa.Table.from_pylist(rows, schema)

        return compute


def answer_job(
    source: Source,
    queries: Sequence[Query],
    k: int,
    *,
    filter_known: bool = True,
    which: QueryCandidates | None = None,
) -> Job:
    """Returns the job of `Predictor.answer`."""
    which = which or {}
    settings: dict[str, Any] = {"k": k, "filter_known": filter_known}
    settings |= {"candidates": _digest(sorted(which.items())), "queries": _digest(list(queries))}
    work = Answering(source, queries, k, filter_known, which)
    shards = shards_of(len(queries), queries_at_once(k))
    return Job("answers", work, shards, source.about() | {"settings": settings}, source.device)


# ranks


@dataclass(frozen=True)
class Ranking:
    """Ranks parts of triples: of all triples the first part, then the next."""

    source: Source
    triples: npt.NDArray[np.int64]
    parts: tuple[Part, ...]
    n_paths: int | None
    seed: int

    def open(self) -> Compute:
        prepared, artifact = self.source.prepared(), self.source.artifact
        assert artifact is not None
        scorer = build_scorer(
            artifact.model, artifact.config, prepared,
            n_paths=self.n_paths, seed=self.seed, frontier=self.source.frontier,
        )  # fmt: skip
        triples_M3 = read_only_tensor(self.triples).to(prepared.device)
        if self.parts == ("relation",):
            scorer.ensure(triples_M3[:, [0, 2]])
        elif isinstance(scorer, VectorScorer):
            scorer.warm()
        ordered = {part: triples_M3[scorer.order(triples_M3, part)] for part in self.parts}

        def compute(first: int, stop: int) -> pa.Table:
            number, begin = divmod(first, len(triples_M3))
            part = self.parts[number]
            ids_N3 = ordered[part][begin : begin + stop - first]
            ranks = scorer.rank(ids_N3, part, prepared.known())
            columns = (ranks.optimistic_B, ranks.pessimistic_B, ranks.candidates_B)
            arrays = [pa.array(column.cpu().numpy().astype(np.int64)) for column in columns]
            return pa.table(arrays, schema=arrow_schema(RANK_COLUMNS))

        return compute


def rank_job(source: Source, scorer: Scorer, triples_M3: Tensor, parts: tuple[Part, ...]) -> Job:
    """Returns the job of ranking parts of triples among all candidates."""
    triples = triples_M3.cpu().numpy()
    work = Ranking(source, triples, parts, scorer.n_paths, scorer.seed)
    shards = []
    for number, part in enumerate(parts):
        size = PAIR_CHUNK if part == "relation" else BLOCK
        shards += shards_of(len(triples), size, number * len(triples))
    settings: dict[str, Any] = {
        "parts": list(parts),
        "n_paths": scorer.n_paths,
        "seed": scorer.seed,
    }
    settings["triples"] = _digest(triples.tobytes())
    return Job("ranks", work, shards, source.about() | {"settings": settings}, source.device)


def joined_ranks(
    tables: Iterable[pa.Table], scorer: Scorer, triples_M3: Tensor, parts: tuple[Part, ...]
) -> dict[Part, Ranks]:
    """Returns the ranks of a job's parts, in the order of the triples."""
    table = pa.concat_tables(tables)
    columns = [torch.tensor(table[name].to_numpy()) for name in RANK_COLUMNS]
    found = {}
    for number, part in enumerate(parts):
        back_M = scorer.order(triples_M3, part).argsort().cpu()
        own = slice(number * len(triples_M3), (number + 1) * len(triples_M3))
        found[part] = Ranks(*(column[own][back_M].to(triples_M3.device) for column in columns))
    return found


# vectors


@dataclass(frozen=True)
class Encoding:
    """Encodes entities with a model that has entity vectors."""

    source: Source

    def open(self) -> Compute:
        scorer = self.source.predictor().scorer
        assert isinstance(scorer, VectorScorer)
        model, featurizer, n = scorer.model, scorer.featurizer, scorer.prepared.n_entities
        encode = chunk_encoder(model, featurizer, n, seed=scorer.seed)
        entities_E = torch.arange(n, device=scorer.prepared.device)

        def compute(first: int, stop: int) -> pa.Table:
            chunks = entities_E[first:stop].split(entities_at_once(featurizer))
            z = torch.cat([encode(entities_U) for entities_U in chunks])
            return vector_table(model.aggregator.vectors(z).float().cpu().numpy())

        return compute


@dataclass(frozen=True)
class Neighbourhoods:
    """Describes entities by what arrives at them: from neighbours, then from theirs.

    The second half needs the first half of all entities, so these are two jobs.
    """

    source: Source
    first: Floats | None = None  # lies once per node: workers map it from the object store

    def open(self) -> Compute:
        p = self.source.predictor()
        entity_keys_E, relation_keys_R = p.keys()
        given_EW = None if self.first is None else read_only_tensor(self.first)
        sent_EW = own_signs(entity_keys_E) if given_EW is None else given_EW.to(p.prepared.device)

        def compute(first: int, stop: int) -> pa.Table:
            found_UW = arriving(p.prepared, sent_EW, relation_keys_R, (first, stop))
            if given_EW is not None:
                found_UW = both_halves(sent_EW[first:stop], found_UW)
            return vector_table(found_UW.cpu().numpy())

        return compute


def embed_job(source: Source) -> Job:
    """Returns the job of all entities' vectors, or of their first halves (see `second_half`)."""
    p = source.predictor()
    n, about = p.prepared.n_entities, source.about()
    if isinstance(p.scorer, VectorScorer):
        chunk = entities_at_once(p.scorer.featurizer)
        shards = shards_of(n, chunk * max(ENTITIES // chunk, 1))
        about |= {"settings": {"n_paths": p.scorer.n_paths, "seed": p.scorer.seed}}
        return Job("vectors", Encoding(source), shards, about, source.device)
    return Job("neighbours", Neighbourhoods(source), shards_of(n, ENTITIES), about, source.device)


def embedded(source: Source, run: Callable[[Job], Iterable[pa.Table]]) -> Floats:
    """Returns a vector per entity; `run` runs a job and returns the rows of its parts."""
    job = embed_job(source)
    vectors = joined_vectors(run(job))
    if isinstance(job.work, Neighbourhoods):
        vectors = joined_vectors(run(second_half(job, vectors)))
    return vectors


def second_half(job: Job, first_EW: Floats) -> Job:
    """Returns the job of whole vectors, given their first halves."""
    assert isinstance(job.work, Neighbourhoods)
    work = replace(job.work, first=first_EW)
    about = {**job.about, "settings": {"neighbours": _digest(first_EW.tobytes())}}
    return replace(job, name="vectors", work=work, about=about)


def vector_table(vectors_UD: Floats) -> pa.Table:
    """Returns vectors as the rows of a table."""
    flat = pa.array(np.ascontiguousarray(vectors_UD).reshape(-1))
    return pa.table({"vector": pa.FixedSizeListArray.from_arrays(flat, vectors_UD.shape[1])})


def joined_vectors(tables: Iterable[pa.Table]) -> Floats:
    """Returns the vectors of tables as one array."""
    parts = []
    for table in tables:
        column = table["vector"].combine_chunks()
        flat = column.flatten().to_numpy(zero_copy_only=False)
        parts.append(flat.reshape(len(column), -1))
    return np.concatenate(parts)


# paths


@dataclass(frozen=True)
class Walking:
    """Samples or mines the paths of entities: rows of PATH_ROW."""

    source: Source
    settings: PathSettings

    def open(self) -> Compute:
        prepared, schema = self.source.prepared(), arrow_schema(PATH_ROW)

        def compute(first: int, stop: int) -> pa.Table:
            found = paths_of_range(prepared, self.settings, first, stop)
            rows = [{"entity": name, "path": json.dumps(path, ensure_ascii=False)}
                    for name, path in found]  # fmt: skip
            return pa.Table.from_pylist(rows, schema)

        return compute


def path_job(source: Source, settings: PathSettings) -> Job:
    """Returns the job of all entities' paths."""
    shards = shards_of(source.prepared().n_entities, settings.at_once)
    about = source.about() | {"settings": vars(settings)}
    return Job("paths", Walking(source, settings), shards, about)
