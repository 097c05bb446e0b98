"""The page of `pathe serve` in a real browser, through the ways that visitors take."""

from __future__ import annotations

import csv
import importlib
import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from support.commands import pathe
from support.places import ROOT
from support.server import running

CHROMIUM = Path("/usr/bin/chromium")
REQUIRED = os.environ.get("PATHE_BROWSER") == "required"  # fail rather than skip


def needed(name: str, reason: str) -> Any:
    """Imports a package; without it, skips these tests if they may be skipped."""
    return importlib.import_module(name) if REQUIRED else pytest.importorskip(name, reason=reason)


needed("fastapi", "the server needs pathe[serve]")
api = needed("playwright.sync_api", "tests of the page need playwright")
axe = needed("axe_playwright_python.sync_playwright", "axe checks the page")
if not CHROMIUM.exists():
    assert not REQUIRED, f"no {CHROMIUM}"
    pytest.skip(f"tests of the page need Chromium as {CHROMIUM}", allow_module_level=True)

STATIC = ROOT / "src" / "pathe" / "serve" / "static"
IMAGE = '<img src=x onerror="window.harmed=1">'
SCRIPT = "<script>window.harmed=2</script>"
MARKUP = "<b>part of</b>"
FILM_TYPES = ROOT / "examples" / "films-types.csv"
PATTERN = '["capital of","^flows through"]'  # of Paris, lies on, Loire
WAIT = 60_000  # milliseconds for anything to appear, also on a busy machine
expect = api.expect
expect.set_options(timeout=WAIT)


def write_harmful(path: Path) -> Path:
    """A graph whose names are markup."""
    facts = [(IMAGE, "owned by", SCRIPT), ("item x", "made by", SCRIPT)]
    for i in range(12):
        facts += [(f"item {i}", MARKUP, IMAGE), (f"item {i}", "made by", SCRIPT)]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("head", "relation", "tail"), *facts])
    return path


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """A graph of which a fifth is held out."""
    folder = tmp_path_factory.mktemp("split") / "films"
    made = pathe("convert", ROOT / "examples" / "films.csv", folder, "--split", "0.8,0.1,0.1")
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory, films):
    """The address of a server with three graphs."""
    folder = tmp_path_factory.mktemp("site")
    graphs = {
        "europe": {"data": str(ROOT / "examples" / "europe.csv")},
        "harmful": {"data": str(write_harmful(folder / "harmful.csv"))},
        "films": {"data": str(films), "types": str(FILM_TYPES)},
    }
    chosen = folder / "graphs.yaml"
    chosen.write_text(json.dumps({"graphs": graphs}), encoding="utf-8")
    with running("--graphs", chosen) as (url, _):
        yield url


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser):
    """A page of a new visitor; the test fails if a script fails or the policy refuses something."""
    context = browser.new_context(viewport={"width": 1100, "height": 800}, color_scheme="light")
    context.set_default_timeout(WAIT)
    own, wrong = context.new_page(), []
    own.on("pageerror", lambda error: wrong.append(str(error)))
    own.on(
        "console",
        lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None,
    )
    yield own
    context.close()
    assert not wrong


def address(site: str, view: str = "", graph: str = "europe", **more: object) -> str:
    return f"{site}/?{urlencode({'graph': graph, 'view': view} | more, doseq=True)}"


def asked(page) -> dict[str, list[str]]:
    """The parameters of the page's address."""
    return parse_qs(urlsplit(page.url).query)


def is_done(page) -> None:
    """Waits until nothing is loading any more."""
    page.locator("main h1").wait_for()
    expect(page.locator(".loading")).to_have_count(0)


def suggestions(page):
    """The open list of a field."""
    return page.locator(".options:visible [role=option]")


