"""What waits at an aggregator, and whom the coordinator lets it speak for."""

from __future__ import annotations

import numpy as np
import pytest

from tequio import registry
from tequio.engines.network import wire
from tequio.engines.network.aggregating import Gathering
from tequio.engines.network.enrolment import RenewingCoordinator
from tequio.engines.network.hub import Hub, Link
from tequio.engines.network.relays import REMARKS, REMARKS_PER_SECOND, Carrier, Relay
from tequio.engines.network.telemetry import Allowance, Telemetry
from tequio.engines.network.wire import Assembly, Part
from tequio.errors import ConfigError, PayloadError, PermissionDenied
from tequio.federation import payload as payloads

from .fleet import enrol, make_coordinator

TASK = "group-sum.hand-over"
NAMES = ("a", "b", "c")


@pytest.fixture(autouse=True)
def components():
    registry.load_everything()


class Waiting:
    """A gathering in which three parties were asked."""

    def __init__(self, members=NAMES, session=b"s"):
        self.gathering, self.members = Gathering(), members
        self.requests = {name: wire.TaskRequest("run", 7, 6, 0, f"digest {name}", TASK, 1, ((0, 0), (0, 0), (0, 0)))
                      for name in members}
        for name in members:
            self.ask(name, session)

    def ask(self, name, session=b"s"):
        parts = [b"", payloads.encode({"session": session}), payloads.encode({"weight": 1.0, "together": list(NAMES)})]
        self.gathering.expect(name, self.requests[name], parts, self.members)

    def answer(self, name, value, weight=1.0):
        content = payloads.encode({"mean": np.array([value]), "weight": weight, "parties": [NAMES.index(name)]})
        return self.say(name, content)

    def say(self, name, content):
        work = self.requests[name]
        return self.gathering.take(name, wire.TaskResult("run", 7, work.digest, 0.5, (0, len(content))), content)

    def ready(self):
        return [(merged.answers, payloads.decode(part.inline)) for merged, part in self.gathering.ready()]


def test_results_leave_as_one_when_all_are_there_in_the_order_of_the_parties():
    waiting = Waiting()
    assert waiting.answer("c", 6.0, 2.0) == waiting.answer("a", 1.0) == ""
    assert waiting.ready() == []
    waiting.answer("b", 3.0)
    [(answers, content)] = waiting.ready()
    assert answers == tuple((name, 7, f"digest {name}") for name in NAMES)
    assert (content["mean"].tolist(), content["weight"], content["parties"]) == ([4.0], 4.0, [0, 1, 2])
    assert waiting.ready() == []


def test_whoever_is_not_waited_for_any_more_is_left_out():
    waiting = Waiting()
    waiting.answer("a", 1.0)
    waiting.answer("b", 3.0)
    waiting.gathering.leave("c", "run", 7)
    [(answers, content)] = waiting.ready()
    assert [name for name, *_ in answers] == ["a", "b"]
    assert content["mean"].tolist() == [2.0]


def test_parties_of_other_aggregators_are_not_waited_for():
    waiting = Waiting(members=("a", "c"))
    waiting.answer("a", 1.0)
    waiting.answer("c", 5.0)
    assert waiting.ready()[0][1]["mean"].tolist() == [3.0]


def test_a_result_that_cannot_be_merged_fails_its_party_alone():
    waiting = Waiting()
    waiting.answer("a", 1.0)
    assert "cannot be merged" in waiting.say("b", payloads.encode({"mean": "none"}))
    assert "cannot be merged" in waiting.say("c", b"garbage")
    assert waiting.ready()[0][1]["parties"] == [0]


def test_other_results_and_other_tasks_go_on_as_they_are():
    waiting = Waiting()
    stale = wire.TaskResult("run", 6, "other", 0.1, (0, 0))
    assert waiting.gathering.take("a", stale, b"") is None
    plain = wire.TaskRequest("run", 8, 7, 0, "d", "evaluate", 1, ((0, 0), (0, 0), (0, 0)))
    waiting.gathering.expect("a", plain, [b"", b"", b""], NAMES)
    assert waiting.gathering.take("a", wire.TaskResult("run", 8, "d", 0.1, (0, 0)), b"") is None


