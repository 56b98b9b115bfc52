"""The algorithm `effect`: what a treatment changes, by weighting (IPW), doubly robust (AIPW), or in strata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Interval, Le, Lt

from tequio.algorithms.statistics.design import CONSTANT
from tequio.algorithms.statistics.effect_tasks import (
    ARMS,
    CELLS,
    MODELS,
    SPREAD,
    EffectSettings,
    SpreadSettings,
    StrataSettings,
    arms_here,
    means_here,
    means_layout,
    nuisance_layout,
    nuisances_here,
    slopes_here,
    slopes_layout,
    spread_here,
    strata_here,
    strata_layout,
)
from tequio.algorithms.statistics.exact_sums import symmetric
from tequio.algorithms.statistics.fitting import ModelSpec, prepare
from tequio.algorithms.statistics.formula import read_formula
from tequio.algorithms.statistics.newton import MOST_HALVINGS, MOST_ITERATIONS, STOP, inverted
from tequio.algorithms.statistics.small_cells import require_everywhere
from tequio.algorithms.statistics.statistic import ExactStatistic, require_columns
from tequio.errors import ConfigError, DataError, RunError
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.algorithms.statistics.exact_sums import ExactSums
    from tequio.algorithms.statistics.fitting import Frame
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload

    Array = NDArray[np.float64]
    Row = dict[str, str | float]

_RISE, _BALANCED = 1e-8, 0.1
_FLOOR = 1e-6


@register("algorithm", "effect", paper="Robins, Rotnitzky and Zhao, 1994; Chernozhukov et al., 2018")
@dataclass(frozen=True, kw_only=True)
class Effect(ExactStatistic):
    """The average effect of a treatment over all parties' rows, with its standard error, balance and positivity.

    Propensities are a logistic regression over all parties, whose coefficients the parties learn; the propensity of a
    row never leaves its party. Doubly robust estimates add a model of the outcome in each arm. Folds (cross-fitting)
    are rows within every party.

    Parameters:
        formula: outcome and covariates, such as 'died ~ age + C(stage)'; the treatment is not among them
        treatment: the column that says who was treated (1, or the second of two categories)
        method: weights by propensities (Hajek); these augmented by models of the outcome, so that one of the two may be
            wrong; or differences among rows of similar propensity
        family: of the outcome in the models of each arm
        strata: for method 'strata', how many groups of about as many rows
        folds: 1 fits and estimates on the same rows; with more, each fold is estimated by models of the others
        fold_column: a column that holds the number of each row's fold (empty: by a hash of the row's id)
        bounds: propensities below and above are cut to these, and counted
        level: of confidence, of intervals
        minimum_count: rows that a level of a number needs at a party to be agreed on
    """

    formula: str
    treatment: str
    method: Literal["ipw", "aipw", "strata"] = "aipw"
    family: Literal["gaussian", "binomial"] = "gaussian"
    strata: Annotated[int, Ge(2), Le(10)] = 5
    folds: Annotated[int, Ge(1), Le(20)] = 1
    fold_column: str = ""
    bounds: tuple[Annotated[float, Interval(ge=0, lt=1)], Annotated[float, Interval(gt=0, le=1)]] = (0.01, 0.99)
    level: Annotated[float, Gt(0), Lt(1)] = 0.95
    minimum_count: Annotated[int, Ge(1)] = 5

    what: ClassVar[str] = "effect"

    def start(self, federation: Federation) -> State:
        """Columns and settings that do not fit are refused before any party is asked."""
        columns = read_formula(self.formula).columns
        require_columns(federation.schema, (*columns, self.treatment, self.fold_column))
        if self.treatment in columns:
            raise ConfigError(f"the treatment '{self.treatment}' stands in the formula",
                              remedy="leave it out there: the formula is of the outcome and the covariates")
        if not self.bounds[0] < self.bounds[1]:
            raise ConfigError("algorithm.bounds leave no propensity between them", remedy="set bounds = [0.01, 0.99]")
        if self.method != "aipw" and (self.folds > 1 or self.family != "gaussian"):
            raise ConfigError(f"algorithm.folds and family would do nothing: '{self.method}' has no model of the "
                              "outcome", remedy="leave them out, or set algorithm.method = 'aipw'")
        if self.fold_column and self.folds == 1:
            raise ConfigError("algorithm.fold_column would do nothing: there is one fold",
                              remedy="set algorithm.folds")
        return super().start(federation)

    def found(self, sums: ExactSums, federation: Federation) -> Payload:
        """Agree on columns, fit all models side by side, and estimate."""
        covariates = self.formula.split("~", 1)[1]
        frame = prepare(sums, federation.schema, ModelSpec(
            formula=f"`{self.treatment}` ~ {covariates}", family="binomial", minimum_count=self.minimum_count))
        settings = EffectSettings(
            formula=self.formula, family=self.family, link="logit" if self.family == "binomial" else "identity",
            weights="", drop_unknown=False, sites="none", columns=len(frame.names), folds=self.folds,
            fold_column=self.fold_column, treatment=self.treatment, low=self.bounds[0], high=self.bounds[1])
        payload: Payload = frame.payload()
        arms = sums.ask(arms_here, ARMS, payload, settings)
        require_everywhere(arms["refused"], len(sums.parties))
        if arms["invalid"]:
            raise DataError(f"'{self.treatment}' holds other values than 0 and 1")
        n, treated = int(arms["n"]), int(arms["treated"])
        if treated in (0, n):
            raise DataError(f"no party has a row in arm {int(not treated)}", remedy="effects compare two arms")
        fitted, asked = fit_all(sums, frame, payload, settings)
        payload = {**payload, "coefficients": fitted}
        found = sums.ask(means_here, means_layout(settings), payload, settings)
        notes = [f"{int(arms['empty'])} parties have rows of one arm only"] if arms["empty"] else []
        if found["cut"]:
            notes.append(f"{int(found['cut'])} propensities were cut to {self.bounds[0]:g} or {self.bounds[1]:g}")
        if self.method == "strata":
            means, errors = self._in_strata(sums, payload, settings, found["cells"].sum(axis=0), n)
        else:
            means = found["Sphi"] / n if self.method == "aipw" else found["SwY"] / found["Sw"]
            errors = np.sqrt(self._squares(sums, payload, settings, found, means, n)) / n
        tables: dict[str, list[Row]] = {
            "effect": effect_table(np.append(means, means[0] - means[1]), errors, self.level),
            "balance": balance_table(frame, found, np.array([treated, n - treated])),
            "positivity": positivity_table(found["cells"]),
            "fit": [{"quantity": name, "value": float(value)} for name, value in {
                "rows": n, "rows left out": int(arms["dropped"]), "treated": treated, "parties": len(sums.parties),
                "effective rows treated": found["Sw"][0] ** 2 / found["Sw2"][0],
                "effective rows not treated": found["Sw"][1] ** 2 / found["Sw2"][1]}.items()]}
        worst = [row for row in tables["balance"] if abs(float(row["after"])) > _BALANCED]
        if worst:
            notes.append("not balanced by the weights (above 0.1): " + ", ".join(str(row["term"]) for row in worst))
        return {"formula": self.formula, "treatment": self.treatment, "method": self.method,
                "coefficients": fitted, "names": list(frame.names), "iterations": asked,
                "means": means, "effect": float(means[0] - means[1]), "standard_error": float(errors[2]),
                "tables": tables, "notes": notes}

    def _squares(self, sums: ExactSums, payload: Payload, settings: EffectSettings, found: dict[str, Any],
                 means: Array, n: int) -> Array:
        """Sums of squared influences. Under weighting, that propensities are estimated makes them smaller."""
        correction = np.zeros((2, settings.columns))
        payload = {**payload, "means": means, "weights": found["Sw"] / n, "correction": correction}
        if self.method == "ipw":
            slopes = sums.ask(slopes_here, slopes_layout(settings), payload, settings)["d"]
            information = sums.ask(nuisances_here, nuisance_layout(settings), payload, settings)["H"][0]
            payload["correction"] = n * (slopes / found["Sw"][:, None]) @ inverted(symmetric(information))
        of = SpreadSettings(**vars(settings), method="ipw" if self.method == "ipw" else "aipw")
        return np.asarray(sums.ask(spread_here, SPREAD, payload, of)["psi2"])

    def _in_strata(self, sums: ExactSums, payload: Payload, settings: EffectSettings, cells: NDArray[np.int64],
                   n: int) -> tuple[Array, Array]:
        """Means of both arms in strata of propensity, which begin at twentieths, weighted by the strata's rows."""
        below = np.cumsum(cells)
        ends = np.unique([int(np.searchsorted(below, below[-1] * place / self.strata)) + 1
                          for place in range(1, self.strata)])
        cuts = ends[ends < CELLS] / CELLS
        of = StrataSettings(**vars(settings), strata=len(cuts) + 1)
        payload = {**payload, "cuts": cuts, "centre": np.zeros((2, len(cuts) + 1))}
        first = sums.ask(strata_here, strata_layout(of), payload, of)
        rows = first["rows"]
        edges = [settings.low, *cuts.tolist(), settings.high]
        for place in np.flatnonzero((rows == 0).any(axis=0) & (rows > 0).any(axis=0)).tolist():
            raise DataError(f"nobody with a propensity from {edges[place]:g} to {edges[place + 1]:g} is in arm "
                            f"{int(rows[0, place] == 0)}", remedy="leave those rows out, or drop the covariate that "
                                                                  "decides who is treated")
        whole = rows.sum(axis=0)
        mean = first["Y"] / np.maximum(rows, 1)
        squares = sums.ask(strata_here, strata_layout(of), {**payload, "centre": mean}, of)["YY"]
        share, variance = whole / whole.sum(), squares / np.maximum(rows - 1, 1) / np.maximum(rows, 1)
        each = variance @ np.square(share)
        return mean @ share, np.sqrt(np.append(each, each.sum()))


