"""Random intercepts of sites: exact for gaussian outcomes, by adaptive Gauss-Hermite quadrature for counts and events.

The integral over a site's intercept needs the rows of that site alone, so that the sum over parties of what each finds
is the likelihood of all rows. Bates et al.: Fitting linear mixed-effects models using lme4, 2015.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log, pi
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.statistics.exact_sums import (
    Block,
    Layout,
    counts,
    sum_rows,
    symmetric,
    triangle,
    upper,
    whole_reply,
)
from tequio.algorithms.statistics.families import log_likelihood, rows_at
from tequio.algorithms.statistics.fitting import Fitted, fit
from tequio.algorithms.statistics.glm_tasks import ModelSettings, PointPayload, party_design
from tequio.algorithms.statistics.newton import inverted
from tequio.algorithms.statistics.small_cells import require
from tequio.errors import ConfigError, DataError, RunError
from tequio.federation.sums import SumsReply
from tequio.federation.task import Count, Sums, record, task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.algorithms.statistics.exact_sums import ExactSums
    from tequio.algorithms.statistics.fitting import Frame
    from tequio.federation.population import Party

    Vector = NDArray[np.float64]

_FEWEST_HIDDEN, _FEW_SITES = 50, 5
_SMALLEST, _LARGEST = -16.0, 10.0
"""Between these lies the logarithm of the ratio of the variances."""
_FIRST_TAU, _STEP, _LARGE_STEP, _SOLVED = 0.3, 1e-5, 1e-4, 1e-5


@record
class RandomSettings(ModelSettings):
    """At how many nodes a party integrates over its intercept: one is Laplace's approximation."""

    nodes: Count


class RatioPayload(PointPayload):
    """The variance of intercepts over that of rows."""

    ratio: float


def gaussian_layout(settings: ModelSettings) -> Layout:
    """Cross products with the intercept integrated out, of residuals at some coefficients."""
    return (triangle("A", settings.columns), Block("b", (settings.columns,)), Block("ee"), Block("logs"),
            *counts("sites"))


@task("glm: random gaussian", settings=ModelSettings, reply=SumsReply, reveals=Sums(guarded=True))
def gaussian_here(party: Party, payload: RatioPayload, settings: ModelSettings) -> SumsReply:
    """Cross products less what the intercept of this party takes up."""
    z, left = _columns(party, payload, settings)
    ratio = float(payload["ratio"])
    share = ratio / (1 + len(left) * ratio)
    found = sum_rows(len(left), lambda rows: {
        "zz": upper(z[rows].T @ z[rows]), "ze": left[rows] @ z[rows], "ee": left[rows] @ left[rows],
        "z": z[rows].sum(axis=0), "e": left[rows].sum()})
    return whole_reply(party, gaussian_layout(settings), payload, {
        "A": found["zz"] - share * upper(np.outer(found["z"], found["z"])),
        "b": found["ze"] - share * found["z"] * found["e"], "ee": found["ee"] - share * found["e"] ** 2,
        "logs": float(np.log1p(len(left) * ratio)), "sites": int(len(left) > 0)})


def _columns(party: Party, payload: PointPayload, settings: ModelSettings) -> tuple[NDArray[np.float64], Vector]:
    """Standardised columns, and the outcome less their prediction."""
    design = party_design(party, payload, settings)
    require(design.broken)
    z = (design.columns - payload["mean"][:-1]) / payload["sd"]
    return z, design.outcome - z @ payload["coefficients"] - design.offset


def marginal_layout(settings: RandomSettings) -> Layout:
    """The log-likelihood with the intercept integrated out, and its gradient by coefficients and log tau."""
    return (Block("ll"), Block("gradient", (settings.columns + 1,)), *counts("sites"))


@task("glm: random quadrature", settings=RandomSettings, reply=SumsReply, reveals=Sums(guarded=True))
def marginal_here(party: Party, payload: PointPayload, settings: RandomSettings) -> SumsReply:
    """The party's own integral, and by central differences its gradient."""
    design = party_design(party, payload, settings)
    require(design.broken)
    z = (design.columns - payload["mean"][:-1]) / payload["sd"]
    nodes, weights = np.polynomial.hermite.hermgauss(settings.nodes)
    site = _Site(settings, design.outcome, nodes, np.log(weights) + np.square(nodes))
    at = payload["coefficients"]
    if not len(z):
        nothing = np.zeros(len(at))
        return whole_reply(party, marginal_layout(settings), payload, {"ll": 0.0, "gradient": nothing, "sites": 0})

    def value(where: Vector) -> float:
        return site.marginal(z @ where[:-1] + design.offset, float(where[-1]))

    shifts = np.eye(len(at)) * _STEP
    gradient = np.array([(value(at + shift) - value(at - shift)) / (2 * _STEP) for shift in shifts])
    return whole_reply(party, marginal_layout(settings), payload, {"ll": value(at), "gradient": gradient, "sites": 1})


@dataclass(frozen=True, eq=False)
class _Site:
    """The rows of a party, and the nodes of its quadrature with the logarithms of their weights."""

    settings: RandomSettings
    outcome: Vector
    nodes: Vector
    log_weights: Vector

    def marginal(self, eta: Vector, log_tau: float) -> float:
        """The logarithm of the integral over a normal intercept, with nodes around its mode."""
        tau, own, curve = exp(log_tau), 0.0, 1.0
        for _ in range(100):
            rows = rows_at(self.settings.family, self.settings.link, self.outcome, eta + own)
            curve = float(rows.weight.sum()) + 1 / tau ** 2
            step = (float(rows.score.sum()) - own / tau ** 2) / curve
            own += max(min(step, 3.0), -3.0)
            if abs(step) < 1e-12:
                break
        places = own + np.sqrt(2 / curve) * self.nodes
        heights = np.array([self._joint(eta, place, tau) for place in places]) + self.log_weights
        top = float(heights.max())
        return top + log(float(np.exp(heights - top).sum())) + 0.5 * log(2 / curve)

    def _joint(self, eta: Vector, own: float, tau: float) -> float:
        rows = rows_at(self.settings.family, self.settings.link, self.outcome, eta + own)
        found = log_likelihood(self.settings.family, self.outcome, rows.mean, 1.0, 0.0, rows.deviance)
        return float(found.sum()) - own ** 2 / (2 * tau ** 2) - log(tau) - 0.5 * log(2 * pi)


