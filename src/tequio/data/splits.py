"""Train, validation and test rows, at a party and at the coordinator, and folds for cross-validation.

Stratified splits, label skew and heat maps all sort rows into the same strata, by their target.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Interval

from tequio.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tequio.data.dataset import Array, Dataset

    Rows = NDArray[np.int64]


Share = Annotated[float, Interval(ge=0, le=1)]


@dataclass(frozen=True)
class Split:
    """What share of the rows is for validation and for test; the rest is for training.

    Parameters:
        validation: share of the rows to choose models by
        test: share of the rows to report on
        stratify: keep the mix of labels in all parts
    """

    validation: Share = 0.0
    test: Share = 0.2
    stratify: bool = True


def split_rows(size: int, split: Split, rng: np.random.Generator,
               labels: ArrayLike | None = None) -> tuple[Rows, Rows, Rows]:
    """Row numbers for train, validation and test, each ascending; together they are all rows below `size`.

    Test and validation get their share rounded to whole rows (halves to even), so a party of two rows and a test
    share of 0.2 has no test row. Whoever has a row trains: at least one stays in train, taken from validation first.
    With labels (class codes, or numbers) the test part has of each class its proportional count, rounded up or down,
    and so has the validation part of what the test part leaves.
    """
    _check(split)
    test_rows, validation_rows = _part_sizes(size, split)
    order = _order(size, labels if split.stratify else None, rng)
    in_test = _spread(size, test_rows, rng)
    rest = order[~in_test]
    in_validation = _spread(len(rest), validation_rows, rng)
    return np.sort(rest[~in_validation]), np.sort(rest[in_validation]), np.sort(order[in_test])


def k_folds(size: int, folds: int, rng: np.random.Generator,
            labels: ArrayLike | None = None) -> list[tuple[Rows, Rows]]:
    """Train and test rows of each fold; every row is tested once.

    With fewer rows than folds there is a fold for each row. With labels the counts of each class in the folds differ
    by at most one, as do the sizes.
    """
    if folds < 2 or size < 2:
        raise DataError(f"{size} rows cannot be cross-validated in {folds} folds",
                        remedy="use at least two folds, and parties with at least two rows")
    folds = min(folds, size)
    fold_of_row = np.empty(size, np.int64)
    fold_of_row[_order(size, labels, rng)] = np.arange(size) % folds
    return [(np.flatnonzero(fold_of_row != fold), np.flatnonzero(fold_of_row == fold)) for fold in range(folds)]


def hold_out(dataset: Dataset, share: float, rng: np.random.Generator, *,
             stratify: bool = True) -> tuple[Dataset, Dataset]:
    """Views of the rows that go to the parties and of those the coordinator keeps to evaluate on."""
    labels = strata(dataset).codes if stratify and dataset.schema.target.kind != "none" else None
    rest, _, held_out = split_rows(len(dataset), Split(test=share, stratify=stratify), rng, labels)
    if not len(held_out):
        raise DataError(f"a share of {share} of the {len(dataset)} rows of '{dataset.name}' is less than one row",
                        remedy="hold out a larger share")
    return dataset.take(rest), dataset.take(held_out)


def _check(split: Split) -> None:
    if min(split.validation, split.test) < 0 or split.validation + split.test >= 1:
        raise DataError(f"a split with validation {split.validation} and test {split.test} leaves no train rows",
                        remedy="use shares of at least 0 that sum to less than 1")


def _part_sizes(size: int, split: Split) -> tuple[int, int]:
    test, validation = round(size * split.test), round(size * split.validation)
    validation = max(min(validation, size - 1 - test), 0)
    return max(min(test, size - 1), 0), validation


def _order(size: int, labels: ArrayLike | None, rng: np.random.Generator) -> Rows:
    """All rows at random; with labels, sorted by label and at random inside each."""
    order = rng.permutation(size)
    if labels is None:
        return order
    values = np.asarray(labels)
    if values.shape != (size,):
        raise DataError(f"{size} rows cannot be stratified by labels of shape {values.shape}",
                        remedy="give one label a row; tequio.data.splits sorts multi-label rows")
    return order[np.argsort(values[order], kind="stable")]


def _spread(size: int, chosen: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Mark evenly spaced places from a random start: any n places in a row have n * chosen / size marks, +-1."""
    marked = np.zeros(size, bool)
    if chosen:
        marked[(np.arange(chosen) * size + rng.integers(size)) // chosen] = True
    return marked


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


def _first_labels(labels: Array, names: tuple[str, ...]) -> Strata:
    positive = np.asarray(labels) > 0
    codes = np.where(positive.any(axis=1), positive.argmax(axis=1), len(names)).astype(np.int64)
    return Strata(codes, (*names, "no label"))


def _quantiles(values: Array) -> Strata:
    if not len(values):
        return Strata(np.empty(0, np.int64), ())
    inner = np.linspace(0, 1, QUANTILE_BINS + 1)[1:-1]
    # Cuts are values of the data, each once and none at the smallest, so that no stratum is empty.
    cuts = np.setdiff1d(np.quantile(values, inner, method="higher"), [values.min()])
    names = [f"below {cuts[0]:.4g}"] if len(cuts) else ["all"]
    names += [f"{low:.4g} to {high:.4g}" for low, high in pairwise(cuts)]
    names += [f"from {cuts[-1]:.4g}"] if len(cuts) else []
    return Strata(np.searchsorted(cuts, values, side="right").astype(np.int64), tuple(names))
