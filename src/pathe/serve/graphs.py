"""A graph and a model to serve: names, facts, predictors for several threads, visitors' changes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch

from pathe.core.errors import ConfigError, PatheError, UnknownNameError
from pathe.core.types import Fact
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.model.artifact import CARD, SHIPPED, Artifact, load_model, model_digest, model_folder
from pathe.model.pathe import count_parameters
from pathe.predict.candidates import TypesOf
from pathe.predict.predictor import Predictor
from pathe.serve.journal import Changes, Journal
from pathe.serve.search import NameIndex

Lane = Literal["fast", "medium", "slow"]  # each has a thread, and predictors of its own
OVERLAYS = 1000  # changes of visitors that are kept
CHANGED = 4  # predictors with changes that are kept, per lane
MOST_CHANGES = 100  # facts of an overlay
T = TypeVar("T")


class Cache(Generic[T]):
    """The most recently used values, up to a number or a total size; for several threads."""

    def __init__(self, most: int, size: Callable[[T], int] = lambda value: 1) -> None:
        self.most, self.size, self._lock = most, size, threading.Lock()
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self.total = self.hits = self.misses = 0

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            if key not in self._values:
                self.misses += 1
                return None
            self.hits += 1
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: Hashable, value: T) -> None:
        with self._lock:
            if key in self._values:
                self.total -= self.size(self._values.pop(key))
            self._values[key] = value
            self.total += self.size(value)
            while self.total > self.most:
                self.total -= self.size(self._values.popitem(last=False)[1])


@dataclass(frozen=True)
class Source:
    """What to serve under a name."""

    name: str
    data: KnowledgeGraph
    model: Path | None = None  # None: the pre-trained one
    types: str | TypesOf | None = None
    journal: Path | None = None  # where changes for everyone go; None: the graph is read-only


class ServedGraph:
    """A graph with a model: everything that requests ask for, but for HTTP.

    Valid and test triples are held out: answers are ranked as if they were unknown, and marked.
    """

    def __init__(self, source: Source, device: str = "auto", frontier: int | None = None) -> None:
        kg = source.data
        self.name, self.names = source.name, kg.names
        held_out = torch.cat([kg.valid, kg.test]).tolist()
        self.held_out = {(kg.entities[h], kg.relations[r], kg.entities[t]) for h, r, t in held_out}
        self.artifact: Artifact = load_model(source.model)
        self.folder = SHIPPED if source.model is None else model_folder(source.model)
        self.digest = model_digest(self.folder)
        kg = replace(kg, valid=kg.valid[:0], test=kg.test[:0], inference=None)
        self._base = Predictor(self.artifact, kg, device=device, frontier=frontier)
        if source.types is not None:
            self._base.use_types(source.types)
        self.journal = Journal(source.journal) if source.journal else None
        self._writing = threading.Lock()
        self._overlays: Cache[Changes] = Cache(OVERLAYS)
        self._lanes: dict[Lane, Predictor] = {}
        self._changed: dict[Lane, Cache[tuple[int, Predictor]]] = {}
        self.version = 0  # counts changes for everyone
        for number, changes in enumerate(self.journal.changes if self.journal else [], 1):
            try:
                apply(self._base, changes)
            except PatheError as error:
                self.close()
                raise ConfigError(f"{source.journal}, line {number}: {error}") from None

    def predictor(self, lane: Lane, overlay: str = "") -> Predictor:
        """Returns a lane's predictor for the graph as it is now, with a visitor's changes.

        Call it in the lane's thread.
        """
        version, base = self.version, self._base
        own = self._lanes.get(lane)
        if own is None or own.prepared is not base.prepared:
            own = self._lanes[lane] = base.fork()
        if not overlay:
            return own
        cache = self._changed.setdefault(lane, Cache(CHANGED))
        found = cache.get(overlay)
        if found is None or found[0] != version:
            changed = base.fork()
            apply(changed, self.overlay(overlay))
            found = (version, changed)
            cache.put(overlay, found)
        return found[1]

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()

    def warm(self) -> None:
        """Prepares what the first requests need: the search index, and compiled functions."""
        _ = self._index, self.types_of
        triples_M3 = self._base.prepared.train_M3
        if len(triples_M3):
            [(head, relation, _)] = self._base._named(triples_M3[:1].tolist())
            if self.artifact.config.task != "relation":
                self._base.tails(head, relation, 1)

    # changes

    def add_overlay(self, changes: Changes) -> tuple[str, int, int]:
        """Keeps a visitor's changes; returns their id, a hash of them, and how many were made."""
        if len(changes.add) + len(changes.remove) > MOST_CHANGES:
            raise ConfigError(f"Change at most {MOST_CHANGES} facts at a time.")
        n_added, n_removed = apply(
            self._base.fork(), changes
        )  # changes that can't be made aren't kept
        text = json.dumps([sorted(set(changes.add)), sorted(set(changes.remove))])
        overlay = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._overlays.put(overlay, changes)
        return overlay, n_added, n_removed

    def overlay(self, overlay: str) -> Changes:
        """Returns the changes with this id."""
        found = self._overlays.get(overlay)
        if found is None:
            raise UnknownNameError(f"There is no overlay {overlay!r} any more. Post it again.")
        return found

    def change(self, changes: Changes) -> tuple[int, int]:
        """Changes the graph for everyone; returns how many facts were added and removed.

        Changes are on the disk before anyone sees them. Either all of them are made, or none.
        """
        if self.journal is None:
            raise ConfigError("This graph is read-only: start the server with --writable FILE.")
        with self._writing:
            changed = self._base.fork()  # other threads may be reading the present one
            counts = apply(changed, changes)  # what can't be made isn't written down
            self.journal.append(changes)
            self._base, self.version = changed, self.version + 1
            for cached in ("_index", "_relations", "types_of", "types"):
                vars(self).pop(cached, None)
        return counts

    # names

    def show(self, name: str) -> str:
        """Returns how a name is shown."""
        return self.names.show(name)

    @cached_property
    def _index(self) -> tuple[list[str], NameIndex]:
        p = self._base
        names = p.entity_names.names(torch.arange(len(p.entity_names)))
        degrees = torch.bincount(p.prepared.train_M3[:, [0, 2]].flatten(), minlength=len(names))
        texts = [self.show(name) for name in names]
        return names, NameIndex(texts, degrees.tolist())

    def search(self, text: str, type: str | None, limit: int) -> list[dict[str, Any]]:
        """Returns entities by a part of their name or label."""
        names, index = self._index
        allowed = None
        if type:
            allowed_E = self._base._choices().allowed({"type": type})
            assert allowed_E is not None
            allowed = np.zeros(len(names), dtype=bool)
            mask = allowed_E.cpu().numpy()[: len(names)]
            allowed[: len(mask)] = mask
        found = index.find(text, limit, allowed)
        exact = self._base.entity_names.find(text) if text and not type else None
        if exact is not None and exact < len(names) and exact not in found:
            found = [exact, *found][:limit]
        return [
            {
                "name": names[i],
                "label": self.show(names[i]),
                "facts": int(index.weights[i]),
                "types": self.types_of.get(names[i], []),
            }
            for i in found
        ]

    def relations(self, text: str = "", limit: int = 1000) -> list[dict[str, Any]]:
        """Returns relations by a part of their name or label, frequent ones first."""
        names, index = self._relations
        return [
            {"name": names[i], "label": self.show(names[i]), "facts": int(index.weights[i])}
            for i in index.find(text, limit)
        ]

    @cached_property
    def _relations(self) -> tuple[list[str], NameIndex]:
        names = list(self._base.relation_names)
        counts = torch.bincount(self._base.prepared.train_M3[:, 1], minlength=len(names))
        return names, NameIndex([self.show(name) for name in names], counts.tolist())

    @cached_property
    def types_of(self) -> dict[str, list[str]]:
        """The types of each entity, where the graph has types."""
        choices = self._base._choices()
        if choices._source is None:
            return {}
        names, rows_N2 = choices.types
        found: dict[str, list[str]] = {}
        for entity, type in rows_N2.tolist():
            found.setdefault(self._base.entity_names[entity], []).append(names[type])
        return found

    @cached_property
    def types(self) -> list[dict[str, Any]]:
        """All types, frequent ones first."""
        counts = Counter(type for own in self.types_of.values() for type in own)
        return [
            {"name": name, "label": self.show(name), "entities": n}
            for name, n in counts.most_common()
        ]

    # descriptions

    def about(self) -> dict[str, Any]:
        """Returns the sizes of the graph, and what the model is."""
        prepared, model = self._base.prepared, self.artifact
        title = "pre-trained" if self.folder == SHIPPED else self.folder.name
        return {
            "name": self.name,
            "entities": prepared.n_entities,
            "relations": prepared.n_relations,
            "triples": prepared.graph.n_triples,
            "held_out": len(self.held_out),
            "writable": self.journal is not None,
            "model": {
                "title": title,
                "parameters": count_parameters(model.model),
                "task": model.config.task,
                "digest": self.digest,
            },
        }

    def card(self) -> str:
        """Returns the model's card as Markdown."""
        path = self.folder / CARD
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    def facts(self, p: Predictor, name: str) -> list[tuple[Fact, str]]:
        """Returns the facts of an entity, each with its direction: out, then in."""
        entity = p.entity_names.id(name)
        triples_M3 = p.prepared.train_M3
        found: list[tuple[Fact, str]] = []
        for column, direction in ((0, "out"), (2, "in")):
            rows = triples_M3[triples_M3[:, column] == entity].tolist()
            found += [(fact, direction) for fact in p._named(rows)]
        return found


def apply(p: Predictor, changes: Changes) -> tuple[int, int]:
    """Changes a predictor's graph; returns how many facts were added and removed."""
    n_removed = p.remove(changes.remove)
    return p.add(changes.add), n_removed
