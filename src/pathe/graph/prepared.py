"""A knowledge graph prepared for a model: built once per graph and device, then reused."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from pathe.core.errors import ConfigError
from pathe.core.types import Side
from pathe.data.knowledge_graph import SPLITS, KnowledgeGraph
from pathe.data.triples import unique_triples
from pathe.graph.adjacency import Graph, build_graph
from pathe.graph.edges import Edges, both_ways
from pathe.graph.functionality import Functionality, functionality
from pathe.graph.growth import extend_graph, holds
from pathe.graph.held_out import ContextSlots, Pairs, by_pair, context_slots
from pathe.graph.kinds import Kinds
from pathe.graph.known import KnownTriples
from pathe.graph.relation_graph import Arrivals, arrivals
from pathe.graph.stored import stored_arrivals, stored_edges, stored_graph, stored_known

TestSet = Literal["seen", "unseen", "all"]  # seen: both entities occur in training


class PreparedGraph:
    """Adjacency, edges, contexts and indices of one knowledge graph on one device.

    The graph has training triples only. The other parts are built when first used and cached.
    `add`, `remove` and `without` return a new one.
    """

    def __init__(
        self, kg: KnowledgeGraph, device: torch.device | str = "cpu", *, graph: Graph | None = None
    ) -> None:
        self._folder = (
            kg.stored("train") if graph is None and isinstance(kg, KnowledgeGraph) else None
        )
        if self._folder is not None:
            graph = stored_graph(self._folder)
        elif graph is None:
            graph = build_graph(kg.train, kg.n_entities, kg.n_relations)
        self.kg, self.graph = kg, graph.to(device)
        self._known: dict[tuple[str, ...], KnownTriples] = {}
        self._added_N3 = torch.empty((0, 3), dtype=torch.int32, device=self.device)
        self._removed_N3 = self._added_N3  # of all splits and of those added

    @property
    def n_entities(self) -> int:
        return self.graph.n_entities

    @property
    def n_relations(self) -> int:
        return self.graph.n_relations

    @property
    def device(self) -> torch.device:
        return self.graph.device

    @cached_property
    def train_M3(self) -> Tensor:
        """Training triples as int64 on the device; a triple's row is its id."""
        return self.graph.triples_M3.long()

    @cached_property
    def edges(self) -> Edges:
        """Edges in both directions."""
        if self._folder is not None:
            return stored_edges(self._folder).to(self.device)
        return both_ways(self.graph)

    @cached_property
    def arrivals(self) -> Arrivals:
        """Which kinds of edges arrive at each entity."""
        if self._folder is not None:
            return stored_arrivals(self._folder).to(self.device)
        return arrivals(self.edges)

    @cached_property
    def seen_E(self) -> Tensor:
        """Which entities occur in training."""
        return self.graph.degrees_E > 0

    @cached_property
    def seen_R(self) -> Tensor:
        """Which relations occur in training."""
        return torch.bincount(self.graph.outgoing.relations_M, minlength=self.n_relations) > 0

    @cached_property
    def slots(self) -> ContextSlots:
        """The context entry and adjacency slot of each training triple."""
        return context_slots(self.graph)

    @cached_property
    def pairs(self) -> Pairs:
        """Training triples grouped by the two entities that they connect."""
        return by_pair(self.train_M3, self.n_entities)

    @cached_property
    def functionality(self) -> dict[Side, Functionality]:
        """How many answers the queries of each relation have in training, by side."""
        return functionality(self.graph)

    @cached_property
    def kinds(self) -> Kinds:
        """Which entities could be head or tail of which relation."""
        return Kinds(self.graph)

    def known(self, *splits: str) -> KnownTriples:
        """Returns the index of the triples of the given splits (default: all)."""
        splits = splits or SPLITS
        if splits not in self._known and (stored := self._stored_known(splits)):
            self._known[splits] = stored
        if splits not in self._known:
            rows = [getattr(self.kg, split) for split in splits]
            known_M3 = torch.cat([torch.cat(rows).to(self.device), self._added_N3])
            self._known[splits] = KnownTriples(_less(known_M3, self._removed_N3))
        return self._known[splits]

    def _stored_known(self, splits: tuple[str, ...]) -> KnownTriples | None:
        """Returns the folder's index if it has just these splits: others may be empty."""
        folder = self._folder and self.kg.stored(*SPLITS)
        if folder is None or any(len(self.kg.splits[s]) for s in SPLITS if s not in splits):
            return None
        rows = [self.kg.splits[split] for split in splits if len(self.kg.splits[split])]
        known_M3 = (rows[0] if len(rows) == 1 else torch.cat(rows)).to(self.device)
        lists = {part: own.to(self.device) for part, own in stored_known(folder).items()}
        return KnownTriples(known_M3, lists)

    def triples(self, split: str, test_set: TestSet = "all") -> Tensor:
        """Returns a split's triples as int64 on the device.

        `seen` selects those whose entities both occur in training, `unseen` the others.
        """
        triples_M3: Tensor = getattr(self.kg, split).to(self.device).long()
        if test_set == "all":
            return triples_M3
        if test_set not in ("seen", "unseen"):
            raise ConfigError(f"The test set is seen, unseen or all; got {test_set!r}.")
        seen_M = self.seen_E[triples_M3[:, [0, 2]]].all(1)
        return triples_M3[seen_M == (test_set == "seen")]

    def with_seen_relations(self, triples_M3: Tensor) -> Tensor:
        """Returns the triples whose relation occurs in training."""
        return triples_M3[self.seen_R[triples_M3[:, 1]]]

    def on(self, device: torch.device | str) -> PreparedGraph:
        """Returns the graph on a device; itself if it is there already."""
        device = torch.device(device)
        if device.type == self.device.type and device.index in (None, self.device.index):
            return self
        moved = PreparedGraph(self.kg, device, graph=self.graph)
        moved._folder = self._folder
        moved._added_N3, moved._removed_N3 = self._added_N3.to(device), self._removed_N3.to(device)
        return moved

    def add(self, triples_N3: Tensor, n_entities: int) -> tuple[PreparedGraph, Tensor]:
        """Returns the graph with more triples and entities, and which triples were new."""
        triples_N3 = unique_triples(triples_N3.cpu())[0].to(self.device)
        new_N3 = triples_N3[~holds(self.graph, triples_N3)]
        larger = PreparedGraph(
            self.kg, self.device, graph=extend_graph(self.graph, new_N3, n_entities)
        )
        indices = list(self._known.items())  # other threads may add one meanwhile
        larger._known = {splits: known.add(triples_N3) for splits, known in indices}
        larger._added_N3 = torch.cat([self._added_N3, triples_N3])
        larger._removed_N3 = _less(self._removed_N3, triples_N3)
        return larger, new_N3

    def remove(self, triples_N3: Tensor) -> PreparedGraph:
        """Returns the graph without some triples, which are no longer known; entities stay."""
        triples_N3 = triples_N3.to(self._added_N3)
        smaller = PreparedGraph(self.kg, self.device, graph=self._graph_without(triples_N3))
        smaller._added_N3 = _less(self._added_N3, triples_N3)
        smaller._removed_N3 = torch.cat([self._removed_N3, triples_N3])
        return smaller

    def without(self, triples_N3: Tensor) -> PreparedGraph:
        """Returns the graph without the edges of some triples, which are still known."""
        smaller = PreparedGraph(self.kg, self.device, graph=self._graph_without(triples_N3))
        smaller._added_N3, smaller._removed_N3 = self._added_N3, self._removed_N3
        smaller._known = self._known
        return smaller

    def ids(self, triples_N3: Tensor) -> Tensor:
        """Returns the ids of those triples that are in the graph, sorted."""
        rows_M = KnownTriples(triples_N3.long()).contains(self.train_M3)
        return rows_M.nonzero().squeeze(1)

    def _graph_without(self, triples_N3: Tensor) -> Graph:
        kept_M3 = _less(self.graph.triples_M3, triples_N3)
        return build_graph(kept_M3, self.n_entities, self.n_relations)


def _less(triples_M3: Tensor, without_N3: Tensor) -> Tensor:
    """Returns the triples that are not among others, in their order."""
    if not len(without_N3) or not len(triples_M3):
        return triples_M3
    return triples_M3[~KnownTriples(without_N3.long()).contains(triples_M3)]


def prepare(
    kg: KnowledgeGraph | PreparedGraph, device: torch.device | str = "cpu"
) -> PreparedGraph:
    """Returns the prepared graph on the device, reusing one that is already prepared."""
    return kg.on(device) if isinstance(kg, PreparedGraph) else PreparedGraph(kg, device)
