"""Selectors that learn: worked examples, who is drawn how often, and what they remember."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from tequio.errors import ConfigError, QuorumError
from tequio.federation.exchange import Replies, Reply
from tequio.federation.rng import stream
from tequio.federation.selection import RoundOutcome, SelectionContext, draw_by_weight, top_places
from tequio.federation.selectors.by_loss import ActiveParties, PowerOfChoice
from tequio.federation.selectors.by_value import GreedyFed, SFedAvg, UpperConfidence, Values
from tequio.federation.selectors.drawn import FilteredParties, InTurn, StratifiedParties, shared_out


class Federation(SimpleNamespace):
    """As much of a federation as selectors look at that ask nobody."""

    def __len__(self):
        return len(self.sizes)

    def eligible(self):
        return np.arange(len(self))

    def index(self, name):
        return int(name)


def turn(parties=4, memory=None, eligible=None, seed=0, round=1, **facts) -> SelectionContext:
    federation: Any = Federation(**{"sizes": np.full(parties, 25), "round": round, "seed": 0,
                                    "groups": np.zeros(parties, int), "record": lambda kind, facts: None, **facts})
    return SelectionContext(federation, np.arange(parties) if eligible is None else np.array(eligible), memory or {},
                np.random.default_rng(seed))


def told(**by_party) -> RoundOutcome:
    answers = [Reply(int(name[1:]), {"loss": loss, "rows": rows}) for name, (loss, rows) in by_party.items()]
    return RoundOutcome(Replies(tuple(answers)), {})


def shares(selector, turns, parties) -> np.ndarray:
    """How often each party was chosen."""
    return np.bincount(np.concatenate([selector.choose(each).parties for each in turns]), minlength=parties)


# Active federated learning.

def test_afl_draws_by_value_above_the_cut():
    """Values 1, 2, 3, 4 with half cut off and a sharpness of ln 2: chances 0, 0, 1/3 and 2/3."""
    selector = ActiveParties(count=1, excluded=0.5, sharpness=np.log(2), explored=0.0)
    drawn = shares(selector, [turn(memory={"values": np.arange(1.0, 5)}, seed=seed) for seed in range(3000)], 4)
    assert drawn[:2].tolist() == [0, 0]
    assert chisquare(drawn[2:], [1000, 2000]).pvalue > 0.001


@pytest.mark.parametrize(("count", "valued"), [(3, 2), (6, 4)])
def test_afl_gives_the_published_number_of_places_to_values(count, valued):
    """With 0.3 at random, 2 of 3 and 4 of 6 places go by value; the others may go to parties below the cut."""
    values = np.arange(20.0)
    selector = ActiveParties(count=count, excluded=0.5, sharpness=0.0, explored=0.3)
    chosen = [selector.choose(turn(20, {"values": values}, seed=seed)).parties for seed in range(300)]
    assert all(len(parties) == len(set(parties.tolist())) == count for parties in chosen)
    above = np.array([(parties >= 10).sum() for parties in chosen])
    assert above.min() == valued
    assert above.max() == count


def test_afl_takes_the_highest_values_in_its_top_form():
    selector = ActiveParties(count=2, excluded=0.0, explored=0.0, take="top")
    assert selector.choose(turn(memory={"values": np.array([0.3, 0.1, 0.9, 0.2])})).parties.tolist() == [0, 2]


def test_afl_lowers_the_cut_where_it_would_leave_too_few():
    selector = ActiveParties(count=3, excluded=0.9, explored=0.0)
    for seed in range(20):
        assert selector.choose(turn(memory={"values": np.arange(4.0)}, seed=seed)).parties.tolist() == [1, 2, 3]


@pytest.mark.parametrize(("loss", "expected"), [("mean", 2.0 / 5), ("sum", 2.0 * 5)])
def test_afl_renews_the_values_of_those_who_took_part_only(loss, expected):
    memory = {"values": np.array([0.1, 0.2, 0.3, 0.4])}
    after = ActiveParties(loss=loss).observe(turn(memory=memory), told(p2=(2.0, 25)))["values"]
    assert after.tolist() == [0.1, 0.2, pytest.approx(expected), 0.4]
    assert memory["values"].tolist() == [0.1, 0.2, 0.3, 0.4]


def test_afl_says_when_parties_report_no_loss():
    with pytest.raises(ConfigError, match="report none"):
        ActiveParties().observe(turn(), RoundOutcome(Replies((Reply(0, {"model": {}}),)), {}))


# Selectors that value updates.

def test_greedyfed_tries_everybody_once_and_fills_the_last_round_up():
    selector, memory, tried = GreedyFed(count=3), {}, []
    for round in range(1, 4):
        choice = selector.choose(turn(7, memory, round=round, seed=round))
        memory = choice.memory
        tried.append(choice.parties.tolist())
    assert [len(parties) for parties in tried] == [3, 3, 3]
    assert sorted({party for parties in tried for party in parties}) == list(range(7))
    assert len(set(tried[0] + tried[1])) == 6


def test_greedyfed_fills_up_with_tried_parties_once_each():
    memory = {"order": np.arange(4), "tried": np.array([True, True, False, True])}
    for seed in range(10):
        assert GreedyFed(count=4).choose(turn(memory=memory, seed=seed)).parties.tolist() == [0, 1, 2, 3]


def test_greedyfed_then_takes_the_largest_means():
    memory = {"order": np.arange(4), "tried": np.ones(4, bool), "means": np.array([0.1, 0.5, -0.2, 0.4]),
              "rounds": np.array([1.0, 2, 1, 3])}
    assert GreedyFed(count=2).choose(turn(memory=memory)).parties.tolist() == [1, 3]


def test_greedyfed_leaves_parties_that_never_answered_for_last():
    memory = {"order": np.arange(4), "tried": np.ones(4, bool), "means": np.array([0.0, -0.5, -0.2, -0.4]),
              "rounds": np.array([0.0, 2, 1, 3])}
    assert GreedyFed(count=3).choose(turn(memory=memory)).parties.tolist() == [1, 2, 3]


def test_ucb_bounds():
    """mean + sqrt(ln t / n), with t = e^2 rounded to 7: sqrt(ln 7 / 4) and sqrt(ln 7 / 1)."""
    bounds = UpperConfidence().bounds(Values(np.array([0.5, 0.0, 9.0]), np.array([4.0, 1.0, 0.0])), 7)
    assert bounds[:2] == pytest.approx([0.5 + np.sqrt(np.log(7) / 4), np.sqrt(np.log(7))])
    assert bounds[2] == np.inf


def test_s_fedavg_draws_by_a_softmax_of_relevance():
    memory = {"relevance": np.log([1.0, 2.0, 3.0])}
    drawn = shares(SFedAvg(count=1), [turn(3, memory, seed=seed) for seed in range(3000)], 3)
    assert chisquare(drawn, [500, 1000, 1500]).pvalue > 0.001


def test_s_fedavg_chooses_a_tenth_unless_told_otherwise():
    assert len(SFedAvg().choose(turn(30)).parties) == 3
    assert len(SFedAvg(fraction=0.5).choose(turn(30)).parties) == 15


def test_s_fedavg_begins_with_equal_shares_of_one():
    assert SFedAvg().choose(turn(4)).memory["relevance"].tolist() == [0.25] * 4
    nobody = RoundOutcome(Replies(()), {})
    assert SFedAvg().observe(turn(4, validation=[0]), nobody)["relevance"].tolist() == [0.25] * 4


# Power of choice, groups, filters.

def test_power_of_choice_takes_the_highest_reported_losses_and_the_unknown_first():
    memory = {"losses": np.array([0.3, np.inf, 0.9, 0.2])}
    selector = PowerOfChoice(count=2, candidates=4, losses="reported")
    choice = selector.choose(turn(memory=memory))
    assert choice.parties.tolist() == [1, 2]
    after = selector.observe(turn(memory=choice.memory), told(p1=(0.05, 10), p2=(0.5, 10)))
    assert after["losses"].tolist() == [0.3, 0.05, 0.5, 0.2]


def test_power_of_choice_that_asks_does_not_need_losses_from_training():
    assert PowerOfChoice().observe(turn(), RoundOutcome(Replies((Reply(0, {"model": {}}),)), {})) == {}


def test_power_of_choice_draws_candidates_by_their_rows():
    selector = PowerOfChoice(count=1, candidates=1, losses="reported")
    drawn = shares(selector, [turn(3, seed=seed, sizes=np.array([10, 20, 30])) for seed in range(3000)], 3)
    assert chisquare(drawn, [500, 1000, 1500]).pvalue > 0.001


def test_every_group_has_its_share():
    groups = np.array([0] * 6 + [1] * 3 + [2] * 1)
    by_size = StratifiedParties(count=5).choose(turn(10, groups=groups)).parties
    assert np.bincount(groups[by_size]).tolist() in ([3, 1, 1], [3, 2])
    alike = StratifiedParties(count=5, shares="equal").choose(turn(10, groups=groups)).parties
    assert np.bincount(groups[alike]).tolist() == [2, 2, 1]


@pytest.mark.parametrize(("places", "room", "weights", "expected"), [
    (10, [100, 50, 50], [100, 50, 50], [5, 2.5, 2.5]), (7, [2, 9, 9], [1, 1, 1], [2, 2.5, 2.5]),
    (3, [1, 0, 2], [1, 0, 1], [1, 0, 2]), (0, [3, 3], [1, 1], [0, 0]),
])
def test_places_are_shared_out_by_weight_within_the_room_there_is(places, room, weights, expected):
    given = shared_out(places, np.array(room), np.array(weights), np.random.default_rng(0))
    assert given.sum() == places
    assert np.all(np.abs(given - expected) <= 0.5)


def test_parties_take_turns_in_an_order_drawn_once_and_those_away_miss_theirs():
    order = stream(0, "turns").permutation(5).tolist()
    expected = [sorted(order[:2]), sorted(order[2:4]), order[4:], sorted(order[:2])]
    assert [InTurn(count=2).choose(turn(5, round=round)).parties.tolist() for round in (1, 2, 3, 4)] == expected
    assert InTurn(count=2).choose(turn(5, round=0)).parties.tolist() == expected[0]
    assert InTurn(count=2).choose(turn(5, round=2, eligible=[order[3], order[0]])).parties.tolist() == [order[3]]
    assert InTurn().choose(turn(5, round=7)).parties.tolist() == [0, 1, 2, 3, 4]


def test_filters_keep_parties_out():
    sizes = np.array([5, 10, 20, 40, 100, 101])
    selector = FilteredParties({"name": "all"}, without=("2",), fewest_rows=10, most_rows=100)
    assert selector.choose(turn(6, sizes=sizes)).parties.tolist() == [1, 3, 4]


def test_parties_rest_after_they_were_chosen_and_serve_a_limited_number_of_rounds():
    selector, memory, chosen = FilteredParties({"name": "random", "count": 2}, rest=1, most_rounds=2), {}, []
    for round in range(1, 5):
        choice = selector.choose(turn(4, memory, round=round, seed=round))
        chosen.append(set(choice.parties.tolist()))
        memory = choice.memory
    assert chosen[0].isdisjoint(chosen[1])
    assert chosen[0] == chosen[2]
    assert chosen[1] == chosen[3]
    with pytest.raises(QuorumError, match="leave nobody to choose in round 5"):
        selector.choose(turn(4, memory, round=5))


def test_a_filter_passes_on_what_came_of_the_choice():
    selector = FilteredParties({"name": "afl", "count": 1}, rest=1)
    memory = {"inner": {"values": np.zeros(4)}, "last": np.zeros(4), "times": np.zeros(4)}
    after = selector.observe(turn(memory=memory), told(p3=(5.0, 25)))
    assert after["inner"]["values"].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert after["last"].tolist() == [0.0] * 4


@pytest.mark.parametrize("selector", [ActiveParties(count=9), GreedyFed(count=9), UpperConfidence(count=9),
                                      SFedAvg(count=9), PowerOfChoice(count=9), StratifiedParties(count=9)])
def test_more_parties_than_there_are_is_a_clear_error(selector):
    with pytest.raises(ConfigError, match="wants 9 parties a round but only 4 are eligible"):
        selector.choose(turn(memory={"values": np.zeros(4)}))


# Drawing.

def test_draws_follow_the_weights_and_leave_out_what_has_none():
    log_weights = np.array([-np.inf, 0.0, np.log(3), 800.0 - 800.0])
    drawn = np.bincount([int(draw_by_weight(log_weights, 1, np.random.default_rng(seed))[0]) for seed in range(3000)],
                        minlength=4)
    assert drawn[0] == 0
    assert chisquare(drawn[1:], [600, 1800, 600]).pvalue > 0.001


def test_ties_are_broken_at_random():
    taken = {tuple(top_places(np.zeros(4), 2, np.random.default_rng(seed)).tolist()) for seed in range(100)}
    assert len(taken) == 6