def fits(page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


LOIRE = {"head": "Paris", "relation": "lies on", "tail": "Loire"}
QUESTION = {"head": "Paris", "relation": "lies on"}


def test_the_assets_stay_small():
    assert sum(path.stat().st_size for path in STATIC.iterdir()) < 150_000


def test_the_first_view_offers_questions(site, page):
    page.goto(site)
    is_done(page)
    expect(page.locator("h1")).to_have_text("europe")
    expect(page.get_by_text("917 facts about 291 entities")).to_be_visible()
    page.locator("a[href*='view=ask'] strong").first.click()
    expect(page.locator("li.answer").first).to_be_visible()


def test_search_by_keyboard(site, page):
    page.goto(site)
    field = page.get_by_role("combobox", name="Search entities")
    field.fill("pari")
    first = suggestions(page).first
    expect(first).to_contain_text("Paris")
    field.press("ArrowDown")
    expect(field).to_have_attribute("aria-activedescendant", first.get_attribute("id"))
    field.press("Escape")
    expect(field).to_have_attribute("aria-expanded", "false")
    expect(field).to_have_value("pari")
    field.press("ArrowDown")
    expect(first).to_be_visible()
    field.press("ArrowDown")
    field.press("Enter")
    expect(page.locator("h1")).to_have_text("Paris")
    assert asked(page)["name"] == ["Paris"]


def test_an_older_suggestion_never_replaces_a_newer_one(site, page):
    """The answer for the first letters comes last."""
    page.goto(site)
    is_done(page)
    late = []
    page.route(re.compile(r"/entities\?.*q=germ(&|$)"), lambda route: late.append(route))
    field = page.get_by_role("combobox", name="Search entities")
    with page.expect_request(re.compile(r"q=germ(&|$)")):
        field.fill("germ")
    field.fill("spain")
    expect(suggestions(page).first).to_contain_text("Spain")
    assert late
    row = {"name": "Germany", "label": "Germany", "facts": 1, "types": []}
    late[0].fulfill(json={"entities": [row]})
    drawn = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(drawn)
    expect(suggestions(page).first).to_contain_text("Spain")


def test_a_search_without_a_choice_lists_entities(site, page):
    page.goto(site)
    field = page.get_by_role("combobox", name="Search entities")
    field.fill("sea")
    field.press("Enter")
    expect(page.locator("h1")).to_contain_text("sea")
    page.get_by_role("link", name="Baltic Sea").click()
    expect(page.locator("h1")).to_have_text("Baltic Sea")


def test_a_card_shows_facts_and_loads_more_on_demand(site, page):
    page.goto(address(site, "entity", name="Germany"))
    expect(page.get_by_role("heading", name="42 facts")).to_be_visible()
    expect(page.get_by_role("heading", name="borders").first).to_be_visible()
    page.get_by_role("button", name="Similar entities").click()
    expect(page.locator(".panel li")).to_have_count(10)
    assert asked(page)["show"] == ["similar"]
    page.get_by_label("Relation").select_option(label="← city in (6)")
    expect(page.get_by_role("heading", name="6 facts", exact=True)).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="42 facts")).to_be_visible()


def test_a_card_finds_what_the_entity_lacks(site, page):
    page.goto(address(site, "entity", name="Luxembourg City"))
    page.get_by_role("button", name="Missing facts").click()
    expect(page.locator(".panel .loading")).to_contain_text("Looking for facts")
    expect(page.locator(".panel li").first).to_be_visible()


def test_ask_with_the_fields_and_see_known_facts(site, page):
    page.goto(address(site, "ask"))
    for part, typed, wanted in (("Head", "pari", "Paris"), ("Relation", "lies", "lies on")):
        field = page.get_by_role("combobox", name=part)
        field.fill(typed)
        suggestions(page).filter(has_text=wanted).first.click()
    page.get_by_role("button", name="Ask", exact=True).click()
    answers = page.locator("li.answer")
    expect(answers).to_have_count(10)
    expect(page.get_by_text("Probably complete")).to_be_visible()
    expect(page.locator(".mark.known")).to_have_count(0)
    page.get_by_label("Show known facts").check()
    expect(page.locator("li[data-name=Seine] .mark")).to_have_text("known")
    expect(page.get_by_label("Show known facts")).to_be_focused()
    page.get_by_role("button", name="More answers").click()
    expect(answers).to_have_count(20)
    page.reload()
    expect(answers).to_have_count(20)
    expect(page.locator("li[data-name=Seine] .mark")).to_have_text("known")


