"""Tasks are installed code, found by name."""

from __future__ import annotations

from typing import Any

import pytest

from tequio.errors import ConfigError
from tequio.federation.task import Task, find_task, task


def double(party: Any, payload: dict[str, Any], settings: Any) -> dict[str, Any]:
    return {"twice": 2 * payload["number"]}


def test_a_task_is_found_by_its_name_and_can_be_called() -> None:
    declared = task("task test.double")(double)
    assert find_task("task test.double") is declared
    assert declared(None, {"number": 4}, {}) == {"twice": 8}  # type: ignore[arg-type]
    assert (declared.many, declared.shares_rows) == (None, False)


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
