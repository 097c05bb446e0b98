"""Runs the `pathe` command: `python -m pathe`."""

from pathe.cli.main import main

main()
