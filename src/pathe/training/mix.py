"""The graphs of a pre-training run, and what a step draws from them.

A step draws a graph, a batch of its triples and edges to drop. The batch's edges are held out, and
everything that the model sees (edges, relation graph, contexts) is computed from what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pathe.core.config import MANY, SEEDS, check_bounds, setting
from pathe.core.errors import ConfigError
from pathe.core.randomness import draw, keyed
from pathe.core.tensors import Tensors
from pathe.core.types import SIDES
from pathe.data.triples import unique_triples
from pathe.graph.adjacency import Graph, build_graph
from pathe.graph.edges import Edges, both_ways
from pathe.graph.held_out import HeldOut, Pairs, by_pair
from pathe.graph.known import KnownTriples
from pathe.graph.relation_graph import Arrivals, arrivals
from pathe.graph.subgraphs import sample_subgraph, vary_relations
from pathe.model.foundation import BRIDGED, GraphView, view
from pathe.model.propagation import Reach

GRAPH, BATCH, SUBGRAPH = range(1, 4)  # purposes of draws
SAMPLED = 4096  # random candidates of a step on a large graph
PAIRS = 4  # a batch of relation queries is smaller than one of link queries by this factor
ROWS = 1 << 22  # most rows (query, entity) of a batch of relation queries
SPARSEST = 2.5  # edges per entity that are left at least, where edges are dropped


@dataclass(frozen=True)
class MixSettings:
    """Which graphs a run draws, and what it hides from them."""

    whole_share: float = setting(
        0.3, "fraction of steps on whole graphs instead of subgraphs", least=0, most=1
    )
    n_subgraphs: int = setting(256, "subgraphs in the mix", least=1, most=10**6)
    least_entities: int = setting(300, "entities of the smallest subgraph", least=2, most=MANY)
    most_entities: int = setting(5000, "entities of the largest subgraph", least=2, most=MANY)
    thin_share: float = setting(
        0.7, "fraction of subgraphs that are sampled without some of their edges", least=0, most=1
    )
    vary_share: float = setting(
        0.5,
        "fraction of subgraphs with augmented relations: reversed, split, merged, duplicated",
        least=0,
        most=1,
    )
    drop_share: float = setting(
        0.3, "fraction of steps that drop further random edges", least=0, most=1
    )
    pair_share: float = setting(
        0.0,
        "fraction of steps that hold out all edges between the entities of each triple",
        least=0,
        most=1,
    )
    relation_share: float = setting(
        0.25, "fraction of steps that predict relations instead of entities", least=0, most=1
    )
    least_batch: int = setting(16, "minimum batch size, in triples", least=1, most=MANY)
    most_batch: int = setting(128, "maximum batch size, in triples", least=1, most=MANY)
    work: int = setting(
        1 << 23, "batch size times edges: larger graphs get smaller batches", least=1, most=1 << 40
    )
    seed: int = setting(0, "seed of weights, graphs and batches", **SEEDS)

    def __post_init__(self) -> None:
        check_bounds(self)
        for least, most in (("least_entities", "most_entities"), ("least_batch", "most_batch")):
            if getattr(self, least) > getattr(self, most):
                raise ConfigError(
                    f"{least} must be at most {most}; got {getattr(self, least)} and "
                    f"{getattr(self, most)}."
                )


@dataclass(frozen=True)
class MixGraph:
    """A graph of the mix, with the indices that a step needs."""

    name: str
    number: int  # in the mix, counted from 0; subgraphs come after the whole graphs
    edges: Edges
    index: Arrivals
    triples_M3: Tensor
    pairs: Pairs
    known: KnownTriples

    @property
    def degree(self) -> float:
        """Edges per entity."""
        return len(self.edges.relations_M) / self.edges.n_entities


@dataclass(frozen=True)
class MixStep(Tensors):
    """The inputs of a step: a graph without the batch's edges, queries and their answers.

    Queries are (source, kind) for an entity, or (source, target) for a relation; the third part is
    the answer. Kinds are given as rows of the distinct ones.
    """

    part: Literal["entity", "relation"]
    graph: GraphView
    sources_N: Tensor
    kinds_Q: Tensor
    rows_N: Tensor
    targets_N: Tensor
    open_NC: Tensor  # candidates that are not known answers
    reached: Reach | None = None
    frontier: int = 0  # see `frontier_size`
    candidates_C: Tensor | None = None  # those scored, ascending; None: all

    @property
    def kinds_N(self) -> Tensor:
        """The kind of each query."""
        return self.kinds_Q[self.rows_N]


class Mix:
    """Whole graphs, and subgraphs of them that are sampled when first drawn."""

    def __init__(
        self, graphs: dict[str, Graph], settings: MixSettings, device: torch.device | str
    ) -> None:
        self.names, self.graphs = list(graphs), list(graphs.values())
        self.settings, self.device = settings, torch.device(device)
        sizes = [g.n_triples for g in self.graphs]
        roots = torch.tensor(sizes, dtype=torch.float64).sqrt()
        self.chances = roots.cumsum(0) / roots.sum()
        self._made: dict[int, MixGraph] = {}
        self._generator = torch.Generator()  # on the CPU, so that all devices draw the same

    def draw(self, step: int) -> MixGraph:
        """Returns the graph of a step; whole ones are drawn by the root of their size."""
        settings = self.settings
        which, whole, number = _uniforms(settings.seed, GRAPH, step, n=3)
        if whole < settings.whole_share:
            return self.get(self._pick(which))
        return self.get(len(self.graphs) + int(number * settings.n_subgraphs))

    def get(self, number: int) -> MixGraph:
        """Returns a graph of the mix by its number."""
        if number not in self._made:
            if number < len(self.graphs):
                name, graph = self.names[number], self.graphs[number]
            else:
                name, graph = self._subgraph(number)
            self._made[number] = _indexed(name, number, graph.to(self.device))
        return self._made[number]

    def step(self, step: int) -> tuple[MixGraph, MixStep]:
        """Draws the graph and the inputs of a step."""
        graph, settings = self.draw(step), self.settings
        n, edges, size = len(graph.triples_M3), graph.edges, self.batch_size(graph)
        with_pairs, drops, share, task = _uniforms(settings.seed, BATCH, step, n=4)
        n_pairs = max(size // PAIRS, 1)  # each pair has many queries
        fits = n_pairs * edges.n_entities * BRIDGED <= ROWS
        of_relation = task < settings.relation_share and edges.n_relations > 1 and fits
        size = n_pairs if of_relation else size
        generator = self._generator.manual_seed(int(keyed(settings.seed, BATCH, step)))
        random_M = torch.rand(n, generator=generator).to(self.device)
        ids_B = random_M.topk(size, largest=False).indices
        held_out = HeldOut(ids_B)
        if with_pairs < settings.pair_share:
            held_out = HeldOut(mask_M=graph.pairs.flag_same(ids_B))
        held_out_M = held_out.mask(n)
        if drops < settings.drop_share:  # the smallest numbers, the batch among them
            held_out_M = held_out_M | (random_M < 1 - _kept(graph.degree, share))
        seen = view(graph.index, edges.keep(HeldOut(mask_M=held_out_M)))
        make = relation_step if of_relation else link_step
        return graph, make(graph, seen, graph.triples_M3[ids_B])

    def batch_size(self, graph: MixGraph) -> int:
        """Returns the triples per step on a graph; at most a quarter of all."""
        settings, n = self.settings, len(graph.triples_M3)
        wanted = settings.work // (2 * n)
        most = min(settings.most_batch, max(n // 4, 1))
        return min(max(wanted, settings.least_batch), most)

    def _pick(self, uniform: float) -> int:
        return min(int(torch.searchsorted(self.chances, uniform)), len(self.graphs) - 1)

    def _subgraph(self, number: int) -> tuple[str, Graph]:
        settings = self.settings
        which, size, thins, share, varies = _uniforms(settings.seed, SUBGRAPH, number, n=5)
        seed, i = abs(int(keyed(settings.seed, SUBGRAPH, number))), self._pick(which)
        n_entities = _between(settings.least_entities, settings.most_entities, size)
        triples_M3 = sample_subgraph(self.graphs[i], round(n_entities), seed)
        if thins < settings.thin_share:
            n_present = len(triples_M3[:, [0, 2]].unique())
            kept = _kept(2 * len(triples_M3) / n_present, share)
            order_M = keyed(seed, torch.arange(len(triples_M3))).argsort()
            n_kept = max(round(kept * len(triples_M3)), 1)
            triples_M3 = triples_M3[order_M[:n_kept].sort().values]
        if varies < settings.vary_share:
            triples_M3 = vary_relations(triples_M3, seed)
        return f"{self.names[i]}/{number}", _compact(triples_M3)


def _indexed(name: str, number: int, graph: Graph) -> MixGraph:
    edges, triples_M3 = both_ways(graph), graph.triples_M3.long()
    pairs, known = by_pair(triples_M3, graph.n_entities), KnownTriples(triples_M3)
    return MixGraph(name, number, edges, arrivals(edges), triples_M3, pairs, known)


def link_step(graph: MixGraph, seen: GraphView, triples_B3: Tensor) -> MixStep:
    """Returns the inputs of a step that predicts tails and heads."""
    heads_B, relations_B, tails_B = triples_B3.unbind(1)
    open_NE = triples_B3.new_ones(2 * len(triples_B3), graph.edges.n_entities, dtype=torch.bool)
    for side, open_BE in zip(SIDES, open_NE.chunk(2), strict=True):
        lists, keys_B = graph.known.answers(triples_B3, side)
        lists.close(open_BE, keys_B)
    kinds_N = torch.cat([relations_B, relations_B + graph.edges.n_relations])
    kinds_Q, rows_N = kinds_N.unique(return_inverse=True)
    sources_N, targets_N = torch.cat([heads_B, tails_B]), torch.cat([tails_B, heads_B])
    return MixStep("entity", seen, sources_N, kinds_Q, rows_N, targets_N, open_NE)


def sampled_link_step(
    graph: MixGraph, seen: GraphView, triples_B3: Tensor, frontier: int, seed: Tensor | int
) -> MixStep:
    """Returns the inputs of a step on a graph that is too large to score all of its entities.

    Bridges keep a `frontier`, and candidates are the batch's answers and a random sample.
    """
    n, n_relations = graph.edges.n_entities, graph.edges.n_relations
    heads_B, relations_B, tails_B = triples_B3.unbind(1)
    numbers = torch.arange(min(SAMPLED, n), device=triples_B3.device)
    random_C = keyed(seed, numbers).remainder(n)
    candidates_C = torch.cat([random_C, heads_B, tails_B]).unique()
    opens = []
    for side in SIDES:
        lists, keys_B = graph.known.answers(triples_B3, side)
        opens.append(~lists.listed(keys_B, candidates_C))
    kinds_N = torch.cat([relations_B, relations_B + n_relations])
    kinds_Q, rows_N = kinds_N.unique(return_inverse=True)
    sources_N, targets_N = torch.cat([heads_B, tails_B]), torch.cat([tails_B, heads_B])
    return MixStep(
        "entity", seen, sources_N, kinds_Q, rows_N, torch.searchsorted(candidates_C, targets_N),
        torch.cat(opens), frontier=frontier, candidates_C=candidates_C,
    )  # fmt: skip


def relation_step(graph: MixGraph, seen: GraphView, triples_B3: Tensor) -> MixStep:
    """Returns the inputs of a step that predicts relations."""
    heads_B, relations_B, tails_B = triples_B3.unbind(1)
    open_BR = triples_B3.new_ones(len(triples_B3), graph.edges.n_relations, dtype=torch.bool)
    lists, keys_B = graph.known.answers(triples_B3, "relation")
    lists.close(open_BR, keys_B)
    kinds_R = torch.arange(graph.edges.n_relations, device=heads_B.device)
    return MixStep("relation", seen, heads_B, kinds_R, relations_B, tails_B, open_BR)


def _compact(triples_M3: Tensor) -> Graph:
    """Returns the graph of triples, with only the entities and relations that occur."""
    entities, ends_M2 = triples_M3[:, [0, 2]].unique(return_inverse=True)
    relations, kinds_M = triples_M3[:, 1].unique(return_inverse=True)
    triples_M3 = torch.stack([ends_M2[:, 0], kinds_M, ends_M2[:, 1]], 1).int()
    triples_M3 = unique_triples(triples_M3)[0]
    return build_graph(triples_M3, len(entities), len(relations))


def _kept(degree: float, uniform: float) -> float:
    """Returns a random share of edges to keep: edges per entity from SPARSEST to all."""
    return min(_between(min(SPARSEST, degree), degree, uniform) / degree, 1.0)


def _between(low: float, high: float, uniform: float) -> float:
    """Returns a number between low and high, evenly distributed on a logarithmic scale."""
    return math.exp(math.log(low) + (math.log(high) - math.log(low)) * uniform)


def _uniforms(seed: int, *keys: int, n: int) -> list[float]:
    """Returns n numbers in [0, 1), by a hash of the keys."""
    bits = draw(keyed(seed, *keys), torch.arange(n))
    found: list[float] = ((bits >> 11) & ((1 << 53) - 1)).double().div(1 << 53).tolist()
    return found
