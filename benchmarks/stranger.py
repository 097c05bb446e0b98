"""The stranger's test: from a clone to an explained answer on one's own CSV, by README alone.

    python benchmarks/stranger.py

clones HEAD, installs it into a new environment by the command in README, types the commands of
"First answers" and asks about a file of its own. Writes the seconds of each step to
benchmarks/stranger.json. PyTorch is installed first, in a step of its own, as README suggests.
"""

from __future__ import annotations

import csv
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

ROOT, BAR = HERE.parent, 300  # seconds from a clone to an explained answer
OWN = "tea.csv"
ASKED = f'pathe predict --data {OWN} --head Darjeeling --relation "grown in" -k 3 --explain'
GAPS = f"pathe missing {OWN} -k 5"


def own_facts() -> list[tuple[str, str, str]]:
    """Returns the facts of a made-up file: teas, their regions, kinds and shops."""
    regions = {"India": "Assam Darjeeling Nilgiri", "China": "Yunnan Fujian Anhui",
               "Japan": "Uji Shizuoka Yame", "Sri Lanka": "Dimbula Uva Kandy"}  # fmt: skip
    kinds, facts = ("black", "green", "oolong", "white"), []
    for i, (country, places) in enumerate(regions.items()):
        for j, place in enumerate(places.split()):
            facts.append((f"{place} hills", "located in", country))
            for k in range(3):
                tea = f"{place} {('first', 'second', 'third')[k]} flush"
                facts += [(tea, "grown in", f"{place} hills"), (tea, "from", country),
                          (tea, "kind", kinds[(i + j + k) % 4]),
                          (f"shop {(i + 2 * j + k) % 5}", "sells", tea)]  # fmt: skip
    facts += [("Darjeeling", "from", "India"), ("Darjeeling", "kind", "black"),
              ("shop 1", "sells", "Darjeeling"), ("Darjeeling", "blended with",
              "Darjeeling first flush")]  # fmt: skip
    return facts


def readme_commands(readme: str) -> tuple[str, list[str]]:
    """Returns README's plain installation and its first commands."""
    blocks = re.findall(r"```bash\n(.*?)```", readme, re.S)
    lines = [[line.split("  #")[0].strip() for line in block.splitlines()] for block in blocks[:2]]
    [install] = [line for line in lines[0] if line.startswith("pip install") and "[" not in line]
    return install, lines[1]


class Clock:
    """Runs steps in a shell and keeps their seconds and output."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def step(self, name: str, command: str, cwd: Path, programs: Path | None = None) -> str:
        """Runs a command; `programs` come first on the path, as in an active environment."""
        hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYENV_VERSION", "OMP_NUM_THREADS")
        env = {key: value for key, value in os.environ.items() if key not in hidden}
        if programs is not None:
            env["PATH"] = f"{programs}{os.pathsep}{env['PATH']}"
        begin = time.perf_counter()
        done = subprocess.run(
            ["bash", "-c", command], cwd=cwd, env=env, capture_output=True, text=True
        )
        seconds = time.perf_counter() - begin
        if done.returncode:
            raise SystemExit(f"{command}:\n{done.stdout}\n{done.stderr}")
        shown = command.replace(sys.executable, "python3").replace(str(ROOT), "REPOSITORY")
        self.steps.append({"step": name, "command": shown, "seconds": round(seconds, 2)})
        console.print(f"{seconds:7.1f} s  {name}")
        return done.stdout

    def seconds(self, *names: str) -> float:
        """Returns the seconds of steps by the first word of their names, all by default."""
        found = [s["seconds"] for s in self.steps if not names or s["step"].split()[0] in names]
        return float(round(sum(found), 2))


def main() -> None:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        clock.step("clone", f"git clone --quiet {ROOT} pathe", place)
        head = ["git", "rev-parse", "HEAD"]
        commit = subprocess.check_output(head, cwd=place / "pathe", text=True).strip()
        clone, programs = place / "pathe", place / "pathe" / ".venv" / "bin"
        install, first = readme_commands((clone / "README.md").read_text("utf-8"))
        clock.step("environment", f"{sys.executable} -m venv .venv", clone)
        torch = "pip install --quiet -c constraints.txt torch"
        clock.step("install PyTorch", torch, clone, programs)
        clock.step("install PathE", install, clone, programs)
        with (clone / OWN).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(own_facts())
        answer = clock.step("ask about an own file", ASKED, clone, programs)
        total = clock.seconds()
        assert "from all paths between them" in answer, answer
        assert "Darjeeling hills" in answer, answer
        clock.step("missing facts of it", GAPS, clone, programs)
        for command in first:
            clock.step(f"README: {' '.join(command.split()[:2])}", command, clone, programs)
    about = provenance(0, "python benchmarks/stranger.py") | {
        "commit": commit,
        "bar_seconds": BAR,
        "answer_seconds": total,  # from the clone to the explained answer
        "install_seconds": clock.seconds("environment", "install"),
        "steps": clock.steps,
    }
    (HERE / "stranger.json").write_text(json.dumps(about, indent=2) + "\n")
    console.print(f"{total:.0f} s to an explained answer, written to stranger.json")
    raise SystemExit(total > BAR)


if __name__ == "__main__":
    main()
