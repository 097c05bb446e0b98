"""Pictures of the diagrams in the docs; GitHub draws them itself, the site needs no network.

`python -m website.mermaid MERMAID_JS` draws them all, in Debian's Chromium. MERMAID_JS is
`dist/mermaid.min.js` of npm's package mermaid (`npm pack mermaid@11`).
"""

from __future__ import annotations

import re
import sys
from hashlib import sha256
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
PICTURES = DOCS / "pictures" / "diagrams"
COLOURS = """
.node rect { fill: var(--pic-box) !important; stroke: var(--pic-line) !important; }
.cluster rect { fill: var(--pic-back) !important; stroke: var(--pic-faint) !important; }
.flowchart-link, .edge-thickness-normal { stroke: var(--pic-line) !important; }
.marker, marker path { fill: var(--pic-line) !important; stroke: var(--pic-line) !important; }
text, tspan { fill: var(--pic-ink) !important; }
.edgeLabel rect { opacity: 0 !important; }
"""
PAGE = """<body><script>{script}</script><script>
async function draw(name, code, colours) {{
  mermaid.initialize({{startOnLoad: false, theme: "base", themeCSS: colours, htmlLabels: false,
    flowchart: {{htmlLabels: false}}, fontFamily: "sans-serif", securityLevel: "loose"}});
  return (await mermaid.render(name, code)).svg;
}}</script>"""


def diagrams() -> list[str]:
    """Returns every diagram of the docs."""
    pages = sorted(DOCS.rglob("*.md"))
    fences = (
        re.findall(r"^```mermaid\n(.*?)^```$", p.read_text("utf-8"), re.M | re.S) for p in pages
    )
    return [code for found in fences for code in found]


def place_of(code: str) -> Path:
    """Returns where the picture of a diagram is: the name depends on its text."""
    return PICTURES / f"{sha256(code.encode()).hexdigest()[:12]}.svg"


def picture_of(code: str) -> str:
    """Returns the picture as SVG, or the diagram's text if nobody has drawn it yet."""
    path = place_of(code)
    if path.exists():
        return path.read_text(encoding="utf-8").strip()
    text = code.replace("&", "&amp;").replace("<", "&lt;")
    return f"<pre><code>{text}</code></pre>"


def main(script: Path) -> None:
    """Draws all diagrams and removes pictures of those that are gone."""
    from playwright.sync_api import sync_playwright

    wanted = {place_of(code): code for code in diagrams()}
    PICTURES.mkdir(parents=True, exist_ok=True)
    for old in set(PICTURES.glob("*.svg")) - set(wanted):
        old.unlink()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.set_content(PAGE.format(script=script.read_text(encoding="utf-8")))
        for path, code in wanted.items():
            plain = re.sub(r"</?b>", "", code)
            svg = page.evaluate("args => draw(...args)", [f"d{path.stem}", plain, COLOURS])
            path.write_text(re.sub(r">\s+<", "><", svg) + "\n", encoding="utf-8")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
