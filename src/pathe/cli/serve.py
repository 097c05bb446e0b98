"""The command that serves graphs: REST, and a page to explore them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pathe.cli.options import ModelOnData, grouped, option
from pathe.cli.output import err, tell
from pathe.core.errors import ConfigError, PatheError

if TYPE_CHECKING:
    from pathe.serve.graphs import Source

LOOPBACK = ("127.0.0.1", "localhost", "::1")
KEYS = ("data", "model", "types", "writable")


@dataclass(frozen=True)
class ServeOptions:
    """Where to listen, and who may do what."""

    panel: ClassVar[str] = "Server"
    graphs: Path | None = option(
        None,
        "Serve several graphs: a YAML file of [cyan]graphs: {NAME: {data: FILE, model: FOLDER, "
        "types: FILE, writable: FILE}}[/]; only data is required.",
        metavar="FILE",
    )
    host: str = option(
        "127.0.0.1",
        "The address to listen on. Any address other than localhost requires a token or --public.",
    )
    port: int = option(8080, "The port; 0: any free one.", min=0, max=65535)
    types: Path | None = option(
        None, "The types of entities: a .tsv or .csv of entity and type.", metavar="FILE"
    )
    writable: Path | None = option(
        None,
        "Let those who have the token change the graph for everyone. Changes are appended to this "
        "file, and replayed on startup.",
        metavar="FILE",
    )
    token: str | None = option(
        None,
        "The token that clients must send. Default: PATHE_TOKEN. If a token is required and none "
        "is set, one is generated and printed.",
        envvar="PATHE_TOKEN",
        show_envvar=False,
    )
    public: bool = option(False, "Let anyone who reaches the server read.", "--public")
    allow_origin: list[str] | None = option(
        None, "Pages of this origin may use the server (CORS); repeatable.", metavar="URL"
    )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK

    def secret(self, writable: bool) -> tuple[str | None, bool]:
        """Returns the token, and whether it was made now."""
        if self.token:
            return self.token, False
        if writable or not (self.is_local or self.public):
            return secrets.token_urlsafe(24), True
        return None, False


@grouped
def serve(source: ModelOnData, options: ServeOptions) -> None:
    """Serve a graph: a page to explore it, and REST under /api/v1 (needs [cyan]pathe\\[serve][/]).

    Search, ask, explain, look for missing and suspicious facts, and try what changed facts would
    mean. Listens on this machine only, unless --host says otherwise.

    Example: [cyan]pathe serve --data examples/europe.csv[/]
    """
    from pathe.core.extras import require

    require("fastapi", "serve", "Serving")
    sources = _several(source, options) if options.graphs else [_one(source, options)]
    writable = any(one.journal for one in sources)
    token, is_new = options.secret(writable)
    with err.status("preparing the graph ..."):
        from pathe.serve.app import build_app
        from pathe.serve.graphs import ServedGraph
        from pathe.serve.run import run

        graphs = [ServedGraph(one, source.device, source.frontier) for one in sources]
        for graph in graphs:
            graph.warm()
    if is_new:
        tell(f"token: {token}")
    app = build_app(
        graphs,
        token=token,
        public=options.public or (options.is_local and not options.token),
        hosts=LOOPBACK if options.is_local else (),
        origins=tuple(options.allow_origin or ()),
    )
    run(app, options.host, options.port, tell)


def _one(source: ModelOnData, options: ServeOptions) -> Source:
    from pathe.model.artifact import load_model
    from pathe.serve.graphs import Source

    model, data = source.places()
    kg = source.read(data, load_model(model))
    return Source(kg.name, kg, model, _types(options.types), options.writable)


def _several(source: ModelOnData, options: ServeOptions) -> list[Source]:
    """Reads the file of graphs; paths in it are relative to its folder."""
    from pathe.core.yaml_files import read_yaml
    from pathe.model.artifact import load_model
    from pathe.serve.graphs import Source

    path = options.graphs
    assert path is not None
    if source.model or source.data or options.types or options.writable:
        raise PatheError("--graphs names the graphs: leave out MODEL, --data, --types, --writable.")
    given = read_yaml(path)
    graphs = given.get("graphs") if isinstance(given, dict) else None
    if not isinstance(graphs, dict) or not graphs:
        raise ConfigError(f"{path}: expected `graphs:` with lines of `NAME: {{data: FILE}}`.")
    found = []
    for name, about in graphs.items():
        _check_name(path, name)
        if not isinstance(about, dict) or "data" not in about or set(about) - set(KEYS):
            raise ConfigError(
                f"{path}: {name}: expected data and, if wanted, {', '.join(KEYS[1:])}; got {about}."
            )

        def place(key: str, about: dict[str, Any] = about) -> Path | None:
            return path.parent / str(about[key]) if about.get(key) else None

        near, model = place("data"), place("model")
        data = str(near) if near is not None and near.exists() else str(about["data"])
        kg = source.read(data, load_model(model))
        found.append(Source(str(name), kg, model, _types(place("types")), place("writable")))
    return found


def _check_name(path: Path, name: Any) -> None:
    """Raises an error if a graph's name can't be a part of an address."""
    if not isinstance(name, str) or not name or "/" in name or set(name) == {"."}:
        raise ConfigError(
            f"{path}: {name!r}: a graph's name is text without a slash. It is part of addresses; "
            "put numbers in quotes."
        )


def _types(path: Path | None) -> Any:
    if path is None:
        return None
    from pathe.data.row_files import read_types

    return read_types(path)
