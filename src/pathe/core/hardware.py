"""Devices, memory, and the commit of the running source."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from pathe.core.errors import ConfigError

CONTAINER = Path("/sys/fs/cgroup")


def pick_device(wanted: str = "auto") -> torch.device:
    """Returns the torch device for `auto` (a GPU if there is one), `cpu` or `gpu`."""
    if wanted not in ("auto", "cpu", "gpu"):
        raise ConfigError(f"The device is auto, cpu or gpu; got {wanted!r}.")
    if wanted != "cpu" and torch.cuda.is_available():
        return torch.device("cuda")
    if wanted == "gpu":
        raise ConfigError("A GPU was requested, but torch finds none. Use auto or cpu.")
    return torch.device("cpu")


def as_device(wanted: torch.device | str) -> torch.device:
    """Returns a torch device: by `pick_device`, or one that torch knows by this name."""
    return pick_device(str(wanted)) if wanted in ("auto", "gpu") else torch.device(wanted)


def free_memory(device: torch.device) -> int:
    """Returns the bytes of memory that are free on the device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable"):
                free = int(line.split()[1]) * 1024
    with suppress(OSError, ValueError):  # a container may have less; its limit may be "max"
        limit = int((CONTAINER / "memory.max").read_text())
        used = int((CONTAINER / "memory.current").read_text())
        for line in (CONTAINER / "memory.stat").read_text().splitlines():
            if line.startswith(("active_file ", "inactive_file ")):
                used -= int(line.split()[1])  # the file cache can be evicted
        free = min(free, max(limit - used, 0))
    return free


def check_room(n_bytes: float, what: str, remedy: str, device: torch.device | None = None) -> None:
    """Raises an error if work needs more memory than is free."""
    free = free_memory(device or torch.device("cpu"))
    if n_bytes > free:
        raise ConfigError(
            f"{what} would take about {n_bytes / 2**30:,.1f} GiB; {free / 2**30:.1f} GiB are free. "
            f"{remedy}"
        )


def peak_memory(device: torch.device) -> int:
    """Returns the peak memory in bytes so far: of tensors on a GPU, of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def device_name(device: torch.device) -> str:
    """Returns the GPU's name, or the number of CPU cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {os.cpu_count()} cores"


def commit() -> str | None:
    """Returns the git commit of the running source, with `-dirty` if it was changed."""
    if "PATHE_COMMIT" in os.environ:  # for copies without a repository
        return os.environ["PATHE_COMMIT"]
    return _commit_of(Path(__file__).parent)


@cache
def _commit_of(folder: Path) -> str | None:
    """Asks git once: what runs is what was there when the process started."""

    def git(*args: str) -> str:
        command = ["git", *args]
        return subprocess.run(command, capture_output=True, text=True, cwd=folder).stdout.strip()

    with suppress(OSError):  # there is no git
        if head := git("rev-parse", "--verify", "HEAD"):
            return f"{head}-dirty" if git("status", "--porcelain", "--", ".") else head
    return None
