"""Requests that do not come from the dashboard's own pages are refused."""

import pytest

from tequio.errors import ConfigError
from tequio.views.web.guard import Settings

from .conftest import ADDRESS, client_of, form_token

TOKEN = "a-long-random-token"


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "[::1]:8765", "localhost:9000", "127.0.0.9"])
def test_names_of_this_machine_are_let_in(client, host):
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example",
                                  "localhost.evil.example", "192.168.1.5:8765", "",
                                  "[::1", "0.0.0.0:8765", "user@evil.example"])
def test_a_name_that_someone_else_points_here_is_refused(client, host):
    answer = client.get("/", headers={"host": host})
    assert answer.status_code == 403
    assert "fedavg" not in answer.text


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:3000", "http://127.0.0.1:8766", "null",
                                    "http://127.0.0.1:8765.evil.example"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_origins_are_refused(client, origin, method):
    assert client.request(method, "/", headers={"origin": origin}).status_code == 403


def test_the_own_origin_is_let_in(client):
    assert client.get("/", headers={"origin": ADDRESS, "sec-fetch-site": "same-origin"}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "something-new"])
def test_pictures_scripts_and_frames_on_other_sites_are_refused(client, site):
    asked = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    assert client.get("/run/trees", headers=asked).status_code == 403
    framed = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
    assert client.get("/run/trees", headers=framed).status_code == 403


def test_a_link_on_another_site_leads_to_a_page_but_sends_no_form(client):
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/run/trees", headers=followed).status_code == 200
    assert client.post("/stop/trees", headers=followed).status_code == 403


@pytest.mark.parametrize("form", [{}, {"form_token": ""}, {"form_token": "guessed"}])
@pytest.mark.parametrize("address", ["/start", "/stop/trees", "/resume/trees"])
def test_a_form_without_the_token_of_this_process_changes_nothing(client, address, form, runs):
    before = sorted(path.name for path in runs.iterdir())
    assert client.post(address, data=form).status_code == 403
    assert sorted(path.name for path in runs.iterdir()) == before


@pytest.mark.parametrize("address", ["/start", "/stop/trees", "/resume/trees"])
def test_reading_an_address_that_changes_things_is_no_way_to_change_them(client, address):
    assert client.get(address).status_code == 405


def test_an_endless_form_is_cut_off(client):
    assert client.post("/start", content=b"a=" + b"b" * (1 << 21)).status_code == 413


def test_a_damaged_form_is_refused(client):
    assert client.post("/start", content=b"\xff\xfe").status_code == 400


@pytest.mark.parametrize("address", ["/", "/run/trees", "/new", "/nowhere", "/static/style.css"])
def test_only_own_scripts_may_run_and_nobody_may_frame_it(client, address):
    headers = client.get(address).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("address", ["/", "/run/trees", "/new", "/compare?run=fedavg-0", "/partition", "/tree/trees"])
def test_no_page_asks_anybody_else_for_anything(client, address):
    text = client.get(address).text
    assert "//" not in text.replace("http://www.w3.org/2000/svg", "")
    assert " style=" not in text
    assert "onclick" not in text


def test_every_value_from_a_run_is_escaped(client, runs):
    (runs / "trees" / "summary.json").write_text('{"metrics": {}, "name": "<script>alert(1)</script>", "seed": 0, '
                                                 '"algorithm": "\\"><b>", "data": "</script>", "rounds": 1}')
    for address in ("/", "/run/trees", "/compare?run=trees"):
        text = client.get(address).text
        assert "<script>alert" not in text
        assert '"><b>' not in text


def test_other_machines_need_a_token(runs):
    with pytest.raises(ConfigError, match="needs a token"):
        Settings(runs, host="0.0.0.0", token="")


@pytest.fixture
def guarded(runs):
    return client_of(Settings(runs, host="0.0.0.0", token=TOKEN, host_names=("lab.example",)), identified=False,
                     follow_redirects=False)


@pytest.mark.parametrize("asked", [{}, {"params": {"token": "wrong"}}, {"headers": {"authorization": "Bearer wrong"}},
                                   {"headers": {"cookie": "tequio-8765=wrong"}}, {"params": {"token": ""}}])
def test_without_the_token_nothing_is_shown(guarded, asked):
    for address in ("/", "/run/trees", "/static/style.css", "/events/trees"):
        answer = guarded.get(address, **asked)
        assert answer.status_code == 401
        assert TOKEN not in answer.text


def test_the_token_becomes_a_cookie_and_leaves_the_address(guarded):
    answer = guarded.get("/run/trees", params={"token": TOKEN, "a": "b"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/run/trees?a=b"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert guarded.get("/run/trees").status_code == 200


def test_a_token_cannot_send_the_browser_to_another_host(guarded):
    answer = guarded.get(f"{ADDRESS}//evil.example/", params={"token": TOKEN})
    assert answer.headers["location"].startswith("/evil.example")


def test_programs_may_bring_the_token_in_a_header(guarded):
    assert guarded.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize(("host", "status"), [("lab.example:8765", 200), ("10.1.2.3:8765", 200), ("localhost", 200),
                                              ("evil.example", 403)])
def test_addresses_and_told_names_are_let_in_where_others_can_connect(guarded, host, status):
    answer = guarded.get("/", headers={"host": host, "authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == status


def test_the_address_to_open_holds_the_token(runs):
    assert Settings(runs, host="0.0.0.0", token=TOKEN).address == f"http://0.0.0.0:8765/?token={TOKEN}"
    assert Settings(runs, host="::1", token=TOKEN).address == f"http://[::1]:8765/?token={TOKEN}"


def test_secrets_differ_from_process_to_process(runs):
    assert Settings(runs).form_token != Settings(runs).form_token
    assert len(form_token(client_of(Settings(runs)))) > 20
