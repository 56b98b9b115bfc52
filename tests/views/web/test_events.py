"""The live view sends on what a run writes, whole lines only, and begins where the browser left off."""

import asyncio
import json

import pytest

from tequio.experiments.running.store import EVENTS
from tequio.views.web.pages import run as live
from tequio.views.web.reading import last_facts, read_batch, thinned


def line(kind, **facts):
    return json.dumps({"event": kind, "time": "2026-01-01T00:00:00", **facts}) + "\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / EVENTS
    path.write_text(line("start", rounds=3) + line("selection", round=1, parties=[0, 2])
                    + line("round", round=1, **{"test.accuracy": 0.5, "note": "text", "train.loss": None})
                    + line("selection", round=2, parties=[2]) + line("warning", message="few rows")
                    + line("failure", party="7", task="train", cause="no memory"))
    return path


def test_a_batch_holds_rounds_choices_and_words(path):
    batch = read_batch(path, 0)
    assert batch.rounds == [{"round": 1, "test.accuracy": 0.5}]
    assert batch.chosen == {"0": 1, "2": 2}
    assert batch.notes == ["warning: few rows", "failure: party 7, task train, cause no memory"]
    assert batch.offset == path.stat().st_size


def test_a_line_that_is_not_whole_waits(path):
    before, torn = path.stat().st_size, line("round", round=2)
    with path.open("a") as file:
        file.write(torn[:10])
    first = read_batch(path, before)
    assert (first.rounds, first.offset) == ([], before)
    with path.open("a") as file:
        file.write(torn[10:])
    assert read_batch(path, first.offset).rounds == [{"round": 2}]


def test_a_file_that_became_shorter_says_so(path):
    assert read_batch(path, path.stat().st_size + 1).cut


def test_a_file_that_is_not_there_has_nothing_new(tmp_path):
    assert not read_batch(tmp_path / EVENTS, 0)
    assert not last_facts(tmp_path / EVENTS).begun


def test_the_end_of_a_long_file_is_enough(path):
    with path.open("a") as file:
        for number in range(2, 2000):
            file.write(line("round", round=number, padding="x" * 100))
    assert last_facts(path).round == 1999


@pytest.mark.parametrize("count", [0, 1, 399, 400, 401, 5000])
def test_long_curves_are_thinned_and_keep_their_end(count):
    rows = list(range(count))
    kept = thinned(rows)
    assert len(kept) <= 401
    assert kept[-1:] == rows[-1:]
    assert kept[:1] == rows[:1]


class Process:
    """A run that writes a line whenever someone looks whether it is alive, and ends when there are none left."""

    def __init__(self, path, lines):
        self.path, self.lines = path, lines

    def is_running(self, folder):
        if not self.lines:
            return False
        with self.path.open("a") as file:
            file.write(self.lines.pop(0))
        return True


def messages(folder, offset, processes):
    async def collect():
        return [message async for message in live._grown(folder, offset, processes)]

    found = []
    for text in asyncio.run(collect()):
        fields = dict(one.split(": ", 1) for one in text.strip().split("\n") if not one.startswith(":"))
        if fields:
            found.append((fields["event"], json.loads(fields["data"]), int(fields["id"])))
    return found


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(live, "PAUSE_SECONDS", 0)


def test_a_running_experiment_is_followed_to_its_last_line(path):
    start = path.stat().st_size
    found = messages(path.parent, start, Process(path, [line("round", round=number) for number in (2, 3)]))
    assert [row["round"] for kind, facts, _ in found if kind == "grown" for row in facts["rounds"]] == [2, 3]
    assert found[-1][0] == "over"
    assert found[-1][2] == path.stat().st_size


def test_a_run_that_goes_back_to_a_checkpoint_makes_the_page_load_again(path):
    found = messages(path.parent, path.stat().st_size + 5, Process(path, []))
    assert [kind for kind, _, _ in found] == ["reload"]


def test_the_stream_goes_on_where_the_browser_left_off(client, runs):
    whole = client.get("/events/fedavg-0").text
    assert client.get("/events/fedavg-0").headers["content-type"].startswith("text/event-stream")
    size = (runs / "fedavg-0" / EVENTS).stat().st_size
    rest = client.get("/events/fedavg-0", headers={"last-event-id": str(size)}).text
    assert '"round": 3' in whole
    assert '"round": 3' not in rest
    assert "event: over" in rest
    assert client.get("/events/fedavg-0?from=-5").text == whole
