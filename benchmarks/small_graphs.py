"""What is true in small graphs? `python benchmarks/small_graphs.py fit|measure`

A small graph has too few facts to learn what makes a missing fact probable. So that is learned
from many small graphs, which are cut out of large ones: some things and a few of their relations,
or all facts between some things. Of each relation, up to three tenths are left out; for
each candidate that the search finds, the large graph says whether it is true.

- fit: writes src/pathe/evaluation/priors.safetensors, from train and valid of three graphs.
- measure: the same search in small graphs that the fit hasn't seen, and in invented ones. How well
  do the probabilities hold, and what is the precision of the facts that are listed first?
  Writes small_graphs.json.
"""

from __future__ import annotations

import argparse
import json
import random
import runpy
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from measure import DATA, HERE, console, provenance
from torch.nn.functional import binary_cross_entropy

import pathe
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.truth import Examples, Truth, calibration_error

SOURCES = ("codex-m", "fb15k-237", "wn18rr")
GRAPHS = {"fit": 40, "measure": 4}  # per source
SIZES = 50, 600  # facts of a small graph
LOST = (0.0, 0.05, 0.1, 0.2, 0.3)  # shares of a relation's facts that are left out
MOST = 300  # candidates per graph
SEED = 7
OUT = HERE / "small_graphs.json"
Fact = tuple[int, int, int]


class Source(NamedTuple):
    """A large graph by entity."""

    true: set[Fact]
    of: dict[int, list[Fact]]  # by head
    at: dict[int, list[Fact]]  # by head and by tail
    by_relation: dict[int, list[Fact]]


class Small(NamedTuple):
    """A small graph, and whether a fact is true."""

    kg: KnowledgeGraph
    true: set[tuple[str, str, str]]


def source(name: str) -> Source:
    kg = KnowledgeGraph.read(DATA / name)
    facts = [(h, r, t) for h, r, t in kg.train.tolist()]
    of, at = defaultdict[int, list[Fact]](list), defaultdict[int, list[Fact]](list)
    by_relation = defaultdict[int, list[Fact]](list)
    for fact in facts:
        of[fact[0]].append(fact)
        at[fact[0]].append(fact)
        at[fact[2]].append(fact)
        by_relation[fact[1]].append(fact)
    true = {*facts, *((h, r, t) for h, r, t in kg.valid.tolist())}
    return Source(true, of, at, by_relation)


def things(large: Source, draw: random.Random) -> set[Fact]:
    """Returns some heads of a relation with a few of their relations, and so for their tails."""
    relation = draw.choice([r for r, own in large.by_relation.items() if len(own) > 50])
    heads = list({h for h, _, _ in large.by_relation[relation]})
    chosen = draw.sample(heads, min(len(heads), draw.randint(10, 80)))
    found = set[Fact]()
    for most in (draw.randint(2, 7), draw.randint(1, 4)):
        own = [fact for head in chosen for fact in large.of[head]]
        usual = {r for r, _ in Counter(r for _, r, _ in own).most_common(most)} | {relation}
        found |= {fact for fact in own if fact[1] in usual}
        chosen = sorted({t for _, _, t in found})
    return found


def between(large: Source, draw: random.Random) -> set[Fact]:
    """Returns the facts between entities that a walk with restarts visits."""
    start = draw.choice(list(large.at))
    visited, here = {start}, start
    for _ in range(3000):
        here = start if draw.random() < 0.2 else here
        h, _, t = draw.choice(large.at[here])
        here = t if here == h else h
        visited.add(here)
        if len(visited) >= 120:
            break
    return {fact for e in visited for fact in large.of[e] if fact[2] in visited}


def small_graphs(name: str, n: int, seed: int) -> Iterator[Small]:
    """Yields small graphs that were cut out of a large one, without some of their facts."""
    large, draw, made = source(name), random.Random(f"{name} {seed}"), 0
    true = {(f"e{h}", f"r{r}", f"e{t}") for h, r, t in large.true}
    while made < n:
        facts = sorted((things if draw.random() < 0.7 else between)(large, draw))
        if len(facts) > SIZES[1]:
            facts = sorted(facts)[: draw.randint(*SIZES)]
        lost = {r: draw.choice(LOST) for r in sorted({r for _, r, _ in facts})}
        kept = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in facts if draw.random() >= lost[r]]
        if len(kept) >= SIZES[0]:
            made += 1
            yield Small(KnowledgeGraph.from_triples(kept), true)


