"""Fewer columns (drop) and fewer categories (regroup). Nothing is fitted: the schema alone decides what comes out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.preprocessing.preparation import Statistics, dense_table, with_features
from tequio.data.schema import Feature
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset


@dataclass(frozen=True)
class Drop:
    """Leave columns out.

    Parameters:
        columns: their names
    """

    columns: tuple[str, ...] = ()

    def fit(self, dataset: Dataset) -> Statistics:
        """Nothing."""
        return {}

    def merge(self, parts: Sequence[Statistics]) -> Statistics:
        """Nothing."""
        return {}

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """The other columns."""
        gone = {dataset.schema.column(name) for name in self.columns}
        kept = [column for column in range(len(dataset.schema.features)) if column not in gone]
        if not kept:
            raise DataError(f"no column of '{dataset.name}' is left", remedy="drop fewer columns")
        features = tuple(dataset.schema.features[column] for column in kept)
        schema = replace(dataset.schema, features=features, shape=())
        return with_features(dataset, schema, dense_table(dataset, "drop")[:, kept])


@dataclass(frozen=True)
class Regroup:
    """Put categories together under new names.

    Parameters:
        groups: for each column by name, the new categories and which old ones each takes in
        rest: the new category of all old ones that no group names
    """

    groups: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    rest: str = "others"

    def fit(self, dataset: Dataset) -> Statistics:
        """Nothing."""
        return {}

    def merge(self, parts: Sequence[Statistics]) -> Statistics:
        """Nothing."""
        return {}

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """The same columns with the new categories."""
        changed, features = dense_table(dataset, "regroup").copy(), list(dataset.schema.features)
        for name, groups in self.groups.items():
            column = dataset.schema.column(name)
            domain, code = self._regrouped(features[column], groups)
            changed[:, column] = code[changed[:, column].astype(np.int64)]
            features[column] = Feature(name, domain)
        return with_features(dataset, replace(dataset.schema, features=tuple(features)), changed)

    def _regrouped(self, feature: Feature,
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
