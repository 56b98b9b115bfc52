"""How raw rows become what a model is asked about: their columns, their types, usual values, and their preparation."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset, Schema, Source, schema_from_json, schema_to_json
from tequio.data.mapped import row_blocks
from tequio.data.preprocessing import Fitted
from tequio.data.preprocessing.filling import Impute
from tequio.data.preprocessing.preparation import numeric_columns
from tequio.data.preprocessing.scaling import Log1p, MinMax, Standardise
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.dataset import Array, Gaps, Matrix


@dataclass(frozen=True)
class Reading:
    """How raw rows become what a model is asked about.

    `schema` is that of raw rows, `usual` the most common value of a column where it is known, `filled` are the columns
    whose missing values were filled in with it, `own` is the preparation of parties that prepared their rows apart.
    Where `missing` says so, values may be missing in raw rows. `unused` columns may be left out: who answers does not
    look at them.
    """

    schema: Schema
    dtype: str = "float64"
    sparse: bool = False
    usual: Mapping[str, float | str] = field(default_factory=dict)
    filled: frozenset[str] = frozenset()
    preparation: Fitted = field(default_factory=Fitted)
    own: Mapping[str, Fitted] = field(default_factory=dict)
    missing: Gaps = ""
    unused: frozenset[str] = frozenset()
    _schemas: dict[tuple[str, str], Schema] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, dataset: Dataset, preparation: Fitted | None = None,
           own: Mapping[str, Fitted] | None = None) -> Reading:
        """How rows like those of a dataset are read."""
        features = dataset.source.features
        usual = {**_most_frequent(dataset), **dataset.source.usual}
        return cls(dataset.schema, str(features.dtype), dataset.is_sparse, usual, frozenset(dataset.source.usual),
                   preparation or Fitted(), own or {}, dataset.source.missing)

    def prepared(self, rows: Dataset, party: str = "") -> Dataset:
        """Raw rows as the model wants them: as the coordinator prepared its own, or as a party did."""
        done = self.own.get(party, self.preparation).apply(rows)
        # Learners keep what they build for a schema by its identity, so equal ones have to be the same one.
        schema = self._schemas.setdefault((party, rows.schema.target.kind), done.schema)
        return done if done.schema is schema else replace(done, schema=schema)

    @property
    def prepared_schema(self) -> Schema:
        """What the columns are after the preparation."""
        return self.prepared(self.rows_of(np.zeros((0, *self.schema.shape), self.dtype))).schema

    def rows_of(self, features: Matrix, target: Array | None = None) -> Dataset:
        """Raw rows from a matrix in the schema's order; without a target they get one that nobody looks at."""
        wanted = self.schema.target
        if target is None and wanted.kind != "none":
            target = np.zeros((features.shape[0], wanted.size) if wanted.kind == "multilabel" else features.shape[0],
                              np.int64)
        dense = features.toarray() if sparse.issparse(features) and not self.sparse else features
        # The values are known to be sound here, so they are not checked once more.
        source = Source(dense.astype(self.dtype, copy=False), target, missing=self.missing)
        return Dataset(self.schema, source, name="rows")

    def usual_value(self, name: str) -> float | str:
        """What stands in for a value of a column that cannot be used."""
        if name in self.usual:
            return self.usual[name]
        rows = self.rows_of(np.zeros((0, *self.schema.shape), self.dtype))
        for step, fitted in zip(self.preparation.steps, self.preparation.statistics, strict=True):
            numbers = [rows.schema.names[column] for column in numeric_columns(rows.schema)]
            if name in numbers and isinstance(step, Standardise):
                return float(fitted["mean"][numbers.index(name)])
            if name in numbers and isinstance(step, Impute):
                every = [feature.name for feature in rows.schema.features if not feature.categorical]
                return float(fitted["fill"][every.index(name)])
            if name in numbers and isinstance(step, Log1p | MinMax):
                break  # what comes after it are other numbers
            rows = step.apply(rows, fitted)
        raise DataError(f"the model knows no usual value of column '{name}'", remedy="fill it in yourself, or leave "
                        "such rows out: --unseen skip", column=name)

    def to_payload(self) -> dict[str, Any]:
        """As plain data and arrays."""
        return {"schema": json.loads(schema_to_json(self.schema)), "dtype": self.dtype, "sparse": self.sparse,
                "usual": dict(self.usual), "filled": sorted(self.filled), "preparation": self.preparation.to_payload(),
                "own": {name: fitted.to_payload() for name, fitted in self.own.items()}, "missing": self.missing}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Reading:
        """Back from plain data."""
        own = {name: Fitted.from_payload(fitted) for name, fitted in payload["own"].items()}
        return cls(schema_from_json(json.dumps(payload["schema"])), payload["dtype"], payload["sparse"],
                   payload["usual"], frozenset(payload["filled"]), Fitted.from_payload(payload["preparation"]), own,
                   payload["missing"])


def _most_frequent(dataset: Dataset) -> dict[str, float | str]:
    """The most frequent category of each column of categories, the first among equals."""
    if dataset.is_sparse or len(dataset.schema.shape) > 1 or not len(dataset):
        return {}
    found: dict[str, float | str] = {}
    for place, feature in enumerate(dataset.schema.features):
        if feature.domain is not None:
            codes = (block[:, place] for _, block in row_blocks(dataset.source.features))
            counts = sum(np.bincount(own[own >= 0].astype(np.int64), minlength=len(feature.domain)) for own in codes)
            found[feature.name] = feature.domain[int(np.argmax(counts))]
    return found
