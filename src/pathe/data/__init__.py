"""Reads files and data sets into a `KnowledgeGraph`, and writes them."""
