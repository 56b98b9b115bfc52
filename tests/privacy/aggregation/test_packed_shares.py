"""Packed sharing: what is needed gives the secrets, what may be corrupt tells nothing, and wrong values are found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.errors import ConfigError
from tequio.privacy.aggregation.packed_shares import PRIME, Packing, _solved, lagrange, uniform

SECRETS = np.random.default_rng(5).integers(-40, 41, 100)


def by_whole_numbers(known: list[int], values: list[int], at: int) -> int:
    """Lagrange's formula for one point, with Python's integers."""
    total = 0
    for place, point in enumerate(known):
        above = below = 1
        for other, elsewhere in enumerate(known):
            if other != place:
                above, below = above * (at - elsewhere) % PRIME, below * (point - elsewhere) % PRIME
        total += values[place] * above * pow(below, -1, PRIME)
    return total % PRIME


def test_shares_are_values_of_the_polynomial_through_the_secrets() -> None:
    packing = Packing(holders=7, needed=5, corrupt=2)
    shares = packing.shared(np.array([3, -1, 4]))
    assert shares.shape == (7, 1)
    column = shares[:, 0].tolist()
    assert [by_whole_numbers([1, 2, 3, 4, 5], column[:5], at) for at in (6, 7)] == column[5:]
    assert [by_whole_numbers([1, 2, 3, 4, 5], column[:5], at) for at in (-1, -2, -3)] == [3, PRIME - 1, 4]


@settings(deadline=None, max_examples=25)
@given(st.integers(3, 30), st.data())
def test_any_that_are_needed_give_the_sum(holders: int, data: st.DataObject) -> None:
    needed = data.draw(st.integers(2, holders))
    packing = Packing(holders, needed, data.draw(st.integers(1, needed - 1)))
    summed = (packing.shared(SECRETS, 3) + packing.shared(2 * SECRETS, 3)) % PRIME
    points = data.draw(st.permutations(range(1, holders + 1)))[:needed]
    columns = packing.polynomials(len(SECRETS))
    found = packing.recovered(points, summed[np.array(points) - 1, :columns], len(SECRETS))
    np.testing.assert_array_equal(found, 3 * SECRETS)


def test_what_may_be_corrupt_learns_nothing() -> None:
    """For any secrets, each set of shares comes from exactly one choice of random values: the matrix is invertible."""
    packing = Packing(holders=20, needed=13, corrupt=5)
    draw = np.random.default_rng(1)
    for _ in range(50):
        corrupt = np.sort(draw.choice(20, 5, replace=False))
        weights = lagrange(range(-1, -14, -1), range(1, 21))[corrupt, packing.secrets:]
        for place in range(5):
            unit = np.zeros((5, 1), np.int64)
            unit[place] = 1
            assert _solved(np.concatenate([weights, unit], axis=1)) is not None


def test_one_share_too_few_leaves_the_polynomial_open() -> None:
    packing = Packing(holders=9, needed=6, corrupt=3)
    shares = packing.shared(SECRETS)
    short = Packing(holders=9, needed=5, corrupt=2)
    assert (short.recovered(range(1, 6), shares[:5], 100) != SECRETS).mean() > 0.9


@pytest.mark.parametrize("wrong", [[], [0], [7, 2], [1, 4, 11]])
def test_wrong_values_are_found_where_enough_are_right(wrong: list[int]) -> None:
    packing = Packing(holders=13, needed=7, corrupt=3)
    values = packing.shared(SECRETS)[:, 0]
    values[wrong] = (values[wrong] + 1 + np.arange(len(wrong))) % PRIME
    assert packing.inconsistent(range(1, 14), values[:, None]).tolist() == [bool(wrong)]
    assert packing.wrong(range(1, 14), values) == sorted(wrong)
    assert packing.wrong(range(1, 14), uniform((13,))) is None


def test_a_polynomial_of_too_high_a_degree_is_noticed() -> None:
    packing = Packing(holders=13, needed=7, corrupt=3)
    higher = Packing(holders=13, needed=8, corrupt=4).shared(SECRETS)
    assert packing.inconsistent(range(1, 14), higher).all()
    assert packing.wrong(range(1, 14), higher[:, 0]) is None


def test_sharings_that_would_hide_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot hide"):
        Packing(holders=5, needed=3, corrupt=3)
