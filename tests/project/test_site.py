"""The documentation site: it builds without a warning, needs no network, and is complete."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from support.commands import pathe as run
from support.places import ROOT

import pathe
from pathe.cli.main import PANELS
from pathe.core.config import KEYS
from website import mermaid, pictures
from website.notebooks import code_of, notebook_of
from website.pages import generated_pages, plain

DOCS = ROOT / "docs"
TUTORIALS = sorted(p for p in (DOCS / "tutorials").glob("*.md") if p.name != "README.md")


class Links(HTMLParser):
    """What a page loads, what it links to, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.anchors |= {values.get("id", ""), values.get("name", "")}
        if tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(values["href"])
        elif tag == "a" and "href" in values:
            self.linked.append(values["href"])
        elif "src" in values:
            self.loaded.append(values["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")  # installed on Python 3.11 or newer
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.mark.slow
def test_all_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {path: Links(path.read_text("utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > 80
    wrong = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are those of a server's root
            continue
        for target in [*page.loaded, *page.linked]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loaded and parts.scheme != "data":
                    wrong.append(f"{path.name} loads {target}")
                continue
            goal = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if goal.is_dir() or not goal.exists():
                wrong.append(f"{path.relative_to(site)}: {target}")
            elif goal in pages and unquote(parts.fragment) not in pages[goal].anchors:
                wrong.append(f"{path.relative_to(site)}: no anchor {target}")
    assert not wrong


@pytest.mark.slow
def test_tutorials_can_be_downloaded_as_notebooks(site: Path) -> None:
    for tutorial in TUTORIALS:
        notebook = site / "tutorials" / f"{tutorial.stem}.ipynb"
        assert notebook.exists()
        assert f'href="{notebook.name}"' in notebook.with_suffix(".html").read_text("utf-8")


@pytest.mark.slow
def test_diagrams_are_pictures(site: Path) -> None:
    page = (site / "architecture.html").read_text("utf-8")
    assert page.count('<figure class="diagram"><svg') == 2
    assert "flowchart TB" not in page


def test_every_public_name_is_in_the_reference() -> None:
    folder = DOCS / "reference" / "python"
    documented = re.findall(
        r"^::: (pathe[\w.]+)", "".join(p.read_text() for p in folder.glob("*.md")), re.M
    )
    for name in pathe.__all__:
        place = f"pathe.{pathe._DOOR[name]}"
        assert place in documented or place.rpartition(".")[0] in documented, place


def test_every_command_setting_and_model_has_a_page() -> None:
    pages = generated_pages()
    for commands in PANELS.values():
        for command in commands:
            name = command.__name__
            assert f"({name}.md)" in pages["reference/commands/README.md"]
            assert pages[f"reference/commands/{name}.md"].startswith(f"# pathe {name}\n")
    predict = pages["reference/commands/predict.md"]
    assert "| `--queries <path>` |" in predict or "| `--queries PATH` |" in predict
    assert not re.search(r"\[/?(cyan|red|bold)?\]", predict)
    assert all(f"| `{key}` |" in pages["reference/settings.md"] for key in KEYS)
    for model in (ROOT / "models").glob("*/README.md"):
        assert f"models/{model.parent.name}.md" in pages
    assert "MIT" in pages["models/shipped.md"]


def test_markup_of_help_becomes_markdown() -> None:
    help = "[bold]Now[/] [cyan]pathe x --y[/], or --known. [default: 3] [red][required][/]"
    assert plain(help) == "**Now** `pathe x --y`, or `--known`. (default: 3) (required)"


def test_the_pictures_are_those_that_the_script_draws(tmp_path: Path) -> None:
    pictures.main(tmp_path)
    drawn = sorted(tmp_path.iterdir())
    assert len(drawn) == 4
    for picture in drawn:
        assert picture.read_text("utf-8") == (pictures.FOLDER / picture.name).read_text("utf-8")


def test_every_diagram_has_its_picture() -> None:
    wanted = {mermaid.place_of(code) for code in mermaid.diagrams()}
    found = set(mermaid.PICTURES.glob("*.svg"))
    assert wanted == found, "run python -m website.mermaid"


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_notebook_has_the_code_of_its_tutorial(tutorial: Path) -> None:
    """The code itself is run by test_tutorials.py, which finds it in its own way."""
    nbformat = pytest.importorskip("nbformat")
    text = tutorial.read_text("utf-8")
    notebook = notebook_of(text)
    assert notebook is not None
    nbformat.validate(notebook)
    code, inside = [], None
    for line in text.splitlines(keepends=True):
        if inside is None and line in ("```bash\n", "```python\n"):
            inside = (line[3:-1], "")
        elif inside is not None and line == "```\n":
            code.append(inside)
            inside = None
        elif inside is not None:
            inside = (inside[0], inside[1] + line)
    assert code_of(notebook) == code
    prose = "".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown")
    assert "```" not in prose
    assert not re.search(r"\]\((?!http)", prose)


# What a notebook prints, in its output, by a command and by Python
PRINTED = {"rdf": ("ex:Estonia ex:currency ex:Euro .", "3 triples added")}


@pytest.mark.slow
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_notebook_runs(tutorial: Path, tmp_path: Path) -> None:
    """In a real kernel: commands and Python share a folder, as on a page."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = notebook_of(tutorial.read_text("utf-8"))
    if notebook is None:
        pytest.skip("a tutorial without code")
    for name in ("examples", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "tutorial.ipynb").write_text(json.dumps(notebook))
    code = (
        "import json, nbformat, nbclient\n"
        "notebook = nbformat.read('tutorial.ipynb', 4)\n"
        "nbclient.NotebookClient(notebook, timeout=300).execute()\n"
        "print(json.dumps([o for c in notebook.cells for o in c.get('outputs', [])]))"
    )
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": programs, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    env |= {"PYTHONUTF8": "1", "IPYTHONDIR": str(tmp_path / "ipython")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    outputs = json.loads(done.stdout.splitlines()[-1])
    said = "".join(output.get("text", "") for output in outputs)
    assert all(words in said for words in PRINTED.get(tutorial.stem, ()))


@pytest.mark.slow
def test_what_the_home_page_says_works(tmp_path: Path) -> None:
    text = (DOCS / "index.md").read_text("utf-8")
    [commands] = re.findall(r"```bash\n(.*?)```", text, re.S)
    lines = [shlex.split(line, comments=True) for line in commands.splitlines()]
    assert [line[:2] for line in lines] == [
        ["pip", "install"], ["pathe", "predict"], ["pathe", "missing"], ["pathe", "serve"],
    ]  # fmt: skip
    found = run(*lines[1][1:], cwd=tmp_path)
    assert (found.returncode, "Seine" in found.stdout) == (0, True)
    found = run(*lines[2][1:], cwd=tmp_path)
    assert (found.returncode, "European Union" in found.stdout) == (0, True)
    [code] = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(compile(code, "index.md", "exec"), {})


def test_the_navigation_names_pages_that_exist() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    text = re.sub(r"!!python\S+", "", text)
    pages = {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md")} | set(generated_pages())

    def named(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        values = entry.values() if isinstance(entry, dict) else entry
        return [path for value in values for path in named(value)]  # type: ignore[attr-defined]

    for path in named(yaml.safe_load(text)["nav"]):
        if not path.endswith("*") and path not in ("reliability.md", "security.md"):
            assert path in pages
