"""Runs the `pathe` command: `python -m pathe`."""

from __future__ import annotations

import signal
import sys
from typing import Any


def main() -> None:
    """Runs the command; Ctrl-C also ends it without a traceback while it is still loading."""

    def stop(signum: int, frame: Any) -> None:
        sys.stderr.write("stopped\n")
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGINT, stop)
    from pathe.cli.main import main as run

    signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
