"""Moved to `pathe.data.knowledge_graph`; this path of the public names keeps working."""

from pathe.data.knowledge_graph import KnowledgeGraph as KnowledgeGraph
