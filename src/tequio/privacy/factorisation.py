"""Factorisations of the prefix sum, by which noise of one round takes back noise of earlier ones.

A run publishes the sums of all rounds so far: `A x`, where A is lower triangular and all ones. With A = B C it can
publish `B (C x + z)` instead: z is fresh noise of every round, and a party moves `C x` by so much that z hides it. What
remains in the model after t rounds is row t of `B z`. Both sides follow from the first column of C, which is the same
on all diagonals: 1, then numbers that are not negative and do not grow.

Denisov, McMahan, Rush, Smith, Thakurta: Improved differential privacy for SGD via optimal private linear operators on
adaptive streams, NeurIPS 2022. Choquette-Choo et al.: (Amplified) banded matrix factorization, NeurIPS 2023. McMahan,
Xu, Zhang: A hassle-free algorithm for strong differential privacy in federated learning systems, EMNLP 2024 (BLT).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_STARTS = (0.2, 0.35, 0.5, 0.7)
_FORBIDDEN = 1e3


@dataclass(frozen=True)
class Factor:
    """C as a filter of the rounds: the quotient of two polynomials, which both begin with 1."""

    above: tuple[float, ...] = (1.0,)
    below: tuple[float, ...] = (1.0,)

    @classmethod
    def of_exponentials(cls, decays: Floats, weights: Floats) -> Factor:
        """With the column 1, then `weights . decays ** i`; a filter remembers one vector for each of them."""
        below = np.poly(decays)
        above = below.copy()
        for place, weight in enumerate(weights):
            above[1:] += weight * np.poly(np.delete(decays, place))
        return cls(tuple(above.tolist()), tuple(below.tolist()))

    def column(self, rounds: int) -> Floats:
        """The first entries of the first column of C."""
        return _response(self.above, self.below, rounds)

    def moved(self, rounds: Iterable[int], last: int) -> float:
        """How far a party that takes part in these rounds, counted from 1, moves `C x` in lengths of its update."""
        column, total = self.column(last), np.zeros(last)
        for round in rounds:
            total[round - 1:] += column[:last - round + 1]
        return float(np.linalg.norm(total))

    def error(self, rounds: int, apart: int, times: int) -> float:
        """The noise of the last model over that of one round, if parties take part `times` times, `apart` rounds
        apart."""
        left = np.cumsum(_response(self.below, self.above, rounds))
        taken = range(1, min(times * apart, rounds) + 1, apart)
        return float(np.linalg.norm(left)) * self.moved(taken, rounds)


def _response(above: tuple[float, ...], below: tuple[float, ...], rounds: int) -> Floats:
    from scipy.signal import lfilter

    return np.asarray(lfilter(above, below, np.eye(1, rounds)[0]))


@lru_cache(maxsize=32)
def exponentials(rounds: int, apart: int, times: int, buffers: int) -> Factor:
    """The best sum of `buffers` exponentials, by a search from four starts."""
    from scipy.optimize import minimize
    from scipy.special import expit

    buffers = min(buffers, rounds - 1)
    if not buffers:
        return Factor()
    slowest = min(1 / rounds if times == 1 else 3 / apart, 0.15)

    def factor(free: Floats) -> Factor:
        return Factor.of_exponentials(expit(free[:buffers]), np.exp(np.clip(free[buffers:], -50, 1)))

    def loss(free: Floats) -> float:
        grows = float(np.exp(free[buffers:]).sum()) - 1
        return _FORBIDDEN * (1 + grows) if grows > 0 else float(np.log(factor(free).error(rounds, apart, times)))

    best = None
    for start in _STARTS:
        gaps = np.geomspace(start, slowest, buffers) if buffers > 1 else np.array([(start * slowest) ** 0.5])
        free = np.concatenate([np.log(1 / gaps - 1), np.full(buffers, np.log(0.4 / buffers))])
        for _ in range(2):  # a second time from where the first ended: the simplex may have collapsed
            found = minimize(loss, free, method="Nelder-Mead",
                             options={"adaptive": True, "maxiter": 600 * buffers, "xatol": 1e-4, "fatol": 1e-8})
            free = found.x
        best = found if best is None or found.fun < best.fun else best
    assert best is not None
    return factor(best.x)


@lru_cache(maxsize=32)
def banded(rounds: int, apart: int, times: int) -> Factor:
    """The best column of `apart` entries: what a party moves in two rounds then never overlaps."""
    from scipy.optimize import minimize

    width = min(apart, rounds)
    if width == 1:
        return Factor()

    def loss(free: Floats) -> float:
        return float(np.log(Factor((1.0, *free)).error(rounds, apart, times)))

    found = minimize(loss, square_root(width)[1:], method="L-BFGS-B", bounds=[(0.0, 1.0)] * (width - 1))
    return Factor((1.0, *found.x.tolist()))


def square_root(rounds: int) -> Floats:
    """The column whose square is all ones: what both factors are if they are to be the same."""
    steps = np.arange(1, rounds)
    return np.concatenate([[1.0], np.cumprod((2 * steps - 1) / (2 * steps))])
