"""The list of runs tells every state that a folder can be in, and reads again only what changed."""

import json
import os

import pytest

from tequio.experiments.running.recording import Journal
from tequio.experiments.running.store import EVENTS
from tequio.views.web import index as index_module
from tequio.views.web.guard import Settings
from tequio.views.web.index import CORRUPT, FAILED, FINISHED, RUNNING, STOPPED, Index, Writers

from .conftest import client_of, many_runs


def by_id(folder):
    return {entry.id: entry for entry in Index(folder).entries()}


def test_a_finished_run_shows_its_headline(runs):
    entry = by_id(runs)["fedavgm-2"]
    summary = json.loads((runs / "fedavgm-2" / "summary.json").read_text())
    assert (entry.status, entry.name, entry.algorithm, entry.data, entry.seed, entry.round) == \
        (FINISHED, "fedavgm", "fedavgm", "iris", 2, 3)
    assert (entry.metric, entry.value) == ("test.accuracy", summary["metrics"]["test.accuracy"])


def test_a_run_without_a_summary_was_stopped_in_the_round_that_it_recorded_last(runs):
    (runs / "fedavg-0" / "summary.json").unlink()
    lines = (runs / "fedavg-0" / EVENTS).read_text().splitlines(keepends=True)
    second = next(number for number, line in enumerate(lines) if '"event": "round"' in line and '"round": 2' in line)
    (runs / "fedavg-0" / EVENTS).write_text("".join(lines[:second + 1]) + '{"event": "round", "rou')
    entry = by_id(runs)["fedavg-0"]
    assert (entry.status, entry.round, entry.rounds) == (STOPPED, 2, 3)
    assert entry.value is not None


@pytest.mark.parametrize(("kind", "status"), [("PartyError", FAILED), ("KeyboardInterrupt", STOPPED)])
def test_an_error_at_the_end_is_told_unless_someone_pressed_a_key(runs, kind, status):
    (runs / "fedavg-0" / "summary.json").unlink()
    with (runs / "fedavg-0" / EVENTS).open("a") as file:
        file.write(json.dumps({"event": "error", "kind": kind, "message": "party 3 ran out of rows"}) + "\n")
    entry = by_id(runs)["fedavg-0"]
    assert entry.status == status
    assert ("ran out of rows" in entry.trouble) == (status == FAILED)


def test_a_run_that_never_began_shows_what_its_process_said(runs):
    for name in ("summary.json", EVENTS, "checkpoint", "metrics.csv"):
        (runs / "fedavg-0" / name).unlink()
    (runs / "fedavg-0" / "dashboard.log").write_text("the column 'age' is not there")
    entry = by_id(runs)["fedavg-0"]
    assert (entry.status, entry.trouble) == (FAILED, "the column 'age' is not there")


DAMAGE = {
    "summary.json": [b"", b"{", b"[]", b"null", b'{"metrics": 3}', b'{"metrics": {}}', b"\xff\xfe\x00", b"\0" * 100],
    "config.toml": [b"", b"name = ", b"\xff\xfe", b"name = 3", b"algorithm = 5\nname = 'a'\n[data]"],
}


@pytest.mark.parametrize(("file", "content"), [(file, content) for file, some in DAMAGE.items() for content in some])
def test_a_damaged_file_makes_a_corrupt_run_and_no_crash(runs, client, file, content):
    if file == "config.toml":
        (runs / "trees" / "summary.json").unlink()
    (runs / "trees" / file).write_bytes(content)
    entry = by_id(runs)["trees"]
    assert entry.status == CORRUPT
    assert entry.trouble
    shown = client.get("/")
    assert shown.status_code == 200
    assert "corrupt" in shown.text
    assert "fedavg-1" in shown.text
    assert client.get("/run/trees").status_code == 200
    assert client.get("/compare?run=trees&run=fedavg-0").status_code == 200
    for address in ("/tree/trees", "/drawing/trees", "/new?like=trees", "/partition?run=trees"):
        assert client.get(address).status_code < 500


@pytest.mark.parametrize("file", ["metrics.csv", "parties.csv", "participation.csv", EVENTS, "checkpoint",
                                  "model.json"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"a,b\n1\n2,3,4\n",
                                     b'{"event": 3}\n[]\nnull\n{"event": "round"}\n'])