def triples(path: Path) -> set[tuple[str, ...]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {tuple(line.split("\t")) for line in lines}


def test_held_out_truths_are_marked_and_no_other_answers(site, films, page):
    held_out = triples(films / "valid.txt") | triples(films / "test.txt")
    relation, tail = "produced_by", "Kestrel Studio"
    truths = {own[0] for own in held_out if own[1:] == (relation, tail)}
    page.goto(address(site, "ask", "films", relation=relation, tail=tail, n=40))
    answers = page.locator("li.answer")
    expect(answers).to_have_count(40)
    marked = answers.filter(has=page.locator(".mark.held", has_text="true, held out"))
    names = {answer.get_attribute("data-name") for answer in answers.all()}
    found = {answer.get_attribute("data-name") for answer in marked.all()}
    assert found == names & truths
    assert len(found) >= 2
    known = {own[0] for own in triples(films / "train.txt") if own[1:] == (relation, tail)}
    assert known
    assert not known & names
    expect(page.get_by_text("An answer without this mark may be true as well")).to_be_visible()
    assert not axe.Axe().run(page).violations_count
    page.goto(address(site, "ask", **QUESTION))  # nothing of this graph is held out
    is_done(page)
    expect(page.get_by_text("without this mark")).to_have_count(0)


def types() -> dict[str, str]:
    with FILM_TYPES.open(newline="", encoding="utf-8") as file:
        return {row["entity"]: row["type"] for row in csv.DictReader(file)}


def test_answers_of_a_type(site, page):
    page.goto(address(site, "ask", "films", head="Adama Adeyemi", relation="works_with"))
    answers, of = page.locator("li.answer"), types()
    expect(answers).to_have_count(10)
    assert {of[answer.get_attribute("data-name")] for answer in answers.all()} == {"Person"}
    page.get_by_label("Answers of type").select_option("Film")
    expect(page.locator("li.answer[data-name='Last, Then Garden']")).to_be_visible()
    expect(answers).to_have_count(10)
    assert {of[answer.get_attribute("data-name")] for answer in answers.all()} == {"Film"}
    assert asked(page)["type"] == ["Film"]
    page.reload()
    expect(page.get_by_label("Answers of type")).to_have_value("Film")
    expect(answers).to_have_count(10)


def test_search_for_entities_of_a_type(site, page):
    page.goto(address(site, graph="films"))
    page.get_by_label("Type of entity").select_option("Studio")
    field = page.get_by_role("combobox", name="Search entities")
    field.fill("paper")
    expect(suggestions(page)).to_have_text([re.compile("Paper Moon.*Studio")] * 2)
    field.press("Enter")
    expect(page.locator("h1")).to_have_text("Entities for “paper” of type Studio")
    expect(page.locator("main li")).to_have_text([re.compile("Paper Moon.*Studio")] * 2)
    page.get_by_label("Type of entity").select_option("Film")
    page.get_by_role("combobox", name="Search entities").press("Enter")
    expect(page.locator("h1")).to_contain_text("of type Film")
    expect(page.locator("main li").first).to_contain_text("Film")
    expect(page.locator("main li", has_text="Studio")).to_have_count(0)


def test_a_rule_has_instances(site, page):
    page.goto(address(site, "rules", relation="city in"))
    own = page.locator("ol.rows > li").nth(1)
    expect(own.locator(".pattern")).to_contain_text("flows through")
    expect(own.locator(".instances li")).to_have_count(3)
    first = own.locator(".instances li").first
    names = first.locator("bdi").all_inner_texts()
    assert names[1::2] == ["lies on", "flows through"]
    first.get_by_role("link", name=names[2], exact=True).click()
    expect(page.locator("h1")).to_have_text(names[2])
    page.go_back()
    first.get_by_role("link", name="Explain").click()
    expect(page.locator("h1")).to_contain_text(names[0])
    assert asked(page)["tail"] == [names[-1]]


def test_two_answers_side_by_side(site, page):
    page.goto(address(site, "ask", **QUESTION))
    page.get_by_label("Compare Rhine").check()
    page.get_by_label("Compare Loire").check()
    heads = page.locator("table.compare thead th")
    expect(heads).to_have_text(["Effect on the score", "Rhine", "Loire"])
    expect(page.get_by_text("as if the graph lacked them")).to_be_visible()
    expect(page.get_by_label("Compare Meuse")).to_be_disabled()
    page.reload()
    expect(heads).to_have_text(["Effect on the score", "Rhine", "Loire"])


def test_explain_and_leave_out(site, page):
    page.goto(address(site, "ask", **QUESTION))
    page.locator("li[data-name=Loire] .answer-name").click()
    picture = page.locator(".picture svg")
    expect(picture).to_be_visible()
    for name in ("Paris", "France", "Loire"):
        expect(picture.locator("text", has_text=name).first).to_be_visible()
    call = f"{site}/api/v1/graphs/europe/explain"
    patterns = page.request.get(call, params=LOIRE).json()["patterns"]
    against = [pattern for pattern in patterns if pattern["effect"] < 0]
    assert against
    expect(page.locator(".mark.against")).to_have_text(["counter-evidence"] * len(against))
    assert picture.locator("path[stroke-dasharray='7 5']").count()  # not by colour alone
    page.locator("#patterns input").first.check()
    result = page.locator(".result")
    body = LOIRE | {"without": {"patterns": [json.loads(PATTERN)]}}
    found = page.request.post(call, data=body).json()
    assert found["score"] < found["score_before"] - 1
    assert found["rank"] > found["rank_before"]
    expect(result).to_contain_text(f"score {found['score_before']:.2f} → {found['score']:.2f}")
    expect(result).to_contain_text(f"rank {found['rank_before']} → {found['rank']}")
    said = result.inner_text()
    assert asked(page)["without"] == [PATTERN]
    page.reload()
    expect(page.locator("#patterns input").first).to_be_checked()
    expect(result).to_contain_text("Without 1 pattern")
    assert result.inner_text() == said
    page.get_by_role("button", name="Use all again").click()
    expect(page.locator("#patterns input:checked")).to_have_count(0)
    assert "without" not in asked(page)


def test_counter_evidence_is_what_lowers_the_score(site, page):
    def answer(route):
        response = route.fetch()
        found = response.json()
        for pattern, effect in zip(found["patterns"], (1.5, -0.5), strict=False):
            pattern |= {"against": True, "effect": effect, "added": -0.5}
        route.fulfill(response=response, json=found)

    page.route("**/explain?*", answer)
    page.goto(address(site, "explain", **LOIRE))
    entries = page.locator("#patterns li")
    expect(entries.nth(0)).to_contain_text("+1.50")
    expect(entries.nth(0).locator(".mark.against")).to_have_count(0)
    expect(entries.nth(1)).to_contain_text("−0.50")
    expect(entries.nth(1).locator(".mark.against")).to_have_count(1)


def test_the_models_card_fits(site, page):
    page.goto(address(site, "about"))
    is_done(page)
    table = page.locator(".card-text table").first
    assert table.evaluate("own => own.scrollWidth <= own.parentElement.clientWidth")


def test_what_if_a_fact_were_removed(site, page):
    page.goto(address(site, "whatif", **(QUESTION | {"tail": "Seine"})))
    page.get_by_role("button", name="Remove this fact").click()
    bar = page.locator("#changes")
    expect(bar).to_contain_text("With 1 changed fact")
    assert [json.loads(f) for f in asked(page)["remove"]] == [["Paris", "lies on", "Seine"]]
    page.get_by_role("link", name="Ask for tails").click()
    expect(page.locator("li[data-name=Seine] .mark")).to_have_text("known before")
    assert page.locator(".mark.down, .mark.up").count()
    page.reload()
    expect(page.locator("li[data-name=Seine] .mark")).to_have_text("known before")
    bar.get_by_role("link", name="Reset").click()
    expect(page.locator("li.answer").first).to_be_visible()
    expect(bar).to_be_hidden()
    expect(page.locator("li[data-name=Seine]")).to_have_count(0)
    page.go_back()
    expect(bar).to_be_visible()


def test_what_if_a_new_entity_were_added(site, page):
    page.goto(address(site, "whatif"))
    for part, name in (("Head", "Atlantis"), ("Relation", "has coast on"), ("Tail", "North Sea")):
        page.get_by_role("combobox", name=part).fill(name)
    page.get_by_role("button", name="Add this fact").click()
    expect(page.locator("#changes")).to_contain_text("Atlantis")
    page.goto(page.url.replace("view=whatif", "view=entity&name=Atlantis"))
    expect(page.get_by_role("heading", name="1 fact", exact=True)).to_be_visible()


def test_a_change_that_cannot_be_made_is_said_in_place(site, page):
    page.goto(address(site, "whatif", remove='["Paris","lies on","Rhine"]'))
    expect(page.locator(".problem")).to_contain_text("Paris")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".problem")).to_have_count(0)


