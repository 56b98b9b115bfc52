"""A table (or a stack of images) with a schema; `take` and `select` give index views of it, not copies."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tequio.data.mapped import row_blocks
from tequio.errors import DataError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike


Array = NDArray[Any]
"""An array of numbers, codes or strings whose type the data decides."""

Index = NDArray[np.integer[Any]]
"""Row or column numbers."""

Matrix = Any
"""Features of many rows: an array, or a SciPy CSR matrix, which have no type in common that knows arithmetic."""

TargetKind = Literal["classes", "multilabel", "number", "none"]

FeatureKind = Literal["number", "category", "ordered", "hashed", "date", "text", "flag"]
"""What the numbers of a feature mean; see `Feature`."""

Gaps = Literal["", "keep", "median"]
"""Features may be NaN: for learners that take them or a step that fills them in, or to be filled in with medians."""

OTHER = "(other)"
"""A category that takes every value that a domain does not list, in domains that have it."""


@dataclass(frozen=True)
class Feature:
    """A named column of numbers, or of codes into a domain of categories.

    A feature of kind `ordered` has its categories in order, `hashed` has buckets of categories that are too many to
    list, `date` counts days since 1970 (`format` is how they are written; ISO 8601 where it is empty), and `text`
    counts the tokens of one bucket in the texts of the column `source`. A `flag` is 1 where something is so, else 0.
    """

    name: str
    domain: tuple[str, ...] | None = None
    kind: FeatureKind = "number"
    source: str = ""
    format: str = ""

    def __post_init__(self) -> None:
        if self.domain is not None and self.kind == "number":
            object.__setattr__(self, "kind", "category")

    @property
    def column(self) -> str:
        """The column of the raw table that it is read from."""
        return self.source or self.name

    @property
    def categorical(self) -> bool:
        """Whether the column holds category codes."""
        return self.domain is not None


@dataclass(frozen=True)
class Target:
    """What is to be predicted. `names` are the classes (or the labels of a multi-label target)."""

    kind: TargetKind
    names: tuple[str, ...] = ()
    name: str = "target"

    @property
    def size(self) -> int:
        """How many outputs a model needs."""
        return max(len(self.names), 1)

    def select(self, labels: Sequence[int]) -> Target:
        """The same target with some of its labels only."""
        return Target(self.kind, tuple(self.names[label] for label in labels), self.name)


@dataclass(frozen=True)
class Schema:
    """The columns, the shape of one row (images are not flat), and the target."""

    features: tuple[Feature, ...]
    target: Target
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.shape:
            object.__setattr__(self, "shape", (len(self.features),))
        if prod(self.shape) != len(self.features):
            raise DataError(f"a row of shape {self.shape} has {prod(self.shape)} values, but the schema names "
                            f"{len(self.features)} features")

    @classmethod
    def of_numbers(cls, names: Iterable[str], target: Target) -> Schema:
        """A flat schema of numeric columns."""
        return cls(tuple(Feature(name) for name in names), target)

    @classmethod
    def of_images(cls, shape: tuple[int, ...], classes: Iterable[str]) -> Schema:
        """A schema of images of shape (channels, height, width)."""
        pixels = tuple(Feature(f"pixel_{index}") for index in range(prod(shape)))
        return cls(pixels, Target("classes", tuple(classes)), shape)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Feature names in column order."""
        return tuple(feature.name for feature in self.features)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the raw table that the features are read from."""
        return tuple(dict.fromkeys(feature.column for feature in self.features))

    def column(self, name: str) -> int:
        """Position of a feature."""
        if name not in self.names:
            raise DataError(f"there is no column '{name}'", remedy=nearest(name, self.names))
        return self.names.index(name)

    def select(self, columns: Sequence[int], *, with_target: bool = True) -> Schema:
        """The schema of some columns; without the target for a party that does not hold it."""
        target = self.target if with_target else Target("none")
        return Schema(tuple(self.features[column] for column in columns), target)


def schema_to_json(schema: Schema) -> str:
    """The schema as plain JSON, as it crosses links and lies in models. Files to share: `data.sharing`."""
    features = [_feature_facts(feature) for feature in schema.features]
    document = {"features": features, "target": asdict(schema.target), "shape": schema.shape}
    return json.dumps(document, indent=1, ensure_ascii=False)


def schema_from_json(text: str) -> Schema:
    """The schema back from JSON; anything that is not a whole schema is refused."""
    try:
        document = json.loads(text)
        features = tuple(_feature_from(item) for item in document["features"])
        return Schema(features, _target_from(document["target"]), tuple(int(size) for size in document["shape"]))
    except (KeyError, TypeError, ValueError) as cause:
        raise DataError(f"this is not a schema: {cause!r}", remedy="write one with schema_to_json") from cause


def _feature_facts(feature: Feature) -> dict[str, Any]:
    implied = "number" if feature.domain is None else "category"
    facts: dict[str, Any] = {"name": feature.name}
    facts |= {} if feature.domain is None else {"domain": feature.domain}
    facts |= {} if feature.kind == implied else {"kind": feature.kind}
    facts |= {"source": feature.source} if feature.source else {}
    return facts | ({"format": feature.format} if feature.format else {})


def _feature_from(item: dict[str, Any]) -> Feature:
    domain, kind = item.get("domain"), item.get("kind", "number")
    if kind not in get_args(FeatureKind):
        raise DataError(f"there is no kind of column '{kind}'", remedy=nearest(str(kind), get_args(FeatureKind)))
    return Feature(str(item["name"]), None if domain is None else tuple(str(value) for value in domain), kind,
                   str(item.get("source", "")), str(item.get("format", "")))


def _target_from(item: dict[str, Any]) -> Target:
    kind = item["kind"]
    if kind not in get_args(TargetKind):
        raise DataError(f"there is no target kind '{kind}'", remedy=nearest(str(kind), get_args(TargetKind)))
    return Target(kind, tuple(str(name) for name in item["names"]), str(item["name"]))


@dataclass(frozen=True, eq=False)
class Source:
    """The arrays that all views of one dataset share. Read-only by convention; may be memory-mapped or sparse.

    `usual` is what missing values of a column were filled in with, by the column's name. `missing` says what
    is to be done about features that are NaN (nothing: there are none), `notes` what was done with columns, and
    `left_out` which columns of the table are not learned from.
    """

    features: Matrix
    target: Array | None = None
    ids: Array | None = None
    groups: Array | None = None
    usual: Mapping[str, float | str] = field(default_factory=dict)
    missing: Gaps = ""
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


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
    rows: Index | None = field(default=None, repr=False)
    columns: Index | None = field(default=None, repr=False)
    name: str = "data"
    labels: Index | None = field(default=None, repr=False)

    @classmethod
    def of(cls, schema: Schema, features: Matrix, target: ArrayLike | None = None, *, ids: ArrayLike | None = None,
           groups: ArrayLike | None = None, name: str = "data", usual: Mapping[str, float | str] | None = None,
           missing: Gaps = "", notes: Sequence[str] = ()) -> Dataset:
        """Check arrays against a schema and wrap them. Features are NaN only where `missing` says so."""
        if not isinstance(features, np.ndarray):  # those that are mapped stay so
            features = features.tocsr() if sparse.issparse(features) else np.asarray(features)
        arrays = [None if values is None else np.asarray(values) for values in (target, ids, groups)]
        _check(schema, features, arrays[0], arrays[1], arrays[2], name, bool(missing))
        return cls(schema, Source(features, arrays[0], arrays[1], arrays[2], usual or {}, missing, tuple(notes)),
                   name=name)

    def __len__(self) -> int:
        return self.source.features.shape[0] if self.rows is None else len(self.rows)

    @property
    def features(self) -> Matrix:
        """The rows' features, gathered: (rows, *shape)."""
        gathered = self.source.features if self.rows is None else self.source.features[self.rows]
        return gathered if self.columns is None else gathered[:, self.columns]

    @property
    def target(self) -> Array:
        """The rows' target; an error where this view does not hold it."""
        if self.source.target is None or self.schema.target.kind == "none":
            raise DataError(f"'{self.name}' holds no target here", remedy="ask the party that holds the labels")
        target = self._gather(self.source.target)
        return target if self.labels is None else target[:, self.labels]

    @property
    def ids(self) -> Array:
        """Row ids; row numbers of the source where the data has none."""
        if self.source.ids is None:
            return np.arange(self.source.features.shape[0]) if self.rows is None else np.asarray(self.rows)
        return self._gather(self.source.ids)

    @property
    def groups(self) -> Array:
        """Whose row it is, for natural partitions."""
        if self.source.groups is None:
            raise DataError(f"'{self.name}' does not say whose row is whose", remedy="name the column that does: "
                            "data.group = \"COLUMN\"; or set data.partition = \"iid\"")
        return self._gather(self.source.groups)

    @property
    def has_missing(self) -> bool:
        """Whether features may be NaN: what is missing stays so until a preparation fills it in."""
        return bool(self.source.missing)

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

    def read(self, order: Index, out: Array) -> None:
        """Gather features in an order straight into `out`, without an intermediate copy."""
        self.reader(out.dtype)(order, out)

    def reader(self, dtype: np.dtype[np.generic]) -> Callable[[Index, Array], None]:
        """What `read` does for an `out` of that type, as a function to call again and again."""
        features, rows = self.source.features, self.rows
        if self.columns is not None or self.is_sparse or features.dtype != dtype:
            return self._read_converted

        def read(order: Index, out: Array) -> None:
            features.take(order if rows is None else rows[order], 0, out, "clip")

        return read

    def _read_converted(self, order: Index, out: Array) -> None:
        features = self.take(order).features
        out[...] = features.toarray() if self.is_sparse else features

    def without_target(self) -> Dataset:
        """The same rows, for a party that does not hold the target."""
        return replace(self, schema=replace(self.schema, target=Target("none")))

    def _gather(self, values: Array) -> Array:
        return values if self.rows is None else values[self.rows]


