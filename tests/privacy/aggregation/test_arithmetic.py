"""Fixed point, shares and masks, each by itself."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.errors import ConfigError, DataError, PayloadError
from tequio.privacy.aggregation.hidden_sums import Ring
from tequio.privacy.aggregation.keys import (
    PRIME,
    STRETCH,
    add_mask,
    derived,
    fresh_key,
    in_common,
    opened,
    public_of,
    recovered,
    sealed,
    shared,
)


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.integers(0, 8), st.randoms())
def test_any_enough_shares_give_the_secret(secret: bytes, needed: int, more: int, chance: object) -> None:
    points = [1 + 7 * number for number in range(needed + more)]
    shares = shared(secret, needed, points)
    some = sorted(np.random.default_rng(chance.randint(0, 99)).permutation(len(points))[:needed])  # type: ignore
    assert recovered([points[place] for place in some], shares[some]) == secret


def test_too_few_shares_say_nothing() -> None:
    """With one share less than needed, every secret is as likely: the shares of two secrets look alike."""
    ones = np.concatenate([shared(b"\xff" * 32, 3, [1, 2])[:, 0] for _ in range(2000)]) / PRIME
    noughts = np.concatenate([shared(bytes(32), 3, [1, 2])[:, 0] for _ in range(2000)]) / PRIME
    from scipy.stats import ks_2samp, kstest
    assert kstest(ones, "uniform").pvalue > 1e-4
    assert ks_2samp(ones, noughts).pvalue > 1e-4


def test_shares_by_hand() -> None:
    secret = bytes([5, 0] + [0] * 30)
    first, second, third = shared(secret, 2, [1, 2, 3]).astype(np.int64)
    slope = (second - first) % PRIME
    np.testing.assert_array_equal((first - slope) % PRIME, [5] + [0] * 15)
    np.testing.assert_array_equal(third, (second + slope) % PRIME)


def test_shares_that_do_not_belong_together_are_noticed() -> None:
    shares = shared(fresh_key(), 3, [1, 2, 3])
    with pytest.raises(PayloadError, match="do not belong together"):
        recovered([1, 2, 4], shares)


@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
@pytest.mark.parametrize("size", [1, 1000, STRETCH // 4, STRETCH // 4 + 3])
def test_a_mask_is_the_stream_of_its_key(kind: type, size: int) -> None:
    key, values = fresh_key(), np.arange(size).astype(kind)
    whole = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(values.nbytes))
    masked = values.copy()
    add_mask(masked, key)
    np.testing.assert_array_equal(masked, values + np.frombuffer(whole, dtype=kind))
    add_mask(masked, key, subtract=True)
    np.testing.assert_array_equal(masked, values)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("parties", [3, 10_000])
def test_sums_of_the_largest_entries_do_not_overflow(bits: int, parties: int) -> None:
    ring = Ring.of(bits, 64.0, parties)
    for size in (64.0, -64.0):
        one = ring.encoded(np.array([size]), 1 / parties)
        total = np.array([int(one[0]) * parties % (1 << bits)], dtype=ring.kind)
        assert ring.signed(total)[0] / ring.scale == pytest.approx(size, rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-64, 64), min_size=3, max_size=20), st.integers(0, 1000))
def test_a_decoded_mean_is_the_mean(values: list[float], seed: int) -> None:
    shares = np.random.default_rng(seed).dirichlet(np.ones(len(values)))
    ring = Ring.of(32, 64.0, len(values))
    total = sum((ring.encoded(np.array([value]), float(share)) for value, share in zip(values, shares, strict=True)),
                start=np.zeros(1, dtype=np.uint32))
    assert ring.signed(total)[0] / ring.scale == pytest.approx(shares @ values, abs=len(values) / ring.scale)


@pytest.mark.parametrize("value", [65.0, -65.0, np.nan, np.inf])
def test_what_has_no_room_is_refused(value: float) -> None:
    with pytest.raises(DataError, match="largest that the sum has room for"):
        Ring.of(32, 64.0, 3).encoded(np.array([value]), 0.5)


def test_a_ring_that_is_too_small_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not fit into 32 bits"):
        Ring.of(32, 1e12, 10)


def agreed(private: bytes, public: bytes, purpose: bytes) -> bytes:
    return derived(in_common(private, [public])[0], purpose)


def test_boxes_open_for_their_receiver_only() -> None:
    alice, bob, eve = fresh_key(), fresh_key(), fresh_key()
    key = agreed(alice, public_of(bob), b"purpose")
    assert key == agreed(bob, public_of(alice), b"purpose")
    assert key != agreed(bob, public_of(alice), b"another")
    box = sealed(key, b"share", b"1 to 2")
    assert opened(key, box, b"1 to 2", "party 1") == b"share"
    for wrong_key, about in ((key, b"1 to 3"), (agreed(eve, public_of(alice), b"purpose"), b"1 to 2")):
        with pytest.raises(PayloadError, match="party 1 sealed was forged"):
            opened(wrong_key, box, about, "party 1")


def test_a_public_key_that_gives_everybody_the_same_secret_is_refused() -> None:
    with pytest.raises(PayloadError, match="cannot be used"):
        agreed(fresh_key(), bytes(32), b"purpose")
