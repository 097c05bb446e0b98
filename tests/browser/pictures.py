"""Takes the pictures of the page that the docs show: `python tests/browser/pictures.py`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.places import ROOT
from support.server import running

REMOVED, ADDED = (json.dumps(["Paris", "lies on", river]) for river in ("Seine", "Rhine"))
CAPITAL = {"head": "Paris", "relation": "capital of", "tail": "France"}
PICTURES: dict[str, dict[str, str]] = {
    "start": {},
    "explain": {"view": "explain", **CAPITAL},
    "ask": {"view": "ask", "head": "Paris", "relation": "lies on", "remove": REMOVED},
    "whatif": {"view": "whatif", "remove": REMOVED, "add": ADDED},
    "rules": {"view": "rules", "relation": "city in"},
}
TALLER = {"explain": 1000, "whatif": 840}  # pixels, where 720 hide what matters


def main() -> None:
    europe = ROOT / "examples" / "europe.csv"
    with (
        tempfile.TemporaryDirectory() as folder,
        running("--data", europe, "--writable", Path(folder) / "changes") as (url, _),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(color_scheme="light")
        page.set_default_timeout(60_000)
        for name, asked in PICTURES.items():
            page.set_viewport_size({"width": 1000, "height": TALLER.get(name, 720)})
            page.goto(f"{url}/?{urlencode({'graph': 'europe'} | asked)}")
            page.locator("main h1").wait_for()
            expect(page.locator(".loading")).to_have_count(0, timeout=60_000)
            page.screenshot(path=ROOT / "docs" / f"serve-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
