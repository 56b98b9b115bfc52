"""What a party without labels learns of them from what it is sent: attacks that only read.

Li, Sun, Yang et al.: Label leakage and protection in two-party split learning, ICLR 2022. A party sorts the rows of a
batch by a score of the gradients that it got back; the area under the ROC curve says how well that finds the positive
rows: 0.5 tells nothing, 1 tells all. Noise that is drawn anew for every batch is taken off by averaging a row's scores
over all batches that it was in.

Fu, Zhang, Ji et al.: Label inference attacks against vertical federated learning, USENIX Security 2022. The party's own
part of the model has learned what tells labels; a few known labels complete it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Batch = tuple[NDArray[Any], NDArray[np.bool_]]
    """Gradients of a batch's rows, and which of these rows are positive."""


def norm_scores(gradients: NDArray[Any]) -> NDArray[np.float64]:
    """Rows of the rarer class, which the model is surer to miss, get longer gradients."""
    lengths: NDArray[np.float64] = np.linalg.norm(gradients.astype(np.float64), axis=1)
    return lengths


def direction_scores(gradients: NDArray[Any], clue: NDArray[Any]) -> NDArray[np.float64]:
    """Gradients of one class point one way: the cosine with that of a row which the party knows to be positive."""
    given, known = gradients.astype(np.float64), clue.astype(np.float64)
    lengths = np.linalg.norm(given, axis=1) * np.linalg.norm(known)
    cosines: NDArray[np.float64] = given @ known / np.maximum(lengths, 1e-300)
    return cosines


def averaged_scores(batches: Iterable[tuple[NDArray[np.integer], NDArray[Any]]], rows: int) -> NDArray[np.float64]:
    """(rows,) how far each row's gradients lie along the direction in which gradients lie most, over all batches.

    In a split network a row's gradient is (prediction - label) times a direction that all rows share or nearly share,
    so that the sign of the score is the label. The direction of a batch is turned to that of the batch before.
    """
    total, seen, before = np.zeros(rows), np.zeros(rows), None
    for positions, gradients in batches:
        given = gradients.astype(np.float64)
        leading = np.linalg.svd(given, full_matrices=False)[2][0]
        leading = leading if before is None or leading @ before >= 0 else -leading
        along, before = given @ leading, leading
        total[positions] += along / max(float(np.sqrt(np.mean(along**2))), 1e-300)
        seen[positions] += 1
    scores: NDArray[np.float64] = total / np.maximum(seen, 1)
    return scores


def completed_scores(features: NDArray[Any], positive: NDArray[np.bool_], known: NDArray[np.bool_]
                     ) -> NDArray[np.float64]:
    """How likely each row is positive, to a party that knows some labels and has these features of all rows."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifier: Any = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    scores: NDArray[np.float64] = classifier.fit(features[known], positive[known]).predict_proba(features)[:, 1]
    return scores


def area_under_curve(scores: NDArray[Any], positive: NDArray[np.bool_]) -> float:
    """Chance that a positive row has the higher score; not a number where a class is missing."""
    from scipy.stats import rankdata

    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def leaked(batches: Iterable[Batch]) -> dict[str, float]:
    """Mean areas over batches of both attacks, each turned the right way round, as one who knows a few labels can.

    The direction attack takes the batch's first positive row as its clue and is judged on the others.
    """
    norms, directions = [], []
    for gradients, positive in batches:
        if positive.sum() < 2 or positive.all():
            continue
        norms.append(area_under_curve(norm_scores(gradients), positive))
        known = int(np.flatnonzero(positive)[0])
        rest = np.arange(len(positive)) != known
        directions.append(area_under_curve(direction_scores(gradients[rest], gradients[known]), positive[rest]))
    return {"norm": _turned(norms), "direction": _turned(directions), "batches": float(len(norms))}


def _turned(areas: list[float]) -> float:
    mean = float(np.mean(areas)) if areas else float("nan")
    return max(mean, 1 - mean)
