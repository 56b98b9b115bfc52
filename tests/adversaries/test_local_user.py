"""Another user of this machine (spec 005, section 7): can connect to loopback ports and read what is not protected."""

from __future__ import annotations

import json
import re
import socket
import stat

import pytest
from starlette.testclient import TestClient

from engines.network.fleet import enrol, make_coordinator
from tequio.engines.network.control import Control
from tequio.experiments.config.complete import complete, resolved
from tequio.views.web.app import make_app
from tequio.views.web.guard import Settings
from tequio.views.web.submission import VALUES_FIELD, read_submission

ADDRESS = "http://127.0.0.1:8765"


def dashboard(folder, **options):
    return TestClient(make_app(Settings(folder, **options)), base_url=ADDRESS, follow_redirects=False)


@pytest.mark.parametrize("path", ["/", "/new", "/run/a", "/models", "/static/style.css", "/run/a/stream", "/nowhere"])
def test_a_dashboard_shows_nothing_to_who_has_not_opened_its_link(tmp_path, path):
    """Section 7: "the dashboard lets any local user start a run"."""
    client = dashboard(tmp_path)
    for headers in ({}, {"authorization": "Bearer "}, {"cookie": "tequio-8765="}, {"authorization": "Bearer guessed"}):
        assert client.get(path, headers=headers).status_code == 401
        assert client.post(path, headers=headers, data={"form_token": ""}).status_code == 401


def test_another_user_starts_no_run(tmp_path):
    client = dashboard(tmp_path / "runs")
    form = {"form_token": client.app.state.dashboard.settings.form_token, "name": "theirs"}
    assert client.post("/start", data=form).status_code == 401
    assert not (tmp_path / "runs").exists()


def test_the_printed_link_logs_a_browser_in(tmp_path):
    client = dashboard(tmp_path)
    link = client.app.state.dashboard.settings.address
    answer = client.get(link)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/").status_code == 200
    assert Settings(tmp_path).token != Settings(tmp_path).token


@pytest.mark.parametrize("typed", [
    {"data.partition.name": "custom", "data.partition.function": "os:system"},
    {"learner.name": "torch", "learner.module": "os:system"}, {"plugins": "/tmp/theirs.py"},
    {"further": 'plugins = ["theirs"]'}, {"further": '[algorithm.filter]\nname = "custom"\nfunction = "os:system"'},
    {"further": '[[stages]]\nname = "clip"\nnorm = "os:system"'}, {"further": '[overrides.0]\nlearner = "theirs.py"'},
    {"algorithm.name": "icdta4fl", "learner.name": "cart",
     "algorithm.filter": '{name = "custom", function = "os:system"}'},
    {VALUES_FIELD: '"learner.module" = ["os:system"]'}, {VALUES_FIELD: 'data = [{path = "theirs.py"}]'},
])
def test_a_form_takes_no_name_of_code(typed):
    """Section 7: "start a run with an importable function (... no such field in forms)"."""
    found = read_submission(typed)
    assert found.config is None
    assert not found.sweep
    assert any("a form cannot do" in message or "cannot be set here" in message for message in found.errors.values())
    assert not any(one.key.rpartition(".")[2] in ("function", "module", "plugins")
                   for section in found.sections for one in section.fields)


def test_looking_at_a_run_imports_nothing(tmp_path):
    """A folder of runs may hold one that someone else has put there."""
    from tequio.experiments.config.toml import write_toml

    given = resolved(complete({"plugins": []}))
    given["data"] = {**given["data"], "name": "iris", "partition": {"name": "custom", "function": "theirs:deal"}}
    folder = tmp_path / "runs" / "planted"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(write_toml(given))
    (folder / "model.json").write_text("{}")
    client = dashboard(tmp_path / "runs")
    client.get(client.app.state.dashboard.settings.address)
    for page in ("/tree/planted", "/partition?run=planted"):
        answer = client.get(page)
        assert answer.status_code in (400, 422)
        assert re.search("code to import|imports code that its settings name", answer.text)


@pytest.mark.parametrize("line", [b"", b"nonsense", b"[]", b"{}", b'{"ask": "status"}',
                                  b'{"ask": "status", "secret": "guessed"}', b'{"ask": "status", "secret": null}'])
def test_the_control_port_answers_nothing_without_the_secret_of_the_folder(tmp_path, line):
    control = Control(tmp_path, {"status": lambda _: {"folder": str(tmp_path)}})
    control.start()
    try:
        running = json.loads((tmp_path / "control.json").read_bytes())
        with socket.create_connection(("127.0.0.1", running["port"]), timeout=20) as connection:
            connection.sendall(line + b"\n")
            assert json.loads(connection.makefile("rb").readline()) == {"error": "the secret is wrong"}
    finally:
        control.stop()


def test_what_goes_wrong_behind_the_control_port_is_named_without_its_text(tmp_path):
    def broken(_):
        raise OSError(2, "no such file", "/home/patients-of-dr-smith/a.csv")

    control = Control(tmp_path, {"status": broken})
    control.start()
    try:
        secret = json.loads((tmp_path / "control.json").read_bytes())["secret"]
        answer = control.answer(json.dumps({"ask": "status", "secret": secret}).encode())
    finally:
        control.stop()
    assert answer["error"] == "FileNotFoundError"
    assert "smith" not in str(answer)


def test_keys_tokens_and_records_are_their_owners_alone(tmp_path):
    home = make_coordinator(tmp_path / "coordinator")
    home.new_token("east")
    enrol(home, tmp_path / "north", "north", {})
    for path in home.folder.rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
