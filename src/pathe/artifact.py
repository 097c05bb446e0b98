"""Moved to `pathe.model.artifact`; this path of the public names keeps working."""

from pathe.model.artifact import Artifact as Artifact
from pathe.model.artifact import load_model as load_model
from pathe.model.artifact import save_model as save_model