def test_damage_to_the_other_files_costs_only_what_they_hold(runs, client, file, content):
    (runs / "trees" / file).write_bytes(content)
    for address in ("/", "/run/trees", "/compare?run=trees", "/tree/trees", "/tree/trees?row=0", "/events/trees"):
        assert client.get(address).status_code < 500


def test_a_run_folder_without_a_config_is_corrupt_and_a_folder_without_any_file_is_no_run(runs):
    (runs / "fedavg-1" / "config.toml").unlink()
    (runs / "empty").mkdir()
    (runs / "notes").mkdir()
    (runs / "notes" / "ideas.txt").write_text("more rounds")
    found = by_id(runs)
    assert found["fedavg-1"].status == CORRUPT
    assert not {"empty", "notes"} & set(found)


def test_cells_of_a_sweep_are_runs(runs):
    (runs / "flowers-sweep").mkdir()
    os.rename(runs / "fedavg-1", runs / "flowers-sweep" / "epochs=1-seed=1")
    assert by_id(runs)["flowers-sweep/epochs=1-seed=1"].status == FINISHED


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="the kernel tells nobody who holds which lock")
@pytest.mark.parametrize("place", ["", "baselines/alone"])
def test_a_run_whose_events_are_being_written_is_running(runs, place):
    journal = Journal(runs / "trees" / place / EVENTS)
    try:
        assert by_id(runs)["trees"].status == RUNNING
        assert Writers().process(runs / "trees") == os.getpid()
        assert by_id(runs)["fedavg-0"].status == FINISHED
    finally:
        journal.close()
    assert by_id(runs)["trees"].status == FINISHED


def test_looking_takes_no_lock_that_a_starting_run_could_stumble_over(runs):
    journals = []
    for _ in range(3):
        by_id(runs)
        journals.append(Journal(runs / "trees" / EVENTS))
        journals.pop().close()


def test_without_a_list_of_locks_a_file_that_grew_just_now_counts_as_running(runs, tmp_path):
    writers = Writers(tmp_path / "no such list")
    for path in runs.rglob(EVENTS):
        os.utime(path, (0, 0))
    assert writers.is_written(runs / "trees") is False
    (runs / "trees" / EVENTS).touch()
    assert writers.is_written(runs / "trees")
    assert writers.process(runs / "trees") == 0


def test_only_what_changed_is_read_again(runs, monkeypatch):
    read = []
    original = index_module.read_entry
    monkeypatch.setattr(index_module, "read_entry", lambda run, folder: read.append(run) or original(run, folder))
    index = Index(runs)
    first = index.entries()
    assert len(read) == 7
    assert index.entries() == first
    assert len(read) == 7
    summary = runs / "fedavg-2" / "summary.json"
    summary.write_text(summary.read_text().replace('"rounds": 3', '"rounds": 4'))
    assert {entry.id: entry.round for entry in index.entries()}["fedavg-2"] == 4
    assert read[7:] == ["fedavg-2"]


def test_a_thousand_runs_are_listed_page_by_page(made, tmp_path):
    client = client_of(Settings(many_runs(tmp_path / "runs", made["fedavg-0"], 1000)))
    first, last = client.get("/"), client.get("/?page=10")
    assert "1,000 runs" in first.text
    assert first.text.count('<th scope="row">') == last.text.count('<th scope="row">') == 100
    assert "Page 10 of 10" in last.text
    one = client.get("/?name=run+0417")
    assert "1 of 1,000 runs" in one.text
    assert "run-0417" in one.text


@pytest.mark.parametrize(("query", "expected"), [
    ("", 7), ("algorithm=fedavgm", 3), ("data=iris&status=finished", 7), ("name=FEDAVGM", 3), ("name=fed+-1", 2),
    ("status=corrupt", 0), ("algorithm=nothing", 0), ("page=99&algorithm=fedavg", 3), ("page=-1", 7), ("page=x", 7)])
def test_filters_keep_what_is_asked_for(client, query, expected):
    assert client.get(f"/?{query}").text.count('name="run"') == expected


def test_a_folder_that_does_not_exist_yet_is_empty(tmp_path):
    client = client_of(Settings(tmp_path / "none"))
    assert "There is no run" in client.get("/").text
