"""Full disks, folders that can't be written, too little memory, two processes on one output."""

from __future__ import annotations

import errno
import random
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.forks import HANGS, Run
from support.ordeals import ORDEALS, Trial, spoken
from support.tally import KILLS, SEED, share

pytestmark = [pytest.mark.slow, pytest.mark.torture]
WEIGHT = sum(ordeal.weight for ordeal in ORDEALS)
ROOM = "64m"  # enough for any of the commands
PAGE = 4096  # bytes in which a disk in memory is given
LEAST, MOST = 64 << 20, 1 << 30  # bytes that are drawn
TINY = 24 << 20  # bytes that aren't enough; libraries may hang where there is none for a thread


def of_each(function):
    return pytest.mark.parametrize("ordeal", ORDEALS, ids=lambda ordeal: ordeal.name)(function)


@pytest.fixture
def expected(ordeal, forks, inputs, tmp_path):
    """What a run that nothing happens to makes, and its file operations."""
    whole = Trial(ordeal, inputs, tmp_path / "whole", forks)
    end = whole.start()
    assert not spoken(end, 0)
    return whole.made(), len(end.operations)


def failing(ordeal, forks, inputs, tmp_path, expected, code, draw, n):
    """Yields what is wrong after the n-th and all later file operations have failed."""
    for i in range(n):
        place = draw.randint(1, expected[1])
        trial = Trial(ordeal, inputs, tmp_path / f"trial-{i}", forks)
        first = trial.start(fail_at=place, code=code)
        wrong = spoken(first, 0, 2) or trial.broken(expected[0])
        last = None if wrong else trial.again()
        wrong = wrong or (spoken(last, 0) if last else "") or trial.differs(expected[0])
        if wrong:
            at = first.operations[place - 1 : place]
            yield f"{ordeal.name}, from operation {place} {at}: {wrong}"
        trial.remove()


@of_each
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
def test_file_operations_that_fail(ordeal, code, forks, inputs, tmp_path, tally, expected):
    draw, n = (
        random.Random(f"{SEED} {code} {ordeal.name}"),
        share(KILLS, 0.2 * ordeal.weight / WEIGHT),
    )
    found = list(failing(ordeal, forks, inputs, tmp_path, expected, code, draw, n))
    tally(f"{errno.errorcode[code]}: {ordeal.name}", n, found)


@contextmanager
def small_disk(place: Path):
    """A file system of its own in memory; skips the test where none can be mounted."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a file system isn't allowed here")
    try:
        yield lambda options: subprocess.run(
            ["mount", "-o", f"remount,{options}", str(place)], check=True
        )
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def used(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@of_each
def test_full_disk(ordeal, forks, inputs, tmp_path, tally, expected):
    """With any room that isn't enough: exit code 2, and once there is room, all is well."""
    draw, failures = random.Random(f"{SEED} full {ordeal.name}"), []
    n = share(KILLS, 0.2 * ordeal.weight / WEIGHT)
    pages = (used(tmp_path / "whole") - used(inputs)) // PAGE
    n_full = 0
    for i in range(n):
        with small_disk(tmp_path / f"disk-{i}") as remount:
            trial = Trial(ordeal, inputs, tmp_path / f"disk-{i}", forks)
            room = used(trial.folder) + draw.randrange(max(pages, 1)) * PAGE
            remount(f"size={room}")
            first = trial.start()
            n_full += first.code != 0
            wrong = spoken(first, 0, 2) or trial.broken(expected[0])
            if first.code == 2 and "disk is full" not in first.said:
                wrong = wrong or f"doesn't say what is wrong: {first.said}"
            remount(f"size={ROOM}")
            last = None if wrong else trial.again()
            wrong = wrong or (spoken(last, 0) if last else "") or trial.differs(expected[0])
            if wrong:
                failures.append(f"{ordeal.name} with {room:,} bytes: {wrong}")
    tally(f"full disk: {ordeal.name}", n_full, failures, enough=n - n_full)


