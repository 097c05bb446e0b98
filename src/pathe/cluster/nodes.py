"""Runs the shards of a job on the nodes of a Ray cluster."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pathe.cluster.job import Backend, Job, Part, versions
from pathe.core.errors import ConfigError, PatheError
from pathe.core.extras import require
from pathe.core.types import whole_number

RETRIES = 5  # per shard, if its worker or node is lost
AHEAD = 2  # shards per core that wait on the cluster
CONNECT_SECONDS = 10.0
HEAD_SECONDS = 30.0  # to wait for a head that doesn't answer; after 60, Ray ends this process
NODE_SECONDS = 120.0  # to wait for a node if all are gone, as when they are preempted
WAIT_SECONDS = 5.0  # between looks at what is there
STORE_BYTES = 512 << 20  # object store of a cluster that we start
CONTINUE = "Finished parts are kept; run the same command again to continue."


@dataclass(frozen=True)
class Where:
    """Which cluster: the address of one that runs, or how many workers to start here."""

    address: str
    workers: int = 0


def read_cluster(text: str) -> Where:
    """Reads auto, local:N or an address such as 10.0.0.5:6379 or ray://head:10001."""
    kind, _, rest = text.partition(":")
    if kind == "local":
        n = whole_number(rest) or 0
        if not 1 <= n <= 1024:
            raise ConfigError(f"--cluster local:N takes a number of workers; got {text!r}.")
        return Where("local", n)
    if text == "auto":
        return Where("auto")
    host, port = _host_and_port(text)
    if not host or not port:
        raise ConfigError(
            f"--cluster is auto, local:N or an address such as 10.0.0.5:6379; got {text!r}."
        )
    return Where(text)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    n = whole_number(port) or 0
    return host.strip("[]"), n if n < 1 << 16 else 0


def on_cluster(
    where: Where,
    say: Callable[[str], None] = lambda text: None,
    node_seconds: float = NODE_SECONDS,
) -> Backend:
    """Returns what computes parts on a cluster; it waits so long for a node if there is none."""

    def compute(job: Job, numbers: Sequence[int]) -> Iterator[tuple[int, Part]]:
        with connected(where) as ray:
            with _head_lives(ray):
                run = _Run(ray, job, say, node_seconds)
            yield from run.parts(numbers)

    return compute


@contextmanager
def connected(where: Where) -> Iterator[Any]:
    """Connects to the cluster, or starts one of this machine; yields the module `ray`."""
    ray = require("ray", "ray", "--cluster")
    if ray.is_initialized():  # the caller's own connection stays
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    options["configure_logging"] = False
    if where.workers:
        options |= {"num_cpus": where.workers, "include_dashboard": False}
        options |= {"object_store_memory": STORE_BYTES}
    check_reachable(where)
    try:
        ray.init(address=where.address, **options)
    except Exception as error:  # Ray raises errors of many kinds
        raise PatheError(_unreachable(where, error)) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def check_reachable(where: Where) -> None:
    """Raises an error if nothing answers at an address: Ray itself would wait for long."""
    address = where.address
    if where.workers or address == "auto":
        return
    try:
        with socket.create_connection(_host_and_port(address), CONNECT_SECONDS):
            pass
    except OSError as error:
        why = error.strerror or str(error)
        raise PatheError(
            f"The cluster at {address} can't be reached ({why}). Is its head running (ray start "
            "--head), and is the port open to this machine?"
        ) from error


def _unreachable(where: Where, error: Exception) -> str:
    """Says why there is no connection."""
    why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if where.workers:
        return f"Ray can't be started on this machine ({why})."
    if where.address == "auto":
        return (
            "There is no Ray cluster on this machine. Start one with `ray start --head`, name "
            "the address of another, or use --cluster local:2."
        )
    return f"The cluster at {where.address} can't be used ({why})."


