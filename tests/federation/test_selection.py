"""Selectors: who takes part, from which stream, and what happens when it cannot be done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.errors import ConfigError, DataError, QuorumError
from tequio.federation.rng import stream
from tequio.federation.selection import AllParties, Choice, FixedParties, RandomParties, SelectionContext, Selector
from tequio.registry import build


class Names:
    """All that these selectors ask of a federation."""

    def __init__(self, eligible: np.ndarray) -> None:
        self.eligible = lambda: eligible

    def index(self, name: str) -> int:
        if name not in "abcdefghij":
            raise DataError(f"there is no party called '{name}'")
        return "abcdefghij".index(name)


def choose(selector: Selector, eligible: np.ndarray, rng: np.random.Generator | None = None) -> Choice:
    federation: Any = Names(eligible)
    return selector.choose(SelectionContext(federation, eligible, {}, rng or np.random.default_rng(0)))


def test_all() -> None:
    assert choose(AllParties(), np.array([1, 4, 7])).parties.tolist() == [1, 4, 7]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), population=st.integers(1, 60), data=st.data())
def test_random_parties_are_distinct_and_eligible(seed: int, population: int, data: st.DataObject) -> None:
    eligible = np.sort(np.random.default_rng(seed).choice(200, population, replace=False))
    count = data.draw(st.integers(1, population))
    chosen = choose(RandomParties(count=count), eligible, np.random.default_rng(seed)).parties
    assert len(np.unique(chosen)) == count
    assert np.isin(chosen, eligible).all()


@pytest.mark.parametrize(("fraction", "expected"), [(1.0, 10), (0.3, 3), (0.26, 3), (0.01, 1)])
def test_a_fraction_is_rounded_and_at_least_one(fraction: float, expected: int) -> None:
    assert len(choose(RandomParties(fraction=fraction), np.arange(10)).parties) == expected


def test_the_same_stream_chooses_the_same_parties() -> None:
    """Feature 14: partial participation is reproducible, and differs from round to round."""
    def draw(seed: int, round: int) -> list[int]:
        return choose(RandomParties(count=5), np.arange(1000), stream(seed, "select", round)).parties.tolist()

    assert draw(1, 3) == draw(1, 3)
    assert draw(1, 3) != draw(1, 4)
    assert draw(1, 3) != draw(2, 3)


def test_everyone_is_chosen_equally_often() -> None:
    counts = np.zeros(20)
    for round in range(4000):
        counts[choose(RandomParties(count=5), np.arange(20), stream(0, "select", round)).parties] += 1
    # 4,000 rounds at a chance of a quarter: mean 1,000, standard deviation 27
    assert np.abs(counts - 1000).max() < 130


def test_more_parties_than_are_eligible_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"wants 5 parties a round but only 3 are eligible; lower selector.count"):
        choose(RandomParties(count=5), np.arange(3))


def test_fixed_parties_by_name_as_far_as_eligible() -> None:
    assert choose(FixedParties(("d", "b", "b")), np.array([1, 2, 3])).parties.tolist() == [1, 3]
    assert choose(FixedParties(("d", "b")), np.array([2, 3])).parties.tolist() == [3]
    with pytest.raises(DataError, match="no party called 'zoe'"):
        choose(FixedParties(("zoe",)), np.arange(3))


@pytest.mark.parametrize("names", [(), ("a",)])
def test_fixed_parties_none_of_which_can_come_are_an_error(names: tuple[str, ...]) -> None:
    with pytest.raises(QuorumError, match="none of the parties"):
        choose(FixedParties(names), np.array([5, 6]))


@pytest.mark.parametrize("wrong", [{"count": -1}, {"fraction": 0}, {"fraction": 1.5}, {"fraction": "half"}])
def test_bad_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        build("selector", "random", wrong)


def test_choosing_from_a_million_touches_only_the_cohort() -> None:
    eligible = np.arange(1_000_000)
    before = eligible.copy()
    assert len(choose(RandomParties(count=100), eligible).parties) == 100
    np.testing.assert_array_equal(eligible, before)