def fit_all(sums: ExactSums, frame: Frame, payload: Payload, settings: EffectSettings) -> tuple[Array, int]:
    """Fisher scoring of all models at once: each takes its own steps, halved where its deviance rises, and stops."""
    sets, p = settings.folds * MODELS, settings.columns

    def ask(at: Array) -> tuple[Array, Array, Array]:
        found = sums.ask(nuisances_here, nuisance_layout(settings), {**payload, "coefficients": at}, settings)
        return found["H"], found["u"], found["dev"]

    at, step, halvings, asked = np.zeros((sets, p)), np.zeros((sets, p)), np.zeros(sets), 1
    found = ask(at)
    deviance, open_ = found[2], np.ones(sets, dtype=bool)
    smallest, stuck = np.full(sets, np.inf), np.zeros(sets, dtype=int)
    while open_.any():
        for place in np.flatnonzero(open_).tolist():
            rose = found[2][place] - deviance[place] > _RISE * (abs(deviance[place]) + 0.1)
            if rose and halvings[place] < MOST_HALVINGS:
                step[place] /= 2
                at[place] -= step[place]
                halvings[place] += 1
                continue
            step[place] = inverted(symmetric(found[0][place]), frame.names) @ found[1][place]
            phi = max(found[2][place] / max(found[0][place][0], 1.0), 1e-300) if settings.family == "gaussian" and \
                place % MODELS else 1.0
            change = float(np.sqrt(max(step[place] @ found[1][place], 0.0) / phi))
            stuck[place] = stuck[place] + 1 if change >= smallest[place] else 0
            smallest[place] = min(smallest[place], change)
            open_[place] = change > STOP and not (stuck[place] >= 2 and change <= _FLOOR)
            deviance[place], halvings[place] = found[2][place], 0
            at[place] += step[place]
        if open_.any():
            if asked >= MOST_ITERATIONS:
                raise RunError(f"'{sums.what}' did not converge in {MOST_ITERATIONS} iterations",
                               remedy="look at separation: a covariate that decides who is treated, or the outcome")
            found, asked = ask(at), asked + 1
    return at, asked


