"""Random streams: the same key gives the same numbers, another key gives others, and the numbers never change."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.federation.rng import Streams, stream

keys = st.tuples(st.integers(0, 2**64), st.text(max_size=8), st.integers(0, 2**31), st.integers(0, 2**31))


def first(key: tuple[int, str, int, int]) -> list[int]:
    return stream(*key).integers(0, 2**63, 4).tolist()


@settings(deadline=None)
@given(key=keys)
def test_the_same_key_gives_the_same_numbers_whatever_was_drawn_before(key: tuple[int, str, int, int]) -> None:
    before = first(key)
    stream(1, "other").random(10)
    assert first(key) == before


@settings(deadline=None)
@given(one=keys, other=keys)
def test_another_key_gives_other_numbers(one: tuple[int, str, int, int], other: tuple[int, str, int, int]) -> None:
    assert (first(one) == first(other)) is (one == other)


@pytest.mark.parametrize("other", [(8, "train", 2, 3), (7, "split", 2, 3), (7, "train", 3, 3), (7, "train", 2, 4),
                                   (7, "train", 3, 2)])
def test_every_part_of_the_key_counts(other: tuple[int, str, int, int]) -> None:
    assert first((7, "train", 2, 3)) != first(other)


def test_streams_do_not_touch_the_global_state() -> None:
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    stream(0, "train").random(100)
    assert np.random.random() == expected  # noqa: NPY002


def test_the_numbers_are_those_of_earlier_versions() -> None:
    """A change here changes every stored result."""
    assert stream(0, "train", 1, 2).integers(0, 1000, 5).tolist() == [447, 566, 350, 372, 851]


def test_neighbouring_parties_are_not_correlated() -> None:
    draws = np.stack([stream(0, "train", 1, party).standard_normal(2000) for party in range(20)])
    correlation = np.corrcoef(draws) - np.eye(20)
    assert np.abs(correlation).max() < 0.12


def test_a_numpy_number_is_the_same_key_as_a_plain_one() -> None:
    assert first((3, "a", np.int64(2), np.int64(5))) == first((3, "a", 2, 5))


@settings(deadline=None)
@given(key=keys, parties=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6, unique=True))
def test_streams_made_together_are_those_made_one_by_one(key: tuple[int, str, int, int], parties: list[int]) -> None:
    seed, purpose, round, _ = key
    together = Streams(seed, round, parties)
    for party in reversed(parties):
        expected = stream(seed, purpose, round, party).bit_generator.state
        assert together.of(purpose, party).bit_generator.state == expected
        assert together.of(purpose, party).bit_generator.state == expected  # every call starts it afresh


def test_a_stream_made_together_with_others_can_be_copied() -> None:
    made = Streams(3, 1, (4, 5)).of("train", 5)
    made.random()
    assert copy.deepcopy(made).random() == made.random()
