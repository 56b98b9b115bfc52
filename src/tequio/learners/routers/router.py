"""The contract of a router: how novel a row is to a party, one number a row, and from where on it counts as foreign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

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


@runtime_checkable
class Router(Protocol):
    """Tells a party's own kind of rows from others. What it learns is plain data and stays at the party.

    `follows_model` says that it looks at the party's model, and has to be fitted again when that changes.
    """

    follows_model: bool
    sigmas: float

    def fit(self, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
        """Learn what the party's rows look like; labels are not looked at."""
        ...

    def novelty(self, fitted: Fitted, rows: Dataset, own: Own) -> Numbers:
        """How foreign each row is."""
        ...


def fit_router(router: Router, rows: Dataset, own: Own, rng: np.random.Generator) -> Fitted:
    """The fitted router with its threshold: mean plus some standard deviations of the novelty of the party's rows."""
    fitted = router.fit(rows, own, rng)
    errors = router.novelty(fitted, rows, own)
    mean, deviation = float(errors.mean()), float(errors.std())
    return {**fitted, "mean": mean, "deviation": deviation, "threshold": mean + router.sigmas * deviation}


def is_own(router: Router, fitted: Fitted, rows: Dataset, own: Own) -> NDArray[np.bool_]:
    """Row by row, whether it is of the party's kind; what is on the threshold is, what is not a number is not."""
    if not len(rows):
        return np.zeros(0, dtype=bool)
    accepted: NDArray[np.bool_] = router.novelty(fitted, rows, own) <= fitted["threshold"]
    return accepted
