"""Quantiles of the pooled rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.algorithms.analytics.brackets import even_cells, narrowed
from tequio.algorithms.analytics.columns import Scope, numeric_columns
from tequio.algorithms.analytics.summaries import summarise_columns
from tequio.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.federation import Federation

    Ranges = tuple[NDArray[np.float64], NDArray[np.float64]]

CELLS = 16
"""Each refinement of quantiles narrows the brackets by this factor."""

_MOST_REFINEMENTS = 64


@dataclass(frozen=True, eq=False)
class Quantiles:
    """One value per column and share; the true quantile of the pooled rows lies less than `width` below `values`.

    Where parties add noise, `error` is the standard error that it gives them besides.
    """

    values: NDArray[np.float64]
    width: NDArray[np.float64]
    error: NDArray[np.float64]


def find_quantiles(federation: Federation, shares: Sequence[float], columns: Sequence[str] = (), *,
                   tolerance: float = 1e-3, scope: Scope | None = None, ranges: Ranges | None = None) -> Quantiles:
    """The smallest value that a share of the rows does not exceed, for each column (rows of the result) and share.

    Brackets are narrowed until they are at most `tolerance` times the column's range wide, or until they hold fewer
    rows than the scope's minimum count, or than noise could hide. `ranges` (the smallest and the largest values of the
    columns) spare an ask where they are known already.
    """
    scope = scope or Scope()
    names = numeric_columns(federation.schema, columns)
    wanted = _checked_shares(shares, tolerance)
    least, most = ranges or _ranges(federation, names, scope)
    # A bracket holds its upper edge but not its lower one, so it has to begin just below the smallest value.
    low = np.repeat(np.nextafter(least, -np.inf)[:, None], len(wanted), axis=1)
    high = np.repeat(most[:, None], len(wanted), axis=1)
    narrow, error = tolerance * (most - least)[:, None], np.zeros(low.shape)
    open_brackets = high - low > narrow
    for _ in range(_MOST_REFINEMENTS):
        # A bracket between two neighbouring numbers cannot be narrowed any further.
        open_brackets &= (high - low > narrow) & (np.nextafter(low, np.inf) < high)
        if not open_brackets.any():
            break
        found = narrowed(federation, scope, names, wanted, even_cells(low, high, CELLS))
        open_brackets &= found.inside.astype(np.float64) >= max(scope.minimum_count, 1, 2 * found.noise)
        low, high, error = (np.where(open_brackets, new, old) for new, old in zip(
            (found.low, found.high, np.maximum(error, found.error)), (low, high, error), strict=True))
    return Quantiles(high, high - low, error)


def refinements(tolerance: float) -> int:
    """How often brackets are narrowed at most until they are as narrow as that."""
    return int(np.ceil(-np.log(min(tolerance, 1.0)) / np.log(CELLS) + 1e-9)) + 1


def _ranges(federation: Federation, names: Sequence[str], scope: Scope) -> Ranges:
    summary = summarise_columns(federation, names, scope)
    return summary["min"], summary["max"]


def _checked_shares(shares: Sequence[float], tolerance: float) -> NDArray[np.float64]:
    wanted = np.asarray(shares, dtype=np.float64).reshape(-1)
    if not bool(((wanted >= 0) & (wanted <= 1)).all()):
        raise ConfigError(f"quantiles are shares between 0 and 1, not {list(shares)}")
    if not tolerance > 0:
        raise ConfigError(f"quantiles need a tolerance above 0, not {tolerance}",
                          remedy="1e-9 is about as exact as numbers are")
    return wanted
