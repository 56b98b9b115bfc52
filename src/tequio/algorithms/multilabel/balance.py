"""Rare labels: weights that make up for how rare a label is, and decision borders that suit it.

Both are taken from the party's own rows: weights from its training rows, borders from its validation rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_WEIGHT = 50.0
"""Bound on the weight of a label's positive rows: one row must not drown all others."""

BORDERS = np.round(np.arange(0.05, 0.96, 0.05), 2)
"""Probabilities among which a label's decision border is chosen."""

DOUBT = 5
"""A border chosen on so many positive rows is believed half: on the logit scale it goes half the way from one half."""


def balanced_weights(truth: NDArray[Any], strength: float) -> NDArray[np.float64] | None:
    """Weights (2, labels) for absent and for applying labels; 1 for both where strength is 0.

    Positive rows of a label weigh (negatives / positives) ** strength, so that at strength 1 both sides weigh alike.
    """
    if not strength:
        return None
    positives = truth.astype(bool).sum(axis=0)
    odds = (len(truth) - positives + 1) / (positives + 1)
    return np.stack([np.ones(truth.shape[1]), np.clip(odds ** strength, 1.0 / LARGEST_WEIGHT, LARGEST_WEIGHT)])


def best_borders(scores: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    """Of each label the border with the best F1 on these rows, drawn towards one half where positive rows are few.

    Of equally good borders it is the one nearest to one half.
    """
    labels = truth.shape[1]
    actual = truth.astype(bool)
    if not len(actual):
        return np.full(labels, 0.5)
    predicted = scores[None] > BORDERS[:, None, None]
    hits = (predicted & actual).sum(axis=1)
    f1 = 2 * hits / np.maximum(predicted.sum(axis=1) + actual.sum(axis=0), 1)
    # A nudge that decides between equals only: differences of F1 are larger as long as there are under a million rows.
    best = BORDERS[(f1 - 1e-7 * np.abs(BORDERS - 0.5)[:, None]).argmax(axis=0)]
    positives = actual.sum(axis=0)
    odds = (best / (1 - best)) ** (positives / (positives + DOUBT))
    borders: NDArray[np.float64] = odds / (1 + odds)
    return borders


def around_half(scores: NDArray[Any], borders: NDArray[np.float64]) -> NDArray[Any]:
    """Scores moved on the logit scale so that each label's border lies at one half."""
    inside = np.clip(scores.astype(np.float64), 1e-7, 1 - 1e-7)
    odds = inside / (1 - inside) * (1 - borders) / borders
    return odds / (1 + odds)
