"""A router by how an image is made rather than by what it shows: brightness, contrast, sharpness and colour.

A one-sided test of reconstruction error cannot see foreign images that are smoother than the party's own: they are
reconstructed better. Their statistics differ to either side, and a distance to the mean sees both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from tequio.learners.routers.router import Router, dense
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.learners.routers.router import Fitted, Own

    Numbers = NDArray[np.float64]

_FLOOR = 1e-4
_RIDGE = 1e-3


@register("router", "statistics")
@dataclass(frozen=True)
class Statistics(Router):
    """Rows whose brightness, contrast, sharpness or colour is not that of the party's rows are foreign.

    Rows that are no images are judged by their columns.

    Parameters:
        sigmas: the threshold is the mean distance of the party's rows plus this many standard deviations
    """

    sigmas: float = 3.0

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Mean and inverse covariance of the statistics."""
        values = described(rows)
        return _gaussian({"centre": values.mean(axis=0),
                          "spread": np.atleast_2d(np.cov(values, rowvar=False, bias=True))})

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """Mahalanobis distance of a row's statistics to the party's mean."""
        return _distances(fitted, _log_likelihood(fitted, described(rows)))


@register("router", "likelihood-ratio")
@dataclass(frozen=True)
class LikelihoodRatio(Router):
    """Rows whose looks are likelier among another party's rows than among the party's own are foreign.

    Parties report to each other the mean and the covariance of their rows' brightness, contrast, sharpness and colour,
    and nothing else of their rows. Alone, a party judges by its own only.

    Parameters:
        sigmas: without others, the threshold is the mean distance of the party's rows plus this many standard
            deviations
        kept: share of the party's own rows that must count as its own, where others have rows of the same looks
    """

    sigmas: float = 3.0
    kept: Annotated[float, Interval(gt=0, lt=1)] = 0.99

    compares: ClassVar[bool] = True

    def describe(self, rows: Dataset) -> Fitted:
        """What a party reports to the others."""
        values = described(rows)
        return {"centre": values.mean(axis=0), "spread": np.atleast_2d(np.cov(values, rowvar=False, bias=True))}

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """A Gaussian of the statistics."""
        return _gaussian(self.describe(rows))

    def meet(self, fitted: Fitted, rows: Dataset, others: list[Fitted]) -> Fitted:
        """The fitted router with what others reported, and the threshold that follows."""
        fitted = {**fitted, "others": [_gaussian(other) for other in others]}
        if not others:
            return fitted
        margins = self.novelty(fitted, rows, None)
        return {**fitted, "threshold": max(0.0, float(np.quantile(margins, self.kept)))}

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own | None) -> Numbers:
        """How much likelier the row is among another party's; without others, how unlikely among the party's own."""
        values = described(rows)
        mine = _log_likelihood(fitted, values)
        others = [_log_likelihood(other, values) for other in fitted.get("others", [])]
        return np.asarray(np.max(others, axis=0) - mine) if others else _distances(fitted, mine)


def _gaussian(description: Fitted) -> Fitted:
    spread = description["spread"]
    ridge = _RIDGE * max(float(np.trace(spread)) / len(spread), 1e-12)
    whole = spread + ridge * np.eye(len(spread))
    return {"centre": description["centre"], "inverse": np.linalg.inv(whole),
            "constant": -float(np.linalg.slogdet(whole)[1])}


def _log_likelihood(fitted: Fitted, values: Numbers) -> Numbers:
    away = values - fitted["centre"]
    squares: Numbers = np.einsum("rs,rs->r", away @ fitted["inverse"], away)
    return np.asarray((fitted["constant"] - squares) / 2)


def _distances(fitted: Fitted, likelihoods: Numbers) -> Numbers:
    """Mahalanobis distances, from logarithms of likelihoods."""
    return np.asarray(np.sqrt(np.maximum(fitted["constant"] - 2 * likelihoods, 0.0)))


def described(rows: Dataset) -> Numbers:
    """The statistics of each row: of an image at three sizes, of other rows the columns themselves."""
    if len(rows.schema.shape) != 3:
        return dense(rows)
    images = np.asarray(rows.features, dtype=np.float64)
    parts: list[Numbers] = []
    while min(images.shape[2:]) >= 4:
        parts += _of_size(images)
        images = _halved(images)
    return np.concatenate(parts, axis=1)


def _of_size(images: Numbers) -> list[Numbers]:
    down, right = np.diff(images, axis=2), np.diff(images, axis=3)
    bend = np.diff(down, axis=2), np.diff(right, axis=3)
    colour = images - images.mean(axis=1, keepdims=True)
    lengths = [np.square(images - images.mean(axis=(2, 3), keepdims=True)), np.square(down), np.square(right),
               np.square(bend[0]), np.square(bend[1]), np.square(colour)]
    return [images.mean(axis=(2, 3)), *(np.log(values.mean(axis=(2, 3)) + _FLOOR) for values in lengths)]


def _halved(images: Numbers) -> Numbers:
    height, width = images.shape[2] // 2 * 2, images.shape[3] // 2 * 2
    even = images[:, :, :height, :width]
    return (even[:, :, ::2, ::2] + even[:, :, 1::2, ::2] + even[:, :, ::2, 1::2] + even[:, :, 1::2, 1::2]) / 4
