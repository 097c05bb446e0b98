"""The training graph: adjacency, contexts, known triples, walks, paths, negatives, analysis."""

from pathe.graph.adjacency import Graph as Graph
from pathe.graph.adjacency import build_graph as build_graph
