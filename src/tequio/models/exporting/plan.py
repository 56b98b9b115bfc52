"""A fitted preparation as a few operations on whole tables, from which other formats are written.

Every operation works on all columns at once, (rows, columns), in the type that the model reads rows in. A plan gives
what `Reading.prepared` gives, bit for bit; a test compares.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.dataset import Feature
from tequio.data.preprocessing import Fitted
from tequio.data.preprocessing.categories import Discretise, Drop, OneHot, Ordinal, Regroup
from tequio.data.preprocessing.filling import Impute
from tequio.data.preprocessing.preparation import numeric_columns
from tequio.data.preprocessing.scaling import Log1p, MinMax, Standardise
from tequio.errors import ConfigError, listed
from tequio.registry import name_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset, Schema
    from tequio.data.preprocessing import Preparation, Statistics
    from tequio.models.rows import Reading

    Numbers = NDArray[np.float64]
    Which = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Scale:
    """(x - shift) / scale; `sparse` rows are multiplied by 1 / scale instead, as they are never shifted."""

    shift: Numbers
    scale: Numbers
    sparse: bool = False

    def apply(self, rows: Array) -> Array:
        """The rows scaled."""
        if self.sparse:
            return np.asarray(rows * (1 / self.scale)).astype(rows.dtype)
        return np.asarray((rows - self.shift.astype(rows.dtype)) / self.scale.astype(rows.dtype))


@dataclass(frozen=True, eq=False)
class Log:
    """log(1 + x) of some columns; minus infinity where x is -1 or less, which the preparation refuses."""

    which: Which

    def apply(self, rows: Array) -> Array:
        """The rows with the logarithms."""
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.where(rows > -1, np.log1p(rows), -np.inf).astype(rows.dtype)
        return np.where(self.which, logs, rows)


@dataclass(frozen=True, eq=False)
class Cut:
    """How many of a column's points lie below x, for some columns; points (columns, most) are filled up by infinity."""

    which: Which
    points: Numbers

    def apply(self, rows: Array) -> Array:
        """The rows with codes of intervals."""
        codes = (rows[:, :, None] > self.points).sum(axis=2).astype(rows.dtype)
        return np.where(self.which, codes, rows)


@dataclass(frozen=True, eq=False)
class Recode:
    """New codes (columns, most) of old ones, for some columns."""

    which: Which
    codes: Numbers

    def apply(self, rows: Array) -> Array:
        """The rows with new codes."""
        places = np.where(self.which, rows, 0).astype(np.int64)
        return np.where(self.which, self.codes[np.arange(rows.shape[1]), places].astype(rows.dtype), rows)


@dataclass(frozen=True, eq=False)
class Spread:
    """New columns from old ones: `source` as it is, or whether it has the `category` (-1: as it is)."""

    source: NDArray[np.int64]
    category: NDArray[np.int64]

    def apply(self, rows: Array) -> Array:
        """The new columns."""
        taken = rows[:, self.source]
        return np.where(self.category < 0, taken, taken == self.category).astype(rows.dtype)


Operation = Scale | Log | Cut | Recode | Spread


@dataclass(frozen=True, eq=False)
class Plan:
    """What becomes of raw rows: the operations in order, and the schemas before and after them."""

    reading: Reading
    schema: Schema
    operations: tuple[Operation, ...] = field(repr=False)

    @property
    def raw(self) -> Schema:
        """The schema of raw rows, and behind their columns those that say what was missing."""
        return self.reading.schema

    def refuse_hashed(self, form: str) -> None:
        """Refuse columns whose values other programs could not read as tequio does."""
        for feature in self.raw.features:
            if feature.kind in ("text", "hashed", "date"):
                what = "dates" if feature.kind == "date" else "hashed texts"
                raise ConfigError(f"column '{feature.column}' holds {what}, which {form} cannot read",
                                  remedy="use tequio predict, or train without it: "
                                         f"data.ignore = {listed(feature.column)}")

    def apply(self, raw: Array, steps: int | None = None) -> Array:
        """Rows (rows, columns) after all operations, or after the first `steps` of them."""
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers that no row has, which a bound is sought among
            rows = raw.astype(self.reading.dtype)
            for operation in self.operations[:steps]:
                rows = operation.apply(rows)
        return rows

    def to_plain(self) -> list[dict[str, object]]:
        """The operations as JSON knows them; infinity is null."""
        return [{"operation": type(operation).__name__.lower(), **{name: _plain(value) for name, value
                 in vars(operation).items()}} for operation in self.operations]


