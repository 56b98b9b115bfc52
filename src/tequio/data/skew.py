"""How unlike rows are: the parties of a partition from each other, and new rows from the old ones.

Parties differ in sizes and label mixes, measured by their distance from the whole dataset. Between old and new rows,
columns are compared one by one by the population stability index, sum((new - old) * ln(new / old)) over bins: tenths of
the old rows for numbers, categories for categories (Siddiqi: Credit risk scorecards, 2006). By habit, 0.1 is a small
change and 0.25 a large one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.partition import strata
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset
    from tequio.data.partition import Partition

    Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Skew:
    """One number a party (NaN where it has no rows, or the data no target); `summary` has one number a partition.

    sizes: rows of each party.
    entropy: of the party's label mix, in bits; 0 for a party with one class.
    total_variation: half the L1 distance between the label mix of the party and that of the whole dataset, 0 to 1:
        the share of its rows a party would have to change for the common mix.
    earth_mover: the least work that turns the party's labels into those of the whole dataset: how much has to move
        times how far. For a numeric target the distance is that of the values, in the target's own unit; for ordered
        classes it is the number of classes stepped over. Unordered classes are all 1 apart, which makes the earth
        mover's distance equal to the total variation.
    classes: how many classes (or labels) the party has any row of.

    A numeric target's label mix is over its deciles; a multi-label target's is over label occurrences.
    """

    sizes: NDArray[np.int64]
    entropy: Numbers
    total_variation: Numbers
    earth_mover: Numbers
    classes: NDArray[np.int64]

    def summary(self) -> dict[str, float]:
        """The partition in a few numbers; means are over parties that have rows, each party counting once."""
        held = self.sizes > 0
        return {
            "parties": len(self.sizes),
            "rows": int(self.sizes.sum()),
            "smallest": int(self.sizes.min()),
            "median": float(np.median(self.sizes)),
            "largest": int(self.sizes.max()),
            "gini": gini(self.sizes),
            "entropy_mean": _mean(self.entropy[held]),
            "total_variation_mean": _mean(self.total_variation[held]),
            "earth_mover_mean": _mean(self.earth_mover[held]),
            "classes_mean": _mean(self.classes[held]),
            "one_class_share": _mean(self.classes[held] == 1),
        }


def measure_skew(dataset: Dataset, partition: Partition, *, ordered: bool = False) -> Skew:
    """Compare each party's rows with the whole dataset; `ordered` says that the classes have an order."""
    target = dataset.schema.target.kind
    if target == "none":
        unknown = np.full(len(partition), np.nan)
        return Skew(partition.sizes, unknown, unknown, unknown, np.zeros(len(partition), np.int64))
    counts, _ = label_counts(dataset, partition)
    mixes = _shares(counts)
    whole = _shares(_count_all(dataset))
    variation = np.abs(mixes - whole).sum(axis=1) / 2
    on_a_line = target == "number" or (ordered and target == "classes")
    return Skew(partition.sizes, _entropy(mixes), variation,
                _earth_mover(dataset.target, partition) if on_a_line else variation, (counts > 0).sum(axis=1))


def label_counts(dataset: Dataset, partition: Partition) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """How many rows of each class every party has: (parties, classes), and the classes' names.

    A multi-label row counts once for each of its labels; rows without a target are all of one class, 'rows'.
    """
    if dataset.schema.target.kind == "none":
        return partition.sizes[:, None], ("rows",)
    party_of = np.repeat(np.arange(len(partition)), partition.sizes)
    if dataset.schema.target.kind == "multilabel":
        names = dataset.schema.target.names
        rows, codes = np.nonzero(dataset.target[partition.rows])
        party_of = party_of[rows]
    else:
        sorted_rows = strata(dataset)
        names, codes = sorted_rows.names, sorted_rows.codes[partition.rows]
    flat = np.bincount(party_of * len(names) + codes, minlength=len(partition) * len(names))
    return flat.reshape(len(partition), len(names)), names


def gini(sizes: Array) -> float:
    """Gini coefficient of party sizes: 0 when all are equal, near 1 when one party has everything."""
    ranked = np.sort(sizes)
    places = 2 * np.arange(1, len(ranked) + 1) - len(ranked) - 1
    total = len(ranked) * ranked.sum()
    return float((places * ranked).sum() / total) if total else 0.0


def _count_all(dataset: Dataset) -> NDArray[np.int64]:
    if dataset.schema.target.kind == "multilabel":
        return np.asarray(np.count_nonzero(dataset.target, axis=0))
    sorted_rows = strata(dataset)
    return np.bincount(sorted_rows.codes, minlength=len(sorted_rows.names))


