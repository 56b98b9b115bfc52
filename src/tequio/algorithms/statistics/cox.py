"""The algorithm `cox`: proportional hazards over all parties' rows (Cox, 1972), exact for the grid of times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from tequio.algorithms.statistics.cox_tasks import (
    PAIRS,
    CoxSettings,
    MeatSettings,
    events_here,
    first_layout,
    meat_here,
    meat_layout,
    pairs_here,
    scores_here,
    scores_layout,
    trend_here,
    trend_layout,
)
from tequio.algorithms.statistics.exact_sums import symmetric
from tequio.algorithms.statistics.fitting import ModelSpec, prepare
from tequio.algorithms.statistics.newton import Aliased, Point, inverted, newton
from tequio.algorithms.statistics.partial_likelihood import Risk, Ties, risk
from tequio.algorithms.statistics.statistic import ExactStatistic
from tequio.algorithms.statistics.survival_rows import (
    TOTALS,
    SurvivalSettings,
    agree_on_grid,
    read_outcome,
    require_sound,
    totals_here,
)
from tequio.errors import ConfigError, DataError
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.algorithms.statistics.exact_sums import ExactSums
    from tequio.algorithms.statistics.fitting import Frame
    from tequio.algorithms.statistics.newton import Fit
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload

    Array = NDArray[np.float64]
    Row = dict[str, str | float]

_FEWEST_CLUSTERS, _FEW_CLUSTERS = 5, 30


@register("algorithm", "cox", paper="Cox, 1972; Efron, 1977; Breslow, 1974")
@dataclass(frozen=True, kw_only=True)
class Cox(ExactStatistic):
    """Hazard ratios over all parties' rows: coefficients, standard errors, p-values, a test of proportional hazards.

    With baselines by site nothing about who was at risk when crosses, and the result is exactly the stratified model of
    the pooled rows. One common baseline needs sums by cell of time, and is exact for times rounded up to these cells.

    Parameters:
        formula: 'Surv(time, event) ~ a + b + C(c)': how long a row was watched, whether (1) the event ended that, terms
        baseline: a baseline hazard of each party's own, or one of all
        ties: how events of one time count
        edges: for one baseline, the ends of the cells of time
        step: for one baseline, cells of this length up to the horizon, in place of edges
        horizon: where the cells of `step` end; rows that last longer are censored there
        grid: cells as declared, or the times of events, which then cross in the open
        minimum_count: fewest rows that leave in a cell at a party, if any do, and fewest events of these: smaller cells
            are joined with the next
        reveal: what a minimum of 1 shows of rows that leave alone, which has to be said
        weights: the column by which rows weigh (empty: all alike)
        errors: standard errors by the model, robust ones, or by clusters, which are the parties
        trend: in what time the test of proportional hazards is linear; parties' own baselines know 'identity' only
        unknown_levels: what becomes of rows with a level that was not agreed on
        aliased: what becomes of a column that is a linear combination of those before it
        level: of confidence, of intervals
    """

    formula: str
    baseline: Literal["by-site", "common"] = "by-site"
    ties: Ties = "efron"
    edges: tuple[float, ...] = ()
    step: Annotated[float, Ge(0)] = 0.0
    horizon: Annotated[float, Ge(0)] = 0.0
    grid: Literal["declared", "events"] = "declared"
    minimum_count: Annotated[int, Ge(1)] = 5
    reveal: Literal["cells", "risk sets"] = "cells"
    weights: str = ""
    errors: Literal["model", "robust", "cluster"] = "model"
    trend: Literal["identity", "rank", "km"] = "identity"
    unknown_levels: Literal["refuse", "drop"] = "refuse"
    aliased: Literal["refuse", "drop"] = "refuse"
    level: Annotated[float, Gt(0), Lt(1)] = 0.95

    what: ClassVar[str] = "cox"

    def found(self, sums: ExactSums, federation: Federation) -> Payload:
        """Agree on columns and times, iterate, and say all that there is to say."""
        formula, event = read_outcome(self.formula, federation.schema)
        self._require_grid()
        frame = prepare(sums, federation.schema, ModelSpec(
            formula=formula, weights=self.weights, sites="fixed", unknown_levels=self.unknown_levels,
            minimum_count=self.minimum_count))
        while True:
            try:
                return _Fitting(self, sums, frame, event).result()
            except Aliased as cause:
                if self.aliased == "refuse":
                    raise
                left = [place for place in range(len(frame.names)) if place != cause.place]
                frame = replace(frame.only(left), notes=(*frame.notes, f"without '{frame.names[cause.place]}', a "
                                                                       "linear combination of the columns before it"))

    def cells(self) -> tuple[float, ...]:
        """The declared ends of the cells of time."""
        return declared_edges(self.edges, self.step, self.horizon) if self.grid == "declared" else ()

    def _require_grid(self) -> None:
        cut = [name for name in ("edges", "step", "horizon") if getattr(self, name)]
        if cut and (self.baseline == "by-site" or self.grid == "events"):
            raise ConfigError(f"algorithm.{cut[0]} would do nothing: time is not cut here",
                              remedy="leave it out, or set algorithm.baseline = 'common' and grid = 'declared'")
        if self.baseline == "by-site":
            if self.trend != "identity":
                raise ConfigError(f"algorithm.trend = '{self.trend}' needs times that all parties share",
                                  remedy="set algorithm.baseline = 'common', or trend = 'identity'")
            if self.grid == "events":
                raise ConfigError("algorithm.grid would do nothing: each party takes its own times",
                                  remedy="leave it out, or set algorithm.baseline = 'common'")
        if self.reveal == "risk sets" and (self.baseline == "by-site" or self.minimum_count > 1):
            raise ConfigError("algorithm.reveal would do nothing: no cell holds a single row",
                              remedy="leave it out, or set algorithm.minimum_count = 1")


def declared_edges(edges: tuple[float, ...], step: float, horizon: float) -> tuple[float, ...]:
    """The ends of the cells of time, from a list or from a step and a horizon."""
    if bool(edges) == bool(step) or bool(step) != bool(horizon):
        raise ConfigError("how time is cut is not declared" if not edges else "time is cut in two ways",
                          remedy="set algorithm.edges = [30, 60, 90], or algorithm.step = 30 and algorithm.horizon "
                                 "= 90")
    if step:
        return tuple(step * place for place in range(1, round(horizon / step) + 1))
    if any(right <= left for left, right in zip((0.0, *edges), edges, strict=False)):
        raise ConfigError("algorithm.edges have to grow, from above 0")
    return edges


class _Fitting:
    """One fit: what is agreed on first, and what each step of Newton's method asks."""

    def __init__(self, cox: Cox, sums: ExactSums, frame: Frame, event: str) -> None:
        self.cox, self.sums, self.frame = cox, sums, frame
        self.survival = SurvivalSettings(
            formula=frame.settings.formula, event=event, weights=cox.weights,
            drop_unknown=cox.unknown_levels == "drop", least=cox.minimum_count,
            between="previous" if cox.baseline == "by-site" or cox.grid == "events" else "next",
            columns=len(frame.names))
        self.settings = CoxSettings(**vars(self.survival), ties=cox.ties, baseline=cox.baseline)
        nothing = np.zeros(0)
        self.payload: Payload = {**frame.payload(), "mean": frame.mean, "edges": nothing,
                                 "tied": np.zeros(0, dtype=np.int64), "coefficients": np.zeros(len(frame.names))}
        totals = sums.ask(totals_here, TOTALS, self.payload, self.survival)
        require_sound(totals, len(sums.parties))
        self.events, self.rows, self.dropped = int(totals["events"]), int(totals["n"]), int(totals["dropped"])
        self.centre = float(totals["St"]) / self.events
        if cox.baseline == "common":
            self._cut()

    def _cut(self) -> None:
        edges, found = agree_on_grid(self.sums, self.payload, self.survival, self.cox.cells(), split=False)
        self.settings, self.payload["edges"] = replace(self.settings, cells=found.cells), edges
        first = self.sums.ask(events_here, first_layout(self.settings), self.payload, self.settings)
        self.d, self.wd, self.s = first["d"], first["wd"], first["s"]
        if self.cox.minimum_count == 1 and self.cox.reveal == "cells":
            alone = int((self.d == 1).sum())
            raise ConfigError(f"{alone} of {len(edges)} cells hold a single event, and others may hold a single row, "
                              "whose values the risk sets would show",
                              remedy="coarsen the grid, stratify (algorithm.baseline = 'by-site'), or set "
                                     "algorithm.reveal = 'risk sets'")
        self.payload["tied"] = np.flatnonzero(self.d > 1) if self.cox.ties == "efron" else np.zeros(0, dtype=np.int64)
        self.settings = replace(self.settings, tied=len(self.payload["tied"]))

    def at(self, coefficients: Array) -> Point:
        """The information, the score and the likelihood at some coefficients."""
        found = self.sums.ask(scores_here, scores_layout(self.settings), {
            **self.payload, "coefficients": coefficients}, self.settings)
        wild = int(found["wild"])
        if self.cox.baseline == "by-site":
            return Point(symmetric(found["H"]), found["u"], -2 * float(found["ll"]), wild=wild)
        several = [np.zeros((len(self.d), *found[name].shape[1:])) for name in ("S0", "S1", "S2")]
        if self.settings.tied:
            for whole, name in zip(several, ("D0", "D1", "D2"), strict=True):
                whole[self.payload["tied"]] = found[name]
        parts = risk(self.d, self.wd, (found["S0"], found["S1"], found["S2"]),
                     (several[0], several[1], several[2]), self.cox.ties)
        return Point(parts.information, self.s - parts.expected.sum(axis=0),
                     -2 * (float(found["xb"]) - parts.log_risk), wild=wild, extra={"risk": parts})

    def result(self) -> Payload:
        """Everything there is to say of the fit."""
        names, start = self.frame.names, np.zeros(len(self.frame.names))
        nothing = self.at(start)
        watch = _Separation(names, self.rows)
        fit = newton("cox", names, self.at, start, watch=watch)
        last = self.at(fit.coefficients)
        spread, notes = inverted(last.information), [*self.frame.notes, *fit.notes]
        degrees = None
        if self.cox.errors != "model":
            spread, degrees = self._robust(fit, last, spread, notes)
        turn = self.frame.back()
        coefficients, covariance = turn @ fit.coefficients, turn @ spread @ turn.T
        pairs = self.sums.ask(pairs_here, PAIRS, {**self.payload, "coefficients": fit.coefficients}, self.settings)
        concordant, discordant, tied = (float(pairs[name]) for name in ("concordant", "discordant", "tied"))
        ratio = nothing.deviance - last.deviance
        about: dict[str, float] = {
            "rows": self.rows, "rows left out": self.dropped, "events": self.events, "parties": len(self.sums.parties),
            "log partial likelihood": -last.deviance / 2, "null log partial likelihood": -nothing.deviance / 2,
            "likelihood ratio": ratio, "likelihood ratio p": _tail(ratio, len(names)),
            "concordance within sites": (concordant + tied / 2) / max(concordant + discordant + tied, 1.0)}
        tables: dict[str, list[Row]] = {
            "coefficients": hazard_table(names, coefficients, np.sqrt(np.diag(covariance)), self.cox.level, degrees),
            "fit": [{"quantity": name, "value": value} for name, value in about.items()],
            "proportional hazards": self._proportional(fit, last)}
        if self.cox.baseline == "common":
            tables["baseline hazard"] = self._baseline(last.extra["risk"])
        return {"formula": self.cox.formula, "names": list(names), "coefficients": coefficients,
                "covariance": covariance, "standard_errors": np.sqrt(np.diag(covariance)),
                "iterations": fit.iterations, "tables": tables, "notes": notes}

    def _robust(self, fit: Fit, last: Point, inverse: Array, notes: list[str]) -> tuple[Array, float | None]:
        parties, by_party = len(self.sums.parties), self.cox.errors == "cluster"
        if by_party and self.sums.hidden and parties < _FEWEST_CLUSTERS:
            raise ConfigError(f"cluster-robust errors by site need at least {_FEWEST_CLUSTERS} parties here, and there "
                              f"are {parties}", remedy="use algorithm.errors = 'robust'")
        settings = MeatSettings(**vars(self.settings), of="parties" if by_party else "rows")
        parts: Risk | None = last.extra.get("risk")
        nothing = np.zeros(0)
        needed: Payload = {"hazard": nothing, "pulled": nothing, "own_hazard": nothing, "own_pulled": nothing,
                           "average": nothing} if parts is None else {
            "hazard": parts.hazard, "pulled": parts.pulled, "own_hazard": parts.own_hazard,
            "own_pulled": parts.own_pulled, "average": parts.mean}
        found = self.sums.ask(meat_here, meat_layout(settings), {
            **self.payload, "coefficients": fit.coefficients, **needed}, settings)
        if by_party and found["clusters"] < _FEW_CLUSTERS:
            notes.append(f"{int(found['clusters'])} clusters are few: intervals may be too narrow")
        return inverse @ symmetric(found["M"]) @ inverse, None

    def _proportional(self, fit: Fit, last: Point) -> list[Row]:
        """The score test of a coefficient that grows with time (Grambsch and Therneau, without their approximation)."""
        parts: Risk | None = last.extra.get("risk")
        trend = np.zeros(0) if parts is None else self._times()
        found = self.sums.ask(trend_here, trend_layout(self.settings), {
            **self.payload, "coefficients": fit.coefficients, "trend": trend, "centre": self.centre}, self.settings)
        pull, mixed, twice = found["U"], symmetric(found["I12"]), symmetric(found["I22"])
        if parts is not None:
            pull, mixed, twice = (pull - trend @ parts.expected, symmetric(trend @ parts.spread),
                                  symmetric(trend ** 2 @ parts.spread))
        left = twice - mixed @ np.linalg.solve(last.information, mixed)
        alone = pull ** 2 / np.diag(left)
        singles: list[Row] = [{"term": name, "df": 1, "chi2": chi2, "p": _tail(chi2, 1)}
                              for name, chi2 in zip(self.frame.names, alone.tolist(), strict=True)]
        together = float(pull @ np.linalg.solve(left, pull))
        return [*singles, {"term": "all", "df": len(pull), "chi2": together, "p": _tail(together, len(pull))}]

    def _times(self) -> Array:
        """What time is in the test, around its mean over events."""
        d, edges = self.d.astype(np.float64), self.payload["edges"]
        times = {"identity": edges, "rank": np.cumsum(d) - (d - 1) / 2}.get(self.cox.trend)
        if times is None:
            hazard = np.cumsum(self.at(np.zeros(len(self.frame.names))).extra["risk"].hazard)
            times = np.concatenate([np.zeros(1), 1 - np.exp(-hazard[:-1])])
        return np.asarray(times - d @ times / d.sum())

    def _baseline(self, parts: Risk) -> list[Row]:
        """The cumulative hazard, and survival, of a row with the mean of each column."""
        cumulated, edges = np.cumsum(parts.hazard), self.payload["edges"]
        return [{"time": float(edges[cell]), "cumulative hazard": float(cumulated[cell]),
                 "survival": exp(-float(cumulated[cell]))} for cell in np.flatnonzero(self.d).tolist()]


