"""A party's side of a vertical federation: which of its rows are meant, and its columns as numbers.

What the alignment leaves behind is `CommonRows`. Tasks of vertical algorithms find their rows here only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.data.dataset import Array, Dataset, Target
from tequio.errors import DataError, PayloadError
from tequio.federation.task import Count, record

if TYPE_CHECKING:
    from tequio.federation.population import Party

PARTS = ("train", "validation", "test")
QUERY = "query"
"""The part that holds the rows of a request for predictions."""


class Scale(TypedDict):
    """Mean and standard deviation of a party's numeric columns in its training rows."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]


class CommonRows(TypedDict, total=False):
    """What a party keeps of the alignment.

    rows:   which of its rows are common, in the agreed order
    part:   which of these are for training (0), validation (1) and testing (2)
    scale:  by which its columns are standardised
    """

    rows: NDArray[np.int64]
    part: NDArray[np.uint8]
    scale: Scale


class LabelAnswers(TypedDict, total=False):
    """What the label holder says the labels of its training rows are, drawn once and for all, where it hides them."""

    labels: NDArray[np.integer]


class QueryRows(TypedDict, total=False):
    """Which of a party's rows a request for predictions means, while there is one."""

    rows: NDArray[np.int64]


class KeptScores(TypedDict, total=False):
    """At the label holder: scores of the rows asked about, until they are tallied or handed out."""

    scores: Array


class RowRequest(TypedDict, total=False):
    """Which rows a message means.

    `part` names a part of the common rows, of which `positions` picks some; `features` (and `target`, at the label
    holder) are rows of the coordinator's own that a model is tried on. `step` numbers the batches of a round.
    """

    part: str
    positions: NDArray[np.int64]
    step: int | str
    features: Array
    target: Array


def check_order(order: NDArray[np.int64], rows: int, whose: str) -> None:
    """Refuse an order in which not every one of the rows comes once."""
    if not np.array_equal(np.sort(order, axis=None), np.arange(rows)) or order.ndim != 1:
        raise PayloadError(f"{whose} sent something that is no order of {rows} rows")


class RowCount(TypedDict):
    """A number of rows."""

    rows: Count


@record
class AlignSettings:
    """Whether rows are aligned to train on, or for a request for predictions."""

    query: bool


def keep_common(party: Party, rows: NDArray[np.int64], *, query: bool) -> None:
    """Keep which rows are common, for training or for a request only."""
    if query:
        party.keep(QueryRows, {"rows": rows})
    else:
        party.keep(CommonRows, {"rows": rows})


def common_rows(party: Party, part: str) -> Dataset:
    """The party's columns of the common rows of a part, in the agreed order; for `query`, of the rows asked about.

    Training rows come with the labels that the label holder says they have.
    """
    kept, query = party.recall(CommonRows), party.recall(QueryRows)
    if "rows" not in (query if part == QUERY else kept):
        raise DataError(f"party '{party.name}' does not know which rows are common yet",
                        remedy="align the parties first")
    rows = party.rows.take(query["rows"] if part == QUERY else kept["rows"][kept["part"] == PARTS.index(part)])
    answers = party.recall(LabelAnswers).get("labels") if part == "train" else None
    if answers is None:
        return rows
    said = np.array(rows.source.target)
    said[rows.rows] = answers
    return replace(rows, source=replace(rows.source, target=said))


def asked_rows(party: Party, request: RowRequest) -> Dataset:
    """The rows that a message means."""
    if "features" in request:
        schema = party.rows.schema
        target = request.get("target")
        schema = schema if target is not None else replace(schema, target=Target("none"))
        return Dataset.of(schema, np.asarray(request["features"]), target)
    rows = common_rows(party, request["part"])
    return rows.take(request["positions"]) if "positions" in request else rows


def taken_scores(party: Party) -> Array:
    """The scores that the label holder keeps; it forgets them with this."""
    scores = party.recall(KeptScores)["scores"]
    party.forget(KeptScores)
    return scores


def fit_scale(rows: Dataset) -> Scale:
    """Mean and standard deviation of the numeric columns; constant columns get a deviation of 1."""
    numbers = _numeric(rows)
    deviation = numbers.std(axis=0)
    return {"mean": numbers.mean(axis=0), "deviation": np.where(deviation > 0, deviation, 1.0)}


def design(party: Party, rows: Dataset) -> NDArray[np.float64]:
    """The party's columns as numbers: standardised by its own training rows, categories as one column each."""
    return as_numbers(rows, party.recall(CommonRows)["scale"])


def as_numbers(rows: Dataset, scale: Scale) -> NDArray[np.float64]:
    """Columns as numbers, by a scale."""
    numbers = (_numeric(rows) - scale["mean"]) / scale["deviation"]
    features = np.asarray(rows.features)
    coded = [features[:, column, None] == np.arange(len(feature.domain))
             for column, feature in enumerate(rows.schema.features) if feature.domain is not None]
    return np.concatenate([numbers, *(block.astype(np.float64) for block in coded)], axis=1)


def _numeric(rows: Dataset) -> NDArray[np.float64]:
    columns = [column for column, feature in enumerate(rows.schema.features) if feature.domain is None]
    dense = rows.features.toarray() if rows.is_sparse else np.asarray(rows.features)
    return dense[:, columns].astype(np.float64)
