"""A job: work on a range of rows, done in shards whose results are Parquet parts in a folder.

A shard's part doesn't depend on who computes it, nor on the other shards. So it doesn't matter
whether one process or a cluster does the work, and a job that was interrupted continues.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pathe.core.errors import PatheError
from pathe.core.files import check_new_folder, locked, read_json, replacing, write_json
from pathe.core.types import Progress

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT, FORMAT_VERSION = "pathe parts", 1
MANIFEST, FINISHED = "manifest.json", "finished.jsonl"
PACKAGES = ("torch", "numpy", "pyarrow", "numba")  # that results may depend on
Shard = tuple[int, int]  # the first row, and the one after the last
Compute = Callable[[int, int], "pa.Table"]  # a shard to its rows


class Work(Protocol):
    """What to do with a shard. Workers of a cluster receive it by pickle."""

    def open(self) -> Compute:
        """Returns the function of a shard; called once per process."""


@dataclass(frozen=True)
class Job:
    """Work on all of its shards."""

    name: str
    work: Work
    shards: Sequence[Shard]
    about: Mapping[str, Any]  # what the result depends on, as JSON: graph, model, settings
    device: str = "cpu"  # or gpu, or auto: a GPU per shard if the cluster has any


@dataclass(frozen=True)
class Part:
    """The result of a shard: a Parquet file's content."""

    content: bytes
    digest: str
    seconds: float
    node: str = "here"


# computes parts of the shards with these numbers, in any order
Backend = Callable[[Job, Sequence[int]], Iterator[tuple[int, Part]]]


def shards_of(n_rows: int, size: int, start: int = 0) -> list[Shard]:
    """Returns ranges of `size` rows, the last one shorter."""
    stop = start + n_rows
    return [(first, min(first + size, stop)) for first in range(start, stop, size)]


def make_part(table: pa.Table, seconds: float, node: str = "here") -> Part:
    """Returns rows as a part."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content = sink.getvalue().to_pybytes()
    return Part(content, digest_of(content), seconds, node)


def digest_of(content: bytes) -> str:
    """Returns 32 hex digits."""
    return blake2b(content, digest_size=16).hexdigest()


def in_this_process(job: Job, numbers: Sequence[int]) -> Iterator[tuple[int, Part]]:
    """Computes the parts one after the other."""
    compute = job.work.open()
    for number in numbers:
        start = time.perf_counter()
        table = compute(*job.shards[number])
        yield number, make_part(table, time.perf_counter() - start)


def run_job(
    job: Job,
    folder: Path,
    backend: Backend = in_this_process,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Computes the parts that the folder lacks; afterwards its manifest lists all of them.

    Each part is written as soon as it is there, so nothing that was finished is lost.
    """
    with locked_parts(folder):
        fill(job, folder, backend, progress, say)


@contextmanager
def locked_parts(folder: Path) -> Iterator[None]:
    """Creates the folder and keeps other processes from using it."""
    _create(folder)
    with locked(folder):
        yield


