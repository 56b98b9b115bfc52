"""The dashboard in a real browser: start, watch, stop, go on, compare, look at trees; by mouse and by keyboard.

axe-core is looked for at $TEQUIO_AXE (the path of axe.min.js, from `npm install axe-core`).
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium")]

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run"]
AXE = os.environ.get("TEQUIO_AXE", "")
WIDE, PHONE = {"width": 1400, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """The runs, and two that are damaged."""
    folder = tmp_path_factory.mktemp("browser") / "runs"
    for name, source in made.items():
        shutil.copytree(source, folder / name)
    shutil.copytree(made["trees"], folder / "damaged")
    (folder / "damaged" / "summary.json").write_text("{")
    (folder / "half").mkdir()
    (folder / "half" / "config.toml").write_text("name = ")
    return folder


@pytest.fixture(scope="module")
def address(folder):
    """The link that the command prints when it starts a dashboard."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "tequio", "ui", str(folder), "--port", str(port)],
                              stdout=subprocess.PIPE, text=True)
    try:
        yield re.search(r"http://\S+", server.stdout.readline())[0]
    finally:
        server.terminate()
        server.stdout.close()
        server.wait(30)


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, address):
    """Opens pages of a size and colour scheme; at the end nothing may have been wrong, and nobody else been asked."""
    troubles, contexts = [], []

    def open_page(path, viewport=WIDE, scheme="light"):
        context = chromium.new_context(viewport=viewport, color_scheme=scheme)
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: None if urlsplit(request.url).netloc == urlsplit(address).netloc
                else troubles.append(f"asked {request.url}"))
        page.goto(address)
        page.goto(urljoin(address, path))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def test_a_run_is_started_from_the_form_watched_stopped_and_resumed(opened):
    from playwright.sync_api import expect

    page = opened("/new")
    page.get_by_label("name", exact=True).fill("watched")
    page.get_by_label("rounds", exact=True).fill("100000")
    page.get_by_label("dataset", exact=True).select_option("iris")
    page.get_by_label("prepare", exact=True).fill('["standardise"]')
    page.get_by_label("learner", exact=True).select_option("sgd-classifier")
    page.locator("summary", has_text="Engine").click()
    page.get_by_label("workers", exact=True).fill("1")
    page.get_by_role("button", name="Start the run").click()
    expect(page.get_by_role("heading", name="watched")).to_be_visible(timeout=60_000)
    expect(page.locator(".badge")).to_have_text("running")
    expect(page.locator("#round")).to_have_text(re.compile(r"^([6-9]|\d\d+)$"), timeout=60_000)
    expect(page.locator(".plot path.line")).to_have_attribute("d", re.compile(r"M[^L]+(L[^L]+){4}"))
    drawn = page.locator(".plot path.line").get_attribute("d")
    expect(page.locator("#round")).not_to_have_text(page.locator("#round").text_content())
    assert page.locator(".plot path.line").get_attribute("d") != drawn
    expect(page.locator("#parties tbody tr")).to_have_count(10)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".badge")).to_have_text("stopped", timeout=60_000)
    done = int(page.locator("#round").text_content())
    page.get_by_role("textbox", name="Rounds").fill(str(done + 3))
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".badge")).to_have_text("finished", timeout=60_000)
    expect(page.locator("#round")).to_have_text(str(done + 3))
    expect(page.locator(".plot path.line")).to_have_count(1)


def test_a_sweep_is_started_from_the_form(opened):
    from playwright.sync_api import expect

    page = opened("/new")
    page.get_by_label("name", exact=True).fill("swept")
    page.get_by_label("rounds", exact=True).fill("2")
    page.get_by_label("dataset", exact=True).select_option("iris")
    page.get_by_label("learner", exact=True).select_option("sgd-classifier")
    page.locator("summary", has_text="Engine").click()
    page.get_by_label("workers", exact=True).fill("1")
    page.locator("summary", has_text="Sweep").click()
    page.get_by_label("seeds", exact=True).fill("2")
    page.get_by_label("values, as TOML").fill("local.epochs = [1, 2]")
    page.get_by_role("button", name="Start the run").click()
    expect(page.get_by_role("status")).to_contain_text("A sweep of 4 runs was started")
    for _ in range(60):
        page.reload()
        if page.locator("table.runs .badge", has_text="finished").count() == 4:
            break
        page.wait_for_timeout(1000)
    expect(page.locator("table.runs .badge", has_text="finished")).to_have_count(4)


