"""What happens at a party: states change only on success, faults are named, the vectorised form gives the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from tequio import registry
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.errors import ConfigError, DataError, PayloadError
from tequio.federation import payload as payloads
from tequio.federation.exchange import Failure, Order, Outcome, execute
from tequio.federation.payload import Columns, Payload
from tequio.federation.population import Population
from tequio.federation.stages import Stage
from tequio.federation.task import Done, NoSettings, Reveals, record, task
from tequio.learners.learner import LocalTraining
from tequio.registry import to_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.federation.population import Party

SEEN: list[Party] = []
CALLS: list[str] = []


def population(parties: int = 4) -> Population:
    dataset = Dataset.of(Schema.of_numbers(["a"], Target("none")), np.arange(float(parties))[:, None])
    return Population(dataset, Partition.of([np.array([row]) for row in range(parties)]), Split(0.0, 0.0), seed=9)


def run(name: str, states: dict[int, Any] | None = None, parties: tuple[int, ...] = (0, 1, 2, 3),
        **order: Any) -> Outcome:
    given = Order(7, name, parties, 3, **{"payload": {}, **order})
    return execute(given, population(), {} if states is None else states)


@task("execution test.look", settings=NoSettings, reply=Payload, reveals=Reveals.NOTHING)
def look(party: Party, payload: Any, settings: NoSettings) -> Payload:
    SEEN.append(party)
    return {"value": party.data.train.features[0] + payload.get("add", 0), "round": party.round, "index": party.index}


@record
class Trouble:
    """At which parties the task fails, and how; how many replies its vectorised form loses; whether one is wrong."""

    fail: tuple[int, ...] = ()
    error: Literal["ValueError", "KeyboardInterrupt"] = "ValueError"
    lose: int = 0
    wrong: bool = False


@task("execution test.count", settings=Trouble, reply=Payload, reveals=Reveals.NOTHING)
def count(party: Party, payload: Any, settings: Trouble) -> Payload:
    party.state["count"] = party.state.get("count", 0) + 1
    if party.index in settings.fail:
        raise {"ValueError": ValueError, "KeyboardInterrupt": KeyboardInterrupt}[settings.error]("bad luck")
    return {"count": party.state["count"]}


@record
class What:
    what: str


@task("execution test.return", settings=What, reply=Payload, reveals=Reveals.NOTHING)
def give_back(party: Party, payload: Any, settings: What) -> Any:
    return {"dataset": party.data.train, "nothing": None, "empty dataset": party.data.test, "list": [1],
            "array": np.zeros(2), "rows inside": {"rows": party.data.train}, "live": {"party": party}}[settings.what]


def many(parties: Any, payloads: Any, settings: Trouble) -> list[dict[str, Any]]:
    CALLS.append("together")
    for party in parties:
        party.state["count"] = party.state.get("count", 0) + 100
    if any(party.index in settings.fail for party in parties):
        raise RuntimeError("one of them is bad")
    return [{"count": party.state["count"] - 99} for party in parties][settings.lose:]


@task("execution test.many", settings=Trouble, reply=Payload, reveals=Reveals.NOTHING, many=many)
def alone(party: Party, payload: Any, settings: Trouble) -> Payload:
    CALLS.append(f"alone {party.index}")
    return count.run(party, payload, settings)


def many_columns(parties: Any, payloads: Any, settings: Trouble) -> Columns:
    values = np.arange(float(3 * len(parties))).reshape(-1, 3)
    for party, own in zip(parties, values, strict=True):
        party.state["kept"] = {"values": own, "received": payloads[0].get("model")}
    counts = [10 ** (3 * party.index) for party in parties]
    content = {"values": values, "count": counts, "wrong": [parties[0] if settings.wrong else 0] * len(parties)}
    return Columns(content, len(parties))


@task("execution test.columns", settings=Trouble, reply=Payload, reveals=Reveals.NOTHING, many=many_columns)
def one_row(party: Party, payload: Any, settings: Trouble) -> Payload:
    CALLS.append(f"alone {party.index}")
    return {"count": 1}


@task("execution test.rows", settings=Trouble, reply=Payload, reveals=Reveals.ROWS, many=many)
def hand_over(party: Party, payload: Any, settings: Trouble) -> Payload:
    CALLS.append(f"alone {party.index}")
    return {"count": 1}


@dataclass(frozen=True)
class Double(Stage):
    """Doubles what leaves, except where it is told to fail."""

    fails_at: int = -1

    def send(self, party: Party, payload: dict[str, Any]) -> dict[str, Any]:
        if party.index == self.fails_at:
            raise DataError("the stage is broken", remedy="mend it")
        return {**payload, "count": 2 * payload["count"]}


@pytest.fixture(autouse=True)
def _known_stage() -> Iterator[None]:
    """Only while these tests run, so that no other test finds it in the registry."""
    registry.register("stage", "execution-test-double")(Double)
    yield
    del registry._entries["stage", "execution-test-double"]


def test_replies_come_from_each_party_with_exact_bytes() -> None:
    outcome = run("execution test.look", parties=(1, 3), payload={"add": 10.0})
    assert outcome.ticket == 7
    assert [reply.party for reply in outcome.replies] == [1, 3]
    assert [reply.payload["value"].tolist() for reply in outcome.replies] == [[11.0], [13.0]]
    assert [reply.payload["round"] for reply in outcome.replies] == [3, 3]
    for reply in outcome.replies:
        assert reply.bytes_down == len(payloads.encode({"add": 10.0}))
        assert reply.bytes_up == len(payloads.encode(reply.payload))


def test_what_is_meant_for_one_party_reaches_only_it() -> None:
    outcome = run("execution test.look", parties=(0, 1), payload={"add": 5.0}, each=({}, {"add": 50.0}))
    assert [reply.payload["value"].tolist() for reply in outcome.replies] == [[5.0], [51.0]]
    assert [reply.bytes_down for reply in outcome.replies] == [payloads.size({"add": 5.0})] * 2


def test_parties_cannot_be_reached_after_their_task() -> None:
    SEEN.clear()
    run("execution test.look")
    assert len(SEEN) == 4
    for party in SEEN:
        with pytest.raises(Exception, match="only be reached from a task"):
            _ = party.data


def test_state_outlives_the_order_and_is_private() -> None:
    states: dict[int, Any] = {}
    run("execution test.count", states, parties=(0, 1))
    run("execution test.count", states, parties=(1, 2))
    assert states == {0: {"count": 1}, 1: {"count": 2}, 2: {"count": 1}}


def test_parties_without_state_take_no_memory() -> None:
    states: dict[int, Any] = {}
    run("execution test.look", states)
    assert states == {}


def test_a_failing_task_leaves_its_state_as_it_was_and_others_go_on() -> None:
    states = {1: {"count": 5}}
    outcome = run("execution test.count", states, settings={"fail": [1, 2]})
    assert states == {0: {"count": 1}, 1: {"count": 5}, 3: {"count": 1}}
    assert [reply.party for reply in outcome.replies] == [0, 3]
    assert [(failure.party, failure.cause) for failure in outcome.failures] == [(1, "ValueError: bad luck"),
                                                                                (2, "ValueError: bad luck")]
    assert "in count" in outcome.failures[0].trace


def test_an_error_of_ours_keeps_its_remedy() -> None:
    failure = run("execution test.count", settings={}, stages=(to_plain(Double(fails_at=2)),)).failures[0]
    assert (failure.party, failure.cause, failure.remedy) == (2, "the stage is broken", "mend it")


def test_stages_change_what_leaves_and_their_failure_undoes_the_state() -> None:
    states: dict[int, Any] = {}
    outcome = run("execution test.count", states, stages=(to_plain(Double(fails_at=1)), to_plain(Double())))
    assert [reply.payload["count"] for reply in outcome.replies] == [4, 4, 4]
    assert sorted(states) == [0, 2, 3]


@pytest.mark.parametrize(("what", "cause"), [
    ("dataset", "a payload is a dict of names, not a Dataset"), ("nothing", "dict of names, not a NoneType"),
    ("empty dataset", "dict of names, not a Dataset"), ("list", "not a list"), ("array", "not a ndarray"),
    ("rows inside", "'rows' is a dataset: rows stay home"), ("live", "live object of type Party")])
def test_rows_and_live_objects_are_refused_at_the_party(what: str, cause: str) -> None:
    """Promise 2: nothing but payloads leaves, whatever the task returns."""
    outcome = run("execution test.return", settings={"what": what})
    assert outcome.replies == ()
    assert len(outcome.failures) == 4
    assert cause in outcome.failures[0].cause


def test_a_coordinator_cannot_send_rows_either() -> None:
    with pytest.raises(PayloadError, match="'rows' is a dataset: rows stay home"):
        run("execution test.look", payload={"rows": population().dataset})
    with pytest.raises(PayloadError, match="'rows' is a dataset: rows stay home"):
        run("execution test.look", parties=(0,), each=({"rows": population().dataset},))


def test_the_vectorised_form_is_used_and_saves_states() -> None:
    CALLS.clear()
    states: dict[int, Any] = {}
    outcome = run("execution test.many", states)
    assert CALLS == ["together"]
    assert [reply.payload["count"] for reply in outcome.replies] == [1, 1, 1, 1]
    assert states[2] == {"count": 100}


def test_when_the_vectorised_form_fails_the_parties_run_alone_and_the_culprit_is_named() -> None:
    CALLS.clear()
    states = {1: {"count": 7}}
    outcome = run("execution test.many", states, settings={"fail": [2]})
    assert CALLS == ["together", "alone 0", "alone 1", "alone 2", "alone 3"]
    assert [failure.party for failure in outcome.failures] == [2]
    assert states == {0: {"count": 1}, 1: {"count": 8}, 3: {"count": 1}}


def test_each_party_is_asked_for_its_consent_to_hand_over_rows_even_where_there_is_a_vectorised_form() -> None:
    CALLS.clear()
    consenting = replace(population(), overrides={2: {"share_rows": True}})
    outcome = execute(Order(7, "execution test.rows", (0, 1, 2, 3), 3, {}), consenting, {})
    assert CALLS == ["alone 2"]
    assert [reply.party for reply in outcome.replies] == [2]
    assert [failure.party for failure in outcome.failures] == [0, 1, 3]
    assert outcome.failures[0].cause == "party '0' was asked to hand over rows, and its settings do not allow that"


def test_an_empty_answer_of_the_vectorised_form_means_run_alone() -> None:
    CALLS.clear()
    assert len(run("execution test.many", settings={"lose": 4}).replies) == 4
    assert CALLS[-1] == "alone 3"


def test_too_few_answers_of_the_vectorised_form_fail_by_name() -> None:
    states: dict[int, Any] = {}
    outcome = run("execution test.many", states, settings={"lose": 1})
    assert (outcome.replies, states) == ((), {})
    assert outcome.failures[0] == Failure(0, "the vectorised form of task 'execution test.many' gave 3 replies for 4 "
                                          "parties", "correct the task")


def test_columns_are_replies_with_exact_bytes() -> None:
    outcome = run("execution test.columns", payload={"x": 1})
    assert [reply.payload["count"] for reply in outcome.replies] == [1, 1000, 10**6, 10**9]
    assert outcome.replies[2].payload["values"].tolist() == [6.0, 7.0, 8.0]
    for reply in outcome.replies:
        assert reply.bytes_down == len(payloads.encode({"x": 1}))
        assert reply.bytes_up == len(payloads.encode(reply.payload))
    assert outcome.columns is not None
    assert outcome.columns["values"].shape == (4, 3)


def test_stages_see_columns_party_by_party() -> None:
    outcome = run("execution test.columns", stages=(to_plain(Double(fails_at=1)),))
    assert [reply.payload["count"] for reply in outcome.replies] == [2, 2 * 10**6, 2 * 10**9]
    assert [failure.party for failure in outcome.failures] == [1]
    assert outcome.columns is None


def test_a_live_object_in_columns_means_run_alone() -> None:
    CALLS.clear()
    assert len(run("execution test.columns", settings={"wrong": True}).replies) == 4
    assert CALLS == ["alone 0", "alone 1", "alone 2", "alone 3"]


def test_a_state_keeps_no_memory_of_other_parties() -> None:
    states: dict[int, Any] = {}
    model = np.zeros(5)
    run("execution test.columns", states, payload={"model": model})
    assert states[1]["kept"]["values"].tolist() == [3.0, 4.0, 5.0]
    assert states[1]["kept"]["values"].base is None
    assert np.shares_memory(states[1]["kept"]["received"], model)  # one copy of it is enough for all


def test_settings_arrive_as_components() -> None:
    got: list[Deep] = []

    @task("execution test.settings", settings=Deep, reply=Done, reveals=Reveals.NOTHING)
    def look_at_settings(party: Party, payload: Any, settings: Deep) -> Done:
        got.append(settings)
        return {}

    sent = Deep(local=LocalTraining(epochs=3), ids=(1, 2), deep={"local": (LocalTraining(batch=5),)})
    run("execution test.settings", settings=payloads.decode(payloads.encode(look_at_settings.encode(sent))))
    assert got == [sent] * 4


@record
class Deep:
    local: LocalTraining
    ids: tuple[int, ...]
    deep: dict[str, tuple[LocalTraining, ...]]


def test_an_unknown_task_or_setting_stops_the_order() -> None:
    with pytest.raises(ConfigError, match=r"no task 'execution test\.nothing' is installed here"):
        run("execution test.nothing")
    with pytest.raises(ConfigError, match="no such thing"):
        run("execution test.count", settings={"fail": {"$component": ["training", "no such thing"], "parameters": {}}})


@pytest.mark.parametrize(("wrong", "words"), [
    ({"surplus": 1}, "the settings of task 'execution test.count' are wrong: 'surplus'"),
    ({"lose": "many"}, "the settings of task 'execution test.count' are wrong: 'lose'"),
    ({"error": "SystemExit"}, "'error'")])
def test_settings_that_are_not_what_the_task_declares_stop_the_order(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        run("execution test.count", settings=wrong)


def test_settings_that_are_missing_stop_the_order() -> None:
    with pytest.raises(DataError, match=r"task 'execution test\.return' are wrong: 'what' is missing"):
        run("execution test.return")


def test_a_coordinator_cannot_send_the_settings_of_another_task() -> None:
    with pytest.raises(ConfigError, match=r"task 'execution test\.count' takes Trouble, not What"):
        count.encode(What(what="list"))


def test_ctrl_c_is_not_taken_for_a_failing_party() -> None:
    with pytest.raises(KeyboardInterrupt):
        run("execution test.count", settings={"fail": [0], "error": "KeyboardInterrupt"})
