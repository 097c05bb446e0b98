"""Runs the `pathe` command: `python -m pathe`."""

from __future__ import annotations

import atexit
import signal
import sys
from typing import Any


def main() -> None:
    """Runs the command; Ctrl-C while it is loading or ending doesn't give a traceback."""

    def stop(signum: int, frame: Any) -> None:
        sys.stderr.write("stopped\n")
        raise SystemExit(128 + signum)

    def done(signum: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends a cleanup that hangs

    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # the last cleanup but Python's
    signal.signal(signal.SIGINT, stop)
    try:
        from pathe.cli.main import main as run

        run()
    finally:
        signal.signal(signal.SIGINT, done)


if __name__ == "__main__":
    main()
