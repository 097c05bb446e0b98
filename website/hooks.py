"""What MkDocs does beyond its settings in mkdocs.yml: generated pages, links, pictures, notebooks.

The pages in `docs` are written for GitHub, where links may lead anywhere in the repository. On the
site, such a link leads to the page that a file became, or to a copy of the file.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parents[1]))

from website.mermaid import picture_of
from website.notebooks import notebook_of
from website.pages import ROOT, generated_pages

DOCS = ROOT / "docs"
TUTORIALS = "tutorials/"
OPTIONAL = ("reliability.md", "security.md")  # in the navigation if they exist
# Files and folders of the repository, and the pages of the site that tell about them.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "models": "models/README.md",
    "models/README.md": "models/README.md",
    "src/pathe/cli": "reference/commands/README.md",
    "src/pathe/core/config.py": "reference/settings.md",
    "src/pathe/model/shipped/README.md": "models/shipped.md",
}
FENCE = re.compile(r"^(```+)([^\n]*)\n(.*?)^\1[ ]*$", re.M | re.S)
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")

_made: dict[str, str] = {}  # generated pages of this build, by path


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Generates pages and completes the navigation: `folder/*` stands for the rest of a folder."""
    _made.clear()
    _made.update(generated_pages())
    written = [path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))]
    config.nav = _completed(config.nav or [], sorted({*written, *_made}))
    return config


def _completed(nav: list[Any], pages: list[str]) -> list[Any]:
    named = {entry for entry in _paths(nav) if not entry.endswith("*")}
    done: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and entry.endswith("/*"):
            folder = entry[:-1]
            done += [p for p in pages if posixpath.dirname(p) + "/" == folder and p not in named]
        elif isinstance(entry, dict):
            [(title, value)] = entry.items()
            if isinstance(value, list):
                done.append({title: _completed(value, pages)})
            elif value in pages or value not in OPTIONAL:
                done.append(entry)
        else:
            done.append(entry)
    return done


def _paths(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    values = nav.values() if isinstance(nav, dict) else nav
    return [path for value in values for path in _paths(value)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds generated pages and a notebook for each tutorial."""
    for path, text in _made.items():
        files.append(File.generated(config, path, content=text))
    for tutorial in sorted((DOCS / TUTORIALS).glob("*.md")):
        text = tutorial.read_text(encoding="utf-8")
        if notebook := notebook_of(text):
            path = f"{TUTORIALS}{tutorial.stem}.ipynb"
            files.append(File.generated(config, path, content=json.dumps(notebook, indent=1)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns what GitHub shows into what the site shows."""
    path = page.file.src_uri
    if path == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    if f"{path[:-3]}.ipynb" in files.src_uris:
        name = posixpath.basename(path)[:-3]
        title, _, rest = markdown.partition("\n")
        markdown = f"{title}\n\n[Download as a notebook]({name}.ipynb){{ .md-button }}\n{rest}"
    done, start = [], 0
    for found in FENCE.finditer(markdown):
        done += [_linked(markdown[start : found.start()], path, config, files), _block(found)]
        start = found.end()
    return "".join([*done, _linked(markdown[start:], path, config, files)])


def _block(found: re.Match[str]) -> str:
    """Returns a block of code, or the picture of a diagram."""
    marks, language, code = found.groups()
    if language == "mermaid":
        return f'<figure class="diagram">{picture_of(code)}</figure>'
    return f"{marks}{language.partition(' ')[0]}\n{code}{marks}"


def _linked(text: str, page: str, config: MkDocsConfig, files: Files) -> str:
    """Returns the text with its links for the site, and pictures drawn for it as part of it."""
    folder = posixpath.dirname(page)
    if page in ("changelog.md", "contributing.md", "security.md"):  # written at the root
        folder = ".."

    def replaced(found: re.Match[str]) -> str:
        label, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        name, mark, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join("docs", folder, name))
        if label.startswith("!") and re.fullmatch(r"docs/pictures/.*\.svg", place):
            return _inlined(label[2:-1], ROOT / place)
        goal = _goal(place, config, files)
        return f"{label}({posixpath.relpath(goal, posixpath.dirname(page) or '.')}{mark}{anchor})"

    return LINK.sub(replaced, text)


def _goal(place: str, config: MkDocsConfig, files: Files) -> str:
    """Returns where a file of the repository is on the site; the file is added if need be."""
    if place in PAGES:
        return PAGES[place]
    if place.startswith("docs/") or place == "docs":
        inside = place.removeprefix("docs").lstrip("/")
        return f"{inside}/README.md".lstrip("/") if (ROOT / place).is_dir() else inside
    if model := re.fullmatch(r"models/([^/]+)(/README.md)?", place):
        return f"models/{model[1]}.md"
    goal = f"files/{place}"
    if (ROOT / place).is_file() and goal not in files.src_uris:
        files.append(File.generated(config, goal, abs_src_path=str(ROOT / place)))
    return goal


def _inlined(title: str, picture: Path) -> str:
    """Returns a picture as part of the page, so that it has the page's colours and fonts."""
    svg = re.sub(r"\s*\n\s*", " ", picture.read_text(encoding="utf-8").strip())
    return f'<figure class="diagram" role="img" aria-label="{title}">{svg}</figure>'
