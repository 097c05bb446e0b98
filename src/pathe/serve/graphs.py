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


@dataclass(frozen=True)
class Version:
    """A graph after so many changes for everyone, with what search and lists need; never changed.

    Its properties are computed when first asked for: ask in a lane's thread.
    """

    number: int
    predictor: Predictor

    @cached_property
    def entities(self) -> tuple[list[str], NameIndex]:
        """The names of entities, and an index of how they are shown."""
        p = self.predictor
        names = p.entity_names.names(torch.arange(len(p.entity_names)))
        degrees = torch.bincount(p.prepared.train_M3[:, [0, 2]].flatten(), minlength=len(names))
        return names, NameIndex([p.names.show(name) for name in names], degrees.tolist())

    @cached_property
    def relations(self) -> tuple[list[str], NameIndex]:
        """The names of relations, and an index of how they are shown."""
        p = self.predictor
        names = list(p.relation_names)
        counts = torch.bincount(p.prepared.train_M3[:, 1], minlength=len(names))
        return names, NameIndex([p.names.show(name) for name in names], counts.tolist())

    @property
    def is_listed(self) -> bool:
        """Whether relations and types have been computed."""
        return {"relations", "types"} <= vars(self).keys()

    @cached_property
    def types_of(self) -> dict[str, list[str]]:
        """The types of each entity, where the graph has types."""
        return self.predictor.types_of_entities()

    @cached_property
    def types(self) -> list[dict[str, Any]]:
        """All types, frequent ones first."""
        counts = Counter(type for own in self.types_of.values() for type in own)
        return [
            {"name": name, "label": self.predictor.names.show(name), "entities": n}
            for name, n in counts.most_common()
        ]


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
        base = Predictor(self.artifact, kg, device=device, frontier=frontier)
        if source.types is not None:
            base.use_types(source.types)
        self.journal = Journal(source.journal) if source.journal else None
        self._writing = threading.Lock()
        self._overlays: Cache[Changes] = Cache(OVERLAYS)
        self._lanes: dict[Lane, Predictor] = {}
        self._changed: dict[Lane, Cache[tuple[int, Predictor]]] = {}
        for number, changes in enumerate(self.journal.changes if self.journal else [], 1):
            try:
                apply(base, changes)
            except PatheError as error:
                self.close()
                raise ConfigError(f"{source.journal}, line {number}: {error}") from None
        self.version = Version(0, base)

    def predictor(self, lane: Lane, overlay: str = "") -> Predictor:
        """Returns a lane's predictor for the graph as it is now, with a visitor's changes.

        Call it in the lane's thread.
        """
        version = self.version
        base = version.predictor
        own = self._lanes.get(lane)
        if own is None or own.prepared is not base.prepared:
            own = self._lanes[lane] = base.fork()
        if not overlay:
            return own
        cache = self._changed.setdefault(lane, Cache(CHANGED))
        found = cache.get(overlay)
        if found is None or found[0] != version.number:
            changed = base.fork()
            apply(changed, self.overlay(overlay))
            found = (version.number, changed)
            cache.put(overlay, found)
        return found[1]

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()

    def warm(self) -> None:
        """Prepares what the first requests need: the search index, and compiled functions."""
        version = self.version
        _ = version.entities, version.relations, version.types
        p = version.predictor
        for head, relation, _ in p.prepared.train_M3[:1].tolist():
            if self.artifact.config.task != "relation":
                p.tails(p.entity_names[head], p.relation_names[relation], 1)

    # changes

    def add_overlay(self, changes: Changes) -> tuple[str, int, int]:
        """Keeps a visitor's changes; returns their id, a hash of them, and how many were made."""
        if len(changes.add) + len(changes.remove) > MOST_CHANGES:
            raise ConfigError(f"Change at most {MOST_CHANGES} facts at a time.")
        changed = self.version.predictor.fork()
        n_added, n_removed = apply(changed, changes)  # changes that can't be made aren't kept
        text = json.dumps([sorted(set(changes.add)), sorted(set(changes.remove))])
        overlay = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._overlays.put(overlay, changes)
        return overlay, n_added, n_removed

    def overlay(self, overlay: str) -> Changes:
        """Returns the changes with this id."""
        found = self._overlays.get(overlay)
        if found is None:
            raise UnknownNameError(
                f"Overlay {overlay!r} doesn't exist or has expired. Send the changes again."
            )
        return found

    def change(self, changes: Changes, commit: Callable[[], None]) -> tuple[int, int]:
        """Changes the graph for everyone; returns how many facts were added and removed.

        Changes are on the disk before anyone sees them. Either all of them are made, or none.
        `commit` is called before anything is written; if it raises an error, nothing is.
        """
        if self.journal is None:
            raise ConfigError("This graph is read-only: start the server with --writable FILE.")
        with self._writing:
            changed = self.version.predictor.fork()  # others may be reading the present one
            counts = apply(changed, changes)  # what can't be made isn't written down
            commit()
            self.journal.append(changes)
            self.version = Version(self.version.number + 1, changed)
        return counts

    # names

    def show(self, name: str) -> str:
        """Returns how a name is shown."""
        return self.names.show(name)

    def search(self, text: str, type: str | None, limit: int) -> list[dict[str, Any]]:
        """Returns entities by a part of their name or label."""
        version = self.version
        names, index = version.entities
        allowed = None
        if type:
            allowed = np.zeros(len(names), dtype=bool)
            allowed[version.predictor.entity_ids(type=type)] = True
        found = index.find(text, limit, allowed)
        exact = version.predictor.entity_names.find(text) if text and not type else None
        if exact is not None and exact not in found:
            found = [exact, *found][:limit]
        return [
            {
                "name": names[i],
                "label": self.show(names[i]),
                "facts": int(index.weights[i]),
                "types": version.types_of.get(names[i], []),
            }
            for i in found
        ]

    def relations(self, text: str = "", limit: int = 1000) -> list[dict[str, Any]]:
        """Returns relations by a part of their name or label, frequent ones first."""
        names, index = self.version.relations
        return [
            {"name": names[i], "label": self.show(names[i]), "facts": int(index.weights[i])}
            for i in index.find(text, limit)
        ]

    # descriptions

    def about(self) -> dict[str, Any]:
        """Returns the sizes of the graph, and what the model is."""
        prepared, model = self.version.predictor.prepared, self.artifact
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


def apply(p: Predictor, changes: Changes) -> tuple[int, int]:
    """Changes a predictor's graph; returns how many facts were added and removed."""
    n_removed = p.remove(changes.remove)
    return p.add(changes.add), n_removed
