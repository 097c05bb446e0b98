"""Servers: as a process of their own, or in a thread."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI

from pathe.core.errors import PatheError
from pathe.serve.run import http_server, listening


@contextmanager
def running(*options: str | Path, **env: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Starts `pathe serve` on a free port; yields its address and the process."""
    command = [sys.executable, "-m", "pathe", "serve", "--port", "0", "--device", "cpu"]
    with subprocess.Popen(
        [*command, *map(str, options)], stderr=subprocess.PIPE, text=True, env=os.environ | env
    ) as process:
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"serving on (http://\S+)", line):
                break
        else:
            raise AssertionError("".join(said))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield found[1], process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


@contextmanager
def in_thread(app: FastAPI) -> Iterator[int]:
    """Serves an application over HTTP in a thread of this process; yields its port."""
    own, server = listening("127.0.0.1", 0), http_server(app)
    thread = threading.Thread(target=server.run, args=([own],), daemon=True)
    thread.start()
    try:
        yield own.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)
        own.close()
        assert not thread.is_alive(), "the server didn't stop"


def memory(pid: int) -> int:
    """Returns the resident memory of a process in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) >> 10


def kill_while_adding(data: Path, journal: Path, number: int) -> list[str]:
    """Adds facts until the server is killed; returns the names that were acknowledged."""
    from pathe.serve.client import Client

    done = []
    with running("--data", data, "--writable", journal, PATHE_TOKEN="t") as (url, process):
        client = Client(url, token="t", timeout=10)
        killer = threading.Timer(0.05 + 0.02 * (number % 10), process.kill)
        killer.start()
        try:
            for i in range(1000):
                name = f"New {number}-{i}"
                client.change(add=[(name, "borders", "France")])
                done.append(name)
        except (PatheError, ConnectionError):
            pass
        killer.join()
        process.wait(10)
    return done
