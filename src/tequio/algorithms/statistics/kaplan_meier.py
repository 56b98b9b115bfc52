"""The algorithms `kaplan-meier` and `log-rank`: survival by group, and whether groups differ, from counts of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt
from numpy.typing import NDArray  # noqa: TC002

from tequio.algorithms.statistics.cox import declared_edges
from tequio.algorithms.statistics.design import CONSTANT, levels_of, names_of
from tequio.algorithms.statistics.exact_sums import Block, Layout, symmetric, triangle, upper, whole_reply
from tequio.algorithms.statistics.fitting import ModelSpec, agree
from tequio.algorithms.statistics.formula import read_formula
from tequio.algorithms.statistics.glm_tasks import DesignPayload  # noqa: TC001
from tequio.algorithms.statistics.small_cells import require
from tequio.algorithms.statistics.statistic import ExactStatistic
from tequio.algorithms.statistics.survival_rows import (
    TOTALS,
    GridPayload,
    SurvivalSettings,
    agree_on_grid,
    counted,
    fewest,
    leaving_by,
    read_outcome,
    require_large,
    require_sound,
    totals_here,
    watched_here,
)
from tequio.errors import ConfigError, DataError
from tequio.federation.sums import SumsReply
from tequio.federation.task import Sums, record, task
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.algorithms.statistics.exact_sums import ExactSums
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]
    Row = dict[str, str | float]

Weights = Literal["log-rank", "wilcoxon", "fleming-harrington"]


@record
class SiteSettings(SurvivalSettings):
    """How times weigh where each party compares its own groups."""

    weighing: Weights
    rho: float
    gamma: float


def counts_layout(settings: SurvivalSettings) -> Layout:
    """Rows that leave, by group, and then censored or by the event, and cell of time."""
    return (Block("leaving", (settings.columns + 1, 2, settings.cells), "count"),)


@task("survival: counts", settings=SurvivalSettings, reply=SumsReply, reveals=Sums(guarded=True))
def counts_here(party: Party, payload: GridPayload, settings: SurvivalSettings) -> SumsReply:
    """How many rows of each group leave in each cell of time."""
    rows = watched_here(party, payload, settings)
    require(rows.broken)
    leaving = leaving_by(rows, payload["edges"], settings, settings.columns + 1)
    require_large(leaving, fewest(party, settings))
    return whole_reply(party, counts_layout(settings), payload, {"leaving": leaving})


def site_layout(settings: SiteSettings) -> Layout:
    """Observed less expected events by group, and the covariance of these."""
    return (Block("difference", (settings.columns + 1,)), triangle("V", settings.columns + 1))


@task("survival: own comparison", settings=SiteSettings, reply=SumsReply, reveals=Sums(guarded=True))
def compared_here(party: Party, payload: DesignPayload, settings: SiteSettings) -> SumsReply:
    """The party's own groups compared at its own times of events."""
    rows = watched_here(party, payload, settings)
    require(rows.broken)
    if 0 < rows.event.sum() < fewest(party, settings):
        raise DataError("there are too few events for this here (rule c)", remedy="leave this party out")
    times = np.unique(rows.time[rows.event]) if rows.event.any() else np.zeros(1)
    leaving = counted(rows.on_grid(times, settings), len(times), settings.columns + 1)
    difference, covariance = compared(leaving, settings.weighing, settings.rho, settings.gamma)
    return whole_reply(party, site_layout(settings), payload, {"difference": difference, "V": upper(covariance)})


def at_risk(leaving: Whole) -> Whole:
    """Rows that leave in each cell or later."""
    return np.asarray(leaving.sum(axis=-2)[..., ::-1].cumsum(axis=-1)[..., ::-1])


def survival(d: Whole, n: Whole) -> tuple[Array, Array]:
    """Kaplan and Meier's estimate after each cell, and Greenwood's sum."""
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.where(n > 0, np.log1p(-d / np.maximum(n, 1)), 0.0)
        terms = np.where(d > 0, d / (n * (n - d)), 0.0)
        return np.exp(np.cumsum(kept)), np.cumsum(terms)


def compared(leaving: Whole, weighing: Weights, rho: float, gamma: float) -> tuple[Array, Array]:
    """Observed less expected events by group, weighted, and their hypergeometric covariance."""
    n = at_risk(leaving).astype(np.float64)
    d = leaving[:, 1].astype(np.float64)
    total, events = n.sum(axis=0), d.sum(axis=0)
    some = events > 0
    n, d, total, events = n[:, some], d[:, some], total[some], events[some]
    after = survival(events, total)[0]
    left = np.concatenate([np.ones(1), after[:-1]]) if len(after) else after
    weight = {"log-rank": np.ones(len(total)), "wilcoxon": total}.get(weighing)
    if weight is None:
        weight = left ** rho * (1 - left) ** gamma
    share = n / total
    difference = (weight * (d - events * share)).sum(axis=1)
    spread = weight ** 2 * events * (total - events) / np.maximum(total - 1, 1)
    return difference, np.diag((spread * share).sum(axis=1)) - (spread * share) @ share.T


