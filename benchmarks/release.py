"""Installs the wheel and the sdist into clean environments and uses them: `make release-check`.

    python benchmarks/release.py --python python3.10 --python python3.12 --write

tries the wheel with other versions of Python, too, and writes benchmarks/release.json. `--tests`
also runs the fast tests with each of them, with one worker.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import HERE, console, provenance

ROOT = HERE.parent
CONSTRAINTS = ROOT / "constraints.txt"
ABOUT = (
    "import json, platform, importlib.metadata as m;"
    "print(json.dumps({'python': platform.python_version(), 'pathe': m.version('pathe'),"
    "'torch': m.version('torch'), 'packages': len(list(m.distributions()))}))"
)
QUERY = ("--data", "europe", "--head", "Paris", "--relation", "lies on", "--known", "-k", "1")
TRAIN = ("--preset", "tiny", "--set", "max_epochs=1")
SPLIT = ("--split", "0.8,0.1,0.1")


def run(*command: str | Path, cwd: Path) -> str:
    """Runs a command without this environment's packages; returns what it prints."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYENV_VERSION")
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def try_package(python: str, package: Path, tests: bool) -> dict[str, Any]:
    """Installs a package into a new environment of its own, and predicts, trains and evaluates."""
    with tempfile.TemporaryDirectory() as folder:
        place, programs = Path(folder), Path(folder, "venv", "bin")
        run(python, "-m", "venv", "venv", cwd=place)
        install = (programs / "pip", "install", "--quiet", "--constraint", CONSTRAINTS)
        begin = time.perf_counter()
        run(*install, package, cwd=place)
        seconds = time.perf_counter() - begin
        run(programs / "pip", "check", cwd=place)
        about: dict[str, Any] = json.loads(run(programs / "python", "-c", ABOUT, cwd=place))
        pathe = programs / "pathe"
        [answer] = json.loads(run(pathe, "predict", *QUERY, "--json", cwd=place))
        assert answer["name"] == "Seine", answer
        run(pathe, "train", "europe", *SPLIT, "--out", "run", *TRAIN, cwd=place)
        found = json.loads(run(pathe, "evaluate", "run", "--data", "europe", *SPLIT, "--json",
                               cwd=place))  # fmt: skip
        assert 0 < found["mrr"] <= 1, found
        kind = "wheel" if package.suffix == ".whl" else "sdist"
        about |= {"package": kind, "install_seconds": round(seconds, 1), "answer": answer["name"]}
        if tests:
            run(*install, f"pathe[all,dev] @ {package.as_uri()}", cwd=place)
            about["tests"] = run_tests(programs / "python")
        return about


def run_tests(python: Path) -> dict[str, int]:
    """Runs the fast tests of the checkout with an installed PathE; returns how many passed."""
    command = ("-m", "pytest", "-m", "not slow", "-n", "1", "-p", "no:cacheprovider")
    last = run(python, *command, cwd=ROOT).strip().splitlines()[-1]
    return {kind: int(n) for n, kind in re.findall(r"(\d+) (passed|skipped)", last)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", default=[], help="another Python to try")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="folder of the packages")
    parser.add_argument("--tests", action="store_true", help="run the fast tests, too")
    parser.add_argument("--write", action="store_true", help="write benchmarks/release.json")
    asked = parser.parse_args()
    packages = sorted(path.resolve() for path in asked.dist.glob("pathe-*"))
    if len(packages) != 2:
        raise SystemExit(
            f"{asked.dist}: expected one wheel and one sdist. Run `python -m build` first."
        )
    wheel, sdist = packages if packages[0].suffix == ".whl" else packages[::-1]
    about = provenance(0, "python benchmarks/release.py --write, and --python of each version")
    about["results"] = rows = []
    wanted = [(python, wheel) for python in [*asked.python, sys.executable]]
    for python, package in [*wanted, (sys.executable, sdist)]:
        rows.append(try_package(python, package, asked.tests and package == wheel))
        console.print(f"Python {rows[-1]['python']}, {rows[-1]['package']}: works")
        if asked.write:
            (HERE / "release.json").write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