def test_rules_missing_suspicious_and_about(site, page):
    page.goto(address(site, "rules", relation="city in"))
    expect(page.locator("ol.rows li").first).to_contain_text("capital of")
    page.goto(address(site, "missing", relation="lies on"))
    expect(page.locator("ol.rows li")).to_have_count(20)
    page.goto(address(site, "suspicious", relation="lies on"))
    expect(page.locator("ol.rows li")).to_have_count(20)
    page.get_by_role("link", name="About").click()
    expect(page.get_by_text("199,040").first).to_be_visible()


@pytest.mark.parametrize(
    ("format", "begins"), [("json", "{"), ("csv", "head,relation,tail"), ("ttl", "")]
)
def test_answers_can_be_downloaded(site, page, format, begins):
    page.goto(address(site, "ask", **QUESTION))
    with page.expect_download() as download:
        page.locator(f"a[data-format={format}]").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert text.startswith(begins)
    assert "Rhine" in text


def test_the_picture_can_be_downloaded(site, page):
    page.goto(address(site, "explain", **LOIRE))
    with page.expect_download() as download:
        page.locator("button[data-format=svg]").click()
    assert download.value.suggested_filename == "Paris-lies-on-Loire.svg"
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert "France" in text
    assert "var(" not in text  # it has no style sheet


