"""A coordinator that asks for deadly work (spec 005, section 2, attacks 9 and 10): each task may end itself only.

In 0.1 one SystemExit left a party connected and deaf, and a task that crashed or took all memory took the party along.
"""

from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from engines.network.fleet import enrol, make_coordinator
from tequio import registry
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Split
from tequio.engines.network.bounded import Bounded, InProcess
from tequio.engines.network.holding import OwnRows
from tequio.engines.network.site import Site, answer
from tequio.engines.network.telemetry import AuditLog, Telemetry, entries
from tequio.engines.network.wire import Ready, TaskFailed, TaskRequest, from_party
from tequio.federation import payload as payloads
from tequio.federation.exchange import Order
from tequio.federation.population import alone
from tequio.gate.policy import Policy
from tequio.registry import to_spec

PLUGIN = str(Path(__file__).with_name("deadly.py"))
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are those of Linux")


@pytest.fixture(scope="module")
def tasks():
    registry.load_plugins([PLUGIN])
    return sys.modules["tequio_plugin_deadly"]


def make_population():
    schema = Schema.of_numbers(["a"], Target("classes", ("no", "yes")))
    dataset = Dataset.of(schema, np.arange(10, dtype=np.float32)[:, None], np.arange(10) % 2)
    return alone(dataset, 0, "north", Split(0.0, 0.0), 3, {})


POPULATION = make_population()


@pytest.fixture(scope="module")
def runner(tasks, tmp_path_factory):
    runner = Bounded(tmp_path_factory.mktemp("party") / "workers", Telemetry(), gigabytes=0.5, seconds=20)
    yield runner
    runner.close()


def ask(runner, way="", *, run="run", states=None, task="deadly", stages=(), **settings):
    given = {"way": way, **settings} if task == "deadly" else {}
    order = Order(1, task, (0,), 1, {}, given, tuple(map(to_spec, stages)))
    return runner.run(run, order, POPULATION, {} if states is None else states)


def failure(outcome):
    assert outcome.replies == ()
    [failed] = outcome.failures
    return failed


def reply(outcome):
    assert outcome.failures == ()
    return outcome.replies[0].payload


def resident():
    """Bytes of this process's memory that lie nowhere else."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


ENDS = {
    "grow": "task 'deadly' used more than 0.5 GB of memory here",
    "grow in one step": "task 'deadly' used more than 0.5 GB of memory here",
    "grow in torch": "task 'deadly' used more than 0.5 GB of memory here",
    "grow where no limit counts": "task 'deadly' used more than 0.5 GB of memory here",
    "exit": "task 'deadly' ended the process that it ran in (code 0)",
    "crash": "task 'deadly' ended the process that it ran in (signal 11, Segmentation fault)",
    "close everything": "task 'deadly' ended the process that it ran in (",
    "raise interrupt": "task 'deadly' ended the process that it ran in (signal 2, Interrupt)",
    "exit politely": "SystemExit: 3",
    "recurse": "RecursionError: maximum recursion depth exceeded",
    "raise unreadable": "UnreadableError (it has no readable text)",
}


@pytest.mark.parametrize("way", ENDS)
def test_it_fails_alone_and_the_next_task_works(runner, way):
    """By what it did, in words that hold no value of a row; its state is as before, and so are other runs' workers."""
    other, before = reply(ask(runner, run="other"))["process"], resident()
    states = {0: {"calls": 4}}
    failed = failure(ask(runner, way, states=states))
    assert failed.cause.startswith(ENDS[way])
    if failed.cause.startswith("task"):
        assert failed.shared == (failed.cause, failed.remedy)
    assert states == {0: {"calls": 4}}
    assert reply(ask(runner, states=states))["calls"] == 5
    assert reply(ask(runner, run="other"))["process"] == other
    assert resident() - before < 20 << 20


