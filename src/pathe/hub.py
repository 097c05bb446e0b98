"""Moved to `pathe.model.hub`; this path of the public names keeps working."""

from pathe.model.hub import pull_model as pull_model
from pathe.model.hub import push_model as push_model
