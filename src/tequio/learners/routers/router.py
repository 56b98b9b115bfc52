"""The contract of a router: how novel a row is to a party, one number per row, and from where on it counts as foreign.

Two routers ask the party's own model how sure it is; others look at rows along the directions in which they vary most.

Hendrycks, Gimpel: A baseline for detecting misclassified and out-of-distribution examples, ICLR 2017.
Liu, Wang, Owens, Li: Energy-based out-of-distribution detection, NeurIPS 2020.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tequio.errors import ConfigError
from tequio.learners.learner import OutputLearner, as_doubles, flat_features
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.learners.learner import Arrays, Learner

    Fitted = dict[str, Any]
    Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Own:
    """What a router may look at besides the rows: the party's own model, and the learner it belongs to."""

    learner: Learner
    model: Arrays


class Router(ABC):
    """Tells a party's own kind of rows from others. What it learns is plain data and stays at the party."""

    follows_model: ClassVar[bool] = False
    """Whether it looks at the party's model, and has to be fitted again when that changes."""

    compares: ClassVar[bool] = False
    """Whether it compares the party's rows with what other parties say of theirs (`describe` and `meet`)."""

    @property
    @abstractmethod
    def sigmas(self) -> float:
        """How many standard deviations above the mean novelty of the party's rows the threshold lies."""

    @abstractmethod
    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Learn what the party's rows look like; labels are not looked at."""

    @abstractmethod
    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """How foreign each row is."""

    def describe(self, rows: Dataset) -> Fitted:
        """What a party lets others know of its rows: sums over all of them, never a row."""
        return {}

    def meet(self, fitted: Fitted, rows: Dataset, others: list[Fitted]) -> Fitted:
        """The fitted router, once others have described their rows."""
        return fitted


def fit_router(router: Router, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
    """The fitted router with its threshold: mean plus some standard deviations of the novelty of the party's rows."""
    fitted = router.fit(rows, own, rng)
    errors = router.novelty(fitted, rows, own)
    mean, deviation = float(errors.mean()), float(errors.std())
    return {**fitted, "mean": mean, "deviation": deviation, "threshold": mean + router.sigmas * deviation}


def is_own(router: Router, fitted: Fitted, rows: Dataset, own: Own) -> NDArray[np.bool_]:
    """Row by row, whether it is of the party's kind; what is on the threshold is, what is not a number is not."""
    return accepted(fitted, router.novelty(fitted, rows, own)) if len(rows) else np.zeros(0, dtype=bool)


def accepted(fitted: Fitted, novelty: Numbers) -> NDArray[np.bool_]:
    """The same of rows whose novelty is known."""
    below: NDArray[np.bool_] = novelty <= fitted["threshold"]
    return below


@register("router", "confidence", paper="Hendrycks and Gimpel, 2017")
@dataclass(frozen=True)
class Confidence(Router):
    """Rows of whose class the party's own model is not sure are foreign.

    Parameters:
        sigmas: the threshold is the mean doubt about the party's rows plus this many standard deviations
    """

    sigmas: float = 3.0

    follows_model: ClassVar[bool] = True

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
class Energy(Router):
    """Rows of high free energy under the party's own model are foreign.

    Parameters:
        sigmas: the threshold is the mean energy of the party's rows plus this many standard deviations
    """

    sigmas: float = 3.0

    follows_model: ClassVar[bool] = True

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Nothing to learn but the threshold."""
        return {}

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """Minus the logarithm of the sum of exponentials of the outputs."""
        if not isinstance(own.learner, OutputLearner):
            raise ConfigError("the router 'energy' needs a learner with outputs before the softmax",
                              remedy="choose a torch learner, or the router 'confidence'")
        return np.asarray(-np.logaddexp.reduce(own.learner.outputs(own.model, rows).astype(np.float64), axis=1))


def principal(rows: Dataset, count: int) -> Fitted:
    """Mean, directions (one a row) and standard deviations along them; at most a direction for every four rows."""
    values = dense(rows)
    mean = values.mean(axis=0)
    spread, directions = np.linalg.eigh(np.cov(values, rowvar=False, bias=True).reshape(len(mean), -1))
    # As many directions as rows would explain the party's own rows wholly, and nobody else's.
    kept = np.argsort(spread)[::-1][:min(count, max(len(rows) // 4, 1), len(mean))]
    kept = kept[spread[kept] > 1e-12 * max(spread.max(), 1e-300)] if spread.max() > 0 else kept[:1]
    return {"centre": mean, "directions": np.ascontiguousarray(directions[:, kept].T),
            "scales": np.sqrt(np.maximum(spread[kept], 1e-300))}


def seen_through(fitted: Fitted, rows: Dataset) -> Numbers:
    """Each row's place along the directions, in standard deviations."""
    places: Numbers = (dense(rows) - fitted["centre"]) @ fitted["directions"].T / fitted["scales"]
    return places


def dense(rows: Dataset) -> Numbers:
    """The rows as a dense matrix of numbers."""
    values = as_doubles(flat_features(rows))
    matrix: Numbers = values.toarray() if rows.is_sparse else values
    return matrix
