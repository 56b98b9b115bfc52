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
from importlib import import_module
from math import inf, sqrt
from typing import TYPE_CHECKING, Any, Literal

from tequio.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

Accountant = Literal["pld", "rdp"]
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
    `poisson` is one where each takes part on its own with the chance `rate`. `skellam` is noise in whole numbers, of
    which the sensitivity has so many `steps`.
    """

    noise: float
    shape: Literal["gaussian", "laplace", "skellam"] = "gaussian"
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
    gaussian = sum(count / release.noise**2 for release, count in spent.items() if release.shape == "gaussian")
    laplace = {release: count for release, count in spent.items() if release.shape == "laplace"}
    library = _library()
    if not laplace and accountant == "pld":
        return float(library.get_epsilon_gaussian(1 / sqrt(gaussian), delta))
    events = [(library.LaplaceDpEvent(release.noise), count) for release, count in laplace.items()]
    if gaussian:
        events.append((library.GaussianDpEvent(1 / sqrt(gaussian)), 1))
    found = _composed(_accountant(accountant, events, delta), events, delta)
    return found if gaussian else min(found, sum(count / release.noise for release, count in laplace.items()))


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


def _with_sampling(spent: Mapping[Release, int], delta: float, accountant: Accountant) -> float:
    """With what drawing at random hides; infinite for mixtures that no accountant knows."""
    library = _library()
    ways = {release.sampling for release in spent if release.rate < 1} - {"none"}
    if len(ways) != 1 or any(release.shape != "gaussian" for release in spent):
        return inf
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
