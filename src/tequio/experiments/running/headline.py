"""The metric that stands for a run: in tables, curves, searches and stop rules.

It is chosen from the data before the first round, never from results. Accuracy says little where one class has nearly
all rows, because always naming that class is nearly always right; balanced accuracy is the headline there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError, nearest
from tequio.learners.metrics import METRICS, metrics_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tequio.data.dataset import Dataset, Target

IMBALANCED = 0.8
"""Where the most frequent class has a larger share of the rows than this, accuracy is not the headline."""

BALANCED = "balanced_accuracy"


def headline_of(wanted: str, target: Target, rows: Dataset | None) -> str:
    """The headline of a run: the one that is asked for, else the main metric of the target, given what classes `rows`
    have. These are all rows of simulated parties, or the coordinator's test rows where parties are real."""
    known = metrics_of(target)
    if not wanted:
        return BALANCED if commonest_class(target, rows)[1] > IMBALANCED else main_metric(known)
    if wanted not in known:
        raise ConfigError(f"evaluation.headline = '{wanted}' does not exist for this data",
                          remedy=nearest(wanted, known))
    return wanted


def check_headline(wanted: str) -> None:
    """Refuse a name that no metric has."""
    if wanted and wanted not in METRICS:
        raise ConfigError(f"evaluation.headline = '{wanted}' is not a metric", remedy=nearest(wanted, METRICS))


def commonest_class(target: Target, rows: Dataset | None) -> tuple[str, float]:
    """The most frequent class and its share of the rows; of other targets, and without rows, no class and none."""
    if target.kind != "classes" or rows is None or not len(rows):
        return "", 0.0
    counts = np.bincount(rows.target, minlength=len(target.names))
    return target.names[int(counts.argmax())], float(counts.max() / counts.sum())


def main_metric(names: Iterable[str], headline: str = "") -> str:
    """The metric that stands for the rest: the headline if it is among them, else the first that is not the loss."""
    known = list(names)
    return headline if headline in known else next((name for name in known if name != "loss"), "loss")


def measured_headline(headline: str, metrics: Mapping[str, object]) -> str:
    """What of a run's metrics stands for it: some algorithms measure other things than their data would allow."""
    present = {part for name in metrics for part in name.split(".")}
    known = [name for name in METRICS if name in present]
    return main_metric(known, headline) if known else ""


def require_measured(wanted: str, metrics: Mapping[str, object]) -> None:
    """Refuse a headline that was asked for and that the run does not measure."""
    present = {part for name in metrics for part in name.split(".")} & METRICS.keys()
    if wanted and present and wanted not in present:
        raise ConfigError(f"evaluation.headline = '{wanted}' is not measured by this algorithm and learner",
                          remedy=nearest(wanted, present))


def common_headline(headlines: Iterable[str]) -> str:
    """What several runs can be compared by: their headline, or the balanced one where it is that of some of them."""
    found = set(headlines) - {""}
    return BALANCED if BALANCED in found else next(iter(found)) if len(found) == 1 else ""
