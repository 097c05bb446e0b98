"""What runs in a worker process of a cluster: shards of one job after another."""

from __future__ import annotations

import time
from typing import Any

from pathe.cluster.graphs import NotHere, use_blocks
from pathe.cluster.job import Compute, make_part
from pathe.core.errors import PatheError, lacks_memory
from pathe.core.files import reason

_opened: dict[Any, Compute] = {}  # by the reference to its work: one


def run(given: list[Any], shard: tuple[int, int], node: str) -> dict[str, Any]:
    """Computes a shard; returns its part, or what went wrong."""
    try:
        compute = _open(given)
        start = time.perf_counter()
        table = compute(*shard)
        return {"part": make_part(table, time.perf_counter() - start, node)}
    except NotHere:
        return {"node": node, "wants": "blocks"}
    except PatheError as error:
        return {"node": node, "error": str(error)}
    except Exception as error:
        if lacks_memory(error):
            return {"node": node, "error": "out of memory."}
        if not isinstance(error, OSError):
            raise
        where = f" ({error.filename})" if error.filename else ""
        return {"node": node, "error": f"{reason(error)}{where}."}


def _open(given: list[Any]) -> Compute:
    """Returns the function of a job, opened once per process."""
    import ray
    import torch

    if given[0] not in _opened:
        torch.set_num_threads(1)
        _opened.clear()
        with use_blocks(given[1] if len(given) > 1 else None):
            _opened[given[0]] = ray.get(given[0]).open()
    return _opened[given[0]]
