"""Evaluation that adds up: each party sends counts, and metrics follow from their sum.

A tally holds plain numbers and arrays only, so it may travel in a payload. Adding the tallies of several parties gives
the tally of their pooled rows; counts are exact, sums of losses within floating point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError, DataError, nearest
from tequio.learners.label_metrics import macro, summarise_labels, tally_labels

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from tequio.data.dataset import Array, Target
    from tequio.learners.learner import Tally

AUC_BINS = 1001
"""Bins of the positive-class probability, centred on 0, 0.001, ..., 1; rows in one bin count as tied."""

_PROBABILITY_SLACK = 1e-5
"""Rounding that a float32 softmax may leave above 1."""


@dataclass(frozen=True)
class Metric:
    """What a metric means, which way is better, and for which kinds of target it exists."""

    meaning: str
    higher_is_better: bool
    kinds: tuple[str, ...]


_CLASSES = ("classes",)
_LABELS = ("classes", "multilabel")

METRICS: dict[str, Metric] = {
    "loss": Metric("mean loss a row", False, ("classes", "multilabel", "number")),
    "accuracy": Metric("share of rows whose class is right", True, _CLASSES),
    "balanced_accuracy": Metric("mean recall of the classes that occur", True, _CLASSES),
    "f1_macro": Metric("mean over classes or labels of the F1 score", True, _LABELS),
    "f1_macro_harmonic": Metric("F1 score of mean precision and mean recall", True, ("multilabel",)),
    "f1_micro": Metric("F1 score of all decisions counted together", True, _LABELS),
    "precision_macro": Metric("mean precision of the classes or labels", True, _LABELS),
    "recall_macro": Metric("mean recall of the classes or labels", True, _LABELS),
    "auc": Metric("chance that a positive row outranks a negative one (two classes only)", True, _CLASSES),
    "subset_accuracy": Metric("share of rows whose whole set of labels is right", True, ("multilabel",)),
    "argmax_agreement": Metric("share of rows whose highest score is their first positive label", True,
                               ("multilabel",)),
    "hamming_loss": Metric("share of single labels that are wrong", False, ("multilabel",)),
    "ranking_loss": Metric("share of label pairs in the wrong order", False, ("multilabel",)),
    "coverage": Metric("labels to go down the ranking to meet all that apply", False, ("multilabel",)),
    "one_error": Metric("share of rows whose highest score is no label of theirs", False, ("multilabel",)),
    "average_precision": Metric("mean precision of the ranking at each label that applies", True, ("multilabel",)),
    "rmse": Metric("root of the mean squared error", False, ("number",)),
    "mae": Metric("mean absolute error", False, ("number",)),
    "r2": Metric("share of the target's variance that is explained", True, ("number",)),
    "inertia": Metric("mean squared distance of a row to its centroid", False, ("none",)),
}
"""Every known metric, in the order in which tables show them."""


def higher_is_better(name: str) -> bool:
    """Whether more of this metric is better."""
    if name not in METRICS:
        raise ConfigError(f"there is no metric called '{name}'", remedy=nearest(name, METRICS))
    return METRICS[name].higher_is_better


def metrics_of(target: Target) -> list[str]:
    """Names of the metrics that `summarise` gives for that target, in table order."""
    names = [name for name, metric in METRICS.items() if target.kind in metric.kinds]
    return names if _is_binary(target) else [name for name in names if name != "auc"]


def tally(target: Target, scores: ArrayLike, truth: ArrayLike | None, loss_sum: float | None = None) -> Tally:
    """Additive counts of some rows.

    `scores` are probabilities of shape (rows, classes or labels); predicted numbers (rows,); or, for target kind
    'none', each row's squared distance to its centroid, with `truth` None. `loss_sum` is the learner's own loss summed
    over rows; without it the loss is the cross-entropy, the mean of a row's binary cross-entropies, or the squared
    error. Ties between classes go to the lowest index; a label counts as predicted above one half.
    """
    scores = np.asarray(scores)
    if target.kind == "none":
        return {"rows": len(scores), "inertia_sum": float(scores.sum(dtype=np.float64))}
    truth = _checked_truth(target, scores, truth)
    if target.kind == "number":
        return _tally_numbers(scores, truth, loss_sum)
    _check_probabilities(target, scores, truth)
    count = _tally_labels if target.kind == "multilabel" else _tally_classes
    return count(target, scores, truth, loss_sum)


def merge(tallies: Iterable[Tally]) -> Tally:
    """The tally of all rows together, summed in the given order."""
    total: Tally = {}
    for part in tallies:
        if total and _layout(part) != _layout(total):
            raise DataError("tallies of different targets do not add up",
                            remedy="evaluate every party with the same schema and the same learner")
        total = {name: total[name] + value for name, value in part.items()} if total else dict(part)
    if not total:
        raise DataError("there is no tally to merge", remedy="ask at least one party to evaluate")
    return total


def summarise(target: Target, tally: Tally) -> dict[str, float]:
    """The metrics of a tally. A clustering's tally gives its inertia even where the data has labels."""
    if not tally["rows"]:
        raise DataError("there are no rows to evaluate on", remedy="leave out parties whose evaluation set is empty")
    if "inertia_sum" in tally:
        values = {"inertia": tally["inertia_sum"] / tally["rows"]}
    else:
        summary = {"classes": _summarise_classes, "multilabel": summarise_labels, "number": _summarise_numbers}
        values = {"loss": tally["loss_sum"] / tally["rows"], **summary[target.kind](tally)}
    return {name: float(values[name]) for name in METRICS if name in values}


