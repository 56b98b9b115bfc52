"""Numbers to categories (discretise) and back (one-hot, ordinal); fewer categories (regroup) and columns (drop).

Only discretise looks at rows; for the other steps the schema alone decides what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from tequio.data.dataset import Feature
from tequio.data.preprocessing.preparation import (
    Preparation,
    Statistics,
    check_width,
    dense_table,
    numeric_columns,
    refuse_missing,
    with_features,
)
from tequio.data.preprocessing.scaling import MinMax
from tequio.data.preprocessing.sketches import add_sketches, quantiles, sketch
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset


@register("preparation", "discretise",
          example='[data]\nprepare = [{name = "discretise", bins = 5}]\n')
@dataclass(frozen=True)
class Discretise(Preparation):
    """Numbers to categories, each an interval that is open below and closed above.

    Parameters:
        method: width (intervals of equal width), quantile (intervals of about equally many rows, cut at values of eight
            significant bits) or cuts (at given points)
        bins: intervals a column, for width and quantile
        cuts: the cut points of each column by name, for cuts; other columns stay numbers
    """

    method: Literal["width", "quantile", "cuts"] = "width"
    bins: Annotated[int, Ge(1)] = 5
    cuts: dict[str, list[float]] = field(default_factory=dict)

    needed: ClassVar[tuple[str, ...]] = ("low", "high", "cuts")

    def fit(self, dataset: Dataset) -> Statistics:
        """Counts from which quantiles follow, or the ends of each column's range."""
        table = dense_table(dataset, "discretise")
        columns = numeric_columns(dataset.schema)
        refuse_missing(dataset, table[:, columns], "discretise")
        if self.method == "width":
            return MinMax().fit(dataset)
        return self._cut(sketch(table[:, columns]), len(columns)) if self.method == "quantile" else {}

    def merge(self, parts: Sequence[Statistics]) -> Statistics:
        """The statistics of the pooled rows."""
        if self.method == "width":
            return MinMax().merge(parts)
        return self._cut(add_sketches(parts), parts[0]["cuts"].shape[1]) if self.method == "quantile" else {}

    def _cut(self, counts: Statistics, columns: int) -> Statistics:
        levels = (np.arange(1, self.bins) / self.bins).tolist()
        return {**counts, "cuts": quantiles(counts, columns, levels)}

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """Codes of the intervals that the values fall into."""
        changed = dense_table(dataset, "discretise").copy()
        features = list(dataset.schema.features)
        for column, points in self.points_of(dataset, statistics):
            changed[:, column] = np.searchsorted(points, changed[:, column], side="left")
            features[column] = Feature(features[column].name, _interval_names(points))
        return with_features(dataset, replace(dataset.schema, features=tuple(features)), changed)

    def points_of(self, dataset: Dataset, statistics: Statistics) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """The columns that become intervals, each with its cut points in order."""
        columns = numeric_columns(dataset.schema)
        if self.method == "cuts":
            for name, cuts in self.cuts.items():
                yield dataset.schema.column(name), np.unique(np.asarray(cuts, dtype=np.float64))
            return
        cuts_of_columns = statistics["cuts"] if "cuts" in statistics else _equal_width(statistics, self.bins)
        check_width(cuts_of_columns, len(columns))
        for position, column in enumerate(columns):
            yield int(column), np.unique(cuts_of_columns[:, position])


@register("preparation", "one-hot",
          example='[data]\nprepare = ["one-hot"]\n')
@dataclass(frozen=True)
class OneHot(Preparation):
    """Each category of the schema to a column of 0 and 1; numbers are left alone."""

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """The columns in their order, each categorical one replaced by one column a category."""
        if not any(feature.categorical for feature in dataset.schema.features):
            return dataset
        table = dense_table(dataset, "one-hot")
        features: list[Feature] = []
        columns: list[Array] = []
        for column, feature in enumerate(dataset.schema.features):
            domain = feature.domain
            features += [feature] if domain is None else [Feature(f"{feature.name}={value}") for value in domain]
            values = table[:, [column]]
            columns.append(values if domain is None else values == np.arange(len(domain)))
        schema = replace(dataset.schema, features=tuple(features), shape=())
        return with_features(dataset, schema, np.concatenate(columns, axis=1, dtype=table.dtype))


