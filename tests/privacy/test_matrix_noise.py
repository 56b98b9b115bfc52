"""Correlated noise: the model's noise is that of the dense matrices, and the bill that of the rounds a party was in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tequio.privacy.factorisation import exponentials
from tequio.privacy.ledger import Context, Ledger, Terms
from tequio.privacy.matrix_noise import MatrixNoise

from .conftest import released, tellers

ROUNDS, TURNS = 8, 4


def wired(cohort=1, **settings):
    stage = MatrixNoise(**{"noise": 1.0, **settings}, expected=cohort)
    ledger = Ledger(Terms(), stage, Context(4, cohort, rounds=ROUNDS, turns=TURNS))
    ledger.mechanism = replace(stage, ledger=ledger)
    return ledger.mechanism, ledger


def column_of(stage):
    return stage._factor(stage.ledger.context).column(ROUNDS)


def dense(column):
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(len(column))] for i in range(len(column))])


def models(stage, federation, parties=None, size=40_000):
    model, seen = 0.0, []
    for federation.round in range(1, ROUNDS + 1):
        model = model + released(federation, [stage], parties=parties, size=size)
        seen.append(model)
    return np.stack(seen)


@pytest.mark.parametrize("buffers", [0, 1, 3])
def test_the_noise_of_each_model_is_that_of_the_dense_inverse(buffers):
    stage, _ = wired(noise=3.0, clip=0.5, buffers=buffers)
    seen = models(stage, tellers([0]))
    left = np.tril(np.ones((ROUNDS, ROUNDS))) @ np.linalg.inv(dense(column_of(stage)))
    wanted = 3.0 * 0.5 * np.linalg.norm(left, axis=1)
    assert seen.std(axis=1) == pytest.approx(wanted, rel=0.02)
    assert np.corrcoef(seen)[2, 5] == pytest.approx(left[2] @ left[5] / np.linalg.norm(left[2]) / np.linalg.norm(
        left[5]), abs=0.02)


def test_streamed_filters_equal_the_dense_matrices_to_ten_digits():
    stage, _ = wired()
    factor, draws = stage._factor(stage.ledger.context), np.random.default_rng(0).normal(size=(ROUNDS, 3))
    once = np.array([stage._filtered("a", row, factor.above, factor.below) for row in draws])
    back = np.array([stage._filtered("b", row, factor.below, factor.above) for row in once])
    assert once == pytest.approx(dense(factor.column(ROUNDS)) @ draws, rel=1e-10)
    assert back == pytest.approx(draws, rel=1e-10)


def test_sums_come_through_with_next_to_no_noise():
    stage, _ = wired(cohort=2, noise=1e-4, clip=10.0)
    assert models(stage, tellers([1.0, 2.0]), size=4)[-1] == pytest.approx(np.full(4, ROUNDS * 1.5), abs=0.05)


def test_the_bill_is_that_of_the_rounds_in_which_a_party_took_part():
    stage, ledger = wired()
    federation = tellers([0, 0, 0, 0])
    for federation.round, party in enumerate([0, 1, 2, 3, 0], start=1):
        released(federation, [stage], parties=[party])
    column = column_of(stage)[:5]
    moved = np.linalg.norm(column + np.array([0, 0, 0, 0, column[0]]))
    assert [release.noise for bill in stage.spent(ledger.entries, ledger.context) for release in bill] == [
        pytest.approx(1.0 / moved)]


def test_the_factor_is_the_best_for_the_planned_rounds_and_stays_what_it_was():
    stage, ledger = wired()
    assert column_of(stage) == pytest.approx(exponentials(ROUNDS, TURNS, ROUNDS // TURNS, 3).column(ROUNDS))
    federation = tellers([0])
    federation.round = 1
    released(federation, [stage])
    before = column_of(stage)
    ledger.context = replace(ledger.context, rounds=50)
    assert (column_of(stage) == before).all()


def test_a_run_that_is_resumed_goes_on_with_the_same_noise():
    def part_of(stage, federation, rounds):
        return [released(federation, [stage], size=50) for federation.round in rounds]

    straight = part_of(wired()[0], tellers([0]), range(1, 5))
    stage, ledger = wired()
    first = part_of(stage, tellers([0]), range(1, 3))
    kept = ledger.to_plain()
    part_of(stage, tellers([0]), range(3, 4))  # played, and lost
    other, resumed = wired()
    resumed.restore(kept)
    again = first + part_of(other, tellers([0]), range(3, 5))
    assert all((one == two).all() for one, two in zip(straight, again, strict=True))


def test_a_second_sum_in_a_round_is_refused():
    stage, _ = wired()
    federation = tellers([0])
    federation.round = 1
    released(federation, [stage])
    with pytest.raises(Exception, match="'dp-mf' has noise for one sum per round"):
        released(federation, [stage])
