"""The pre-trained model on a CPU: cold start and queries without training: `make bench`."""

from __future__ import annotations

import time
from typing import Any

import torch
from measure import DATA, HERE, predict_seconds, row, write_results

from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.predict.predictor import Predictor

EUROPE = HERE.parent / "examples" / "europe.csv"
QUERIES = 60
# graph and the bar for a query, in seconds
BARS = {"fb15k-237": 0.25, "wn18rr": 0.03}


def cold_seconds() -> float:
    """Returns the seconds of a process that answers and explains one query, the best of five."""
    asked = ["--head", "Austria", "--relation", "borders", "-k", "3", "--explain"]
    return predict_seconds(["--data", str(EUROPE), *asked], n_answers=3)


def seconds(p: Predictor, asked: list[Any]) -> tuple[float, float]:
    """Returns the seconds per query: median and maximum.

    The vectors of some relations are computed with the first query about one of them.
    """
    times = []
    for query in asked:
        begin = time.perf_counter()
        next(p.answer([query]))
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2], max(times)


def timed(measure: str, found: tuple[float, float], bar: float) -> dict[str, Any]:
    """Returns a line of the results; the bar is for the median."""
    median, slowest = found
    ours = f"{1000 * median:.0f} ms, slowest {1000 * slowest:.0f} ms"
    more = {"seconds": median, "slowest": slowest}
    return row(measure, ours, "", "", f"{1000 * bar:.0f} ms", median < bar, **more)


def main() -> None:
    cold = cold_seconds()
    rows = [
        row("examples/europe.csv: a process that answers and explains a query, and ends",
            f"{cold:.2f} s", "", "", "4 s", cold < 4, seconds=cold)
    ]  # fmt: skip
    for name, bar in BARS.items():
        kg = KnowledgeGraph.read(DATA / name)
        p = Predictor(kg)
        chosen = torch.randperm(len(kg.test), generator=torch.Generator().manual_seed(0))
        triples = [
            (kg.entities[h], kg.relations[r], kg.entities[t])
            for h, r, t in kg.test[chosen[:QUERIES]].tolist()
        ]
        tails = [(h, r, None) for h, r, _ in triples]
        next(p.answer(tails[:1]))  # compiles, builds the relation graph
        for what, asked in (
            ("a query; some are the first of their relations", tails[1:]),
            ("a query of a relation that was asked before", tails[1:]),
        ):
            rows.append(timed(f"{name}: {what}", seconds(p, asked), bar))
        next(p.answer([(triples[0][0], None, triples[0][2])]))
        found = seconds(p, [(h, None, t) for h, _, t in triples[1:]])
        rows.append(timed(f"{name}: which relation holds between two entities", found, bar))
    write_results("any_graph", rows, 0)


if __name__ == "__main__":
    main()
