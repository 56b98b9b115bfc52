"""Tasks are installed code, found by name."""

from __future__ import annotations

from functools import partial
from typing import Any, NotRequired, TypedDict

import numpy as np
import pytest

from tequio.errors import ConfigError, DataError
from tequio.federation import task as tasks
from tequio.federation.payload import Columns
from tequio.federation.task import (
    Count,
    Counts,
    Floats,
    NoSettings,
    Reveals,
    Rows,
    Sums,
    Task,
    fault_of,
    fault_of_columns,
    find_task,
    installed_tasks,
    most_rows,
    record,
)
from tequio.learners.learner import Arrays, LocalTraining


class Twice(TypedDict):
    twice: int


task = partial(tasks.task, settings=NoSettings, reply=Twice, reveals=Reveals.NOTHING)


def double(party: Any, payload: dict[str, Any], settings: Any) -> dict[str, Any]:
    return {"twice": 2 * payload["number"]}


def test_a_task_is_found_by_its_name_and_can_be_called() -> None:
    declared = task("task test.double")(double)
    assert find_task("task test.double") is declared
    assert declared(None, {"number": 4}, NoSettings()) == {"twice": 8}  # type: ignore[arg-type]
    assert (declared.many, declared.reveals) == (None, Reveals.NOTHING)


def test_a_task_may_have_a_vectorised_form() -> None:
    def many(parties: Any, payloads: Any, settings: Any) -> list[dict[str, Any]]:
        return [double(party, payload, settings) for party, payload in zip(parties, payloads, strict=True)]

    assert task("task test.many", many=many)(double).many is many


def test_the_same_module_may_declare_a_task_again() -> None:
    task("task test.again")(double)
    assert task("task test.again")(double) is find_task("task test.again")


def test_two_modules_may_not_claim_one_name() -> None:
    def stranger(party: Any, payload: Any, settings: Any) -> dict[str, Any]:
        return {}

    stranger.__module__ = "somebody.elses"
    task("task test.claimed")(double)
    with pytest.raises(ConfigError, match=r"two tasks claim the name 'task test.claimed'.*somebody.elses"):
        task("task test.claimed")(stranger)
    assert find_task("task test.claimed").run is double


def test_an_unknown_task_is_refused_with_the_nearest_name() -> None:
    task("task test.double")(double)
    with pytest.raises(ConfigError, match=r"is installed here; did you mean 'task test.double'"):
        find_task("task test.duoble")


def test_tasks_of_the_package_are_found_without_importing_them_first() -> None:
    assert isinstance(find_task("evaluate"), Task)


@pytest.mark.parametrize("left_out", ["settings", "reply", "reveals"])
def test_a_task_says_what_it_takes_gives_and_reveals(left_out: str) -> None:
    declared = {"settings": NoSettings, "reply": Twice, "reveals": Reveals.NOTHING}
    with pytest.raises(TypeError, match=left_out):
        tasks.task("task test.silent", **{name: what for name, what in declared.items() if name != left_out})


def test_every_installed_task_says_what_it_takes_gives_and_reveals() -> None:
    for known in installed_tasks():
        assert known.settings.__dataclass_params__.frozen, known.name
        assert isinstance(known.reveals, Reveals | Sums), known.name
        assert isinstance(known.reply, type) or known.reply.__origin__ is dict, known.name


class Whole(TypedDict):
    update: Arrays
    rows: Count
    steps: int
    loss: float
    name: str
    sure: bool
    values: np.ndarray
    parts: list[int]
    buffers: NotRequired[Arrays]
    seen: int | None
    table: NotRequired[dict[str, Any]]
    packed: NotRequired[bytes]
    mask: NotRequired[np.ndarray | None]
    any: NotRequired[Any]


def whole(**other: Any) -> dict[str, Any]:
    return {"update": {"w": np.zeros(2)}, "rows": 3, "steps": 1, "loss": 0.5, "name": "ana", "sure": True,
            "values": np.zeros(3), "parts": [1], "seen": None} | other


@pytest.mark.parametrize("more", [
    {}, {"rows": 0}, {"loss": 1}, {"buffers": {"mean": np.zeros(1)}}, {"seen": 4}, {"steps": -1}, {"parts": ()},
    {"table": {"a": 1}}, {"packed": b"x"}, {"mask": None}, {"mask": np.zeros(1)}, {"any": object()}])
def test_a_sound_reply_is_sound(more: dict[str, Any]) -> None:
    assert fault_of(Whole, whole(**more)) == ""
    assert fault_of(Whole, whole(**more), withheld=frozenset()) == ""


@pytest.mark.parametrize(("more", "words"), [
    ({"rows": -1}, "'rows' of its reply is not a whole number from 0 upwards"),
    ({"rows": 2.0}, "'rows' of its reply is not a whole number from 0 upwards"),
    ({"rows": True}, "'rows' of its reply is not a whole number"), ({"steps": "1"}, "'steps' of its reply is not"),
    ({"loss": "low"}, "'loss' of its reply is not a number"), ({"loss": None}, "'loss' of its reply is not a number"),
    ({"name": 1}, "'name' of its reply is not a text"), ({"sure": 1}, "'sure' of its reply is not true or false"),
    ({"seen": "x"}, "'seen' of its reply is not a whole number or nothing"),
    ({"packed": "x"}, "'packed' of its reply is not bytes")])
def test_a_plain_value_of_the_wrong_kind_is_found_with_and_without_stages(more: dict[str, Any], words: str) -> None:
    assert words in fault_of(Whole, whole(**more))
    assert words in fault_of(Whole, whole(**more), withheld=frozenset())


