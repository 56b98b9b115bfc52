from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.ways import Way, distance, length, mean, updates
from tequio.federation.exchange import Replies, Reply
from tequio.privacy.compression.quantise import Quantise, packed, unpacked


@given(st.lists(st.integers(0, 255), min_size=1, max_size=40), st.sampled_from([8, 4, 2, 1]))
def test_packing_keeps_every_code(values: list[int], bits: int) -> None:
    codes = (np.array(values) % (1 << bits)).astype(np.uint8)
    data = packed(codes, bits)
    assert len(data) == -(-len(values) * bits // 8)
    np.testing.assert_array_equal(unpacked(data, bits, len(values)), codes)


def test_levels_by_hand() -> None:
    values = np.array([0.0, 0.4, 0.6, 3.0] * 2, dtype=np.float32)
    back = Way(Quantise(bits=2, rounding="nearest", block=8)).carry([{"w": values}])[0]["w"]
    np.testing.assert_array_equal(back, [0, 0, 1, 3] * 2)


def test_one_bit_to_the_nearest_is_the_sign_times_the_mean_size() -> None:
    values = np.array([1.0, -3.0, 5.0, -7.0, 1, 1, 1, 1, 2, -4], dtype=np.float32)
    back = Way(Quantise(bits=1, rounding="nearest", block=8)).carry([{"w": values}])[0]["w"]
    np.testing.assert_array_equal(back, [2.5, -2.5, 2.5, -2.5, 2.5, 2.5, 2.5, 2.5, 3, -3])


@pytest.mark.parametrize(("bits", "bound"), [(8, 0.001), (4, 0.01), (2, 0.05), (1, 0.2)])
def test_stochastic_levels_are_right_on_average(bits: int, bound: float) -> None:
    way, one = Way(Quantise(bits=bits)), updates(1)[0]
    assert distance(mean([way.carry([one])[0] for _ in range(400)]), one) < bound * length(one)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2 ** 32 - 1), st.sampled_from([8, 4, 2]), st.integers(1, 700))
def test_no_entry_moves_by_more_than_a_level(seed: int, bits: int, size: int) -> None:
    values = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    back = Way(Quantise(bits=bits)).carry([{"w": values}])[0]["w"]
    step = (values.max() - values.min()) / ((1 << bits) - 1)
    assert np.abs(back - values).max() <= step * 1.001 + 1e-6


def test_one_bit_with_feedback_loses_nothing_in_the_long_run() -> None:
    way, one = Way(Quantise(bits=1, rounding="nearest", error_feedback=True)), updates(1)[0]
    assert distance(mean([way.carry([one])[0] for _ in range(100)]), one) < 0.1 * length(one)
    biased = Way(Quantise(bits=1, rounding="nearest"))
    assert distance(mean([biased.carry([one])[0] for _ in range(100)]), one) > 0.5 * length(one)


@pytest.mark.parametrize("bits", [8, 4, 2, 1])
def test_bytes_shrink_with_the_bits(bits: int) -> None:
    way = Way(Quantise(bits=bits))
    way.carry([{"w": np.random.default_rng(0).standard_normal(100_000).astype(np.float32)}])
    assert abs(way.bytes_up - (100_000 * bits / 8 + 8 * 391)) < 600


def test_equal_entries_and_single_ones_come_back_exactly() -> None:
    for values in ([0.0] * 300, [2.5] * 300, [7.0]):
        back = Way(Quantise(bits=4)).carry([{"w": np.float32(values)}])[0]["w"]
        np.testing.assert_array_equal(back, np.float32(values))


@pytest.mark.parametrize("change", [{"codes": np.zeros(3, dtype=np.uint8)}, {"low": np.zeros(9, dtype=np.float32)},
                                    {"layout": [["w", "<f4", [10 ** 13]]]}, {"step": None}])
def test_a_forged_reply_is_the_failure_of_its_party(change: dict[str, Any]) -> None:
    way = Way(Quantise())
    good = way.sent(0, {"update": updates(1)[0]})
    replies = way.stages[0].receive(Replies((Reply(4, {"update": {**good["update"], **change}}),)), 1, 0)
    assert [failure.party for failure in replies.failures] == [4]


def test_parties_round_by_streams_of_their_own() -> None:
    one = updates(1)[0]
    first, second = Way(Quantise(bits=1)).carry([one, one])
    assert (first["weight"] != second["weight"]).any()
    again, _ = Way(Quantise(bits=1)).carry([one, one])
    np.testing.assert_array_equal(first["weight"], again["weight"])
