"""Writes that are whole or absent, on the disk before they are named, and locks of folders."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pathe.core import files
from pathe.core.errors import PatheError
from pathe.core.files import check_new_folder, discard, locked, read_json, replacing, write_json


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """fsync of the file, rename, fsync of the folder, in this order."""
    done: list[tuple[str, str]] = []
    real_sync, real_replace = os.fsync, os.replace

    def fsync(opened):
        done.append(("sync", str(Path(f"/proc/self/fd/{opened}").readlink())))
        real_sync(opened)

    def rename(source, target):
        done.append(("rename", str(target)))
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    write_json(tmp_path / "a.json", [1])
    kinds = [kind for kind, _ in done]
    assert kinds == ["sync", "rename", "sync"]
    assert done[0][1].endswith(".tmp")
    assert done[2][1] == str(tmp_path)
    done.clear()
    with replacing(tmp_path / "folder") as aside:
        (aside / "inner").mkdir(parents=True)
        (aside / "inner" / "a").write_text("a")
    synced = [path.rsplit("/", 1)[-1] for kind, path in done if kind == "sync"]
    assert [kind for kind, _ in done] == ["sync", "sync", "sync", "rename", "sync"]
    assert synced[0] == "a"
    assert synced[1] == "inner"


def test_a_file_system_without_sync_is_not_an_error(tmp_path, monkeypatch):
    def fsync(opened):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fsync)
    write_json(tmp_path / "a.json", [1])
    assert (tmp_path / "a.json").read_text() == "[\n  1\n]\n"


def test_many_small_writes_stay_quick(tmp_path):
    begin = time.perf_counter()
    for i in range(100):
        write_json(tmp_path / f"{i % 10}.json", i)
    assert time.perf_counter() - begin < 5


def test_a_full_disk_is_named_and_leaves_the_old_file(tmp_path):
    (tmp_path / "a").write_text("old")

    def write() -> None:
        with replacing(tmp_path / "a") as aside:
            aside.write_text("ha")
            raise OSError(28, "No space left on device")

    with pytest.raises(PatheError, match=r"a: can't be written \(the disk is full: No space"):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def _dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_dead_processes_left_is_removed_and_nothing_else(tmp_path):
    machine = files._owner().split("-")[0]
    dead = tmp_path / f".a.{machine}-{_dead()}-0a1b2c3d.tmp"
    alive = tmp_path / f".a.{machine}-{os.getppid()}-0a1b2c3d.tmp"
    elsewhere = tmp_path / f".a.{'0' * 8}-{_dead()}-0a1b2c3d.tmp"
    folder = tmp_path / f".model.{machine}-{_dead()}-0a1b2c3d.tmp"
    own = tmp_path / ".notes.tmp"
    folder.mkdir()
    for path in (dead, alive, elsewhere, own, folder / "weights"):
        path.write_text("half")
    write_json(tmp_path / "a", 1)
    assert not dead.exists()
    assert not folder.exists()
    assert all(path.exists() for path in (alive, elsewhere, own))


def test_a_folder_is_used_by_one_process_and_the_lock_ends_with_it(tmp_path):
    hold = (
        "import sys, time; from pathlib import Path; from pathe.core.files import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(PatheError, match="another process is using"), locked(tmp_path):
            pass
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    with locked(tmp_path):
        assert not list(tmp_path.iterdir())  # it leaves no file


def test_what_a_killed_process_left_does_not_make_a_folder_used(tmp_path):
    machine = files._owner().split("-")[0]
    (tmp_path / f".a.{machine}-{_dead()}-0a1b2c3d.tmp").write_text("half")
    check_new_folder(tmp_path)
    (tmp_path / f".a.{machine}-{os.getppid()}-0a1b2c3d.tmp").write_text("half")
    with pytest.raises(PatheError, match="holds files already"):
        check_new_folder(tmp_path)


def test_a_folder_is_discarded_at_once(tmp_path, monkeypatch):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a").write_text("a")
    with monkeypatch.context() as patched:
        patched.setattr(files, "remove", lambda path: None)  # killed before anything is removed
        discard(tmp_path / "parts")
    assert not (tmp_path / "parts").exists()
    (tmp_path / "parts").mkdir()
    discard(tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize("raw", [b"", b"[", b"[" * 100_000, b"\xff", b"9" * 5000])
def test_invalid_json_is_a_value_error(tmp_path, raw):
    (tmp_path / "a.json").write_bytes(raw)
    with pytest.raises(ValueError, match=r".+"):
        read_json(tmp_path / "a.json")