@pytest.mark.parametrize(("more", "words"), [
    ({"update": {"w": [0.0]}}, "'update' of its reply is not named arrays"), ({"update": np.zeros(2)}, "'update'"),
    ({"values": [0.0]}, "'values' of its reply is not an array"), ({"parts": {}}, "'parts' of its reply is not a list"),
    ({"buffers": 1}, "'buffers' of its reply is not named arrays"),
    ({"table": 1}, "'table' of its reply is not a table"),
    ({"mask": 1}, "'mask' of its reply is not an array or nothing"),
    ({"surplus": 1}, "its reply has an entry 'surplus' that this task does not give")])
def test_stages_may_change_the_form_of_arrays_and_add_entries(more: dict[str, Any], words: str) -> None:
    assert words in fault_of(Whole, whole(**more))
    assert fault_of(Whole, whole(**more), withheld=frozenset()) == ""


@pytest.mark.parametrize("key", ["update", "rows", "seen"])
def test_a_missing_entry_is_found_with_and_without_stages(key: str) -> None:
    content = whole()
    del content[key]
    assert fault_of(Whole, content) == fault_of(Whole, content, withheld=frozenset()) == f"its reply has no '{key}'"


@pytest.mark.parametrize("content", [None, [1], np.zeros(2)])
def test_what_is_no_payload_at_all_is_a_fault_too(content: Any) -> None:
    assert fault_of(Whole, content) == f"a payload is a dict of names, not a {type(content).__name__}"


class Pair(TypedDict):
    rows: Count
    update: Arrays


def test_columns_are_looked_at_without_going_through_the_parties() -> None:
    sound = {"rows": [1, 2], "update": {"w": np.zeros((2, 3))}}
    assert not fault_of_columns(Pair, sound)
    assert Columns(sound, 2)[1]["rows"] == 2
    for wrong in ({"rows": [1, -2]}, {"more": [1, 1]}):
        assert fault_of_columns(Pair, {**sound, **wrong})
    assert fault_of_columns(Pair, {"rows": [1, 2]})


class Bounded(TypedDict):
    rows: Rows
    counts: NotRequired[Counts]
    update: NotRequired[Floats]
    names: NotRequired[list[str]]
    pair: NotRequired[Pair]


@pytest.mark.parametrize(("more", "words"), [
    ({"rows": 40}, ""), ({"rows": 41}, "'rows' of its reply is 41, but the party reported 40 rows"),
    ({"counts": np.array([0, 40])}, ""), ({"counts": np.array([[41]])}, "'counts' of its reply is 41, but"),
    ({"counts": np.array([-1])}, "an array of int64 from 0 upwards"), ({"counts": np.zeros(2)}, "an array of int64"),
    ({"counts": np.zeros(0, np.int64)}, ""), ({"update": {"w": np.zeros(2, np.float16)}}, ""),
    ({"update": {"w": np.zeros(2, np.int8)}}, "named arrays of floats"), ({"names": ["a", "b"]}, ""),
    ({"names": ["a", 1]}, "a list, of which each is a text"), ({"rows": 1 << 60}, "9007199254740992 at most"),
    ({"pair": {"rows": 1, "update": {}}}, ""), ({"pair": {"rows": -1, "update": {}}}, "'pair' of its reply is not")])
def test_what_is_declared_bounds_a_reply(more: dict[str, Any], words: str) -> None:
    found = fault_of(Bounded, {"rows": 1, **more}, rows=40)
    assert words in found if words else not found


def test_at_the_party_and_behind_stages_less_is_held_against_a_reply() -> None:
    assert not fault_of(Bounded, {"rows": 41})
    assert not fault_of(Bounded, {"rows": 40, "counts": np.array([-9])}, withheld=frozenset(), rows=40)
    assert fault_of(Bounded, {"rows": 41}, withheld=frozenset(), rows=40)


def test_columns_are_held_against_the_rows_of_their_parties() -> None:
    assert not fault_of_columns(Bounded, {"rows": [1, 40]}, np.array([1, 40]))
    assert fault_of_columns(Bounded, {"rows": [2, 40]}, np.array([1, 40]))
    assert not fault_of_columns(Bounded, {"rows": [2, 40]})


def test_counts_may_be_of_rows_that_a_policy_rounded_away() -> None:
    assert [most_rows(reported) for reported in (1, 57, 100, 1200)] == [1 << 53, 57, 199, 1299]
    assert not fault_of(Bounded, {"rows": 100, "counts": np.array([199])}, rows=100)
    assert fault_of(Bounded, {"rows": 101}, rows=100)


@record
class Timed:
    local: LocalTraining
    rates: tuple[float, ...] = ()


def test_settings_cross_as_plain_data_and_come_back_the_same() -> None:
    declared = task("task test.timed", settings=Timed)(double)
    sent = Timed(local=LocalTraining(epochs=4), rates=(0.5, 1.0))
    plain = declared.encode(sent)
    assert plain["rates"] == [0.5, 1.0]
    assert isinstance(plain["local"], dict)
    assert declared.decode(plain) == sent
    with pytest.raises(ConfigError, match=r"task 'task test.timed' takes Timed, not NoSettings"):
        declared.encode(NoSettings())
    for wrong in ({}, {**plain, "rates": "fast"}, {**plain, "surplus": 1}, {**plain, "local": 3}):
        with pytest.raises(DataError, match=r"the settings of task 'task test.timed' are wrong"):
            declared.decode(wrong)


def test_what_a_stage_withholds_need_not_come() -> None:
    content = whole()
    del content["update"]
    assert fault_of(Whole, content, withheld=frozenset({"update"})) == ""
    assert fault_of(Whole, {**content, "rows": -1}, withheld=frozenset({"update"})) != ""
