"""Fitting a generalised linear model by asks: what parties agree on, standardised columns, Fisher scoring, and what can
be said of a fit. For `glm` and for whatever else needs such a model, as propensity scores do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.algorithms.analytics.columns import Scope
from tequio.algorithms.analytics.quantiles import find_quantiles
from tequio.algorithms.statistics.agreeing import find_levels
from tequio.algorithms.statistics.design import CONSTANT, Table, names_of, require_numbers
from tequio.algorithms.statistics.exact_sums import symmetric
from tequio.algorithms.statistics.families import FamilyName, LinkName, link_of, predictor_at
from tequio.algorithms.statistics.formula import read_formula
from tequio.algorithms.statistics.glm_tasks import (
    LIKELIHOOD,
    SEPARATION,
    MeatSettings,
    ModelSettings,
    likelihood_here,
    meat_here,
    meat_layout,
    scores_here,
    scores_layout,
    separation_here,
    spreads_here,
    spreads_layout,
    totals_here,
    totals_layout,
)
from tequio.algorithms.statistics.newton import Aliased, Point, inverted, newton
from tequio.algorithms.statistics.small_cells import require_everywhere
from tequio.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.algorithms.statistics.design import Agreed
    from tequio.algorithms.statistics.exact_sums import ExactSums
    from tequio.algorithms.statistics.glm_tasks import Sites
    from tequio.algorithms.statistics.newton import Fit
    from tequio.data.dataset import Schema
    from tequio.federation.payload import Payload

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

Errors = Literal["model", "HC0", "HC1", "HC2", "HC3", "cluster"]
HARRELL: dict[int, tuple[float, ...]] = {
    3: (0.1, 0.5, 0.9), 4: (0.05, 0.35, 0.65, 0.95), 5: (0.05, 0.275, 0.5, 0.725, 0.95),
    6: (0.05, 0.23, 0.41, 0.59, 0.77, 0.95), 7: (0.025, 0.1833, 0.3417, 0.5, 0.6583, 0.8167, 0.975)}
"""At which shares of the rows the knots of a restricted cubic spline lie."""

_NOTHING_SPREADS, _TINY_DISPERSION = 1e-24, 1e-20
_FIRST_ALPHA, _NO_ALPHA = 0.5, 1e-8
_FEWEST_CLUSTERS, _FEW_CLUSTERS = 5, 30


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What is fitted: a formula, its family and link, and how rows weigh."""

    formula: str
    family: FamilyName = "gaussian"
    link: LinkName = ""
    weights: str = ""
    weights_are: Literal["precision", "counts"] = "precision"
    sites: Sites = "none"
    unknown_levels: Literal["refuse", "drop"] = "refuse"
    aliased: Literal["refuse", "drop"] = "refuse"
    quasi: bool = False
    minimum_count: int = 5


