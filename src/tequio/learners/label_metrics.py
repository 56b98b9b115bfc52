"""Counts of multi-label predictions that add up, over rows and over parties that know different labels.

Per label there are confusion counts; per row there is what needs all of the row's labels together: whether the whole
set is right, whether the highest score is the first positive label, and how the labels are ranked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tequio.data.dataset import Array
    from tequio.learners.learner import Tally

PER_LABEL = ("true_positives", "false_positives", "false_negatives", "label_rows")
"""Parts of a tally that have one entry a label."""

WITH_LABELS = ("decisions", "hamming_errors")
"""Counts of single labels, of which a row has as many as there are labels."""

LABEL_COUNTS = dict.fromkeys(("exact_matches", "labelled_rows", "top_agreements", "top_errors"), 1)
"""Counts to which a row adds one at most."""

LABEL_SUMS = frozenset({"loss_sum", "ranking_loss_sum", "coverage_sum", "average_precision_sum"})
"""Sums of numbers over rows."""


def tally_labels(scores: Array, truth: Array, loss_sum: float) -> Tally:
    """Counts of some rows; a label counts as predicted above one half."""
    actual, predicted = truth.astype(bool), scores > 0.5
    wrong = actual != predicted
    rows, labels = actual.shape
    return {"rows": rows, "loss_sum": loss_sum, "exact_matches": int((~wrong.any(axis=1)).sum()),
            "decisions": rows * labels, "hamming_errors": int(wrong.sum()),
            "true_positives": (actual & predicted).sum(axis=0, dtype=np.int64),
            "false_positives": (~actual & predicted).sum(axis=0, dtype=np.int64),
            "false_negatives": (actual & ~predicted).sum(axis=0, dtype=np.int64),
            "label_rows": np.full(labels, rows, dtype=np.int64),
            "labelled_rows": int(actual.any(axis=1).sum()), **_tops(scores, actual, predicted),
            **_rankings(scores, actual)}


def at_labels(tally: Tally, labels: NDArray[np.int64], size: int) -> Tally:
    """The tally of a party that knows some labels, as one over all `size` labels, so that parties add up."""
    placed = dict(tally)
    for name in PER_LABEL:
        placed[name] = np.zeros(size, dtype=np.int64)
        placed[name][labels] = tally[name]
    return placed


def made_possible(tally: Tally) -> Tally:
    """A tally whose parts were rounded each for itself, cut down to what its rows can have."""
    if "label_rows" not in tally:
        return tally
    rows, labels = tally["rows"], len(tally["label_rows"])
    labelled = min(tally["labelled_rows"], rows)
    decisions = min(tally["decisions"], rows * labels)
    most = {"exact_matches": rows, "labelled_rows": rows, "top_agreements": labelled, "top_errors": labelled,
            "decisions": decisions, "hamming_errors": decisions, "ranking_loss_sum": rows,
            "average_precision_sum": rows, "coverage_sum": rows * labels}
    return {**tally, **{name: min(tally[name], bound) for name, bound in most.items() if name in tally},
            **{name: np.minimum(tally[name], rows) for name in PER_LABEL}}


def summarise_labels(tally: Tally) -> dict[str, float]:
    """The metrics of a tally. Labels that nobody has judged do not count; a label without positives has an F1 of 0."""
    judged = tally["label_rows"] > 0
    hits, false_alarms, misses = (tally[name][judged] for name in PER_LABEL[:3])
    values = macro(hits, false_alarms, misses)
    precision, recall = values["precision_macro"], values["recall_macro"]
    rows, labelled = tally["rows"], max(tally["labelled_rows"], 1)
    return {**values, "f1_macro_harmonic": float(ratio(2 * precision * recall, precision + recall)),
            "f1_micro": float(ratio(2 * hits.sum(), 2 * hits.sum() + false_alarms.sum() + misses.sum())),
            "subset_accuracy": tally["exact_matches"] / rows,
            "argmax_agreement": tally["top_agreements"] / labelled, "one_error": tally["top_errors"] / labelled,
            "hamming_loss": float(ratio(tally["hamming_errors"], tally["decisions"]))}


def label_scores(tally: Tally) -> dict[str, NDArray[np.float64]]:
    """Precision, recall and F1 of each label, and how many of its rows are positive."""
    hits, false_alarms, misses = (tally[name] for name in PER_LABEL[:3])
    return {"f1": ratio(2 * hits, 2 * hits + false_alarms + misses), "precision": ratio(hits, hits + false_alarms),
            "recall": ratio(hits, hits + misses), "positives": (hits + misses).astype(np.float64)}


def macro(hits: Array, false_alarms: Array, misses: Array) -> dict[str, float]:
    """Means over classes or labels of F1, precision and recall."""
    return {"f1_macro": ratio(2 * hits, 2 * hits + false_alarms + misses).mean(),
            "precision_macro": ratio(hits, hits + false_alarms).mean(),
            "recall_macro": ratio(hits, hits + misses).mean()}


def ratio(part: ArrayLike, whole: ArrayLike) -> NDArray[np.float64]:
    """part / whole, and 0 where there is nothing to divide by."""
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    result: NDArray[np.float64] = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    return result


def _tops(scores: Array, actual: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> dict[str, int]:
    """What the highest score of a row says, among rows that have a label.

    The agreement with the first positive label is what Keras calls the accuracy of several outputs; of one output its
    accuracy is whether the decision is right.
    """
    some = actual.any(axis=1)
    if not some.any():
        return {"top_agreements": 0, "top_errors": 0}
    top, first = scores[some].argmax(axis=1), actual[some].argmax(axis=1)
    agrees = predicted[some][:, 0] if actual.shape[1] == 1 else top == first
    return {"top_agreements": int(agrees.sum()), "top_errors": int((~actual[some][np.arange(len(top)), top]).sum())}


def _rankings(scores: Array, actual: NDArray[np.bool_]) -> dict[str, float]:
    """Sums over rows of ranking loss, coverage and average precision; rows with no or all labels count as ranked."""
    relevant = actual.sum(axis=1)
    places = _places(scores)
    # Among relevant labels only: the others are sent to the end.
    own_places = _places(np.where(actual, scores, -1.0))
    above = np.where(actual, places - own_places, 0).sum(axis=1)
    precision = np.where(actual, own_places / places, 0.0).sum(axis=1)
    sortable = (relevant > 0) & (relevant < actual.shape[1])
    return {"ranking_loss_sum": float(ratio(above, relevant * (actual.shape[1] - relevant)).sum()),
            "coverage_sum": float(np.where(actual, places, 0).max(axis=1, initial=0).sum()),
            "average_precision_sum": float(np.where(sortable, ratio(precision, relevant), 1.0).sum())}


def _places(scores: Array) -> NDArray[np.int64]:
    """How many labels of the row score at least as high, itself included."""
    rows, labels = scores.shape
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    ends = np.ones((rows, labels), dtype=bool)
    ends[:, :-1] = ranked[:, :-1] != ranked[:, 1:]
    last = np.where(ends, np.arange(1, labels + 1), labels)
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    places = np.empty((rows, labels), dtype=np.int64)
    np.put_along_axis(places, order, last, axis=1)
    return places
