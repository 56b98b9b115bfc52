"""At the party: what is too few rows for an exact statistic, by the owner's policy and by nothing else.

The rules, after DataSHIELD: (a) enough rows, (b) few columns beside them, (c) no cell of a cross table that holds a few
rows, (d) no factor of too many levels. Sums of products of 0/1 columns are such cells. A simulation without a policy
has no rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError
from tequio.federation.population import SMALL_CELLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.population import Party

RULES = "abcd"


@dataclass(frozen=True)
class SmallCells:
    """The owner's rules. A party without a single row has nothing to protect, and passes."""

    minimum_rows: int = 1
    minimum_count: int = 1
    saturation: float = inf
    maximum_levels: float = inf

    @classmethod
    def of(cls, party: Party) -> SmallCells:
        """The rules of a party."""
        return cls(**party.settings.get(SMALL_CELLS, {}))

    def broken(self, rows: int, columns: int = 0, flags: NDArray[np.float64] | None = None,
               levels: Sequence[int] = ()) -> NDArray[np.int64]:
        """A 1 for each rule that is broken. `flags` are 0/1 columns whose cross tables can be read from the sums, and
        `levels` how many levels each factor has."""
        if not rows:
            return np.zeros(len(RULES), dtype=np.int64)
        widest = max(levels, default=0)
        return np.array([rows < self.minimum_rows, columns > self.saturation * rows,
                         flags is not None and not self.large_tables(flags),
                         widest > self.maximum_levels or (widest > 2 and widest > self.saturation * rows)],
                        dtype=np.int64)

    def large_tables(self, flags: NDArray[np.float64]) -> bool:
        """Whether no cell of any table of one or two 0/1 columns holds a few rows: those where a column is 0 included,
        since these follow from the others by subtraction."""
        both = flags.T @ flags
        ones = np.diag(both)
        cells = np.stack([both, ones[:, None] - both, ones - both, len(flags) - ones[:, None] - ones + both])
        return not bool(((cells > 0) & (cells < self.minimum_count)).any())

    def enough(self, cells: NDArray[Any]) -> bool:
        """Whether each of some counts is 0 or large enough."""
        return not bool(((cells > 0) & (cells < self.minimum_count)).any())


def flags_among(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """The columns that hold nothing but 0 and 1."""
    return columns[:, ((columns == 0) | (columns == 1)).all(axis=0)]


def require(broken: NDArray[np.int64]) -> None:
    """At the party: refuse to reply, by the rules' letters and without a number."""
    if broken.any():
        letters = ", ".join(letter for letter, wrong in zip(RULES, broken.tolist(), strict=True) if wrong)
        raise DataError(f"there are too few rows for this here (rule {letters})", remedy="merge levels, or drop a term")


def require_everywhere(broken: NDArray[np.int64], parties: int, what: str = "model") -> None:
    """At the coordinator: how many parties refuse, by the totals of what `broken` says at each."""
    if broken.any():
        worst = int(np.argmax(broken))
        raise DataError(f"{int(broken[worst])} of {parties} parties have too few rows for this {what} (rule "
                        f"{RULES[worst]})", remedy="merge levels, drop a term, or lower what those parties' policies "
                                                   "ask for (minimum_rows, saturation, minimum_count, maximum_levels)")