@pytest.mark.parametrize("way", ["exit politely", "raise unreadable", "crash", "grow in one step"])
def test_the_reason_is_known_on_both_sides_and_the_run_goes_on(runner, way, tmp_path):
    """What the party's policy and the request say crosses; of an error in a task's own code only the kind does."""
    home, audit = enrol(make_coordinator(tmp_path / "coordinator"), tmp_path / "north", "north", {}), AuditLog(
        tmp_path / "audit.jsonl")
    site = Site(home, OwnRows("north", POPULATION.dataset), Policy(tasks=("deadly",)), Telemetry(audit), runner=runner)
    announced = {"index": 0, "parties": 3, "seed": 4, "split": {"validation": 0.0, "test": 0.0, "stratify": True},
                 "overrides": {}, "name": "run", "rounds": 10, "algorithm": "fedavg", "schema": site._holding.schema}
    assert isinstance(site.begin("both", payloads.encode(announced)), Ready)

    def asked(position, base, way=""):
        about = {"settings": {"way": way}, "stages": []}
        request = TaskRequest("both", position, base, 0, "digest", "deadly", 1, ((0, 0), (0, 0), (0, 0)))
        return [from_party(data) for data in answer(site, request, [payloads.encode(about), payloads.encode({}), b""])]

    asked(1, 0)
    [(failed, _)] = asked(2, 1, way)
    assert isinstance(failed, TaskFailed)
    assert failed.cause == (ENDS[way] if ENDS[way].startswith("task") else ENDS[way].split()[0].rstrip(":"))
    noted = [entry for entry in entries(tmp_path / "audit.jsonl") if entry["event"] == "task failed"]
    assert [entry["cause"] for entry in noted] == [ENDS[way]]
    _, content = asked(3, 1)[-1]
    assert payloads.decode(content)["calls"] == 2
    site.end("both")


@pytest.mark.parametrize("way", ["loop", "loop in C"])
def test_a_task_that_never_ends_is_ended(tasks, tmp_path, way):
    runner = Bounded(tmp_path, Telemetry(), gigabytes=0.5, seconds=1)
    failed = failure(ask(runner, way))
    assert failed.cause == "task 'deadly' took more than 1 s here"
    assert "maximum_task_seconds" in failed.remedy
    assert reply(ask(runner))["calls"] == 1
    runner.close()


@pytest.mark.parametrize(("where", "way", "cause"), [
    ("before", "exit politely", "SystemExit: 3"), ("after", "exit politely", "SystemExit: 3"),
    ("before", "raise unreadable", "UnreadableError (it has no readable text)"),
    ("after", "crash", "task 'deadly' ended the process that it ran in (signal 11, Segmentation fault)"),
    ("before", "grow in one step", "task 'deadly' used more than 0.5 GB of memory here")])
def test_a_stage_that_dies_fails_its_task(runner, tasks, where, way, cause):
    assert failure(ask(runner, stages=[tasks.DeadlyStage(**{where: way})])).cause == cause
    assert reply(ask(runner))["calls"] == 1


@pytest.mark.parametrize("way", ["exit politely", "recurse", "raise unreadable"])
def test_without_limits_what_can_be_caught_fails_one_task_too(tasks, way):
    states = {0: {"calls": 4}}
    failed = failure(ask(InProcess(), way, states=states))
    assert failed.cause.startswith(ENDS[way])
    assert failed.shared[0] == failed.cause.split()[0].rstrip(":")
    assert reply(ask(InProcess(), states=states))["calls"] == 5


def test_only_the_operators_own_interrupt_ends_a_party(tasks):
    with pytest.raises(KeyboardInterrupt):
        ask(InProcess(), "raise interrupt")
    found = []
    thread = threading.Thread(target=lambda: found.append(failure(ask(InProcess(), "raise interrupt")).cause))
    thread.start()
    thread.join()
    assert found == ["KeyboardInterrupt: "]


