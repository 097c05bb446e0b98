"""Figures about preparing graphs are those of the committed file."""

from __future__ import annotations

import json
import re

from support.places import ROOT

GIB, MIB = 1 << 30, 1 << 20


def test_the_table_is_that_of_the_file():
    about = json.loads((ROOT / "benchmarks" / "prepare.json").read_text())
    assert about["command"] == "make bench-scale"
    assert '"/' not in json.dumps(about)
    text = (ROOT / "docs" / "scale.md").read_text()
    by_case = {}
    for row in about["results"]:
        by_case.setdefault(row["case"], []).append(row)
    for case, (built, opened) in by_case.items():
        assert re.fullmatch(r"[0-9a-f]{40}", built["commit"])
        assert built["fingerprint"] == opened["fingerprint"]
        assert built["private"] < built["limit"]
        second = opened["second"]
        own = second.get("dirty", second["private"])  # the same where memory holds all files
        cells = [
            case, f"{built['triples']:,}", f"{built['entities']:,}", f"{built['seconds']:.0f}",
            f"{built['cpu_seconds']:.0f}", f"{built['private'] / GIB:.2f}",
            f"{built['bytes_on_disk'] / 1e9:.1f}", f"{second['seconds']:.2f}",
            f"{own / MIB:.0f}",
        ]  # fmt: skip
        assert f"| {' | '.join(cells)} |" in text
    folders = [by_case[f"100M-{kind}"][0]["fingerprint"] for kind in ("parquet", "ntriples")]
    assert folders[0] == folders[1]
    assert text.count("| 20M-") + text.count("| 100M-") == len(by_case)
