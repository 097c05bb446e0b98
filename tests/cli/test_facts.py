"""missing, classify and check from the command line."""

from __future__ import annotations

import csv
import json

import pyarrow.parquet as pq
import pytest
from support.commands import pathe, refused


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """People have the nationality of their birthplace; ten lack it, one has a wrong one."""
    folder = tmp_path_factory.mktemp("facts")
    rows = [(f"city{i}", "in", f"country{i % 4}") for i in range(12)]
    rows += [(f"person{i}", "born", f"city{i % 12}") for i in range(60)]
    rows += [(f"person{i}", "nationality", f"country{i % 12 % 4}") for i in range(1, 50)]
    rows += [("person0", "nationality", "country3")]  # born in country0
    with (folder / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("head", "relation", "tail"), *rows])
    (folder / "types.csv").write_text("".join(f"person{i},person\n" for i in range(60)))
    (folder / "claims.csv").write_text(
        "person55,nationality,country3\nperson55,nationality,country1\nperson1,born,city1\n"
    )
    (folder / "unknown.csv").write_text("person55,nationality,country3\nperson55,citizen,x\n")
    (folder / "open.csv").write_text("person55,nationality,?\n")
    return folder


def rows(*args, cwd):
    found = pathe(*args, "--json", cwd=cwd)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def test_gaps_with_filters_and_files(place):
    found = rows("missing", "people.csv", "-k", 10, "--relation", "nationality", cwd=place)
    assert {(row["head"], row["tail"]) for row in found} == {
        (f"person{i}", f"country{i % 12 % 4}") for i in range(50, 60)
    }
    assert all("born" in row["reason"] for row in found)
    one = rows("missing", "people.csv", "--entity", "person57", "-k", 1, cwd=place)
    assert one[0]["tail"] == "country1"
    typed = ("--type", "person", "--types", "types.csv", "-k", 3, "--no-reasons")
    assert all(row["head"].startswith("person") and not row["reason"]
               for row in rows("missing", "people.csv", *typed, cwd=place))  # fmt: skip
    (place / "some.txt").write_text("person57\nperson58\n")
    among = ("--among", "some.txt", "--exclude", "person58", "-k", 5, "--no-reasons")
    named = rows("missing", "people.csv", *among, cwd=place)
    assert {row["head"] for row in named} == {"person57"}
    sure = rows("missing", "people.csv", "--min-probability", "0.999999", cwd=place)
    assert len(sure) < 20
    shown = pathe("missing", "--data", "people.csv", "-k", 2, cwd=place).stdout
    assert "probability" in shown
    assert "reason" in shown
    made = pathe("missing", "people.csv", "-k", 3, "--out", "m.parquet", cwd=place)
    assert made.returncode == 0, made.stderr
    assert "reason" in pq.read_table(place / "m.parquet").column_names
    more = ("-k", 500, "--no-reasons", "--many", "nationality")
    many = rows("missing", "people.csv", *more, cwd=place)
    assert any(row["head"] == "person1" and row["relation"] == "nationality" for row in many)


def test_true_and_false_claims_are_separated(place):
    found = rows("classify", "people.csv", "--triples", "claims.csv", cwd=place)
    assert [row["tail"] for row in found] == ["country3", "country1", "city1"]
    assert [row["known"] for row in found] == [False, False, True]
    assert found[0]["probability"] > found[1]["probability"]
    assert found[0]["true"]
    assert not found[1]["true"]
    shown = pathe("classify", "people.csv", "--triples", "claims.csv", cwd=place).stdout
    assert "of 3 judged true" in shown


def test_a_wrong_fact_is_found_with_what_it_should_be(place):
    found = rows("check", "people.csv", "-k", 1, "--relation", "nationality", cwd=place)
    assert found[0]["instead"].startswith("born something in country0 (1 path, holds for ")
    assert (found[0]["head"], found[0]["tail"]) == ("person0", "country3")
    assert found[0]["expected"][0] == "country0"
    plain = pathe("check", "people.csv", "-k", 1, "--no-reasons", cwd=place).stdout
    assert {"more", "probable", "tails"} <= set(plain.split())  # a column's title
    assert len(rows("check", "people.csv", "--sample", 5, cwd=place)) == 5


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("missing", "people.csv", "--min-probability", "2"), "from 0 to 1"),
        (("missing", "people.csv", "--n-queries", "0"), "--n-queries must be at least 1"),
        (("missing", "people.csv", "--queries", "0"), "--n-queries must be at least 1"),
        (("missing", "people.csv", "--entity", "person99"), "Closest"),
        (("missing", "people.csv", "--type", "person"), "types"),
        (("missing", "people.csv", "--one-tail", "nationalty"), "Closest"),
        (("classify", "people.csv", "--triples", "claims.csv", "--one-head", "bron"), "Closest"),
        (("check", "people.csv", "--many", "nationalty"), "Closest"),
        (("classify", "people.csv", "--triples", "none.csv"), "none.csv"),
        (("classify", "people.csv", "--triples", "unknown.csv"), "line 2"),
        (
            ("classify", "people.csv", "--triples", "open.csv"),
            "expected head, relation and tail, all named",
        ),
        (("check", "people.csv", "--sample", "0"), "at least 1"),
        (("check",), "Give the graph"),
        (("check", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_bad_input_is_answered_in_words(place, args, said):
    assert said in refused(*args, cwd=place)


def test_the_old_name_of_n_queries_still_works(place):
    asked = ("missing", "people.csv", "-k", 500, "--no-reasons", "--json")
    found = [pathe(*asked, name, 3, cwd=place) for name in ("--n-queries", "--queries")]
    assert found[0].stdout == found[1].stdout
    assert "--queries is now --n-queries" in found[1].stderr
    assert len(json.loads(found[0].stdout)) < len(rows(*asked[:-1], cwd=place))


def test_what_is_functional_can_be_said_to_classify_and_check(place):
    (place / "second.csv").write_text(
        "".join(f"person{i},nationality,country{(i + 1) % 4}\n" for i in range(1, 20))
    )
    asked = ("classify", "people.csv", "--triples", "second.csv", "--no-reasons")
    learned, many = (rows(*asked, *more, cwd=place) for more in ((), ("--many", "nationality")))
    assert [row["probability"] for row in many] != [row["probability"] for row in learned]
    asked = ("check", "people.csv", "-k", 5, "--no-reasons")
    assert rows(*asked, "--one-tail", "in", "--many", "nationality", cwd=place) != rows(
        *asked, cwd=place
    )


def test_unknown_names_can_be_skipped(place):
    given = ("classify", "people.csv", "--triples", "unknown.csv", "--on-error", "skip")
    assert len(rows(*given, cwd=place)) == 1