@dataclass(frozen=True, eq=False)
class Frame:
    """The columns that a model is fitted on: which of the formula's are kept, by what they are standardised, and what
    the parties hold of them."""

    spec: ModelSpec
    settings: ModelSettings
    agreed: Agreed
    names: tuple[str, ...]
    kept: NDArray[np.int64]
    mean: Vector
    sd: Vector
    outcome: tuple[float, float]
    rows: int
    weight: float
    dropped: int
    offsets: bool
    notes: tuple[str, ...] = ()

    @property
    def number(self) -> float:
        """What counts as the number of rows."""
        return self.weight if self.spec.weights_are == "counts" else float(self.rows)

    def only(self, places: Sequence[int]) -> Frame:
        """The same rows with some of the columns."""
        some = np.asarray(places, dtype=np.int64)
        return replace(self, settings=replace(self.settings, columns=len(some)), kept=self.kept[some],
                       names=tuple(self.names[place] for place in some), mean=self.mean[some], sd=self.sd[some])

    def payload(self) -> Payload:
        """What tasks need to make these columns."""
        return {"levels": dict(self.agreed["levels"]), "knots": dict(self.agreed["knots"]), "kept": self.kept,
                "mean": np.append(self.mean, self.outcome[0]), "sd": self.sd}

    def at(self, coefficients: Vector, alpha: float = 0.0) -> Payload:
        """The same at some coefficients."""
        return {**self.payload(), "coefficients": coefficients, "alpha": float(alpha)}

    def back(self) -> Matrix:
        """From coefficients of standardised columns to those of the columns."""
        turn = np.diag(1 / self.sd)
        if CONSTANT in self.names:
            turn[self.names.index(CONSTANT)] -= np.where(np.array(self.names) == CONSTANT, 0.0, self.mean / self.sd)
        return turn


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model. `standardised` are the coefficients of standardised columns and `spread` the covariance of these;
    `coefficients` and `covariance` are of the columns as they are."""

    frame: Frame
    fit: Fit
    standardised: Vector
    spread: Matrix
    dispersion: float
    alpha: float = 0.0
    alpha_se: float = 0.0
    degrees: float | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def coefficients(self) -> Vector:
        """Of the columns as they are."""
        return self.frame.back() @ self.standardised

    @property
    def covariance(self) -> Matrix:
        """Of the coefficients."""
        turn = self.frame.back()
        return turn @ self.spread @ turn.T

    @property
    def errors(self) -> Vector:
        """Standard errors of the coefficients."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def left(self) -> float:
        """Degrees of freedom that the coefficients leave."""
        own = int(self.fit.at.extra.get("sites", 0)) if self.frame.spec.sites == "fixed" else 0
        return self.frame.number - len(self.standardised) - own

    @property
    def deviance(self) -> float:
        """Of the model."""
        return float(self.fit.at.extra["dev"])


def agree(sums: ExactSums, schema: Schema, spec: ModelSpec) -> Agreed:
    """Levels of columns of numbers that stand as factors, and knots of splines."""
    formula = read_formula(spec.formula)
    levels: dict[str, Vector] = {}
    knots: dict[str, Vector] = {}
    for factor in formula.factors:
        if factor.kind == "levels" and Table.domain(schema, factor.column) is None:
            levels[factor.label] = find_levels(sums, factor.column, spec.minimum_count)
        if factor.kind == "spline":
            places = factor.knots if isinstance(factor.knots, tuple) else find_quantiles(
                sums.federation, HARRELL[factor.knots], (factor.column,), scope=Scope(
                    sums.parties, minimum_count=spec.minimum_count, stages=tuple(sums.stages))).values[0]
            knots[factor.label] = np.asarray(places, dtype=np.float64)
            if not (np.diff(knots[factor.label]) > 0).all():
                raise DataError(f"the knots of '{factor.label}' fall together", remedy="write fewer of them")
    return {"levels": levels, "knots": knots}