def test_dark_is_kept(site, page):
    page.goto(site)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.get_by_role("button", name="Dark theme").click()
    dark = page.evaluate(colour)
    assert dark != light
    page.reload()
    assert page.evaluate(colour) == dark
    expect(page.get_by_role("button", name="Light theme")).to_be_visible()


@pytest.mark.parametrize(
    ("view", "more"),
    [
        ("", {}),
        ("entity", {"name": "Germany"}),
        ("ask", QUESTION | {"compare": ["Rhine", "Loire"]}),
        ("explain", LOIRE),
        ("whatif", {"add": '["Paris","lies on","Rhine"]'}),
        ("rules", {"relation": "city in"}),
        ("about", {}),
    ],
)
def test_nothing_is_wider_than_a_phone(site, page, view, more):
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(address(site, view, **more))
    is_done(page)
    assert fits(page)


@pytest.mark.parametrize(
    ("view", "more"),
    [
        ("", {}),
        ("search", {"q": "<"}),
        ("entity", {"name": SCRIPT}),
        ("entity", {"name": IMAGE, "show": "similar"}),
        ("ask", {"head": IMAGE, "relation": "owned by", "known": "1"}),
        ("ask", {"head": "item 1", "tail": SCRIPT}),
        ("explain", {"head": "item x", "relation": MARKUP, "tail": IMAGE}),
        ("whatif", {"add": json.dumps([SCRIPT, MARKUP, IMAGE])}),
        ("rules", {"relation": MARKUP}),
    ],
)
def test_names_never_become_markup(site, page, view, more):
    page.goto(address(site, view, "harmful", **more))
    is_done(page)
    field = page.get_by_role("combobox", name="Search entities")
    field.fill("<")
    expect(suggestions(page).filter(has_text=SCRIPT)).to_be_visible()
    text = page.locator("body").inner_text()
    assert IMAGE in text
    assert SCRIPT in text
    assert page.locator("img, main b, main script").count() == 0
    assert page.evaluate("window.harmed") is None


