"""Losses that are at most quadratic in the score, which is what additive encryption can compute.

With score s = weights . row and target y the loss of a row is  `curve`/2 s^2 - `pull` y s + constant(y):

- logistic (y is -1 or 1): log(1 + exp(-ys)) = log 2 - ys/2 + s^2/8 - s^4/192 + ..., cut after the square, so `curve` is
  1/4, `pull` 1/2 and the constant log 2 (Hardy et al., 2017);
- linear: (s - y)^2 / 2, so both are 1 and the constant is y^2/2;
- poisson (counts over their mean, minus 1, are y; the rate over that mean is exp(s)): exp(s) - (y + 1)s =
  1 - ys + s^2/2 + s^3/6 + ..., cut after the square, so both are 1 and the constant is 1.

The gradient is the row times its residual `curve` s - `pull` y; the loss is s times (`curve`/2 s - `pull` y), plus the
constant. Both are sums of products of something known to one party with something known to all together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array

    Floats = NDArray[np.float64]

Kind = Literal["logistic", "linear", "poisson"]


@dataclass(frozen=True)
class Quadratic:
    """The two numbers that tell one such loss from another."""

    curve: float
    pull: float


class TargetScale(TypedDict):
    """How the label holder standardises a numeric target."""

    mean: float
    deviation: float


class Calibration(TypedDict):
    """What turns scores into log-odds."""

    slope: float
    shift: float


QUADRATICS: dict[Kind, Quadratic] = {"logistic": Quadratic(0.25, 0.5), "linear": Quadratic(1.0, 1.0),
                                    "poisson": Quadratic(1.0, 1.0)}
NOT_CALIBRATED: Calibration = {"slope": 1.0, "shift": 0.0}
LARGEST_CENTRE = 4.0
"""Rates are expanded around e^4 times their mean at most, so that a slope needs few bits before the point."""


def signs(kind: Kind, target: Array, scale: TargetScale) -> Floats:
    """The target as the loss wants it: -1 and 1, standardised, or how far counts are from their mean, over it."""
    values = np.asarray(target, np.float64)
    if kind == "poisson":
        return np.asarray(values / scale["deviation"] - 1.0)
    return 2.0 * values - 1.0 if kind == "logistic" else (values - scale["mean"]) / scale["deviation"]


def target_scale(kind: Kind, target: Array) -> TargetScale:
    """How the label holder standardises a numeric target; classes stay as they are, and counts are divided by their
    mean."""
    if kind == "logistic":
        return {"mean": 0.0, "deviation": 1.0}
    values = np.asarray(target, np.float64)
    if kind == "poisson":
        negative = int((values < 0).sum())
        if negative or not values.sum() > 0:
            raise DataError(f"{negative} of the {len(values)} training rows have a target below 0" if negative else
                            "the target of all training rows is 0", remedy="'vertical-poisson' is for counts and rates "
                            "from 0 upwards; use 'vertical-linear' for other numbers")
        return {"mean": 0.0, "deviation": float(values.mean())}
    return {"mean": float(values.mean()), "deviation": float(values.std()) or 1.0}


def expanded(kind: Kind, centres: Floats, wanted: Floats) -> tuple[Floats, Floats]:
    """Slope and offset of the residual of the whole loss as a line in the score, touching it at known scores.

    Around 0 these are those of the cut series: 1/4 and -y/2, or 1 and -y.
    """
    if kind == "poisson":
        near = np.minimum(centres, LARGEST_CENTRE)
        rates = np.exp(near)
        return rates, rates * (1 - near) - (wanted + 1)
    positive = _sigmoid(centres)
    slopes = positive * (1 - positive)
    return slopes, positive - (wanted + 1) / 2 - slopes * centres


def whole_loss(kind: Kind, scores: Floats, wanted: Floats) -> float:
    """The mean loss, not cut."""
    if kind == "poisson":
        return float((np.exp(scores) - (wanted + 1) * scores).mean())
    return float(np.logaddexp(0.0, -wanted * scores).mean())


def in_units(kind: Kind, loss: float, wanted: Floats, scale: TargetScale) -> float:
    """A mean loss in the units of the target; of counts without the logarithms of their factorials."""
    if kind == "poisson":
        return scale["deviation"] * (loss - float((wanted + 1).mean()) * float(np.log(scale["deviation"])))
    return loss * scale["deviation"] ** 2


def constants(kind: Kind, wanted: Floats) -> Floats:
    """The part of each row's loss that the weights do not change."""
    if kind == "linear":
        return wanted * wanted / 2
    return np.full(len(wanted), np.log(2.0) if kind == "logistic" else 1.0)


def predictions(kind: Kind, scores: Floats, scale: TargetScale, calibration: Calibration) -> Floats:
    """What `Learner.predict` gives: probabilities of the two classes, or numbers in their own units."""
    if kind == "linear":
        numbers: Floats = scores * scale["deviation"] + scale["mean"]
        return numbers
    margins: Floats = calibration["slope"] * scores + calibration["shift"]
    if kind == "poisson":
        return np.asarray(scale["deviation"] * np.exp(margins))
    positive = _sigmoid(margins)
    return np.stack([1 - positive, positive], axis=1)


def one_against_rest(positives: Sequence[Floats]) -> Floats:
    """Probabilities of several classes from that of each against the rest."""
    stacked = np.stack(positives, axis=1)
    total = stacked.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, stacked / np.where(total > 0, total, 1.0), 1.0 / len(positives)))


def calibrated(kind: Kind, scores: Floats, wanted: Floats, steps: int = 50) -> Calibration:
    """Slope and shift that make scores log-odds: a logistic regression on the score alone (Platt, 1999), by Newton; or
    likewise logarithms of rates.

    A slope that is not positive would turn the model round: then the scores stay as they are.
    """
    spread = float(scores.std()) or 1.0
    columns = np.stack([scores / spread, np.ones_like(scores)], axis=1)
    found = np.array([1.0, 0.0])
    for _ in range(steps):
        if kind == "poisson":
            slopes = np.exp(np.minimum(columns @ found, 2 * LARGEST_CENTRE))
            residuals = slopes - (wanted + 1)
        else:
            positive = _sigmoid(columns @ found)
            slopes, residuals = positive * (1 - positive), positive - (wanted + 1) / 2
        gradient = columns.T @ residuals + 1e-3 * found
        curvature = (columns * slopes[:, None]).T @ columns + 1e-3 * np.eye(2)
        move = np.linalg.solve(curvature, gradient)
        found = found - move / max(1.0, float(np.abs(move).max()))
    slope, shift = float(found[0]) / spread, float(found[1])
    return {"slope": slope, "shift": shift} if slope > 0 and np.isfinite(found).all() else NOT_CALIBRATED


def _sigmoid(margins: Floats) -> Floats:
    half: Floats = 0.5 * (1 + np.tanh(0.5 * margins))  # never overflows
    return half
