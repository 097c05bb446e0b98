"""Writes requirements.lock: the versions of constraints.txt with the digests of all their files.

Also writes deploy/requirements.lock, the part of it that the container needs. Run it where PathE is
installed with all extras, as that says which package needs which:

    PIP_INDEX_URL=ADDRESS .venv/bin/python deploy/lock.py

Digests are those of this package index; it ends in /simple. torch is left out: each
version has several builds, on several indices (docs/decisions/0018-supply-chain.md).
"""

from __future__ import annotations

import os
import re
import sys
import urllib.request
from html import unescape
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PINS, LOCK = ROOT / "constraints.txt", ROOT / "requirements.lock"
PART, EXTRAS = ROOT / "deploy" / "requirements.lock", ("serve", "rdf")  # of the container
WITHOUT = {"torch"}
HEAD = """\
# Versions of constraints.txt with the digests of their files, but torch: see deploy/lock.py.
# pip install --require-hashes --no-deps -r requirements.lock
"""


def pins(text: str) -> list[tuple[str, str, str]]:
    """Returns (name, version, marker) of each line of constraints.txt."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = []
    for line in lines:
        pin, _, marker = (part.strip() for part in line.partition(";"))
        name, version = pin.split("==")
        found.append((name, version, marker))
    return found


def normal(name: str) -> str:
    """Returns a project's name as indices write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def version_of(file: str, name: str) -> str | None:
    """Returns the version in the name of a wheel or of a source archive of this project."""
    if file.endswith(".whl"):
        project, version = file.split("-")[:2]
    elif file.endswith((".tar.gz", ".zip")):
        project, _, version = re.sub(r"\.(tar\.gz|zip)$", "", file).rpartition("-")
    else:
        return None
    return version if normal(project) == normal(name) else None


def digests(page: str, name: str, version: str) -> list[str]:
    """Returns the SHA-256 digests of a version's files, from a project's page of an index."""
    found = set()
    for link in re.findall(r'href="([^"]+)"', page):
        path, _, fragment = unescape(link).partition("#")
        file, (kind, _, digest) = unquote(path).rsplit("/", 1)[-1], fragment.partition("=")
        if kind == "sha256" and version_of(file, name) == version:
            found.add(digest)
    return sorted(found)


def lock(text: str, index: str) -> str:
    """Returns the lock file for these pins."""
    found_all = []
    for name, version, marker in pins(text):
        if name in WITHOUT:
            continue
        request = urllib.request.Request(
            f"{index.rstrip('/')}/{normal(name)}/", headers={"Accept": "text/html"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            found = digests(response.read().decode(), name, version)
        if not found:
            sys.exit(f"{name}=={version}: no files with digests in the index")
        pin = f"{name}=={version}" + (f" ; {marker}" if marker else "")
        found_all.append(" \\\n    ".join([pin, *(f"--hash=sha256:{digest}" for digest in found)]))
    return HEAD + "\n".join(found_all) + "\n"


def entries(text: str) -> dict[str, list[str]]:
    """Returns the entries of a lock file by project; some have one per Python version."""
    found: dict[str, list[str]] = {}
    for entry in re.findall(r"^[^#\s].*(?:\n    .*)*", text, re.MULTILINE):
        found.setdefault(normal(entry.split("==")[0]), []).append(entry)
    return found


def own_requirements() -> list[str]:
    """Returns what PathE requires, in the words of package metadata."""
    import tomllib  # of Python 3.11

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: list[str] = project["dependencies"]
    for extra, needs in project["optional-dependencies"].items():
        for need in needs:
            name, _, marker = need.partition(";")
            found.append(
                f'{name.strip()} ; {f"({marker.strip()}) and " if marker else ""}extra == "{extra}"'
            )
    return found


def needed(extras: tuple[str, ...]) -> set[str]:
    """Returns the projects that PathE with these extras needs, on any system, without torch."""
    found: dict[str, set[str]] = {}
    todo = [("pathe", {"", *extras})]
    while todo:
        name, wanted = todo.pop()
        if wanted <= found.get(name, set()):
            continue
        found[name] = found.get(name, set()) | wanted
        for text in own_requirements() if name == "pathe" else metadata.requires(name) or []:
            need = Requirement(text)
            if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in wanted):
                todo.append((normal(need.name), {"", *need.extras}))
    return found.keys() - {"pathe", *WITHOUT}


def part(text: str, extras: tuple[str, ...]) -> str:
    """Returns the lock file of the projects that these extras need."""
    found, names = entries(text), needed(extras)
    head = HEAD.replace("requirements.lock", "deploy/requirements.lock")
    return head + "\n".join(e for name in found if name in names for e in found[name]) + "\n"


def locked(text: str) -> list[tuple[str, str, str]]:
    """Returns (name, version, marker) of each entry of the lock file."""
    entries = text.replace("\\\n", " ").splitlines()
    return pins("\n".join(re.sub(r"\s+--hash=\S+", "", entry) for entry in entries))


def main() -> None:
    if not (index := os.environ.get("PIP_INDEX_URL")):
        sys.exit(
            "Set PIP_INDEX_URL to the address of a package index, such as https://HOST/simple."
        )
    text = lock(PINS.read_text(encoding="utf-8"), index)
    LOCK.write_text(text, encoding="utf-8")
    PART.write_text(part(text, EXTRAS), encoding="utf-8")


if __name__ == "__main__":
    main()
