"""Moved to `pathe.training.run`; this path of the public names keeps working."""

from pathe.training.run import train as train
