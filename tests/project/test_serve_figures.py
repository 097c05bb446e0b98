"""Figures about serving are those of the committed file."""

from __future__ import annotations

import json
import re
import sys

from support.places import ROOT


def test_the_table_is_that_of_the_file(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import serve

    results = json.loads(serve.OUT.read_text())
    assert '"/' not in json.dumps(results)
    for name, about in results.items():
        assert about["command"] == f"python benchmarks/serve.py {name}"
        assert re.fullmatch(r"[0-9a-f]{40}", about["commit"])
    table = serve.table(results)
    assert table in serve.DECISION.read_text(), "run `python benchmarks/serve.py table`"
    assert table.count("\n") > 10
    sys.modules.pop("serve"), sys.modules.pop("measure", None)
