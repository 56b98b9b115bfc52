"""Oort: utilities by hand, exploration, pacing, and memory that only holds parties that answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from phones import phones

from tequio.federation.clock import Arrival
from tequio.federation.exchange import Replies, Reply
from tequio.federation.selection import RoundOutcome, SelectionContext
from tequio.federation.selectors.oort import Oort


def turn(federation: Any, memory: dict[str, Any], seed: int = 0) -> SelectionContext:
    return SelectionContext(federation, federation.eligible(), memory, np.random.default_rng(seed))


def observed(selector: Oort, federation: Any, memory: dict[str, Any], losses: dict[int, float],
             seconds: dict[int, float] | None = None) -> dict[str, Any]:
    answers = tuple(Reply(party, {"loss": loss, "rows": 10}) for party, loss in losses.items())
    parties = np.array(list(losses), dtype=np.int64)
    ends = np.array([(seconds or {}).get(int(party), 1.0) for party in parties])
    everyone = np.ones(len(parties), dtype=bool)
    federation.clock.last = Arrival(parties, everyone, ~everyone, ends, float(ends.max()))
    return selector.observe(turn(federation, memory), RoundOutcome(Replies(answers), {}))


def test_utility_by_hand() -> None:
    known = {"utility": np.array([10.0, 30.0, 50.0]), "seconds": np.array([1.0, 1.0, 4.0]),
             "round": np.array([9, 9, 4])}
    # The 0.95 quantile of (10, 30, 50) is 48, so they scale to 0, 20/38 and 1. In round 10 the bonus is
    # sqrt(0.1 ln 10 / 9) and sqrt(0.1 ln 10 / 4). The preferred time (30th percentile) is 1 s, so the third is worth
    # (1/4)^2 of that.
    old, older = np.sqrt(0.1 * np.log(10) / 9), np.sqrt(0.1 * np.log(10) / 4)
    np.testing.assert_allclose(Oort().utility(known, 10, 30.0), [old, 20 / 38 + old, (1 + older) / 16])
    np.testing.assert_allclose(Oort(penalty=0.0).utility(known, 10, 30.0), [old, 20 / 38 + old, 1 + older])


def test_it_explores_first_and_then_prefers_high_losses_that_come_soon() -> None:
    federation = phones([1000.0] * 30, [10.0] * 30)
    federation.round = 1
    selector = Oort(count=6, explore=0.5, explore_decay=1.0, explore_least=0.0)
    assert len(selector.choose(turn(federation, {})).parties) == 6  # nobody is known: all are new
    memory = observed(selector, federation, {}, {party: 5.0 if party < 3 else 0.1 for party in range(12)},
                      {0: 50.0})
    federation.round = 2
    counts = np.zeros(30)
    for seed in range(200):
        counts[selector.choose(turn(federation, memory, seed)).parties] += 1
    assert counts[12:].sum() == 200 * 3  # half of each round is new
    assert counts[1:3].min() > 2 * counts[3:12].max()
    assert counts[0] < counts[1] / 2  # the same loss, but slow


def test_memory_holds_those_that_answered_and_who_is_worn_out_is_not_chosen_for_utility() -> None:
    federation = phones([1000.0] * 5, [10.0] * 5)
    federation.round = 1
    selector = Oort(count=2, explore=0.0, explore_least=0.0, most=2)
    memory = observed(selector, federation, {}, {1: 3.0, 3: 1.0})
    assert memory["parties"].tolist() == [1, 3]
    assert memory["utility"].tolist() == [30.0, 10.0]
    assert selector.choose(turn(federation, memory)).parties.tolist() == [1, 3]
    memory = observed(selector, federation, memory, {1: 2.0, 4: 1.0})
    assert (memory["parties"].tolist(), memory["times"].tolist()) == ([1, 3, 4], [2, 1, 1])
    assert selector.choose(turn(federation, memory)).parties.tolist() == [3, 4]


def test_a_fraction_is_rounded_up_and_no_more_are_chosen_than_can_be_reached() -> None:
    federation = phones([1000.0] * 5, [10.0] * 5)
    assert len(Oort(fraction=0.5).choose(turn(federation, {})).parties) == 3
    few = SelectionContext(federation, np.array([1, 4]), {}, np.random.default_rng(0))
    assert Oort(fraction=0.5).choose(few).parties.tolist() == [1, 4]


@pytest.mark.parametrize(("round", "new"), [(1, 8), (2, 4), (3, 2), (4, 1), (9, 1)])
def test_the_share_of_new_parties_halves_every_round_down_to_its_least(round: int, new: int) -> None:
    federation = phones([1000.0] * 30, [10.0] * 30)
    selector = Oort(count=10, explore=0.8, explore_decay=0.5, explore_least=0.1)
    memory = observed(selector, federation, {}, dict.fromkeys(range(12), 1.0))
    federation.round = round
    chosen = selector.choose(turn(federation, memory)).parties
    assert (len(chosen), int((chosen >= 12).sum())) == (10, new)


def test_a_single_place_goes_to_the_best_and_none_to_those_worn_out() -> None:
    federation = phones([1000.0] * 2, [10.0] * 2)
    memory = observed(Oort(), federation, {}, {0: 0.0, 1: 5.0})
    greedy = {"explore": 0.0, "explore_least": 0.0}
    assert Oort(count=1, **greedy).choose(turn(federation, memory)).parties.tolist() == [1]
    assert not len(Oort(count=1, most=1, **greedy).choose(turn(federation, memory)).parties)


def test_without_a_clock_all_parties_are_as_fast() -> None:
    federation = phones([1000.0] * 2, [10.0] * 2)
    reply = RoundOutcome(Replies((Reply(1, {"loss": 2.0, "rows": 10}),)), {})
    assert Oort().observe(turn(federation, {}), reply)["seconds"].tolist() == [0.0]  # no exchange so far
    federation.clock = None
    assert Oort().observe(turn(federation, {}), reply)["seconds"].tolist() == [0.0]


def test_the_pacer_lets_slower_parties_in_when_utility_falls() -> None:
    federation, selector = phones([1000.0] * 3, [10.0] * 3), Oort(count=1, window=2)
    memory: dict[str, Any] = {}
    percentiles = []
    for round, loss in enumerate([5.0, 5.0, 1.0, 1.0, 4.0, 4.0, 4.0, 4.0], start=1):
        federation.round = round
        memory = observed(selector, federation, memory, {0: loss})
        percentiles.append(memory["percentile"])
    assert percentiles == [30.0, 30.0, 30.0, 40.0, 40.0, 40.0, 40.0, 40.0]


@pytest.mark.parametrize("loss", [0.0, -3.0])
def test_worthless_parties_are_no_trouble(loss: float) -> None:
    federation = phones([1000.0] * 3, [10.0] * 3)
    selector = Oort(count=2, explore=0.0, explore_least=0.0)
    memory = observed(selector, federation, {}, dict.fromkeys(range(3), loss))
    assert len(selector.choose(turn(federation, memory)).parties) == 2