def effect_table(values: Array, errors: Array, level: float) -> list[Row]:
    """The means of both arms, and their difference."""
    from scipy import stats

    far = float(stats.norm.ppf(0.5 + level / 2))
    rows: list[Row] = []
    for name, value, error in zip(("mean if treated", "mean if not", "difference"), values.tolist(), errors.tolist(),
                                  strict=True):
        z = value / error if error else float("nan")
        rows.append({"term": name, "estimate": value, "se": error, "z": z, "p": float(2 * stats.norm.sf(abs(z))),
                     "low": value - far * error, "high": value + far * error})
    return rows


def balance_table(frame: Frame, found: dict[str, Any], rows: NDArray[np.int64]) -> list[Row]:
    """Standardised differences of the arms, before and after weighting."""
    mean = found["Sx"] / rows[:, None]
    variance = (found["Sxx"] - rows[:, None] * np.square(mean)) / np.maximum(rows - 1, 1)[:, None]
    spread = np.sqrt(variance.mean(axis=0))
    weighted = found["Swx"] / found["Sw"][:, None]
    return [{"term": name, "before": float((mean[0] - mean[1])[place] / spread[place]),
             "after": float((weighted[0] - weighted[1])[place] / spread[place])}
            for place, name in enumerate(frame.names) if name != CONSTANT and spread[place] > 0]


def positivity_table(cells: NDArray[np.int64]) -> list[Row]:
    """How many rows of each arm have a propensity in which cell, where any has."""
    used = np.flatnonzero(cells.any(axis=0)).tolist()
    rows: list[Row] = [{"propensity from": cell / CELLS, "to": (cell + 1) / CELLS, "treated": int(cells[0, cell]),
                        "not treated": int(cells[1, cell])} for cell in used]
    return rows
