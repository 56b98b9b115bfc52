"""Property inference: something about a party's rows that the task has nothing to do with, from its update.

Melis, Song, De Cristofaro, Shmatikov: Exploiting unintended feature leakage in collaborative learning, S&P 2019. The
attacker makes updates from rows of its own, with the property and without, and fits a classifier of updates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.learners.learner import Arrays


def flat(updates: Sequence[Arrays]) -> NDArray[np.float64]:
    """One row an update."""
    return np.stack([np.concatenate([part.ravel() for part in update.values()]) for update in updates]).astype(
        np.float64)


def told(shadows: NDArray[np.float64], had: NDArray[np.bool_], victims: NDArray[np.float64]) -> NDArray[np.float64]:
    """How likely each victim's rows have the property, by a classifier of the attacker's own updates."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifier: Any = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
    chances: NDArray[np.float64] = classifier.fit(shadows, had).predict_proba(victims)[:, 1]
    return chances
