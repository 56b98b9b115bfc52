"""Cox's partial likelihood from sums over the rows that leave in each cell of time.

With r = w exp(z'b), a cell has S0 = sum of r, S1 = sum of r z, S2 = sum of r zz' over all rows that leave in it, and
D0, D1, D2 the same over those that leave by the event. At risk in a cell is what leaves there or later. Ties are
Efron's, or Breslow's as if events of a cell came at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.algorithms.statistics.exact_sums import symmetric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]

Ties = Literal["efron", "breslow"]


@dataclass(frozen=True, eq=False)
class Risk:
    """What of the partial likelihood follows from sums by cell. By cell: what events are expected to have (`expected`),
    its covariance as an upper triangle (`spread`), and what score residuals need: the mean of the means at each of the
    cell's events (`mean`), hazards (`hazard`, `pulled`) and the part of these that its own events do not carry."""

    log_risk: float
    expected: Array
    spread: Array
    mean: Array
    hazard: Array
    pulled: Array
    own_hazard: Array
    own_pulled: Array

    @property
    def information(self) -> Array:
        """The information matrix."""
        return symmetric(self.spread.sum(axis=0))


def by_cell(cells: Whole, number: int, values: Array) -> Array:
    """Sums of values over the rows of each cell, in the order of the rows."""
    found = np.zeros((number, *values.shape[1:]))
    if len(cells):
        if (np.diff(cells) < 0).any():
            order = np.argsort(cells, kind="stable")
            cells, values = cells[order], values[order]
        first = np.flatnonzero(np.diff(cells, prepend=-1))
        found[cells[first]] = np.add.reduceat(values, first, axis=0)
    return found


def squares_by_cell(cells: Whole, number: int, r: Array, z: Array) -> Array:
    """Sums of r zz' over the rows of each cell, as upper triangles."""
    p, order = z.shape[1], np.argsort(cells, kind="stable")  # once for all columns
    cells, r, z = cells[order], r[order], z[order]
    pieces = [by_cell(cells, number, (r * z[:, row])[:, None] * z[:, row:]) for row in range(p)]
    return np.concatenate(pieces, axis=1) if p else np.zeros((number, 0))


Sums = tuple["Array", "Array", "Array"]


def risk(d: Whole, wd: Array, leaving: Sums, events: Sums, ties: Ties) -> Risk:
    """The likelihood's parts. By cell: `d` events and `wd` their weight, S0 to S2 (`leaving`) and D0 to D2 (`events`),
    of which those in cells of several events matter."""
    zeroth, first, second = (np.cumsum(one[::-1], axis=0)[::-1] for one in leaving)
    cells = np.flatnonzero(d)
    times = d[cells] if ties == "efron" else np.ones(len(cells), dtype=np.int64)
    at, share = np.repeat(cells, times), 1 / np.repeat(times, times)
    # Of l events in a cell, the k-th one finds only a part of the others still at risk: (l - k) / l of each.
    a = (np.arange(len(at)) - np.repeat(np.cumsum(times) - times, times)) * share
    f = wd[at] * share
    whole = zeroth[at] - a * events[0][at]
    m = (first[at] - a[:, None] * events[1][at]) / whole[:, None]
    rows, columns = np.triu_indices(first.shape[1])
    spread = (second[at] - a[:, None] * events[2][at]) / whole[:, None] - m[:, rows] * m[:, columns]
    hazard = f / whole

    def total(values: Array) -> Array:
        return by_cell(at, len(d), values)

    return Risk(float(f @ np.log(whole)), total(f[:, None] * m), total(f[:, None] * spread), total(share[:, None] * m),
                total(hazard), total(hazard[:, None] * m), total(hazard * a), total((hazard * a)[:, None] * m))


def score_residuals(found: Risk, cells: Whole, event: NDArray[np.bool_], w: Array, r: Array, z: Array) -> Array:
    """How far each row pulls the score, weights included: r is w exp(z'b), and rows are in the cells of `found`."""
    so_far, pulled = np.cumsum(found.hazard), np.cumsum(found.pulled, axis=0)
    own = event[:, None]
    carried = z * so_far[cells][:, None] - pulled[cells]
    spared = z * found.own_hazard[cells][:, None] - found.own_pulled[cells]
    return w[:, None] * own * (z - found.mean[cells]) - r[:, None] * (carried - own * spared)


def concordance(time: Array, event: NDArray[np.bool_], risk: Array) -> tuple[int, int, int]:
    """Pairs of which one is known to last longer: those in which the one of lower risk does, the others, and equal
    risks. A row that is censored at the time of an event lasts longer."""
    ranks = np.unique(risk, return_inverse=True)[1] + 1
    tree, inside = [0] * (int(ranks.max(initial=0)) + 1), 0

    def upto(rank: int) -> int:
        found = 0
        while rank > 0:
            found += tree[rank]
            rank -= rank & -rank
        return found

    concordant = discordant = tied = 0
    order = np.lexsort((event, -time))  # latest first, and at one time censored rows first
    places = order.tolist()
    start = 0
    while start < len(places):
        end = start
        while end < len(places) and time[places[end]] == time[places[start]] and \
                event[places[end]] == event[places[start]]:
            end += 1
        same = places[start:end]
        if event[same[0]]:
            for place in same:
                rank = int(ranks[place])
                below, through = upto(rank - 1), upto(rank)
                concordant, tied, discordant = (concordant + below, tied + through - below,
                                                discordant + inside - through)
        for place in same:
            rank, inside = int(ranks[place]), inside + 1
            while rank < len(tree):
                tree[rank] += 1
                rank += rank & -rank
        start = end
    return concordant, discordant, tied
