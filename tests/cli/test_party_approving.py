"""`tequio party runs`, `approve` and `deny`: a person decides about what the terminal showed them."""

import json

import pytest

FACTS = {"algorithm": "fedavg", "learner": None, "stages": [], "rounds": 10, "parties": 3, "name": "tumours"}


@pytest.fixture
def home(tmp_path):
    (tmp_path / "approvals").mkdir()
    (tmp_path / "party.json").write_text(json.dumps({"name": "north", "address": "localhost:1", "data": {}}))
    announce(tmp_path)
    return tmp_path


def announce(home, **facts):
    (home / "approvals" / "run-1.json").write_text(json.dumps({"asked": {**FACTS, **facts}, "decision": ""}))


def test_runs_shows_what_is_asked_and_approve_decides_about_that(tequio, home):
    code, out, _ = tequio("party", "runs", "--home", home)
    assert code == 0
    assert "run-1: waits for approval" in out
    assert "rounds     10" in out
    assert tequio("party", "approve", "run-1", "--home", home, "--note", "as agreed")[0] == 0
    out = tequio("party", "runs", "run-1", "--home", home)[1]
    assert "run-1: approved" in out
    assert "note       as agreed" in out
    shown = json.loads(tequio("party", "runs", "--home", home, "--json")[1])["run-1"]
    assert (shown["asked"], shown["decision"], shown["note"]) == (FACTS, "approved", "as agreed")


def test_an_announcement_that_changed_after_it_was_shown_has_to_be_looked_at_again(tequio, home):
    tequio("party", "runs", "--home", home)
    announce(home, rounds=1000)
    code, _, err = tequio("party", "approve", "run-1", "--home", home)
    assert code == 5
    assert "it changed" in err
    assert "tequio party runs" in err
    assert '"decision": ""' in (home / "approvals" / "run-1.json").read_text()
    tequio("party", "runs", "--home", home)
    assert tequio("party", "approve", "run-1", "--home", home)[0] == 0


def test_what_nobody_looked_at_is_shown_with_the_decision(tequio, home):
    code, out, _ = tequio("party", "deny", "run-1", "--home", home)
    assert code == 0
    assert "algorithm  fedavg" in out
    assert "'run-1' is denied." in out


def test_a_run_cannot_steer_the_terminal(tequio, home):
    announce(home, name="\x1b[2J\x1b]0;approved\x07")
    out = tequio("party", "runs", "--home", home)[1]
    assert "\x1b" not in out
    assert "\\x1b[2J" in out


def test_the_page_is_on_this_machine_only_behind_a_new_token_each_time(tequio, home, monkeypatch):
    import uvicorn

    bound = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: (bound.append(sockets[0].getsockname()),
                                                                        sockets[0].close()))
    links = [tequio("party", "ui", "--home", home)[1].split()[7] for _ in range(2)]
    assert [host for host, _ in bound] == ["127.0.0.1"] * 2
    for link, (_, port) in zip(links, bound, strict=True):
        address, token = link.split("?token=")
        assert address == f"http://127.0.0.1:{port}/"
        assert len(token) >= 32
    assert links[0].split("token=")[1] != links[1].split("token=")[1]
