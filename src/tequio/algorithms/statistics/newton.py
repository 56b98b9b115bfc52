"""Newton's method on sums that parties send: steps, halving, when to stop, and columns that follow from others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

STOP, FLOOR = 1e-9, 1e-6
MOST_ITERATIONS, MOST_HALVINGS = 50, 10
_RISE, _PIVOT = 1e-8, 1e-10


class Aliased(DataError):
    """A column is a linear combination of those before it."""

    def __init__(self, column: int, names: Sequence[str]) -> None:
        super().__init__(f"column '{names[column]}' is a linear combination of the columns before it",
                         remedy='leave it out, or set aliased = "drop"')
        self.place = column


@dataclass(frozen=True)
class Point:
    """What the parties' sums say at some coefficients: the information matrix, the score, and minus twice the
    log-likelihood or the deviance. `phi` is the dispersion, and where `wild` is above 0 the step went too far. `extra`
    are other sums of the same ask."""

    information: NDArray[np.float64]
    score: Vector
    deviance: float
    phi: float = 1.0
    wild: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fit:
    """Where it stopped: the coefficients, the sums there, how often these were evaluated, the last lambda, notes."""

    coefficients: Vector
    at: Point
    iterations: int
    change: float
    notes: tuple[str, ...] = ()


def newton(what: str, names: Sequence[str], evaluate: Callable[[Vector], Point], start: Vector, *,
           watch: Callable[[int, Vector, Vector], object] = lambda iteration, spread, step: None,
           limit: Callable[[Vector, Vector], Vector] = lambda found, step: step, most: int = MOST_ITERATIONS) -> Fit:
    """The coefficients at which the score is 0. `watch(iteration, diagonal of the inverse, step)` may refuse, and
    `limit(coefficients, step)` keeps a step within a range.

    lambda, the largest change of any contrast in units of its standard error, ends it at 1e-9, after that step; or at
    1e-6 where two evaluations made it no smaller, which is as exact as the sums are. A step by which the deviance rises
    is halved.
    """
    at, found = evaluate(start), start.copy()
    iterations, smallest, stuck, change = 1, np.inf, 0, np.inf
    while True:
        inverse = inverted(at.information, names if iterations == 1 else ())
        step = limit(found, inverse @ at.score)
        change = float(np.sqrt(max(float(at.score @ step), 0.0) / at.phi))
        watch(iterations, np.diag(inverse), step)
        stuck = stuck + 1 if change >= smallest else 0
        smallest = min(smallest, change)
        if change <= STOP or (stuck >= 2 and change <= FLOOR):
            notes = () if change <= STOP else (f"stopped at the floor of rounding, lambda {change:.1e}",)
            return Fit(found + step, at, iterations, change, notes)
        if iterations >= most:
            raise RunError(f"'{what}' did not converge in {most} iterations (lambda {change:.1e})",
                           remedy="look at separation and at scales")
        before, found, halvings = at.deviance, found + step, 0
        at, iterations = evaluate(found), iterations + 1
        while (at.wild or at.deviance - before > _RISE * (abs(at.deviance) + 0.1)) and halvings < MOST_HALVINGS:
            step, halvings = step / 2, halvings + 1
            found = found - step
            at, iterations = evaluate(found), iterations + 1
        if at.wild:
            raise RunError(f"'{what}' left the range of its link after {halvings} halvings of a step",
                           remedy="look at separation and at scales, or choose another link")


def inverted(matrix: NDArray[np.float64], names: Sequence[str] = ()) -> NDArray[np.float64]:
    """The inverse of a positive definite matrix, by Cholesky on the scale of a unit diagonal. With names, a column that
    follows from those before it is refused by its own."""
    from scipy.linalg import lapack

    scale = np.sqrt(np.diag(matrix))
    if names and not (scale > 0).all():
        raise Aliased(int(np.argmin(scale > 0)), names)
    unit = matrix / np.outer(scale, scale)
    lower, failed = lapack.dpotrf(unit, lower=1)
    pivots = np.square(np.diag(lower)[:failed - 1 if failed else None])
    if names and ((pivots < _PIVOT).any() or failed):
        raise Aliased(int(np.argmax(pivots < _PIVOT)) if (pivots < _PIVOT).any() else failed - 1, names)
    if failed:
        raise RunError("the information matrix is no longer positive definite", remedy="look at separation and at "
                                                                                     "scales")
    inverse, _ = lapack.dpotri(lower, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    return np.asarray(inverse / np.outer(scale, scale))
