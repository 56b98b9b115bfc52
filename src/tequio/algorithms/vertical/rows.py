"""A party's side of a vertical federation: which of its rows are meant, and its columns as numbers.

After the alignment a party's state holds `rows` (which of its rows are common, in the agreed order), `part` (which of
these are for training, validation and testing) and `scale`. Tasks of vertical algorithms find their rows here only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.dataset import Dataset
from tequio.data.schema import Target
from tequio.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

PARTS = ("train", "validation", "test")
QUERY = "query"
"""The part that holds the rows of a request for predictions."""


def common_rows(party: Party, part: str) -> Dataset:
    """The party's columns of the common rows of a part, in the agreed order; for `query`, of the rows asked about."""
    name = QUERY if part == QUERY else "rows"
    if name not in party.state:
        raise DataError(f"party '{party.name}' does not know which rows are common yet",
                        remedy="align the parties first")
    kept: NDArray[np.int64] = party.state[name]
    if part != QUERY:
        kept = kept[party.state["part"] == PARTS.index(part)]
    return party.rows.take(kept)


def asked_rows(party: Party, payload: Payload) -> Dataset:
    """The rows that a payload means.

    `part` names a part of the common rows, of which `positions` picks some; `features` (and `target`, at the label
    holder) are rows of the coordinator's own that a model is tried on.
    """
    if "features" in payload:
        schema = party.rows.schema
        target = payload.get("target")
        schema = schema if target is not None else replace(schema, target=Target("none"))
        return Dataset.of(schema, np.asarray(payload["features"]), target)
    rows = common_rows(party, payload["part"])
    return rows.take(payload["positions"]) if "positions" in payload else rows


def fit_scale(rows: Dataset) -> dict[str, NDArray[np.float64]]:
    """Mean and standard deviation of the party's numeric columns, to be kept in its state; constant columns keep 1."""
    numbers = _numeric(rows)
    deviation = numbers.std(axis=0)
    return {"mean": numbers.mean(axis=0), "deviation": np.where(deviation > 0, deviation, 1.0)}


def design(party: Party, rows: Dataset) -> NDArray[np.float64]:
    """The party's columns as numbers: standardised by its own training rows, categories as one column each."""
    scale = party.state["scale"]
    numbers = (_numeric(rows) - scale["mean"]) / scale["deviation"]
    features = np.asarray(rows.features)
    coded = [features[:, column, None] == np.arange(len(feature.domain))
             for column, feature in enumerate(rows.schema.features) if feature.domain is not None]
    return np.concatenate([numbers, *(block.astype(np.float64) for block in coded)], axis=1)


def design_names(party: Party) -> list[str]:
    """What the columns of `design` are called."""
    features = party.rows.schema.features
    return [feature.name for feature in features if feature.domain is None] + [
        f"{feature.name}={value}" for feature in features for value in feature.domain or ()]


def _numeric(rows: Dataset) -> NDArray[np.float64]:
    columns = [column for column, feature in enumerate(rows.schema.features) if feature.domain is None]
    features: Any = rows.features
    dense = features.toarray() if rows.is_sparse else np.asarray(features)
    return dense[:, columns].astype(np.float64)
