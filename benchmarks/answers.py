"""Are answers right that people act on? `python benchmarks/answers.py TASK GRAPH ...`

- missing: a tenth of each relation's facts is hidden at random. How many of the triples that
  `Predictor.missing` lists first are hidden facts, and how many hidden facts does it list before
  less than half of the list (or nine tenths) is hidden facts?
- classify: test triples against false ones: the published hard negatives of CoDEx, or else test
  triples with another head or tail. Accuracy and expected calibration error. Small graphs without
  a split of their own are split several times, and the judgements are pooled.
- second: cities that aren't the capital of their country, claimed to be. The graph knows the
  capital, and that a country has one. How many claims are judged true, and how many capitals?
- reasons: facts that follow from a rule by which the graph was made. For how many is that rule the
  first reason of `Predictor.explain`? The gaps of the films, and five graphs of the tests.
- check: a hundredth of the facts is replaced by wrong ones: a head or tail of another fact of the
  same relation. How many of the first hundredth of `Predictor.check` are wrong ones?

Writes answers.json; what isn't measured again stays in it. `--label before` keeps the results of an
earlier version beside those of the present one.
"""

from __future__ import annotations

import argparse
import json
import runpy
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from measure import DATA, HERE, console, provenance
from torch import Tensor

import pathe
from pathe.core.randomness import keyed
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.model.artifact import load_model

OUT = HERE / "answers.json"
SEED = 7
SPLITS = 10  # of graphs without a split
WORLDS = range(5, 10)  # seeds of the tests' planted graphs
GRAPHS = {
    "europe": lambda: KnowledgeGraph.read(HERE.parent / "examples" / "europe.csv"),
    "planted": lambda: KnowledgeGraph.from_triples(planted()["planted"](WORLDS[0]).facts),
    "films": lambda: KnowledgeGraph.read(HERE.parent / "examples" / "films.csv"),
    "umls": lambda: KnowledgeGraph.read("umls"),
    "codex-s": lambda: KnowledgeGraph.read(DATA / "codex-s"),
    "codex-m": lambda: KnowledgeGraph.read(DATA / "codex-m"),
    "fb15k-237": lambda: KnowledgeGraph.read(DATA / "fb15k-237"),
}
OPTIONS = argparse.Namespace(model=None, device="cpu", limit=0)  # replaced by `main`
TRAINED = {"fb15k-237": "fb15k237-link", "codex-m": "codexm-link-bridge"}  # others: pre-trained


def graph_of(kg: KnowledgeGraph, train_M3: Tensor) -> KnowledgeGraph:
    """Returns a graph of these training triples alone."""
    none = kg.valid[:0]
    return KnowledgeGraph(kg.name, kg.entities, kg.relations, train_M3, none, none, kg.report)


