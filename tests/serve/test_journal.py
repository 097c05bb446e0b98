"""The journal: what was acknowledged is there after a crash."""

from __future__ import annotations

import os

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


@pytest.mark.parametrize("end", [b"\0", b"\0" * 4000, b'{"add": [["a"' + b"\0" * 50])
@pytest.mark.parametrize("n_lines", [0, 1])
def test_zero_bytes_that_a_power_failure_left_are_dropped(tmp_path, end, n_lines):
    path = tmp_path / "changes.jsonl"
    journal = Journal(path)
    journal.append(FIRST)
    journal.close()
    whole = path.read_bytes() * n_lines
    path.write_bytes(whole + end)
    assert read(path) == [FIRST] * n_lines
    assert path.read_bytes() == whole


@pytest.mark.parametrize("n", [1, 2])
def test_a_line_that_lacks_only_its_end_is_kept(tmp_path, n):
    path = tmp_path / "changes.jsonl"
    path.write_text('{"add": [["a", "r", "b"]], "remove": []}\n' * n)  # of an older version
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert read(path) == [FIRST] * n
    assert path.read_bytes() == whole


@pytest.mark.parametrize("text", ["my notes", "[1, 2]", '{"add": 1}', '{"remove": []', "\0x"])
def test_a_file_of_somebody_else_without_a_last_newline_is_refused_and_kept(tmp_path, text):
    path = tmp_path / "notes.txt"
    for whole in (text, f'{{"add": [["a", "r", "b"]], "remove": []}}\n{text}'):
        path.write_text(whole)
        with pytest.raises(DataError, match=r"line \d: expected"):
            Journal(path)
        assert path.read_text() == whole


def test_no_flipped_bit_is_read(tmp_path):
    path = tmp_path / "changes.jsonl"
    journal = Journal(path)
    journal.append(SECOND)
    journal.append(FIRST)
    journal.close()
    whole = path.read_bytes()
    refused = 0
    for i in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[i // 8] ^= 1 << i % 8
        path.write_bytes(flipped)
        try:
            found = read(path)
        except DataError:
            refused += 1
        else:
            assert found == [SECOND, FIRST]  # a space became another one
        assert path.read_bytes() == flipped
    assert refused > 7.9 * len(whole)


@pytest.mark.parametrize(
    "line", ["x", "[]", "[" * 100_000, '{"add": []}', '{"add": [["a"]], "remove": []}', "{}"]
)
def test_other_files_are_refused_and_kept(tmp_path, line):
    path = tmp_path / "notes.txt"
    path.write_text(f"{line}\n")
    with pytest.raises(DataError, match="line 1: expected"):
        Journal(path)
    assert path.read_text() == f"{line}\n"


def test_the_name_of_a_new_journal_reaches_the_disk(tmp_path, monkeypatch):
    synced, real = [], os.fsync

    def spy(number):
        synced.append(os.fstat(number).st_ino)
        real(number)

    monkeypatch.setattr("os.fsync", spy)
    Journal(tmp_path / "changes.jsonl").close()
    assert tmp_path.stat().st_ino in synced


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


def test_after_a_write_that_cant_be_undone_there_is_no_other(tmp_path, monkeypatch):
    path = tmp_path / "changes.jsonl"
    journal = Journal(path)
    journal.append(FIRST)
    whole, file = path.read_bytes(), journal._file

    class Disk:
        def __getattr__(self, name):
            return getattr(file, name)

        def write(self, data):
            return file.write(data[:9])

        def truncate(self, size):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(journal, "_file", Disk())
    with pytest.raises(NotWritten, match="Restart the server"):
        journal.append(SECOND)
    monkeypatch.undo()
    with pytest.raises(NotWritten, match="Restart the server"):  # not after a part of a line
        journal.append(SECOND)
    assert len(path.read_bytes()) == len(whole) + 9
    journal.close()
    assert read(path) == [FIRST]
