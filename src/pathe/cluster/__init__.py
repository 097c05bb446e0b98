"""Runs jobs in shards: in one process, or on a Ray cluster."""