def test_what_is_asked_again_is_gathered_again_and_a_run_that_is_over_is_forgotten():
    waiting = Waiting()
    waiting.answer("a", 1.0)
    waiting.ask("a")
    waiting.answer("b", 3.0)
    waiting.answer("c", 3.0)
    assert waiting.ready() == []
    waiting.gathering.forget("run")
    assert waiting.answer("a", 1.0) is None


class Tree:
    """A coordinator with an aggregator 'tier' whose party is 'north'; 'south' dials the coordinator itself."""

    def __init__(self, folder):
        self.home = make_coordinator(folder / "coordinator")
        enrol(self.home, folder / "tier", "tier", {}, aggregator="localhost:1")
        self.north = enrol(self.home, folder / "north", "north", {}, via="tier")
        enrol(self.home, folder / "south", "south", {})
        self.sent = []
        self.hub = Hub(lambda *_, **__: None, lambda *_, **__: None)
        hello = wire.Hello("tier", 1, 1, "0.1.0", 0, "", aggregator=True)
        self.relay = Relay(self.home, self.hub, Telemetry(), Link(hello, self.sent.extend, lambda: None),
                           RenewingCoordinator(self.home, self.hub, Telemetry()),
                           Allowance(REMARKS, REMARKS_PER_SECOND))

    def say(self, name, message):
        self.relay.take(wire.Relayed(name), memoryview(wire.frame(message)), Assembly(1000))


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def hello(name, **more):
    return wire.Hello(name, 1, 1, "0.1.0", 5, "{}", **more)


def test_parties_behind_an_aggregator_come_and_go_with_it(tree):
    tree.say("north", hello("north"))
    assert list(tree.hub.present()) == ["north"]
    tree.say("north", wire.Left())
    assert not tree.hub.present()
    tree.say("north", hello("north"))
    tree.relay.end()
    assert not tree.hub.present()


def test_an_aggregator_speaks_for_its_own_parties_only(tree):
    for name in ("south", "nobody"):
        tree.say(name, hello(name))
        assert not tree.hub.present()
    for message in (hello("south"), hello("north", aggregator=True)):
        with pytest.raises(PayloadError, match="says that 'north' is"):
            tree.say("north", message)
    with pytest.raises(PayloadError, match="no place"):
        tree.relay.take(wire.Ready("run"), memoryview(b""), Assembly(1000))


def test_whom_an_aggregator_may_let_in_follows_who_is_enrolled(tree):
    tree.relay.tell_members()
    tree.home.revoke("north")
    tree.relay.tell_members()
    first, second = (wire.from_coordinator(data)[0].fingerprints for data in tree.sent)
    assert list(first) == ["north"]
    assert second == {}


def test_roles_come_from_tokens_only(tree):
    assert tree.home.is_aggregator("tier")
    assert not tree.home.is_aggregator("south")
    with pytest.raises(PermissionDenied, match="dials the aggregator 'tier'"):
        tree.home.admit("north", tree.north.identity.certificate)
    with pytest.raises(ConfigError, match="no aggregator 'south' is enrolled"):
        tree.home.new_token("west", via="south")


def test_a_long_part_for_many_parties_goes_to_their_aggregator_once():
    carrier, common = Carrier(), Part(bytes(3_000_000))
    assembly, heard, chunks, drops = Assembly(1 << 30), [], [], []
    for party in range(9):
        own = Part(bytes([party]) * 1_000_000)
        work = wire.TaskRequest("run", 1, 0, 0, "d", "t", 1, ((0, 0), common.ref, own.ref))
        for data in carrier.wrapped(f"p{party}", [*common.frames, *own.frames, wire.frame(work)]):
            message, body = wire.from_coordinator(data)
            if isinstance(message, wire.Chunk):
                chunks.append(message.transfer)
                assembly.take(message, body)
            elif isinstance(message, wire.Drop):
                drops.append(message.transfer)
                assembly.drop(message.transfer)
            else:
                inner, rest = wire.from_coordinator(bytes(body))
                heard.append((message.name, assembly.parts(inner.parts, rest, keep=True)))
    assert chunks.count(common.ref[0]) == 3
    assert common.ref[0] not in drops
    assert len(drops) == 6
    for party, (name, parts) in enumerate(heard):
        assert name == f"p{party}"
        assert (len(parts[1]), bytes(parts[2][:1])) == (3_000_000, bytes([party]))
