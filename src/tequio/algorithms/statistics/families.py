"""Families and links of generalised linear models: what a row adds to the sums, in forms that lose no digits."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import special

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.float64]

FamilyName = Literal["gaussian", "binomial", "poisson", "gamma", "negative-binomial"]
LinkName = Literal["", "identity", "logit", "probit", "cloglog", "log", "inverse"]
LINKS: dict[FamilyName, tuple[LinkName, ...]] = {
    "gaussian": ("identity",), "binomial": ("logit", "probit", "cloglog"), "poisson": ("log",),
    "gamma": ("log", "inverse"), "negative-binomial": ("log",)}

_FARTHEST, _LOWEST = 30.0, 700.0
_NEARLY_POISSON = 1e-4


@dataclass(frozen=True, eq=False)
class Rows:
    """Of each row at some linear predictor: the mean, the working weight d^2/v (negative binomial: that of the observed
    information), the factor of the score d(y - mu)/v, the deviance, and (y - mu)^2/v, all without prior weights. `wild`
    marks rows where the predictor left its range."""

    mean: Column
    weight: Column
    score: Column
    deviance: Column
    pearson: Column
    wild: NDArray[np.bool_]


def link_of(family: FamilyName, link: LinkName) -> LinkName:
    """The link, which is the first of its family where none is given."""
    if link and link not in LINKS[family]:
        raise ConfigError(f"the family '{family}' has no link '{link}'",
                          remedy=f"set algorithm.link = '{LINKS[family][0]}'")
    return link or LINKS[family][0]


def valid_outcomes(family: FamilyName, outcome: Column) -> NDArray[np.bool_]:
    """Which outcomes a family can have."""
    if family == "binomial":
        return np.asarray((outcome >= 0) & (outcome <= 1))
    if family == "poisson":
        return np.asarray(outcome >= 0)
    if family == "negative-binomial":
        return np.asarray((outcome >= 0) & (outcome == np.rint(outcome)))
    return np.asarray(outcome > 0) if family == "gamma" else np.ones(len(outcome), dtype=bool)


def predictor_at(link: LinkName, mean: float) -> float:
    """The linear predictor of a mean."""
    if link == "identity":
        return mean
    if link == "logit":
        return float(special.logit(mean))
    if link == "probit":
        return float(special.ndtri(mean))
    if link == "cloglog":
        return float(np.log(-np.log1p(-mean)))
    return float(np.log(mean)) if link == "log" else 1.0 / mean


def mean_at(link: LinkName, eta: Column) -> Column:
    """The mean at a linear predictor."""
    if link == "identity":
        return eta
    if link == "logit":
        return np.asarray(special.expit(eta))
    if link == "probit":
        return np.asarray(special.ndtr(eta))
    if link == "cloglog":
        return np.asarray(-np.expm1(-np.exp(eta)))
    return np.exp(eta) if link == "log" else 1.0 / eta


def rows_at(family: FamilyName, link: LinkName, y: Column, eta: Column, alpha: float = 0.0) -> Rows:
    """What each row adds at a linear predictor."""
    if family == "binomial":
        return _binomial(link, y, eta)
    wild = eta > _FARTHEST if link == "log" else eta <= 0 if link == "inverse" else np.zeros(len(eta), dtype=bool)
    inside = np.where(wild, 1.0, eta)
    mean = mean_at(link, inside)
    left = y - mean
    if family == "gaussian":
        one = np.ones(len(y))
        return Rows(mean, one, left, np.square(left), np.square(left), wild)
    if family == "poisson":
        return Rows(mean, mean, left, 2.0 * (special.xlogy(y, y) - special.xlogy(y, mean) - left),
                    np.square(left) / mean, wild)
    if family == "gamma":
        ratio = left / mean
        slope = np.ones(len(y)) if link == "log" else -mean  # of the mean by the predictor, over the mean
        return Rows(mean, np.square(slope), slope * ratio, 2.0 * (ratio - np.log1p(ratio)), np.square(ratio), wild)
    spread = 1.0 + alpha * mean
    deviance = 2.0 * (special.xlogy(y, y / np.where(y > 0, mean, 1.0)) -
                      ((y + 1 / alpha) * np.log1p(alpha * left / spread) if alpha else left))
    return Rows(mean, mean * (1 + alpha * y) / np.square(spread), left / spread, deviance,
                np.square(left) / (mean * spread), wild)


def _binomial(link: LinkName, y: Column, eta: Column) -> Rows:
    """By d/mu and d/(1 - mu), in which nothing cancels and nothing underflows before the row's weight does."""
    if link == "logit":
        mean, other = special.expit(eta), special.expit(-eta)
        log_mean, log_other = -np.logaddexp(0.0, -eta), -np.logaddexp(0.0, eta)
        for_one, for_none = other, mean
    elif link == "probit":
        mean, other = special.ndtr(eta), special.ndtr(-eta)
        log_mean, log_other = special.log_ndtr(eta), special.log_ndtr(-eta)
        log_slope = -np.square(eta) / 2 - 0.5 * np.log(2 * pi)
        for_one, for_none = np.exp(log_slope - log_mean), np.exp(log_slope - log_other)
    else:
        for_none = np.exp(np.clip(eta, -_LOWEST, _FARTHEST))  # the hazard
        mean, other = -np.expm1(-for_none), np.exp(-for_none)
        log_mean, log_other = np.log(mean), -for_none
        for_one = for_none * other / mean
    likelihood = np.where(y > 0, y * log_mean, 0.0) + np.where(y < 1, (1 - y) * log_other, 0.0)
    saturated = special.xlogy(y, y) + special.xlogy(1 - y, 1 - y)
    pearson = np.square(y - mean) / np.maximum(mean * other, np.finfo(np.float64).tiny)
    return Rows(mean, for_one * for_none, y * for_one - (1 - y) * for_none, 2.0 * (saturated - likelihood), pearson,
                np.zeros(len(y), dtype=bool))


