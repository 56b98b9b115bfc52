"""Epsilon from above: accountants bound it by what was released. From below audits do, by what was seen.

A release says how much noise there was in units of the sensitivity, and how its contributors were drawn. Which
sensitivity that is, and which neighbouring relation it belongs to, is the mechanism's business.

Mironov: Renyi differential privacy, CSF 2017. Koskela, Jalko, Honkela: Computing tight differential privacy guarantees
using FFT, AISTATS 2020. Wang, Balle, Kasiviswanathan: Subsampled Renyi differential privacy and analytical moments
accountant, AISTATS 2019. Balle, Wang: Improving the Gaussian mechanism for differential privacy, ICML 2018.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from math import ceil, exp, floor, inf, log, log1p, pi, sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.errors import ConfigError, MissingExtra
from tequio.noise.laws import Skellam

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from numpy.typing import NDArray

Accountant = Literal["pld", "rdp"]
Shape = Literal["gaussian", "discrete-gaussian", "laplace", "skellam"]
Sampling = Literal["none", "poisson", "fixed-size"]

# The discretisation only ever makes the answer larger; at this width by less than one part in a thousand.
_WIDTH = 1e-3
_USUAL_EPSILON = 20.0
_LARGEST_NOISE = 1e6
# Whole orders only: the series of the others do not always converge, and add next to nothing.
_ORDERS = [*range(2, 64), 80, 96, 128, 192, 256, 384, 512, 1024]
_PRECISION = 1e-3


@dataclass(frozen=True)
class Release:
    """One thing that left: the noise on it over its sensitivity, and how those behind it were drawn.

    `fixed-size` is a sample without replacement, whose amplification holds where a contributor is replaced by another;
    `poisson` is one where each takes part on its own with the chance `rate`. `gaussian` and `laplace` are continuous
    noise, rounded or not: what is rounded afterwards reveals no more. `discrete-gaussian` is noise on counts of which a
    contributor changes one, by one. `skellam` is noise in whole numbers, of which the sensitivity has so many `steps`.
    """

    noise: float
    shape: Shape = "gaussian"
    sampling: Sampling = "none"
    rate: float = 1.0
    steps: float = inf


Spent = dict[Release, int]
"""Releases, and how often each happened."""


def epsilon_of(spent: Mapping[Release, int], delta: float, accountant: Accountant = "pld") -> float:
    """The smallest epsilon that the accountant can vouch for."""
    kept = {release: count for release, count in spent.items() if count and release.rate > 0}
    if not kept:
        return 0.0
    if any(release.noise <= 0 for release in kept):
        return inf
    bounds = [_without_sampling(kept, delta, accountant)]
    if any(release.sampling != "none" and release.rate < 1 for release in kept):
        bounds.append(_with_sampling(kept, delta, accountant))
    return max(min(bounds), 0.0)


def noise_for(epsilon: float, delta: float, spent: Callable[[float], Mapping[Release, int]],
              accountant: Accountant = "pld") -> float:
    """The least noise, to one part in a thousand and never too little, under which `spent(noise)` costs epsilon."""
    if epsilon_of(spent(_LARGEST_NOISE), delta, accountant) > epsilon:
        raise ConfigError(f"no noise reaches epsilon {epsilon:g} at delta {delta:g}",
                          remedy="raise privacy.epsilon or privacy.delta")
    enough = _bisected(lambda noise: epsilon_of(spent(noise), delta, "rdp") <= epsilon, 1e-3, _LARGEST_NOISE)
    if accountant == "rdp":
        return enough
    return _bisected(lambda noise: epsilon_of(spent(noise), delta, accountant) <= epsilon, 0.3 * enough, enough)


def _bisected(is_enough: Callable[[float], bool], low: float, high: float) -> float:
    while high > low * (1 + _PRECISION):
        middle = sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _without_sampling(spent: Mapping[Release, int], delta: float, accountant: Accountant) -> float:
    """As if everybody had been in everything, which is true of any way of drawing."""
    if any(release.shape == "skellam" for release in spent):
        return _with_skellam(spent, delta)
    normal = {shape: sum(count / release.noise**2 for release, count in spent.items() if release.shape == shape)
              for shape in ("gaussian", "discrete-gaussian")}
    gaussian, counts = normal["gaussian"], normal["discrete-gaussian"]
    laplace = {release: count for release, count in spent.items() if release.shape == "laplace"}
    library = _library()
    if accountant == "pld" and not laplace and not counts:
        return float(library.get_epsilon_gaussian(1 / sqrt(gaussian), delta))
    bounds = [sum(count / release.noise for release, count in laplace.items())] if not gaussian + counts else []
    if counts and not laplace:
        bounds.append(zcdp_epsilon((gaussian + counts) / 2, delta))
    if counts and accountant == "pld":
        bounds.append(_with_counts(spent, gaussian, delta))
    elif laplace or not counts:
        events = [(library.LaplaceDpEvent(release.noise), count) for release, count in laplace.items()]
        if gaussian + counts:
            events.append((library.GaussianDpEvent(1 / sqrt(gaussian + counts)), 1))
        bounds.append(_composed(_accountant(accountant, events, delta), events, delta))
    return min(bounds)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon of rho-concentrated privacy: rho a + ln(1 - 1/a) + (ln(1/delta) - ln a) / (a - 1) at the best a > 1.

    Gaussian noise has rho = sensitivity^2 / (2 deviation^2), discrete Gaussian noise on vectors too (Canonne, Kamath,
    Steinke, NeurIPS 2020).
    """
    from scipy.optimize import minimize_scalar

    def bound(logarithm: float) -> float:
        beyond = exp(logarithm)
        return rho * (1 + beyond) - log1p(1 / beyond) + (log(1 / delta) - log1p(beyond)) / beyond

    return max(float(minimize_scalar(bound, bounds=(-15, 25), method="bounded", options={"xatol": 1e-9}).fun), 0.0)


