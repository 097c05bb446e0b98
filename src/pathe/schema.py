"""Moved to `pathe.data.schema`; this path of the public names keeps working."""

from pathe.data.schema import coverage as coverage