def test_mistakes_stand_at_their_fields(chromium, address):
    context = chromium.new_context()
    page = context.new_page()
    page.goto(address)
    page.goto(urljoin(address, "/new"))
    page.get_by_label("rounds", exact=True).fill("0")
    page.get_by_label("algorithm", exact=True).select_option("fedprox")
    page.get_by_label("proximal", exact=True).fill("-1")
    page.get_by_role("button", name="Start the run").click()
    rounds = page.get_by_label("rounds", exact=True)
    assert rounds.get_attribute("aria-invalid") == "true"
    assert "greater than or equal to 1" in page.locator("#f-rounds-error").text_content()
    assert page.get_by_label("proximal", exact=True).input_value() == "-1"
    assert page.evaluate("document.activeElement.id") == "mistakes"
    page.get_by_role("link", name="algorithm.proximal").click()
    assert page.evaluate("document.activeElement.id") == "f-algorithm.proximal"
    context.close()


def test_two_runs_are_chosen_in_the_list_and_compared(opened):
    from playwright.sync_api import expect

    page = opened("/?data=iris")
    expect(page.get_by_role("button", name="Choose runs to compare")).to_be_disabled()
    page.get_by_label("Choose fedavg-0").check()
    page.get_by_label("Choose fedavgm-0").check()
    page.get_by_role("button", name="Compare 2 runs").click()
    expect(page.locator(".plot path.line")).to_have_count(2)
    expect(page.locator("#standings tbody tr")).to_have_count(2)
    page.locator("[data-choice=metric]").select_option("test.loss")
    assert "test.loss along round" in page.locator(".plot svg").get_attribute("aria-label")
    page.get_by_label("Leave out fedavgm-0").click()
    expect(page.locator(".plot path.line")).to_have_count(1)


def test_filters_narrow_the_list(opened):
    from playwright.sync_api import expect

    page = opened("/")
    page.get_by_label("Status").select_option("corrupt")
    expect(page.locator("table.runs tbody tr")).to_have_count(2)
    expect(page.locator("table.runs")).to_contain_text("summary.json is damaged")


def test_a_tree_is_opened_and_a_row_explained(opened):
    from playwright.sync_api import expect

    page = opened("/run/trees")
    page.get_by_role("link", name="Trees").click()
    frame = page.frame_locator("iframe")
    expect(frame.locator("g.node").first).to_be_visible()
    page.get_by_label("Test row").fill("4")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("heading", name="Row 4 of the test rows")).to_be_visible()
    expect(page.locator("#explanation")).to_contain_text("because")
    lit = frame.locator("g.node.lit")
    expect(lit.first).to_be_visible()
    assert "row 4" in frame.locator("#explained").text_content()
    closed = frame.locator("g.node").count()
    frame.get_by_role("button", name="open all").click()
    assert frame.locator("g.node").count() >= closed


def test_another_partition_brings_its_own_fields(opened):
    from playwright.sync_api import expect

    page = opened("/partition")
    page.get_by_label("dataset", exact=True).select_option("iris")
    page.get_by_label("partition", exact=True).select_option("dirichlet")
    page.get_by_label("alpha", exact=True).fill("0.3")
    page.get_by_label("parties", exact=True).fill("4")
    page.get_by_role("button", name="Deal").click()
    expect(page.locator("table.heat tbody tr")).to_have_count(4)
    expect(page.get_by_role("heading", name="iris dealt to 4 parties: dirichlet")).to_be_visible()
    expect(page.get_by_label("alpha", exact=True)).to_have_value("0.3")


def test_everything_can_be_reached_by_keyboard(opened):
    from playwright.sync_api import expect

    page = opened("/run/fedavg-0")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.locator(".plot svg").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator(".readout").text_content().startswith("round 2: fedavg ")
    outline = page.locator(".plot svg").evaluate("one => getComputedStyle(one).outlineStyle")
    assert outline == "solid"
    page.get_by_text("The curves as a table").click()
    expect(page.locator(".numbers tbody tr")).to_have_count(3)


def test_light_and_dark_follow_the_system_until_the_reader_chooses(opened):
    page = opened("/", scheme="dark")
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(paper)
    page.get_by_role("button", name="Switch to light colours").click()
    assert page.evaluate(paper) == "rgb(255, 255, 255)" != dark
    page.reload()
    assert page.evaluate(paper) == "rgb(255, 255, 255)"


PAGES = ["/", "/run/fedavg-0", "/run/damaged", "/compare?run=fedavg-0&run=fedavgm-0&run=fedavgm-1", "/new",
         "/partition?run=fedavg-0", "/tree/trees?row=4", "/compare", "/models"]


@pytest.mark.skipif(not Path(AXE).is_file(), reason="TEQUIO_AXE does not name axe.min.js")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_no_page_shuts_anybody_out(opened, viewport, scheme):
    script, found = Path(AXE).read_text(encoding="utf-8"), {}
    page = opened("/", viewport, scheme)
    home = page.url.rstrip("/")
    for path in PAGES:
        page.goto(home + path)
        page.wait_for_load_state("networkidle")
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than the screen"
        page.evaluate(script)
        answer = page.evaluate("async () => await axe.run()")
        found[path] = [(one["id"], one["impact"], one["nodes"][0]["html"]) for one in answer["violations"]]
        assert answer["passes"]
    assert {path: some for path, some in found.items() if some} == {}
