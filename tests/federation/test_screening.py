"""Updates that cannot be used: refused with the name of their party, while the round goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition
from tequio.engines.inline import InlineEngine
from tequio.errors import PartyError, QuorumError
from tequio.federation.algorithm import State
from tequio.federation.averaging import Averaging, aggregate
from tequio.federation.exchange import Replies, Reply
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population

MODEL = {"w": np.zeros(3)}


class Plain(Averaging):
    def round(self, federation: Any, state: State) -> State:
        return state


class World:
    def __init__(self, **rules: Any) -> None:
        dataset = Dataset.of(Schema.of_numbers(["x"], Target("number")), np.zeros((4, 1)), np.zeros(4))
        names = ("ana", "ben", "eva", "leo")
        population = Population(dataset, Partition(np.arange(4), np.arange(5), names))
        engine = InlineEngine()
        engine.open(population)
        self.events: list[Any] = []
        self.federation = Federation(population, engine, rules=Rules(**rules),
                                     record=lambda kind, facts: self.events.append((kind, facts)))
        self.memory: Any = {}

    def aggregate(self, *updates: Any) -> Any:
        replies = Replies(tuple(Reply(party, {"update": update}) for party, update in enumerate(updates)))
        state = State(MODEL, {"aggregator": self.memory})
        combined = aggregate(Plain(learner=Any), self.federation, state, replies, MODEL)
        self.memory = combined.memory
        return combined.update["w"]

    def refused(self) -> list[str]:
        return [facts["party"] for kind, facts in self.events if kind == "failure"]


def w(*values: float) -> dict[str, Any]:
    return {"w": np.array(values, dtype=np.float64)}


@pytest.mark.parametrize("wrong", [w(1, 2), {"v": np.ones(3)}, np.ones(3), None, {}])
def test_a_misshapen_update_is_left_out_by_name(wrong: Any) -> None:
    world = World(on_failure="continue")
    np.testing.assert_array_equal(world.aggregate(w(1, 1, 1), wrong, w(3, 3, 3)), [2, 2, 2])
    assert world.refused() == ["ben"]


def test_by_default_it_stops_the_run_and_says_whose_it_was() -> None:
    with pytest.raises(PartyError, match=r"party 'ben'.*does not fit the model"):
        World().aggregate(w(1, 1, 1), w(1, 2))


def test_a_huge_update_is_left_out() -> None:
    world = World(on_failure="continue", largest_update=5.0)
    np.testing.assert_allclose(world.aggregate(w(1, 0, 0), w(1, 0, 0), w(0, 4, 0), w(0, 0, 900)), [2 / 3, 4 / 3, 0])
    assert world.refused() == ["leo"]
    assert "norm of 900" in world.events[0][1]["cause"]


def test_a_replayed_update_is_left_out_whoever_sent_it_first() -> None:
    world = World(on_failure="continue", replays="refuse")
    np.testing.assert_array_equal(world.aggregate(w(1, 2, 3), w(3, 2, 1)), [2, 2, 2])
    np.testing.assert_array_equal(world.aggregate(w(5, 5, 5), w(1, 2, 3), w(0, 0, 0)), [2.5, 2.5, 2.5])
    np.testing.assert_array_equal(world.aggregate(w(0, 0, 0), w(5, 5, 4), w(5, 5, 5)), [2.5, 2.5, 2])
    assert world.refused() == ["ben", "eva"]


def test_equal_updates_of_one_round_are_no_replay() -> None:
    world = World(replays="refuse")
    np.testing.assert_array_equal(world.aggregate(w(1, 2, 3), w(1, 2, 3)), [1, 2, 3])


def test_where_all_are_refused_the_quorum_decides() -> None:
    with pytest.raises(QuorumError, match="0 of 2 parties"):
        World(on_failure="continue").aggregate(w(1), w(2))
    np.testing.assert_array_equal(World(on_failure="continue", quorum=0.0).aggregate(w(1), w(2)), [0, 0, 0])


def test_nothing_is_remembered_unless_asked_for() -> None:
    world = World()
    world.aggregate(w(1, 2, 3))
    assert world.memory == {}
