"""Missing values filled in, and dates taken apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tequio.data.dataset import Feature
from tequio.data.preprocessing.preparation import Preparation, Statistics, dense_table, stacked, with_features
from tequio.data.preprocessing.scaling import add_sums, column_sums, moments
from tequio.data.preprocessing.sketches import add_sketches, quantiles, sketch
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.data.dataset import Array, Dataset, Schema

MISSING = "(missing)"
"""The category of rows that have none."""


@register("preparation", "impute", example='[data]\nname = "csv"\npath = "hospital.csv"\ntarget = "risk"\n'
          'missing = "keep"\nprepare = ["impute", "standardise"]\n')
@dataclass(frozen=True)
class Impute(Preparation):
    """Fill in missing values with what the training rows of all parties have in the middle or most often.

    The median is found to eight significant bits from counts that parties add up, so it is the same however the rows
    are dealt.

    Parameters:
        numbers: median, mean or zero
        categories: most frequent category (frequent), or '(missing)' as a category of its own (own)
        indicators: add a column of 0 and 1 for each column of numbers that training rows lack values of
    """

    needed: ClassVar[tuple[str, ...]] = ("fill", "lacking", "frequent", "open")
    numbers: Literal["median", "mean", "zero"] = "median"
    categories: Literal["frequent", "own"] = "frequent"
    indicators: bool = True

    def fit(self, dataset: Dataset) -> Statistics:
        """How many values each column lacks; counts, or sums, that say what to fill in."""
        table = _flat(dataset)
        numbers, domains = _numbers(dataset.schema), _domains(dataset.schema)
        values, codes = table[:, numbers].astype(np.float64), table[:, list(domains)]
        found = {"missing": np.isnan(values).sum(axis=0), "rows": np.array([len(table)]),
                 "gaps": np.isnan(codes).sum(axis=0),
                 "counts": np.concatenate([np.empty(0, np.int64), *(
                     np.bincount(own[~np.isnan(own)].astype(np.int64), minlength=size)
                     for own, size in zip(codes.T, domains.values(), strict=True))])}
        if self.numbers == "median":
            found |= sketch(values)
        elif self.numbers == "mean":
            found["sums"] = column_sums(np.nan_to_num(values))
        return found | self._settled(found, list(domains.values()))

    def merge(self, parts: Sequence[Statistics]) -> Statistics:
        """Counts and sums add up."""
        found = {key: stacked(parts, key).sum(axis=0) for key in ("missing", "rows", "gaps", "counts")}
        if self.numbers == "median":
            found |= add_sketches(parts)
        elif self.numbers == "mean":
            found["sums"] = add_sums(stacked(parts, "sums"))
        return found | self._settled(found, parts[0]["sizes"].tolist())

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """The same columns without gaps, and behind them the columns that say where there were some."""
        table = _flat(dataset).copy()
        features, numbers = list(dataset.schema.features), _numbers(dataset.schema)
        flags = []
        for column, fill, lacking in zip(numbers, statistics["fill"], statistics["lacking"], strict=True):
            gaps = np.isnan(table[:, column])
            table[gaps, column] = fill
            if lacking and self.indicators:
                flags.append(gaps)
                features.append(Feature(f"{features[column].name} missing", kind="flag"))
        for column, code, is_open in zip(_domains(dataset.schema), statistics["frequent"], statistics["open"],
                                         strict=True):
            feature = features[column]
            table[np.isnan(table[:, column]), column] = code
            if is_open:
                features[column] = replace(feature, domain=(*(feature.domain or ()), MISSING))
        if not flags and len(dataset.schema.shape) > 1:
            return with_features(dataset, dataset.schema, table.reshape(-1, *dataset.schema.shape), missing="")
        if len(dataset.schema.shape) > 1:
            raise DataError(f"rows of shape {dataset.schema.shape} have no room for columns that say what was missing",
                            remedy="data.prepare = [{name = \"impute\", indicators = false}]")
        whole = np.concatenate([table, np.stack(flags, axis=1)], axis=1, dtype=table.dtype) if flags else table
        return with_features(dataset, replace(dataset.schema, features=tuple(features), shape=()), whole, missing="")

    def _settled(self, found: Statistics, sizes: list[int]) -> Statistics:
        """What to fill in; `open` are the columns that get a category for missing values."""
        columns, present = len(found["missing"]), found["rows"][0] - found["missing"]
        fill = np.zeros(columns)
        if self.numbers == "median":
            fill = quantiles(found, columns, [0.5])[0]
        elif self.numbers == "mean":
            fill = np.array([moments(int(rows), found["sums"][:, [column]], found["sums"][:, [column]])[0][0]
                             for column, rows in enumerate(present)])
        ends = np.cumsum([0, *sizes])
        frequent = [int(found["counts"][start:end].argmax()) if end > start else 0
                    for start, end in pairwise(ends)]
        is_open = (found["gaps"] > 0) & (self.categories == "own")
        return {"fill": fill, "lacking": found["missing"] > 0, "open": is_open, "sizes": np.array(sizes, np.int64),
                "frequent": np.where(is_open, sizes, frequent).astype(np.int64)}


def _flat(dataset: Dataset) -> Array:
    if dataset.is_sparse:
        raise DataError(f"'impute' needs dense rows; those of '{dataset.name}' are sparse, so nothing is missing there",
                        remedy="leave 'impute' out of data.prepare")
    rows: Array = dataset.features.reshape(len(dataset), len(dataset.schema.features))
    return rows if rows.dtype.kind == "f" else rows.astype(np.float64)


def _numbers(schema: Schema) -> list[int]:
    return [column for column, feature in enumerate(schema.features) if feature.domain is None]


def _domains(schema: Schema) -> dict[int, int]:
    return {column: len(feature.domain) for column, feature in enumerate(schema.features) if feature.domain is not None}


@register("preparation", "date-parts", example='[data]\nprepare = ["date-parts", "standardise"]\n')
@dataclass(frozen=True)
class DateParts(Preparation):
    """Each date to numbers: its year, month, day of the month and weekday.

    Parameters:
        parts: which of year, month, day, weekday (Monday is 0) and hour to keep
    """

    parts: tuple[Literal["year", "month", "day", "weekday", "hour"], ...] = ("year", "month", "day", "weekday")

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """The columns in their order, each date replaced by its parts."""
        if not any(feature.kind == "date" for feature in dataset.schema.features):
            return dataset
        table = dense_table(dataset, "date-parts")
        features: list[Feature] = []
        columns: list[Array] = []
        for column, feature in enumerate(dataset.schema.features):
            is_date = feature.kind == "date"
            features += [Feature(f"{feature.name} {part}") for part in self.parts] if is_date else [feature]
            columns += [_part(table[:, column], part) for part in self.parts] if is_date else [table[:, column]]
        schema = replace(dataset.schema, features=tuple(features), shape=())
        return with_features(dataset, schema, np.stack(columns, axis=1).astype(table.dtype))


def _part(days: Array, part: str) -> Array:
    seconds = np.round(days.astype(np.float64) * 86_400)
    known = np.where(np.isnan(seconds), 0, seconds).astype("datetime64[s]")
    day, month, year = (known.astype(f"datetime64[{unit}]") for unit in "DMY")
    found = {"year": year.astype(int) + 1970, "month": (month - year).astype(int) + 1,
             "day": (day - month).astype(int) + 1, "weekday": (day.astype(int) + 3) % 7,
             "hour": (known - day).astype(int) // 3600}
    return np.where(np.isnan(seconds), np.nan, found[part])
