"""Whether a table ranks its methods as the source does: Kendall's tau-b between the published values and our means.

Only cells of one problem are compared with each other, such as all methods on one data set; pairs of all problems are
pooled. The 90 % interval is tau give or take 1.645 standard errors, those of 2,000 draws over seeds with fixed coins:
of seeds with replacement, the same for all cells, where numbers are known by seed, else of means from Student's t.
(Their percentiles would lie too low, as draws add their noise to that of the means.) Published values are as printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from tequio.experiments.comparing.values import fits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.studies.answers import Row
    from tequio.studies.description import Order

DRAWS, SEED = 2000, 20240409


@dataclass(frozen=True)
class Agreement:
    """Tau-b over all pairs of methods in some problems; of the `pairs` that the source ranks, how many come out
    `alike`."""

    methods: tuple[str, ...]
    problems: int
    pairs: int
    alike: int
    tau: float
    low: float | None
    high: float | None


def agreement(order: Order, rows: Sequence[Row]) -> Agreement | None:
    """How alike two rankings are; nothing where no two methods of a problem are finished."""
    problems = [cells for cells in problems_of(order, rows).values() if len(cells) > 1]
    if not problems:
        return None
    rng = np.random.default_rng(SEED)
    coins = rng.random((DRAWS, max(row.seeds for cells in problems for row in cells)))
    ours = np.array([row.ours for cells in problems for row in cells])
    spread = [_draws(row, coins, rng) for cells in problems for row in cells]
    published = [float(row.published or 0.0) for cells in problems for row in cells]
    ends = np.cumsum([0, *(len(cells) for cells in problems)])
    pairs = np.array([pair for start, end in pairwise(ends)
                      for pair in combinations(range(start, end), 2)])
    theirs = np.sign(np.round(np.subtract(*np.array(published)[pairs.T]), 12))
    signs = np.sign(np.subtract(*ours[pairs.T]))
    tau, low, high = float(_tau(theirs[:, None], signs[:, None])[0]), None, None
    if all(draws is not None for draws in spread):
        drawn = np.array(spread, dtype=float)
        error = 1.645 * float(_tau(theirs[:, None], np.sign(drawn[pairs[:, 0]] - drawn[pairs[:, 1]])).std())
        low, high = max(-1.0, tau - error), min(1.0, tau + error)
    ranked = theirs != 0
    return Agreement(tuple(order.methods), len(problems), int(ranked.sum()), int((signs == theirs)[ranked].sum()), tau,
                     low, high)


def problems_of(order: Order, rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """The finished cells of the methods, by what else their names say."""
    problems: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        parts = re.split(r", |: ", row.cell)
        mine = [part for part in parts if part in order.methods]
        if len(mine) == 1 and fits(row.cell, order.cells) and row.published is not None and row.ours is not None \
                and isfinite(row.ours):
            problems.setdefault(tuple(part for part in parts if part not in order.methods), []).append(row)
    return problems


def _draws(row: Row, coins: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64] | None:
    """What the mean might have been with other seeds; nothing of one seed."""
    mean = float(row.ours or 0.0)
    if row.deterministic:
        return np.full(len(coins), mean)
    values = np.array([value for value in row.values.values() if isfinite(value)])
    if len(values) > 1:
        drawn: NDArray[np.float64] = values[(coins[:, :len(values)] * len(values)).astype(int)].mean(axis=1)
        return drawn
    if row.sd is None:
        return None
    return mean + row.sd / sqrt(row.seeds) * rng.standard_t(row.seeds - 1, len(coins))


def _tau(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tau-b from the signs of pairs, a column a draw."""
    apart = np.sqrt((first != 0).sum(axis=0) * (second != 0).sum(axis=0))
    tau: NDArray[np.float64] = (first * second).sum(axis=0) / np.where(apart > 0, apart, 1)
    return tau
