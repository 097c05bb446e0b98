"""Moved to `pathe.training.train`; this path of the public names keeps working."""

from pathe.training.train import train as train
