"""`python -m pathe` is the command `pathe`."""

from pathe.cli import main

main()
