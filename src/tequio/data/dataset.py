"""A table (or a stack of images) with a schema; `take` and `columns` give index views of it, not copies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tequio.data.schema import Schema, Target
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

Array = NDArray[Any]
"""An array of numbers, codes or strings whose type the data decides."""


@dataclass(frozen=True, eq=False)
class Source:
    """The arrays that all views of one dataset share. Read-only by convention; may be memory-mapped or sparse."""

    features: Any
    target: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of a source, in an order, seen through a schema.

    `features` is (rows, *schema.shape): float numbers, category codes, or a SciPy CSR matrix. `target` holds class
    codes, a 0/1 label matrix or numbers. `ids` identify rows across parties; `groups` says whose row it is (natural
    partitions). Reading a property gathers the rows; `take` only composes index arrays. `labels` are the columns of a
    multi-label target that this view knows, where it does not know all.
    """

    schema: Schema
    source: Source = field(repr=False)
    rows: NDArray[np.integer[Any]] | None = field(default=None, repr=False)
    columns: NDArray[np.integer[Any]] | None = field(default=None, repr=False)
    name: str = "data"
    labels: NDArray[np.integer[Any]] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, schema: Schema, features: Any, target: ArrayLike | None = None, *, ids: ArrayLike | None = None,
           groups: ArrayLike | None = None, name: str = "data") -> Dataset:
        """Check arrays against a schema and wrap them."""
        features = features.tocsr() if sparse.issparse(features) else np.asarray(features)
        arrays = [None if values is None else np.asarray(values) for values in (target, ids, groups)]
        _check(schema, features, arrays[0], arrays[1], arrays[2], name)
        return cls(schema, Source(features, *arrays), name=name)

    def __len__(self) -> int:
        return self.source.features.shape[0] if self.rows is None else len(self.rows)

    @property
    def features(self) -> Any:
        """The rows' features, gathered: (rows, *shape)."""
        gathered = self.source.features if self.rows is None else self.source.features[self.rows]
        return gathered if self.columns is None else gathered[:, self.columns]

    @property
    def target(self) -> NDArray[Any]:
        """The rows' target; an error where this view does not hold it."""
        if self.source.target is None or self.schema.target.kind == "none":
            raise DataError(f"'{self.name}' holds no target here", remedy="ask the party that holds the labels")
        target = self._gather(self.source.target)
        return target if self.labels is None else target[:, self.labels]

    @property
    def ids(self) -> NDArray[Any]:
        """Row ids; row numbers of the source where the data has none."""
        if self.source.ids is None:
            return np.arange(self.source.features.shape[0]) if self.rows is None else np.asarray(self.rows)
        return self._gather(self.source.ids)

    @property
    def groups(self) -> NDArray[Any]:
        """Whose row it is, for natural partitions."""
        if self.source.groups is None:
            raise DataError(f"'{self.name}' does not say whose row is whose", remedy="choose another partition, or "
                            "name the column that does in 'data.group'")
        return self._gather(self.source.groups)

    @property
    def is_sparse(self) -> bool:
        """Whether features come as a CSR matrix."""
        return bool(sparse.issparse(self.source.features))

    def take(self, rows: ArrayLike) -> Dataset:
        """A view of some rows, in that order (repetition allowed)."""
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        elif not rows.size:
            rows = rows.astype(np.int64)  # an empty list comes as floats
        # Not `replace`, which is several times slower: every chosen party takes views in every round.
        mine = rows if self.rows is None else self.rows[rows]
        return Dataset(self.schema, self.source, mine, self.columns, self.name, self.labels)

    def select(self, columns: Sequence[int], *, with_target: bool = True) -> Dataset:
        """A view of some columns, with or without the target."""
        chosen = np.asarray(columns, dtype=np.int64)
        schema = self.schema.select([int(column) for column in chosen], with_target=with_target)
        if len(self.schema.shape) > 1:
            raise DataError(f"'{self.name}' has rows of shape {self.schema.shape}; only flat tables split by column",
                            remedy="set data.flatten = true")
        return replace(self, schema=schema, columns=chosen if self.columns is None else self.columns[chosen])

    def select_labels(self, labels: Sequence[int]) -> Dataset:
        """A view that knows only some labels of a multi-label target."""
        if self.schema.target.kind != "multilabel":
            raise DataError(f"'{self.name}' has a target of kind '{self.schema.target.kind}', which has no labels to "
                            "choose from", remedy="choose multi-label data, or another partition")
        chosen = np.asarray(labels, dtype=np.int64)
        schema = replace(self.schema, target=self.schema.target.select([int(label) for label in chosen]))
        return replace(self, schema=schema, labels=chosen if self.labels is None else self.labels[chosen])

    def read(self, order: NDArray[np.integer[Any]], out: NDArray[Any]) -> None:
        """Gather features in an order straight into `out`, without an intermediate copy."""
        self.reader(out.dtype)(order, out)

    def reader(self, dtype: np.dtype[Any]) -> Callable[[NDArray[np.integer[Any]], NDArray[Any]], None]:
        """What `read` does for an `out` of that type, as a function to call again and again."""
        features, rows = self.source.features, self.rows
        if self.columns is not None or self.is_sparse or features.dtype != dtype:
            return self._read_converted

        def read(order: NDArray[np.integer[Any]], out: NDArray[Any]) -> None:
            features.take(order if rows is None else rows[order], 0, out, "clip")

        return read

    def _read_converted(self, order: NDArray[np.integer[Any]], out: NDArray[Any]) -> None:
        features = self.take(order).features
        out[...] = features.toarray() if self.is_sparse else features

    def without_target(self) -> Dataset:
        """The same rows, for a party that does not hold the target."""
        return replace(self, schema=replace(self.schema, target=Target("none")))

    def _gather(self, values: NDArray[Any]) -> NDArray[Any]:
        return values if self.rows is None else values[self.rows]


