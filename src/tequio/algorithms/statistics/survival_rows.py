"""Survival at the party: who left when, and on which grid of times that is summed.

The outcome of a formula is `Surv(time, event)`: how long a row was watched, and whether (1) or not (0) the event ended
that. Times are rounded up to a grid that all parties know, and rows that last beyond it are censored at its end; where
the grid is the times of events, a row that is censored between two of them leaves at the first, as it does exactly. The
difference of neighbouring cells of what is at risk is a sum over the rows that leave in between, and sums over events
are needed beside it. So at each party no row or enough of them leave in a cell, and none or enough by the event: cells
in which fewer do are joined with the next one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.statistics.design import Table, make_design
from tequio.algorithms.statistics.exact_sums import Block, Layout, counts, whole_reply
from tequio.algorithms.statistics.formula import read_formula
from tequio.algorithms.statistics.glm_tasks import DesignPayload
from tequio.algorithms.statistics.small_cells import RULES, SmallCells, require, require_everywhere
from tequio.errors import ConfigError, DataError, PayloadError
from tequio.federation.sums import SumsReply
from tequio.federation.task import Count, Reveals, Sums, record, task

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tequio.algorithms.statistics.design import Agreed, Design
    from tequio.algorithms.statistics.exact_sums import ExactSums
    from tequio.data.dataset import Schema
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

    Column = NDArray[np.float64]

_OUTCOME = re.compile(r"\s*Surv\((.+),\s*(`[^`]+`|[\w.]+)\s*\)\s*~(.+)", re.DOTALL)
MOST_CELLS = 10_000


@record
class SurvivalSettings:
    """The formula with the time as its outcome, the columns of events and weights, what is done with unknown levels,
    the fewest rows of a cell (`least`; never fewer than the party's owner allows), and where rows leave that are
    censored `between` two times. `columns` is how many columns of the formula are kept, `cells` how many times there
    are."""

    formula: str
    event: str
    weights: str
    drop_unknown: bool
    least: Count
    between: Literal["next", "previous"]
    columns: Count = 0
    cells: Count = 0


class GridPayload(DesignPayload):
    """The columns, and the end of each cell of time."""

    edges: NDArray[np.float64]


class TimesReply(TypedDict):
    """Times at which enough events were, in order."""

    times: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Watched:
    """A party's rows: columns, how long each was watched and whether that ended with the event; their weights."""

    columns: NDArray[np.float64]
    time: Column
    event: NDArray[np.bool_]
    weights: Column
    broken: NDArray[np.int64]
    invalid: bool
    dropped: int

    def __len__(self) -> int:
        return len(self.time)

    def only(self, some: NDArray[np.bool_]) -> Watched:
        """Some of the rows."""
        return replace(self, columns=self.columns[some], time=self.time[some], event=self.event[some],
                       weights=self.weights[some])

    def on_grid(self, edges: Column, settings: SurvivalSettings) -> Watched:
        """The rows that are at risk in some cell, with the place of the cell in which each leaves in place of its time,
        and only those events that are within the grid."""
        event = self.event & (self.time <= edges[-1])
        cells = np.minimum(np.searchsorted(edges, self.time, side="left"), len(edges) - 1)
        if settings.between == "previous":
            cells = np.where(event, cells, np.searchsorted(edges, self.time, side="right") - 1)
        return replace(self, time=cells.astype(np.float64), event=event).only(cells >= 0)

    @property
    def cells(self) -> NDArray[np.int64]:
        """The cells of rows on a grid."""
        return self.time.astype(np.int64)


def read_outcome(formula: str, schema: Schema) -> tuple[str, str]:
    """The formula with the time as its outcome, and the column of the events."""
    found = _OUTCOME.fullmatch(formula)
    if found is None:
        raise ConfigError(f"the outcome of '{formula}' is no time and event",
                          remedy="write Surv(time, event) ~ ..., where event is a column of 0 and 1")
    timed, event = f"{found[1].strip()} ~ {found[3].strip()}", found[2].strip("`")
    for name in (*read_formula(timed).columns, event):
        Table.domain(schema, name)
    return timed, event


def kept_design(party: Party, payload: DesignPayload, settings: SurvivalSettings) -> Design:
    """The columns of the formula, of which some are kept."""
    agreed: Agreed = {"levels": payload["levels"], "knots": payload["knots"]}
    design = make_design(party, party.data.train, settings.formula, agreed, weights=settings.weights,
                         drop_unknown=settings.drop_unknown)
    if len(payload["kept"]) != settings.columns:
        raise PayloadError(f"{len(payload['kept'])} columns are kept, and {settings.columns} are announced")
    return replace(design, columns=design.columns[:, payload["kept"]])


def watched_here(party: Party, payload: DesignPayload, settings: SurvivalSettings) -> Watched:
    """The party's rows, and which rules of small cells they break: events are a 0/1 column like any other."""
    design, rules = kept_design(party, payload, settings), SmallCells.of(party)
    event = Table(party.data.train).column(settings.event)[design.kept]
    known = np.isfinite(event)
    columns, event, time = design.columns[known], event[known], design.outcome[known]
    flags = columns[:, ((columns == 0) | (columns == 1)).all(axis=0)]
    broken = design.broken | rules.broken(len(event), columns.shape[1], np.column_stack([flags, event == 1]))
    return Watched(columns, time, event == 1, design.weights[known], broken,
                   not (np.isin(event, (0.0, 1.0)).all() and (time >= 0).all()), design.dropped + int((~known).sum()))


TOTALS = (*counts("n", "dropped", "events", "invalid"), Block("refused", (len(RULES),), "count"), Block("St"))


@task("survival: totals", settings=SurvivalSettings, reply=SumsReply, reveals=Sums(guarded=True))
def totals_here(party: Party, payload: DesignPayload, settings: SurvivalSettings) -> SumsReply:
    """Rows, events, and the sum of the events' times; nothing but the letters of rules where one is broken."""
    rows = watched_here(party, payload, settings)
    events, broken = int(rows.event.sum()), rows.broken
    broken[2] |= 0 < events < fewest(party, settings)
    if broken.any():
        nothing: dict[str, Any] = {block.name: np.zeros(block.shape) for block in TOTALS}
        return whole_reply(party, TOTALS, payload, {**nothing, "refused": broken})
    return whole_reply(party, TOTALS, payload, {
        "n": len(rows), "dropped": rows.dropped, "events": events, "invalid": int(rows.invalid), "refused": broken,
        "St": float(rows.time[rows.event].sum())})


def fewest(party: Party, settings: SurvivalSettings) -> int:
    """The fewest rows of a cell: what the party's owner says, or more if it is asked for."""
    return max(SmallCells.of(party).minimum_count, settings.least, 1)


@task("survival: event times", settings=SurvivalSettings, reply=TimesReply, reveals=Reveals.STRUCTURE)
def event_times_here(party: Party, payload: DesignPayload, settings: SurvivalSettings) -> TimesReply:
    """The times at which enough events were."""
    rows = watched_here(party, payload, settings)
    require(rows.broken)
    times, often = np.unique(rows.time[rows.event], return_counts=True)
    return {"times": times[often >= fewest(party, settings)]}


def few_layout(settings: SurvivalSettings) -> Layout:
    """A mark for each cell of time."""
    return (Block("few", (settings.cells,), "count"),)


@task("survival: small cells", settings=SurvivalSettings, reply=SumsReply, reveals=Sums(guarded=True))
def few_here(party: Party, payload: GridPayload, settings: SurvivalSettings) -> SumsReply:
    """A 1 for each cell in which a few rows leave, or a few events are."""
    rows = watched_here(party, payload, settings)
    require(rows.broken)
    leaving = leaving_by(rows, payload["edges"], settings, settings.columns + 1)
    few = small(leaving, fewest(party, settings)).astype(np.int64)
    return whole_reply(party, few_layout(settings), payload, {"few": few})


def small(leaving: NDArray[np.int64], least: int) -> NDArray[np.bool_]:
    """In which cells of time a few rows of a group leave, or a few of its events are."""
    cells = np.stack([leaving.sum(axis=1), leaving[:, 1]])
    return np.asarray(((cells > 0) & (cells < least)).any(axis=(0, 1)))


def require_large(leaving: NDArray[np.int64], least: int) -> None:
    """At the party: refuse a grid with small cells."""
    if small(leaving, least).any():
        raise DataError("a cell of time holds too few rows here (rule c)", remedy="cut time more coarsely")


def leaving_by(rows: Watched, edges: Column, settings: SurvivalSettings, groups: int = 1) -> NDArray[np.int64]:
    """How many rows leave in each cell, by group (`groups_of`), and then censored or by the event."""
    if len(edges) != settings.cells or not (np.diff(edges) > 0).all():
        raise PayloadError("the grid of times is not the announced one, or not in order")
    return counted(rows.on_grid(edges, settings), len(edges), groups)


def counted(rows: Watched, cells: int, groups: int) -> NDArray[np.int64]:
    """The same of rows on a grid."""
    of = groups_of(rows.columns) if groups > 1 else np.zeros(len(rows), dtype=np.int64)
    found = np.zeros((groups, 2, cells), dtype=np.int64)
    np.add.at(found, (of, rows.event.astype(np.int64), rows.cells), 1)
    return found


def groups_of(columns: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which of the indicator columns of a factor is 1, counted from 1; the reference is 0."""
    if not ((columns == 0) | (columns == 1)).all():
        raise DataError("the column of the groups holds other numbers than 0 and 1",
                        remedy="write it as a factor: C(column)")
    return np.asarray((columns == 1) @ np.arange(1, columns.shape[1] + 1), dtype=np.int64)


def agree_on_grid(sums: ExactSums, frame: Payload, settings: SurvivalSettings, edges: Sequence[float],
                  split: bool) -> tuple[Column, SurvivalSettings]:
    """The ends of the cells of time: declared ones, or the times of events, joined until no cell is small at a party.
    With `split`, in no group."""
    payload: Payload = dict(frame)
    if not split:
        payload["kept"], settings = payload["kept"][:0], replace(settings, columns=0)
    if not len(edges):
        if sums.hidden:
            raise ConfigError("times of events cross in the open, and this run hides what parties send",
                              remedy="cut time by yourself: algorithm.edges, or algorithm.step and algorithm.horizon")
        replies = sums.federation.ask(sums.parties, event_times_here, payload, settings=settings)
        edges = np.unique(np.concatenate([np.zeros(0), *(reply["times"] for reply in replies.payloads)])).tolist()
    ends = np.asarray(edges, dtype=np.float64)
    asked = len(ends)
    while True:
        if not 0 < len(ends) <= MOST_CELLS:
            raise DataError(f"time has {len(ends)} cells, and from 1 to {MOST_CELLS} can be summed",
                            remedy="cut it more coarsely: algorithm.step; or stratify: algorithm.baseline = 'by-site'")
        settings = replace(settings, cells=len(ends))
        few = sums.ask(few_here, few_layout(settings), {**payload, "edges": ends}, settings)["few"] > 0
        if not few.any():
            break
        if len(ends) == 1:
            raise DataError("a party has too few rows or events for a single cell of time",
                            remedy="stratify by site: algorithm.baseline = 'by-site'; or merge groups")
        ends = np.delete(ends, joined(few))
    if len(ends) < asked:
        sums.notes.append(f"time has {len(ends)} cells in place of {asked}: others held too few rows at a party")
    return ends, settings


def joined(few: NDArray[np.bool_]) -> list[int]:
    """Which edges go, so that each small cell is part of a larger one: its own, or of the last cell the one before."""
    gone: list[int] = []
    for cell in np.flatnonzero(few).tolist():
        edge = cell if cell < len(few) - 1 else cell - 1
        if edge not in gone and (edge - 1 not in gone or cell == len(few) - 1):
            gone.append(edge)
    return gone


def require_sound(found: dict[str, Any], parties: int) -> None:
    """Refuse totals of which no survival can be told."""
    require_everywhere(found["refused"], parties)
    if found["invalid"]:
        raise DataError("some times are negative, or some events neither 0 nor 1",
                        remedy="Surv(time, event): code the event as 1, and a row that is censored as 0")
    if not found["events"]:
        raise DataError("there is no event at any party")
