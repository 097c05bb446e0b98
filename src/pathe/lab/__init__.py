"""Experiments, the results page and the search for settings."""
