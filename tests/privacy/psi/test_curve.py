"""Masks commute and hide, and points that no honest party sends are each refused for what they are."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.errors import DataError
from tequio.privacy.psi.curve import as_points, hash_to_curve, multiply, random_points, require_points, rows_of

PRIME = 2**255 - 19
SECRET = bytes(range(32))


def scalar_times(secret, u):
    """X25519 by the formulas of RFC 7748 on Python's own numbers."""
    k = int.from_bytes(secret, "little") & ~7 & (2**255 - 1) | 2**254
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in range(254, -1, -1):
        if k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a, c * b, a * a, b * b
        new = (da + cb) ** 2 % PRIME, u * (da - cb) ** 2 % PRIME
        x2, z2 = aa * bb % PRIME, (aa - bb) * (aa + 121665 * (aa - bb)) % PRIME
        x3, z3 = new
        if k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return x2 * pow(z2, -1, PRIME) % PRIME


def is_on_curve(u):
    return pow(u**3 + 486662 * u**2 + u, (PRIME - 1) // 2, PRIME) <= 1


def point(u):
    return as_points(u.to_bytes(32, "little"), "the bank")


def test_a_mask_is_a_multiplication_on_the_curve():
    points = hash_to_curve([b"ana", b"bao"])
    for given, product in zip(points, multiply(SECRET, points, "the bank"), strict=True):
        u = int.from_bytes(given.tobytes(), "little")
        assert is_on_curve(u)  # and not on its twist
        assert int.from_bytes(product.tobytes(), "little") == scalar_times(SECRET, u)


def test_masks_commute():
    points, other = random_points(5), bytes(range(32, 64))
    np.testing.assert_array_equal(multiply(other, multiply(SECRET, points, ""), ""),
                                  multiply(SECRET, multiply(other, points, ""), ""))


def test_without_gmpy2_the_points_are_the_same(monkeypatch):
    ids = [b"%d" % number for number in range(20)]
    fast = hash_to_curve(ids)
    monkeypatch.setattr("tequio.privacy.psi.curve.find_spec", lambda name: None)
    np.testing.assert_array_equal(hash_to_curve(ids), fast)
    require_points(fast, 20, "the bank")


@pytest.mark.parametrize(("number", "refused"), [(PRIME - 2, False), (PRIME, True), (PRIME + 4, True), (2**255, True),
                                                 (2**256 - 1, True), (2**255 - 2**200, False)])
def test_points_have_one_form_only(number, refused):
    """PRIME + 4 is another form of 4, which is on the curve."""
    if refused:
        with pytest.raises(DataError, match="of the bank has 1 numbers of 2\\^255 - 19 or more"):
            require_points(point(number), 1, "the bank")
    elif is_on_curve(number):
        require_points(point(number), 1, "the bank")
    else:
        with pytest.raises(DataError, match="twist"):
            require_points(point(number), 1, "the bank")


def test_points_on_the_twist_are_refused():
    u = next(u for u in range(2, 99) if not is_on_curve(u))
    with pytest.raises(DataError, match="the list of masked ids of the bank has 1 points on the twist of the curve"):
        require_points(np.concatenate([hash_to_curve([b"ana"]), point(u)]), 2, "the bank")


# 0, the points of order 4, and both of order 8, as RFC 7748's curve has them.
ORDER_8 = (325606250916557431795983626356110631294008115727848805560023387167927233504,
           39382357235489614581723060781553021112529911719440698176882885853963445705823)


@pytest.mark.parametrize("u", [0, 1, *ORDER_8])
def test_points_of_small_order_are_refused(u):
    require_points(point(u), 1, "the bank")  # they are on the curve
    with pytest.raises(DataError, match="of the bank has a point of small order"):
        multiply(SECRET, point(u), "the bank")


def test_repeated_points_and_lists_of_other_lengths_are_refused():
    points = hash_to_curve([b"ana", b"bao"])
    with pytest.raises(DataError, match="has 1 repeated points"):
        require_points(points[[0, 1, 0]], 3, "the bank")
    with pytest.raises(DataError, match="has 2 points, and 3 were committed to"):
        require_points(points, 3, "the bank")
    with pytest.raises(DataError, match="is not a list of points of 32 bytes"):
        as_points(b"1" * 33, "the bank")


def sum_with_order_two(u):
    """The point P + (0, 0), whose u is 1/u."""
    return pow(u, -1, PRIME)


def test_points_that_differ_by_one_of_small_order_are_refused():
    first = int.from_bytes(hash_to_curve([b"ana"]).tobytes(), "little")
    points = np.concatenate([point(first), point(sum_with_order_two(first))])
    require_points(points, 2, "the bank")
    with pytest.raises(DataError, match="points that differ by one of small order only"):
        multiply(SECRET, points, "the bank")


def test_rows_are_the_bytes_of_points():
    assert rows_of(as_points(b"a" * 32 + b"b" * 32, "")) == [b"a" * 32, b"b" * 32]
