"""Coins are ChaCha20, fair, and different for every purpose."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tequio.noise.coins import Coins


def test_words_are_the_key_stream_of_rfc_8439():
    """Its test vector A.1 no. 1: key, counter and nonce of nought."""
    stream = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
                           "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586")
    coins = Coins(bytes(32))
    words = np.concatenate([coins.words(3), coins.words(0), coins.words(5)])
    assert words.astype("<u8").tobytes() == stream


def test_long_draws_are_the_same_stream():
    whole, parts = Coins.derived(1, "a").words(200_000), Coins.derived(1, "a")
    assert np.array_equal(whole, np.concatenate([parts.words(count) for count in (1, 65_535, 134_464)]))


def test_every_purpose_has_coins_of_its_own():
    keys = [(1,), (1, "a"), (1, "b"), (1, "a", 1), (1, "a1"), (1, "a", 11), (11, "a"), (2, "a"), (b"1" * 32, "a")]
    first = {int(Coins.derived(*key).words(1)[0]) for key in keys}
    assert len(first) == len(keys)


def test_coins_of_the_operating_system_never_come_again():
    assert Coins.from_system().words(1) != Coins.from_system().words(1)


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 1000, (1 << 62) + 1])
def test_all_numbers_below_a_bound_are_as_likely(bound):
    drawn = Coins.derived(4, "below", bound).below(bound, 100_000)
    assert drawn.min() >= 0
    assert drawn.max() < bound
    tenths = np.bincount((drawn.astype(object) * min(bound, 10) // bound).astype(int), minlength=min(bound, 10))
    assert bound == 1 or stats.chisquare(tenths).pvalue > 0.001


@pytest.mark.parametrize("chance", [0.0, 1e-4, 0.3, 1.0])
def test_coins_that_fall_with_a_chance(chance):
    found = Coins.derived(6, "heads").heads(chance, 400_000).mean()
    assert found == pytest.approx(chance, abs=4 * np.sqrt(chance * (1 - chance) / 400_000))
