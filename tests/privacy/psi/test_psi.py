"""Masks commute, hide, and are refused where they are malformed; bad ids are counted, not named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.errors import DataError
from tequio.privacy.psi.ids import (
    hash_to_curve,
    in_all,
    masked,
    multiply,
    new_secret,
    require_ids,
    require_points,
    written,
)

PRIME = 2**255 - 19


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


def test_a_mask_is_a_multiplication_on_the_curve():
    points, secret = hash_to_curve([b"ana", b"bao"]), new_secret()
    for point, product in zip(points, multiply(secret, points), strict=True):
        u = int.from_bytes(point.tobytes(), "little")
        assert pow(u**3 + 486662 * u**2 + u, (PRIME - 1) // 2, PRIME) == 1  # on the curve, not on its twist
        assert int.from_bytes(product.tobytes(), "little") == scalar_times(secret, u)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sets(st.integers(0, 30)), min_size=1, max_size=4))
def test_masked_sets_have_in_common_what_the_sets_have(sets):
    secrets_ = [new_secret() for _ in sets]
    lists = [np.array(sorted(one), dtype=np.int64) for one in sets]
    blind = []
    for place, ids in enumerate(lists):
        points = masked(ids, secrets_[place])
        for other, secret in enumerate(secrets_):
            points = multiply(secret, points) if other != place else points
        blind.append(points)
    found = [ids[places] for ids, places in zip(lists, in_all(blind), strict=True)]
    assert set(found[0].tolist()) == set.intersection(*sets)
    assert all((one == found[0]).all() for one in found)


def test_without_gmpy2_the_points_are_the_same(monkeypatch):
    ids = [b"%d" % number for number in range(20)]
    fast = hash_to_curve(ids)
    monkeypatch.setattr("tequio.privacy.psi.ids.find_spec", lambda name: None)
    np.testing.assert_array_equal(hash_to_curve(ids), fast)


def test_ids_are_written_alike_whatever_their_type():
    for ids in (np.array([7, 12]), np.array([7.0, 12.0]), np.array(["7", "12"])):
        assert written(ids) == [b"7", b"12"]


@pytest.mark.parametrize("points", [
    np.zeros((2, 31), np.uint8), np.zeros((2, 32), np.int64), np.zeros(32, np.uint8),
    np.full((1, 32), 255, np.uint8), np.repeat(hash_to_curve([b"a"]), 2, axis=0)])
def test_what_is_not_a_list_of_distinct_points_is_refused(points):
    with pytest.raises(DataError, match="masked ids"):
        multiply(new_secret(), points)


@pytest.mark.parametrize(("number", "refused"), [(PRIME - 2, False), (PRIME, True), (PRIME + 5, True),
                                                 (2**255, True), (2**256 - 1, True), (2**255 - 2**200, False)])
def test_points_have_one_form_only(number, refused):
    point = np.frombuffer(number.to_bytes(32, "little"), np.uint8).reshape(1, 32)
    if refused:
        with pytest.raises(DataError, match="1 malformed points"):
            require_points(point)
    else:
        require_points(point)


@pytest.mark.parametrize("u", [0, 1, PRIME - 1])
def test_points_of_small_order_are_refused(u):
    point = np.frombuffer(u.to_bytes(32, "little"), np.uint8).reshape(1, 32)
    with pytest.raises(DataError, match="small order"):
        multiply(new_secret(), point)


@pytest.mark.parametrize(("ids", "said"), [
    (np.array([4711, 4711, 3, 3, 3]), "3 of the 5 ids of the bank are repeated"),
    (np.array([4711.0, np.nan, np.nan]), "2 of the 3 rows of the bank have no id"),
    (np.array(["4711", ""]), "1 of the 2 rows of the bank have no id"),
    (np.array([4711, None], dtype=object), "1 of the 2 rows of the bank have no id")])
def test_bad_ids_are_counted_and_not_named(ids, said):
    with pytest.raises(DataError, match=said) as caught:
        require_ids(ids, "the bank")
    assert "4711" not in str(caught.value)
