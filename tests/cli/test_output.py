"""Results in every format: --json, --jsonl and --out."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.commands import pathe, refused

from pathe.data.row_files import columns_of
from pathe.predict.missing import Found, find_missing
from pathe.predict.results import Answer, Rule

NAMES = ['Ann "A"', "Bob, Jr", "東京", "d", "e", "f", "g", "h"]
VERBS: dict[str, tuple[str, ...]] = {
    "predict": ("--data", "g.csv", "--head", NAMES[0], "--relation", "knows", "-k", "3"),
    "similar": ("--data", "g.csv", "--entity", NAMES[1], "-k", "3"),
    "rules": ("--data", "g.csv", "-k", "2", "--facts", "4"),
    "missing": ("--data", "g.csv", "-k", "2"),
    "paths": ("g.csv", "--entity", NAMES[2], "-n", "2"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("output")
    rows = [(NAMES[i % 8], ("knows", "likes")[i % 2], NAMES[(i * 3 + 1) % 8]) for i in range(40)]
    rows += [(NAMES[i % 8], "likes", NAMES[(i * 5 + 2) % 8]) for i in range(20)]
    with (folder / "g.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("head", "relation", "tail"), *rows])
    return folder


def answered(*args: str | Path, cwd: Path) -> str:
    found = pathe(*args, cwd=cwd)
    assert found.returncode == 0, found.stderr
    return str(found.stdout)


def near(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    return [{k: pytest.approx(v) if isinstance(v, float) else v for k, v in row.items()}
            for row in rows] == others  # fmt: skip


@pytest.fixture
def searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is searched for once and then remembered: only the format differs."""
    found: list[Found] = []

    def once(*args: Any, **options: Any) -> Found:
        if not found:
            found.append(find_missing(*args, **options))
        return found[0]

    monkeypatch.setattr("pathe.predict.predictor.find_missing", once)


@pytest.mark.usefixtures("searched_once")
@pytest.mark.parametrize("verb", VERBS)
def test_all_formats_hold_the_same_rows(verb: str, place: Path) -> None:
    asked = (verb, *VERBS[verb])
    lines = [json.loads(x) for x in answered(*asked, "--jsonl", cwd=place).splitlines()]
    assert lines
    whole = json.loads(answered(*asked, "--json", cwd=place))
    assert isinstance(whole, dict) == (verb == "paths")  # paths by entity
    assert verb == "paths" or near(whole, lines)
    for suffix in ("json", "jsonl", "csv", "tsv", "parquet"):
        name = f"{verb}.{suffix}"
        if suffix == "tsv" and verb == "paths":
            continue
        found = pathe(*asked, "--out", name, cwd=place)
        assert (found.returncode, found.stdout) == (0, ""), found.stderr
        assert f"wrote {name}: {len(lines)} rows" in found.stderr
    assert json.loads((place / f"{verb}.json").read_text()) == whole
    assert [*map(json.loads, (place / f"{verb}.jsonl").read_text().splitlines())] == lines
    stored = pq.read_table(place / f"{verb}.parquet").to_pylist()
    with (place / f"{verb}.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    for row, cells, values in zip(lines, table, stored, strict=True):
        for key, cell in cells.items():
            read = str if isinstance(row[key], str) else json.loads
            assert read(cell.lower() if isinstance(row[key], bool) else cell) == row[key]
            own = json.loads(values[key]) if isinstance(row[key], list) else values[key]
            assert own == row[key]


def test_a_scored_triple_is_an_object_or_a_row(place: Path) -> None:
    asked = ("predict", *VERBS["predict"][:6], "--tail", NAMES[1])
    whole = json.loads(answered(*asked, "--json", cwd=place))
    assert whole["tail"] == NAMES[1]
    assert json.loads(answered(*asked, "--jsonl", cwd=place)) == whole
    answered(*asked, "--out", "triple.csv", cwd=place)
    assert (place / "triple.csv").read_text().splitlines()[0].startswith("head,relation,tail,score")


def test_analyze_is_written_as_json_only(place: Path) -> None:
    answered("analyze", "g.csv", "--out", "a.json", cwd=place)
    assert json.loads((place / "a.json").read_text())["counts"]["entities"] == 8
    assert "ends in .json" in refused("analyze", "g.csv", "--out", "a.csv", cwd=place)


def test_evaluate_per_relation(place: Path) -> None:
    asked = ("evaluate", "--data", "g.csv", "--split", "0.6,0.2,0.2", "--test-set", "all")
    whole = json.loads(answered(*asked, "--json", cwd=place))
    answered(*asked, "--out", "e.csv", cwd=place)
    with (place / "e.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["relation"] for row in table] == [row["relation"] for row in whole["per_relation"]]
    total = sum(int(row["triples"]) for row in table)
    assert total == whole["n_triples"]
    for side, key in (("", "mrr"), ("head_", "hits_at_1"), ("tail_", "hits_at_10")):
        mean = sum(float(row[side + key]) * int(row["triples"]) for row in table) / total
        part = whole[side.rstrip("_")] if side else whole
        assert mean == pytest.approx(part[key])
    shown = answered(*asked, "--per-relation", cwd=place).partition("parameters")[2]
    assert all(word in shown for word in ("triples", "both", "head", "tail", "MRR", "@10"))
    assert all(row["relation"] in shown for row in table)


def test_split_splits_and_on_names_the_split(place: Path) -> None:
    asked = ("evaluate", "--data", "g", "--test-set", "all", "--json")
    answered("convert", "g.csv", "g", "--split", "0.6,0.2,0.2", cwd=place)
    valid = json.loads(answered(*asked, "--on", "valid", cwd=place))
    assert valid["split"] == "valid"
    found = pathe(*asked, "--split", "valid", cwd=place)  # as before
    assert json.loads(found.stdout) == valid
    assert "--split valid is now --on valid" in found.stderr
    assert "0.8,0.1,0.1" in refused("evaluate", "--data", "g.csv", "--split", "dev", cwd=place)


def test_one_way_out_at_a_time(place: Path) -> None:
    for more in (("--json", "--jsonl"), ("--json", "--out", "x.json")):
        assert "only one of" in refused("missing", "--data", "g.csv", *more, cwd=place)
    assert not (place / "x.json").exists()


def test_columns_are_the_fields_of_a_record() -> None:
    assert list(columns_of(Answer))[:5] == ["rank", "name", "score", "probability", "known"]
    assert columns_of(Answer)["probability"] is float
    assert columns_of(Rule)["path"] is str  # a list, as JSON