def _with_counts(spent: Mapping[Release, int], gaussian: float, delta: float) -> float:
    """Noised counts among other releases, by the privacy loss distribution of a shift by one in one coordinate."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    width = {"value_discretization_interval": _WIDTH, "use_connect_dots": True}
    parts = [losses.from_gaussian_mechanism(1 / sqrt(gaussian), **width)] if gaussian else []
    for release, count in spent.items():
        if release.shape == "discrete-gaussian":
            parts.append(losses.from_discrete_gaussian_mechanism(release.noise, 1, **width).self_compose(count))
        elif release.shape == "laplace":
            parts.append(losses.from_laplace_mechanism(release.noise, **width).self_compose(count))
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return float(total.get_epsilon_for_delta(delta))


def _with_skellam(spent: Mapping[Release, int], delta: float) -> float:
    """By the Renyi divergences of sums with whole numbers; infinite for mixtures with other than Gaussian noise.

    Agarwal, Kairouz, Liu, NeurIPS 2021, corollary 3.6, with d for the sensitivity and m for the variance in steps: at
    most a d^2 / 2m + min(((2a - 1) d^2 + 6 l) / 4m^2, 3 l / 2m) at order a, where l, the sum of absolute values, is at
    most d^2 for whole numbers.
    """
    _library()
    from dp_accounting import rdp

    if any(release.shape == "laplace" for release in spent):
        return inf
    losses = [sum(count * _renyi_loss(release, order) for release, count in spent.items()) for order in _ORDERS]
    return float(rdp.compute_epsilon(_ORDERS, losses, delta)[0])


def _renyi_loss(release: Release, order: int) -> float:
    most = release.noise**-2
    small = (2 * order + 5) * most**2 / (4 * release.steps**2) if release.shape == "skellam" else 0.0
    return order * most / 2 + min(small, 1.5 * most)


def skellam_numerical(spent: Mapping[Release, int], delta: float) -> float:
    """What Skellam noise costs by its privacy loss distribution: a number, and not a bound.

    That steps of one in as many coordinates as possible are the worst way to move a vector is not proved; of all ways
    that were tried they were. Nor is the cost less than that of one coordinate, where that is different at all.
    Sensitivities of many steps count as 2^12, which costs more, by one part in ten million.
    """
    parts = [(release.noise, min(release.steps, 2.0 ** 12), count) for release, count in spent.items()]
    found = _of_unit_steps(parts, delta)
    return max(found, _of_one_coordinate(parts, delta)) if max(steps for _, steps, _ in parts) <= 64 else found


def _of_unit_steps(parts: list[tuple[float, float, int]], delta: float) -> float:
    """Along the line of the saddle point, on which the tail of a sum of losses is a smooth integral (Alghamdi et al.:
    The saddle-point method in differential privacy, ICML 2023)."""
    rho = sum(count / noise**2 for noise, _, count in parts) / 2
    line = max((zcdp_epsilon(rho, delta) - rho) / (2 * rho), 0.1) + 1j * np.linspace(0, 10 / sqrt(2 * rho), 401)
    logs = np.zeros(len(line), complex)
    for noise, steps, count in parts:
        weights, losses = _unit_losses((noise * steps) ** 2)
        logs += count * steps**2 * np.log1p(np.expm1(line[:, None] * losses) @ weights)

    def exceeds(epsilon: float) -> bool:
        heights = (np.exp(logs - line * epsilon) / (line * (line + 1))).real
        return float(np.trapezoid(heights, line.imag)) / pi > delta

    low, high = 0.0, zcdp_epsilon(rho, delta) * 2 + 1
    while high - low > 1e-6:
        low, high = ((low + high) / 2, high) if exceeds((low + high) / 2) else (low, (low + high) / 2)
    return high


def _unit_losses(variance: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Chances, and privacy losses of a shift by one: of every number, or of as many as a smooth sum needs."""
    law, reach, stride = Skellam(Fraction(variance)), ceil(12 * sqrt(variance)) + 40, max(floor(sqrt(variance) / 20), 1)
    numbers = np.arange(-reach, reach + 1, stride, dtype=np.float64)
    weights = np.exp(law.log_weights(np.abs(numbers)))
    return weights / weights.sum(), law.log_weights(np.abs(numbers)) - law.log_weights(np.abs(numbers - 1))