@of_each
def test_read_only(ordeal, forks, inputs, tmp_path, tally, expected):
    with small_disk(tmp_path / "disk") as remount:
        trial = Trial(ordeal, inputs, tmp_path / "disk", forks)
        remount("ro")
        first = trial.start()
        wrong = spoken(first, 2)
        if "Read-only file system" not in first.said and "no permission" not in first.said:
            wrong = wrong or f"doesn't say what is wrong: {first.said}"
        remount("rw")
        wrong = wrong or ("left something behind" if trial.made() else "")
    tally(f"read-only: {ordeal.name}", 1, [wrong] if wrong else [])


@of_each
def test_two_processes_with_one_output(ordeal, forks, inputs, tmp_path, tally, expected):
    """At least one of them ends well, none with a traceback, and the result is that of one."""
    draw, failures = random.Random(f"{SEED} two {ordeal.name}"), []
    n = share(KILLS, 0.2 * ordeal.weight / WEIGHT)
    for i in range(n):
        trial = Trial(ordeal, inputs, tmp_path / f"trial-{i}", forks)
        later = draw.choice([0.0, draw.uniform(0, 0.05), draw.uniform(0, 0.5)])
        first, second = (
            Run(ordeal.words, str(trial.folder), small=True, wait=wait) for wait in (0.0, later)
        )
        ends = forks(first, second)
        wrong = "".join(spoken(end, 0, 2) for end in ends)
        if not wrong and all(end.code for end in ends):
            wrong = f"both failed: {[end.said for end in ends]}"
        wrong = wrong or trial.differs(expected[0])
        if wrong:
            failures.append(f"{ordeal.name}, the second {later:.3f} s later: {wrong}")
        trial.remove()
    tally(f"two at once: {ordeal.name}", n, failures)


def ended_by_system(end):
    """Whether a signal has ended a command, the loader of libraries, or Python at its own end."""
    loader = end.code == 127 and "cannot allocate memory for thread-local data: ABORT" in end.said
    lost = "SystemError: error return without exception set"  # after all was said
    python = end.said.startswith("error: out of memory") and end.said.rstrip().endswith(lost)
    return loader or python or (isinstance(end.code, int) and end.code < 0)


@of_each
def test_too_little_memory(ordeal, forks, inputs, tmp_path, tally, expected):
    """Refused in words or ended by the system; what is left is whole, the next run ends well.

    What a command needs depends on the machine: a run that has enough is tried again with less, and
    doesn't count as tried if it ends well with the least.
    """
    draw, failures = random.Random(f"{SEED} memory {ordeal.name}"), []
    n, n_refused, n_enough = share(KILLS, 0.2 * ordeal.weight / WEIGHT), 0, 0
    for i in range(n):
        memory = LEAST + int(draw.uniform(0, 1) ** 3 * (MOST - LEAST))
        while True:
            trial = Trial(ordeal, inputs, tmp_path / f"trial-{i}", forks)
            first = trial.start(memory=memory)
            if first.code != 0 or memory == TINY:
                break
            trial.remove()
            memory = max(memory // 4, TINY)
        if first.code == 0 or (first.code == HANGS and memory < LEAST):
            n_enough += 1
            trial.remove()
            continue
        n_refused += first.code == 2
        wrong = "" if ended_by_system(first) else spoken(first, 0, 2)
        wrong = wrong or trial.broken(expected[0])
        last = None if wrong else trial.again()
        wrong = wrong or (spoken(last, 0) if last else "") or trial.differs(expected[0])
        if wrong:
            failures.append(f"{ordeal.name} with {memory:,} bytes: {wrong}")
        trial.remove()
    tally(
        f"too little memory: {ordeal.name}",
        n - n_enough, failures, refused=n_refused, enough=n_enough,
    )  # fmt: skip
