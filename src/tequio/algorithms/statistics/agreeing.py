"""Levels of columns of numbers that stand as factors: the union of what parties hold often enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.analytics.columns import held_columns
from tequio.algorithms.statistics.small_cells import SmallCells, require
from tequio.errors import ConfigError, DataError
from tequio.federation.task import Count, Reveals, record, task

if TYPE_CHECKING:
    from tequio.algorithms.statistics.exact_sums import ExactSums
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

_MOST_LEVELS = 1000


@record
class LevelSettings:
    """Of which column, and how many rows a level needs at a party."""

    column: str
    minimum_count: Count


class LevelsReply(TypedDict):
    """The values, in order."""

    levels: NDArray[np.float64]


def find_levels(sums: ExactSums, column: str, minimum_count: int) -> NDArray[np.float64]:
    """All values of a column that some party holds often enough. They cross in the open."""
    if sums.hidden:
        raise ConfigError(f"the levels of '{column}' are not declared, and finding them would show which party has "
                          "which", remedy=f"declare the column's domain: data.categorical = ['{column}']")
    replies = sums.federation.ask(sums.parties, levels_here, settings=LevelSettings(
        column=column, minimum_count=minimum_count))
    found = np.unique(np.concatenate([np.zeros(0), *(reply["levels"] for reply in replies.payloads)]))
    if not 2 <= len(found) <= _MOST_LEVELS:
        raise DataError(f"column '{column}' has {len(found)} levels that a party holds {minimum_count} times",
                        remedy="leave it as a number, or declare its domain")
    return found


@task("statistics: levels", settings=LevelSettings, reply=LevelsReply, reveals=Reveals.STRUCTURE)
def levels_here(party: Party, payload: Payload, settings: LevelSettings) -> LevelsReply:
    """The values that enough rows here have."""
    rules, rows = SmallCells.of(party), party.data.train
    held, columns = held_columns(rows, (settings.column,))
    values, often = np.unique(columns[:, 0] if len(held) else np.zeros(0), return_counts=True)
    values = values[(often >= max(settings.minimum_count, rules.minimum_count, 1)) & np.isfinite(values)]
    require(rules.broken(len(rows), levels=[len(values)]))
    return {"levels": values}
