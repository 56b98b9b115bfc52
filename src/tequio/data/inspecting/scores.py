"""How well one column alone predicts the target: far too well, and it is likely to leak the answer.

Bins are made without looking at the target, and each row is predicted from the rows of other folds only. So a column
in which every row has a value of its own, such as an id, scores like chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.inputs.kinds import token_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Array
    from tequio.data.inputs.column import Column

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


FOLDS, BINS, TOKENS = 5, 32, 128
FEWEST_ROWS = 50
"""With fewer rows than this no column is scored."""

FEWEST_OF_A_CLASS = 10
_SEED = 0


@dataclass(frozen=True, eq=False)
class Outcome:
    """What columns are scored against: class codes, or ranks of a number; and the fold of each row."""

    values: Array
    classes: int
    folds: Ints

    @property
    def metric(self) -> str:
        """The score's name."""
        return "AUC" if self.classes else "R²"

    @property
    def chance(self) -> float:
        """The score of a column that says nothing."""
        return 0.5 if self.classes else 0.0


def outcome_of(column: Column, *, is_number: bool) -> Outcome | None:
    """The outcome of a target column without missing values; None where there is too little to score by."""
    from scipy.stats import rankdata

    if len(column.values) < FEWEST_ROWS:
        return None
    if is_number:
        ranks = rankdata(column.values)
        return Outcome(ranks, 0, _folds(ranks)) if np.ptp(ranks) else None
    _, codes, sizes = np.unique(column.texts().astype(str), return_inverse=True, return_counts=True)
    if (sizes >= FEWEST_OF_A_CLASS).sum() < 2:
        return None
    return Outcome(codes.astype(np.int64), len(sizes), _folds(codes))


def _folds(values: Array) -> Ints:
    """Folds with the same mix of values, the same ones each time."""
    order = np.lexsort((np.random.default_rng(_SEED).random(len(values)), values))
    folds = np.empty(len(values), dtype=np.int64)
    folds[order] = np.arange(len(values)) % FOLDS
    return folds


def bins_of(column: Column, *, categories: bool) -> Ints:
    """A bin for each row: a category, or a range of numbers. All values that occur once share a bin, and so do all
    missing ones."""
    values, missing = column.values, column.missing
    if categories or column.is_text:
        _, codes, sizes = np.unique(column.texts().astype(str), return_inverse=True, return_counts=True)
        codes = np.where(sizes[codes] == 1, -1, codes)
    else:
        known = np.unique(column.present)
        edges = known if len(known) <= BINS else np.unique(np.quantile(
            column.present, np.linspace(0, 1, BINS + 1)[1:-1], method="nearest"))
        codes = np.searchsorted(edges, values, side="right")
    return np.unique(np.where(missing, -2, codes), return_inverse=True)[1].astype(np.int64)


def score(bins: Ints, outcome: Outcome) -> float:
    """AUC (the mean over classes, each against the rest), or the explained share of the variance of ranks."""
    return _class_score(bins, outcome) if outcome.classes else _number_score(bins, outcome)


def monotone_score(column: Column, outcome: Outcome) -> float:
    """The same for a number taken as it is, the more the likelier (or the less): finer than bins where rows are few."""
    values = np.where(column.missing, np.median(column.present) if len(column.present) else 0.0, column.values)
    if not outcome.classes:
        from scipy.stats import rankdata

        return float(np.corrcoef(rankdata(values), outcome.values)[0, 1] ** 2) if np.ptp(values) else 0.0
    sizes = np.bincount(outcome.values)
    areas = [_area(values, outcome.values == one, outcome.values != one) for one in _frequent(sizes)]
    return float(np.mean([max(area, 1 - area) for area in areas]))


def _class_score(bins: Ints, outcome: Outcome) -> float:
    counts = _counts(outcome.folds, bins, outcome.values, outcome.classes)
    total = counts.sum(axis=0)
    prior = total.sum(axis=0) / total.sum()
    areas = []
    for fold in counts:
        training = total - fold
        shares = (training + prior) / (training.sum(axis=1, keepdims=True) + 1)
        areas.append([_area(shares[:, one], fold[:, one], fold.sum(axis=1) - fold[:, one])
                      for one in _frequent(total.sum(axis=0))])
    return float(np.nanmean(areas))


def _number_score(bins: Ints, outcome: Outcome) -> float:
    size, values = int(bins.max()) + 1, outcome.values
    count, first, second = (np.bincount(outcome.folds * size + bins, weights, FOLDS * size).reshape(FOLDS, size)
                            for weights in (np.ones(len(bins)), values, values**2))
    error = 0.0
    for fold in range(FOLDS):
        rows, sums = count.sum(axis=0) - count[fold], first.sum(axis=0) - first[fold]
        mean = (sums + values.mean()) / (rows + 1)
        error += float((second[fold] - 2 * mean * first[fold] + mean**2 * count[fold]).sum())
    return max(1 - error / float(((values - values.mean()) ** 2).sum()), 0.0)


def text_score(column: Column, outcome: Outcome) -> float | None:
    """What naive Bayes reads from the words of a text; only for classes."""
    if not outcome.classes:
        return None
    counts = token_counts(column.texts(), TOKENS)
    is_class = np.eye(outcome.classes)[outcome.values]
    areas = []
    for fold in range(FOLDS):
        held = outcome.folds == fold
        words = is_class[~held].T @ counts[~held] + 1.0
        logs = np.log(words / words.sum(axis=1, keepdims=True))
        likely = counts[held] @ logs.T + np.log(is_class[~held].mean(axis=0) + 1e-9)
        shares = np.exp(likely - likely.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        areas.append([_area(shares[:, one], is_class[held][:, one], 1 - is_class[held][:, one])
                      for one in _frequent(is_class.sum(axis=0))])
    return float(np.nanmean(areas))


def share_placed(bins: Ints, parties: Ints, folds: Ints) -> float:
    """The share of rows whose party is the most frequent one of their bin in the other folds."""
    counts = _counts(folds, bins, parties, int(parties.max()) + 1)
    total = counts.sum(axis=0)
    right = sum(fold[np.arange(len(fold)), (total - fold).argmax(axis=1)].sum() for fold in counts)
    return float(right / len(bins))


def party_folds(parties: Ints) -> Ints:
    """Folds in which every party has its share."""
    return _folds(parties)


def _counts(folds: Ints, bins: Ints, codes: Array, classes: int) -> Floats:
    size = int(bins.max()) + 1
    flat = np.bincount((folds * size + bins) * classes + codes, minlength=FOLDS * size * classes)
    return flat.reshape(FOLDS, size, classes).astype(np.float64)


def _frequent(sizes: Array) -> Ints:
    """Up to twenty classes that have enough rows to be scored."""
    order = np.argsort(-sizes, kind="stable")[:20]
    return order[sizes[order] >= FEWEST_OF_A_CLASS]


def _area(values: Floats, positive: Array, negative: Array) -> float:
    """The area under the ROC curve of weighted values; equal values count half."""
    if not positive.sum() or not negative.sum():
        return float("nan")
    _, places = np.unique(values, return_inverse=True)
    above, below = np.bincount(places, positive), np.bincount(places, negative)
    return float((above * (np.cumsum(below) - below / 2)).sum() / (positive.sum() * negative.sum()))
