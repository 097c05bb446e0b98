"""Calculates what a cluster would need for a graph, from figures that were measured on one machine.

Nothing here was measured at these sizes: work is assumed to grow with the number of edges, and
workers to stay as efficient as two of them were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GIB = 1 << 30
VECTOR_HALF = 128 * 4  # bytes of what an entity sends to its neighbours
SHARD_ENTITIES = 1 << 13
SHARD_QUERIES = 1024
MOST_TRIPLES = 1 << 30  # ids of edges are 32-bit numbers


@dataclass(frozen=True)
class Figures:
    """What was measured: seconds of one core, bytes, and the efficiency of two workers."""

    query_edge_seconds: float  # per exact query and edge (two edges per triple)
    embed_edge_seconds: float  # per edge, both halves of a vector
    shard_seconds: float  # of the driver, per shard
    efficiency: float
    bytes_per_triple: float  # of a prepared folder
    worker_bytes: float  # private memory of a worker without a graph


@dataclass(frozen=True)
class Graph:
    """The size of a graph."""

    n_entities: int
    n_triples: int


@dataclass(frozen=True)
class Machines:
    """Machines of one kind; what they cost and how fast the network is, is assumed."""

    count: int
    cores: int = 16
    memory: float = 128 * GIB
    bandwidth: float = 10e9 / 8  # bytes per second, of the driver's network
    price: float = 0.80  # dollars per machine and hour


def plan(figures: Figures, graph: Graph, machines: Machines, n_queries: int) -> dict[str, Any]:
    """Returns memory per node, hours and cost of embedding and of exact queries, and limits."""
    edges, folder = 2 * graph.n_triples, figures.bytes_per_triple * graph.n_triples
    half = graph.n_entities * VECTOR_HALF  # first halves, once per node; and signs, per worker
    fitting = int((machines.memory - half) // (figures.worker_bytes + half))
    fitting = max(min(fitting, machines.cores), 0)
    vectors = graph.n_entities * 2 * VECTOR_HALF
    shards = 2 * -(-graph.n_entities // SHARD_ENTITIES)
    driver = shards * figures.shard_seconds + 1.5 * vectors / machines.bandwidth
    work = edges * figures.embed_edge_seconds
    asked = -(-n_queries // SHARD_QUERIES)
    workers = min(machines.count * machines.cores * figures.efficiency, asked)
    seconds = {
        "copies": machines.count * folder / machines.bandwidth,  # without a shared file system
        "embed": max(work / (machines.count * fitting * figures.efficiency), driver)
        if fitting
        else float("inf"),
        "queries": n_queries * edges * figures.query_edge_seconds / workers
        + asked * figures.shard_seconds,
    }
    hours = {name: value / 3600 for name, value in seconds.items() if value < float("inf")}
    memory = half + machines.cores * (figures.worker_bytes + half)
    return {
        "machines": machines.count,
        "folder_gib": folder / GIB,
        "memory_gib": memory / GIB,
        "embed_workers": fitting,
        "hours": hours,
        "dollars": sum(hours.values()) * machines.count * machines.price,
        "limits": _limits(graph, machines, folder, fitting, hours),
    }


def _limits(
    graph: Graph, machines: Machines, folder: float, fitting: int, hours: dict[str, float]
) -> list[str]:
    """Returns what breaks, the first first; the last is what takes longest."""
    found = []
    if graph.n_triples > MOST_TRIPLES:
        found.append("prepared graphs hold about a billion triples")
    if fitting < machines.cores:
        found.append(f"embed: {fitting} of {machines.cores} workers fit a node's memory")
    if folder > machines.memory:
        found.append("the graph doesn't fit a node's memory and is read from disk again and again")
    longest = max(hours, key=lambda name: hours[name])
    names = {"copies": "copying the graph", "embed": "embed", "queries": "exact queries"}
    return [*found, f"{names[longest]} take{'s' * (longest != 'queries')} longest"]
