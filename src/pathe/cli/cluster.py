"""Options to compute on a cluster, or in parts that can be continued."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pathe.cli.options import option
from pathe.cli.output import phase_bar, tell
from pathe.core.files import discard

if TYPE_CHECKING:
    from pathe.cluster.job import Backend, Job

CLUSTER = "auto|ADDRESS|local:N"
CLUSTER_HELP = (
    "Compute on a Ray cluster (needs [cyan]pathe\\[ray][/]): [cyan]auto[/] (the one that runs on "
    "this machine), the ADDRESS of its head, or [cyan]local:N[/] (N workers on this machine). "
    "The result is the same."
)
Run = Callable[["Job"], Iterator[Any]]  # a job to the tables of its parts


@dataclass(frozen=True)
class ClusterOptions:
    """Where to compute, and where finished parts are kept."""

    panel: ClassVar[str] = "Cluster"
    cluster: str | None = option(
        None,
        CLUSTER_HELP,
        metavar=CLUSTER,
    )
    parts: Path | None = option(
        None,
        "Keep finished parts (Parquet, with a manifest) in this folder. The same command continues "
        "from them. Default with --cluster: OUT.parts, removed at the end.",
        metavar="FOLDER",
    )

    @property
    def given(self) -> bool:
        """Whether to work in parts."""
        return self.cluster is not None or self.parts is not None

    def check(self) -> None:
        """Raises an error for a cluster that can't be reached, before any work."""
        check_cluster(self.cluster)

    @contextmanager
    def running(self, command: str, out: Path | None) -> Iterator[Run]:
        """Yields a function that runs jobs; removes their parts on success unless --parts.

        Other processes can't use the parts until the end.
        """
        from pathe.cluster.job import fill, in_this_process, locked_parts, read_parts
        from pathe.cluster.nodes import connected, on_cluster, read_cluster

        folder = self.parts or Path(f"{out or f'pathe-{command}'}.parts")
        where = read_cluster(self.cluster) if self.cluster is not None else None
        backend = on_cluster(where, tell) if where is not None else in_this_process

        with ExitStack() as locks:
            places: list[Path] = []

            def run(job: Job) -> Iterator[Any]:
                own = folder / job.name
                locks.enter_context(locked_parts(own))
                places.append(own)
                with phase_bar(job.name) as progress:
                    fill(job, own, backend, progress, tell)
                return read_parts(job, own)

            with connected(where) if where is not None else nullcontext():
                yield run
            if self.parts is None:
                for place in places:
                    discard(place)
                with suppress(OSError):  # it holds something else, or there was nothing to do
                    folder.rmdir()


def check_cluster(cluster: str | None) -> None:
    """Raises an error for a cluster that can't be reached."""
    if cluster is not None:
        from pathe.cluster.nodes import check_reachable, read_cluster
        from pathe.core.extras import require

        where = read_cluster(cluster)
        require("ray", "ray", "--cluster")
        check_reachable(where)


@contextmanager
def backend_of(cluster: str | None) -> Iterator[Backend | None]:
    """Yields what computes on a cluster; None without one."""
    if cluster is None:
        yield None
        return
    from pathe.cluster.nodes import connected, on_cluster, read_cluster

    where = read_cluster(cluster)
    with connected(where):
        yield on_cluster(where, tell)