def plan_of(reading: Reading, party: str = "") -> Plan:
    """The plan of a model's preparation, or of a party's own. Values that it fills in are filled in raw rows."""
    reading = _without_gaps(reading, party)
    fitted = reading.preparation
    rows = reading.rows_of(np.zeros((0, *reading.schema.shape), reading.dtype))
    operations: list[Operation] = []
    for step, statistics in zip(fitted.steps, fitted.statistics, strict=True):
        operations += _operations(step, statistics, rows, reading.sparse)
        rows = step.apply(rows, statistics)
    if operations and np.dtype(reading.dtype).kind != "f":
        raise ConfigError(f"the model reads rows as {reading.dtype}, and its preparation gives no fractions then",
                          remedy="train it on rows of floating-point numbers")
    return Plan(reading, rows.schema, tuple(operations))


def _without_gaps(reading: Reading, party: str) -> Reading:
    """The same reading with one preparation, without its step `impute`: what that fills in is the usual value of a raw
    column, and the columns that say what was missing stand behind the raw ones."""
    fitted = reading.own.get(party, reading.preparation)
    place = next((place for place, step in enumerate(fitted.steps) if isinstance(step, Impute)), None)
    if place is None or not all(isinstance(step, Ordinal) for step in fitted.steps[:place]):
        return replace(reading, preparation=fitted, own={})
    rows = Fitted(fitted.steps[:place], fitted.statistics[:place]).apply(
        reading.rows_of(np.zeros((0, *reading.schema.shape), reading.dtype)))
    step, found = fitted.steps[place], fitted.statistics[place]
    after = step.apply(replace(rows, source=replace(rows.source, missing="keep")), found).schema.features
    fills = iter(found["fill"].tolist()), iter(found["frequent"].tolist())
    usual, features = dict(reading.usual), list(reading.schema.features)
    for column, feature in enumerate(rows.schema.features):
        value, raw = next(fills[feature.domain is not None]), features[column]
        if feature.domain is not None:
            features[column] = raw = after[column]
        usual[raw.name] = value if raw.domain is None else raw.domain[int(value)]
    flags = [Feature(flag.name, kind="flag", source=flag.name.removesuffix(" missing"))
             for flag in after[len(features):]]
    schema = replace(reading.schema, features=(*features, *flags), shape=() if flags else reading.schema.shape)
    rest = Fitted(fitted.steps[:place] + fitted.steps[place + 1:],
                  fitted.statistics[:place] + fitted.statistics[place + 1:])
    return replace(reading, schema=schema, usual=usual, filled=frozenset(raw.name for raw in features), missing="",
                   preparation=rest, own={}, _schemas={})


def _operations(step: Preparation, statistics: Statistics, rows: Dataset, sparse: bool) -> list[Operation]:
    schema = rows.schema
    count = len(schema.features)
    numbers = numeric_columns(schema)
    which = np.isin(np.arange(count), numbers)
    if isinstance(step, Standardise | MinMax):
        shift, scale = (statistics["mean"], statistics["scale"]) if isinstance(step, Standardise) else \
            _range(statistics, sparse)
        whole = Scale(np.zeros(count), np.ones(count), sparse)
        whole.shift[numbers], whole.scale[numbers] = 0.0 if sparse else shift, scale
        return [whole]
    if isinstance(step, Log1p):
        return [Log(which)]
    if isinstance(step, Discretise):
        found = dict(step.points_of(rows, statistics))
        points = np.full((count, max(map(len, found.values()), default=0)), np.inf)
        for column, own in found.items():
            points[column, :len(own)] = own
        return [Cut(np.isin(np.arange(count), list(found)), points)]
    if isinstance(step, Regroup):
        tables = {schema.column(name): step.regrouped(schema.features[schema.column(name)], groups)[1]
                  for name, groups in step.groups.items()}
        codes = np.zeros((count, max(map(len, tables.values()), default=1)))
        for column, table in tables.items():
            codes[column, :len(table)] = table
        return [Recode(np.isin(np.arange(count), list(tables)), codes)] if tables else []
    if isinstance(step, OneHot):
        pairs = [(column, category) for column, feature in enumerate(schema.features)
                 for category in ([-1] if feature.domain is None else range(len(feature.domain)))]
        return [] if all(category < 0 for _, category in pairs) else [Spread(*np.array(pairs, dtype=np.int64).T)]
    if isinstance(step, Drop):
        gone = {schema.column(name) for name in step.columns}
        kept = np.array([column for column in range(count) if column not in gone], dtype=np.int64)
        return [Spread(kept, np.full(len(kept), -1))]
    if isinstance(step, Ordinal):
        return []
    raise ConfigError(f"the step '{name_of(type(step))}' of data.prepare cannot be exported" + (
        " behind others" if isinstance(step, Impute) else ""), remedy="use tequio predict, or train without it")


def _range(statistics: Statistics, sparse: bool) -> tuple[Numbers, Numbers]:
    known = np.isfinite(statistics["low"])
    low, high = np.where(known, statistics["low"], 0), np.where(known, statistics["high"], 0)
    width = np.maximum(np.abs(low), np.abs(high)) if sparse else high - low
    return low, np.where(width > 0, width, 1)


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return np.where(np.isinf(value), np.array(None), value).tolist()
    return value
