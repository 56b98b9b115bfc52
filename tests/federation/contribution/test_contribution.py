"""Contribution scores: a worked game, agreement of the estimate with the exact value, and what they add up to."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.data.dataset import Dataset, Schema
from tequio.errors import ConfigError
from tequio.federation import contributions
from tequio.federation.aggregation import Combined, Updates, shifted, weighted_mean
from tequio.federation.contributions import Game, GTGShapley, LeaveOneOut, Shapley, game_of, game_of_updates
from tequio.federation.exchange import Replies, Reply
from tequio.federation.selection import RoundOutcome
from tequio.registry import build

RNG = np.random.default_rng(0)

# A left glove (player 0) and two right ones (1, 2): a pair is worth 1.
GLOVES = {0b000: 0.0, 0b001: 0.0, 0b010: 0.0, 0b100: 0.0, 0b011: 1.0, 0b101: 1.0, 0b110: 0.0, 0b111: 1.0}


class Counted:
    """A game from a table of values that counts how often it is asked and for what."""

    def __init__(self, values):
        self.table, self.calls = values, []
        self.game = Game(len(values).bit_length() - 1, self.worth)

    def worth(self, coalitions):
        self.calls.append(list(coalitions))
        return np.array([self.table[coalition] for coalition in coalitions])


def random_game(players, seed):
    draw = np.random.default_rng(seed)
    return Counted(dict(enumerate(draw.normal(size=1 << players))))


def by_orders(game):
    """Shapley values by their definition: the mean over all orders of what a player adds."""
    total = np.zeros(game.players)
    orders = list(permutations(range(game.players)))
    for order in orders:
        before = 0
        for player in order:
            total[player] += np.diff(game.values([before, before | 1 << player]))[0]
            before |= 1 << player
    return total / len(orders)


def test_the_glove_game():
    assert Shapley().scores(Counted(GLOVES).game, RNG).values == pytest.approx([4 / 6, 1 / 6, 1 / 6])
    assert LeaveOneOut().scores(Counted(GLOVES).game, RNG).values.tolist() == [1.0, 0.0, 0.0]


@settings(max_examples=40, deadline=None)
@given(players=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_exact_values_are_the_mean_over_all_orders(players, seed):
    game = random_game(players, seed).game
    assert Shapley().scores(game, RNG).values == pytest.approx(by_orders(game))
    assert Shapley().scores(game, RNG).values.sum() == pytest.approx(game.gain)


def test_all_coalitions_are_evaluated_once_and_together():
    counted = random_game(4, 1)
    Shapley().scores(counted.game, RNG)
    LeaveOneOut().scores(counted.game, RNG)
    assert counted.calls == [list(range(16))]
    assert counted.game.evaluations == 16


def test_too_many_players_for_exact_values_are_refused_before_work():
    counted = Counted({0: 0.0})
    counted.game.players = 17
    with pytest.raises(ConfigError, match="2\\^17") as error:
        Shapley().scores(counted.game, RNG)
    assert "gtg-shapley" in error.value.remedy
    assert not counted.calls


def test_the_most_players_for_exact_values_are_not_too_many(monkeypatch):
    monkeypatch.setattr(contributions, "MOST_PLAYERS", 3)
    assert Shapley().scores(Counted(GLOVES).game, RNG).values == pytest.approx([4 / 6, 1 / 6, 1 / 6])


@pytest.mark.parametrize("combined", [None, Combined({})])
def test_a_round_without_updates_to_a_common_model_has_no_game(combined):
    context = SimpleNamespace(federation=SimpleNamespace(validation=[0]))
    with pytest.raises(ConfigError, match="contributions are those of updates to a common model"):
        game_of(context, RoundOutcome(Replies((Reply(0, {}),)), {}, combined))
    assert game_of(context, RoundOutcome(Replies(()), {}, combined)) is None


@settings(max_examples=40, deadline=None)
@given(players=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_the_estimate_is_exact_for_small_cohorts(players, seed):
    game = random_game(players, seed).game
    assert GTGShapley(truncation=1e-9).scores(game, RNG).values == pytest.approx(by_orders(game), rel=0.01)


@pytest.mark.parametrize("players", [2, 3, 4, 5])
def test_permutations_come_within_a_hundredth_of_the_exact_values(players):
    # Additions all of one sign and similar size, as those of updates are.
    draw = np.random.default_rng(players)
    parts = draw.uniform(0.5, 1.5, players)
    table = {mask: float(np.sqrt(sum(parts[player] for player in range(players) if mask >> player & 1)))
             for mask in range(1 << players)}
    game = Counted(table).game
    how = GTGShapley(permutations=3000, tolerance=1e-4, window=200, enumerate=False)
    scores = how.scores(game, np.random.default_rng(1))
    assert scores.converged
    assert scores.values == pytest.approx(by_orders(game), rel=0.01)
    assert scores.values.sum() == pytest.approx(game.gain, abs=how.truncation)


def test_a_round_that_changed_nothing_is_not_looked_at():
    counted = Counted({**GLOVES, 0b111: 5e-5})
    assert GTGShapley(enumerate=False).scores(counted.game, RNG).values.tolist() == [0.0, 0.0, 0.0]
    assert counted.calls == [[0b000, 0b111]]
    counted = Counted({**GLOVES, 0b111: 5e-5})
    assert GTGShapley().scores(counted.game, RNG).values.tolist() == [0.0, 0.0, 0.0]
    assert counted.calls == [[0b000, 0b111]]


def test_a_change_of_just_the_truncation_counts():
    each_one = {mask: float(mask.bit_count()) for mask in range(8)}
    for enumerate in (True, False):
        assert GTGShapley(truncation=3.0, enumerate=enumerate).scores(Counted(each_one).game, RNG).values.any()
    scores = GTGShapley(truncation=1.0, enumerate=False).scores(Counted(each_one).game, RNG)
    assert scores.values == pytest.approx([1.0, 1.0, 1.0])


def test_all_coalitions_are_tried_where_permutations_would_visit_as_many():
    # Four players in one permutation each visit 16 coalitions, which are all there are; of five players 25 of 32.
    assert GTGShapley(permutations=1).scores(random_game(4, 0).game, RNG).converged
    game = random_game(5, 0).game
    assert not GTGShapley(permutations=1).scores(game, RNG).converged
    assert game.evaluations < 32


def test_it_draws_no_more_permutations_than_it_may():
    rng, same = np.random.default_rng(2), np.random.default_rng(2)
    GTGShapley(enumerate=False, permutations=1, tolerance=1e-9).scores(random_game(5, 3).game, rng)
    for first in range(5):
        same.permutation(np.delete(np.arange(5), first))
    assert rng.random() == same.random()


@pytest.mark.parametrize(("history", "tolerance", "converged"), [
    ([1.0, 1.0], 0.1, False), ([1.0, 1.0, 1.0], 0.1, True), ([9.0, 1.0, 1.0, 1.0], 0.1, True),
    ([1.0, 1.0, 1.3], 0.15, False), ([1.0, 1.0, 1.3], 0.17, True), ([0.25, 1.0, 1.0], 0.25, False),
    ([0.25, 1.0, 1.0], 0.26, True)])
def test_values_have_converged_when_the_last_three_lie_close_to_the_last(history, tolerance, converged):
    """Mean distances of 0, 0.2 of 1.3 (0.154), and 0.25 of 1."""
    how = GTGShapley(window=3, tolerance=tolerance)
    assert how._converged([np.array([value]) for value in history]) is converged


def test_a_permutation_ends_where_its_coalition_is_worth_what_everybody_is():
    counted = Counted({mask: float(mask > 0) for mask in range(16)})
    scores = GTGShapley(enumerate=False).scores(counted.game, np.random.default_rng(0))
    assert {mask for call in counted.calls for mask in call} == {0b0000, 0b1111, 0b0001, 0b0010, 0b0100, 0b1000}
    assert scores.values == pytest.approx([0.25] * 4)


def test_it_says_when_it_ran_into_its_limit():
    scores = GTGShapley(enumerate=False, permutations=3, tolerance=1e-9).scores(random_game(5, 3).game, RNG)
    assert not scores.converged


def test_a_null_player_does_not_keep_it_from_converging():
    table = {mask: float(bool(mask & 1)) + 0.5 * bool(mask & 2) for mask in range(8)}
    scores = GTGShapley(enumerate=False).scores(Counted(table).game, np.random.default_rng(0))
    assert scores.converged
    assert scores.values == pytest.approx([1.0, 0.5, 0.0])


@pytest.mark.parametrize("learner", ["mlp", "logistic"])
def test_a_coalition_is_worth_minus_the_loss_of_its_weighted_mean(learner):
    draw = np.random.default_rng(5)
    schema = Schema.of_images((6,), ("a", "b", "c"))
    rows = Dataset.of(schema, draw.random((40, 6), dtype=np.float32), draw.integers(0, 3, 40))
    made = build("learner", learner)
    model, *others = [made.initial(schema, np.random.default_rng(seed)) for seed in range(4)]
    arrays = [{name: values + draw.normal(size=values.shape).astype(values.dtype) for name, values in other.items()}
              for other in others]
    updates = Updates(np.arange(3), arrays, np.array([10.0, 20.0, 50.0]))
    game = game_of_updates(made, model, updates, rows)
    for members in ([], [1], [0, 2], [0, 1, 2]):
        part = updates.part(np.array(members, dtype=int))
        after = shifted(model, weighted_mean(part.arrays, part.weights)) if members else model
        tally = made.evaluate(after, rows)
        value = game.values([sum(1 << member for member in members)])[0]
        assert value == pytest.approx(-tally["loss_sum"] / 40, rel=1e-5)
