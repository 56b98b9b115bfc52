"""Property inference, and scores of how well attacks that only read did.

Property: something about a party's rows that the task has nothing to do with, from its update. Melis, Song, De
Cristofaro, Shmatikov: Exploiting unintended feature leakage in collaborative learning, S&P 2019. The attacker makes
updates from rows of its own, with the property and without, and fits a classifier of updates.

Wang, Bovik, Sheikh, Simoncelli: Image quality assessment, IEEE TIP 2004 (structural similarity).
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


def told_share(shadows: NDArray[np.float64], shares: NDArray[np.float64],
               victims: NDArray[np.float64]) -> NDArray[np.float64]:
    """What share of each victim's rows has the property, by a regression on the attacker's own updates."""
    from sklearn.linear_model import RidgeCV

    regression: Any = RidgeCV(np.logspace(-6, 3, 19))
    found: NDArray[np.float64] = np.clip(regression.fit(shadows, shares).predict(victims), 0.0, 1.0)
    return found


_MOST_DECIBELS = 100.0


def squared_error(truth: NDArray[Any], guess: NDArray[Any]) -> float:
    """Mean over the entries of a row."""
    return float(np.mean((truth.astype(np.float64) - guess) ** 2))


def signal_to_noise(truth: NDArray[Any], guess: NDArray[Any], span: float) -> float:
    """Peak signal-to-noise ratio in decibels for entries that span so much, cut at 100 (exact but for rounding)."""
    error = squared_error(truth, guess)
    return min(10 * float(np.log10(span**2 / error)), _MOST_DECIBELS) if error else _MOST_DECIBELS


def structural_similarity(truth: NDArray[Any], guess: NDArray[Any], span: float) -> float:
    """Likeness in brightness, contrast and structure, over the whole row as one window; 1 is the same row."""
    first, second = truth.astype(np.float64).ravel(), guess.astype(np.float64).ravel()
    light, contrast = (0.01 * span) ** 2, (0.03 * span) ** 2
    means, variances = (first.mean(), second.mean()), (first.var(), second.var())
    shared = float(np.mean((first - means[0]) * (second - means[1])))
    return float((2 * means[0] * means[1] + light) * (2 * shared + contrast)
                 / ((means[0]**2 + means[1]**2 + light) * (sum(variances) + contrast)))


def is_recognised(truth: NDArray[Any], guess: NDArray[Any], decoys: NDArray[Any]) -> bool:
    """Whether the true row, among decoys, correlates best with what was reconstructed; a tie tells nothing."""
    rows = np.concatenate([truth.reshape(1, -1), decoys.reshape(len(decoys), -1)]).astype(np.float64)
    likeness = _unit(rows) @ _unit(guess.reshape(1, -1).astype(np.float64))[0]
    return bool(likeness[0] > likeness[1:].max()) if len(decoys) else True


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = rows - rows.mean(axis=1, keepdims=True)
    unit: NDArray[np.float64] = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-300)
    return unit
