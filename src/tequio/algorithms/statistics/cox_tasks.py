"""Cox regression at the party: sums by cell of time for one baseline hazard over all parties, or the party's own
partial likelihood where each has a baseline of its own, of which nothing about who was at risk when crosses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray  # noqa: TC002

from tequio.algorithms.statistics.exact_sums import Block, Layout, counts, sum_rows, triangle, upper, whole_reply
from tequio.algorithms.statistics.glm_tasks import DesignPayload
from tequio.algorithms.statistics.partial_likelihood import (
    Risk,
    Ties,
    by_cell,
    concordance,
    risk,
    score_residuals,
    squares_by_cell,
)
from tequio.algorithms.statistics.small_cells import require
from tequio.algorithms.statistics.survival_rows import SurvivalSettings, fewest, leaving_by, require_large, watched_here
from tequio.errors import DataError, PayloadError
from tequio.federation.sums import SumsReply
from tequio.federation.task import Count, Sums, record, task

if TYPE_CHECKING:
    from tequio.algorithms.statistics.survival_rows import Watched
    from tequio.federation.population import Party

    Array = NDArray[np.float64]

WILD = 50.0
"""Linear predictors beyond this, up or down, are no hazards."""


@record
class CoxSettings(SurvivalSettings):
    """How ties count, and whose baseline hazard it is. `tied` is how many cells have several events."""

    ties: Ties
    baseline: Literal["by-site", "common"]
    tied: Count = 0


@record
class MeatSettings(CoxSettings):
    """Whose score residuals are squared: each row's, or each party's together."""

    of: Literal["rows", "parties"]


class CoxPayload(DesignPayload):
    """Where the sums are taken: coefficients of standardised columns; the ends of the cells of time, and which of these
    have several events."""

    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    edges: NDArray[np.float64]
    tied: NDArray[np.int64]


class ResidualPayload(CoxPayload):
    """What score residuals need of all parties' rows, by cell (`Risk`)."""

    hazard: NDArray[np.float64]
    pulled: NDArray[np.float64]
    own_hazard: NDArray[np.float64]
    own_pulled: NDArray[np.float64]
    average: NDArray[np.float64]


class TrendPayload(CoxPayload):
    """How each cell of time weighs in a test of proportional hazards; for parties' own times, around what."""

    trend: NDArray[np.float64]
    centre: float


