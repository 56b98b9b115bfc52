"""Evaluation that adds up: each party sends counts, and metrics follow from their sum.

A tally holds plain numbers and arrays only, so it may travel in a payload. Adding the tallies of several parties gives
the tally of their pooled rows; counts are exact, sums of losses within floating point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError, DataError, PayloadError, nearest
from tequio.learners.label_metrics import (
    LABEL_COUNTS,
    LABEL_SUMS,
    PER_LABEL,
    WITH_LABELS,
    macro,
    summarise_labels,
    tally_labels,
)

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


def row_losses(target: Target, scores: ArrayLike, truth: ArrayLike) -> NDArray[np.float64]:
    """The loss of each row: the cross-entropy, the mean of its binary cross-entropies, or the squared error."""
    scores = np.asarray(scores)
    labels = _checked_truth(target, scores, truth)
    if target.kind == "number":
        return np.square(scores.astype(np.float64).reshape(-1) - labels.astype(np.float64).reshape(-1))
    _check_probabilities(target, scores, labels)
    if target.kind == "multilabel":
        return np.asarray(_negative_log(np.where(labels.astype(bool), scores, 1.0 - scores)).mean(axis=1))
    return _negative_log(scores[np.arange(len(labels)), labels.astype(np.int64)])


OPTIONAL = frozenset({
    "loss_sum", "inertia_sum", "squared_error", "absolute_error", "target_sum", "target_squares", "ranking_loss_sum",
    "coverage_sum", "average_precision_sum", "score_histogram"})
"""Parts of a tally that a party may keep to itself; what is computed from them is that of the other parties."""

_OF_ROWS = " of rows"
"""After the name of such a part, how many rows it is a sum over where that is not all of them."""

LARGEST_SUM = 1e300
"""Sums of larger numbers over many parties would not be finite."""


def check_tally(target: Target, tally: Tally, most: int, whose: str) -> None:
    """Refuse a tally that no more than `most` rows cannot have. An empty one says that there are no rows."""
    if tally and (fault := _impossible(target, tally, most)):
        raise PayloadError(f"{whose} sent a tally that {fault}",
                           remedy="set rules.on_failure = 'continue' to go on without such parties")


def _impossible(target: Target, tally: Tally, most: int) -> str:
    rows = tally.get("rows")
    if type(rows) is not int or not 0 <= rows <= most:
        return f"is not of 0 to {most} rows"
    counts, tables, sums = _parts_of(target, clusters="inertia_sum" in tally or tally.keys() == {"rows"})
    for name in tally:
        if name not in {"rows", *counts, *tables, *sums}:
            return f"has an entry {name[:40]!r}, which this target does not have"
    for name in {**counts, **tables}.keys() - tally.keys() - OPTIONAL:
        return f"has no '{name}'"
    for name, times in counts.items():
        if type(tally[name]) is not int or not 0 <= tally[name] <= times * rows:
            return f"has a '{name}' that is no whole number from 0 to {times * rows}"
    for name, shape in tables.items():
        table = tally.get(name, np.zeros(shape, np.int64))
        if not isinstance(table, np.ndarray) or table.dtype != np.int64 or table.shape != shape:
            return f"has a '{name}' that is no table of whole numbers of shape {shape}"
        if not 0 <= table.min(initial=0) <= table.max(initial=0) <= rows:
            return f"has counts below 0 or above its {rows} rows in '{name}'"
    for name in sums & tally.keys():
        value = tally[name]
        low = -LARGEST_SUM if name == "target_sum" else 0.0
        if type(value) not in (int, float) or not low <= value <= LARGEST_SUM:
            return f"has a '{name}' that no rows add up to"
    return _contradiction(tally, rows, len(target.names))


def _parts_of(target: Target, *, clusters: bool) -> tuple[dict[str, int], dict[str, tuple[int, ...]], frozenset[str]]:
    """What a tally has besides its rows: counts with how many a row may add, tables of counts, and sums."""
    size = len(target.names)
    if clusters or target.kind == "none":
        return {}, {}, frozenset({"inertia_sum"})
    if target.kind == "classes":
        binary = {"score_histogram": (2, AUC_BINS)} if _is_binary(target) else {}
        return {}, {"confusion": (size, size), **binary}, frozenset({"loss_sum"})
    if target.kind == "multilabel":
        return LABEL_COUNTS | dict.fromkeys(WITH_LABELS, size), dict.fromkeys(PER_LABEL, (size,)), LABEL_SUMS
    return {}, {}, frozenset({"loss_sum", "squared_error", "absolute_error", "target_sum", "target_squares"})


def _contradiction(tally: Tally, rows: int, labels: int) -> str:
    """What cannot be of parts that are possible each for itself; sums are exact, as no entry is above the rows."""
    if "confusion" in tally:
        actual = tally["confusion"].sum(axis=1, dtype=np.float64)
        if actual.sum() != rows:
            return f"has a confusion of {actual.sum():.0f} rows instead of {rows}"
        histogram = tally.get("score_histogram")
        if histogram is not None and (histogram.sum(axis=1, dtype=np.float64) != actual).any():
            return "has scores of other rows than those of its confusion"
    if "labelled_rows" in tally:
        if max(tally["top_agreements"], tally["top_errors"]) > tally["labelled_rows"]:
            return "has more highest scores than rows with labels"
        if tally["hamming_errors"] > tally["decisions"]:
            return "has more wrong decisions than decisions"
        if tally.get("coverage_sum", 0) > labels * rows or any(
                tally.get(name, 0) > rows * (1 + 1e-9) for name in ("ranking_loss_sum", "average_precision_sum")):
            return "has rankings that no rows have"
    if tally.keys() >= {"target_sum", "target_squares"} and \
            abs(tally["target_sum"]) > (rows * float(tally["target_squares"])) ** 0.5 * (1 + 1e-6):
        return "has target values whose squares are too small for their sum"
    return ""


def merge(tallies: Iterable[Tally]) -> Tally:
    """The tally of all rows together, summed in the given order."""
    parts = list(tallies)
    if not parts:
        raise DataError("there is no tally to merge", remedy="ask at least one party to evaluate")
    total: Tally = {}
    for name in dict.fromkeys(name for part in parts for name in part if not name.endswith(_OF_ROWS)):
        having = [part for part in parts if name in part]
        if len({np.shape(part[name]) for part in having}) > 1 or (len(having) < len(parts) and name not in OPTIONAL):
            raise DataError("tallies of different targets do not add up",
                            remedy="evaluate every party with the same schema and the same learner")
        first, *others = having
        total[name] = sum((part[name] for part in others), start=first[name])
        known = sum(_rows_of(part, name) for part in having)
        if name in OPTIONAL and known != sum(part["rows"] for part in parts):
            total[name + _OF_ROWS] = known
    return total


def _rows_of(tally: Tally, name: str) -> int:
    """How many rows a part of a tally is a sum over."""
    return int(tally[name + _OF_ROWS if name + _OF_ROWS in tally else "rows"])


def mean_of(tally: Tally, name: str) -> float:
    """A sum over rows as a mean over the rows that are known to it; not a number where no party reported it."""
    return float(tally[name] / _rows_of(tally, name)) if name in tally else float("nan")


def summarise(target: Target, tally: Tally) -> dict[str, float]:
    """The metrics of a tally, without those whose parts it lacks. A clustering's tally gives its inertia even where the
    data has labels."""
    if not tally["rows"]:
        raise DataError("there are no rows to evaluate on", remedy="leave out parties whose evaluation set is empty")
    values = {metric: mean_of(tally, name) for metric, name in _MEANS.items() if name in tally}
    if "confusion" in tally:
        values |= _summarise_classes(tally)
    elif "label_rows" in tally:
        values |= summarise_labels(tally)
    elif target.kind == "number" and "inertia_sum" not in tally:
        values |= _summarise_numbers(tally)
    return {name: float(values[name]) for name in METRICS if name in values}


_MEANS = {"inertia": "inertia_sum", "loss": "loss_sum", "mae": "absolute_error", "ranking_loss": "ranking_loss_sum",
          "coverage": "coverage_sum", "average_precision": "average_precision_sum"}
"""Metrics that are the mean of one sum over rows."""


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
    rooted = {"rmse": np.sqrt(mean_of(tally, "squared_error"))} if "squared_error" in tally else {}
    of_rows = {_rows_of(tally, name) if name in tally else None for name in _VARIANCE}
    return rooted | ({"r2": _explained(tally)} if len(of_rows) == 1 and None not in of_rows else {})


_VARIANCE = ("squared_error", "target_sum", "target_squares")


def _explained(tally: Tally) -> float:
    """R squared; of a constant target 1 where the error is nil and otherwise 0, of a single row not a number."""
    rows, squares = _rows_of(tally, "target_squares"), tally["target_squares"]
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
