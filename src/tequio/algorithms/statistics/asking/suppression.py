"""Which cells of a table are withheld, so that what is published shows no small cell: secondary suppression.

Small cells are withheld first. Then, for each withheld cell, two linear programs give the smallest and the largest
count that agrees with all that is published: this table with its total, and earlier tables of the same rows. Where
these are closer than the floor, a further cell of the same line is withheld and the audit begins again (Fischetti and
Salazar, 2001, audit tables so).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from tequio.algorithms.statistics.asking.planning import MOST_CELLS
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.algorithms.statistics.asking.grammar import Key

MOST_AUDITS = 50


@dataclass(frozen=True, eq=False)
class Published:
    """A table of counts by some keys (an array of one axis per key), and which of its cells are shown."""

    keys: tuple[Key, ...]
    counts: NDArray[np.int64]
    shown: NDArray[np.bool_]


def suppressed(table: Published, earlier: Sequence[Published], floor: int) -> Published:
    """The table with what has to be withheld; a refusal where nothing that is worth it would be left."""
    shown = table.shown & (table.counts >= max(floor, 1))
    if not ((table.counts > 0) & (table.counts < floor)).any():
        return Published(table.keys, table.counts, shown)
    for _ in range(MOST_AUDITS):
        found = Published(table.keys, table.counts, shown)
        bare = _too_narrow(found, earlier, floor)
        if not bare:
            return found
        further = _next_in_line(found, bare)
        if further is None:
            break
        shown = shown.copy()
        shown[further] = False
    raise DataError("no way to publish this table without showing a small cell", remedy="use fewer keys")


def bounds_of(table: Published, earlier: Sequence[Published], cell: tuple[int, ...]) -> tuple[float, float]:
    """The smallest and the largest count of a cell that agrees with all that is published."""
    from scipy.optimize import linprog

    equations, values, wanted = _published(table, earlier)
    aim = wanted[np.ravel_multi_index(cell, table.counts.shape) if cell else 0].toarray().ravel()
    found = []
    for sign in (1.0, -1.0):
        solved = linprog(sign * aim, A_eq=equations, b_eq=values, bounds=(0, None), method="highs")
        found.append(sign * float(solved.fun) if solved.status == 0 else sign * -np.inf)
    return found[0], found[1]


def _too_narrow(table: Published, earlier: Sequence[Published], floor: int) -> list[tuple[int, ...]]:
    """The withheld cells whose count would be known to within less than the floor."""
    found = []
    for place in np.argwhere(~table.shown & (table.counts > 0)):
        low, high = bounds_of(table, earlier, tuple(place.tolist()))
        if high - low < floor * (1 - 1e-9):
            found.append(tuple(place.tolist()))
    return found


def _next_in_line(table: Published, cells: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The smallest published cell of a line through one of these cells: of a line with the fewest withheld ones. Where
    these lines are withheld altogether, the smallest of all."""
    counts, withheld = table.counts, ~table.shown & (table.counts > 0)
    chosen: list[tuple[int, int, tuple[int, ...]]] = []
    for cell in cells:
        for axis in range(len(cell)):
            near = np.zeros(counts.shape, dtype=bool)
            line: list[int | slice] = list(cell)
            line[axis] = slice(None)
            near[tuple(line)] = True
            if (near & table.shown).any():
                place = _smallest(counts, near & table.shown)
                chosen.append((int((near & withheld).sum()), int(counts[place]), place))
    if chosen:
        return min(chosen)[2]
    return _smallest(counts, table.shown) if table.shown.any() else None


def _smallest(counts: NDArray[np.int64], among: NDArray[np.bool_]) -> tuple[int, ...]:
    place = np.argmin(np.where(among, counts, counts.max() + 1))
    return tuple(int(one) for one in np.unravel_index(place, counts.shape))


def _published(table: Published,
               earlier: Sequence[Published]) -> tuple[sparse.csr_matrix, NDArray[np.float64], sparse.csr_matrix]:
    """Everything published as equations of the cells by all keys together, and each cell of the table in these."""
    keys, shape = list(table.keys), list(table.counts.shape)
    related = [table]
    for other in earlier:
        more = [place for place, key in enumerate(other.keys) if key not in keys]
        if prod(shape) * prod(other.counts.shape[place] for place in more) > MOST_CELLS:
            continue
        keys = keys + [other.keys[place] for place in more]
        shape = shape + [other.counts.shape[place] for place in more]
        related.append(other)
    cells = np.arange(prod(shape)).reshape(shape)
    matrices = [_sums_over(one, keys, cells) for one in related]
    rows = [matrix[np.flatnonzero(one.shown.ravel())] for matrix, one in zip(matrices, related, strict=True)]
    values = [one.counts[one.shown].ravel() for one in related]
    total = sparse.csr_matrix(np.ones((1, cells.size)))
    equations = sparse.vstack([*rows, total]).tocsr()
    return equations, np.concatenate([*values, [table.counts.sum()]]).astype(np.float64), matrices[0]


def _sums_over(table: Published, keys: Sequence[Key], cells: NDArray[np.int64]) -> sparse.csr_matrix:
    """Each cell of a table as a sum of the cells by all keys."""
    places = np.indices(cells.shape)
    own = tuple(places[keys.index(key)].ravel() for key in table.keys)
    rows = np.ravel_multi_index(own, table.counts.shape) if own else np.zeros(cells.size, dtype=np.int64)
    return sparse.csr_matrix((np.ones(cells.size), (rows, cells.ravel())), shape=(table.counts.size, cells.size))