@dataclass(frozen=True, eq=False)
class RandomFit:
    """A model with random intercepts: the coefficients, the standard deviation of intercepts, and the likelihood."""

    model: Fitted
    tau: float
    log_likelihood: float
    sites: int


def fit_random(sums: ExactSums, frame: Frame, *, restricted: bool, nodes: int) -> RandomFit:
    """By restricted or full likelihood where the outcome is gaussian, else by full likelihood."""
    if sums.hidden and len(sums.parties) < _FEWEST_HIDDEN:
        raise ConfigError(f"random intercepts of {len(sums.parties)} parties under a hidden sum could be solved for "
                          "each party's own sums",
                          remedy=f"bring {_FEWEST_HIDDEN} parties, or set algorithm.sites = 'fixed'")
    if frame.spec.family not in ("gaussian", "binomial", "poisson") or frame.spec.weights:
        raise ConfigError("random intercepts are there for gaussian, binomial and poisson outcomes without weights",
                          remedy="set algorithm.sites = 'fixed'")
    plain = fit(sums, frame)
    found = _gaussian(sums, plain, restricted=restricted) if frame.spec.family == "gaussian" else \
        _quadrature(sums, plain, nodes)
    few = (f"{found.sites} sites are few for the variance of their intercepts",) if found.sites < _FEW_SITES else ()
    return replace(found, model=replace(found.model, notes=(*found.model.notes, *few)))


def _gaussian(sums: ExactSums, plain: Fitted, *, restricted: bool) -> RandomFit:
    from scipy.optimize import minimize_scalar

    frame, size = plain.frame, len(plain.frame.names)
    left = frame.rows - (size if restricted else 0)
    shift = 2 * float(np.log(frame.sd).sum())  # from standardised columns to those as they are, in a determinant

    def solved(log_ratio: float) -> tuple[float, Vector, NDArray[np.float64], float, int]:
        found = sums.ask(gaussian_here, gaussian_layout(frame.settings), {
            **frame.at(plain.standardised), "ratio": exp(log_ratio) if log_ratio > _SMALLEST else 0.0}, frame.settings)
        matrix = symmetric(found["A"])
        inverse = inverted(matrix)
        step = inverse @ found["b"]
        variance = (float(found["ee"]) - float(found["b"] @ step)) / left
        terms = left * (log(2 * pi * variance) + 1) + float(found["logs"])
        terms += float(np.linalg.slogdet(matrix)[1]) + shift if restricted else 0.0
        return -terms / 2, plain.standardised + step, inverse * variance, variance, int(found["sites"])

    best = minimize_scalar(lambda at: -solved(at)[0], bounds=(_SMALLEST, _LARGEST), method="bounded",
                           options={"xatol": 1e-7})
    candidates = [(solved(at), at) for at in (float(best.x), _SMALLEST)]
    (height, coefficients, spread, variance, sites), at = max(candidates, key=lambda one: one[0][0])
    tau = (exp(at) * variance) ** 0.5 if at > _SMALLEST else 0.0
    model = replace(plain, standardised=coefficients, spread=spread, dispersion=variance, degrees=None, notes=(
        *plain.notes, *(() if tau else ("the intercepts of sites do not differ more than rows do",))))
    return RandomFit(model, tau, height, sites)


def _quadrature(sums: ExactSums, plain: Fitted, nodes: int) -> RandomFit:
    from scipy.optimize import minimize

    frame = plain.frame
    settings = RandomSettings(**vars(frame.settings), nodes=nodes)

    def asked(at: Vector) -> dict[str, Any]:
        return sums.ask(marginal_here, marginal_layout(settings), frame.at(at), settings)

    def objective(scaled: Vector) -> tuple[float, Vector]:
        found = asked(scaled / scale)
        return -float(found["ll"]), -found["gradient"] / scale

    # Coefficients in units of standard errors, so that steps of all coefficients are alike.
    scale = np.append(1 / np.sqrt(np.diag(plain.spread)), 1.0)
    found = minimize(objective, np.append(plain.standardised, log(_FIRST_TAU)) * scale, jac=True, method="BFGS",
                     options={"gtol": _SOLVED})
    at, size = found.x / scale, len(scale)
    last = asked(at)
    if np.abs(last["gradient"] / scale).max() > 100 * _SOLVED:
        raise RunError("the random intercepts did not converge", remedy="look at separation and at scales, or set "
                                                                       "algorithm.sites = 'fixed'")
    steps = np.eye(size) * _LARGE_STEP
    information = -np.array([(asked(at + step)["gradient"] - asked(at - step)["gradient"]) / (2 * _LARGE_STEP)
                             for step in steps])
    spread = np.linalg.inv((information + information.T) / 2)
    if not (np.diag(spread) > 0).all():
        raise DataError("the variance of the intercepts cannot be told from 0", remedy="set algorithm.sites = 'none'")
    model = replace(plain, standardised=at[:-1], spread=spread[:-1, :-1])
    return RandomFit(model, exp(at[-1]), float(last["ll"]), int(last["sites"]))
