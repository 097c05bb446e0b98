"""Runs the torture tests with large numbers and writes what they tried to torture.json.

python benchmarks/torture.py --kills 1000 --inputs 10000
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import HERE, provenance

PLACES = ("tests/torture", "tests/serve/test_any_input.py", "tests/serve/test_attacks.py")


def main() -> None:
    """Runs the tests; exits with pytest's code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as place:
        tally = Path(place) / "tally.json"
        env = {
            "PATHE_KILLS": given.kills, "PATHE_INPUTS": given.inputs, "PATHE_SEED": given.seed,
            "PATHE_TALLY": tally, "PATHE_TORTURE": 1,
        }  # fmt: skip
        command = [sys.executable, "-m", "pytest", "-m", "torture"]
        code = subprocess.run(
            [*command, *PLACES, *more],
            env=os.environ | {key: str(value) for key, value in env.items()},
            cwd=HERE.parent,
        ).returncode
        rows = json.loads(tally.read_text())["rows"]
    how = f"python benchmarks/torture.py --kills {given.kills} --inputs {given.inputs}"
    how = " ".join([how, shlex.join(more)]).rstrip()
    found = provenance(given.seed, how) | {
        "kills": given.kills,
        "inputs": given.inputs,
        "tried": sum(row["tried"] for row in rows),
        "failed": sum(row["failed"] for row in rows),
        "classes": rows,
    }
    (HERE / "torture.json").write_text(json.dumps(found, indent=2) + "\n")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
