"""Routers from classical novelty detection: PCA, one-class SVM, local outlier factor, Mahalanobis distance.

Schölkopf et al.: Estimating the support of a high-dimensional distribution, 2001. Breunig et al.: LOF: identifying
density-based local outliers, 2000. Lee et al.: A simple unified framework for detecting out-of-distribution samples,
2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Interval

from tequio.learners.routers.components import dense, principal, seen_through
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.learners.routers.router import Fitted, Own

    Numbers = NDArray[np.float64]

Count = Annotated[int, Ge(1)]
_ROWS_AT_A_TIME = 2000


@register("router", "pca")
@dataclass(frozen=True)
class Pca:
    """Rows that the main directions of the party's rows do not explain are foreign.

    Parameters:
        sigmas: the threshold is the mean error on the party's rows plus so many standard deviations
        components: how many directions
    """

    sigmas: float = 3.0
    components: Count = 32

    follows_model = False

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """The directions in which the rows vary most."""
        return principal(rows, self.components)

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """Mean squared error of what the directions leave out."""
        away = dense(rows) - fitted["centre"]
        left = away - away @ fitted["directions"].T @ fitted["directions"]
        errors: Numbers = np.square(left).mean(axis=1)
        return errors


@register("router", "one-class-svm", paper="Schölkopf et al., 2001")
@dataclass(frozen=True)
class OneClassSvm:
    """Rows outside a region that holds most of the party's rows are foreign.

    Parameters:
        sigmas: the threshold is the mean distance from the region plus so many standard deviations; the distance has a
            largest value, so that three would let everything in
        components: how many main directions the rows are seen through
        outside: share of the party's rows that may lie outside
        rows: most rows that the region is learned from
    """

    sigmas: float = 2.0
    components: Count = 32
    outside: Annotated[float, Interval(gt=0, lt=1)] = 0.05
    rows: Count = 2000

    follows_model = False

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Support vectors and their coefficients, kept as plain arrays."""
        from sklearn.svm import OneClassSVM

        seen = principal(rows, self.components)
        places = seen_through(seen, _some(rows, self.rows, rng))
        gamma = 1.0 / places.shape[1]
        machine = OneClassSVM(nu=self.outside, gamma=gamma).fit(places)
        return {**seen, "support": machine.support_vectors_, "coefficients": machine.dual_coef_[0], "gamma": gamma,
                "offset": float(machine.offset_[0])}

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """How far below its border the region's function is."""
        places, support = seen_through(fitted, rows), fitted["support"]
        squares = np.square(support).sum(axis=1)
        values = [_gaussian(part, support, squares, fitted["gamma"]) @ fitted["coefficients"]
                  for part in np.array_split(places, max(-(-len(places) // _ROWS_AT_A_TIME), 1))]
        return np.asarray(fitted["offset"] - np.concatenate(values))


@register("router", "local-outlier-factor", paper="Breunig et al., 2000")
@dataclass(frozen=True)
class LocalOutlier:
    """Rows that lie in thinner places than their neighbours among the party's rows are foreign.

    Parameters:
        sigmas: the threshold is the mean factor of the party's rows plus so many standard deviations
        components: how many main directions the rows are seen through
        neighbours: how many neighbours a row is compared with
        rows: most rows that are kept to compare with
    """

    sigmas: float = 3.0
    components: Count = 32
    neighbours: Count = 20
    rows: Count = 2000

    follows_model = False

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Keep some rows, seen through the main directions."""
        seen = principal(rows, self.components)
        return {**seen, "kept": seen_through(seen, _some(rows, self.rows, rng))}

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """The local outlier factor among the kept rows."""
        from sklearn.neighbors import LocalOutlierFactor

        kept = fitted["kept"]
        if len(kept) < 2:
            return np.zeros(len(rows))
        factor = LocalOutlierFactor(n_neighbors=min(self.neighbours, len(kept) - 1), novelty=True).fit(kept)
        return np.asarray(-factor.score_samples(seen_through(fitted, rows)))


@register("router", "mahalanobis", paper="Lee et al., 2018")
@dataclass(frozen=True)
class Mahalanobis:
    """Rows far from the party's mean row, in units of how its rows vary, are foreign.

    Parameters:
        sigmas: the threshold is the mean distance of the party's rows plus so many standard deviations
        components: how many main directions the distance is taken along
    """

    sigmas: float = 3.0
    components: Count = 128

    follows_model = False

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Mean and covariance."""
        return principal(rows, self.components)

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """The distance along the directions, a component."""
        places = seen_through(fitted, rows)
        distances: Numbers = np.sqrt(np.square(places).mean(axis=1))
        return distances


def _some(rows: Dataset, most: int, rng: np.random.Generator) -> Dataset:
    return rows if len(rows) <= most else rows.take(np.sort(rng.permutation(len(rows))[:most]))


def _gaussian(places: Numbers, support: Numbers, squares: Any, gamma: float) -> Numbers:
    distances = np.square(places).sum(axis=1)[:, None] + squares[None, :] - 2 * places @ support.T
    return np.asarray(np.exp(-gamma * np.maximum(distances, 0.0)))
