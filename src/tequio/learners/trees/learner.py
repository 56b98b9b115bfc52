"""The contract of a tree learner. Trees are fitted in one go, so they are not trained on from parameters."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Annotated, Protocol, runtime_checkable

import numpy as np
from annotated_types import Ge, Interval
from scipy import sparse

from tequio.errors import DataError
from tequio.learners import metrics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset
    from tequio.learners.learner import Payload, Received, Tally


SplitSize = Annotated[int, Ge(2)] | Annotated[float, Interval(gt=0, lt=1)]
"""Rows that a node needs to be split: a number, or a share of all rows."""


def smallest_split(min_split: float, rows: float) -> float:
    """How many rows a node needs to be split: the number itself, or that share of all rows rounded up, at least 2."""
    return min_split if min_split >= 1 else max(2, ceil(min_split * rows))


class TreeModel(Protocol):
    """A fitted tree, forest or boosted ensemble: plain arrays that predict and travel."""

    def predict(self, features: Array) -> NDArray[np.float64]:
        """Scores of each row: (rows, classes) shares, or (rows,) numbers."""
        ...

    def to_payload(self) -> Payload:
        """The model as a payload."""
        ...


@runtime_checkable
class TreeLearner(Protocol):
    """A learner that fits a tree, a forest or a boosted ensemble to a party's rows; it has no state itself."""

    def fit(self, data: Dataset, rng: np.random.Generator, *, weights: Array | None = None) -> TreeModel:
        """The model of these rows, of which row i counts `weights[i]` times."""
        ...

    def predict(self, model: TreeModel | Received, data: Dataset) -> NDArray[np.float64]:
        """Scores of each row by a model or by its payload, which is checked first."""
        ...

    def evaluate(self, model: TreeModel | Received, data: Dataset) -> Tally:
        """Additive counts from which metrics follow."""
        ...


class Scoring:
    """How every tree learner predicts and evaluates: the model knows how, whichever learner made it."""

    def predict(self, model: TreeModel | Received, data: Dataset) -> NDArray[np.float64]:
        """Class shares (rows, classes) or numbers (rows,) by a model or by its payload, which is checked first."""
        return opened(model, data).predict(rows_of(data))

    def evaluate(self, model: TreeModel | Received, data: Dataset) -> Tally:
        """Additive counts of the rows."""
        return metrics.tally(data.schema.target, self.predict(model, data), data.target)


def opened(model: TreeModel | Received, data: Dataset) -> TreeModel:
    """The model itself, or the one that a payload holds if it is sound and fits the data."""
    if not isinstance(model, Mapping):
        return model
    return model_from_payload(model, features=len(data.schema.features), classes=data.schema.target.size)


def model_from_payload(payload: Received, *, features: int, classes: int,
                       whose: str = "a party") -> TreeModel:
    """The tree, forest or boosted ensemble that a payload holds; anything that is not sound is refused.

    A fused tree may have its rules beside it, under a name of its own: {"tree": ..., "rules": ...}.
    """
    from tequio.learners.trees.boosted import BoostedTrees
    from tequio.learners.trees.forest import Forest
    from tequio.learners.trees.tree import Tree

    inner = payload.get("tree")
    if isinstance(inner, Mapping):
        return model_from_payload(inner, features=features, classes=classes, whose=whose)
    kind = payload.get("kind")
    model = Forest if kind == "forest" else BoostedTrees if kind == "boosted" else Tree
    return model.from_payload(payload, features=features, classes=classes, whose=whose)


def rows_of(data: Dataset) -> Array:
    """The features as a dense (rows, columns) table."""
    features = data.features
    dense: Array = features.toarray() if sparse.issparse(features) else features
    return dense.reshape(len(data), len(data.schema.features))


def numeric_rows(data: Dataset, learner: str) -> Array:
    """The rows to fit on, if all columns are numbers."""
    for feature in data.schema.features:
        if feature.categorical:
            raise DataError(f"column '{feature.name}' of '{data.name}' is categorical, and '{learner}' splits numbers",
                            remedy="set data.prepare = [\"one-hot\"] or [\"ordinal\"], or choose the learner 'id3'")
    return _checked(data)


def category_codes(data: Dataset, learner: str) -> NDArray[np.int64]:
    """The rows to fit on as category codes, if all columns are categorical."""
    for feature in data.schema.features:
        if not feature.categorical:
            raise DataError(f"column '{feature.name}' of '{data.name}' is numeric, and '{learner}' splits categories",
                            remedy="set data.prepare = [\"discretise\"], or choose the learner 'cart'")
    return _checked(data).astype(np.int64)


def class_codes(data: Dataset, learner: str) -> NDArray[np.int64]:
    """The rows' classes, if the target has any."""
    if data.schema.target.kind != "classes":
        raise DataError(f"'{learner}' tells classes apart, and the target of '{data.name}' is of kind "
                        f"'{data.schema.target.kind}'", remedy="choose data with classes, or another learner")
    return data.target.astype(np.int64)


def checked_weights(weights: Array | None, rows: int) -> NDArray[np.float64] | None:
    """Row weights, if there is one a row and none is negative."""
    if weights is None:
        return None
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (rows,) or not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise DataError(f"row weights are {weights.size} numbers for {rows} rows, negative, not finite or all zero",
                        remedy="give one weight a row, 0 or more")
    return weights


def _checked(data: Dataset) -> Array:
    if not len(data):
        raise DataError(f"'{data.name}' has no rows to fit a tree on", remedy="raise the partition's minimum of rows")
    rows = rows_of(data)
    missing = ~np.isfinite(rows) if rows.dtype.kind == "f" else np.zeros(0, dtype=bool)
    if missing.any():
        row, column = np.argwhere(missing)[0]
        raise DataError(f"column '{data.schema.names[column]}' of '{data.name}' has a missing value (row {row})",
                        remedy="drop such rows or set data.missing = 'median'")
    return rows
