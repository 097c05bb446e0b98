"""Runs the `pathe` command: `python -m pathe`."""

from __future__ import annotations

import signal
import sys
from typing import Any


def main() -> None:
    """Runs the command; Ctrl-C while it is loading or ending doesn't give a traceback."""

    def stop(signum: int, frame: Any) -> None:
        sys.stderr.write("stopped\n")
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGINT, stop)
    try:
        from pathe.cli.main import main as run

        run()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done; Python still cleans up


if __name__ == "__main__":
    main()
