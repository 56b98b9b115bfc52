"""Routers that ask the party's own model how sure it is.

Hendrycks, Gimpel: A baseline for detecting misclassified and out-of-distribution examples, ICLR 2017.
Liu, Wang, Owens, Li: Energy-based out-of-distribution detection, NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.learners.routers.router import Fitted, Own

    Numbers = NDArray[np.float64]


@register("router", "confidence", paper="Hendrycks and Gimpel, 2017")
@dataclass(frozen=True)
class Confidence:
    """Rows of whose class the party's own model is not sure are foreign.

    Parameters:
        sigmas: the threshold is the mean doubt about the party's rows plus so many standard deviations
    """

    sigmas: float = 3.0

    follows_model = True

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Nothing to learn but the threshold."""
        return {}

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """One minus the probability of the likeliest class."""
        scores = own.learner.predict(own.model, rows)
        if scores.ndim != 2:
            raise ConfigError("the router 'confidence' needs a model of classes", remedy="choose another router")
        return np.asarray(1.0 - scores.max(axis=1), dtype=np.float64)


@register("router", "energy", paper="Liu et al., 2020")
@dataclass(frozen=True)
class Energy:
    """Rows of high free energy under the party's own model are foreign.

    Parameters:
        sigmas: the threshold is the mean energy of the party's rows plus so many standard deviations
    """

    sigmas: float = 3.0

    follows_model = True

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Nothing to learn but the threshold."""
        return {}

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """Minus the logarithm of the sum of exponentials of the outputs."""
        outputs = getattr(own.learner, "outputs", None)
        if outputs is None:
            raise ConfigError("the router 'energy' needs a learner with outputs before the softmax",
                              remedy="choose a torch learner, or the router 'confidence'")
        return np.asarray(-np.logaddexp.reduce(outputs(own.model, rows).astype(np.float64), axis=1))