def hide(name: str) -> tuple[KnowledgeGraph, set[tuple[int, ...]]]:
    """Returns a graph without a tenth of each relation's facts, and these.

    For a model that was trained on the graph, valid and test triples are hidden instead. The graph
    of films has gaps of its own.
    """
    kg = GRAPHS[name]()
    if name == "films":
        return kg, films(kg).gaps
    if name in TRAINED:
        return graph_of(kg, kg.train), set(map(tuple, torch.cat([kg.valid, kg.test]).tolist()))
    every_M3 = torch.cat([kg.train, kg.valid, kg.test])
    every_M3 = every_M3[_order(every_M3)]
    kept, hidden = [], []
    for relation in range(kg.n_relations):
        rows = every_M3[every_M3[:, 1] == relation]
        rows = rows[keyed(SEED, torch.arange(len(rows))).argsort()]
        hidden.append(rows[: len(rows) // 10])
        kept.append(rows[len(rows) // 10 :])
    kept_M3 = torch.cat(kept)
    return graph_of(kg, kept_M3[_order(kept_M3)]), set(map(tuple, torch.cat(hidden).tolist()))


def _order(triples_M3: Tensor) -> Tensor:
    """Returns the order by head, relation, tail."""
    heads, relations, tails = triples_M3.long().unbind(1)
    return ((heads << 42) + (relations << 21) + tails).argsort()


def predictor(name: str, kg: KnowledgeGraph) -> pathe.Predictor:
    model = OPTIONS.model or (HERE.parent / "models" / TRAINED[name] if name in TRAINED else None)
    return pathe.Predictor(load_model(model), kg, device=OPTIONS.device)


def missing(name: str) -> dict[str, Any]:
    kg, hidden = hide(name)
    p = predictor(name, kg)
    start = time.perf_counter()
    found = list(p.missing(max(2 * len(hidden), 1000)))
    seconds = time.perf_counter() - start
    rows = zip(
        kg.entities.ids([m.head for m in found]).tolist(),
        kg.relations.ids([m.relation for m in found]).tolist(),
        kg.entities.ids([m.tail for m in found]).tolist(),
        strict=True,
    )
    right = torch.tensor([row in hidden for row in rows]).float()
    precision = right.cumsum(0) / torch.arange(1, len(right) + 1)

    def recall(least: float) -> float:
        good = (precision >= least).nonzero().flatten()
        most = int(good[-1]) + 1 if len(good) else 0
        return float(right[:most].sum() / len(hidden))

    return {
        "hidden": len(hidden),
        "listed": len(found),
        "precision@100": float(right[:100].sum() / 100),
        "precision@1000": float(right[:1000].sum() / 1000),
        "recall at precision .5": recall(0.5),
        "recall at precision .9": recall(0.9),
        "seconds": seconds,
    }


def classify(name: str) -> dict[str, Any]:
    from pathe.evaluation.truth import calibration_error

    kgs, start = [GRAPHS[name]()], time.perf_counter()
    if not len(kgs[0].valid):
        path, split = kg_path(name), (0.8, 0.1, 0.1)
        kgs = [KnowledgeGraph.read(path, split=split, seed=seed) for seed in range(SPLITS)]
    judged = [classify_split(name, kg) for kg in kgs]
    chance, verdict, label = (torch.cat(column) for column in zip(*judged, strict=True))
    return {
        "splits": len(kgs),
        "true": int(label.sum()),
        "false": int((~label).sum()),
        "negatives": "published" if (DATA / name).is_dir() else "another head or tail",
        "accuracy": float((verdict == label).float().mean()),
        "F1": float(2 * (verdict & label).sum() / (verdict.sum() + label.sum())),
        "calibration error": calibration_error(chance, label),
        "calibration error of exact probabilities": exact_error(chance),
        "seconds": time.perf_counter() - start,
    }


def classify_split(name: str, kg: KnowledgeGraph) -> tuple[Tensor, Tensor, Tensor]:
    """Returns probabilities, verdicts and the truth of test triples and false ones."""
    from pathe.predict.judge import negatives as make_false

    tested, kg = kg.test, replace(kg, test=kg.test[:0])  # the predictor knows no test triples
    p = predictor(name, kg)
    true = p._named(tested.tolist())
    if (folder := DATA / name).is_dir():
        false = read(folder / "test_negatives.txt.gz", kg)
        given: list[Any] | None = read(folder / "valid_negatives.txt.gz", kg)
    else:
        made = make_false(p.prepared, p.prepared.known().add(tested), tested.long(), SEED)
        false, given = p._named(made.tolist()), None
    if OPTIONS.limit:
        true, false = sample(true), sample(false)
    judged = p.classify([*true, *false], negatives=given)
    chance, verdict = ([getattr(c, key) for c in judged] for key in ("probability", "true"))
    label = torch.arange(len(judged)) < len(true)
    return torch.tensor(chance), torch.tensor(verdict), label


def exact_error(chance_B: Tensor) -> float:
    """Returns the calibration error that probabilities show by chance if they are right."""
    from pathe.evaluation.truth import calibration_error

    generator = torch.Generator().manual_seed(SEED)
    drawn = (torch.rand(len(chance_B), generator=generator) < chance_B for _ in range(200))
    return sum(calibration_error(chance_B, true_B) for true_B in drawn) / 200


def planted() -> dict[str, Any]:
    """Returns the module that makes the tests' graphs by rules."""
    return runpy.run_path(str(HERE.parent / "tests" / "support" / "planted.py"))


def reasons(name: str) -> dict[str, Any]:
    start = time.perf_counter()
    right = films_reasons() if name == "films" else planted_reasons()
    figures = {"facts": len(right), "first": sum(right), "share": sum(right) / len(right)}
    return figures | {"seconds": time.perf_counter() - start}


def planted_reasons() -> list[bool]:
    """Returns for each fact whether its rule is its first reason."""
    script, right = planted(), list[bool]()
    for world in map(script["planted"], WORLDS):
        p = predictor("planted", KnowledgeGraph.from_triples(world.facts))
        right += [_first(p, fact) == script["RULES"][fact[1]] for fact in world.held_out]
    return right


def films_reasons() -> list[bool]:
    """Returns for each gap whether its rule is its first reason.

    A step of it may be replaced by what implies it: capitals are seats of government.
    """
    script = runpy.run_path(str(HERE.parent / "examples" / "make_films.py"))
    made, rules = script["make_films"](0), script["RULES"]
    p, right = predictor("films", GRAPHS["films"]()), []
    for fact in made.gaps:
        reason = list(made.reasons[fact])
        implied = [step for own in reason for step in rules.get(own, (own,))]
        right.append(_first(p, fact) in (reason, implied))
    return right


def _first(p: pathe.Predictor, fact: tuple[str, str, str]) -> list[str]:
    """Returns the relations of the first pattern; none if there is no path."""
    patterns = p.explain(*fact).patterns
    return patterns[0].relations if patterns else []


CAPITALS = {"europe": ("capital of", "city in"), "films": ("capital_of", "located_in")}


def second(name: str) -> dict[str, Any]:
    kg, (capital_of, in_country) = GRAPHS[name](), CAPITALS[name]
    p = predictor(name, kg)
    start = time.perf_counter()
    facts = p._named(kg.train.tolist())
    capitals = {(h, t) for h, r, t in facts if r == capital_of}
    countries = {t for _, t in capitals}
    cities = {(h, t) for h, r, t in facts if r == in_country and t in countries}
    figures: dict[str, Any] = {}
    for title, pairs in (("capitals", capitals), ("other cities", cities - capitals)):
        judged = p.classify([(h, capital_of, t) for h, t in sorted(pairs)])
        figures[title] = len(judged)
        figures[f"{title} judged true"] = sum(c.true for c in judged)
        figures[f"{title}, mean probability"] = sum(c.probability for c in judged) / len(judged)
    return figures | {"seconds": time.perf_counter() - start}


def sample(facts: list[Any]) -> list[Any]:
    order = keyed(SEED, torch.arange(len(facts))).argsort()[: OPTIONS.limit].tolist()
    return [facts[i] for i in order]


def kg_path(name: str) -> Path:
    return HERE.parent / "examples" / f"{name}.csv"


def read(path: Path, kg: KnowledgeGraph) -> list[Any]:
    """Returns the triples of a file whose names the graph has."""
    import gzip

    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [tuple(line.rstrip("\n").split("\t")) for line in file]
    return [r for r in rows if r[0] in kg.entities and r[2] in kg.entities and r[1] in kg.relations]


def check(name: str) -> dict[str, Any]:
    kg = GRAPHS[name]()
    if name == "films":  # it has wrong facts of its own
        return suspicious(name, kg, kg.train, films(kg).wrong)
    every_M3 = torch.cat([kg.train, kg.valid, kg.test]).long()
    every_M3 = every_M3[_order(every_M3)]
    facts = set(map(tuple, every_M3.tolist()))
    n = max(len(every_M3) // 100, 1)
    rows = keyed(SEED, torch.arange(len(every_M3))).argsort().tolist()
    wrong: set[tuple[int, ...]] = set()
    gone: set[tuple[int, ...]] = set()
    for i in rows:
        h, r, t = every_M3[i].tolist()
        same = every_M3[every_M3[:, 1] == r]
        other = same[int(keyed(SEED, i, 1) % len(same))].tolist()
        made = (other[0], r, t) if i % 2 else (h, r, other[2])
        if made not in facts and made not in wrong and made[0] != made[2]:
            wrong.add(made)
            gone.add((h, r, t))
        if len(wrong) == n:
            break
    facts_M3 = torch.tensor(sorted((facts - gone) | wrong), dtype=torch.int32)
    return suspicious(name, kg, facts_M3, wrong)


class Planted(NamedTuple):
    """What examples/films.csv is known to lack, and to have wrong."""

    gaps: set[tuple[int, ...]]
    wrong: set[tuple[int, ...]]


def films(kg: KnowledgeGraph) -> Planted:
    made = runpy.run_path(str(HERE.parent / "examples" / "make_films.py"))["make_films"](0)

    def ids(facts: list[tuple[str, str, str]]) -> set[tuple[int, ...]]:
        return {(kg.entities.id(h), kg.relations.id(r), kg.entities.id(t)) for h, r, t in facts}

    return Planted(ids(made.gaps), ids(made.wrong))


def suspicious(
    name: str, kg: KnowledgeGraph, facts_M3: Tensor, wrong: set[tuple[int, ...]]
) -> dict[str, Any]:
    """Checks a graph with wrong facts."""
    n = len(wrong)
    p = predictor(name, graph_of(kg, facts_M3))
    start = time.perf_counter()
    found = p.check(n)
    hit = sum(
        (kg.entities.id(s.head), kg.relations.id(s.relation), kg.entities.id(s.tail)) in wrong
        for s in found
    )
    seconds = time.perf_counter() - start
    figures = {"facts": len(facts_M3), "wrong": len(wrong), "listed": n}
    share = hit / len(wrong)
    return figures | {"precision": hit / n, "recall": share, "seconds": seconds}


TASKS: dict[str, Callable[[str], dict[str, Any]]] = {
    "missing": missing, "classify": classify, "second": second, "check": check,
    "reasons": reasons,
}  # fmt: skip


def main() -> None:
    global OPTIONS
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("graphs", nargs="+", choices=GRAPHS)
    parser.add_argument("--label", default="after")
    parser.add_argument("--limit", type=int, default=0, help="test triples to classify")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--model", type=Path, help="the folder of another model")
    parser.add_argument("--device", default="cpu")
    OPTIONS = args = parser.parse_args()
    out: Path = args.out
    results = json.loads(out.read_text()) if out.exists() else {}
    for name in args.graphs:
        figures = TASKS[args.task](name)
        command = f"python benchmarks/answers.py {args.task} {name}"
        command += f" --limit {args.limit}" * bool(args.limit)
        command += f" --model {args.model.name}" if args.model else ""
        about = provenance(SEED) | {
            "command": command,
            "model": args.model.name if args.model else TRAINED.get(name, "pre-trained"),
            "data": GRAPHS[name]().fingerprint(),
        }
        results.setdefault(args.task, {}).setdefault(name, {})[args.label] = figures | about
        out.write_text(json.dumps(results, indent=1) + "\n")
        console.print(args.task, name, figures)


if __name__ == "__main__":
    main()