def fill(
    job: Job,
    folder: Path,
    backend: Backend = in_this_process,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Does what `run_job` does in a folder that is locked already."""
    done = _start(job, folder, say)
    missing = [number for number in range(len(job.shards)) if number not in done]
    if done and missing:
        say(f"{len(done):,} of {len(job.shards):,} parts are there already")
    if progress:
        progress(len(done), len(job.shards))
    with (folder / FINISHED).open("a", encoding="utf-8") as log:
        for number, part in backend(job, missing) if missing else ():
            path = part_path(folder, number)
            with replacing(path) as aside:
                aside.write_bytes(part.content)
            done[number] = {
                "part": number, "file": path.name, "bytes": len(part.content),
                "digest": part.digest, "seconds": round(part.seconds, 4), "node": part.node,
            }  # fmt: skip
            _append(log, json.dumps(done[number]) + "\n", folder)
            if progress:
                progress(len(done), len(job.shards))
    records = [
        done[number] | {"first_row": first, "end_row": stop}
        for number, (first, stop) in enumerate(job.shards)
    ]
    write_json(folder / MANIFEST, _head(job) | {"complete": True, "parts": records})


def _append(log: Any, line: str, folder: Path) -> None:
    """Writes a line to the log at once."""
    try:
        log.write(line)
        log.flush()
    except OSError as error:
        raise PatheError(
            f"{folder}: can't be written ({error.strerror or error}). Finished parts are kept; "
            "run the same command again to continue."
        ) from error


def _create(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PatheError(f"{folder}: can't be created ({error.strerror or error})") from error


def _start(job: Job, folder: Path, say: Callable[[str], None]) -> dict[int, dict[str, Any]]:
    """Writes the manifest, or checks that it is of this job; returns the finished parts."""
    head = _head(job)
    if not (folder / MANIFEST).exists():
        check_new_folder(folder)
        write_json(folder / MANIFEST, head | {"complete": False})
    else:
        _check_same(folder, head)
    return _intact(job, folder, say)


def _head(job: Job) -> dict[str, Any]:
    """Returns what identifies a job, as its manifest holds it."""
    about = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "job": job.name,
        **job.about,
        "device": job.device,
        "versions": versions(),
        "n_parts": len(job.shards),
    }
    shards = json.dumps([list(shard) for shard in job.shards])
    about["shards"] = digest_of(shards.encode())
    return dict(json.loads(json.dumps(about)))


def _check_same(folder: Path, head: dict[str, Any]) -> None:
    """Raises an error if the folder has parts of another job."""
    try:
        stored = read_json(folder / MANIFEST)
        differ = [key for key in head if stored.get(key) != head[key]]
    except (OSError, ValueError, AttributeError) as error:
        raise PatheError(
            f"{folder / MANIFEST} can't be read ({error}). Remove the folder to start again."
        ) from error
    if differ:
        raise PatheError(
            f"{folder}: parts of another job: {_differences(stored, head, differ)}. Remove the "
            "folder, or name another one with --parts."
        )


def _differences(stored: dict[str, Any], head: dict[str, Any], keys: list[str]) -> str:
    """Describes what differs between two manifests."""
    said = []
    for key in keys:
        old, new = stored.get(key), head[key]
        if isinstance(old, dict) and isinstance(new, dict):
            said += [
                f"{name} was {old.get(name)!r}, now {new.get(name)!r}"
                for name in {**old, **new}
                if old.get(name) != new.get(name)
            ]
        else:
            said.append(f"{key} was {old!r}, now {new!r}")
    return ", ".join(said[:4])


def _intact(job: Job, folder: Path, say: Callable[[str], None]) -> dict[int, dict[str, Any]]:
    """Returns the records of the finished parts whose files have the digest of their record."""
    found: dict[int, dict[str, Any]] = {}
    log = folder / FINISHED
    for line in log.read_bytes().splitlines() if log.exists() else ():
        # The last line may be cut off.
        with suppress(ValueError, KeyError, TypeError, IndexError, RecursionError):
            record = json.loads(line)
            if record["part"] in range(len(job.shards)):
                found[int(record["part"])] = record
    kept = {}
    for number, record in found.items():
        path = part_path(folder, number)
        content = path.read_bytes() if path.is_file() else None
        if content is not None and digest_of(content) == record.get("digest"):
            kept[number] = record
        else:
            what = "is missing" if content is None else "is damaged"
            say(f"{path} {what}: it is computed again")
    write = "".join(json.dumps(kept[number]) + "\n" for number in sorted(kept))
    with replacing(log) as aside:
        aside.write_text(write, encoding="utf-8")
    return kept


def part_path(folder: Path, number: int) -> Path:
    """Returns the file of a part."""
    return folder / f"part-{number:06}.parquet"


def read_parts(job: Job, folder: Path) -> Iterator[pa.Table]:
    """Yields the rows of a complete job, part by part in the order of its shards."""
    import pyarrow.parquet as pq

    for number in range(len(job.shards)):
        yield pq.read_table(part_path(folder, number), use_threads=False, pre_buffer=False)


@cache
def _source_digest() -> str:
    """Returns a digest of the package's source: a version number says too little."""
    import pathe

    root = Path(pathe.__file__).parent
    digest = blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Returns the versions that all nodes of a cluster must share."""
    import pathe

    found = {"pathe": f"{pathe.__version__} ({_source_digest()})"}
    found["python"] = ".".join(platform.python_version_tuple()[:2])
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