@dataclass(frozen=True, kw_only=True)
class _Groups(ExactStatistic):
    """What curves and tests share: the formula, and how time is cut."""

    formula: str
    edges: tuple[float, ...] = ()
    step: Annotated[float, Ge(0)] = 0.0
    horizon: Annotated[float, Ge(0)] = 0.0
    grid: Literal["declared", "events"] = "declared"
    minimum_count: Annotated[int, Ge(1)] = 5

    @property
    def exact(self) -> bool:
        """Whether the times are those of events."""
        return self.grid == "events"

    def agreed(self, sums: ExactSums, federation: Federation) -> tuple[Payload, SurvivalSettings, list[str], float]:
        """What tasks need to make groups, and what these are called."""
        schema = federation.schema
        formula, event = read_outcome(self.formula, schema)
        read = read_formula(formula)
        agreed = agree(sums, schema, ModelSpec(formula=formula, minimum_count=self.minimum_count))
        names = names_of(read, schema, agreed)
        kept = np.array([place for place, name in enumerate(names) if name != CONSTANT], dtype=np.int64)
        factors = {factor for term in read.terms for factor in term}
        groups = ["all"]
        if factors:
            factor = next(iter(factors))
            if len(factors) > 1 or factor.kind == "spline":
                raise ConfigError(f"'{self.formula}' makes no groups", remedy="write one column after the ~: of "
                                  "categories, of numbers as C(column), or of 0 and 1; or 1 for all rows together")
            found = levels_of(factor, schema, agreed)
            groups = [f"{factor.label} = 0", f"{factor.label} = 1"] if found is None else found[1]
        settings = SurvivalSettings(formula=formula, event=event, weights="", drop_unknown=False,
                                    least=self.minimum_count, between="previous" if self.exact else "next",
                                    columns=len(kept))
        payload: Payload = {"levels": agreed["levels"], "knots": agreed["knots"], "kept": kept}
        totals = sums.ask(totals_here, TOTALS, payload, settings)
        require_sound(totals, len(sums.parties))
        return payload, settings, groups, float(totals["n"])

    def counted(self, sums: ExactSums, payload: Payload, settings: SurvivalSettings) -> tuple[Array, Whole]:
        """The ends of the cells of time, and who left in which."""
        if self.grid == "events" and (self.edges or self.step or self.horizon):
            raise ConfigError("algorithm.edges, step and horizon would do nothing: cells end at the times of events",
                              remedy="leave them out, or leave algorithm.grid out")
        declared = declared_edges(self.edges, self.step, self.horizon) if self.grid == "declared" else ()
        edges, settings = agree_on_grid(sums, payload, settings, declared, split=True)
        return edges, sums.ask(counts_here, counts_layout(settings), {**payload, "edges": edges}, settings)["leaving"]


@register("algorithm", "kaplan-meier", paper="Kaplan and Meier, 1958; Greenwood, 1926")
@dataclass(frozen=True, kw_only=True)
class KaplanMeier(_Groups):
    """Survival over time by group, with limits on the log-log scale, medians, and numbers at risk.

    Parameters:
        formula: 'Surv(time, event) ~ group', or '~ 1' for all rows together
        edges: the ends of the cells of time, to which times are rounded up
        step: cells of this length up to the horizon, in place of edges
        horizon: where the cells of `step` end; rows that last longer are censored there
        grid: cells as declared, or the times of events, which then cross in the open
        minimum_count: fewest rows of a group that leave in a cell at a party, if any do, and fewest events of these:
            smaller cells are joined with the next
        level: of confidence, of the limits
    """

    level: Annotated[float, Gt(0), Lt(1)] = 0.95

    what: ClassVar[str] = "kaplan-meier"

    def found(self, sums: ExactSums, federation: Federation) -> Payload:
        """One table of curves and one of groups."""
        from scipy import stats

        payload, settings, groups, rows = self.agreed(sums, federation)
        edges, leaving = self.counted(sums, payload, settings)
        n, far = at_risk(leaving), float(stats.norm.ppf(0.5 + self.level / 2))
        curves: list[Row] = []
        summary: list[Row] = []
        for place, group in enumerate(groups):
            d, c = leaving[place, 1], leaving[place, 0]
            alive, greenwood = survival(d, n[place])
            low, high = log_log_limits(alive, greenwood, far)
            with np.errstate(invalid="ignore"):
                error = np.where(alive > 0, alive * np.sqrt(greenwood), 0.0)
            curves += [{"group": group, "time": float(edges[cell]), "at risk": int(n[place, cell]),
                        "events": int(d[cell]), "censored": int(c[cell]), "survival": float(alive[cell]),
                        "se": float(error[cell]), "low": float(low[cell]), "high": float(high[cell])}
                       for cell in range(len(edges))]
            half = np.flatnonzero(alive <= 0.5 + 1e-12)
            summary.append({"group": group, "rows": int(n[place, 0]), "events": int(d.sum()),
                            "median": float(edges[half[0]]) if len(half) else float("nan")})
        return {"formula": self.formula, "edges": edges, "leaving": leaving, "rows": rows,
                "tables": {"groups": summary, "survival": curves}}


