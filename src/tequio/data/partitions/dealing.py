"""What the partitions share: from counts or a party number a row to index arrays, and refusing the impossible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge

from tequio.data.partition import Partition
from tequio.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset

    Whole = NDArray[np.int64]

AtLeastOne = Annotated[int, Ge(1)]
NotNegative = Annotated[int, Ge(0)]
NOBODY = -1


def require_rows(dataset: Dataset, parties: int, minimum_rows: int) -> None:
    """Refuse to deal fewer rows than the parties must have."""
    needed = parties * minimum_rows
    if len(dataset) < needed:
        raise DataError(f"'{dataset.name}' has {len(dataset)} rows, but {parties} parties with at least {minimum_rows} "
                        f"rows each need {needed}", remedy=f"use at most {len(dataset) // max(minimum_rows, 1)} "
                        "parties, or a smaller data.partition.minimum_rows")


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
