"""FedAsync, FedBuff and semi-synchronous training on the event queue: arrivals by hand, staleness, faults, resuming."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import toy
from toy import FULL_BATCH

from tequio.algorithms.asynchronous.arrivals import FedAsync, FedBuff, SemiSynchronous
from tequio.algorithms.asynchronous.flights import Staleness
from tequio.errors import ConfigError
from tequio.federation.clock import Clock
from tequio.federation.devices import Mobile, Resources
from tequio.federation.federation import Federation, Rules


@dataclass(frozen=True)
class Given(Mobile):
    """Each party's seconds to train; links take no time worth speaking of."""

    seconds: tuple[float, ...] = ()

    def resources(self, seed: int, round: int, parties: Any, purpose: str = "") -> Resources:
        speed = np.array([1 / one if one else 0.0 for one in self.seconds])
        return Resources(np.full(len(parties), 1e18), speed[parties])


def federation(targets: list[float], seconds: list[float], schedule: Any = None, **rules: Any) -> Federation:
    """One row a party; a step of rate 0.5 goes half the way to the party's target."""
    made = toy.federation(toy.targets(*targets), rules=Rules(**rules))
    made.clock = Clock(Given(seconds=tuple(map(float, seconds))), made.sizes.astype(float), schedule)
    return made


def test_staleness_policies_by_hand() -> None:
    ages = np.array([0, 3, 8])
    assert Staleness("constant").weights(ages).tolist() == [1, 1, 1]
    assert Staleness("polynomial", slope=0.5).weights(ages) == pytest.approx([1, 1 / 2, 1 / 3])
    # Xie et al.: 1 up to b, then 1 / (a (age - b) + 1)
    assert Staleness("hinge", slope=10, patience=4).weights(ages) == pytest.approx([1, 1, 1 / 41])


def test_fedasync_by_hand() -> None:
    # Both depart from 0. Party 0 (target 8) is back at second 1 with 4: w = 0.5 * 4 = 2, and departs again from 2.
    # It is back at 2 with 5: w = (2 + 5) / 2 = 3.5. Party 1 (target 0, 2.5 s) is back at 2.5 with 0, made from a model
    # two rounds old: its share is 0.5 / sqrt(3).
    algorithm = FedAsync(concurrency=2, mixing=0.5, slope=0.5, **toy.parts(FULL_BATCH))
    made = federation([8.0, 0.0], [1.0, 2.5])
    state, seen = algorithm.start(made), []
    for _ in range(3):
        state = toy.one_more(algorithm, made, state)
        seen.append((round(made.clock.now, 6), float(toy.weights(state)[0])))
    share = 0.5 / 3**0.5
    assert seen[0] == (1.0, 2.0)
    assert seen[1] == (2.0, 3.5)
    assert seen[2] == (2.5, pytest.approx(3.5 * (1 - share)))
    assert made.clock.notes["staleness"] == 2.0
    assert made.clock.counts.tolist() == [2, 1]


def test_fedbuff_by_hand() -> None:
    # Three depart from 0 and are back at 1, 2 and 4 s with changes 4, 2 and 1. The buffer of two is full at 2 s:
    # w = (4 + 2) / 2 = 3. Party 0 left again at... nobody departs twice in a round, so 0 and 1 leave at 2 s with 3:
    # changes 2.5 and 0.5. Party 0 is back at 3, party 2 at 4 with 1, one round old: w = 3 + (2.5 + 1 / sqrt(2)) / 2.
    algorithm = FedBuff(concurrency=3, buffer=2, **toy.parts(FULL_BATCH))
    made = federation([8.0, 4.0, 2.0], [1.0, 2.0, 4.0])
    state = toy.run(algorithm, made)
    assert (made.clock.now, float(toy.weights(state)[0])) == (pytest.approx(2.0), 3.0)
    state = toy.one_more(algorithm, made, state)
    assert made.clock.now == pytest.approx(4.0)
    assert float(toy.weights(state)[0]) == pytest.approx(3 + (2.5 + 1 / 2**0.5) / 2)
    assert made.clock.totals.updates == 4


def test_a_period_takes_what_has_arrived() -> None:
    # Periods of 3 s: 0 and 1 are back in the first, w = (4 + 2) / 2; party 2 comes in the second for less.
    algorithm = SemiSynchronous(concurrency=3, period=3.0, **toy.parts(FULL_BATCH))
    made = federation([8.0, 4.0, 2.0], [1.0, 2.0, 4.0])
    state = toy.run(algorithm, made)
    assert (made.clock.now, float(toy.weights(state)[0])) == (3.0, 3.0)
    state = toy.one_more(algorithm, made, state)
    old = 1 / 2**0.5
    assert made.clock.now == 6.0
    assert float(toy.weights(state)[0]) == pytest.approx(3 + (2.5 + 0.5 + 1 * old) / (2 + old))


def test_a_period_in_which_nobody_arrives_changes_nothing() -> None:
    made = federation([8.0], [10.0])
    state = toy.run(SemiSynchronous(concurrency=1, period=3.0, **toy.parts(FULL_BATCH)), made)
    assert (made.clock.now, toy.weights(state).tolist()) == (3.0, [0.0])


def test_a_fast_party_works_more_but_nobody_is_waited_for() -> None:
    made = federation([1.0] * 4, [1.0, 1.0, 1.0, 50.0])
    algorithm = FedBuff(concurrency=4, buffer=3, **toy.parts(FULL_BATCH))
    toy.run(algorithm, made, rounds=10)
    assert made.clock.now == pytest.approx(10.0)
    assert made.clock.counts.tolist() == [10, 10, 10, 0]


@pytest.mark.parametrize("algorithm", [FedAsync(concurrency=6, **toy.parts(FULL_BATCH)),
                                       FedBuff(concurrency=6, buffer=4, **toy.parts(FULL_BATCH)),
                                       SemiSynchronous(concurrency=6, period=2.0, **toy.parts(FULL_BATCH))])
def test_half_of_the_parties_vanish_and_it_converges_all_the_same(algorithm: Any) -> None:
    made = federation([5.0] * 20, [1.0 + party / 10 for party in range(20)], dropout=0.5, quorum=0.0)
    state = toy.run(algorithm, made, rounds=60)
    assert float(toy.weights(state)[0]) == pytest.approx(5.0, abs=0.1)
    assert made.clock.totals.lost > 20


def test_who_is_offline_does_not_depart_and_who_goes_offline_is_lost() -> None:
    schedule = lambda parties, seconds: (parties != 1) & ((parties != 2) | (seconds < 0.5))  # noqa: E731
    made = federation([8.0, 8.0, 8.0], [1.0, 1.0, 1.0], schedule)
    toy.run(FedBuff(concurrency=3, buffer=1, **toy.parts(FULL_BATCH)), made, rounds=3)
    assert made.clock.counts.tolist() == [3, 0, 0]
    assert made.clock.totals.lost == 1


def test_parties_that_can_never_answer_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"no party can ever answer.*raise devices.throughput"):
        toy.run(FedAsync(**toy.parts(FULL_BATCH)), federation([1.0], [0.0]))


def test_without_a_clock_it_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"'fedbuff' runs on the virtual clock.*add a \[devices\] table"):
        toy.run(FedBuff(**toy.parts(FULL_BATCH)), toy.federation(toy.targets(1.0)))