def log_log_limits(alive: Array, greenwood: Array, far: float) -> tuple[Array, Array]:
    """Limits that stay within 0 and 1: those of log(-log(survival))."""
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.exp(far * np.sqrt(greenwood) / np.log(alive))
        inside = (alive > 0) & (alive < 1)
        return np.where(inside, alive ** (1 / reach), alive), np.where(inside, alive ** reach, alive)


@register("algorithm", "log-rank", paper="Mantel, 1966; Fleming and Harrington, 1991")
@dataclass(frozen=True, kw_only=True)
class LogRank(_Groups):
    """Whether survival differs between groups: observed and expected events, chi-square and p.

    Stratified by site, each party compares its own groups at its own times, and no grid is needed.

    Parameters:
        formula: 'Surv(time, event) ~ group'
        weights: how times weigh: alike, by the rows at risk, or by survival^rho (1 - survival)^gamma
        rho: for fleming-harrington: above 0 looks at early differences
        gamma: for fleming-harrington: above 0 looks at late differences
        stratify: compare groups within each party
        edges: the ends of the cells of time, to which times are rounded up
        step: cells of this length up to the horizon, in place of edges
        horizon: where the cells of `step` end; rows that last longer are censored there
        grid: cells as declared, or the times of events, which then cross in the open
        minimum_count: fewest rows of a group that leave in a cell at a party, if any do, and fewest events of these:
            smaller cells are joined with the next
    """

    weights: Weights = "log-rank"
    rho: Annotated[float, Ge(0)] = 0.0
    gamma: Annotated[float, Ge(0)] = 0.0
    stratify: bool = False

    what: ClassVar[str] = "log-rank"

    @property
    def exact(self) -> bool:
        """Whether the times are those of events, of all parties or of each."""
        return self.stratify or self.grid == "events"

    def found(self, sums: ExactSums, federation: Federation) -> Payload:
        """One row per group, and one for the test."""
        from scipy import stats

        if (self.rho or self.gamma) and self.weights != "fleming-harrington":
            raise ConfigError("algorithm.rho and algorithm.gamma would do nothing: they are those of Fleming and "
                              "Harrington", remedy="set algorithm.weights = 'fleming-harrington'")
        payload, settings, groups, rows = self.agreed(sums, federation)
        if len(groups) < 2:
            raise ConfigError(f"'{self.formula}' has no groups to compare", remedy="write Surv(time, event) ~ group")
        summary: list[Row]
        if self.stratify:
            if self.edges or self.step or self.horizon or self.grid == "events":
                raise ConfigError("algorithm.edges, step, horizon and grid would do nothing: parties take their own "
                                  "times", remedy="leave them out, or set algorithm.stratify = false")
            site = SiteSettings(**vars(settings), weighing=self.weights, rho=self.rho, gamma=self.gamma)
            found = sums.ask(compared_here, site_layout(site), payload, site)
            difference, covariance = found["difference"], symmetric(found["V"])
            summary = [{"group": group, "observed - expected": float(difference[place])}
                       for place, group in enumerate(groups)]
        else:
            leaving = self.counted(sums, payload, settings)[1]
            difference, covariance = compared(leaving, self.weights, self.rho, self.gamma)
            plain = compared(leaving, "log-rank", 0.0, 0.0)[0]
            observed = leaving[:, 1].sum(axis=1)
            summary = [{"group": group, "rows": int(leaving[place].sum()), "observed": int(observed[place]),
                        "expected": float(observed[place] - plain[place])} for place, group in enumerate(groups)]
        varies = np.flatnonzero(np.diag(covariance) > 1e-12 * np.diag(covariance).max())[:-1]  # the last one follows
        df, some = len(varies), difference[varies]
        chi2 = float(some @ np.linalg.solve(covariance[np.ix_(varies, varies)], some))
        test: Row = {"test": self.weights, "chi2": chi2, "df": df, "p": float(stats.chi2.sf(chi2, df))}
        return {"formula": self.formula, "rows": rows, "difference": difference, "covariance": covariance,
                "tables": {"test": [test], "groups": summary}}