def _shares(counts: NDArray[np.int64]) -> Numbers:
    totals = counts.sum(axis=-1, keepdims=True)
    shares: Numbers = np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)
    return shares


def _entropy(mixes: Numbers) -> Numbers:
    logs = np.log2(mixes, out=np.zeros_like(mixes), where=mixes > 0)
    entropy: Numbers = np.abs((mixes * logs).sum(axis=1))
    return entropy


def _earth_mover(values: Array, partition: Partition) -> Numbers:
    """One-dimensional earth mover's distance of every party at once, from the area between quantile functions.

    A party's k-th smallest value stands for the quantiles from (k-1)/n to k/n. The dataset's quantile function crosses
    that value at most once there, so the area is two differences of the function's integral.
    """
    centred = values - values.mean()
    everyone = np.sort(centred)
    party_of = np.repeat(np.arange(len(partition)), partition.sizes)
    mine = centred[partition.rows]
    order = np.lexsort((mine, party_of))
    mine, sizes = mine[order], np.repeat(partition.sizes, partition.sizes)
    place = np.arange(len(mine)) - np.repeat(partition.offsets[:-1], partition.sizes)
    start, end = place / sizes, (place + 1) / sizes
    crossing = np.clip(np.searchsorted(everyone, mine, side="right") / len(everyone), start, end)
    grid = np.arange(len(everyone) + 1) / len(everyone)
    integral = np.append(0, np.cumsum(everyone)) / len(everyone)
    at_start, at_crossing, at_end = (np.interp(point, grid, integral) for point in (start, crossing, end))
    area = mine * (2 * crossing - start - end) + at_start + at_end - 2 * at_crossing
    distance = np.bincount(party_of, weights=area, minlength=len(partition))
    return np.where(partition.sizes > 0, np.maximum(distance, 0), np.nan)


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else float("nan")


BINS = 10
# A bin that one side has no row in counts as half a row, so that the index stays finite.
_HALF_A_ROW = 0.5


@dataclass(frozen=True)
class Bins:
    """A column as counts: of its categories, or of what lies between `cuts`, which are tenths of the rows counted."""

    counts: tuple[int, ...]
    cuts: tuple[float, ...] | None = None

    def count(self, values: Array) -> NDArray[np.int64]:
        """Other values in the same bins."""
        places = values.astype(np.int64) if self.cuts is None else np.searchsorted(self.cuts, values)
        return np.bincount(places, minlength=len(self.counts))


def bins_of(values: Array, categories: int = 0) -> Bins:
    """The bins of a column of numbers, or of codes of that many categories."""
    cuts = None if categories else tuple(np.unique(np.quantile(values, np.arange(1, BINS) / BINS)).tolist())
    empty = Bins((0,) * (categories or len(cuts or ()) + 1), cuts)
    return replace(empty, counts=tuple(empty.count(values).tolist()))


def columns_in_bins(rows: Dataset) -> dict[str, Bins]:
    """Each column in bins, and the target where there is one."""
    kinds = _kinds(rows)
    return {name: bins_of(values, kinds[name]) for name, values in values_by_column(rows).items()}


def stability_index(old: Array | Sequence[int], new: Array | Sequence[int]) -> float:
    """The population stability index of counts in the same bins."""
    shares = [np.maximum(counts, _HALF_A_ROW) / np.sum(counts) for counts in (np.asarray(old), np.asarray(new))]
    return float(((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum())


def drift(old: Dataset, new: Dataset) -> dict[str, float]:
    """The stability index of each column, and of the target where there is one."""
    if old.schema != new.schema:
        raise DataError("the new rows have other columns, categories or classes than the old ones",
                        remedy="read both with the same schema file")
    if not len(old) or not len(new):
        raise DataError("there are no rows to compare", remedy="give a table with rows")
    now = values_by_column(new)
    return {name: stability_index(bins.counts, bins.count(now[name])) for name, bins in columns_in_bins(old).items()}


def _kinds(rows: Dataset) -> dict[str, int]:
    """How many categories each column has; none for numbers."""
    schema = rows.schema
    kinds = {feature.name: len(feature.domain) if feature.domain is not None else 0 for feature in schema.features}
    if schema.target.kind in ("classes", "number"):
        kinds[schema.target.name] = len(schema.target.names) if schema.target.kind == "classes" else 0
    return kinds


def values_by_column(rows: Dataset) -> dict[str, Array]:
    """The values of each column, and of the target where there is one."""
    features = rows.features
    flat = features.toarray() if rows.is_sparse else features.reshape(len(features), -1)
    columns = {feature.name: flat[:, place] for place, feature in enumerate(rows.schema.features)}
    if rows.schema.target.kind in ("classes", "number"):
        columns[rows.schema.target.name] = rows.target
    return columns