@register("preparation", "ordinal",
          example='[data]\nprepare = ["ordinal"]\n')
@dataclass(frozen=True)
class Ordinal(Preparation):
    """Each category to its place in the schema's domain: 0, 1, 2, ...

    Parameters:
        which: all columns of categories, or those alone whose categories have an order (ordered)
    """

    which: Literal["all", "ordered"] = "all"

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """The codes are the numbers, so only the schema changes."""
        wanted = ("category", "ordered", "hashed") if self.which == "all" else ("ordered",)
        features = tuple(Feature(feature.name) if feature.kind in wanted else feature
                         for feature in dataset.schema.features)
        return replace(dataset, schema=replace(dataset.schema, features=features))


def _equal_width(statistics: Statistics, bins: int) -> NDArray[np.float64]:
    low, high = statistics["low"], statistics["high"]
    inner = np.arange(1, bins)[:, np.newaxis] / bins
    known = np.isfinite(low)
    return np.where(known, low, 0) + inner * np.where(known, high - low, 0)


def _interval_names(points: NDArray[np.float64]) -> tuple[str, ...]:
    if not len(points):
        return ("any",)
    short = [f"{point:.6g}" for point in points]
    texts = short if len(set(short)) == len(points) else [repr(float(point)) for point in points]
    between = [f"({low}, {high}]" for low, high in pairwise(texts)]
    return (f"<={texts[0]}", *between, f">{texts[-1]}")


@register("preparation", "drop",
          example='[data]\nprepare = [{name = "drop", columns = ["ward"]}]\n')
@dataclass(frozen=True)
class Drop(Preparation):
    """Leave columns out.

    Parameters:
        columns: their names
    """

    columns: tuple[str, ...] = ()

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """The other columns."""
        gone = {dataset.schema.column(name) for name in self.columns}
        kept = [column for column in range(len(dataset.schema.features)) if column not in gone]
        if not kept:
            raise DataError(f"no column of '{dataset.name}' is left", remedy="drop fewer columns")
        features = tuple(dataset.schema.features[column] for column in kept)
        schema = replace(dataset.schema, features=features, shape=())
        return with_features(dataset, schema, dense_table(dataset, "drop")[:, kept])


@register("preparation", "regroup",
          example='[data]\nprepare = [{name = "regroup", groups = {ward = {north = ["N1", "N2"]}}}]\n')
@dataclass(frozen=True)
class Regroup(Preparation):
    """Put categories together under new names.

    Parameters:
        groups: for each column by name, the new categories and which old ones each takes in
        rest: the new category of all old ones that no group names
    """

    groups: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    rest: str = "others"

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """The same columns with the new categories."""
        changed, features = dense_table(dataset, "regroup").copy(), list(dataset.schema.features)
        for name, groups in self.groups.items():
            column = dataset.schema.column(name)
            domain, code = self.regrouped(features[column], groups)
            refuse_missing(dataset, changed[:, column], "regroup")
            changed[:, column] = code[changed[:, column].astype(np.int64)]
            features[column] = Feature(name, domain)
        return with_features(dataset, replace(dataset.schema, features=tuple(features)), changed)

    def regrouped(self, feature: Feature,
                  groups: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """The new domain, and the new code of each old category."""
        if feature.domain is None:
            raise DataError(f"column '{feature.name}' holds numbers, which have no categories to regroup",
                            remedy="put 'discretise' before 'regroup'")
        unknown = [old for olds in groups.values() for old in olds if old not in feature.domain]
        if unknown:
            raise DataError(f"column '{feature.name}' has no category '{unknown[0]}'",
                            remedy=f"its categories are {', '.join(feature.domain)}")
        of_old = {old: new for new, olds in groups.items() for old in olds}
        named = [of_old.get(old, self.rest) for old in feature.domain]
        domain = tuple(dict.fromkeys([*groups, *named]))
        return domain, np.array([domain.index(new) for new in named])
