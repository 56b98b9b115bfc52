"""Rows sorted into strata by their target: what label skew, stratified splits and heat maps count."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset

QUANTILE_BINS = 10


@dataclass(frozen=True, eq=False)
class Strata:
    """A stratum number for each row, and what the strata are called."""

    codes: NDArray[np.int64]
    names: tuple[str, ...]


def strata(dataset: Dataset) -> Strata:
    """Sort rows by target.

    Classes are their own strata. A number is cut at its deciles. A row of a multi-label target belongs to its first
    positive label, or to a stratum of its own kind when it has none.
    """
    kind = dataset.schema.target.kind
    if kind == "none":
        raise DataError(f"'{dataset.name}' has no target to sort rows by",
                        remedy="choose a partition that does not look at labels, such as 'iid' or 'quantity'")
    if kind == "classes":
        return Strata(dataset.target.astype(np.int64), dataset.schema.target.names)
    if kind == "multilabel":
        return _first_labels(dataset.target, dataset.schema.target.names)
    return _quantiles(dataset.target)


def _first_labels(labels: NDArray[Any], names: tuple[str, ...]) -> Strata:
    positive = np.asarray(labels) > 0
    codes = np.where(positive.any(axis=1), positive.argmax(axis=1), len(names)).astype(np.int64)
    return Strata(codes, (*names, "no label"))


def _quantiles(values: NDArray[Any]) -> Strata:
    if not len(values):
        return Strata(np.empty(0, np.int64), ())
    inner = np.linspace(0, 1, QUANTILE_BINS + 1)[1:-1]
    # Cuts are values of the data, each once and none at the smallest, so that no stratum is empty.
    cuts = np.setdiff1d(np.quantile(values, inner, method="higher"), [values.min()])
    names = [f"below {cuts[0]:.4g}"] if len(cuts) else ["all"]
    names += [f"{low:.4g} to {high:.4g}" for low, high in pairwise(cuts)]
    names += [f"from {cuts[-1]:.4g}"] if len(cuts) else []
    return Strata(np.searchsorted(cuts, values, side="right").astype(np.int64), tuple(names))