def _check(schema: Schema, features: Any, target: NDArray[Any] | None, ids: NDArray[Any] | None,
           groups: NDArray[Any] | None, name: str) -> None:
    rows = features.shape[0]
    if tuple(features.shape[1:]) != schema.shape:
        raise DataError(f"'{name}' has rows of shape {tuple(features.shape[1:])}, its schema says {schema.shape}")
    for what, values in (("target", target), ("ids", ids), ("groups", groups)):
        if values is not None and len(values) != rows:
            raise DataError(f"'{name}' has {rows} rows but {len(values)} {what} values")
    _check_missing(schema, features, name)
    _check_domains(schema, features, name)
    _check_target(schema, target, name)


def _check_missing(schema: Schema, features: Any, name: str) -> None:
    values = features.data if sparse.issparse(features) else features
    if values.dtype.kind != "f" or bool(np.isfinite(values).all()):
        return
    if sparse.issparse(features):
        raise DataError(f"'{name}' has {int((~np.isfinite(values)).sum())} missing or infinite values",
                        remedy="drop or fill them first")
    flat = features.reshape(len(features), -1)
    missing = ~np.isfinite(flat)
    column = int(np.flatnonzero(missing.any(axis=0))[0])
    rows = np.flatnonzero(missing[:, column])
    listed = ", ".join(str(row) for row in rows[:3]) + (", ..." if len(rows) > 3 else "")
    raise DataError(f"column '{schema.names[column]}' of '{name}' has {len(rows)} missing or infinite values "
                    f"(rows {listed})", remedy="drop them or set data.missing = 'median'")


def _check_domains(schema: Schema, features: Any, name: str) -> None:
    if sparse.issparse(features) or not any(feature.categorical for feature in schema.features):
        return
    for column, feature in enumerate(schema.features):
        if feature.domain is None or not len(features):
            continue
        codes = features[:, column]
        wrong = np.flatnonzero((codes < 0) | (codes >= len(feature.domain)))
        if len(wrong):
            raise DataError(f"column '{feature.name}' of '{name}' has a category outside its domain at row {wrong[0]}",
                            remedy="add the category to the schema, or clean the value")


def _check_target(schema: Schema, target: NDArray[Any] | None, name: str) -> None:
    kind, classes = schema.target.kind, len(schema.target.names)
    if (target is None) != (kind == "none"):
        raise DataError(f"'{name}': the schema's target kind is '{kind}' but target values are "
                        f"{'absent' if target is None else 'present'}")
    if target is None:
        return
    if kind == "classes" and len(target) and (target.min() < 0 or target.max() >= classes):
        wrong = np.flatnonzero((target < 0) | (target >= classes))
        raise DataError(f"'{name}' has a label that is not in the schema (row {wrong[0]}: {target[wrong[0]]}; "
                        f"{classes} classes are declared)", remedy="add the class to the schema, or drop the row")
    if kind == "multilabel" and (target.ndim != 2 or target.shape[1] != classes):
        raise DataError(f"'{name}': a multi-label target needs shape (rows, {classes}), not {target.shape}")
    if kind == "number" and not np.isfinite(target).all():
        raise DataError(f"'{name}' has missing or infinite target values", remedy="drop those rows")
