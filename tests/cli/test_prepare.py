"""`pathe prepare`, and commands on what it makes."""

from __future__ import annotations

import json

from support.commands import pathe, refused
from support.places import ROOT

EUROPE = ROOT / "examples" / "europe.csv"


def test_a_prepared_folder_is_data(tmp_path):
    made = pathe("prepare", EUROPE, tmp_path / "e", "--json")
    assert made.returncode == 0, made.stderr
    about = json.loads(made.stdout)
    assert about["splits"]["valid"] == 0
    for phase in ("reading", "known triples", "prepared"):
        assert phase in made.stderr
    shown, expected = (
        json.loads(pathe("analyze", data, "--json").stdout) for data in (tmp_path / "e", EUROPE)
    )
    assert shown.pop("fingerprint") == expected.pop("fingerprint") == about["fingerprint"]
    for one in (shown, expected):
        one.pop("name", None)
    assert shown == expected
    question = ("--head", "Paris", "--relation", "lies on", "-k", "3", "--json")
    answers = [pathe("predict", "--data", data, *question) for data in (tmp_path / "e", EUROPE)]
    assert answers[0].stdout == answers[1].stdout != ""
    again = pathe("prepare", EUROPE, tmp_path / "e")
    assert again.returncode == 0
    assert "nothing has changed" in again.stderr


def test_bad_folders_are_refused(tmp_path):
    pathe("prepare", EUROPE, tmp_path / "e")
    manifest = tmp_path / "e" / "prepared.json"
    good = manifest.read_text()
    manifest.write_text(good[:-20])
    assert "damaged" in refused("analyze", tmp_path / "e")
    manifest.write_text(good.replace('"format_version": 1', '"format_version": 0'))
    assert "version 1, found" in refused("analyze", tmp_path / "e")
    manifest.unlink()
    assert "unknown kind of folder" in refused("analyze", tmp_path / "e")
    (tmp_path / "e" / "unfinished").mkdir()
    assert "was interrupted" in refused("analyze", tmp_path / "e")
    assert "expected a new or empty folder" in refused("prepare", EUROPE, ROOT / "examples")
    assert "no such file" in refused("prepare", tmp_path / "none.csv", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_corrupt_part_is_named_and_the_rest_is_kept(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    pathe("convert", EUROPE, parts / "a.parquet")
    (parts / "b.parquet").write_bytes((parts / "a.parquet").read_bytes()[:100])
    said = refused("prepare", parts, tmp_path / "out")
    assert "b.parquet: can't be read as Parquet" in said
    (parts / "b.parquet").write_bytes((parts / "a.parquet").read_bytes())
    assert pathe("prepare", parts, tmp_path / "out").returncode == 0
    assert pathe("analyze", tmp_path / "out").returncode == 0