class _Separation:
    """Refuses a coefficient that grows without bound: its variance then grows by a constant factor per step."""

    def __init__(self, names: tuple[str, ...], rows: int) -> None:
        self.names, self.before, self.running = names, np.zeros(0), 0

    def __call__(self, iteration: int, spread: Array, step: Array) -> None:
        """Called with the diagonal of the inverse information at each step."""
        grown = spread / self.before if len(self.before) else np.ones(len(spread))
        self.before = spread
        self.running = self.running + 1 if grown.max() > 2 else 0
        if iteration >= 4 and self.running >= 3:
            worst = self.names[int(grown.argmax())]
            raise DataError(f"the events are separated: nothing holds back the coefficient of '{worst}'",
                            remedy="drop the term, or merge levels")


def hazard_table(names: tuple[str, ...], coefficients: Array, errors: Array, level: float,
                 degrees: float | None = None) -> list[Row]:
    """One row per column: estimate, standard error, z, p and the interval, and the hazard ratio with its own."""
    from scipy import stats

    far = float(stats.norm.ppf(0.5 + level / 2))
    rows: list[Row] = []
    for name, estimate, error in zip(names, coefficients.tolist(), errors.tolist(), strict=True):
        low, high, z = estimate - far * error, estimate + far * error, estimate / error if error else float("nan")
        rows.append({"term": name, "estimate": estimate, "se": error, "z": z, "p": float(2 * stats.norm.sf(abs(z))),
                     "low": low, "high": high, "hazard ratio": exp(min(estimate, 700.0)),
                     "hazard ratio low": exp(min(low, 700.0)), "hazard ratio high": exp(min(high, 700.0))})
    return rows


def _tail(statistic: float, columns: int) -> float:
    from scipy import stats

    return float(stats.chi2.sf(statistic, columns))
