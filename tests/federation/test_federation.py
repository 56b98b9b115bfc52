"""The federation: order, faults, drop-outs, quorum, eligibility, exact accounting. The engines here are fakes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio import registry
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.errors import DataError, EngineError, PartyError, QuorumError
from tequio.federation import payload as payloads
from tequio.federation.exchange import Failure
from tequio.federation.federation import LARGEST_CHUNK, Federation, Rules, cut
from tequio.federation.payload import Columns, Payload
from tequio.federation.population import Population
from tequio.federation.stages import Stage
from tequio.federation.task import Count, NoSettings, Reveals, Task, record, task
from tequio.learners.learner import Arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.federation.exchange import Order, Outcome, Replies
    from tequio.federation.population import Party

Events = list[tuple[str, dict[str, Any]]]


class LastFirst(InlineEngine):
    """Gives outcomes back in the opposite order, as a slow first worker would."""

    def collect(self) -> Outcome:
        self._waiting.rotate(1)
        return super().collect()


@task("federation test.square", settings=NoSettings, reply=Payload, reveals=Reveals.NOTHING)
def square(party: Party, payload: Any, settings: NoSettings) -> Payload:
    return {"value": float(party.index**2), "name": party.name, "got": payload.get("extra", 0)}


@record
class At:
    """The parties at which something happens."""

    at: tuple[int, ...] = ()
    stage: Scale | None = None


@task("federation test.fail", settings=At, reply=Payload, reveals=Reveals.NOTHING)
def fail(party: Party, payload: Any, settings: At) -> Payload:
    if party.index in settings.at:
        raise ZeroDivisionError("no rows of class 'yes'")
    return {"value": 1.0}


def spoil_together(parties: Any, payloads: Any, settings: At) -> Columns:
    values = np.ones((len(parties), 2), np.float32)
    values[[party.index in settings.at for party in parties]] = np.nan
    return Columns({"update": {"w": values}, "rows": [1] * len(parties)}, len(parties))


@task("federation test.spoil", settings=At, reply=Payload, reveals=Reveals.NOTHING, many=spoil_together)
def spoil(party: Party, payload: Any, settings: At) -> Payload:
    return {}


@task("federation test.give", settings=At, reply=Payload, reveals=Reveals.NOTHING)
def give(party: Party, payload: Any, settings: At) -> Payload:
    return payload


@dataclass(frozen=True)
class Scale(Stage):
    """Adds one, or multiplies by ten, at the party; takes it back at the coordinator."""

    adds: bool = True

    def send(self, party: Party, payload: dict[str, Any]) -> dict[str, Any]:
        return {**payload, "value": payload["value"] + 1 if self.adds else payload["value"] * 10}

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        def undo(value: float) -> float:
            return value - 1 if self.adds else value / 10

        return replace(replies, answers=tuple(
            replace(reply, payload={**reply.payload, "value": undo(reply.payload["value"])}) for reply in replies))


@dataclass(frozen=True)
class Unreadable(Stage):
    """The coordinator cannot read what these parties sent."""

    at: tuple[int, ...] = ()

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        failures = tuple(Failure(reply.party, "it cannot be read") for reply in replies if reply.party in self.at)
        return replace(replies, answers=tuple(reply for reply in replies if reply.party not in self.at),
                       failures=(*replies.failures, *failures))


@pytest.fixture(autouse=True)
def _known_stages() -> Iterator[None]:
    """Only while these tests run, so that no other test finds them in the registry."""
    stages = {"federation-test-scale": Scale, "federation-test-unreadable": Unreadable}
    for name, stage in stages.items():
        registry.register("stage", name)(stage)
    yield
    for name in stages:
        del registry._entries["stage", name]


def federation(parties: int = 12, *, rules: Rules | None = None, engine: Any = None, sizes: list[int] | None = None,
               seed: int = 1, events: Events | None = None, **extra: Any) -> Federation:
    sizes = sizes or [2] * parties
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    dataset = Dataset.of(Schema.of_numbers(["a"], Target("none")), np.zeros((sum(sizes), 1)))
    population = Population(dataset, Partition.of(rows, **extra), Split(0.0, 0.0))
    engine = engine or InlineEngine()
    engine.open(population)
    kept: Events = [] if events is None else events
    return Federation(population, engine, seed, rules or Rules(), record=lambda kind, facts: kept.append((kind, facts)))


def test_answers_come_in_party_order_whoever_was_first() -> None:
    replies = federation(engine=LastFirst()).ask([7, 3, 11, 0, 3, 5, 9, 2], square)
    assert replies.parties.tolist() == [0, 2, 3, 5, 7, 9, 11]
    assert replies.values("value").tolist() == [0, 4, 9, 25, 49, 81, 121]
    assert replies.of(5)["value"] == 25
    assert replies[0].party == 0
    assert [reply.party for reply in replies[1:3]] == [2, 3]


@settings(deadline=None)
@given(count=st.integers(0, 300), work=st.sampled_from([0.0, 2e7, 1e9, 1e12]))
def test_a_cohort_is_cut_by_a_fixed_rule(count: int, work: float) -> None:
    parties = np.arange(count) * 3
    chunks = cut(parties, work)
    assert np.concatenate([np.empty(0, np.int64), *chunks]).tolist() == parties.tolist()
    assert all(0 < len(chunk) <= LARGEST_CHUNK for chunk in chunks)
    assert len(chunks) % 2 == 0 or len(chunks) <= 1


def test_heavy_work_goes_in_small_chunks_and_light_work_in_large_ones() -> None:
    cohort = np.arange(50)
    assert [len(chunk) for chunk in cut(cohort)] == [25, 25]
    assert len(cut(cohort, work=2e7)) == 2
    assert len(cut(cohort, work=1e12)) == 12


@pytest.mark.parametrize("wrong", [[-1], [0, 12], [1000]])
def test_a_party_that_does_not_exist_is_refused(wrong: list[int]) -> None:
    with pytest.raises(DataError, match=f"no party number {wrong[-1]}; parties are numbered 0 to 11"):
        federation().ask(wrong, square)


def test_asking_nobody_gives_nothing() -> None:
    assert len(federation().ask([], square)) == 0


def test_payloads_for_all_and_for_one() -> None:
    replies = federation().ask([1, 4], square, {"extra": 1}, each={4: {"extra": 2}})
    assert replies.values("got").tolist() == [1, 2]


def test_a_failing_party_stops_the_run_and_is_named() -> None:
    """Promise 3: party, round, task, cause and what to do."""
    events: Events = []
    asking = federation(names=tuple("abcdefghijkl"), events=events)
    asking.round = 4
    with pytest.raises(PartyError) as caught:
        asking.ask(range(12), fail, settings=At(at=(3, 8)))
    error = caught.value
    assert (error.party, error.round, error.task) == ("d", 4, "federation test.fail")
    assert str(error) == ("party 'd' failed in round 4 at task 'federation test.fail': ZeroDivisionError: no rows of "
                          "class 'yes'; remove the cause, or set rules.on_failure = 'continue' to go on without "
                          "parties that fail")
    assert [facts["party"] for kind, facts in events if kind == "failure"] == ["d"]
    assert "ZeroDivisionError" in dict(events)["failure"]["trace"]


def test_going_on_without_the_failing_ones_while_the_quorum_holds() -> None:
    events: Events = []
    asking = federation(rules=Rules(on_failure="continue", quorum=0.75), events=events)
    replies = asking.ask(range(12), fail, settings=At(at=(0, 5, 9)))
    assert replies.parties.tolist() == [1, 2, 3, 4, 6, 7, 8, 10, 11]
    assert [failure.party for failure in replies.failures] == [0, 5, 9]
    assert [facts["party"] for kind, facts in events if kind == "failure"] == ["0", "5", "9"]
    with pytest.raises(QuorumError, match=r"only 8 of 12 .* \(0 dropped out, 4 failed\).*quorum is 75%"):
        asking.ask(range(12), fail, settings=At(at=(0, 5, 9, 10)))


def test_a_reply_that_a_stage_cannot_read_counts_as_a_failure() -> None:
    with pytest.raises(PartyError, match=r"party '3' failed in round 0 .*: it cannot be read"):
        federation().ask(range(5), square, stages=[Unreadable((3,))])
    events: Events = []
    asking = federation(rules=Rules(on_failure="continue", quorum=0.5), events=events)
    replies = asking.ask(range(4), fail, settings=At(at=(0,)), stages=[Unreadable((3,))])
    assert replies.parties.tolist() == [1, 2]
    assert [facts["party"] for kind, facts in events if kind == "failure"] == ["0", "3"]  # each of them once
    with pytest.raises(QuorumError, match=r"only 1 of 4 .*quorum is 50%"):
        asking.ask(range(4), fail, settings=At(at=(0,)), stages=[Unreadable((2, 3))])


@pytest.mark.parametrize("payload", [
    {"update": {"w": np.array([1.0, np.nan])}}, {"w": np.array(np.inf)}, {"list": [np.zeros(1), np.array([np.inf])]},
    {"deep": {"er": [{"w": np.array([-np.inf], np.float32)}]}}])
def test_a_reply_that_is_not_finite_counts_as_a_failure(payload: dict[str, Any]) -> None:
    with pytest.raises(PartyError, match=r"party '2' failed in round 0 .* not finite; lower local.learning_rate"):
        federation().ask(range(5), give, {"fine": np.zeros(2)}, each={2: payload})
    replies = federation(rules=Rules(on_failure="continue")).ask(range(5), give, each={2: payload})
    assert replies.parties.tolist() == [0, 1, 3, 4]


def test_one_party_that_is_not_finite_among_columns_fails_alone() -> None:
    with pytest.raises(PartyError, match=r"party '3' failed in round 0 .* not finite"):
        federation().ask(range(12), spoil, settings=At(at=(3,)))
    replies = federation(rules=Rules(on_failure="continue")).ask(range(12), spoil, settings=At(at=(3, 7)))
    assert replies.parties.tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10, 11]
    assert all(payload["update"]["w"].tolist() == [1.0, 1.0] for payload in replies.payloads)


def test_a_reply_that_a_check_refuses_counts_as_a_failure() -> None:
    def check(payload: dict[str, Any], whose: str) -> None:
        if payload["value"] == 9.0:
            raise DataError(f"{whose} sent a nine", remedy="send another number")

    with pytest.raises(PartyError, match=r"party '3' failed in round 0 .*: party '3' sent a nine; send another number"):
        federation().ask(range(5), square, check=check)
    asking = federation(rules=Rules(on_failure="continue"))
    assert asking.ask(range(5), square, check=check).parties.tolist() == [0, 1, 2, 4]
    with pytest.raises(QuorumError, match="0 of 1"):
        asking.ask([3], square, check=check)


class Trained(TypedDict):
    update: Arrays
    rows: Count


def trained(party: Party) -> Any:
    return {"update": {"w": np.ones(2)}, "rows": party.index}


def trained_together(parties: Any, payloads: Any, settings: At) -> Columns:
    rows = [-1 if party.index in settings.at else party.index for party in parties]
    return Columns({"update": {"w": np.ones((len(parties), 2))}, "rows": rows}, len(parties))


@task("federation test.train", settings=At, reply=Trained, reveals=Reveals.UPDATE)
def train(party: Party, payload: Any, settings: At) -> Trained:
    return {**trained(party), **(payload if party.index in settings.at else {})}  # type: ignore[return-value]


@task("federation test.train together", settings=At, reply=Trained, reveals=Reveals.UPDATE, many=trained_together)
def train_or_fail(party: Party, payload: Any, settings: At) -> Trained:
    return {**trained(party), **({"rows": -1} if party.index in settings.at else {})}  # type: ignore[return-value]


@pytest.mark.parametrize(("wrong", "words"), [
    ({"rows": -1}, "'rows' of its reply is not a whole number from 0 upwards"),
    ({"rows": 1.5}, "'rows' of its reply is not a whole number"),
    ({"update": np.zeros(2)}, "'update' of its reply is not named arrays"),
    ({"surplus": 1}, "its reply has an entry 'surplus' that this task does not give")])
def test_a_reply_that_is_not_what_the_task_declares_fails_its_party(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(PartyError, match=rf"party '2' failed in round 0 at task 'federation test.train'.*{words}"):
        federation().ask(range(5), train, wrong, settings=At(at=(2,)))
    replies = federation(rules=Rules(on_failure="continue")).ask(range(5), train, wrong, settings=At(at=(2,)))
    assert replies.parties.tolist() == [0, 1, 3, 4]
    assert words in replies.failures[0].cause


def test_a_bad_reply_among_columns_fails_its_party_alone() -> None:
    with pytest.raises(PartyError, match=r"party '3' failed .*'rows' of its reply is not a whole number from 0"):
        federation().ask(range(5), train_or_fail, settings=At(at=(3,)))
    replies = federation(rules=Rules(on_failure="continue")).ask(range(5), train_or_fail, settings=At(at=(3,)))
    assert replies.parties.tolist() == [0, 1, 2, 4]


class Tampering(InlineEngine):
    """A party that does not run the code it should: its reply is changed after its own end has looked at it."""

    def __init__(self, **other: Any) -> None:
        super().__init__()
        self.other = other

    def collect(self) -> Outcome:
        outcome = super().collect()
        changed = tuple(replace(reply, payload={key: value for key, value in {**reply.payload, **self.other}.items()
                                                if value is not None}) if reply.party == 2 else reply
                        for reply in outcome.replies)
        return replace(outcome, replies=changed, columns=None)


@pytest.mark.parametrize(("other", "words"), [
    ({"rows": -5}, "'rows' of its reply is not a whole number from 0 upwards"), ({"rows": None}, "has no 'rows'"),
    ({"update": "w"}, "'update' of its reply is not named arrays"), ({"surplus": 1}, "an entry 'surplus'")])
@pytest.mark.parametrize("asked", [train, train_or_fail])
def test_replies_are_checked_at_the_coordinator_again(other: dict[str, Any], words: str, asked: Any) -> None:
    with pytest.raises(PartyError, match=rf"party '2' failed in round 0 .*{words}"):
        federation(engine=Tampering(**other)).ask(range(5), asked)
    asking = federation(engine=Tampering(**other), rules=Rules(on_failure="continue"))
    assert asking.ask(range(5), asked).parties.tolist() == [0, 1, 3, 4]


def test_drop_outs_are_drawn_from_the_seed_and_a_round_at_a_time() -> None:
    """Feature 15: the rest of the cohort goes on; who vanished is reported."""
    def dropped(seed: int, round: int) -> tuple[int, ...]:
        asking = federation(200, rules=Rules(dropout=0.3, quorum=0.1), seed=seed)
        asking.round = round
        replies = asking.ask(range(200), square)
        assert sorted([*replies.parties, *replies.dropped]) == list(range(200))
        return replies.dropped

    first = dropped(1, 1)
    assert 30 < len(first) < 90
    assert dropped(1, 1) == first
    assert dropped(1, 2) != first
    assert dropped(2, 1) != first


def test_a_dropped_party_depends_on_itself_only() -> None:
    rules = Rules(dropout=0.5, quorum=0.0)
    whole = set(federation(50, rules=rules).ask(range(50), square).dropped)
    half = set(federation(50, rules=rules).ask(range(25), square).dropped)
    assert half == {party for party in whole if party < 25}


def test_too_many_drop_outs_break_the_quorum() -> None:
    with pytest.raises(QuorumError, match="dropped out"):
        federation(50, rules=Rules(dropout=0.9)).ask(range(50), square)


def test_bytes_and_messages_are_exact() -> None:
    events: Events = []
    asking = federation(events=events)
    sent = {"model": np.zeros((3, 2), np.float32), "round": 1}
    replies = asking.ask([1, 2, 5], give, sent, each={2: {"more": np.ones(4)}})
    down = 2 * len(payloads.encode(sent)) + len(payloads.encode({**sent, "more": np.ones(4)}))
    assert asking.traffic.bytes_down == down
    assert asking.traffic.bytes_up == sum(len(payloads.encode(reply.payload)) for reply in replies) == down
    assert asking.traffic.messages == 6
    assert events == [("exchange", {"round": 0, "task": "federation test.give", "asked": 3, "answered": 3, "dropped": 0,
                                    "failed": 0, "bytes_up": down, "bytes_down": down})]
    asking.ask([0], give, sent)
    assert asking.traffic.messages == 8


@pytest.mark.parametrize(("stages", "up"), [((Scale(), Scale(False)), 10.0), ((Scale(False), Scale()), 1.0)])
def test_stages_run_there_in_order_and_back_in_reverse(stages: Any, up: float) -> None:
    seen: list[float] = []

    @task("federation test.zero", settings=NoSettings, reply=Payload, reveals=Reveals.NOTHING)
    def zero(party: Party, payload: Any, settings: NoSettings) -> Payload:
        return {"value": 0.0}

    class Watching(InlineEngine):
        def collect(self) -> Outcome:
            outcome = super().collect()
            seen.extend(reply.payload["value"] for reply in outcome.replies)
            return outcome

    replies = federation(engine=Watching()).ask([0, 1], zero, stages=stages)
    assert seen == [up, up]
    assert replies.values("value").tolist() == [0.0, 0.0]


def test_eligibility_by_rows_and_category() -> None:
    categories = ("urban", "rural", "urban", "rural")
    sizes = [5, 1, 0, 9]
    assert federation(sizes=sizes).eligible().tolist() == [0, 1, 3]
    assert federation(sizes=sizes, rules=Rules(minimum_rows=5)).eligible().tolist() == [0, 3]
    rural = federation(sizes=sizes, rules=Rules(categories=("rural",)), categories=categories)
    assert rural.eligible().tolist() == [1, 3]
    for rules in (Rules(minimum_rows=10), Rules(categories=("coastal",))):
        nobody = federation(sizes=sizes, rules=rules, categories=categories)
        for _ in range(2):
            with pytest.raises(QuorumError, match="no party is eligible"):
                nobody.eligible()


def test_categories_that_the_partition_does_not_know_leave_nobody() -> None:
    with pytest.raises(QuorumError, match="no party is eligible"):
        federation(rules=Rules(categories=("rural",))).eligible()


def test_what_an_algorithm_sees() -> None:
    seen = federation(sizes=[3, 4], names=("ana", "eva"))
    assert len(seen) == 2
    assert seen.sizes.tolist() == [3, 4]
    assert seen.everyone().tolist() == [0, 1]
    assert (seen.name(1), seen.index("ana")) == ("eva", 0)
    assert seen.schema.names == ("a",)
    assert seen.rng("x").random() == federation(seed=1).rng("x").random()


def test_orders_carry_names_of_tasks_and_plain_settings_only() -> None:
    orders: list[Order] = []

    class Recording(InlineEngine):
        def submit(self, order: Order) -> None:
            orders.append(order)
            super().submit(order)

    asking = federation(engine=Recording())
    asking.ask(range(12), give, {"x": 1}, settings=At(stage=Scale(), at=(1, 2)), stages=())
    assert {order.task for order in orders} == {"federation test.give"}
    assert len({order.ticket for order in orders}) == len(orders) == 2
    assert orders[0].settings["at"] == [1, 2]
    assert isinstance(orders[0].settings["stage"], dict)
    assert not any(isinstance(value, Task) for value in vars(orders[0]).values())


def test_the_inline_engine_says_when_there_is_nothing_to_collect() -> None:
    with pytest.raises(EngineError, match="nothing was submitted"):
        InlineEngine().collect()


def test_an_answer_that_is_missing_is_an_error_that_names_the_party() -> None:
    with pytest.raises(DataError, match="party 9 gave no answer"):
        federation().ask([1], square).of(9)