def _check(schema: Schema, features: Matrix, target: Array | None, ids: Array | None,
           groups: Array | None, name: str, missing: bool) -> None:
    rows = features.shape[0]
    if tuple(features.shape[1:]) != schema.shape:
        raise DataError(f"'{name}' has rows of shape {tuple(features.shape[1:])}, its schema says {schema.shape}")
    for what, values in (("target", target), ("ids", ids), ("groups", groups)):
        if values is not None and len(values) != rows:
            raise DataError(f"'{name}' has {rows} rows but {len(values)} {what} values")
    _check_missing(schema, features, name, missing)
    _check_domains(schema, features, name)
    _check_target(schema, target, name)


def _check_missing(schema: Schema, features: Matrix, name: str, allowed: bool) -> None:
    values = features.data if sparse.issparse(features) else features
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # A finite sum has finite terms, and is much quicker than to look at each of them.
        if all(np.isfinite(block.sum()) or bool(np.isfinite(block).all()) for _, block in row_blocks(values)):
            return
    if sparse.issparse(features):
        raise DataError(f"'{name}' has {int((~np.isfinite(values)).sum())} missing or infinite values",
                        remedy="drop or fill them first")
    wrong = [(start, np.isinf(block) if allowed else ~np.isfinite(block)) for start, block in row_blocks(features)]
    columns = np.logical_or.reduce([block.any(axis=0).ravel() for _, block in wrong])
    if not columns.any():
        return
    column = int(np.flatnonzero(columns)[0])
    rows = np.concatenate([start + np.flatnonzero(block.reshape(len(block), -1)[:, column]) for start, block in wrong])
    listed = ", ".join(str(row) for row in rows[:3]) + (", ..." if len(rows) > 3 else "")
    raise DataError(f"column '{schema.names[column]}' of '{name}' has {len(rows)} "
                    f"{'infinite' if allowed else 'missing or infinite'} value{'s' * (len(rows) > 1)} (row"
                    f"{'s' * (len(rows) > 1)} {listed})",
                    column=schema.names[column], remedy="take infinite ones for missing values (data.mapping.missing = "
                    "[\"inf\", \"-inf\"]), and fill them in (data.missing = 'median')")


def _check_domains(schema: Schema, features: Matrix, name: str) -> None:
    if sparse.issparse(features) or not any(feature.categorical for feature in schema.features):
        return
    domains = {column: feature.domain for column, feature in enumerate(schema.features) if feature.domain is not None}
    for start, block in row_blocks(features):
        for column, domain in domains.items():
            codes = block[:, column]
            wrong = np.flatnonzero((codes < 0) | (codes >= len(domain)))
            if len(wrong):
                raise DataError(f"column '{schema.names[column]}' of '{name}' has a category outside its domain at row "
                                f"{start + wrong[0]}", remedy="add the category to the schema, or clean the value",
                                column=schema.names[column])


def _check_target(schema: Schema, target: Array | None, name: str) -> None:
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
