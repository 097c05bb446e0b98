"""A tutorial as a notebook: its text and its code, without the output that it shows."""

from __future__ import annotations

import re
from typing import Any

START = (
    "Run this notebook in a folder that has the folders `examples` and `models` of the repository, "
    "with an environment in which PathE is installed with all extras."
)
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$\n?", re.M | re.S)


def notebook_of(text: str) -> dict[str, Any] | None:
    """Returns a tutorial in Markdown as a notebook (nbformat 4.5); None if it has no code."""
    cells: list[dict[str, Any]] = []

    def add(kind: str, source: str) -> None:
        if source := source.strip("\n"):
            more: dict[str, Any] = (
                {"execution_count": None, "outputs": []} if kind == "code" else {}
            )
            name = f"cell-{len(cells) + 1}"
            lines = source.splitlines(keepends=True)
            cells.append({"cell_type": kind, "id": name, "metadata": {}, "source": lines} | more)

    title, _, rest = text.partition("\n")
    add("markdown", f"{title}\n\n{START}")
    end = 0
    for found in _FENCE.finditer(rest):
        language, code = found.groups()
        add("markdown", _unlinked(rest[end : found.start()]))
        if language == "python":
            add("code", code)
        elif language == "bash":
            add("code", f"%%bash\n{code}")
        end = found.end()
    add("markdown", _unlinked(rest[end:]))
    if not any(cell["cell_type"] == "code" for cell in cells):
        return None
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def code_of(notebook: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the language and code of each code cell."""
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"]) + "\n"
            language = "bash" if source.startswith("%%bash\n") else "python"
            found.append((language, source.removeprefix("%%bash\n")))
    return found


def _unlinked(text: str) -> str:
    """Returns text without pictures and links to other files: a notebook stands alone."""
    text = re.sub(r"!\[[^\]]*\]\((?!http)[^)]*\)\n*", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!http)[^)]*\)", r"\1", text)
