"""The party's page: it shows what is asked, lets one browser decide about that, and nothing else in."""

import copy
import json
import re
import shutil
import subprocess
import sys

import pytest

from tequio.engines.network.approving import asked, history
from tequio.engines.network.homes import PartyHome
from tequio.engines.network.policy import Approvals
from tequio.engines.network.telemetry import AuditLog
from tequio.views.party_page import make_party_app
from tequio.views.web.guard import Settings

ADDRESS = "http://127.0.0.1:8765"
HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e"
FACTS = {"algorithm": "fedavg", "learner": {"$component": ["learner", "mlp"], "parameters": {"hidden": [16]}},
         "stages": [], "rounds": 10, "parties": 3, "name": "tumours"}


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "party"
    (folder / "approvals").mkdir(parents=True)
    (folder / "party.json").write_text(json.dumps({"name": "north", "address": "localhost:1", "data": {}}))
    (folder / "policy.toml").write_text("[budget]\nepsilon = 8.0\ndelta = 1e-5\n")
    announce(folder, "run-1", FACTS, before=copy.deepcopy(FACTS) | {"rounds": 5}, epsilon=2.413,
             tasks=[{"task": "train", "reveals": "UPDATE", "covered_by": "local-dp", "cost": "epsilon 0.24 a round"}])
    announce(folder, "run-2", {**FACTS, "name": HOSTILE, "\"><img src=x onerror=alert(2)>": "javascript:alert(3)"})
    AuditLog(folder / "audit.jsonl").note("run accepted", run=HOSTILE)
    return PartyHome(folder)


def announce(folder, run, facts, **more):
    (folder / "approvals" / f"{run}.json").write_text(json.dumps({"asked": facts, "decision": "", **more}))


def visitor(home, **options):
    from starlette.testclient import TestClient

    return TestClient(make_party_app(home, Settings(home.folder, token="link")), base_url=ADDRESS, **options)


@pytest.fixture
def client(home):
    found = visitor(home)
    assert found.get("/", params={"token": "link"}).status_code == 200
    return found


def form_of(client, run, **changed):
    """The fields of a run's form as the page holds them."""
    form = next(part for part in client.get("/").text.split("<form")[1:] if f'name="run" value="{run}"' in part)
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))
    return {**fields, "decision": "approved", "note": "", **changed}


def decision(home, run):
    return Approvals(home.folder / "approvals").all()[run]["decision"]


def test_the_page_says_what_is_asked_what_it_reveals_what_it_costs_and_what_changed(client):
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", client.get("/").text))
    assert "learner mlp (hidden = [16])" in text
    assert "How training on the rows changed a model: train." in text
    assert "costs epsilon 2.413" in text
    assert "rounds 5 → became 10" in text
    assert "epsilon 8 of 8" in text
    assert "1 entries, unchanged" in text
    assert "What each task reveals not stated" in text  # of the other run


def test_approving_notes_who_and_what_was_seen(client, home):
    answer = client.post("/decide", data=form_of(client, "run-1", note="as agreed"))
    assert answer.status_code == 200
    assert decision(home, "run-1") == "approved"
    entry, = history(home)
    assert (entry["event"], entry["note"], entry["announcement"]) == ("approved", "as agreed",
                                                                      asked(home)["run-1"].hash)
    assert "as agreed" in answer.text
    assert 'value="run-1"' not in answer.text  # it waits no more


def test_declining(client, home):
    client.post("/decide", data=form_of(client, "run-2", decision="denied"))
    assert (decision(home, "run-1"), decision(home, "run-2")) == ("", "denied")


def test_a_run_that_changed_since_the_page_was_loaded_is_not_decided(client, home):
    form = form_of(client, "run-2")
    announce(home.folder, "run-2", {**FACTS, "rounds": 1000})
    answer = client.post("/decide", data=form)
    assert answer.status_code == 409
    assert "it changed" in answer.text
    assert "1000" in answer.text
    assert (decision(home, "run-2"), history(home)) == ("", [])


def test_everything_that_came_from_the_coordinator_is_escaped(client):
    text = client.get("/").text
    assert "<script" not in text
    assert "<img src=x" not in text
    assert not {"\x1b", "\u202e"} & set(text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J\\u202e" in text


def test_the_page_runs_no_script_and_asks_nobody_for_anything(client):
    answer = client.get("/")
    assert "//" not in answer.text.replace("javascript:alert(3)", "")
    assert " style=" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert client.get("/static/party.css").status_code == 200


def test_the_link_works_once_and_the_cookie_is_another_secret(home):
    first = visitor(home, follow_redirects=False)
    answer = first.get("/", params={"token": "link"})
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert "link" not in cookie
    assert first.get("/").status_code == 200
    first.cookies.clear()
    assert first.get("/", params={"token": "link"}).status_code == 401


@pytest.mark.parametrize("brought", [{}, {"params": {"token": "guess"}}, {"params": {"token": ""}},
                                     {"headers": {"cookie": "tequio-8765=link"}},
                                     {"headers": {"cookie": "tequio-8765="}},
                                     {"headers": {"authorization": "Bearer link"}}])
def test_another_local_user_sees_nothing(home, brought):
    for method, address in (("GET", "/"), ("POST", "/decide"), ("GET", "/static/style.css")):
        answer = visitor(home, follow_redirects=False).request(method, address, **brought)
        assert answer.status_code == 401
        assert "tumours" not in answer.text
    assert decision(home, "run-1") == ""


@pytest.mark.parametrize("changed", [{"form_token": ""}, {"form_token": "guess"}, {"decision": "maybe"}])
def test_a_form_that_is_not_of_the_page_decides_nothing(client, home, changed):
    assert client.post("/decide", data=form_of(client, "run-1", **changed)).status_code in (400, 403)
    assert decision(home, "run-1") == ""


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"host": "evil.example"},
                                     {"sec-fetch-site": "cross-site"}])
def test_another_site_decides_nothing(client, home, headers):
    assert client.post("/decide", data=form_of(client, "run-1"), headers=headers).status_code == 403
    assert decision(home, "run-1") == ""


def test_reading_an_address_decides_nothing(client, home):
    assert client.get("/decide", params=form_of(client, "run-1")).status_code == 405
    assert decision(home, "run-1") == ""


@pytest.mark.browser
@pytest.mark.network
@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium")
def test_a_person_decides_with_the_keyboard_on_a_phone(home):
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "tequio", "party", "ui", "--home", str(home.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as player:
        try:
            link = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", server.stdout.readline())[0]
            browser = player.chromium.launch(executable_path=shutil.which("chromium"), args=[
                "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
            page = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark").new_page()
            said = []
            page.on("console", lambda message: said.append(message.text))
            page.on("dialog", lambda dialog: said.append("a dialog"))
            page.goto(link)
            assert "token" not in page.url
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(16, 21, 27)"
            page.get_by_label("Note for the history").first.focus()
            page.keyboard.type("by keyboard")
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.textContent").split() == ["Approve", "run-1"]
            page.keyboard.press("Enter")
            page.get_by_role("cell", name="by keyboard").wait_for()
            assert said == []
            assert browser.new_context().new_page().goto(link).status == 401
            browser.close()
        finally:
            server.terminate()
    assert decision(home, "run-1") == "approved"
