from __future__ import annotations

import numpy as np
import pytest

from privacy.ways import Way, distance, length, mean, updates
from tequio.federation.exchange import Replies, Reply
from tequio.privacy.compression.low_rank import LowRank


def test_a_matrix_of_that_rank_comes_back() -> None:
    draw = np.random.default_rng(0)
    matrix = (draw.standard_normal((50, 2)) @ draw.standard_normal((2, 40))).astype(np.float32)
    update = {"w": matrix, "b": np.arange(40, dtype=np.float32), "small": np.ones((2, 2), dtype=np.float32)}
    back = Way(LowRank(rank=2)).carry([update])[0]
    for name, values in update.items():
        np.testing.assert_allclose(back[name], values, atol=1e-4)


def test_many_steps_find_the_best_factors() -> None:
    matrix = np.random.default_rng(1).standard_normal((30, 20)).astype(np.float32)
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    back = Way(LowRank(rank=3, iterations=100, error_feedback=False)).carry([{"w": matrix}])[0]["w"]
    np.testing.assert_allclose(back, (left[:, :3] * sizes[:3]) @ right[:3], atol=1e-3)


def test_feedback_loses_nothing_in_the_long_run() -> None:
    way, one = Way(LowRank(rank=2)), updates(1)[0]
    assert distance(mean([way.carry([one])[0] for _ in range(80)]), one) < 0.2 * length(one)


def test_convolutions_are_matrices_with_a_row_a_filter() -> None:
    update = {"conv": np.random.default_rng(0).standard_normal((32, 16, 3, 3)).astype(np.float32)}
    way = Way(LowRank(rank=4))
    assert way.carry([update])[0]["conv"].shape == (32, 16, 3, 3)
    assert abs(way.bytes_up - 4 * 4 * (32 + 144)) < 300


@pytest.mark.parametrize("change", [{"left weight": np.ones((3, 2), dtype=np.float32)},
                                    {"shapes": {"weight": ["<f4", [1 << 20, 1 << 20]]}},
                                    {"right weight": 4}])
def test_a_forged_reply_is_the_failure_of_its_party(change: dict[str, object]) -> None:
    way = Way(LowRank(rank=2))
    good = way.sent(0, {"update": updates(1)[0]})
    replies = way.stages[0].receive(Replies((Reply(4, {"update": {**good["update"], **change}}),)), 1, 0)
    assert [failure.party for failure in replies.failures] == [4]


def test_an_update_of_noughts_stays_one() -> None:
    nought = {"w": np.zeros((20, 20), dtype=np.float32)}
    way = Way(LowRank(rank=2))
    assert not way.carry([nought])[0]["w"].any()
    draw = np.random.default_rng(0)
    matrix = (draw.standard_normal((20, 1)) @ draw.standard_normal((1, 20))).astype(np.float32)
    np.testing.assert_allclose(way.carry([{"w": matrix}])[0]["w"], matrix, atol=1e-4)
