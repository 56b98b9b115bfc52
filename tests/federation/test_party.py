"""A party: its own rows and streams while its task runs, nothing afterwards."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.errors import DataError, PermissionDenied
from tequio.federation.population import Party, Population
from tequio.federation.rng import stream


def population(split: Split | None = None, **extra: object) -> Population:
    dataset = Dataset.of(Schema.of_numbers(["a"], Target("classes", ("no", "yes"))), np.arange(40.0)[:, None],
                         np.arange(40) % 2)
    rows = [np.arange(party * 10, party * 10 + 10) for party in range(4)]
    return Population(dataset, Partition.of(rows, names=("ana", "ben", "eva", "max")), split or Split(0.2, 0.3), seed=5,
                      **extra)


def test_a_party_sees_its_own_rows_only() -> None:
    home = population()
    for index, start in enumerate(range(0, 40, 10)):
        data = Party(index, 1, {}, home).data
        parts = [part.features[:, 0] for part in (data.train, data.validation, data.test)]
        assert [len(part) for part in parts] == [5, 2, 3]
        assert sorted(np.concatenate(parts).tolist()) == list(range(start, start + 10))


def test_a_partys_split_is_its_own_and_never_changes() -> None:
    first, again = population(), population()
    rows = [Party(1, round, {}, home).data.train.features.tolist() for home in (first, again) for round in (1, 9)]
    assert rows[0] == rows[1] == rows[2] == rows[3]
    offsets = {tuple((Party(index, 1, {}, first).data.test.features[:, 0] % 10).tolist()) for index in range(4)}
    assert len(offsets) > 1


def test_without_a_split_all_rows_are_for_training() -> None:
    data = Party(2, 1, {}, population(Split(0.0, 0.0))).data
    assert (len(data.train), len(data.validation), len(data.test)) == (10, 0, 0)


def test_streams_depend_on_party_round_and_purpose() -> None:
    home = population()
    assert Party(1, 4, {}, home).rng("train").random() == stream(5, "train", 4, 1).random()
    draws = {Party(party, round, {}, home).rng(purpose).random()
             for party in (0, 1) for round in (1, 2) for purpose in ("train", "noise")}
    assert len(draws) == 8


def test_names_and_own_settings() -> None:
    home = population(overrides={2: {"local": {"epochs": 7}}})
    assert Party(2, 1, {}, home).name == "eva"
    assert Party(2, 1, {}, home).settings == {"local": {"epochs": 7}}
    assert Party(1, 1, {}, home).settings == {}
    assert home.index("eva") == 2
    with pytest.raises(DataError, match="no party called 'bob'"):
        home.index("bob")


def test_nothing_can_be_added_to_a_party_but_its_state() -> None:
    party = Party(0, 1, {}, population())
    with pytest.raises(AttributeError):
        party.stash = party.data  # type: ignore[attr-defined]


def test_after_the_task_the_state_stays_and_the_data_is_gone() -> None:
    party = Party(0, 1, {"kept": 1}, population())
    party.leave()
    assert party.state == {"kept": 1}
    with pytest.raises(PermissionDenied, match="party 0 can only be reached from a task that runs there"):
        _ = party.data


def test_unnamed_parties_are_called_by_number() -> None:
    dataset = Dataset.of(Schema.of_numbers(["a"], Target("none")), np.zeros((3, 1)))
    home = Population(dataset, Partition.of([np.array([0]), np.array([1, 2])]))
    assert home.name(1) == "1"
    assert home.index("1") == 1
    for wrong in ("2", "-1", "x"):
        with pytest.raises(DataError, match="there are 2 parties"):
            home.index(wrong)


class Memory(TypedDict, total=False):
    count: int
    name: str


class Other(TypedDict, total=False):
    count: int


def test_what_a_party_keeps_lies_under_its_type() -> None:
    party = Party(0, 1, {}, population())
    assert party.recall(Memory) == {}
    party.keep(Memory, {"count": 1, "name": "ana"})
    party.keep(Other, {"count": 7})
    before = party.recall(Memory)
    party.keep(Memory, {"count": 2})
    assert party.recall(Memory) == {"count": 2, "name": "ana"}
    assert before == {"count": 1, "name": "ana"}  # replaced, not changed in place: a failing task leaves it as it was
    assert party.recall(Other) == {"count": 7}
    party.forget(Memory)
    party.forget(Memory)
    assert (party.recall(Memory), party.recall(Other)) == ({}, {"count": 7})


def test_a_party_that_pretends_still_knows_its_own_rows() -> None:
    party = Party(1, 1, {}, population())
    own, others = party.data, population().view(2)
    party.pretend(others)
    assert party.data is others
    assert party.own is own