def log_likelihood(family: FamilyName, y: Column, mean: Column, scale: float, alpha: float,
                   deviance: Column) -> Column:
    """Of each row, with its constants. `scale` is the variance of gaussian rows and the dispersion of gamma ones."""
    if family == "gaussian":
        found = -0.5 * (deviance / scale + np.log(2 * pi * scale))
    elif family == "binomial":
        found = -0.5 * deviance + special.xlogy(y, y) + special.xlogy(1 - y, 1 - y)
    elif family == "poisson":
        found = special.xlogy(y, mean) - mean - special.gammaln(y + 1)
    elif family == "gamma":
        found = (np.log(y / mean / scale) - y / mean) / scale - np.log(y) - special.gammaln(1 / scale)
    else:
        found = negative_binomial(y, mean, alpha)
    return np.asarray(found)


def negative_binomial(y: Column, mean: Column, alpha: float) -> Column:
    """The log-likelihood of each row, whatever is left of overdispersion."""
    known = special.xlogy(y, mean) - special.gammaln(y + 1) - (y + 1 / alpha) * np.log1p(alpha * mean)
    if alpha >= _NEARLY_POISSON:
        r = 1 / alpha
        return np.asarray(known + special.gammaln(y + r) - special.gammaln(r) + y * np.log(alpha))
    counts = np.arange(int(y.max(initial=0.0)))
    rising = np.concatenate([[0.0], np.cumsum(np.log1p(alpha * counts))])
    return np.asarray(known + rising[y.astype(np.int64)])


@dataclass(frozen=True, eq=False)
class Overdispersion:
    """What a negative binomial row adds for alpha: the score, minus its derivative, and minus the mixed derivative by
    the linear predictor."""

    score: Column
    information: Column
    mixed: Column


def overdispersion(y: Column, mean: Column, alpha: float) -> Overdispersion:
    """By r = 1/alpha, through digamma and trigamma; as sums over j < y where alpha is small."""
    left, spread = y - mean, 1 + alpha * mean
    mixed = mean * left / np.square(spread)
    if alpha >= _NEARLY_POISSON:
        r = 1 / alpha
        first = special.psi(y + r) - special.psi(r) + np.log(r / (r + mean)) + 1 - (y + r) / (r + mean)
        second = special.polygamma(1, y + r) - special.polygamma(1, r) + 1 / r - 1 / (r + mean) + left / np.square(
            r + mean)
        return Overdispersion(-r**2 * first, -(r**4 * second + 2 * r**3 * first), mixed)
    counts = np.arange(int(y.max(initial=0.0)), dtype=np.float64)
    ratio = counts / (1 + alpha * counts)
    rising, bending = (np.concatenate([[0.0], np.cumsum(part)])[y.astype(np.int64)]
                       for part in (ratio, np.square(ratio)))
    # (log1p(a m) - a m/(1 + a m))/a^2 and its derivative, by their series: alpha is so small that mu times it is, too.
    pulled = np.square(mean) * (0.5 - 2 * alpha * mean / 3 + 0.75 * np.square(alpha * mean))
    bent = np.power(mean, 3) * (-2 / 3 + 1.5 * alpha * mean)
    score = rising + pulled - y * mean / spread
    return Overdispersion(score, bending - bent - y * np.square(mean / spread), mixed)
