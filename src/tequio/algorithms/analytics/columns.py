"""Whose rows and which columns statistics are of, and what of them is too few to be reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import numpy as np
from scipy import sparse

from tequio.errors import ConfigError, PayloadError
from tequio.federation.evaluation import Part
from tequio.federation.sums import sum_over_rows
from tequio.federation.task import Count, Reveals, Rows, most_rows, record, task
from tequio.learners.learner import flat_features

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from tequio.data.dataset import Dataset, Schema
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.stages import Stage
    from tequio.federation.sums import SumsReply, Totals
    from tequio.federation.task import Task

R = TypeVar("R")

@record
class ScopeSettings:
    """Which columns a party looks at, in which part of its rows, and what is too few to be reported."""

    columns: Sequence[str]
    part: Part
    minimum_count: Count


@dataclass(frozen=True, eq=False)
class Scope:
    """Whose rows are looked at (None: all eligible parties), which part of them, and what is too few to be reported.

    A party with fewer than `minimum_count` rows stays silent, and where a party counts rows in cells (of a histogram or
    of categories) a cell with fewer is reported as empty. In counts of numbers, and as the smallest and the largest,
    groups of as many neighbours stand with their mean. `stages` are what sums pass on their way.
    """

    parties: ArrayLike | None = None
    part: Part = "train"
    minimum_count: int = 1
    stages: tuple[Stage, ...] = ()

    def settings(self, columns: Sequence[str]) -> ScopeSettings:
        """As parties are told."""
        return ScopeSettings(columns=list(columns), part=self.part, minimum_count=self.minimum_count)

    def whose(self, federation: Federation) -> ArrayLike:
        """The parties in scope."""
        return federation.eligible() if self.parties is None else self.parties

    def ask(self, federation: Federation, task: Task[ScopeSettings, R], columns: Sequence[str],
            payload: Payload | None = None, **shapes: tuple[int, ...]) -> Replies[R]:
        """Ask the parties in scope about some columns. Arrays of other shapes than those given are refused."""
        return federation.ask(self.whose(federation), task, payload, settings=self.settings(columns),
                              check=partial(_check_shapes, shapes))

    def total(self, federation: Federation, task: Task[Any, SumsReply], settings: ScopeSettings,
              payload: Payload | None = None, **shapes: tuple[int, ...]) -> Totals:
        """Sums over the rows in scope, in the shapes given."""
        return sum_over_rows(federation, self.whose(federation), task, payload, settings=settings, shapes=shapes,
                             stages=self.stages)


def _check_shapes(shapes: Mapping[str, tuple[int, ...]], reply: Any, whose: str) -> None:
    for name, shape in shapes.items():
        if name in reply and reply[name].shape != shape:
            raise PayloadError(f"{whose} sent '{name}' of shape {reply[name].shape} instead of {shape}")


def check_counts(reply: SumsReply, federation: Federation, party: int) -> None:
    """Refuse counts of rows by cell that are negative, or more rows than the party has in one column ("rows": counts
    of all of them, by column). Counts that are hidden cannot be looked at, and noised ones are none."""
    most = most_rows(int(federation.sizes[party]))
    for name, counts in reply["sums"].items():
        if isinstance(counts, np.ndarray) and counts.dtype.kind in "iu" and ((counts < 0).any() or (
                (counts if name == "rows" else counts.sum(axis=-1, dtype=np.float64)) > most).any()):
            raise PayloadError(f"party '{federation.name(party)}' sent '{name}' of less than no or of more than {most} "
                               "rows")


def numeric_columns(schema: Schema, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """The wanted columns, or all numeric ones; a categorical one among the wanted is an error."""
    return _columns(schema, wanted, categorical=False)


def categorical_columns(schema: Schema, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """The wanted columns, or all categorical ones; a numeric one among the wanted is an error."""
    return _columns(schema, wanted, categorical=True)


def _columns(schema: Schema, wanted: Sequence[str], *, categorical: bool) -> tuple[str, ...]:
    right = tuple(feature.name for feature in schema.features if feature.categorical is categorical)
    if not wanted:
        return right
    for name in set(wanted).difference(right):
        schema.column(name)
        kind = "numeric" if categorical else "categorical"
        raise ConfigError(f"column '{name}' is {kind}, and there is no such statistic of {kind} columns",
                          remedy="leave the column out")
    return tuple(wanted)


def rows_in_scope(party: Party, settings: ScopeSettings) -> Dataset:
    """At the party: its rows of the part in question, or none of them if they are too few to speak of."""
    rows = party.data.part(settings.part)
    return rows if len(rows) >= settings.minimum_count else rows.take(np.empty(0, dtype=np.int64))


def held_columns(rows: Dataset, wanted: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """At the party: which of the wanted columns it holds, and their values in double precision."""
    place = {name: position for position, name in enumerate(rows.schema.names)}
    held = np.array([index for index, name in enumerate(wanted) if name in place], dtype=np.int64)
    features = flat_features(rows)
    if tuple(wanted) != rows.schema.names:
        features = features[:, [place[wanted[index]] for index in held]]
    dense = features.toarray() if sparse.issparse(features) else features
    return held, np.asarray(dense, dtype=np.float64)


def in_groups(values: NDArray[np.float64], minimum_count: int) -> NDArray[np.float64]:
    """At the party: each column in order, every value replaced by the mean of a group of at least so many neighbours.

    Counts between edges that others choose would else show, by where they change, the value of one row after the other.
    """
    groups = len(values) // max(minimum_count, 1)
    if minimum_count < 2 or not groups:
        return values
    # Those left over stand in the middle: what a policy takes off the larger group moves no quantile up or down.
    sizes = np.full(groups, minimum_count)
    sizes[groups // 2] += len(values) - groups * minimum_count
    starts = np.cumsum(sizes) - sizes
    means = np.add.reduceat(np.sort(values, axis=0), starts, axis=0) / sizes[:, None]
    return np.repeat(means, sizes, axis=0)


def moved_by(settings: ScopeSettings, **lengths: float) -> dict[str, float]:
    """How far a row moves some sums. With a minimum count it may bring back rows that were left out: any way."""
    return dict.fromkeys(lengths, inf) if settings.minimum_count > 1 else lengths


def without_small(counts: NDArray[np.integer], minimum_count: int) -> NDArray[np.int64]:
    """Counts with those below the minimum set to zero."""
    return np.where(counts >= minimum_count, counts, 0).astype(np.int64)


class NumberReply(TypedDict):
    """How many rows there are."""

    rows: Rows


def count_rows(federation: Federation, scope: Scope | None = None) -> int:
    """How many rows the parties in scope hold together."""
    replies = (scope or Scope()).ask(federation, rows_here, ())
    return int(sum(replies.values("rows")))


@task("statistics: rows", settings=ScopeSettings, reply=NumberReply, reveals=Reveals.COUNTS)
def rows_here(party: Party, payload: Payload, settings: ScopeSettings) -> NumberReply:
    """How many rows there are at this party."""
    return {"rows": len(rows_in_scope(party, settings))}
