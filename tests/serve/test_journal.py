"""The journal: what was acknowledged is there after a crash."""

from __future__ import annotations

import pytest

from pathe.core.errors import DataError
from pathe.serve.journal import Changes, Journal, NotWritten

FIRST = Changes([("a", "r", "b")], [])
SECOND = Changes([("ü\n", "r", '"'), ("c", "r", "d")], [("a", "r", "b")])


def read(path):
    journal = Journal(path)
    journal.close()
    return journal.changes


def test_changes_come_back_in_order(tmp_path):
    path = tmp_path / "changes.jsonl"
    journal = Journal(path)
    assert journal.changes == []
    journal.append(FIRST)
    journal.append(SECOND)
    journal.close()
    assert path.read_bytes().count(b"\n") == 2
    assert read(path) == [FIRST, SECOND]


@pytest.mark.parametrize("n", range(1, 30, 4))
def test_an_unfinished_line_is_dropped(tmp_path, n):
    path = tmp_path / "changes.jsonl"
    journal = Journal(path)
    journal.append(FIRST)
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:n])
    journal = Journal(path)
    assert journal.changes == [FIRST]
    journal.append(SECOND)
    journal.close()
    assert read(path) == [FIRST, SECOND]


@pytest.mark.parametrize(
    "line", ["x", "[]", "[" * 100_000, '{"add": []}', '{"add": [["a"]], "remove": []}', "{}"]
)
def test_other_files_are_refused_and_kept(tmp_path, line):
    path = tmp_path / "notes.txt"
    path.write_text(f"{line}\n")
    with pytest.raises(DataError, match="line 1: expected"):
        Journal(path)
    assert path.read_text() == f"{line}\n"


def test_two_servers_cant_share_a_journal(tmp_path):
    journal = Journal(tmp_path / "changes.jsonl")
    with pytest.raises(DataError, match="another server"):
        Journal(tmp_path / "changes.jsonl")
    journal.close()


def test_a_folder_that_isnt_there(tmp_path):
    with pytest.raises(DataError, match="can't be written"):
        Journal(tmp_path / "no" / "changes.jsonl")


def test_a_failed_write_leaves_no_part_of_a_line(tmp_path, monkeypatch):
    path = tmp_path / "changes.jsonl"
    journal = Journal(path)
    journal.append(FIRST)
    with monkeypatch.context() as patched:

        def full(number):
            raise OSError(28, "No space left on device")

        patched.setattr("os.fsync", full)
        with pytest.raises(NotWritten, match="No space left"):
            journal.append(SECOND)
    assert path.read_bytes().count(b"\n") == 1
    journal.append(SECOND)
    journal.close()
    assert read(path) == [FIRST, SECOND]
