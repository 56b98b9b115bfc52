import numpy as np
import pytest

from tequio.privacy.factorisation import Factor, banded, exponentials, square_root


def dense(column):
    rounds = len(column)
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(rounds)] for i in range(rounds)])


@pytest.mark.parametrize(("rounds", "apart", "times", "expected"), [
    (1000, 1000, 1, {"none": 31.62, "root": 3.265, 1: 3.850, 2: 3.321, 3: 3.270}),
    (2000, 2000, 1, {"none": 44.72, "root": 3.486, 1: 4.305, 2: 3.576, 3: 3.496}),
    (1000, 100, 10, {"none": 100.0, "root": 16.54, 1: 15.26, 2: 14.95, 3: 14.88}),
    (2000, 100, 20, {"none": 200.0, "root": 32.10, 1: 27.45, 2: 27.02})])
def test_the_noise_that_is_left_is_that_of_the_papers_factorisations(rounds, apart, times, expected):
    assert Factor().error(rounds, apart, times) == pytest.approx(expected["none"], rel=1e-3)
    assert Factor(tuple(square_root(rounds))).error(rounds, apart, times) == pytest.approx(expected["root"], rel=1e-3)
    for buffers in (1, 2, 3):
        if buffers in expected:
            factor = exponentials(rounds, apart, times, buffers)
            assert (np.diff(factor.column(rounds)) <= 1e-12).all()
            assert factor.error(rounds, apart, times) == pytest.approx(expected[buffers], rel=5e-3)


def test_a_band_as_wide_as_the_turns_beats_exponentials_over_many_turns():
    factor = banded(2000, 100, 20)
    column = factor.column(2000)
    assert factor.error(2000, 100, 20) == pytest.approx(25.76, rel=5e-3)
    assert (column[:100] >= 0).all()
    assert not column[100:].any()


@pytest.mark.parametrize("factor", [Factor.of_exponentials(np.array([0.6, 0.95]), np.array([0.3, 0.2])),
                                    Factor((1.0, 0.5, 0.4, 0.1))])
def test_error_and_movement_are_those_of_the_dense_matrices(factor):
    rounds, apart, times = 24, 8, 3
    c = dense(factor.column(rounds))
    b = np.tril(np.ones((rounds, rounds))) @ np.linalg.inv(c)
    taken = np.zeros(rounds)
    taken[[0, 8, 16]] = 1
    moved = np.linalg.norm(c @ taken)
    assert factor.moved([1, 9, 17], rounds) == pytest.approx(moved, rel=1e-12)
    assert factor.error(rounds, apart, times) == pytest.approx(np.linalg.norm(b[-1]) * moved, rel=1e-12)


def test_exponentials_decay_as_they_say():
    column = Factor.of_exponentials(np.array([0.6, 0.95]), np.array([0.3, 0.2])).column(10)
    assert column[1:] == pytest.approx(0.3 * 0.6 ** np.arange(9) + 0.2 * 0.95 ** np.arange(9), rel=1e-12)


def test_movement_is_the_largest_over_all_directions_of_updates():
    factor = Factor.of_exponentials(np.array([0.7, 0.9]), np.array([0.2, 0.3]))
    c, rng = dense(factor.column(12)), np.random.default_rng(0)
    bound = factor.moved([2, 5, 11], 12)
    for _ in range(200):
        updates = rng.normal(size=(3, 4))
        updates /= np.linalg.norm(updates, axis=1, keepdims=True)
        sent = np.zeros((12, 4))
        sent[[1, 4, 10]] = updates
        assert np.linalg.norm(c @ sent) <= bound * (1 + 1e-12)


def test_a_party_that_may_come_in_every_round_gets_no_less_than_noise_of_its_own():
    assert exponentials(20, 1, 20, 1).error(20, 1, 20) <= Factor().error(20, 1, 20) * (1 + 1e-3)
