"""Have the rows changed since a model was trained? Columns are compared one by one, by the stability index.

The population stability index of a column is sum((new - old) * ln(new / old)) over its bins: tenths of the old rows for
numbers, categories for categories (Siddiqi: Credit risk scorecards, 2006). By habit, 0.1 is a small change and 0.25 a
large one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset

BINS = 10
# A bin that one side has no row in counts as half a row, so that the index stays finite.
_HALF_A_ROW = 0.5


def drift(old: Dataset, new: Dataset) -> dict[str, float]:
    """The stability index of each column, and of the target where there is one."""
    if old.schema != new.schema:
        raise DataError("the new rows have other columns, categories or classes than the old ones",
                        remedy="read both with the same schema file")
    if not len(old) or not len(new):
        raise DataError("there are no rows to compare", remedy="give a table with rows")
    before, after = (_columns(rows) for rows in (old, new))
    return {name: _index(before[name], after[name], categories) for name, categories in _kinds(old).items()}


def _kinds(rows: Dataset) -> dict[str, int]:
    """How many categories each column has; none for numbers."""
    schema = rows.schema
    kinds = {feature.name: len(feature.domain) if feature.domain is not None else 0 for feature in schema.features}
    if schema.target.kind in ("classes", "number"):
        kinds[schema.target.name] = len(schema.target.names) if schema.target.kind == "classes" else 0
    return kinds


def _columns(rows: Dataset) -> dict[str, NDArray[Any]]:
    features = rows.features
    flat = features.toarray() if rows.is_sparse else features.reshape(len(features), -1)
    columns = {feature.name: flat[:, place] for place, feature in enumerate(rows.schema.features)}
    if rows.schema.target.kind in ("classes", "number"):
        columns[rows.schema.target.name] = rows.target
    return columns


def _index(old: NDArray[Any], new: NDArray[Any], categories: int) -> float:
    if categories:
        places = [values.astype(np.int64) for values in (old, new)]
        bins = categories
    else:
        cuts = np.unique(np.quantile(old, np.arange(1, BINS) / BINS))
        places, bins = [np.searchsorted(cuts, values) for values in (old, new)], len(cuts) + 1
    shares = [np.maximum(np.bincount(place, minlength=bins), _HALF_A_ROW) / len(place) for place in places]
    return float(((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum())