def test_a_worker_that_is_killed_from_outside_fails_one_task(runner, tmp_path):
    def kill(begun):
        os.kill(int(begun.read_text()), signal.SIGKILL)

    failed = failure(while_it_runs(runner, tmp_path, kill))
    assert failed.cause == "task 'deadly' ended the process that it ran in (signal 9, Killed)"
    assert reply(ask(runner))["calls"] == 1


def test_a_run_that_ends_takes_its_task_with_it(runner, tmp_path):
    other = reply(ask(runner, run="other"))["process"]
    ended = []

    def close(begun):
        ended.append(os.pidfd_open(int(begun.read_text())))
        runner.close("run")

    assert "signal 9" in failure(while_it_runs(runner, tmp_path, close)).cause
    assert is_over(ended[0])
    assert reply(ask(runner, run="other"))["process"] == other


def while_it_runs(runner, folder, do):
    """Do something while a task is in an endless loop."""
    begun = folder / "begun"
    os.mkfifo(begun)
    thread = threading.Thread(target=do, args=[begun])
    thread.start()
    outcome = ask(runner, "loop", begun=str(begun))
    thread.join()
    return outcome


def is_over(handle):
    ready = select.select([handle], [], [], 30)[0]
    os.close(handle)
    return bool(ready)


def test_nothing_of_a_task_is_there_for_the_next(runner):
    """A thread that it leaves behind ends before the next task, which gets another process."""
    first = reply(ask(runner, "leave a thread"))["process"]
    second = reply(ask(runner))["process"]
    assert first != second == reply(ask(runner))["process"]


def test_processes_that_a_task_starts_end_with_its_run(runner):
    child = os.pidfd_open(reply(ask(runner, task="deadly.child"))["process"])
    runner.close("run")
    assert is_over(child)


def test_a_state_that_cannot_be_kept_fails_one_task(runner):
    states = {}
    assert "live object" in failure(ask(runner, task="deadly.unsendable", states=states)).cause
    assert states == {}


def test_what_a_task_prints_stays_in_the_log_and_is_cut(tasks, tmp_path):
    log = io.StringIO()
    runner = Bounded(tmp_path, Telemetry(None, log), gigabytes=0.5, seconds=20)
    assert set(reply(ask(runner, "flood"))) == {"process", "calls"}
    runner.close()
    assert 16_000 < len(log.getvalue()) < 20_000
    left_out = 200 * 100_001 + 100_001 - (1 << 14)
    assert f"{left_out} more bytes were left out" in log.getvalue()


def test_a_worker_sees_no_secret_and_leaves_no_rows(runner, monkeypatch, tmp_path):
    monkeypatch.setenv("PARTY_DATABASE_PASSWORD", "not for tasks")
    secret = tmp_path / "party.key"
    secret.write_bytes(b"key")
    runner.close("run")
    with secret.open("rb") as open_key:
        os.set_inheritable(open_key.fileno(), True)
        seen = reply(ask(runner, task="deadly.look"))
    assert "PARTY_DATABASE_PASSWORD" not in seen["variables"]
    assert not [file for file in seen["files"] if "party" in Path(file).name]
    assert (seen["core"], seen["threads"]) == (0, "1")
    assert list(runner._folder.iterdir()) == []
    assert runner._folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("way", ["", "loop in C"])
def test_workers_end_with_their_party(tasks, tmp_path, way):
    """Even one that is in a loop which lets nothing else run in its process."""
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    script = (f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
              "from adversaries.test_deadly_tasks import *\n"
              f"registry.load_plugins([PLUGIN]); runner = Bounded(Path({str(tmp_path)!r}), Telemetry(), gigabytes=1, "
              "seconds=600)\n"
              f"ask(runner, {way!r}, begun={str(begun)!r}); print('idle', flush=True); signal.pause()")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as party:
        worker = os.pidfd_open(int(begun.read_text()))
        if not way:
            assert party.stdout.readline() == b"idle\n"
        party.kill()
    assert is_over(worker)
