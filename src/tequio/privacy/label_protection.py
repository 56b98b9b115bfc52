"""Noise on the gradients that a label holder sends back, so that they do not tell the labels.

In a split network the gradient that a row's activations get differs between classes in length and in direction. Li,
Sun, Yang et al.: Label leakage and protection in two-party split learning, ICLR 2022. `max-norm` hides the length:
every row's gradient is stretched at random along itself until its expected square is that of the longest. `marvell`
hides both: it draws noise of two covariances, one a class, that make the two classes' gradients as hard to tell apart
as any noise of that power can (the sum of their two KL divergences is least, gradients taken as Gaussian).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

Protection = Literal["none", "isotropic", "max-norm", "marvell"]


def protected(gradients: NDArray[Any], positive: NDArray[np.bool_], how: Protection, strength: float,
              rng: np.random.Generator) -> NDArray[Any]:
    """The gradients of a batch's rows with noise on them.

    `strength` is the power of the noise: of isotropic noise in squares of the longest gradient, of Marvell's in squares
    of the distance between the classes' mean gradients. Max-norm needs none.
    """
    given = gradients.astype(np.float64)
    if how == "isotropic":
        longest = np.square(given).sum(axis=1).max(initial=0.0)
        noise = np.sqrt(strength * longest / max(given.shape[1], 1)) * rng.standard_normal(given.shape)
    elif how == "max-norm":
        noise = _stretch(given, rng)
    elif how == "marvell":
        noise = _marvell(given, positive, strength, rng)
    else:
        return gradients
    return np.asarray(given + noise, gradients.dtype)


def _stretch(gradients: Matrix, rng: np.random.Generator) -> Matrix:
    squares = np.square(gradients).sum(axis=1)
    deviation = np.sqrt(np.maximum(squares.max(initial=0.0) / np.maximum(squares, 1e-300) - 1.0, 0.0))
    # A row whose gradient is nought has no direction to be stretched in.
    deviation = np.where(squares > 0, deviation, 0.0)
    return gradients * (deviation * rng.standard_normal(len(gradients)))[:, None]


def _marvell(gradients: Matrix, positive: NDArray[np.bool_], strength: float, rng: np.random.Generator) -> Matrix:
    draw = rng.standard_normal(gradients.shape)
    along = rng.standard_normal(len(gradients))
    if positive.all() or not positive.any():
        return np.zeros_like(gradients)
    gap = gradients[positive].mean(axis=0) - gradients[~positive].mean(axis=0)
    distance = float(gap @ gap)
    if distance <= 0:
        return np.zeros_like(gradients)
    spread = [float(gradients[which].var(axis=0).mean()) for which in (~positive, positive)]
    powers = marvell_powers(distance, spread[0], spread[1], float(positive.mean()), gradients.shape[1],
                            strength * distance)
    along_gap, across = powers[:2][positive.astype(int)], powers[2:][positive.astype(int)]
    unit = gap / np.sqrt(distance)
    sideways = draw - np.outer(draw @ unit, unit)
    noise: Matrix = np.sqrt(across)[:, None] * sideways + np.outer(np.sqrt(along_gap) * along, unit)
    return noise


def marvell_powers(distance: float, spread0: float, spread1: float, share1: float, width: int,
                   power: float) -> NDArray[np.float64]:
    """Noise variances that make two Gaussian classes hardest to tell: along their gap (class 0, 1), then across it.

    The classes have isotropic variances `spread0` and `spread1`, means at a squared `distance`; of the rows a share is
    of class 1, and the noise may have that much power a row on average.
    """
    from scipy.optimize import minimize

    unit = max(distance, spread0, spread1)
    gap, spreads = distance / unit, np.array([spread0, spread1]) / unit + 1e-9
    shares, budget = np.array([1 - share1, share1]), power / unit

    def divergence(values: NDArray[np.float64]) -> float:
        (a0, a1), (c0, c1) = values[:2] + spreads, values[2:] + spreads
        return float((width - 1) * (c0 / c1 + c1 / c0) + (a0 + gap) / a1 + (a1 + gap) / a0)

    def left(values: NDArray[np.float64]) -> float:
        return float(budget - shares @ (values[:2] + (width - 1) * values[2:]))

    start = np.array([budget, budget, 0.0, 0.0]) * 0.99
    found = minimize(divergence, start, method="SLSQP", bounds=[(0, None)] * 4,
                     constraints=[{"type": "ineq", "fun": left}])
    best = found.x if divergence(np.maximum(found.x, 0)) <= divergence(start) else start
    return unit * np.maximum(best, 0.0)
