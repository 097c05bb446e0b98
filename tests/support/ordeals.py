"""Commands that are killed and run again, what they leave, and what must come out of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.folders import tsv
from support.forks import End, Forks, Run
from support.graphs import toy
from support.models import any_graph_artifact, artifact_of
from support.runs import SMALL

from pathe.model.artifact import load_model, save_model

TIMES = {
    "seconds", "train_seconds", "evaluation_seconds", "peak_memory_bytes", "command",
    "steps_per_second", "time", "valid_seconds", "epoch_seconds",
}  # fmt: skip
LOGS = (
    "logs",
    "tensorboard",
    "checkpoints",
    "checkpoint.pt",
)  # what Lightning writes, for people, and checkpoints
INTERRUPTED = (130, 143)


@dataclass(frozen=True)
class Ordeal:
    """A command, and which of the paths that it writes appear whole, in their final form."""

    name: str
    words: Sequence[str]
    whole: Sequence[str] = ()
    resume: Sequence[str] = ()  # the command that goes on; () if it is the same
    refuses: str = ""  # this path, if it is there, is the result: the command doesn't write it anew
    weight: float = 1.0  # of the trials


def settings(**more: Any) -> list[str]:
    given = SMALL | {"init": "none", "max_epochs": 3} | more
    return [word for key, value in given.items() for word in ("--set", f"{key}={value}")]


TRAIN = ("train", "data", "--out", "run")
PRETRAIN = ("pretrain", "data", "--out", "run", "--device", "cpu")
SIZES = {
    "dim": 8, "n_hops": 2, "n_layers": 1, "steps": 6, "valid_every": 2, "valid_triples": 10,
    "least_batch": 4, "most_batch": 8,
}  # fmt: skip
ORDEALS = [
    Ordeal("convert", ("convert", "graph.tsv", "out", "--split", "0.8,0.1,0.1"), ["out"],
           refuses="out"),
    Ordeal("convert to a file", ("convert", "graph.tsv", "out.ttl.gz"), ["out.ttl.gz"],
           refuses="out.ttl.gz", weight=0.5),
    Ordeal("prepare", ("prepare", "data", "out"), weight=2),
    Ordeal("prepare with a split", ("prepare", "graph.tsv", "out", "--split", "0.8,0.1,0.1"),
           weight=0.5),
    Ordeal("train", (*TRAIN, *settings()), ["run/result.json"],
           resume=(*TRAIN, "--resume"), weight=3),
    Ordeal("train from the pre-trained model",
           (*TRAIN, "--from", "any-graph", "--set", "max_epochs=2", "--set", "batch_size=40",
            "--set", "accelerator=cpu"), ["run/result.json"], resume=(*TRAIN, "--resume")),
    Ordeal("pretrain", (*PRETRAIN, *(w for k, v in SIZES.items() for w in ("--set", f"{k}={v}"))),
           ["run/result.json"], resume=(*PRETRAIN, "--resume"), weight=2),
    Ordeal("embed", ("embed", "model", "--data", "data", "--out", "out.npy"),
           ["out.npy", "out.names.txt"]),
    Ordeal("predict --out", ("predict", "model", "--data", "data", "--queries", "queries.tsv",
                             "--out", "out.jsonl"), ["out.jsonl"]),
    Ordeal("missing --out", ("missing", "any-graph", "--data", "data", "--relation", "r0",
                             "--out", "out.parquet"), ["out.parquet"], weight=0.5),
    Ordeal("reproduce", ("reproduce", "tiny", "--experiments", ".", "--data", ".", "--runs", "runs",
                         "--results", "results", "--models", "models"),
           ["results/tiny.json"], weight=2),
    Ordeal("embed --parts", ("embed", "model", "--data", "data", "--parts", "parts",
                             "--out", "out.parquet"), ["out.parquet"], weight=2),
    Ordeal("predict --parts", ("predict", "model", "--data", "data", "--queries", "queries.tsv",
                               "--parts", "parts", "--out", "out.csv"), ["out.csv"]),
    Ordeal("paths --parts", ("paths", "data", "--all", "-n", "2", "--parts", "parts",
                             "--out", "out.jsonl"), ["out.jsonl"]),
    Ordeal("evaluate --parts", ("evaluate", "model", "--data", "data", "--parts", "parts",
                                "--out", "out.json"), ["out.json"]),
]  # fmt: skip


def write_inputs(folder: Path) -> Path:
    """Writes what the commands read: a graph, a model with entity vectors, one without, queries."""
    folder.mkdir()
    kg = toy()
    kg.save(folder / "data")
    rows = [
        (kg.entities[h], kg.relations[r], kg.entities[t])
        for triples in kg.splits.values()
        for h, r, t in triples.tolist()
    ]
    (folder / "graph.tsv").write_text(tsv(rows))
    save_model(folder / "model", artifact_of(kg))
    save_model(folder / "any-graph", any_graph_artifact())
    queries = "".join(f"e{i:04}\tr{i % 3}\t?\n" for i in range(20))
    (folder / "queries.tsv").write_text(queries)
    lines = "".join(f"  {key}: {json.dumps(value)}\n" for key, value in SMALL.items())
    (folder / "tiny.yaml").write_text(
        "title: Tiny\ntable: recipes\ndata: data\nseeds: [0, 1]\nships: true\n"
        f"settings:\n  init: none\n{lines}  max_epochs: 2\n"
    )
    return folder


class Trial:
    """A folder of its own with the inputs, where a command runs, is stopped, and runs again."""

    def __init__(self, ordeal: Ordeal, inputs: Path, folder: Path, forks: Forks) -> None:
        self.ordeal, self.folder, self.forks = ordeal, folder, forks
        self.inputs = {path.name for path in inputs.iterdir()}
        if not folder.exists():
            folder.mkdir()
        shutil.copytree(inputs, folder, dirs_exist_ok=True)

    def start(self, **what: Any) -> End:
        """Runs the command."""
        return self._run(self.ordeal.words, **what)

    def _run(self, words: Sequence[str], **what: Any) -> End:
        return self.forks(Run(words, str(self.folder), small=True, **what))[0]

    def again(self, **what: Any) -> End | None:
        """Runs the same command once more; None if its result is there already."""
        if self.ordeal.refuses and (self.folder / self.ordeal.refuses).exists():
            return None
        if not self.ordeal.resume:
            return self.start(**what)
        end = self._run(self.ordeal.resume, **what)
        if end.code == 2 and "nothing to resume" in end.said:
            return self.start(**what)
        return end

    def made(self) -> dict[str, Any]:
        """Returns the content of each file that the command has made, without times."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            place = path.relative_to(self.folder)
            if place.parts[0] in self.inputs or set(place.parts) & set(LOGS) or path.is_dir():
                continue
            found[str(place)] = _content(path)
        return found

    def broken(self, expected: dict[str, Any]) -> str:
        """Says which path is there in part; "" if each is whole or absent."""
        found = self.made()
        for name in self.ordeal.whole:
            names = {n for n in expected if n == name or n.startswith(f"{name}/")}
            own = {n for n in found if n == name or n.startswith(f"{name}/")}
            if own and (own != names or any(found[n] != expected[n] for n in names)):
                return f"{name} is there in part: {sorted(own)}"
        for path in self.folder.rglob("config.json"):
            if path.parent.name.endswith(".tmp"):
                continue
            load_model(path.parent)  # raises an error unless it is whole
        return ""

    def differs(self, expected: dict[str, Any]) -> str:
        """Says how the end differs from that of a command that wasn't stopped; "" if it doesn't."""
        found = self.made()
        if missing := expected.keys() - found.keys():
            return f"missing: {sorted(missing)}"
        if more := found.keys() - expected.keys():
            return f"left behind: {sorted(more)}"
        changed = [name for name in expected if found[name] != expected[name]]
        hidden = [str(p) for p in self.folder.rglob(".*") if p.name.endswith(".tmp")]
        if changed:
            name = changed[0]
            return (
                f"other content: {changed}: {found[name]!r:.600} instead of {expected[name]!r:.600}"
            )
        return f"left behind: {hidden}" if hidden else ""

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _content(path: Path) -> Any:
    raw = path.read_bytes()
    try:
        if path.suffix == ".json":
            return _timeless(json.loads(raw))
        if path.suffix == ".jsonl":
            found = [_timeless(json.loads(line)) for line in raw.splitlines()]
            return sorted(found, key=repr) if path.name == "finished.jsonl" else found
    except ValueError:
        pass
    return raw


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(own) for key, own in value.items() if key not in TIMES}
    return [_timeless(own) for own in value] if isinstance(value, list) else value


def spoken(end: End, *codes: int) -> str:
    """Says what is wrong with an exit: another code, or a traceback; "" if nothing is."""
    if "Traceback" in end.said:
        return f"a traceback: {end.said[-1500:]}"
    return "" if end.code in codes else f"exit code {end.code}: {end.said[-1500:]}"
