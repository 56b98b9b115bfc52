"""The algorithm `glm`: one regression of the pooled rows, with what a statistician reports of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import exp, log
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from tequio.algorithms.statistics.design import CONSTANT, Table
from tequio.algorithms.statistics.families import FamilyName, LinkName
from tequio.algorithms.statistics.fitting import (
    Errors,
    Fitted,
    ModelSpec,
    fit,
    likelihood,
    prepare,
    scores_at,
    with_errors,
)
from tequio.algorithms.statistics.formula import read_formula
from tequio.algorithms.statistics.newton import inverted
from tequio.algorithms.statistics.random_sites import fit_random
from tequio.algorithms.statistics.statistic import ExactStatistic, require_columns
from tequio.errors import ConfigError, nearest
from tequio.federation.algorithm import State
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.algorithms.statistics.exact_sums import ExactSums
    from tequio.algorithms.statistics.fitting import Frame
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload

    Row = dict[str, str | float]

RATIOS = {("binomial", "logit"): "odds ratio", ("binomial", "cloglog"): "hazard ratio",
          ("poisson", "log"): "rate ratio", ("negative-binomial", "log"): "rate ratio",
          ("gamma", "log"): "ratio of means"}


@register("algorithm", "glm", paper="McCullagh and Nelder, 1989")
@dataclass(frozen=True, kw_only=True)
class Glm(ExactStatistic):
    """A generalised linear model of all parties' rows, as if they were pooled: coefficients, standard errors, p-values.

    Exact, whatever the split of rows over parties, and the same to the last bit under 'secure-sum' and 'one-shot-sum'.
    All iterations take place in one round; further rounds change nothing.

    Parameters:
        formula: outcome and terms, such as 'y ~ a + b + C(c, ref="x") + a:b + log(d) + rcs(e, 4) + offset(log(t))'
        family: how the outcome is distributed around its mean
        link: what of the mean is linear (empty: the first that the family has)
        weights: the column by which rows weigh (empty: all alike)
        weights_are: whether weights are precisions, or how many rows a row stands for
        sites: one constant for all, an intercept for each party that is eliminated at the party (fixed), or one drawn
            from a normal distribution (random)
        restricted: random intercepts of gaussian outcomes by restricted rather than full likelihood
        nodes: of the quadrature over a random intercept of other outcomes; 1 is Laplace's approximation
        errors: standard errors by the model, robust ones (HC0 to HC3), or by clusters, which are the parties
        level: of confidence, of intervals
        tests: groups of terms that are tested together, by Wald, likelihood-ratio and score tests
        quasi: estimate the dispersion where the family has none
        aic: count coefficients only, as statsmodels does, or in full with the dispersion too
        unknown_levels: what becomes of rows with a level that was not agreed on
        aliased: what becomes of a column that is a linear combination of those before it
        minimum_count: rows that a level of a number needs at a party to be agreed on, and that stand behind each count
            by which knots are found
    """

    formula: str
    family: FamilyName = "gaussian"
    link: LinkName = ""
    weights: str = ""
    weights_are: Literal["precision", "counts"] = "precision"
    sites: Literal["none", "fixed", "random"] = "none"
    restricted: bool = True
    nodes: Annotated[int, Ge(1), Le(50)] = 9
    errors: Errors = "model"
    level: Annotated[float, Gt(0), Lt(1)] = 0.95
    tests: tuple[tuple[str, ...], ...] = ()
    quasi: bool = False
    aic: Literal["coefficients", "full"] = "coefficients"
    unknown_levels: Literal["refuse", "drop"] = "refuse"
    aliased: Literal["refuse", "drop"] = "refuse"
    minimum_count: Annotated[int, Ge(1)] = 5

    what: ClassVar[str] = "glm"

    def start(self, federation: Federation) -> State:
        """Refuse what is not there."""
        if self.weights_are == "counts" and not self.weights:
            raise ConfigError("algorithm.weights_are would do nothing: there are no weights",
                              remedy="set algorithm.weights to a column, or leave weights_are out")
        if self.sites == "random" and (self.errors != "model" or self.tests or self.quasi):
            raise ConfigError("random intercepts have standard errors of the model, and no tests of groups of terms",
                              remedy="leave algorithm.errors, tests and quasi out, or set algorithm.sites = 'fixed'")
        require_columns(federation.schema, (*read_formula(self.formula).columns, self.weights))
        return State({})

    def found(self, sums: ExactSums, federation: Federation) -> Payload:
        """Fit once, and say all that there is to say."""
        spec = ModelSpec(formula=self.formula, family=self.family, link=self.link, weights=self.weights,
                         weights_are=self.weights_are, sites="fixed" if self.sites == "fixed" else "none",
                         unknown_levels=self.unknown_levels,
                         aliased=self.aliased, quasi=self.quasi, minimum_count=self.minimum_count)
        frame = prepare(sums, federation.schema, spec)
        if self.sites == "random":
            return self._with_random_sites(sums, frame)
        plain = fit(sums, frame)
        model = with_errors(sums, plain, self.errors)
        frame = model.frame
        tables = {"coefficients": coefficient_table(model, self.level), "fit": self._fit_table(sums, plain)}
        if self.tests:
            tables["tests"] = [self._tested(sums, plain, model, group) for group in self.tests]
        if len([name for name in frame.names if name != CONSTANT]) > 1:
            tables["variance inflation"] = inflation(sums, frame)
        outcome = read_formula(self.formula).outcome
        levels = Table.domain(federation.schema, outcome.column) if outcome.column else None
        event = [f"the event is {outcome.label} = '{levels[-1]}'"] if levels and self.family == "binomial" else []
        return {"formula": self.formula, "family": self.family, "link": frame.settings.link, "errors": self.errors,
                "names": list(frame.names), "coefficients": model.coefficients, "covariance": model.covariance,
                "standard_errors": model.errors, "iterations": model.fit.iterations,
                "alpha": model.alpha, "alpha_error": model.alpha_se, "dispersion": model.dispersion,
                "tables": tables, "notes": [*event, *model.notes]}

    def _with_random_sites(self, sums: ExactSums, frame: Frame) -> Payload:
        """Coefficients, and how much the intercepts of sites differ."""
        found = fit_random(sums, frame, restricted=self.restricted, nodes=self.nodes)
        model, variance = found.model, found.model.dispersion
        gaussian = self.family == "gaussian"
        fitted = {"rows": frame.rows, "rows left out": frame.dropped, "sites": found.sites,
                  "log-likelihood": found.log_likelihood, "sd of site intercepts": found.tau,
                  **({"variance of rows": variance, "intraclass correlation": found.tau ** 2 / (
                      found.tau ** 2 + variance)} if gaussian else {})}
        return {"formula": self.formula, "family": self.family, "link": frame.settings.link, "errors": "model",
                "names": list(model.frame.names), "coefficients": model.coefficients, "covariance": model.covariance,
                "standard_errors": model.errors, "tau": found.tau, "dispersion": variance,
                "tables": {"coefficients": coefficient_table(model, self.level), "fit": _quantities(fitted)},
                "approximate": "" if gaussian else "quadrature", "notes": list(model.notes)}

    def _fit_table(self, sums: ExactSums, model: Fitted) -> list[Row]:
        """What is said of the model as a whole, one row per number."""
        frame, rows = model.frame, model.frame.number
        found: dict[str, float] = {
            "rows": frame.rows, "rows left out": frame.dropped, "parties": len(sums.parties),
            "degrees of freedom": model.left, "deviance": model.deviance,
            "Pearson chi-square": float(model.fit.at.extra["chi"]), "dispersion": model.dispersion}
        if model.alpha:
            found |= {"alpha": model.alpha, "alpha se": model.alpha_se}
        if not self.quasi:
            high = likelihood(sums, model)
            size = rows - model.left + (self.aic == "full") * (bool(model.alpha) or model.degrees is not None)
            found |= {"log-likelihood": high, "AIC": 2 * size - 2 * high, "BIC": size * log(rows) - 2 * high}
            if CONSTANT in frame.names:
                found |= self._against_nothing(sums, model, high)
        return _quantities(found)

    def _against_nothing(self, sums: ExactSums, model: Fitted, high: float) -> dict[str, float]:
        """Beside a model with a constant alone."""
        frame, rows = model.frame, model.frame.number
        null = fit(sums, frame.only([frame.names.index(CONSTANT)]))
        low = likelihood(sums, null)
        found = {"null deviance": null.deviance, "null log-likelihood": low}
        if self.family == "gaussian":
            return {**found, "R2": 1 - model.deviance / null.deviance,
                    "adjusted R2": 1 - model.deviance / model.left / (null.deviance / null.left)}
        cox = 1 - exp(2 * (low - high) / rows)
        return {**found, "McFadden R2": 1 - high / low, "Cox-Snell R2": cox,
                "Nagelkerke R2": cox / (1 - exp(2 * low / rows))} if self.family != "gamma" else found

    def _tested(self, sums: ExactSums, plain: Fitted, model: Fitted, group: Sequence[str]) -> Row:
        """Some terms together: by the covariance, by a fit without them, and by the score at that fit."""
        frame = model.frame
        places = [place for place, name in enumerate(frame.names) if _term(name) in {_term(one) for one in group}
                  or name in group]
        unknown = [one for one in group if not any(one == name or _term(one) == _term(name) for name in frame.names)]
        if unknown or len(places) == len(frame.names):
            raise ConfigError(f"algorithm.tests: there is no term '{unknown[0]}'" if unknown else
                              "algorithm.tests: nothing would be left of the model",
                              remedy=nearest(unknown[0], [_term(name) for name in frame.names]) if unknown else
                              "test some of the terms")
        if self.errors == "cluster" and len(places) > (model.degrees or 0):
            raise ConfigError(f"{len(places)} columns cannot be tested together with {len(sums.parties)} clusters",
                              remedy="test fewer columns, or set algorithm.errors = 'HC3'")
        beta = model.coefficients[places]
        wald = float(beta @ np.linalg.solve(model.covariance[np.ix_(places, places)], beta))
        kept = [place for place in range(len(frame.names)) if place not in places]
        small = fit(sums, frame.only(kept))
        found: Row = {"terms": " + ".join(group), "df": len(places), "Wald": wald,
                      "Wald p": _tail(wald, len(places), model.degrees)}
        if model.alpha or self.quasi:
            return found
        ratio = (small.deviance - plain.deviance) / plain.dispersion
        at = np.zeros(len(frame.names))
        at[kept] = small.standardised
        point = scores_at(sums, frame, at)
        score = float(point.score @ inverted(point.information) @ point.score) / small.dispersion
        return {**found, "LR": float(ratio), "LR p": _tail(ratio, len(places), plain.degrees), "score": score,
                "score p": _tail(score, len(places), None)}


def _quantities(found: Mapping[str, float]) -> list[Row]:
    return [{"quantity": name, "value": float(value)} for name, value in found.items()]


def coefficient_table(model: Fitted, level: float) -> list[Row]:
    """One row per column: estimate, standard error, statistic, p and the interval; and its exponent where that is a
    ratio of odds, rates or means."""
    from scipy import stats

    law = stats.norm if model.degrees is None else stats.t(model.degrees)
    ratio = RATIOS.get((model.frame.spec.family, model.frame.settings.link))
    far = float(law.ppf(0.5 + level / 2))
    rows: list[Row] = []
    for name, estimate, error in zip(model.frame.names, model.coefficients.tolist(), model.errors.tolist(),
                                     strict=True):
        statistic = estimate / error if error else float("nan")
        low, high = estimate - far * error, estimate + far * error
        row: Row = {"term": name, "estimate": estimate, "se": error, "t" if model.degrees else "z": statistic,
                    "p": float(2 * law.sf(abs(statistic))), "low": low, "high": high}
        if ratio and name != CONSTANT:
            row |= {ratio: _exp(estimate), f"{ratio} low": _exp(low), f"{ratio} high": _exp(high)}
        rows.append(row)
    return rows


def inflation(sums: ExactSums, frame: Frame) -> list[Row]:
    """The variance inflation factor of each column, and the generalised one of a term of several (Fox and Monette)."""
    plain = replace(frame, spec=replace(frame.spec, family="gaussian", quasi=False, sites="none"),
                    settings=replace(frame.settings, family="gaussian", link="identity", sites="none"))
    gram = scores_at(sums, plain, np.zeros(len(frame.names))).information
    places = [place for place, name in enumerate(frame.names) if name != CONSTANT]
    gram = gram[np.ix_(places, places)]
    size = np.sqrt(np.diag(gram))
    correlation = gram / np.outer(size, size)
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(frame.names[place] for place in places):
        groups.setdefault(_term(name), []).append(place)
    whole = np.linalg.slogdet(correlation)[1]
    rows: list[Row] = []
    for term, own in groups.items():
        rest = [place for place in range(len(places)) if place not in own]
        parts = [np.linalg.slogdet(correlation[np.ix_(some, some)])[1] for some in (own, rest)]
        factor = exp(sum(parts) - whole)
        rows.append({"term": term, "columns": len(own), "factor": factor, "per column": factor ** (1 / len(own))})
    return rows


def _term(column: str) -> str:
    """The term that a column is of: without the level."""
    return re.sub(r"\[[^\]]*\]", "", re.sub(r"^C\((\w+).*\)$", r"\1", column))


def _tail(statistic: float, columns: int, degrees: float | None) -> float:
    from scipy import stats

    return float(stats.chi2.sf(statistic, columns) if degrees is None else
                 stats.f.sf(statistic / columns, columns, degrees))


def _exp(value: float) -> float:
    return exp(min(value, 700.0))
