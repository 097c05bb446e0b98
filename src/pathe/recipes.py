"""Moved to `pathe.training.defaults`; this path of the public names keeps working."""

from pathe.training.defaults import recommend as recommend
