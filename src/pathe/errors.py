"""Moved to `pathe.core.errors`; this path of the public names keeps working."""

from pathe.core.errors import PatheError as PatheError
