"""Audits: what two sets of runs that differ in one party really tell apart, as a lower bound on epsilon.

Jagielski, Ullman, Oprea: Auditing differentially private machine learning: how private is private SGD?, NeurIPS 2020.

Somebody who guesses from what a run released whether the party was there is right in some share of the cases. Under
(epsilon, delta) these shares are bounded, so that shares that were seen bound epsilon from below. A bound above what a
ledger claims means that the mechanism is broken; one below proves nothing, but is the more telling the closer it comes.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def epsilon_lower_bound(inside: ArrayLike, outside: ArrayLike, delta: float, confidence: float = 0.95) -> float:
    """Epsilon is at least this with that confidence, by scores of runs with the party and of runs without it.

    The guess is a threshold on the score, and which side of it means what. Both are chosen on the first half of the
    runs and judged on the second.
    """
    with_it, without = np.asarray(inside, dtype=np.float64), np.asarray(outside, dtype=np.float64)
    halves = [len(with_it) // 2, len(without) // 2]
    place, side = _best_guess(with_it[:halves[0]], without[:halves[1]], delta)
    return _bound(place, side, with_it[halves[0]:], without[halves[1]:], delta, (1 - confidence) / 2)


def _best_guess(inside: NDArray[Any], outside: NDArray[Any], delta: float) -> tuple[float, float]:
    places = np.quantile(np.concatenate([inside, outside]), np.linspace(0.01, 0.99, 99))
    guesses = [(place, side) for place in places for side in (1.0, -1.0)]
    return max(guesses, key=lambda guess: _bound(guess[0], guess[1], inside, outside, delta, 0.025))


def _bound(place: float, side: float, inside: NDArray[Any], outside: NDArray[Any], delta: float, risk: float) -> float:
    """ln((true positives - delta) / false positives) and the same with both turned round, at their safe ends."""
    hits, alarms = (int(np.count_nonzero(side * (scores - place) > 0)) for scores in (inside, outside))
    quiet, missed = len(outside) - alarms, len(inside) - hits
    ratios = [(_least(hits, len(inside), risk) - delta) / _most(alarms, len(outside), risk),
              (_least(quiet, len(outside), risk) - delta) / _most(missed, len(inside), risk)]
    return max(log(max(*ratios, 1.0)), 0.0)


def _least(successes: int, trials: int, risk: float) -> float:
    """Clopper and Pearson's lower end of a share."""
    from scipy.stats import beta

    return float(beta.ppf(risk, successes, trials - successes + 1)) if successes else 0.0


def _most(successes: int, trials: int, risk: float) -> float:
    from scipy.stats import beta

    return float(beta.ppf(1 - risk, successes + 1, trials - successes)) if successes < trials else 1.0