def _task(given: list[Any], expected: dict[str, str], shard: tuple[int, int]) -> dict[str, Any]:
    """Computes a shard on a node; returns a part, or what is wrong with the node.

    `given` holds references to the work and the graph's blocks, fetched once the node is known to
    have this version of the package.
    """
    os.environ.setdefault("NUMBA_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    import socket as sockets

    import ray

    node = f"{sockets.gethostname()} ({ray.get_runtime_context().get_node_id()[:8]})"
    try:
        from pathe.cluster import worker
        from pathe.cluster.job import versions as versions_here
    except ImportError as error:
        return {"node": node, "lacks": str(error)}
    found = versions_here()
    if found != expected:
        return {"node": node, "found": found}
    return worker.run(given, shard, node)


def _by_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that Ray sends as code, not by its name: a node may lack the package."""
    from types import FunctionType

    own = FunctionType(function.__code__, {"__builtins__": __builtins__, "os": os}, "pathe_shard")
    own.__module__ = "__main__"
    return own


@contextmanager
def _head_lives(ray: Any) -> Iterator[None]:
    """Turns errors of a connection that is lost into words."""
    try:
        yield
    except ray.exceptions.RayTaskError:
        raise  # a bug in our code: with its traceback
    except (ray.exceptions.RayError, ConnectionError, RuntimeError) as error:
        why = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise _lost(why) from error


def _lost(why: str) -> PatheError:
    return PatheError(f"The connection to the cluster is lost ({why}). {CONTINUE}")


class _Run:
    """The shards of a job that are on the cluster or still to be sent."""

    def __init__(self, ray: Any, job: Job, say: Callable[[str], None], node_seconds: float) -> None:
        self.ray, self.job, self.say, self.node_seconds = ray, job, say, node_seconds
        self.n_gpus = {"cpu": 0, "gpu": 1}.get(
            job.device, int(ray.cluster_resources().get("GPU", 0) > 0)
        )
        self.task = ray.remote(_by_value(_task)).options(
            num_cpus=1, num_gpus=self.n_gpus, max_retries=RETRIES
        )
        self.given = [ray.put(job.work)]
        self.versions = versions()
        self.queue: deque[int] = deque()
        self.waiting: dict[Any, int] = {}
        self.cores, self.since = -1, 0.0  # workers, and since when there are so many
        self.head = _host_and_port(getattr(ray.get_runtime_context(), "gcs_address", None) or "")

    def parts(self, numbers: Sequence[int]) -> Iterator[tuple[int, Part]]:
        """Yields parts as they come; nodes that join meanwhile get work, too."""
        self.queue.extend(numbers)
        while self.queue or self.waiting:
            with _head_lives(self.ray):
                ready = self._ready()
            for reference in ready:
                number = self.waiting.pop(reference)
                if (part := self._received(reference, number)) is not None:
                    yield number, part

    def _ready(self) -> list[Any]:
        """Sends what the cluster has room for; returns what is finished within some seconds."""
        self._find_head()
        cores = self._cores()
        if cores != self.cores:
            self.say(f"{cores} {'worker' if cores == 1 else 'workers'}" if cores else self._none())
            self.cores, self.since = cores, time.monotonic()
        if not cores and time.monotonic() - self.since > self.node_seconds:
            what = "GPU" if self.n_gpus else "CPU"
            raise PatheError(f"The cluster has no {what}. {CONTINUE}")
        most = max(AHEAD * cores, 1)  # a cluster that grows on demand has to see some
        while self.queue and len(self.waiting) < most:
            self._send(self.queue.popleft())
        seconds = WAIT_SECONDS if cores else min(WAIT_SECONDS, self.node_seconds / 4)
        if not self.waiting:
            time.sleep(seconds)
            return []
        ready, _ = self.ray.wait(list(self.waiting), timeout=seconds)
        return list(ready)

    def _find_head(self) -> None:
        """Raises an error if the head doesn't answer for a while."""
        if not all(self.head):  # Ray's client doesn't say where it is
            return
        deadline = time.monotonic() + HEAD_SECONDS
        while True:
            try:
                with socket.create_connection(self.head, CONNECT_SECONDS):
                    return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise _lost(f"its head doesn't answer: {error.strerror or error}") from error
            time.sleep(1.0)

    def _none(self) -> str:
        return f"no workers: waiting {self.node_seconds:.0f} s for one"

    def _cores(self) -> int:
        """Returns how many shards the cluster computes at a time."""
        has = self.ray.cluster_resources()
        cores = int(has.get("CPU", 0))
        return min(cores, int(has.get("GPU", 0))) if self.n_gpus else cores

    def _send(self, number: int) -> None:
        reference = self.task.remote(self.given, self.versions, self.job.shards[number])
        self.waiting[reference] = number

    def _received(self, reference: Any, number: int) -> Part | None:
        """Returns a part; None if its shard was sent again. Raises an error for a bad node."""
        try:
            found: dict[str, Any] = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError:
            raise  # a bug in our code: with its traceback
        except self.ray.exceptions.RayError as error:
            why = type(error).__name__
            if isinstance(error, self.ray.exceptions.LocalRayletDiedError):
                raise _lost(f"Ray has stopped on this machine, {why}") from error
            raise PatheError(
                f"Shard {number} failed {RETRIES + 1} times because its worker died ({why}), "
                f"possibly out of memory. {CONTINUE}"
            ) from error
        if "wants" in found:  # the node doesn't see the prepared folder
            self._ship(found["node"])
            self.queue.appendleft(number)
            return None
        if "part" in found:
            part: Part = found["part"]
            return part
        raise PatheError(f"{self._wrong(found)} {CONTINUE}")

    def _ship(self, node: str) -> None:
        """Puts the prepared folder into the object store, once."""
        if len(self.given) == 1:
            from pathe.cluster.graphs import blocks

            self.say(f"copying the prepared graph to nodes without it, such as {node}")
            self.given.append(blocks(self.ray.put, self.job.work))

    def _wrong(self, found: dict[str, Any]) -> str:
        """Says what is wrong with a node."""
        node = found["node"]
        if "lacks" in found:
            return f"Node {node} can't import pathe ({found['lacks']}): install it on every node."
        if "found" in found:
            differ = [
                f"{name} {found['found'].get(name)} instead of {wanted}"
                for name, wanted in self.versions.items()
                if found["found"].get(name) != wanted
            ]
            return f"Node {node} has other versions: {', '.join(differ)}. Install the same."
        return f"Node {node}: {found['error']}"
