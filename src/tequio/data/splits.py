"""Train, validation and test rows, at a party and at the coordinator, and folds for cross-validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Interval

from tequio.data.partitions.strata import strata
from tequio.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tequio.data.dataset import Dataset

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
                        remedy="give one label a row; tequio.data.partitions.strata sorts multi-label rows")
    return order[np.argsort(values[order], kind="stable")]


def _spread(size: int, chosen: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Mark evenly spaced places from a random start: any n places in a row have n * chosen / size marks, +-1."""
    marked = np.zeros(size, bool)
    if chosen:
        marked[(np.arange(chosen) * size + rng.integers(size)) // chosen] = True
    return marked
