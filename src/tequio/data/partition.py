"""Who holds which rows (and columns): an index array, so that a million parties cost a few bytes each.

Below the partition itself is what the ways to deal share: from counts, or a party number per row, to index arrays.

Train, validation and test rows, at a party and at the coordinator, and folds for cross-validation.

Stratified splits, label skew and heat maps all sort rows into the same strata, by their target.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
from annotated_types import Ge, Interval

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset, Index

    Whole = NDArray[np.int64]
    from numpy.typing import ArrayLike, NDArray


    Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition:
    """Party i holds rows[offsets[i]:offsets[i+1]]; optionally only some columns, and the target or not.

    `names` may be left out for simulated parties, which are then called by their number. `categories` says of
    which group (domain, band, school kind) a party is, where a partition knows it. `labels` are the labels of a
    multi-label target that each party knows, where they do not all know all. `key_holder` is the number of a party
    without rows or columns, which is there to keep a private key that no holder of data may have.
    """

    rows: Index
    offsets: NDArray[np.int64]
    names: tuple[str, ...] | None = None
    columns: tuple[NDArray[np.int64], ...] | None = None
    holds_target: tuple[bool, ...] | None = None
    categories: tuple[str, ...] | None = None
    labels: tuple[NDArray[np.int64], ...] | None = None
    key_holder: int | None = None

    @classmethod
    def of(cls, rows: Sequence[Array], **extra: Any) -> Partition:
        """From one index array a party."""
        sizes = [len(indices) for indices in rows]
        joined = np.concatenate(rows) if rows else np.empty(0)
        return cls(joined.astype(np.int64), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), **extra)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each party."""
        return np.diff(self.offsets)

    @property
    def holders(self) -> tuple[int, ...]:
        """Of parties with different columns, those that hold rows."""
        return () if self.columns is None else tuple(party for party in range(len(self)) if party != self.key_holder)

    def name(self, party: int) -> str:
        """What the party is called."""
        return self.names[party] if self.names else str(party)

    def party_rows(self, party: int) -> Index:
        """Row numbers of one party."""
        return self.rows[self.offsets[party]:self.offsets[party + 1]]

    def view(self, dataset: Dataset, party: int) -> Dataset:
        """One party's part of the dataset."""
        mine = dataset.take(self.party_rows(party))
        if self.labels is not None:
            mine = mine.select_labels(list(self.labels[party]))
        holds_target = self.holds_target is None or self.holds_target[party]
        if self.columns is not None:
            return mine.select(list(self.columns[party]), with_target=holds_target)
        return mine if holds_target else mine.without_target()

    def check(self, minimum_rows: int = 1) -> None:
        """Refuse parties with too few rows, naming them."""
        small = np.setdiff1d(np.flatnonzero(self.sizes < minimum_rows), [] if self.key_holder is None else
                             [self.key_holder])
        if len(small):
            listed = ", ".join(f"'{self.name(int(party))}' ({self.sizes[party]})" for party in small[:5])
            more = f" and {len(small) - 5} more" if len(small) > 5 else ""
            raise DataError(f"{len(small)} of {len(self)} parties have fewer than {minimum_rows} rows: {listed}{more}",
                            remedy="use fewer parties, less skew, or a smaller data.partition.minimum_rows")