def spread(values: Iterable[float], *, high_is_good: bool = True) -> dict[str, float]:
    """How one metric differs between parties; values that are not finite (say, AUC of one class) are left out.

    `worst_decile` is the mean of the worst tenth of the parties, rounded up; `sd` is that of a sample.
    """
    every = np.array(list(values), dtype=np.float64)
    known = np.sort(every[np.isfinite(every)])
    count = len(known)
    if not count:
        return {"count": 0, **dict.fromkeys(("mean", "sd", "min", "max", "worst_decile"), float("nan"))}
    tenth = -(-count // 10)
    worst = known[:tenth] if high_is_good else known[count - tenth:]
    return {"count": count, "mean": float(known.mean()), "sd": float(known.std(ddof=1)) if count > 1 else float("nan"),
            "min": float(known[0]), "max": float(known[-1]), "worst_decile": float(worst.mean())}


def _is_binary(target: Target) -> bool:
    return target.kind == "classes" and len(target.names) == 2


def _checked_truth(target: Target, scores: Array, truth: ArrayLike | None) -> Array:
    if truth is None:
        raise DataError(f"a target of kind '{target.kind}' cannot be evaluated without its true values")
    truth = np.asarray(truth)
    if len(truth) != len(scores):
        raise DataError(f"there are {len(scores)} rows of scores but {len(truth)} true values")
    return truth


def _check_probabilities(target: Target, scores: Array, truth: Array) -> None:
    expected = (len(truth), len(target.names))
    if scores.shape != expected:
        raise DataError(f"scores have shape {scores.shape}; rows and {target.kind} make it {expected}")
    # Written so that NaN, which compares as false, is refused too.
    if scores.size and not (scores.min() >= 0 and scores.max() <= 1 + _PROBABILITY_SLACK):
        raise DataError("scores are not probabilities between 0 and 1",
                        remedy="if training diverged, lower the learning rate; a learner of your own must return "
                        "softmax or sigmoid outputs")


def _tally_classes(target: Target, scores: Array, truth: Array, loss_sum: float | None) -> Tally:
    classes, codes = len(target.names), truth.astype(np.int64)
    predicted = scores.argmax(axis=1) if len(scores) else np.zeros(0, dtype=np.int64)
    confusion = np.bincount(codes * classes + predicted, minlength=classes * classes).reshape(classes, classes)
    if loss_sum is None:
        loss_sum = _negative_log(scores[np.arange(len(codes)), codes]).sum()
    counts: Tally = {"rows": len(codes), "loss_sum": float(loss_sum), "confusion": confusion.astype(np.int64)}
    if _is_binary(target):
        bins = np.rint(scores[:, 1].astype(np.float64) * (AUC_BINS - 1)).astype(np.int64).clip(max=AUC_BINS - 1)
        histogram = np.bincount(codes * AUC_BINS + bins, minlength=2 * AUC_BINS).reshape(2, AUC_BINS)
        counts["score_histogram"] = histogram.astype(np.int64)
    return counts


def _tally_labels(target: Target, scores: Array, truth: Array, loss_sum: float | None) -> Tally:
    if loss_sum is None:
        loss_sum = _negative_log(np.where(truth.astype(bool), scores, 1.0 - scores)).sum() / len(target.names)
    return tally_labels(scores, truth, float(loss_sum))


def _tally_numbers(scores: Array, truth: Array, loss_sum: float | None) -> Tally:
    truth = truth.astype(np.float64).reshape(-1)
    error = scores.astype(np.float64).reshape(-1) - truth
    squared = float(error @ error)
    return {"rows": len(truth), "loss_sum": squared if loss_sum is None else float(loss_sum),
            "squared_error": squared, "absolute_error": float(np.abs(error).sum()),
            "target_sum": float(truth.sum()), "target_squares": float(truth @ truth)}


def _negative_log(probabilities: Array) -> NDArray[np.float64]:
    return -np.log(np.clip(probabilities.astype(np.float64), np.finfo(np.float64).eps, 1.0))


def _layout(tally: Tally) -> dict[str, tuple[int, ...]]:
    return {name: np.shape(value) for name, value in tally.items()}


def _summarise_classes(tally: Tally) -> dict[str, float]:
    confusion = tally["confusion"]
    right, actual, predicted = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    # A class that neither occurs nor is predicted says nothing about the model, as in scikit-learn.
    seen = (actual + predicted) > 0
    values = macro(right[seen], (predicted - right)[seen], (actual - right)[seen])
    accuracy = right.sum() / tally["rows"]
    values |= {"accuracy": accuracy, "f1_micro": accuracy,
               "balanced_accuracy": (right[actual > 0] / actual[actual > 0]).mean()}
    if "score_histogram" in tally:
        values["auc"] = _auc(tally["score_histogram"])
    return values


def _summarise_numbers(tally: Tally) -> dict[str, float]:
    rows, squared = tally["rows"], tally["squared_error"]
    return {"rmse": np.sqrt(squared / rows), "mae": tally["absolute_error"] / rows, "r2": _explained(tally)}


def _explained(tally: Tally) -> float:
    """R squared; of a constant target 1 where the error is nil and otherwise 0, of a single row not a number."""
    rows, squares = tally["rows"], tally["target_squares"]
    if rows < 2:
        return float("nan")
    total = squares - tally["target_sum"] ** 2 / rows
    # What is left of a constant target is the rounding of its sums, not variance.
    if total <= 1e-13 * squares:
        return float(tally["squared_error"] <= 1e-13 * squares)
    return float(1.0 - tally["squared_error"] / total)


def _auc(histogram: Array) -> float:
    """Area under the ROC curve from score counts (class x bin); not a number where only one class occurs."""
    negatives, positives = histogram.astype(np.float64)
    pairs = negatives.sum() * positives.sum()
    below = np.cumsum(negatives) - negatives
    return float(positives @ (below + negatives / 2) / pairs) if pairs else float("nan")