def prepare(sums: ExactSums, schema: Schema, spec: ModelSpec) -> Frame:
    """Agree on columns, and find by what they are standardised."""
    formula = read_formula(spec.formula)
    link = link_of(spec.family, spec.link)
    require_numbers(formula, schema, spec.weights)
    levels = Table.domain(schema, formula.outcome.column) if formula.outcome.column else None
    if levels is not None and (spec.family != "binomial" or len(levels) != 2):
        wanted = "two" if spec.family == "binomial" else "a number"
        raise DataError(f"the outcome '{formula.outcome.label}' has {len(levels)} levels, and the family "
                        f"'{spec.family}' wants {wanted}",
                        remedy=f'write I({formula.outcome.column} == "{levels[-1]}") ~ ..., with the family binomial')
    agreed = agree(sums, schema, spec)
    names = names_of(formula, schema, agreed)
    kept = np.array([place for place, name in enumerate(names) if spec.sites == "none" or name != CONSTANT])
    settings = ModelSettings(formula=spec.formula, family=spec.family, link=link, weights=spec.weights,
                             drop_unknown=spec.unknown_levels == "drop", sites=spec.sites, columns=len(kept))
    told: Payload = {"levels": agreed["levels"], "knots": agreed["knots"], "kept": kept}
    found = sums.ask(totals_here, totals_layout(len(kept)), told, settings)
    require_everywhere(found["refused"], len(sums.parties))
    if found["invalid"]:
        raise DataError(f"the outcome has values that the family '{spec.family}' does not have, or weights are "
                        "negative",
                        remedy="choose another family, or look at the outcome: algorithm.family, algorithm.formula")
    if not found["n"] or not found["Sw"] > 0:
        raise DataError("no party has rows with a value in every column of the formula")
    constant = CONSTANT in names and spec.sites == "none"
    centred = constant or spec.sites != "none"
    mean = found["Sx"] / found["Sw"] if centred else np.zeros(len(kept))
    names = [names[place] for place in kept]
    if constant:
        mean[names.index(CONSTANT)] = 0.0
    y_mean = float(found["Sy"] / found["Sw"])
    squares = sums.ask(spreads_here, spreads_layout(len(kept)), {**told, "mean": np.append(mean, y_mean)},
                       settings)["Sxx"] / found["Sw"]
    spread = np.where(squares[:-1] > _NOTHING_SPREADS * np.square(mean), np.sqrt(squares[:-1]), 0.0)
    frame = Frame(spec, settings, agreed, tuple(names), kept, mean, np.where(spread > 0, spread, 1.0),
                  (y_mean, float(squares[-1])), int(found["n"]), float(found["Sw"]), int(found["dropped"]),
                  bool(formula.offsets))
    # A level that occurs nowhere; a column that never changes for another reason is found by the rank.
    empty = [place for place in range(len(kept)) if spread[place] == 0 and found["Sx"][place] == 0]
    if empty:
        frame = replace(frame.only([place for place in range(len(kept)) if place not in empty]), notes=(
            "without columns that are 0 in every row: " + ", ".join(names[place] for place in empty),))
    if not frame.number > len(frame.names):
        raise DataError(f"there are {frame.rows} rows for {len(frame.names)} columns", remedy="drop terms")
    return frame


def fit(sums: ExactSums, frame: Frame) -> Fitted:
    """Fisher scoring from the mean of the outcome; aliased columns are refused, or dropped with a note."""
    while True:
        try:
            return _fit(sums, frame)
        except Aliased as cause:
            if frame.spec.aliased == "refuse":
                raise
            frame = replace(frame.only([place for place in range(len(frame.names)) if place != cause.place]), notes=(
                *frame.notes, f"without '{frame.names[cause.place]}', a linear combination of the columns before it"))


def _fit(sums: ExactSums, frame: Frame) -> Fitted:
    spec = frame.spec
    if spec.family == "negative-binomial":
        return _overdispersed(sums, frame)
    evaluate = _Evaluation(sums, frame)
    found = newton(sums.what, frame.names, evaluate, start(sums, frame), watch=_Separation(sums, frame))
    estimated = spec.quasi or spec.family in ("gaussian", "gamma")
    dispersion = found.at.extra["chi"] / evaluate.left(found.at.extra) if estimated else 1.0
    spread = inverted(found.at.information) * dispersion
    fitted = Fitted(frame, found, found.coefficients, spread, float(dispersion), notes=(*frame.notes, *found.notes))
    return replace(fitted, degrees=fitted.left if estimated else None)