class Partitioner(Protocol):
    """How a dataset is dealt to parties."""

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give each row (and column) to a party, or to none."""
        ...


AtLeastOne = Annotated[int, Ge(1)]
NotNegative = Annotated[int, Ge(0)]
NOBODY = -1


def require_rows(dataset: Dataset, parties: int, minimum_rows: int) -> None:
    """Refuse to deal fewer rows than the parties must have."""
    needed = parties * minimum_rows
    if len(dataset) < needed:
        raise DataError(f"'{dataset.name}' has {len(dataset)} rows, but {parties} parties with at least {minimum_rows} "
                        f"rows each need {needed}", remedy=f"set data.partition.parties = "
                        f"{len(dataset) // max(minimum_rows, 1)}, or a smaller data.partition.minimum_rows")


def by_party_numbers(party_of_row: Whole, parties: int, **extra: Any) -> Partition:
    """A partition from a party number for each row; rows marked NOBODY are left out. Rows keep their order."""
    sizes = np.bincount(party_of_row[party_of_row != NOBODY], minlength=parties)
    order = np.argsort(party_of_row, kind="stable")
    return Partition(order[len(party_of_row) - int(sizes.sum()):], _offsets(sizes), **extra)


def deal_counts(codes: Whole, counts: Whole, rng: np.random.Generator) -> Whole:
    """A party number for each row, so that party p has `counts[c, p]` rows of class c; the rest is with nobody."""
    classes, parties = counts.shape
    class_sizes = np.bincount(codes, minlength=classes)
    with_rest = np.column_stack([counts, class_sizes - counts.sum(axis=1)])
    hands = np.tile(np.append(np.arange(parties), NOBODY), classes)
    party_of_row = np.empty(len(codes), np.int64)
    party_of_row[shuffled_by_class(codes, rng)] = np.repeat(hands, with_rest.ravel())
    return party_of_row


def draw_counts(codes: Whole, counts: Whole, rng: np.random.Generator) -> Partition:
    """Party p draws `counts[c, p]` of all rows of class c: never a row twice, but perhaps one that others hold."""
    by_class = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=len(counts)))[:-1])
    drawn = [np.sort(np.concatenate([rng.choice(rows, count, replace=False)
                                     for rows, count in zip(by_class, mine, strict=True)]))
             for mine in counts.T]
    return Partition.of(drawn)


def shuffled_by_class(codes: Whole, rng: np.random.Generator) -> Whole:
    """Row numbers sorted by class, in random order inside each."""
    order = rng.permutation(len(codes))
    return order[np.argsort(codes[order], kind="stable")]


def cut_by_weights(class_sizes: Whole, weights: NDArray[np.float64]) -> Whole:
    """Counts (classes, parties) that cut each class in proportion to its weights; weights of 0 deal nothing."""
    totals = weights.sum(axis=1, keepdims=True)
    shares = np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0)
    dealt = np.where(totals > 0, class_sizes[:, None], 0)
    cuts = np.rint(np.cumsum(shares, axis=1) * dealt).astype(np.int64)
    counts: Whole = np.diff(cuts, axis=1, prepend=0)
    return counts


def choose_classes(parties: int, classes: int, classes_per_party: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which classes (rows) each party (column) holds: `classes_per_party` different ones, all classes used evenly."""
    if classes_per_party > classes:
        raise DataError(f"a party cannot hold {classes_per_party} of {classes} classes",
                        remedy=f"set data.partition.classes_per_party to at most {classes}")
    ties = rng.random((parties, classes))
    used = np.zeros(classes, np.int64)
    held = np.zeros((classes, parties), bool)
    for party in range(parties):
        chosen = np.lexsort((ties[party], used))[:classes_per_party]
        used[chosen] += 1
        held[chosen, party] = True
    return held


def top_up(party_of_row: Whole, parties: int, minimum_rows: int, rng: np.random.Generator) -> Whole:
    """Move random rows from the largest parties to those below the minimum."""
    sizes = np.bincount(party_of_row, minlength=parties)
    missing = np.maximum(minimum_rows - sizes, 0)
    order = shuffled_by_class(party_of_row, rng)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # The rows with the highest places inside their party are the tops of the largest parties; as the request is
    # possible, there are enough of them above the minimum.
    given = np.argsort(-place, kind="stable")[:missing.sum()]
    topped = party_of_row.copy()
    topped[given] = rng.permutation(np.repeat(np.arange(parties), missing))
    return topped


def _offsets(sizes: Whole) -> Whole:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


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
                        remedy="set data.test = 0.0 and data.validation = 0.0 to hold out none, or give more rows")
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
                        remedy="give one label a row; tequio.data.partition sorts multi-label rows")
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
