"""Audits: bounds on epsilon from below, by what an attacker of real releases got right.

Under (epsilon, delta) there is a limit to how often anybody guesses right, from what was released, who or what was in
it. Guesses that are better than a claim allows show that the mechanism is broken; a bound below the claim proves
nothing, but says more the closer it comes.

Many runs, half of them with the canary. Jagielski, Ullman, Oprea: Auditing differentially private machine learning: how
private is private SGD?, NeurIPS 2020. Nasr, Hayes, Steinke, Balle, Tramer, Jagielski, Carlini, Terzis: Tight auditing
of differentially private machine learning, USENIX Security 2023 (for mechanisms that claim Gaussian privacy, whose
trade-off of the two errors is known: far fewer runs say far more). Dong, Roth, Su: Gaussian differential privacy, JRSS
B 2022.

One run, with many canaries. Steinke, Nasr, Jagielski: Privacy auditing with one (1) training run, NeurIPS 2023.

Exposure of a canary in a model that memorises. Carlini, Liu, Erlingsson, Kos, Song: The secret sharer, USENIX Security
2019.
"""

from __future__ import annotations

from math import exp, log, log2, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

_LARGEST = 64.0
"""No audit of a thinkable size comes to a larger epsilon."""


def share_bounds(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of the share behind so many successes: exact, both ends at half the risk."""
    from scipy.special import betaincinv

    risk = (1 - confidence) / 2
    low = float(betaincinv(successes, trials - successes + 1, risk)) if successes else 0.0
    high = float(betaincinv(successes + 1, trials - successes, 1 - risk)) if successes < trials else 1.0
    return low, high


class Guesses(NamedTuple):
    """How an attacker did: runs with the canary that it took for such, and runs without it that it took for such."""

    found: int
    inside: int
    false: int
    outside: int


def epsilon_bound(guesses: Guesses, delta: float, confidence: float = 0.95) -> float:
    """Any mechanism's epsilon is at least this: ln((true positives - delta) / false positives), or the same of the
    negatives, each at its safe end."""
    found = share_bounds(guesses.found, guesses.inside, confidence)[0]
    false = share_bounds(guesses.false, guesses.outside, confidence)[1]
    ratios = [(found - delta) / false, (1 - false - delta) / (1 - found)]
    return max(log(max(*ratios, 1.0)), 0.0)


def gaussian_bound(guesses: Guesses, confidence: float = 0.95) -> float:
    """The mu of a mechanism that claims mu-Gaussian privacy is at least this, by both errors at their safe ends.

    It holds for Gaussian noise that no sampling amplifies, and for compositions of that.
    """
    from scipy.special import ndtri

    false_high = share_bounds(guesses.false, guesses.outside, confidence)[1]
    missed_high = share_bounds(guesses.inside - guesses.found, guesses.inside, confidence)[1]
    return max(float(-ndtri(false_high) - ndtri(missed_high)), 0.0)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """What mu-Gaussian privacy is as epsilon: Balle and Wang's exact curve of the Gaussian mechanism."""
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    def excess(epsilon: float) -> float:
        likely, usual = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
        return float(np.exp(likely) - np.exp(epsilon + usual)) - delta

    if mu <= 0 or excess(0.0) <= 0:
        return 0.0
    most = mu * mu / 2 + mu * sqrt(2 * log(1 / delta)) + 1
    return float(brentq(excess, 0.0, most, xtol=1e-9))


def epsilon_lower_bound(inside: ArrayLike, outside: ArrayLike, delta: float, *, is_gaussian: bool = False,
                        confidence: float = 0.95) -> float:
    """Epsilon is at least this with that confidence, by scores of runs with the canary and of runs without it.

    The guess is a threshold on the score, and which side of it means what. Both are chosen on the first half of the
    runs and judged on the second.
    """
    def bound(guesses: Guesses) -> float:
        return gaussian_bound(guesses, confidence) if is_gaussian else epsilon_bound(guesses, delta, confidence)

    scores = [np.asarray(values, dtype=np.float64) for values in (inside, outside)]
    halves = [len(values) // 2 for values in scores]
    threshold, side = _best_guess([values[:half] for values, half in zip(scores, halves, strict=True)], bound)
    found = bound(_guessed(threshold, side, *(values[half:] for values, half in zip(scores, halves, strict=True))))
    return gaussian_epsilon(found, delta) if is_gaussian else found


def _best_guess(scores: list[Floats], bound: Callable[[Guesses], float]) -> tuple[float, float]:
    """The threshold with the largest bound; of equals that in the middle, which errs least on either side."""
    thresholds = np.quantile(np.concatenate(scores), np.linspace(0.01, 0.99, 99))
    guesses = [(float(threshold), side) for threshold in thresholds for side in (1.0, -1.0)]
    bounds = np.array([bound(_guessed(*guess, *scores)) for guess in guesses])
    best = np.flatnonzero(bounds >= bounds.max() - 1e-12)
    return guesses[int(best[len(best) // 2])]


def _guessed(threshold: float, side: float, inside: Floats, outside: Floats) -> Guesses:
    found, false = (int(np.count_nonzero(side * (scores - threshold) > 0)) for scores in (inside, outside))
    return Guesses(found, len(inside), false, len(outside))


def one_run_bound(canaries: int, guessed: int, right: int, delta: float = 0.0, confidence: float = 0.95) -> float:
    """Epsilon is at least this if of so many canaries, each in by a fair secret coin, an attacker chose some to guess
    and had so many right.

    How many it guesses must be fixed before it looks.
    """
    if not 0 <= right <= guessed <= canaries or not guessed:
        raise ConfigError(f"{right} right of {guessed} guesses on {canaries} canaries cannot be",
                          remedy="guess at least one canary, and no more than there are")
    risk, low, high = 1 - confidence, 0.0, _LARGEST
    if _one_run_chance(low, canaries, guessed, right, delta) >= risk:
        return 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if _one_run_chance(middle, canaries, guessed, right, delta) < risk else (low, middle)
    return low


def _one_run_chance(epsilon: float, canaries: int, guessed: int, right: int, delta: float) -> float:
    """How likely so many right guesses are at most, under (epsilon, delta)."""
    from scipy.stats import binom

    share = 1 / (1 + exp(-epsilon))
    chance = float(binom.sf(right - 1, guessed, share))
    if not delta or not right:
        return min(chance, 1.0)
    steps = np.arange(1, right + 1)
    below = binom.cdf(right - 1, guessed, share) - binom.cdf(right - 1 - steps, guessed, share)
    return min(chance + 2 * canaries * delta * float((below / steps).max()), 1.0)


def one_run_epsilon(scores: ArrayLike, inside: ArrayLike, each: int, delta: float = 0.0,
                    confidence: float = 0.95) -> float:
    """The bound of an attacker that takes the `each` canaries of the highest scores to be in and those of the lowest
    to be out."""
    order, was_in = np.argsort(np.asarray(scores, dtype=np.float64), kind="stable"), np.asarray(inside, dtype=bool)
    right = int(was_in[order[-each:]].sum() + (~was_in[order[:each]]).sum())
    return one_run_bound(len(order), 2 * each, right, delta, confidence)


class Exposure(NamedTuple):
    """Bits by which a canary ranks above random ones, with an interval."""

    bits: float
    low: float
    high: float


def exposure(canary: float, references: ArrayLike, confidence: float = 0.95) -> Exposure:
    """How far a model prefers a canary that it was trained on to random ones of the same format that it was not.

    Scores are losses (or perplexities): the lower, the better known. Among 2^k references nothing above k bits can be
    seen. Equals count as better known, so that a model that knows nothing exposes nothing.
    """
    others = np.asarray(references, dtype=np.float64)
    if not len(others) or np.isnan(others).any() or np.isnan(canary):
        raise ConfigError("exposure compares a canary with random ones, and there are none with a score",
                          remedy="give the losses of at least one reference, without NaN")
    better, most = int(np.count_nonzero(others <= canary)), log2(len(others))
    low, high = share_bounds(better, len(others), confidence)
    bits = max(most - log2(better + 1), 0.0)
    return Exposure(bits, min(-log2(high), bits), min(-log2(low), most) if low else most)
