"""What a party keeps of runs that are over goes when its owner says so; of runs that go on, nothing does."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

from tequio.cli.main import make_app
from tequio.engines.network.homes import PartyHome
from tequio.engines.network.journal import Journal, Record, clean, kept_runs

NOW, DAY = 1_700_000_000.0, 86_400.0


def record(position, base=0):
    return Record(position, base, f"digest {position}", {"own": {"weights": [1.0] * 100}}, b"reply", 0.1)


@pytest.fixture
def home(tmp_path):
    """A party that took part in three runs: one ended 40 days ago, one 3 days ago, and one has not."""
    home = PartyHome.create(tmp_path / "north", "north", {"address": "localhost:1", "data": {}})
    for folder in ("approvals", "announced"):
        (home.folder / folder).mkdir()
    for run, days in (("old", 40), ("new", 3), ("going", None)):
        journal = Journal(home.run(run))
        journal.add(record(1))
        journal.add(record(2, base=1))
        (home.folder / "approvals" / f"{run}.json").write_text('{"decision": "approved"}')
        (home.folder / "announced" / run).write_text("hash")
        if days is not None:
            journal.end()
            os.utime(home.run(run) / "over", (NOW - days * DAY, NOW - days * DAY))
    return home


def left(home):
    return {place: sorted(path.stem for path in (home.folder / place).iterdir())
            for place in ("runs", "approvals", "announced")}


def everywhere(*runs):
    return {place: list(runs) for place in ("runs", "approvals", "announced")}


def test_runs_that_ended_long_ago_go_with_their_approvals(home):
    before = sum(path.stat().st_size for path in home.folder.rglob("*") if path.is_file())
    old, kept = clean(home, 30, NOW)
    after = sum(path.stat().st_size for path in home.folder.rglob("*") if path.is_file())
    assert [run.run for run in old] == ["old"]
    assert old[0].bytes == before - after > 0
    assert [(run.run, run.days) for run in kept] == [("going", None), ("new", 3.0)]
    assert left(home) == everywhere("going", "new")


def test_a_run_that_goes_on_is_never_touched(home):
    clean(home, 0, NOW)
    assert left(home) == everywhere("going")
    assert Journal(home.run("going")).state(2) == record(2).state
    assert Journal(home.run("going")).find(2, 1, "digest 2") is not None


def test_what_was_asked_and_did_no_work_goes_after_a_while(home):
    for run, days in (("asked long ago", 31), ("asked lately", 29)):
        path = home.folder / "approvals" / f"{run}.json"
        path.write_text('{"decision": ""}')
        os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    assert [run.run for run in clean(home, 30, NOW)[0]] == ["asked long ago", "old"]
    assert left(home)["approvals"] == ["asked lately", "going", "new"]


def test_a_run_that_is_resumed_is_no_longer_over(home):
    journal = Journal(home.run("old"))
    assert journal.last_state() == record(2).state
    journal.add(record(3, base=2))
    assert [run.days for run in kept_runs(home, NOW) if run.run == "old"] == [None]
    clean(home, 0, NOW)
    assert "old" in left(home)["runs"]
    journal.end()
    assert Journal(home.run("old")).last_state() == record(3).state


def test_the_command_lists_what_it_deletes_and_what_it_frees(home):
    def typed(*words):
        done = CliRunner().invoke(make_app(), ["party", "clean", "--home", str(home.folder), *words],
                                  catch_exceptions=False)
        assert done.exit_code == 0
        return done.stdout

    os.utime(home.run("new") / "over")  # just now, by the clock of the command
    said = typed("--dry-run")
    assert "Would free" in said
    assert left(home) == everywhere("going", "new", "old")
    assert json.loads(typed("--older-than", "1", "--dry-run", "--json"))["old"] == ["old"]
    said = typed()
    assert "old: over for" in said
    assert "Freed" in said
    assert "Not over, and left as they are: going" in said
    assert left(home) == everywhere("going", "new")
    found = json.loads(typed("--older-than", "0", "--json"))
    assert (found["deleted"], found["not_over"]) == (["new"], ["going"])
