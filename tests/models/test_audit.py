"""The log of what was done: whole or refused, whatever is changed; a step happened or it did not."""

from __future__ import annotations

import json

import pytest

from tequio.cli.main import call
from tequio.errors import ConfigError, RunError
from tequio.models.audit import FILE, Audit, locked


@pytest.fixture
def log(tmp_path):
    log = Audit(tmp_path / FILE)
    for number in range(1, 5):
        log.add("share", {"production": number}, version=number, why=f"step {number}")
    return log


def test_steps_are_chained_and_the_last_one_is_the_state(log):
    entries = log.entries()
    assert [entry["number"] for entry in entries] == [1, 2, 3, 4]
    assert [entry["before"] for entry in entries[1:]] == [entry["sha256"] for entry in entries[:-1]]
    assert log.state() == {"production": 4}


@pytest.mark.parametrize("change", [
    lambda lines: [lines[0].replace(b"step 1", b"step 9"), *lines[1:]],
    lambda lines: [lines[0], *lines[2:]], lambda lines: lines[1:],
    lambda lines: [lines[1], lines[0], *lines[2:]], lambda lines: [lines[0], *lines],
    lambda lines: [*lines[:2], b"{}", *lines[2:]],
])
def test_a_line_that_is_changed_taken_out_or_put_in_is_noticed(log, change):
    lines = log.path.read_bytes().splitlines()
    log.path.write_bytes(b"\n".join(change(lines)) + b"\n")
    with pytest.raises(RunError, match="is not what was written"):
        log.entries()


def test_a_line_that_broke_off_is_a_step_that_never_happened(log):
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + b'{"number": 5, "state": {"produ')
    assert log.state() == {"production": 4}
    log.add("share", {"production": 7}, version=7)
    assert [entry["version"] for entry in log.entries()] == [1, 2, 3, 4, 7]
    assert log.path.read_bytes().startswith(whole)


def test_a_state_that_was_put_there_by_hand_is_refused(log):
    line = json.loads(log.path.read_bytes().splitlines()[-1])
    line["state"] = {"production": 9}
    log.path.write_text("\n".join([*log.path.read_text().splitlines()[:-1], json.dumps(line)]) + "\n")
    with pytest.raises(RunError, match="last line"):
        log.state()


def test_one_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("tequio.models.audit._WAIT_SECONDS", 0.05)
    with locked(tmp_path), pytest.raises(RunError, match="another process"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_the_command_shows_and_checks_it(in_trial, capsys):
    folder = ["--folder", str(in_trial.parent)]
    assert call(["models", "audit", "risk", *folder, "--json"]) == 0
    head = json.loads(capsys.readouterr().out)[-1]["sha256"]
    in_trial.split(0.2)
    assert call(["models", "audit", "risk", *folder, "--head", head]) == 0
    shown = capsys.readouterr().out
    assert "Nothing was changed. 4 steps" in shown
    assert max(map(len, shown.splitlines())) <= 80
    lines = (in_trial.folder / FILE).read_bytes().splitlines(keepends=True)
    (in_trial.folder / FILE).write_bytes(b"".join(lines[:2]))  # the end cut off: only a kept hash notices
    assert call(["models", "audit", "risk", *folder]) == 0
    assert "0002 is in no step" in " ".join(capsys.readouterr().out.split())
    assert call(["models", "audit", "risk", *folder, "--head", head]) == 8
    assert call(["models", "audit", "nobody", *folder]) == 2


def test_a_trial_is_not_ended_by_adding_another_version(in_trial, two_runs):
    in_trial.split(0.1)
    with pytest.raises(ConfigError, match=r"version 2 is on trial with 10% of the ids"):
        in_trial.add(two_runs[0].folder)
    assert len(in_trial.versions()) == 2


def test_a_version_whose_adding_broke_off_is_none(in_trial, two_runs, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Audit, "add", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            in_trial.add(two_runs[0].folder)
    assert [one.number for one in in_trial.versions()] == [1, 2]
    assert [path.name for path in in_trial.strays()] == ["0003"]
    assert in_trial.add(two_runs[0].folder).number == 4


def test_a_model_that_names_files_elsewhere_is_not_copied(in_trial, two_runs, tmp_path):
    import hashlib
    import shutil

    from tequio.models import folder

    handed = tmp_path / "handed"
    shutil.copytree(two_runs[0].folder / "model", handed)
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    document = json.loads((handed / "model.json").read_bytes())
    document.pop("sha256")
    document["files"]["../secret"] = hashlib.sha256(b"x").hexdigest()
    (handed / "model.json").write_bytes(folder._json({"sha256": folder._seal(document), **document}))
    with pytest.raises(RunError, match="files outside its folder"):
        in_trial.add(handed)


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", ""])
def test_names_that_lead_elsewhere_are_refused(tmp_path, name):
    from tequio.models.registry import ModelRegistry

    with pytest.raises(ConfigError, match="cannot be called"):
        ModelRegistry(tmp_path, name)
