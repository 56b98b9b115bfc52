"""Secondary suppression: worked examples, brute force over all small tables, and what cannot be published."""

import itertools

import numpy as np
import pytest

from tequio.algorithms.statistics.asking.grammar import Key
from tequio.algorithms.statistics.asking.suppression import Published, bounds_of, suppressed
from tequio.errors import DataError

A, B = Key("a"), Key("b")


def table(counts, keys=(A, B), shown=True):
    counts = np.array(counts)
    return Published(keys, counts, np.full(counts.shape, shown))


def test_without_small_cells_everything_is_shown_and_zeros_are_not():
    found = suppressed(table([[20, 0], [30, 10]]), (), 10)
    assert found.shown.tolist() == [[True, False], [True, True]]


def test_a_small_cell_is_not_shown_by_the_total():
    found = suppressed(table([3, 40, 50, 60], (A,)), (), 10)
    assert found.shown.tolist() == [False, False, True, True]
    assert bounds_of(found, (), (0,)) == (0, 43)


def test_margins_that_were_published_before_take_more_cells_with_them():
    counts = np.array([[3, 40, 50], [60, 70, 80], [90, 100, 110]])
    margins = [table(counts.sum(axis=1), (A,)), table(counts.sum(axis=0), (B,))]
    found = suppressed(table(counts), margins, 10)
    # A rectangle of withheld cells: no fewer are enough once all margins are known.
    assert sorted(zip(*np.nonzero(~found.shown), strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    low, high = bounds_of(found, margins, (0, 0))
    assert (low, high) == (0, 43)


def test_bounds_are_those_of_all_tables_that_agree():
    counts = np.array([[2, 3, 1], [4, 1, 2]])
    margins = [table(counts.sum(axis=1), (A,)), table(counts.sum(axis=0), (B,))]
    shown = np.array([[False, False, True], [False, False, False]])
    published = Published((A, B), counts, shown)
    agreeing = []
    for cells in itertools.product(range(8), repeat=6):
        one = np.array(cells).reshape(2, 3)
        if (one[shown] == counts[shown]).all() and (one.sum(axis=0) == counts.sum(axis=0)).all() and \
                (one.sum(axis=1) == counts.sum(axis=1)).all():
            agreeing.append(one)
    for cell in np.ndindex(2, 3):
        seen = [one[cell] for one in agreeing]
        assert bounds_of(published, margins, cell) == pytest.approx((min(seen), max(seen)), abs=1e-7)


@pytest.mark.parametrize("seed", range(8))
def test_after_suppression_every_withheld_cell_is_at_least_a_floor_wide(seed):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(25, (4, 4))
    counts[tuple(rng.integers(0, 4, 2))] = rng.integers(1, 10)
    margins = [table(counts.sum(axis=1), (A,)), table(counts.sum(axis=0), (B,))]
    found = suppressed(table(counts), margins, 10)
    assert not found.shown[(counts > 0) & (counts < 10)].any()
    for cell in zip(*np.nonzero(~found.shown & (counts > 0)), strict=True):
        low, high = bounds_of(found, margins, cell)
        assert low <= counts[cell] <= high
        assert high - low >= 10 - 1e-6


def test_a_table_that_margins_give_away_is_not_published():
    counts = np.array([[3, 40]])
    with pytest.raises(DataError, match="no way to publish this table"):
        suppressed(table(counts), [table(counts.sum(axis=0), (B,))], 10)
    with pytest.raises(DataError, match="use fewer keys"):
        suppressed(table([3], (A,)), (), 10)
