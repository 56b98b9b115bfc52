"""Digits of many parties add up to the digits of their sum, exactly and whatever the order."""

from __future__ import annotations

from fractions import Fraction
from math import fsum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.errors import DataError
from tequio.federation.fixed_point import ERROR, LARGEST_DIGITS, digits_of, number_of_digits, numbers_of_digits

WHOLE = st.integers(-(2**53) + 1, 2**53 - 1)
REAL = st.floats(-(2.0**61), 2.0**61)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.lists(WHOLE, min_size=3, max_size=3), min_size=1, max_size=6), parties=st.integers(6, 5000))
def test_whole_numbers_are_exact(values, parties):
    digits = [digits_of(np.array(own, dtype=np.int64), parties) for own in values]
    assert all(np.abs(one).max() * parties < LARGEST_DIGITS for one in digits)
    total = numbers_of_digits(np.sum(digits, axis=0), np.dtype(np.int64), parties)
    assert total.tolist() == [sum(column) for column in zip(*values, strict=True)]


@settings(max_examples=100, deadline=None)
@given(values=st.lists(REAL, min_size=1, max_size=6), parties=st.integers(6, 5000))
def test_numbers_in_double_precision_are_within_the_stated_error(values, parties):
    digits = [digits_of(np.array([own]), parties) for own in values]
    assert len(digits[0]) == number_of_digits(np.dtype(np.float64), 1, parties)
    assert all(np.abs(one).max() * parties < LARGEST_DIGITS for one in digits)
    (total,) = numbers_of_digits(np.sum(digits, axis=0), np.dtype(np.float64), parties).tolist()
    exact = sum(map(Fraction, values))
    assert abs(Fraction(total) - exact) <= len(values) * ERROR + abs(exact) * 2.0**-53
    if all(value == 0 or abs(value) >= 2.0**-9 for value in values):
        assert total == fsum(values)


def test_what_there_is_no_room_for_is_refused():
    with pytest.raises(DataError, match=r"is 4\.61e\+18, and hidden sums have room for 4\.61e\+18"):
        digits_of(np.array([2.0**62]), 20)
    with pytest.raises(DataError, match="room for 9"):
        digits_of(np.array([2**53]), 20)