@pytest.mark.parametrize(
    ("status", "said"),
    [(429, "busy. Try again in 7 seconds"), (504, "took too long"), (400, "No such thing.")],
)
def test_an_error_is_a_sentence_with_a_way_on(site, page, status, said):
    problem = {"type": "about:blank", "title": "", "status": status, "detail": "No such thing."}
    page.route(
        "**/predict?*",
        lambda route: route.fulfill(status=status, json=problem, headers={"Retry-After": "7"}),
    )
    page.goto(address(site, "ask", **QUESTION))
    expect(page.locator(".problem")).to_contain_text(said)
    page.unroute("**/predict?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("li.answer")).to_have_count(10)


def test_a_token_is_asked_for_and_kept(site, page):
    def guarded(route):
        if route.request.headers.get("authorization") == "Bearer open":
            route.continue_()
        else:
            route.fulfill(status=401, json={"status": 401, "detail": "Give the token."})

    page.route("**/api/v1/**", guarded)
    page.goto(address(site, "ask", **QUESTION))
    page.get_by_label("Token").fill("open")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("li.answer")).to_have_count(10)
    page.reload()
    expect(page.locator("li.answer")).to_have_count(10)


VIEWS = [
    ("", {}),
    ("search", {"q": "par"}),
    ("entity", {"name": "Germany"}),
    ("entity", {"name": "Paris", "show": "similar"}),
    ("ask", QUESTION | {"known": "1"}),
    ("ask", QUESTION | {"compare": ["Rhine", "Loire"]}),
    ("ask", {"head": "Paris", "tail": "France"}),
    ("explain", LOIRE),
    ("explain", LOIRE | {"without": PATTERN}),
    ("whatif", {"add": '["Paris","lies on","Rhine"]'}),
    ("missing", {"relation": "lies on"}),
    ("suspicious", {"relation": "lies on"}),
    ("rules", {"relation": "city in"}),
    ("about", {}),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(site, page, theme):
    """Contrast, labels, roles and order of headings, in every view."""
    page.emulate_media(color_scheme=theme)
    wrong = []
    for view, more in VIEWS:
        page.goto(address(site, view, **more))
        is_done(page)
        found = axe.Axe().run(page)
        wrong += [f"{page.url}: {found.generate_report()}"] if found.violations_count else []
    assert not wrong, "\n".join(wrong)


def test_axe_finds_what_is_wrong(site, page):
    page.goto(site)
    is_done(page)
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert axe.Axe().run(page).violations_count


def test_changes_for_everyone(page, tmp_path, monkeypatch):
    monkeypatch.setenv("PATHE_TOKEN", "open")
    data = ("--data", ROOT / "examples" / "europe.csv", "--writable", tmp_path / "journal")
    with running(*data, "--public") as (url, _):
        new = json.dumps(["Atlantis", "borders", "France"])
        page.goto(address(url, "whatif", add=new))
        page.get_by_role("button", name="Change the graph for everyone").click()
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("form.problem")).to_contain_text("didn't accept")
        page.get_by_label("Token").fill("open")
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("p.done")).to_contain_text("1 fact added, 0 facts removed")
        assert "add" not in asked(page)
        expect(page.locator("#changes")).to_be_hidden()
        page.goto(address(url, ""))
        expect(page.get_by_text("918 facts about 292 entities")).to_be_visible()


def test_a_graph_that_cant_be_changed_offers_nothing(site, page):
    page.goto(address(site, "whatif", add='["Paris","lies on","Rhine"]'))
    is_done(page)
    expect(page.get_by_role("button", name="Change the graph for everyone")).to_have_count(0)
