"""Encryption whose keys add up, against whole-number arithmetic of any length."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from scipy import stats

from tequio.errors import ConfigError, PayloadError
from tequio.privacy.aggregation import ring_lwe
from tequio.privacy.aggregation.ring_lwe import DEGREE, DEVIATION, MODULUS, PRIMES

SEED = bytes(range(32))


def plain(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32)


def added(ciphertexts: list[np.ndarray]) -> np.ndarray:
    total = np.zeros_like(ciphertexts[0])
    for count, ciphertext in enumerate(ciphertexts, 1):
        ring_lwe.add(total, ciphertext, count)
    return total


def by_one_long_product(first: np.ndarray, second: np.ndarray) -> list[int]:
    """The product modulo X^N + 1, from one product of two integers that hold the coefficients side by side."""
    width = 64
    one, other = (sum(int(value) << (width * place) for place, value in enumerate(values))
                  for values in (first, second))
    product, found, half, whole = one * other, [], 1 << (width - 1), 1 << width
    for _ in range(2 * DEGREE):
        low = product % whole
        low -= whole if low >= half else 0
        found.append(low)
        product = (product - low) >> width
    return [found[place] - found[place + DEGREE] for place in range(DEGREE)]


def test_products_are_those_of_long_integers() -> None:
    key = ring_lwe.small(DEGREE) * 300
    masks = ring_lwe._times_public(SEED, key, DEGREE)
    for which, prime in enumerate(PRIMES):
        public = ring_lwe._drawn(SEED, which, DEGREE)
        assert public.max() < prime
        assert [value % prime for value in by_one_long_product(public, key)] == masks[which].tolist()


def test_public_polynomials_do_not_depend_on_how_many_are_drawn() -> None:
    np.testing.assert_array_equal(ring_lwe._drawn(SEED, 1, 3 * DEGREE)[:DEGREE], ring_lwe._drawn(SEED, 1, DEGREE))
    assert (ring_lwe._drawn(SEED, 0, DEGREE) != ring_lwe._drawn(bytes(32), 0, DEGREE)).any()


@pytest.mark.parametrize(("parties", "size"), [(2, 1), (40, 5000), (10_000, 64)])
def test_sums_open_exactly(parties: int, size: int) -> None:
    keys, expected, total = np.zeros(DEGREE, np.int64), np.zeros(size, np.uint32), np.zeros(size, np.uint64)
    for party in range(parties):
        key, numbers = ring_lwe.small(DEGREE), plain(size, party)
        ring_lwe.add(total, ring_lwe.encrypt(SEED, key, numbers), party + 1)
        keys, expected = keys + key, expected + numbers
    np.testing.assert_array_equal(ring_lwe.open_sum(SEED, keys, total, parties), expected)


@pytest.fixture
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coins that are the same in each run, for tests of a law."""
    monkeypatch.setattr(ring_lwe.secrets, "token_bytes", np.random.default_rng(7).bytes)


@pytest.mark.usefixtures("repeatable")
def test_ciphertexts_are_uniform_and_differ_each_time() -> None:
    noughts = np.zeros(20_000, np.uint32)
    first, second = (ring_lwe.encrypt(SEED, ring_lwe.small(DEGREE), noughts) for _ in range(2))
    assert (first != second).mean() > 0.999
    assert max(first) < MODULUS
    assert stats.kstest(first / MODULUS, "uniform").pvalue > 1e-4
    assert stats.chisquare(np.bincount(first.astype(np.int64) % 64)).pvalue > 1e-4


def test_another_set_of_ciphertexts_opens_to_nothing() -> None:
    keys = [ring_lwe.small(DEGREE) for _ in range(5)]
    sent = [ring_lwe.encrypt(SEED, key, plain(100, place)) for place, key in enumerate(keys)]
    whole, foreign = sum(keys[:4], keys[4]), ring_lwe.encrypt(SEED, ring_lwe.small(DEGREE), plain(100, 9))
    for others in (sent[:4], [*sent, sent[0]], [*sent[:4], foreign]):
        with pytest.raises(PayloadError, match="larger errors than their keys allow"):
            ring_lwe.open_sum(SEED, whole, added(others), 5)
    with pytest.raises(PayloadError, match="no sum of 5 keys"):
        ring_lwe.open_sum(SEED, whole * 100, added(sent), 5)


def test_a_party_that_spoils_the_sum_by_its_error_is_noticed() -> None:
    keys = [ring_lwe.small(DEGREE) for _ in range(5)]
    sent = [ring_lwe.encrypt(SEED, key, plain(100, place)) for place, key in enumerate(keys)]
    sent[3] = (sent[3] + np.uint64(1 << 45)) % np.uint64(MODULUS)
    with pytest.raises(PayloadError, match="made to spoil the sum"):
        ring_lwe.open_sum(SEED, sum(keys[1:], keys[0]), added(sent), 5)


@pytest.mark.usefixtures("repeatable")
def test_keys_and_errors_follow_the_discrete_gaussian() -> None:
    drawn = ring_lwe.small(400_000)
    values = np.arange(-14, 15)
    chances = np.array([exp(-value ** 2 / (2 * DEVIATION ** 2)) for value in range(-60, 61)])
    chances /= chances.sum()
    inside = chances[60 - 14:60 + 15]
    found = np.array([(drawn == value).sum() for value in values])
    outside = len(drawn) - found.sum()
    assert stats.chisquare([*found, outside], len(drawn) * np.array([*inside, 1 - inside.sum()])).pvalue > 1e-3
    assert drawn.max() <= 42
    thresholds, _ = ring_lwe._gaussian_table()
    np.testing.assert_allclose(thresholds.astype(float) / 2.0 ** 64, np.cumsum(chances[60 - 42:60 + 42]), rtol=1e-14,
                               atol=2.0 ** -64)


def test_more_parties_than_fit_are_refused() -> None:
    ring_lwe.check_room(65_535)
    with pytest.raises(ConfigError, match="do not fit into ciphertexts of 52 bits"):
        ring_lwe.check_room(600_000)
