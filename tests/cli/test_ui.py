import socket
import sys

import pytest


@pytest.fixture
def served(monkeypatch):
    """What would be served, without serving it."""
    import uvicorn

    found = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: (found.append(
        (server.config.app.state.dashboard.settings, sockets[0].getsockname())), sockets[0].close()))
    return found


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_only_this_machine_can_connect_by_default(tequio, served, tmp_path):
    port = free_port()
    code, out, err = tequio("ui", tmp_path, "--port", port)
    (settings, bound), = served
    assert (code, err) == (0, "")
    assert bound == ("127.0.0.1", port)
    assert settings.folder == tmp_path
    assert f"http://127.0.0.1:{port}/?token={settings.token}" in out
    assert len(settings.token) >= 32


def test_each_dashboard_has_a_new_token(tequio, served, tmp_path):
    for _ in range(2):
        code, out, err = tequio("ui", tmp_path, "--port", free_port(), "--host", "0.0.0.0", "--host-name", "lab")
        assert code == 0
        assert f"?token={served[-1][0].token}" in out
        assert "not encrypted" in err
    first, second = (settings.token for settings, _ in served)
    assert first != second
    assert len(first) >= 32
    assert served[0][0].host_names == ("lab",)


def test_a_port_that_is_taken_is_told(tequio, served, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = tequio("ui", tmp_path, "--port", taken.getsockname()[1])
    assert code == 2
    assert "cannot be listened on" in err
    assert served == []


def test_a_file_is_no_folder_of_runs(tequio, served, tmp_path):
    (tmp_path / "notes.txt").write_text("")
    code, _, err = tequio("ui", tmp_path / "notes.txt")
    assert code == 2
    assert "is not a folder" in " ".join(err.replace("│", " ").split())


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "jinja2"])
def test_a_missing_package_is_told_with_what_to_install(tequio, served, monkeypatch, package):
    for name in [name for name in sys.modules if name.startswith("tequio.views.web")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = tequio("ui")
    assert code == 10
    assert "tequio[ui]" in err
    assert package in err
