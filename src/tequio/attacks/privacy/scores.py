"""How well an attack did: likeness of a reconstruction, recognition among decoys, and telling members from others.

Yeom, Giacomelli, Fredrikson, Jha: Privacy risk in machine learning, CSF 2018 (advantage). Wang, Bovik, Sheikh,
Simoncelli: Image quality assessment, IEEE TIP 2004 (structural similarity).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


def advantage(guessed: NDArray[np.bool_], is_member: NDArray[np.bool_]) -> float:
    """Members that are taken for members, less others that are: 0 is guessing, 1 is knowing."""
    return float(guessed[is_member].mean() - guessed[~is_member].mean())


def found_at(scores: NDArray[Any], is_member: NDArray[np.bool_], false_alarms: float) -> float:
    """Share of members that score above all but that share of the others."""
    border = np.quantile(scores[~is_member], 1 - false_alarms, method="higher")
    return float(np.mean(scores[is_member] > border))


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = rows - rows.mean(axis=1, keepdims=True)
    unit: NDArray[np.float64] = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-300)
    return unit
