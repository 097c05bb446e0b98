"""The tutorials and how-tos run as they stand, and print what they show.

The blocks of a page run in order in one folder; Python blocks share their names. Under a block,
```text holds lines of its output: in order, others may stand between. There `...` is anything and a
number with a decimal point is any such number; words and whole numbers are as they are. What may
differ from machine to machine is ```text varies, which nobody checks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support.places import ROOT

FOLDER = ROOT / "docs" / "tutorials"
INDEX = FOLDER / "README.md"
TUTORIALS = sorted(path for path in FOLDER.glob("*.md") if path != INDEX)
HOW_TO = ROOT / "docs" / "howto"
HOW_TOS = sorted(path for path in HOW_TO.glob("*.md") if path.name != "README.md")
MARK = "======== the next block"
NUMBER = r"\d[\d,]*\.\d+"

# Run in a process of its own: blocks on stdin as JSON, a mark in the output before each.
DRIVER = f"""
import json, subprocess, sys
names = {{"__name__": "__main__"}}
for number, (language, code) in enumerate(json.load(sys.stdin), 1):
    print("{MARK}", flush=True)
    if language == "bash":
        bash = ["bash", "-euo", "pipefail", "-c", code]
        if code := subprocess.run(bash, stdin=subprocess.DEVNULL).returncode:
            sys.exit(code)
    else:
        exec(compile(code, f"block {{number}}", "exec"), names)
    sys.stdout.flush()
"""


class Block(NamedTuple):
    language: str
    code: str
    shown: list[str]  # lines that its output must hold


def blocks(text: str) -> list[Block]:
    """The bash and Python blocks of a tutorial, with what it shows of their output."""
    found: list[Block] = []
    for language, body in re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.M | re.S):
        if language in ("bash", "python"):
            found.append(Block(language, body, []))
        elif language == "text":
            found[-1].shown.extend(line for line in body.splitlines() if line.strip(" ."))
        else:
            assert language == "text varies", f"a block of {language!r} would not be tested"
    return found


def pattern(line: str) -> str:
    """What a line must look like, whatever the space between its words."""
    words = re.escape(" ".join(line.split()))
    words = re.sub(r"\d[\d,]*\\\.\d+", lambda _: NUMBER, words)
    return words.replace(r"\.\.\.", ".*")


def absent(shown: list[str], output: str) -> list[str]:
    """The first of the lines shown that the output doesn't hold after the ones before it."""
    lines = (" ".join(line.split()) for line in output.splitlines())
    for line in shown:
        if not any(re.search(pattern(line), other) for other in lines):
            return [line]
    return []


@pytest.mark.slow
@pytest.mark.parametrize("tutorial", [*TUTORIALS, *HOW_TOS], ids=lambda path: path.stem)
def test_it_runs_and_prints_what_it_shows(tutorial: Path, tmp_path: Path) -> None:
    parts = blocks(tutorial.read_text(encoding="utf-8"))
    assert any(part.shown for part in parts)
    for name in ("examples", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": programs, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    env |= {"PYTHONUTF8": "1"}
    env.pop("COLUMNS", None)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps([(part.language, part.code) for part in parts]),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", cwd=tmp_path, env=env,
        check=False,
    )  # fmt: skip
    outputs = done.stdout.split(f"{MARK}\n")[1:]
    assert done.returncode == 0, f"block {len(outputs)}: {outputs[-1]}"
    for number, (part, output) in enumerate(zip(parts, outputs, strict=True), 1):
        assert not absent(part.shown, output), f"block {number} printed {output}"


def test_missing_output_is_noticed() -> None:
    output = "wrote europe: train 733, valid 92\n 1  Euro   10.70   96.4 %\n 2  Swiss franc\n"
    assert not absent(["wrote ... train 733", "1 Euro 9.1 5.0 %", "Swiss"], output)
    assert absent(["train 734"], output)
    assert absent(["2 Swiss franc", "1 Euro"], output)
    assert absent(["1 Euro 9 5.0 %"], output)
    with pytest.raises(AssertionError, match="sh"):
        blocks("```sh\nls\n```\n")


def test_indexes_name_every_page_and_links_lead_somewhere() -> None:
    how_to = HOW_TO / "README.md"
    for index, pages in ((INDEX, TUTORIALS), (how_to, HOW_TOS)):
        text = index.read_text(encoding="utf-8")
        for page in pages:
            assert f"({page.name})" in text
    for page in (ROOT / "docs").rglob("*.md"):
        for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
