"""Names that would be paths, links that lead elsewhere, and what others may read of a party's folder (spec 005, 7)."""

from __future__ import annotations

import json
import os
import stat

import pytest

from adversaries.hostile import LOGISTIC, Coordinator, Refused, stage, table, training
from tequio.engines.network.approving import asked as asked_of
from tequio.engines.network.approving import decide, note_shown
from tequio.engines.network.enrolment import Request, grant
from tequio.engines.network.files import private_folder, write_private
from tequio.engines.network.homes import CoordinatorHome
from tequio.engines.network.people import People
from tequio.engines.network.wire import Ready, Waiting
from tequio.errors import ConfigError, PermissionDenied
from tequio.gate.policy import Budget, Policy

PATHS = ("..", ".", "../../elsewhere", "/etc/passwd", "a/b", "a\\b", "a\0b", "..\\..\\x", "~", "~root/x", ".hidden", "",
         "C:x", "a\n", " a", "a" * 300, "n\u043erth", "runs/../../x", "%2e%2e%2fx", "$HOME", "-rf", "con:", "a/")
NOISE = stage("local-dp", clip=1.0, noise=20.0)


@pytest.fixture(autouse=True)
def _state(monkeypatch, tmp_path):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setenv("TEQUIO_STATE", str(tmp_path / "state"))


def party(tmp_path, **policy):
    return Coordinator(tmp_path / "south", Policy(**policy), table())


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", PATHS)
def test_no_name_of_a_coordinator_leads_out_of_the_partys_folder(tmp_path, name):
    south = party(tmp_path, approval="run")
    south.announce(run="first")
    before = everything(tmp_path)
    said = [south.announce(run=name), south.announce(roster=["north", "south", name])]
    assert all(isinstance(one, Refused) for one in said)
    south.site.end(name)
    assert isinstance(south.announce(predicts=name) if name else said[0], Refused)
    assert set(everything(tmp_path)) - set(before) == {"south/audit.jsonl"}
    assert all(str(tmp_path) not in one.cause + one.remedy for one in said)


@pytest.mark.parametrize("name", PATHS)
def test_no_name_of_a_party_or_a_person_leads_out_of_the_coordinators_folder(tmp_path, name):
    home = CoordinatorHome.create(tmp_path / "coordinator", "test", "localhost", 1, 2)
    before = everything(tmp_path)
    with pytest.raises((ConfigError, PermissionDenied)):
        grant(home, Request(name, b"secret", "north", b""))
    with pytest.raises((ConfigError, PermissionDenied)):
        grant(home, Request("token", b"secret", name, b""))
    for use in (home.revoke, home.party, *([home.new_token] if name else [])):  # a token without a name is for anyone
        with pytest.raises(ConfigError):
            use(name)
    with pytest.raises((ConfigError, PermissionDenied)):
        People(home.folder / "people").add(name, "owner", 1, "operator")
    with pytest.raises(PermissionDenied):
        People(home.folder / "people").identify(name, "secret")
    with pytest.raises(PermissionDenied):
        home.admit(name, b"")
    assert set(everything(tmp_path)) - set(before) <= {"coordinator/parties", "coordinator/people"}


def test_a_link_in_the_folder_is_replaced_and_not_written_through(tmp_path):
    """Where somebody could put a link once, nothing of what it leads to is changed."""
    target = tmp_path / "of others"
    target.write_text("theirs")
    south = party(tmp_path, approval="run")
    approvals = private_folder(south.folder / "approvals")
    for link in (approvals / "run-1.json.link", south.folder / "shown.json", south.folder / "split.json"):
        link.symlink_to(target)
        write_private(link, b"{}")
        assert not link.is_symlink()
    assert target.read_text() == "theirs"


def test_nobody_else_reads_what_a_party_keeps(tmp_path):
    """With the widest umask, everything that a party writes in a run that a person approves is its owner's alone."""
    before = os.umask(0)
    try:
        south = party(tmp_path, approval="run", budget=Budget(4.0, 1e-5), tell_rows="hundreds")
        facts = {"stages": [{"name": "local-dp", "clip": 1.0, "noise": 20.0}],
                 "components": [LOGISTIC, training(), NOISE]}
        assert isinstance(south.announce(**facts), Waiting)
        home = south.site._home
        waiting = asked_of(home)["run-1"]
        note_shown(home, [waiting])
        decide(home, "run-1", approved=True, shown=waiting.hash, by="olga")
        assert isinstance(south.announce(**facts), Ready)
        assert not isinstance(south.train(stages=[NOISE]), Refused)
        south.site.end("run-1")
    finally:
        os.umask(before)
    made = [path for top in (south.folder, tmp_path / "state") for path in top.rglob("*")]
    names = {path.name for path in made}
    assert {"audit.jsonl", "decisions.jsonl", "deciding.lock", "shown.json", "split.json", "over", "ledgers",
            "run-1.json", "tables.json"} <= names
    # The key to random numbers is made by the tests' coordinator.
    assert [str(path) for path in made if path.name != "randomness" and stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    assert json.loads((south.folder / "approvals" / "run-1.json").read_bytes())["decision"] == "approved"
