"""Steps that look at the target too: weight of evidence of categories, and the columns that say most about a class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from tequio.data.dataset import Feature
from tequio.data.preprocessing.preparation import Preparation, Statistics, dense_table, stacked, with_features
from tequio.data.preprocessing.sketches import add_sketches, by_column, of_column, sketch
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset, Schema


def _places(schema: Schema) -> dict[int, tuple[int, int]]:
    """Where the counts of each categorical column begin and end, one place more for rows without a category."""
    found: dict[int, tuple[int, int]] = {}
    start = 0
    for column, feature in enumerate(schema.features):
        if feature.domain is not None:
            found[column] = (start, start + len(feature.domain) + 1)
            start = found[column][1]
    return found


def _class_counts(dataset: Dataset, step: str) -> NDArray[np.int64]:
    """(categories of all columns, classes): how many rows are of each class."""
    target = dataset.schema.target
    if target.kind != "classes":
        raise DataError(f"'{step}' counts classes, and the target of '{dataset.name}' is of kind '{target.kind}'",
                        remedy=f"leave '{step}' out of data.prepare")
    table, places = dense_table(dataset, step), _places(dataset.schema)
    counts = np.zeros((max((end for _, end in places.values()), default=0), target.size), dtype=np.int64)
    for column, (start, end) in places.items():
        codes = np.nan_to_num(table[:, column], nan=end - start - 1).astype(np.int64)
        np.add.at(counts, (start + codes, dataset.target), 1)
    return counts


@register("preparation", "weight-of-evidence", paper="Good, 1950",
          example='[data]\nprepare = ["discretise", "weight-of-evidence"]\n')
@dataclass(frozen=True)
class WeightOfEvidence(Preparation):
    """Each category to how much it speaks for the second class: ln of the share of that class's rows that have it over
    the share of the other's. For two classes; put `discretise` before it to bin numbers.

    Parameters:
        smoothing: rows that each category is given in addition in both classes
    """

    needed: ClassVar[tuple[str, ...]] = ("weight",)
    smoothing: Annotated[float, Gt(0)] = 0.5

    def fit(self, dataset: Dataset) -> Statistics:
        """Rows of either class in each category."""
        if dataset.schema.target.kind == "classes" and dataset.schema.target.size != 2:
            raise DataError(f"weight of evidence is about two classes, and '{dataset.schema.target.name}' has "
                            f"{dataset.schema.target.size}", remedy='use data.prepare = ["one-hot"]')
        sizes = [end - start for start, end in _places(dataset.schema).values()]
        return self._weighed(_class_counts(dataset, "weight-of-evidence"), np.array(sizes, dtype=np.int64))

    def merge(self, parts: Sequence[Statistics]) -> Statistics:
        """Counts add up."""
        return self._weighed(stacked(parts, "counts").sum(axis=0), parts[0]["sizes"])

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """The same columns, categories replaced by their weights."""
        table = dense_table(dataset, "weight-of-evidence").astype(np.float64)
        features = list(dataset.schema.features)
        for column, (start, end) in _places(dataset.schema).items():
            codes = np.nan_to_num(table[:, column], nan=end - start - 1).astype(np.int64)
            table[:, column] = statistics["weight"][start + codes]
            features[column] = Feature(features[column].name)
        return with_features(dataset, replace(dataset.schema, features=tuple(features)), table)

    def _weighed(self, counts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Statistics:
        more = counts + self.smoothing
        totals = np.repeat(np.add.reduceat(more, np.cumsum([0, *sizes[:-1]]), axis=0), sizes, axis=0) if len(sizes) \
            else more
        shares = np.log(more / totals)
        return {"counts": counts, "sizes": sizes, "weight": shares[:, 1] - shares[:, 0] if len(sizes) else np.empty(0)}


@register("preparation", "select", example='[data]\nprepare = [{name = "select", keep = 10}]\n')
@dataclass(frozen=True)
class Select(Preparation):
    """Keep the columns that say most about the class, by mutual information over the training rows of all parties.

    Numbers are compared in bins of equally many rows.

    Parameters:
        keep: how many columns to keep
        bins: bins of a column of numbers
    """

    needed: ClassVar[tuple[str, ...]] = ("chosen",)
    keep: Annotated[int, Ge(1)] = 20
    bins: Annotated[int, Ge(2)] = 10

    def fit(self, dataset: Dataset) -> Statistics:
        """Rows of each class by category, and by value of numbers to eight significant bits."""
        numbers = [column for column, feature in enumerate(dataset.schema.features) if feature.domain is None]
        counts = _class_counts(dataset, "select")
        table = dense_table(dataset, "select")
        places = _places(dataset.schema)
        layout = np.array([[column, *places.get(column, (-1, -1))] for column in range(table.shape[1])], np.int64)
        return self._chosen({"counts": counts, "layout": layout, "numbers": np.array(numbers, np.int64),
                             **sketch(table[:, numbers], dataset.target)})

    def merge(self, parts: Sequence[Statistics]) -> Statistics:
        """Counts add up."""
        return self._chosen({"counts": stacked(parts, "counts").sum(axis=0), "layout": parts[0]["layout"],
                             "numbers": parts[0]["numbers"], **add_sketches(parts)})

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """The chosen columns in their order."""
        chosen = statistics["chosen"].tolist()
        features = tuple(dataset.schema.features[column] for column in chosen)
        schema = replace(dataset.schema, features=features, shape=())
        return with_features(dataset, schema, dense_table(dataset, "select")[:, chosen])

    def _chosen(self, found: Statistics) -> Statistics:
        classes = found["counts"].shape[1]
        position = {int(column): place for place, column in enumerate(found["numbers"])}
        totals = by_column(found, len(position))
        information = np.zeros(len(found["layout"]))
        for column, start, end in found["layout"].tolist():
            table = found["counts"][start:end] if start >= 0 else \
                self._binned(found, position[column], totals[position[column]], classes)
            information[column] = mutual_information(table)
        best = np.argsort(-np.round(information, 12), kind="stable")[:self.keep]
        return {**found, "information": information, "chosen": np.sort(best)}

    def _binned(self, found: Statistics, place: int, totals: tuple[Array, Array], classes: int) -> NDArray[np.int64]:
        codes, rows = totals
        if not len(codes):
            return np.zeros((1, classes), dtype=np.int64)
        before = np.cumsum(rows) - rows
        bin_of = np.minimum(before * self.bins // rows.sum(), self.bins - 1)
        own, group, count = of_column(found, place)
        table = np.zeros((self.bins, classes), dtype=np.int64)
        np.add.at(table, (bin_of[np.searchsorted(codes, own)], group), count)
        return table


def mutual_information(counts: Array) -> float:
    """Of the two sides of a table of counts, in nats."""
    total = counts.sum()
    if not total:
        return 0.0
    joint = counts / total
    apart = joint.sum(axis=1, keepdims=True) @ joint.sum(axis=0, keepdims=True)
    seen = joint > 0
    return float((joint[seen] * np.log(joint[seen] / apart[seen])).sum())
