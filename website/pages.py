"""Pages that are generated: commands, settings, model cards, and files of the repository's root."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from pathe.cli.main import PANELS, app
from pathe.core.config import Config, describe_settings, preset_names, preset_text

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "src" / "pathe" / "model" / "shipped"
ABOUT_SHIPPED = (
    "The pre-trained model that comes with PathE. Commands use it if no MODEL is given, and "
    "`pathe.load()` loads it."
)
COLUMNS = {"data": "data", "task": "task", "mrr": "MRR", "hits_at_10": "Hits@10"}


def generated_pages() -> dict[str, str]:
    """Returns the text of every generated page, by its path on the site."""
    return {
        **dict(_commands()),
        "reference/settings.md": _settings(),
        **dict(_models()),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
        **dict(_security()),
    }


def _security() -> Iterator[tuple[str, str]]:
    if (path := ROOT / "SECURITY.md").exists():
        yield "security.md", path.read_text(encoding="utf-8")


def plain(markup: str) -> str:
    """Returns Rich markup as Markdown, with options as code."""
    text = re.sub(r"\[cyan\](.*?)\[/\]", r"`\1`", markup, flags=re.S)
    text = re.sub(r"\[bold\](.*?)\[/\]", r"**\1**", text, flags=re.S)
    text = re.sub(r"\[/?(red|dim|green|yellow)?\]", "", text)
    text = re.sub(r"\[((?:default|env var): .*?|required|x?[<>0-9=x]+)\]", r"(\1)", text)
    parts = re.split(r"(`[^`]*`)", text.replace("\\[", "["))
    parts[::2] = [re.sub(r"(?<![\w-])--[a-z][\w-]*", r"`\g<0>`", part) for part in parts[::2]]
    return "".join(parts)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _commands() -> Iterator[tuple[str, str]]:
    group: Any = typer.main.get_command(app)
    index = ["# Commands", "`pathe COMMAND --help` shows the same on a terminal."]
    for panel, functions in PANELS.items():
        index += [f"## {panel}", "| command | |\n|---|---|"]
        for function in functions:
            name = function.__name__
            command = group.commands[name]
            first = plain(command.help).split("\n\n")[0]
            index[-1] += f"\n| [`pathe {name}`]({name}.md) | {cell(first)} |"
            yield f"reference/commands/{name}.md", _command(name, command)
    yield "reference/commands/README.md", "\n\n".join(index) + "\n"


def _command(name: str, command: Any) -> str:
    """Returns the page of a command: its help, and a table of options per panel."""
    context = typer.Context(command, info_name=f"pathe {name}")
    parts = [f"# pathe {name}"]
    for paragraph in plain(command.help).split("\n\n"):
        if example := re.fullmatch(r"Examples?: `(.*?)`(.*)", paragraph, re.S):
            parts += [f"```bash\n{example[1]}\n```", example[2].strip()]
        else:
            parts.append(paragraph)
    pieces = " ".join(command.collect_usage_pieces(context))
    parts.append(f"```text\npathe {name} {pieces}\n```")
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        argument = parameter.param_type_name == "argument"
        panel = "Arguments" if argument else parameter.rich_help_panel or "Options"
        record = parameter.get_help_record(context)
        if record is None or parameter.name == "help":
            continue
        names, help = record
        row = f"| `{cell(names)}` | {cell(plain(help))} |"
        panels.setdefault(panel, []).append(row)
    for panel, rows in panels.items():
        parts += [f"## {panel}", "\n".join(["| | |", "|---|---|", *rows])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _settings() -> str:
    rows = [
        f"| `{name}` | `{default}` | {cell(meaning)} |"
        for name, default, meaning in describe_settings(Config())
    ]
    presets = [
        f'??? note "{name}"\n\n    ```yaml\n'
        + "".join(f"    {line}\n" for line in preset_text(name).strip().splitlines())
        + "    ```\n"
        for name in preset_names()
    ]
    return "\n".join(
        [
            "# Settings\n",
            "`pathe train` chooses bridges, batch size, epochs and more to suit graph and machine; "
            "a run's `config.yaml` holds the settings it used. `--set NAME=VALUE` changes a "
            "setting, and so does a keyword of `pathe.train`. `pathe config` prints this list.\n",
            "| setting | default | meaning |\n|---|---|---|",
            *rows,
            "\n## Presets\n",
            "`--preset NAME` selects one. Those named `paper-...` have the published settings.\n",
            *presets,
        ]
    )


def _models() -> Iterator[tuple[str, str]]:
    names = sorted(path.parent.name for path in (ROOT / "models").glob("*/README.md"))
    index = [
        "# Models",
        f"## [The pre-trained model](shipped.md)\n\n{ABOUT_SHIPPED} It works on any graph.",
        "## Trained models",
        "Models of the repository's folder `models`, each trained on one graph. Use one by its "
        "path: `pathe predict models/umls --data umls ...`.",
        "| model | parameters | " + " | ".join(COLUMNS.values()) + " |\n|---|---|---|---|---|---|",
    ]
    for name in names:
        text = _body(ROOT / "models" / name / "README.md")
        facts = dict(re.findall(r"^\| (\w+) \| (.+) \|$", text, re.M))
        [(count, _)] = re.findall(r"([\d,]+) parameters()", text)[:1]
        row = [f"[{name}]({name}.md)", count, *(facts.get(key, "") for key in COLUMNS)]
        index[-1] += f"\n| {' | '.join(row)} |"
        yield f"models/{name}.md", text.replace("# A PathE model", f"# {name}", 1)
    yield "models/README.md", "\n\n".join(index) + "\n"
    text = _body(SHIPPED / "README.md").replace(
        "# A PathE model", f"# The pre-trained model\n\n{ABOUT_SHIPPED}", 1
    )
    licence = _body(SHIPPED / "LICENSE.md").replace("# Licence of the pre-trained model", "")
    yield "models/shipped.md", f"{text}\n## Licence\n\n{licence.strip()}\n"


def _body(path: Path) -> str:
    """Returns a model card without its front matter."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"\A---\n.*?\n---\n\s*", "", text, flags=re.S)
