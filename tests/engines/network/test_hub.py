"""The coordinator's end, with parties that misbehave on purpose: replies twice, late, out of order, or not at all."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tequio import registry
from tequio.engines.network import wire
from tequio.engines.network.engine import Network, NetworkEngine
from tequio.engines.network.hub import Hub, Link
from tequio.engines.network.telemetry import Telemetry
from tequio.engines.network.wire import Assembly
from tequio.errors import EngineError, RunError
from tequio.federation import payload as payloads
from tequio.federation.exchange import Announcement, Order

NAMES = ("north", "south", "east")


def population(parties, names):
    """The parties of the engine tests, whose tasks come as a plugin and under one name only."""
    registry.load_plugins([str(Path(__file__).parents[1] / "parties.py")])
    return sys.modules["tequio_plugin_parties"].population(parties, names=names)


class FakeParty:
    """Hears what is sent to it and says what a test wants."""

    def __init__(self, hub, name, ready=True):
        self.hub, self.ready = hub, ready
        self.requests, self.heard = [], []
        self.link = Link(wire.Hello(name, 1, 1, "0.1.0", 4, "{}"), self.take, lambda: None)

    def take(self, frames):
        assembly = Assembly(1 << 30)
        for data in frames:
            message, body = wire.from_coordinator(data)
            self.heard.append(message)
            if isinstance(message, wire.Chunk):
                assembly.take(message, body)
            elif isinstance(message, wire.Begin):
                self.facts = payloads.decode(assembly.parts([message.part], body)[0])
                self.say(wire.Ready(message.run) if self.ready else wire.Declined(message.run, "no", "ask"))
            elif isinstance(message, wire.TaskRequest):
                self.requests.append((message, assembly.parts(message.parts, body)))

    def say(self, message, *parts):
        self.hub.receive(self.link, message, list(parts))

    def answer(self, work, **content):
        reply = payloads.encode(content)
        self.say(wire.TaskResult(work.run, work.position, work.digest, 0.1, (0, len(reply))), reply)


class Table:
    """An opened engine, and the three parties at its other end."""

    def __init__(self, **how):
        self.telemetry = Telemetry()
        self.hub = Hub(self.telemetry.note, self.telemetry.count)
        self.parties = [FakeParty(self.hub, name) for name in NAMES]
        for party in self.parties:
            self.hub.connect(party.link)
        self.engine = NetworkEngine(Network(wait=0.2, **how), SimpleNamespace(hub=self.hub, stop=lambda: None))
        self.engine.announce(Announcement("run-1", {"algorithm": "fedavg"}))
        self.engine.open(population(3, names=NAMES))

    def ask(self, ticket, payload=None, parties=(0, 1, 2), **extra):
        self.engine.submit(Order(ticket, "a task", parties, 1, payload or {}, **extra))
        return [party.requests[-1][0] if party.requests else None for party in self.parties]


@pytest.fixture
def table():
    return Table()


def values(outcome):
    return {reply.party: reply.payload["value"] for reply in outcome.replies}


def test_parties_hear_who_they_are_in_the_run(table):
    assert [party.facts["index"] for party in table.parties] == [0, 1, 2]
    assert table.parties[0].facts | {"index": 0} == table.parties[1].facts | {"index": 0}
    assert table.parties[0].facts["algorithm"] == "fedavg"


def test_replies_may_come_in_any_order_twice_and_too_late(table):
    first = table.ask(1)
    for place in (2, 0, 0, 1):
        table.parties[place].answer(first[place], value=place)
    assert values(table.engine.collect()) == {0: 0, 1: 1, 2: 2}
    second = table.ask(2)
    for place in (0, 1, 2):
        table.parties[place].answer(first[place], value=99)  # once more, long after
        table.parties[place].answer(second[place], value=place + 10)
    assert values(table.engine.collect()) == {0: 10, 1: 11, 2: 12}
    assert table.telemetry.counts()["replies_ignored", ""] == 4


def test_a_reply_to_other_work_at_the_same_place_does_not_count(table):
    work = table.ask(1, parties=(0,))[0]
    reply = payloads.encode({"value": 1})
    table.parties[0].say(wire.TaskResult(work.run, work.position, "another digest", 0.1, (0, len(reply))), reply)
    table.parties[0].answer(work, value=2)
    assert values(table.engine.collect()) == {0: 2}


def test_a_reply_that_is_no_payload_is_that_partys_failure(table):
    requests = table.ask(1)
    for party, work in zip(table.parties[:2], requests, strict=False):
        party.answer(work, value=1)
    last = requests[2]
    table.parties[2].say(wire.TaskResult(last.run, last.position, last.digest, 0.1, (0, 3)), b"\x80\x04K")
    outcome = table.engine.collect()
    assert values(outcome) == {0: 1, 1: 1}
    assert "its reply cannot be read" in outcome.failures[0].cause


def test_a_party_that_comes_back_hears_of_the_run_and_of_what_it_owes(table):
    work = table.ask(1, parties=(1,))[1]
    table.hub.disconnect(table.parties[1].link)
    back = FakeParty(table.hub, "south")
    table.hub.connect(back.link)
    assert [type(message) for message in back.heard] == [wire.Begin, wire.TaskRequest]
    assert back.requests[-1][0] == work
    back.answer(work, value=7)
    assert values(table.engine.collect()) == {1: 7}


def test_a_second_link_of_a_party_takes_the_place_of_the_first(table):
    closed = []
    older = Link(table.parties[0].link.hello, lambda frames: None, lambda: closed.append(True))
    table.hub.connect(older)
    newer = FakeParty(table.hub, "north")
    table.hub.connect(newer.link)
    assert closed == [True]
    table.hub.disconnect(older)
    assert "north" in table.hub.present()


def test_deadlines_and_absences_are_failures_that_say_so():
    table = Table(deadline=0.01, absence=60.0)
    table.ask(1, parties=(0,))
    assert "no answer came within 0.01 s" in table.engine.collect().failures[0].cause
    table = Table(absence=0.0)
    table.ask(1, parties=(0, 1))
    table.hub.disconnect(table.parties[0].link)
    table.parties[1].answer(table.parties[1].requests[-1][0], value=1)
    outcome = table.engine.collect()
    assert "it has been away" in outcome.failures[0].cause
    assert values(outcome) == {1: 1}


def test_states_stay_with_the_parties_and_a_checkpoint_says_after_which_task(table):
    requests = table.ask(1)
    for place in (0, 1):
        table.parties[place].answer(requests[place], value=1)
    table.parties[2].say(wire.TaskFailed(requests[2].run, requests[2].position, requests[2].digest, "why"))
    table.engine.collect()
    snapshot = table.engine.states()
    assert snapshot == {0: {"position": 1, "issued": 1}, 1: {"position": 1, "issued": 1}}
    assert [(work.position, work.base, work.keep) for work in table.ask(2)] == [(2, 1, 0), (2, 1, 0), (2, 0, 0)]
    other = Table()
    other.engine.restore(snapshot)
    assert [(work.position, work.base, work.keep) for work in other.ask(1)] == [(2, 1, 1), (2, 1, 1), (2, 0, 0)]
    with pytest.raises(RunError, match="not made over the network"):
        other.engine.restore({0: {"own_model": {}}})


def test_the_same_work_has_the_same_digest_and_other_work_another(table):
    first = table.ask(1, {"model": 1})[0].digest
    assert Table().ask(1, {"model": 1})[0].digest == first
    assert Table().ask(1, {"model": 2})[0].digest != first
    assert Table().ask(1, {"model": 1}, settings={"a": 1})[0].digest != first
    assert Table().ask(1, {"model": 1}, each=({"b": 1}, {}, {}))[0].digest != first


def test_a_run_starts_only_when_all_are_there_and_willing():
    table = Table()
    table.hub.disconnect(table.parties[2].link)
    again = NetworkEngine(Network(wait=0.01), SimpleNamespace(hub=table.hub))
    with pytest.raises(EngineError, match=r"1 of 3 parties did not dial in within 0\.01 s: east"):
        again.open(population(3, names=NAMES))
    unwilling = FakeParty(table.hub, "east", ready=False)
    table.hub.connect(unwilling.link)
    again.announce(Announcement("run-2"))
    with pytest.raises(EngineError, match="party 'east' declined the run: no"):
        again.open(population(3, names=NAMES))
    with pytest.raises(EngineError, match="nothing was submitted"):
        table.engine.collect()


def test_the_status_says_who_is_there_and_who_owes_what(table):
    table.ask(1, parties=(0, 2))
    status = table.hub.status()
    assert status["runs"]["run-1"] == {"parties": 3, "owing": ["north", "east"], "waiting": {}}
    assert status["parties"]["south"]["connected"] is True


class Watching:
    """Hears whom a run waits for, and does what a test wants when it hears something new."""

    def __init__(self, *then):
        self.then, self.heard = list(then), []

    def __call__(self, awaited):
        if not self.heard or self.heard[-1] != awaited:
            self.heard.append(awaited)
            if self.then:
                self.then.pop(0)()


def test_a_run_says_whom_it_waits_for_until_all_are_there_and_take_part():
    telemetry = Telemetry()
    hub = Hub(telemetry.note, telemetry.count)
    parties = {name: FakeParty(hub, name) for name in NAMES}

    def waits(message):  # a person has to approve the run
        parties["east"].say(wire.Waiting("run-1", "a person has to approve"))

    def arrives(name):
        return lambda: hub.connect(parties[name].link)

    parties["east"].link = Link(parties["east"].link.hello, lambda frames: [waits(data) for data in frames][:0],
                                lambda: None)
    watching = Watching(arrives("south"), arrives("north"), arrives("east"),
                        lambda: parties["east"].say(wire.Ready("run-1")))
    engine = NetworkEngine(Network(wait=60), SimpleNamespace(hub=hub, stop=lambda: None), say=watching)
    engine.announce(Announcement("run-1", {"algorithm": "fedavg"}))
    engine.open(population(3, names=NAMES))
    away = "not connected"
    assert watching.heard == [
        {"there": [], "missing": {"north": away, "south": away, "east": away}, "more": 0},
        {"there": ["south"], "missing": {"north": away, "east": away}, "more": 0},
        {"there": ["north", "south"], "missing": {"east": away}, "more": 0},
        {"there": ["north", "south"], "missing": {"east": "a person has to approve"}, "more": 0}]


def test_where_any_party_will_do_it_says_how_many_more():
    telemetry = Telemetry()
    hub = Hub(telemetry.note, telemetry.count)
    parties = [FakeParty(hub, name) for name in NAMES]
    watching = Watching(*[lambda party=party: hub.connect(party.link) for party in parties])
    assert list(hub.at_least(3, 60, watching)) == sorted(NAMES)
    assert [awaited["more"] for awaited in watching.heard] == [3, 2, 1]
    with pytest.raises(EngineError, match=r"only 3 parties dialled in within 0\.01 s, data\.minimum is 4"):
        hub.at_least(4, 0.01, watching)
    assert watching.heard[-1] == {"there": sorted(NAMES), "missing": {}, "more": 1}