@dataclass(frozen=True, eq=False)
class _At:
    """A party's rows at some coefficients, in cells of the common grid or at its own times of events."""

    rows: Watched
    z: Array
    eta: Array
    r: Array
    cells: NDArray[np.int64]
    event: NDArray[np.bool_]
    ends: Array

    def events(self, values: Array) -> Array:
        """Sums by cell over rows that leave by the event."""
        return by_cell(self.cells[self.event], len(self.ends), values[self.event])

    def own(self, ties: Ties) -> Risk:
        """The parts of the party's own partial likelihood."""
        number, r, z, cells, event = len(self.ends), self.r, self.z, self.cells, self.event
        d = np.bincount(cells[event], minlength=number)

        def sums(some: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
            return (by_cell(cells[some], number, r[some]), by_cell(cells[some], number, r[some, None] * z[some]),
                    squares_by_cell(cells[some], number, r[some], z[some]))

        return risk(d, self.events(self.rows.weights), sums(np.ones(len(r), dtype=bool)), sums(event), ties)


def _at(party: Party, payload: CoxPayload, settings: CoxSettings) -> _At:
    rows = watched_here(party, payload, settings)
    require(rows.broken)
    if 0 < rows.event.sum() < fewest(party, settings):
        raise DataError("there are too few events for this here (rule c)", remedy="leave this party out")
    ends = payload["edges"]
    if settings.baseline == "by-site":
        ends = np.unique(rows.time[rows.event]) if rows.event.any() else np.zeros(1)
    else:
        require_large(leaving_by(rows, ends, settings), fewest(party, settings))
    rows = rows.on_grid(ends, settings)
    z = (rows.columns - payload["mean"]) / payload["sd"]
    eta = z @ payload["coefficients"]
    return _At(rows, z, eta, rows.weights * np.exp(np.clip(eta, -WILD, WILD)), rows.cells, rows.event, ends)


def first_layout(settings: CoxSettings) -> Layout:
    """What does not change with the coefficients: events by cell, their weights, and the sum of their columns."""
    return (Block("d", (settings.cells,), "count"), Block("wd", (settings.cells,)), Block("s", (settings.columns,)))


@task("cox: events", settings=CoxSettings, reply=SumsReply, reveals=Sums(guarded=True))
def events_here(party: Party, payload: CoxPayload, settings: CoxSettings) -> SumsReply:
    """Events by cell of time, and the sum of their columns over all cells."""
    at = _at(party, payload, settings)
    w = at.rows.weights * at.event
    return whole_reply(party, first_layout(settings), payload, {
        "d": np.bincount(at.cells[at.event], minlength=settings.cells), "wd": at.events(at.rows.weights),
        **sum_rows(len(w), lambda some: {"s": w[some] @ at.z[some]})})


def scores_layout(settings: CoxSettings) -> Layout:
    """What an iteration needs."""
    p, cells, tied = settings.columns, settings.cells, settings.tied
    if settings.baseline == "by-site":
        return (triangle("H", p), Block("u", (p,)), Block("ll"), *counts("wild"))
    size = p * (p + 1) // 2
    several = (Block("D0", (tied,)), Block("D1", (tied, p)), Block("D2", (tied, size))) if tied else ()
    return (Block("S0", (cells,)), Block("S1", (cells, p)), Block("S2", (cells, size)), *several, Block("xb"),
            *counts("wild"))


@task("cox: scores", settings=CoxSettings, reply=SumsReply, reveals=Sums(guarded=True))
def scores_here(party: Party, payload: CoxPayload, settings: CoxSettings) -> SumsReply:
    """Sums of what leaves in each cell of time; or the likelihood, score and information of the party's own rows."""
    at = _at(party, payload, settings)
    w, wild = at.rows.weights * at.event, int((np.abs(at.eta) > WILD).sum())
    xb = sum_rows(len(w), lambda some: {"xb": w[some] @ at.eta[some]})["xb"]
    if settings.baseline == "by-site":
        found = at.own(settings.ties)
        return whole_reply(party, scores_layout(settings), payload, {
            "H": found.spread.sum(axis=0), "u": w @ at.z - found.expected.sum(axis=0),
            "ll": xb - found.log_risk, "wild": wild})
    number, tied = settings.cells, payload["tied"]
    if len(tied) != settings.tied:
        raise PayloadError(f"{len(tied)} cells are said to have ties, and {settings.tied} are announced")
    cells, event = at.cells[at.event], at.event
    several = {"D0": by_cell(cells, number, at.r[event])[tied],
               "D1": by_cell(cells, number, at.r[event, None] * at.z[event])[tied],
               "D2": squares_by_cell(cells, number, at.r[event], at.z[event])[tied]}
    return whole_reply(party, scores_layout(settings), payload, {
        "S0": by_cell(at.cells, number, at.r), "S1": by_cell(at.cells, number, at.r[:, None] * at.z),
        "S2": squares_by_cell(at.cells, number, at.r, at.z), **several, "xb": xb, "wild": wild})


def meat_layout(settings: CoxSettings) -> Layout:
    """The middle of a sandwich."""
    return (triangle("M", settings.columns), *counts("clusters"))


@task("cox: meat", settings=MeatSettings, reply=SumsReply, reveals=Sums(guarded=True))
def meat_here(party: Party, payload: ResidualPayload, settings: MeatSettings) -> SumsReply:
    """Outer products of score residuals: of rows, or of their sum at the party."""
    at = _at(party, payload, settings)
    nothing = np.zeros(0)
    found = at.own(settings.ties) if settings.baseline == "by-site" else Risk(
        0.0, nothing, nothing, payload["average"], payload["hazard"], payload["pulled"], payload["own_hazard"],
        payload["own_pulled"])
    residuals = score_residuals(found, at.cells, at.event, at.rows.weights, at.r, at.z)
    if settings.of == "parties":
        own = sum_rows(len(residuals), lambda some: {"g": residuals[some].sum(axis=0)})["g"]
        products: dict[str, Any] = {"M": upper(np.outer(own, own))}
    else:
        products = sum_rows(len(residuals), lambda some: {"M": upper(residuals[some].T @ residuals[some])})
    return whole_reply(party, meat_layout(settings), payload, {**products, "clusters": int(len(residuals) > 0)})


def trend_layout(settings: CoxSettings) -> Layout:
    """What the test of proportional hazards needs: the residuals' trend, and where the baseline is the party's own, how
    it varies."""
    p = settings.columns
    return (Block("U", (p,)), triangle("I12", p), triangle("I22", p))


@task("cox: trend", settings=CoxSettings, reply=SumsReply, reveals=Sums(guarded=True))
def trend_here(party: Party, payload: TrendPayload, settings: CoxSettings) -> SumsReply:
    """Columns of events, weighted by a trend in time; less what is expected of them where that is known here."""
    at, p = _at(party, payload, settings), settings.columns
    by_site = settings.baseline == "by-site"
    trend = at.ends - payload["centre"] if by_site else payload["trend"]
    weights = at.rows.weights[at.event] * trend[at.cells[at.event]]
    found = {"U": weights @ at.z[at.event], "I12": np.zeros(p * (p + 1) // 2), "I22": np.zeros(p * (p + 1) // 2)}
    if by_site:
        own = at.own(settings.ties)
        found = {"U": found["U"] - trend @ own.expected, "I12": trend @ own.spread, "I22": trend ** 2 @ own.spread}
    return whole_reply(party, trend_layout(settings), payload, found)


PAIRS = (Block("concordant"), Block("discordant"), Block("tied"))


@task("cox: pairs", settings=CoxSettings, reply=SumsReply, reveals=Sums(guarded=True))
def pairs_here(party: Party, payload: CoxPayload, settings: CoxSettings) -> SumsReply:
    """How many pairs of rows here the model puts in the order in which they left."""
    rows = watched_here(party, payload, settings)
    require(rows.broken)
    eta = ((rows.columns - payload["mean"]) / payload["sd"]) @ payload["coefficients"]
    pairs = concordance(rows.time, rows.event, np.round(eta, 12))
    return whole_reply(party, PAIRS, payload, dict(zip(("concordant", "discordant", "tied"), map(float, pairs),
                                                       strict=True)))
