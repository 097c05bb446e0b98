"""What this machine has, and what is running on it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import torch

from pathe.errors import ConfigError

CONTAINER = Path("/sys/fs/cgroup")


def pick_device(wanted: str = "auto") -> torch.device:
    """The device for `auto`, `cpu` or `gpu`."""
    if wanted == "auto":
        wanted = "gpu" if torch.cuda.is_available() else "cpu"
    match wanted:
        case "cpu":
            return torch.device("cpu")
        case "gpu" if torch.cuda.is_available():
            return torch.device("cuda")
        case "gpu":
            raise ConfigError("A GPU was asked for, and torch finds none. Use auto or cpu.")
    raise ConfigError(f"The device is auto, cpu or gpu; got {wanted!r}.")


def free_memory(device: torch.device) -> int:
    """Bytes that can still be taken on the device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable"):
                free = int(line.split()[1]) * 1024
    with suppress(OSError, ValueError):  # a container may grant less; "max" is no number
        limit = int((CONTAINER / "memory.max").read_text())
        used = int((CONTAINER / "memory.current").read_text())
        for line in (CONTAINER / "memory.stat").read_text().splitlines():
            if line.startswith(("active_file ", "inactive_file ")):
                used -= int(line.split()[1])  # cached files give way
        free = min(free, max(limit - used, 0))
    return free


def peak_memory(device: torch.device) -> int:
    """Most bytes held at once so far: by tensors on a GPU, by the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {os.cpu_count()} cores"


def commit() -> str | None:
    """The commit of the source that runs, marked if changed; PATHE_COMMIT says it for a copy."""
    if "PATHE_COMMIT" in os.environ:
        return os.environ["PATHE_COMMIT"]

    def git(*args: str) -> str:
        found = subprocess.run(
            ["git", *args], capture_output=True, text=True, cwd=Path(__file__).parent
        )
        return found.stdout.strip()

    try:
        head = git("rev-parse", "--verify", "HEAD")
    except OSError:
        head = ""
    if not head:
        return None
    return f"{head}-dirty" if git("status", "--porcelain", "--", ".") else head
