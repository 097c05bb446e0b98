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
    """Returns memory per node, hours and cost of embedding and of exact queries, and the limit."""
    edges, folder = 2 * graph.n_triples, figures.bytes_per_triple * graph.n_triples
    workers = machines.count * machines.cores
    speed = workers * figures.efficiency
    shards = -(-graph.n_entities // SHARD_ENTITIES) * 2
    vectors = graph.n_entities * 2 * VECTOR_HALF
    copies = machines.count * folder / machines.bandwidth  # without a shared file system
    embed = {
        "work": edges * figures.embed_edge_seconds / speed,
        "driver": shards * figures.shard_seconds + 1.5 * vectors / machines.bandwidth,
    }
    asked = -(-n_queries // SHARD_QUERIES)
    queries = {
        "work": n_queries * edges * figures.query_edge_seconds / min(speed, max(asked, 1)),
        "driver": asked * figures.shard_seconds,
    }
    half = graph.n_entities * VECTOR_HALF
    private = machines.cores * (figures.worker_bytes + half)  # each worker has all names' signs
    memory = private + half  # and the first halves once per node
    times = {"copies": copies, "embed": max(embed.values()), "queries": max(queries.values())}
    hours = {name: seconds / 3600 for name, seconds in times.items()}
    return {
        "machines": machines.count,
        "folder_gib": folder / GIB,
        "memory_gib": memory / GIB,
        "hours": hours,
        "dollars": sum(hours.values()) * machines.count * machines.price,
        "limit": _limit(memory, machines, folder, embed, times),
    }


def _limit(
    memory: float,
    machines: Machines,
    folder: float,
    embed: dict[str, float],
    times: dict[str, float],
) -> str:
    """Says what breaks first, or what takes longest."""
    if memory > machines.memory:
        fit = int(machines.memory * machines.cores // memory)
        return f"memory of embed: {fit} workers fit a node" if fit else "memory of embed: none fits"
    if embed["driver"] > embed["work"]:
        return "the driver: it receives all vectors"
    if times["copies"] > max(times["embed"], times["queries"]):
        return "copying the graph to the nodes: use a shared file system"
    if folder > machines.memory - memory:
        return "page cache: the graph is read from disk more than once"
    return "nothing; exact queries take longest" if times["queries"] > times["embed"] else "nothing"