def searched(small: Small) -> Examples | None:
    """Returns what the search finds in a small graph, and whether it is true."""
    from pathe.predict.missing import Wanted, Work, candidates

    p = pathe.Predictor(small.kg, device="cpu")
    every = Wanted(list(range(small.kg.n_relations)))
    found = candidates(p._judge(), every, None, 10_000, Work())
    rows = torch.randperm(len(found.triples_C3), generator=torch.Generator().manual_seed(SEED))
    rows = rows[:MOST]
    if not len(rows):
        return None
    facts = p._named(found.triples_C3[rows].tolist())
    true_C = torch.tensor([fact in small.true for fact in facts])
    return Examples(found.features_CF[rows], found.triples_C3[rows, 1], true_C)


def judged(small: Small) -> Examples | None:
    """Returns the true and false facts that judgements of a small graph are fitted on."""
    try:
        return pathe.Predictor(small.kg, device="cpu")._judge()._examples()
    except pathe.PatheError:  # too few facts
        return None


def joined(parts: list[Examples]) -> Examples:
    """Returns the examples of all graphs, as if they had one relation."""
    features = torch.cat([part.features_BF for part in parts])
    true = torch.cat([part.true_B for part in parts])
    return Examples(features, torch.zeros(len(true), dtype=torch.long), true.bool())


def fit() -> None:
    """Fits what is probable in small graphs, and writes it."""
    from pathe.evaluation.prior import PRIORS, save_priors

    found: dict[str, list[Examples]] = {"missing": [], "judge": []}
    for name in SOURCES:
        for small in small_graphs(name, GRAPHS["fit"], seed=1):
            for key, examples in (("missing", searched(small)), ("judge", judged(small))):
                if examples is not None:
                    found[key].append(examples)
            console.print(name, len(found["missing"]), small.kg.n_entities, len(small.kg.train))
        console.print(name, {key: len(parts) for key, parts in found.items()})
    priors = {key: Truth(joined(parts), 1, SEED) for key, parts in found.items()}
    save_priors(priors)
    console.print(f"wrote {PRIORS.name}")


def invented() -> Iterator[Small]:
    """Yields the small graphs of the tests, whose gaps are known."""
    make = runpy.run_path(str(HERE.parent / "tests" / "support" / "small.py"))["small"]
    for seed in range(4):
        for n_people, n_countries in ((12, 6), (22, 8), (40, 10)):
            made = make(n_people, n_countries, seed)
            yield Small(KnowledgeGraph.from_triples(made.facts), set(made.gaps))


def measured(graphs: Iterator[Small]) -> dict[str, Any]:
    """Returns how well the probabilities of missing facts hold in some small graphs."""
    chances, labels, missing, n_graphs = list[float](), list[bool](), 0, 0
    for small in graphs:
        found = pathe.Predictor(small.kg, device="cpu").missing(1000)
        facts = [(m.head, m.relation, m.tail) for m in found]
        chances += [m.probability for m in found]
        labels += [fact in small.true for fact in facts]
        missing, n_graphs = missing + sum(labels[-len(facts) :] if facts else []), n_graphs + 1
    chance_N, true_N = torch.tensor(chances), torch.tensor(labels)
    sure_N = chance_N >= 0.5
    return {
        "graphs": n_graphs,
        "candidates": len(chance_N),
        "true": missing,
        "listed with a probability of .5 or more": int(sure_N.sum()),
        "true among them": int(true_N[sure_N].sum()),
        "mean probability of true ones": float(chance_N[true_N].mean()),
        "log loss": float(binary_cross_entropy(chance_N.clamp(1e-4, 1 - 1e-4), true_N.float())),
        "calibration error": calibration_error(chance_N, true_N),
    }


def measure(label: str) -> None:
    """Measures small graphs that the fit hasn't seen, and writes the figures."""
    results = json.loads(OUT.read_text()) if OUT.exists() else {}
    cut = {name: small_graphs(name, GRAPHS["measure"], seed=2) for name in SOURCES}
    for name, graphs in {"invented": invented(), **cut}.items():
        figures = measured(graphs)
        about = provenance(SEED, f"python benchmarks/small_graphs.py measure --label {label}")
        results.setdefault(name, {})[label] = figures | about
        OUT.write_text(json.dumps(results, indent=1) + "\n")
        console.print(name, label, figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("task", choices=("fit", "measure"))
    parser.add_argument("--label", default="after")
    args = parser.parse_args()
    fit() if args.task == "fit" else measure(args.label)


if __name__ == "__main__":
    main()
