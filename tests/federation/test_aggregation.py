"""Updates and the mean: hand-worked, against numpy, in party order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.errors import DataError
from tequio.federation.aggregation import Aggregator, Combined, Mean, Updates


def updates(seed: int, count: int) -> Updates:
    rng = np.random.default_rng(seed)
    arrays = [{"w": rng.standard_normal((2, 3)), "b": rng.standard_normal(2)} for _ in range(count)]
    return Updates(np.arange(count) * 3, arrays, rng.random(count) + 0.1)


def test_the_mean_by_hand() -> None:
    given_updates = Updates(np.array([0, 1]), [{"w": np.array([1.0, 0.0])}, {"w": np.array([4.0, 3.0])}],
                            np.array([10.0, 20.0]))
    assert Mean().combine(given_updates, {}) == Combined({"w": pytest.approx(np.array([3.0, 2.0]))})


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 20))
def test_the_mean_equals_numpys(seed: int, count: int) -> None:
    given_updates = updates(seed, count)
    mean = Mean().combine(given_updates, {})
    for name in ("w", "b"):
        expected = np.average([update[name] for update in given_updates.arrays], axis=0, weights=given_updates.weights)
        np.testing.assert_allclose(mean.update[name], expected, rtol=1e-12, atol=1e-14)
    assert (mean.memory, mean.notes) == ({}, {})


def test_equal_weights_are_the_plain_mean_bit_for_bit() -> None:
    """Of a power of two of parties, whose shares have no rounding."""
    given_updates = Updates(np.arange(8), [{"w": np.random.default_rng(i).random(5)} for i in range(8)], np.ones(8))
    total = np.zeros(5)
    for update in given_updates.arrays:
        total += update["w"] / 8
    np.testing.assert_array_equal(Mean().combine(given_updates, {}).update["w"], total)


def test_no_weight_at_all_is_an_error() -> None:
    with pytest.raises(DataError, match="weights of 3 updates"):
        Mean().combine(Updates(np.arange(3), updates(0, 3).arrays, np.zeros(3)), {})


def test_updates_as_a_matrix_and_in_part() -> None:
    given_updates = updates(1, 4)
    assert len(given_updates) == 4
    matrix = given_updates.matrix()
    assert matrix.shape == (4, 8)
    np.testing.assert_array_equal(matrix[2], np.concatenate([given_updates.arrays[2]["w"].ravel(),
                                                             given_updates.arrays[2]["b"]]))
    part = given_updates.part(np.array([3, 1]))
    assert part.parties.tolist() == [9, 3]
    assert part.weights.tolist() == given_updates.weights[[3, 1]].tolist()
    assert part.arrays[0] is given_updates.arrays[3]


def test_the_mean_is_an_aggregator_and_linear() -> None:
    assert isinstance(Mean(), Aggregator)
    assert Mean().linear