def start(sums: ExactSums, frame: Frame) -> Vector:
    """All coefficients 0, and the constant that of the outcome's mean; with offsets, of a model without columns."""
    first, link = np.zeros(len(frame.names)), frame.settings.link
    if CONSTANT not in frame.names:
        return first
    place = frame.names.index(CONSTANT)
    mean, spread = frame.outcome
    if spread <= _NOTHING_SPREADS * mean ** 2 or (frame.spec.family == "binomial" and not 0 < mean < 1) or (
            link == "log" and not mean > 0):
        raise DataError(f"all outcomes are {mean:g}, so that there is nothing to fit")
    first[place] = predictor_at(link, mean)
    if frame.offsets and len(frame.names) > 1:
        first[place] = newton(sums.what, (CONSTANT,), _Evaluation(sums, frame.only([place])),
                              first[place:place + 1]).coefficients[0]
    return first


@dataclass(eq=False)
class _Evaluation:
    """The parties' sums at some coefficients, and the overdispersion behind them where it is fitted too."""

    sums: ExactSums
    frame: Frame
    flat: int = 0

    def __call__(self, coefficients: Vector) -> Point:
        frame, spec = self.frame, self.frame.spec
        found = self.asked(coefficients)
        phi = 1.0
        if spec.quasi or spec.family in ("gaussian", "gamma"):
            phi = float(found["chi"]) / max(self.left(found), 1.0)
            if phi <= _TINY_DISPERSION * (frame.outcome[1] if spec.family == "gaussian" else 1.0):
                raise DataError("the columns leave nothing of the outcome unexplained, so that there are no standard "
                                "errors", remedy="leave out what the outcome was made of")
        return Point(symmetric(found["H"]), found["u"], float(found["dev"]), phi, int(found["wild"]), extra=found)

    def asked(self, coefficients: Vector, alpha: float = 0.0) -> dict[str, Any]:
        """The blocks of one ask."""
        found = self.sums.ask(scores_here, scores_layout(self.frame.settings),
                              self.frame.at(coefficients, alpha), self.frame.settings)
        if self.frame.spec.sites == "fixed":
            found["sites"] = len(self.sums.parties) - int(found["flat"])
        return found

    def left(self, found: Mapping[str, Any]) -> float:
        """Degrees of freedom that the coefficients leave."""
        return self.frame.number - len(self.frame.names) - int(found.get("sites", 0))


def scores_at(sums: ExactSums, frame: Frame, coefficients: Vector) -> Point:
    """The parties' sums at some coefficients of standardised columns."""
    return _Evaluation(sums, frame)(coefficients)


class _NoOverdispersion(Exception):
    """The negative binomial is a Poisson distribution."""


def _overdispersed(sums: ExactSums, frame: Frame) -> Fitted:
    """Coefficients and alpha by Newton's method on both, from the Poisson fit."""
    plain = replace(frame, spec=replace(frame.spec, family="poisson"),
                    settings=replace(frame.settings, family="poisson"))
    poisson = _fit(sums, plain)
    evaluation, size = _Evaluation(sums, frame), len(frame.names)

    def evaluate(both: Vector) -> Point:
        found = evaluation.asked(both[:-1], both[-1])
        information = np.zeros((size + 1, size + 1))
        information[:-1, :-1], information[-1, -1] = symmetric(found["H"]), found["haa"]
        information[-1, :-1] = information[:-1, -1] = found["hba"]
        if not (np.linalg.eigvalsh(information / np.sqrt(np.outer(*[np.abs(np.diag(information))] * 2))) > 0).all():
            information[-1, :-1] = information[:-1, -1] = 0.0
            information[-1, -1] = abs(information[-1, -1])
        return Point(information, np.append(found["u"], found["ga"]), -2.0 * float(found["ll"]),
                     wild=int(found["wild"]), extra=found)

    def limit(both: Vector, step: Vector) -> Vector:
        if both[-1] < _NO_ALPHA:
            raise _NoOverdispersion
        return step if both[-1] + step[-1] >= both[-1] / 4 else np.append(step[:-1], -0.75 * both[-1])

    try:
        found = newton(sums.what, (*frame.names, "alpha"), evaluate,
                       np.append(poisson.standardised, _FIRST_ALPHA), limit=limit)
    except _NoOverdispersion:
        return replace(poisson, notes=(*poisson.notes, "no overdispersion: the Poisson model is reported"))
    spread = inverted(found.at.information)
    return Fitted(frame, found, found.coefficients[:-1], spread[:-1, :-1], 1.0, float(found.coefficients[-1]),
                  float(np.sqrt(spread[-1, -1])), notes=(*frame.notes, *found.notes))


