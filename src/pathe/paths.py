"""Moved to `pathe.graph.paths`; this path of the public names keeps working."""

from pathe.graph.paths import mine_paths as mine_paths
from pathe.graph.paths import sample_paths as sample_paths
