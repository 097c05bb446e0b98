"""Commands that are killed anywhere: what they leave is whole, and run again they end as ever."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import suppress

import pytest
from support.commands import COMMAND
from support.ordeals import INTERRUPTED, ORDEALS, Ordeal, Trial, spoken
from support.places import ROOT
from support.server import kill_while_adding
from support.tally import KILLS, SEED, share

from pathe.serve.journal import Journal

pytestmark = [pytest.mark.slow, pytest.mark.torture]
WEIGHT = sum(ordeal.weight for ordeal in ORDEALS)
CLUSTER = ("--cluster", "local:2")
AGAIN = 0.25  # of the kills are followed by another one, of the second run


def plans(ordeal: Ordeal, n: int, n_operations: int, seconds: float, draw: random.Random):
    """Yields what happens to a run: kills at file operations, the rest at random moments."""
    places = list(range(1, n_operations + 1))
    draw.shuffle(places)
    places = places[: max(n // 2, 1)]
    for i in range(n):
        if i < len(places):
            yield {"kill_at": places[i]}
        else:
            yield {"signum": signal.SIGKILL, "after": draw.uniform(0, 1.1 * seconds)}


@pytest.mark.parametrize("ordeal", ORDEALS, ids=lambda ordeal: ordeal.name)
def test_killed(ordeal, forks, inputs, tmp_path, tally):
    draw = random.Random(f"{SEED} {ordeal.name}")
    whole = Trial(ordeal, inputs, tmp_path / "whole", forks)
    ended = whole.start()
    assert not spoken(ended, 0)
    expected = whole.made()
    n, failures, n_kills = share(KILLS, ordeal.weight / WEIGHT), [], 0
    for i, plan in enumerate(plans(ordeal, n, len(ended.operations), ended.seconds, draw)):
        trial = Trial(ordeal, inputs, tmp_path / f"trial-{i}", forks)
        first = trial.start(**plan)
        n_kills += first.killed
        wrong = trial.broken(expected) or ("" if first.killed else spoken(first, 0))
        if first.killed and not wrong and draw.random() < AGAIN:
            second = trial.again(kill_at=draw.randint(1, len(ended.operations)))
            n_kills += second is not None and second.killed
            wrong = trial.broken(expected)
        last = None if wrong else trial.again()
        wrong = wrong or (spoken(last, 0) if last else "") or trial.differs(expected)
        if wrong:
            failures.append(f"{ordeal.name}, {plan}, last {first.operations[-1:]}: {wrong}")
        trial.remove()
    tally(f"kill: {ordeal.name}", n, failures, kills=n_kills, operations=len(ended.operations))


@pytest.mark.parametrize("ordeal", ORDEALS, ids=lambda ordeal: ordeal.name)
def test_told_to_stop(ordeal, forks, inputs, tmp_path, tally):
    """SIGTERM ends with 143, at once or after saving, and no traceback."""
    draw = random.Random(f"{SEED} stop {ordeal.name}")
    whole = Trial(ordeal, inputs, tmp_path / "whole", forks)
    ended = whole.start()
    assert not spoken(ended, 0)
    expected = whole.made()
    n, failures, n_stopped = share(KILLS, 0.4 * ordeal.weight / WEIGHT), [], 0
    for i in range(n):
        trial = Trial(ordeal, inputs, tmp_path / f"trial-{i}", forks)
        after = draw.uniform(0, 1.1 * ended.seconds)
        first = trial.start(signum=signal.SIGTERM, after=after)
        n_stopped += first.code in (*INTERRUPTED, -signal.SIGTERM)
        wrong = spoken(first, 0, 143, -signal.SIGTERM) or trial.broken(expected)
        last = None if wrong else trial.again()
        wrong = wrong or (spoken(last, 0) if last else "") or trial.differs(expected)
        if wrong:
            failures.append(f"{ordeal.name} after {after:.3f} s: {wrong}")
        trial.remove()
    tally(f"SIGTERM: {ordeal.name}", n, failures, stopped=n_stopped)


def test_a_job_on_a_cluster_that_is_killed_goes_on(tmp_path, tally):
    """`evaluate` is killed at a random moment and run again; the result is that of one process."""
    pytest.importorskip("ray")
    draw, n, failures, n_kills = random.Random(f"{SEED} cluster"), share(KILLS, 0.01), [], 0
    data = ["--data", str(ROOT / "examples" / "europe.csv"), "--split", "0.8,0.1,0.1"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}

    def run(folder, *more, seconds=None):
        """Returns the exit code, and how long it took."""
        words, begin = [*COMMAND, "evaluate", *data, "--out", "out.json", *more], time.monotonic()
        folder.mkdir(exist_ok=True)
        with subprocess.Popen(words, cwd=folder, env=env, stderr=subprocess.PIPE) as process:
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=seconds)
            process.kill()
        return process.returncode, time.monotonic() - begin

    assert run(tmp_path / "plain")[0] == 0
    expected = (tmp_path / "plain" / "out.json").read_bytes()
    code, whole = run(tmp_path / "whole", *CLUSTER)
    assert code == 0
    for i in range(n):
        folder, seconds = tmp_path / f"trial-{i}", draw.uniform(0.3, 1.05) * whole
        n_kills += run(folder, *CLUSTER, seconds=seconds)[0] == -signal.SIGKILL
        made = folder / "out.json"
        wrong = made.exists() and made.read_bytes() != expected
        wrong = wrong or run(folder, *CLUSTER)[0] != 0 or made.read_bytes() != expected
        left = sorted(path.name for path in folder.iterdir())
        if wrong or left != ["out.json"]:
            failures.append(f"killed after {seconds:.1f} of {whole:.1f} s: left {left}")
    tally("kill: evaluate --cluster", n, failures, kills=n_kills)


def test_a_server_that_is_killed_loses_no_acknowledged_fact(tmp_path, tally):
    pytest.importorskip("fastapi")
    n, failures, done = share(KILLS, 0.04), [], []
    journal = tmp_path / "changes.jsonl"
    for number in range(n):
        done += kill_while_adding(ROOT / "examples" / "europe.csv", journal, number)
        opened = Journal(journal)
        there = {head for changes in opened.changes for head, _, _ in changes.add}
        opened.close()
        if lost := set(done) - there:
            failures.append(f"kill {number}: {len(lost)} facts are lost")
    tally("kill: the server's journal", n, failures, facts=len(done))