def _of_one_coordinate(parts: list[tuple[float, float, int]], delta: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as losses
    from scipy.stats import skellam

    total = None
    for noise, steps, count in parts:
        half, shift = (noise * steps) ** 2 / 2, round(steps)
        numbers = np.arange(-ceil(14 * sqrt(2 * half)) - 40, ceil(14 * sqrt(2 * half)) + 41)
        upper = dict(zip(numbers.tolist(), skellam.logpmf(numbers, half, half).tolist(), strict=True))
        lower = {number + shift: log_chance for number, log_chance in upper.items()}
        one = losses.from_two_probability_mass_functions(lower, upper, value_discretization_interval=1e-4)
        total = one.self_compose(count) if total is None else total.compose(one.self_compose(count))
    assert total is not None
    return float(total.get_epsilon_for_delta(delta))


def _with_sampling(spent: Mapping[Release, int], delta: float, accountant: Accountant) -> float:
    """With what drawing at random hides; infinite for mixtures that no accountant knows."""
    library = _library()
    ways = {release.sampling for release in spent if release.rate < 1} - {"none"}
    if len(ways) != 1 or any(release.shape not in ("gaussian", "discrete-gaussian") for release in spent):
        return inf
    if any(release.shape == "discrete-gaussian" for release in spent):  # as Gaussian noise, by Renyi divergences
        accountant = "rdp"
    if ways == {"poisson"}:
        events = [(library.PoissonSampledDpEvent(release.rate, library.GaussianDpEvent(release.noise))
                   if release.rate < 1 else library.GaussianDpEvent(release.noise), count)
                  for release, count in spent.items()]
        return _composed(_accountant(accountant, events, delta), events, delta)
    # dp-accounting knows samples of fixed size by Renyi divergences only, and takes sizes rather than a rate.
    events = [(library.SampledWithoutReplacementDpEvent(10**9, round(release.rate * 10**9),
                                                        library.GaussianDpEvent(release.noise)), count)
              for release, count in spent.items()]
    return _composed(_renyi(library.NeighboringRelation.REPLACE_ONE), events, delta)


def _accountant(wanted: Accountant, events: list[tuple[Any, int]], delta: float) -> Any:
    """A fresh accountant; where losses are huge the discretisation is as much wider, or it would take minutes."""
    if wanted == "rdp":
        return _renyi()
    from dp_accounting import pld

    rough = min(_composed(_renyi(), events, delta), 1e6)
    return pld.PLDAccountant(value_discretization_interval=_WIDTH * max(1.0, rough / _USUAL_EPSILON))


def _renyi(relation: Any = None) -> Any:
    from dp_accounting import rdp

    return rdp.RdpAccountant(_ORDERS) if relation is None else rdp.RdpAccountant(_ORDERS, relation)


def _composed(accountant: Any, events: list[tuple[Any, int]], delta: float) -> float:
    for event, count in events:
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


def _library() -> ModuleType:
    logging.getLogger("absl").setLevel(logging.ERROR)  # orders that do not converge are left out, and no concern
    try:
        return import_module("dp_accounting")
    except ImportError as cause:
        raise MissingExtra("dp-accounting", "privacy", "privacy accounting") from cause
