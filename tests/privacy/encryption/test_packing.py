"""Numbers side by side in one: packed sums are sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.errors import EncryptionError
from tequio.privacy.encryption.numbers import (
    FixedPoint,
    from_bytes,
    growth,
    pack,
    room,
    slots_in,
    to_bytes,
    to_numbers,
    to_values,
    unpack,
)


def test_two_numbers_worked_by_hand():
    assert pack([3, -2], slot=8) == 3 - 2 * 256
    assert unpack(3 - 2 * 256, slot=8, count=2) == [3, -2]
    assert unpack(pack([-1, -1, -1], slot=4), slot=4, count=3) == [-1, -1, -1]


@given(st.lists(st.lists(st.integers(-1000, 1000), min_size=3, max_size=3), min_size=1, max_size=16))
def test_sums_of_packed_numbers_are_packed_sums(rows):
    slot = 10 + growth(16) + 2
    together = sum(pack(row, slot) for row in rows)
    assert unpack(together, slot, 3) == np.sum(rows, axis=0).tolist()


def test_a_number_that_runs_over_shows_in_the_last_slot():
    assert unpack(pack([0, 1 << 30], slot=8), slot=8, count=2) == [0, 1 << 30]


def test_slots_never_exceed_the_plaintext():
    assert slots_in(2046, 128) == 15


@given(st.lists(st.floats(-100, 100), max_size=8))
def test_fixed_point_is_right_to_half_a_step(values):
    back = to_values(to_numbers(values, FixedPoint(20, 8), "values").tolist(), 20)
    assert np.abs(back - np.array(values)).max(initial=0.0) <= 2.0 ** -21


@pytest.mark.parametrize("wrong", [256.1, -300.0, np.inf, np.nan])
def test_what_the_range_cannot_hold_is_refused(wrong):
    with pytest.raises(EncryptionError, match=r"values overflow the fixed-point range.*ends at 256"):
        to_numbers([1.0, wrong], FixedPoint(20, 8), "values")


def test_a_form_too_long_for_floats_is_refused():
    with pytest.raises(EncryptionError, match="80 bits"):
        to_numbers([1.0], FixedPoint(40, 40), "values")


@given(st.integers(1, 200), st.data())
def test_numbers_cross_as_bytes(bits, data):
    numbers = data.draw(st.lists(st.integers(-(1 << bits), 1 << bits), min_size=1, max_size=5))
    assert from_bytes(to_bytes(numbers, room(bits), signed=True), signed=True) == numbers


def test_growth_is_the_bits_that_a_sum_gains():
    assert [growth(count) for count in (1, 2, 3, 4, 5, 256, 257)] == [0, 1, 2, 2, 3, 8, 9]
