from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privacy.ways import Way, distance, length, mean, updates
from tequio.federation.exchange import Replies, Reply
from tequio.federation.population import state_name
from tequio.privacy.compression.sparse import RandomK, TopK, kept
from tequio.privacy.updates import Residuals


def vector(*values: float) -> dict[str, np.ndarray]:
    return {"w": np.array(values, dtype=np.float32)}


def test_the_largest_entries_cross_and_the_rest_waits_for_the_next_round() -> None:
    way = Way(TopK(fraction=0.5))
    np.testing.assert_array_equal(way.carry([vector(5, -1, 0.75, -9)])[0]["w"], [5, 0, 0, -9])
    # -1 - 1 and 0.75 + 0.5 are now larger than the new first entry
    np.testing.assert_array_equal(way.carry([vector(0.1, -1, 0.5, 0)])[0]["w"], [0, -2, 1.25, 0])
    np.testing.assert_allclose(way.states[0][state_name(Residuals)]["left"]["top-k update"], [0.1, 0, 0, 0], rtol=1e-6)


def test_without_feedback_what_is_left_out_is_lost() -> None:
    way = Way(TopK(fraction=0.5, error_feedback=False))
    way.carry([vector(5, -1, 0.75, -9)])
    np.testing.assert_array_equal(way.carry([vector(0.1, -1, 0.5, 0)])[0]["w"], [0, -1, 0.5, 0])
    assert way.states[0] == {}


def test_error_feedback_loses_nothing_in_the_long_run() -> None:
    way, rounds, one = Way(TopK(fraction=0.1)), 60, updates(1)[0]
    total = mean([way.carry([one])[0] for _ in range(rounds)])
    assert distance(total, one) < 0.25 * length(one)


def test_random_places_are_right_on_average_and_the_same_at_all_parties() -> None:
    way, one = Way(RandomK(fraction=0.25)), updates(1)[0]
    first, second = way.carry([one, one])
    np.testing.assert_array_equal(first["weight"], second["weight"])
    rounds = [way.carry([one])[0] for _ in range(400)]
    assert distance(mean(rounds), one) < 0.12 * length(one)
    assert {int((update["weight"] != 0).sum() + (update["bias"] != 0).sum()) for update in rounds} == {round(1230 / 4)}


@pytest.mark.parametrize(("stage", "bytes_each"), [(TopK(fraction=0.1), 8), (RandomK(fraction=0.1), 4)])
def test_bytes_are_those_of_what_is_kept(stage: Any, bytes_each: int) -> None:
    way = Way(stage)
    way.carry(updates(1))
    assert abs(way.bytes_up - bytes_each * 123) < 350


def test_shapes_and_types_come_back() -> None:
    update = {"a": np.ones((2, 3, 4)), "b": np.float32([1.0]), "c": np.ones(3, dtype=np.float16)}
    for stage in (TopK(fraction=1.0), RandomK(fraction=1.0)):
        back = Way(stage).carry([update])[0]
        for name, values in update.items():
            assert back[name].dtype == values.dtype
            np.testing.assert_array_equal(back[name], values)


def test_at_least_one_entry_is_kept() -> None:
    assert [kept(size, 0.01) for size in (1, 10, 1000)] == [1, 1, 10]


@pytest.mark.parametrize("change", [
    {"gaps": np.array([0, 9], dtype=np.uint32)}, {"gaps": np.array([1, 0], dtype=np.uint32)},
    {"values": np.ones(3, dtype=np.float32)}, {"layout": [["w", "<f4", [1 << 40]]]}, {"layout": [["w", "|O", [4]]]},
    {"layout": [["w", "<f4", [-4]]]}, {"layout": "nonsense"}, {"values": "none"},
])
def test_a_forged_reply_is_the_failure_of_its_party(change: dict[str, Any]) -> None:
    way = Way(TopK(fraction=0.5))
    good = way.sent(0, {"update": vector(5, -1, 0.75, -9)})
    bad = {"update": {**good["update"], **change}}
    replies = way.stages[0].receive(Replies((Reply(0, good), Reply(1, bad))), 1, 0)
    assert replies.parties.tolist() == [0]
    assert [failure.party for failure in replies.failures] == [1]
    assert replies.failures[0].cause


def test_replies_without_updates_pass() -> None:
    replies = Replies((Reply(0, {"rows": 3, "counts": np.arange(3)}),))
    for stage in (TopK(), RandomK()):
        assert stage.receive(replace(replies), 1, 0)[0].payload["rows"] == 3