@dataclass(eq=False)
class _Separation:
    """Asks for a certificate where standard errors grow and grow: no row that speaks against the direction."""

    sums: ExactSums
    frame: Frame
    before: Vector | None = None
    running: int = 0

    def __call__(self, iteration: int, spread: Vector, step: Vector) -> None:
        grows = self.before is not None and float((spread / self.before).max()) > 2
        self.running, self.before = self.running + 1 if grows else 0, spread
        spec = self.frame.spec
        if iteration < 4 or self.running < 3 or spec.sites != "none" or spec.family not in ("binomial", "poisson"):
            return
        found = self.sums.ask(separation_here, SEPARATION, {**self.frame.payload(), "direction": step},
                              self.frame.settings)
        if not found["against"] and found["along"]:
            columns = [place for place, name in enumerate(self.frame.names) if name != CONSTANT] or [0]
            worst = self.frame.names[max(columns, key=lambda place: abs(step[place]))]
            raise DataError(f"the outcome is {'quasi-' if found['tied'] else ''}separated: no row speaks against "
                            f"'{worst}' growing without bound",
                            remedy='drop the term, merge levels, or set penalty = "ridge"')


def with_errors(sums: ExactSums, fitted: Fitted, errors: Errors) -> Fitted:
    """The same fit with other standard errors."""
    if errors == "model":
        return fitted
    frame, parties = fitted.frame, len(sums.parties)
    if errors == "cluster" and sums.hidden and parties < _FEWEST_CLUSTERS:
        raise ConfigError(f"cluster-robust errors by site need at least {_FEWEST_CLUSTERS} parties here, and there are "
                          f"{parties}", remedy="use HC3: algorithm.errors = 'HC3'")
    inverse = fitted.spread / fitted.dispersion
    kind: Any = "HC0" if errors == "HC1" else errors
    settings = MeatSettings(**vars(frame.settings), kind=kind)
    found = sums.ask(meat_here, meat_layout(settings), {**frame.at(fitted.standardised, fitted.alpha),
                                                        "inverse": inverse}, settings)
    spread, notes, degrees = inverse @ symmetric(found["M"]) @ inverse, list(fitted.notes), fitted.degrees
    if errors == "HC1":
        spread = spread * frame.number / fitted.left
    if kind in ("HC2", "HC3") and found["extreme"]:
        notes.append(f"{int(found['extreme'])} rows have a leverage of 1, for which {errors} is not defined")
    if errors == "cluster":
        groups = int(found["clusters"])
        if groups < 2:
            raise DataError("one party with rows makes no clusters", remedy="use HC3: algorithm.errors = 'HC3'")
        spread = spread * groups / (groups - 1) * (frame.number - 1) / fitted.left
        degrees = float(groups - 1)
        if groups < _FEW_CLUSTERS:
            notes.append(f"{groups} clusters are few: intervals may be too narrow")
    return replace(fitted, spread=spread, degrees=degrees, notes=tuple(notes))


def likelihood(sums: ExactSums, fitted: Fitted) -> float:
    """The log-likelihood with its constants."""
    frame = fitted.frame
    scale = fitted.fit.at.extra["dev"] / frame.number if frame.spec.family == "gaussian" else fitted.dispersion
    settings = replace(frame.settings, family="poisson") if fitted.alpha == 0 and \
        frame.spec.family == "negative-binomial" else frame.settings
    return float(sums.ask(likelihood_here, LIKELIHOOD, {**frame.at(fitted.standardised, fitted.alpha),
                                                        "scale": float(scale)}, settings)["ll"])
