"""Robust aggregators against plain numpy forms of them, on the same updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.components import build
from tequio.experiments.bench.clock import best_in_turn
from tequio.federation.aggregation import Updates

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Matrix = NDArray[Any]

PARTIES, PARAMETERS, MANY_PARAMETERS = 100, 50_000, 1_600_000
_HOSTILE = 20


def measure(repeats: int, parameters: int = PARAMETERS) -> dict[str, Any]:
    """The time of each aggregator over that of its reference; the largest counts."""
    draw = np.random.default_rng(0)
    arrays = [{"w": draw.standard_normal(parameters).astype(np.float32)} for _ in range(PARTIES)]
    updates = Updates(np.arange(PARTIES), arrays, np.ones(PARTIES), arrays[0])
    ratios = {}
    for name, reference in REFERENCES.items():
        ours = build("aggregator", name)
        best = best_in_turn({"ours": lambda ours=ours: ours.combine(updates, {}),  # type: ignore[misc]
                             "numpy": lambda reference=reference: reference(_stacked(updates))},  # type: ignore[misc]
                            max(repeats // 2, 1))
        ratios[name] = best["ours"] / best["numpy"]
    return {"ratios": ratios, "value": max(ratios.values())}


def _stacked(updates: Updates) -> Matrix:
    return np.stack([np.concatenate([values.ravel() for values in update.values()]) for update in updates.arrays]
                    ).astype(np.float64)


def _trimmed(matrix: Matrix) -> Matrix:
    cut = int(0.2 * len(matrix))
    return np.asarray(np.sort(matrix, axis=0)[cut:len(matrix) - cut].mean(axis=0))


def _ranked(matrix: Matrix) -> Matrix:
    gram = matrix @ matrix.T
    distances = np.maximum(np.diag(gram)[:, None] + np.diag(gram) - 2 * gram, 0.0)
    return np.argsort(np.sort(distances, axis=1)[:, 1:len(matrix) - _HOSTILE - 1].sum(axis=1))


def _bulyan(matrix: Matrix) -> Matrix:
    chosen = np.sort(matrix[_ranked(matrix)[:len(matrix) - 2 * _HOSTILE]], axis=0)
    order = np.argsort(np.abs(chosen - np.median(chosen, axis=0)), axis=0)[:len(matrix) - 4 * _HOSTILE]
    return np.asarray(np.take_along_axis(chosen, order, axis=0).mean(axis=0))


def _weiszfeld(matrix: Matrix) -> Matrix:
    centre = matrix.mean(axis=0)
    for _ in range(10):
        weights = 1.0 / np.linalg.norm(matrix - centre, axis=1)
        centre = weights @ matrix / weights.sum()
    return np.asarray(centre)


def _clipped(matrix: Matrix) -> Matrix:
    centre = np.zeros(matrix.shape[1])
    for _ in range(3):
        away = matrix - centre
        norms = np.linalg.norm(away, axis=1)
        centre = centre + (away * np.minimum(1.0, np.median(norms) / norms)[:, None]).mean(axis=0)
    return centre


def _bounded(matrix: Matrix) -> Matrix:
    norms = np.linalg.norm(matrix, axis=1)
    return np.asarray((matrix * np.minimum(1.0, np.median(norms) / norms)[:, None]).mean(axis=0))


def _trusted(matrix: Matrix) -> Matrix:
    norms = np.linalg.norm(matrix, axis=1)
    trust = np.maximum(matrix @ matrix[0] / norms / norms[0], 0.0)
    return np.asarray((trust / trust.sum()) @ (matrix / norms[:, None]) * norms[0])


def _unlike(matrix: Matrix) -> Matrix:
    unit = matrix / np.linalg.norm(matrix, axis=1)[:, None]
    likeness = unit @ unit.T - np.eye(len(matrix))
    weights = np.clip(1.0 - likeness.max(axis=1), 0.0, 1.0)
    return np.asarray(weights @ matrix / weights.sum())


REFERENCES: dict[str, Callable[[Matrix], Matrix]] = {
    "median": lambda matrix: np.asarray(np.median(matrix, axis=0)), "trimmed-mean": _trimmed,
    "krum": lambda matrix: np.asarray(matrix[_ranked(matrix)[0]]),
    "multi-krum": lambda matrix: np.asarray(matrix[_ranked(matrix)[:len(matrix) - _HOSTILE]].mean(axis=0)),
    "bulyan": _bulyan, "geometric-median": _weiszfeld, "centred-clipping": _clipped, "norm-bounding": _bounded,
    "fltrust": _trusted, "foolsgold": _unlike,
}
"""Written for clarity; only the distances of Krum's family come from one product, as a loop over pairs of long updates
takes minutes."""
