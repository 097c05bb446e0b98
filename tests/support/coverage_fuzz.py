"""Fuzzes a reader with Atheris, which looks for inputs that reach new lines of the readers.

python coverage_fuzz.py KIND INPUTS SEED: a program of its own, as libFuzzer ends the process.
Inputs that fail are kept in the corpus, as those of Hypothesis are.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pathe.data"]):
    import pathe.data.knowledge_graph  # noqa: F401

from support.hostile import KINDS, check, keep


def main() -> None:
    """Fuzzes one kind of file."""
    kind, runs, seed = KINDS[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3])
    [(name, valid)] = kind.valid().items()
    with tempfile.TemporaryDirectory() as place:
        seeds = Path(place) / "seeds"
        seeds.mkdir()
        (seeds / name).write_bytes(valid)

        def one(raw: bytes) -> None:
            try:
                check(kind, {name: raw}, Path(place) / "files")
            except BaseException:
                keep(kind, {name: raw})
                raise

        options = [f"-runs={runs}", f"-seed={seed + 1}", f"-artifact_prefix={place}/"]
        atheris.Setup([sys.argv[0], *options, "-rss_limit_mb=4096", str(seeds)], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
