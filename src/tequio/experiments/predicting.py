"""Predictions of a vertical run for new rows: every party brings its columns, and the one that asks gets the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.dataset import Dataset
from tequio.data.inputs.read import read
from tequio.data.schema import Target
from tequio.errors import DataError
from tequio.experiments.config import load_config
from tequio.experiments.replaying import replayed
from tequio.experiments.scenario import make_scenario
from tequio.experiments.store import CONFIG, find_folder
from tequio.experiments.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


def predict(run: str | Path, data: Any, *, id: str | None = None, ids: Sequence[Any] = (), ask: str = "") -> Table:
    """What the model of a run says of new rows: one line each with its id, the prediction, and how sure it is.

    `data` is a file or an object with the columns of all parties, of which each gets its own; `id` names the column
    that identifies rows (default: as in the run). `ids` picks some of them. `ask` names the party that asks, which
    alone is told the answer; by default the label holder. Every party is needed: who does not answer is named.
    """
    folder = find_folder(run)
    config = load_config(folder / CONFIG)
    schema = make_scenario(config).population.schema
    named = id or config.data.parameters.get("id")
    rows = data if isinstance(data, Dataset) else read(
        data, id=named, target_kind="none", schema=replace(schema, target=Target("none")))
    rows = _with_target(_picked(rows, ids), schema.target)
    with replayed(folder, fresh=rows) as again:
        asking = again.federation.index(ask) if ask else None
        found = again.algorithm.predict(again.federation, again.state, asking)
    return _table(rows.ids[found["rows"]], found["scores"], schema.target)


def _picked(rows: Dataset, ids: Sequence[Any]) -> Dataset:
    if not ids:
        return rows
    places = {str(value): place for place, value in enumerate(rows.ids.tolist())}
    unknown = sum(str(value) not in places for value in ids)
    if unknown:
        raise DataError(f"{unknown} of the {len(ids)} ids asked about are not in the new rows",
                        remedy="check the column that `id` names")
    return rows.take(np.array([places[str(value)] for value in ids], dtype=np.int64))


def _with_target(rows: Dataset, target: Target) -> Dataset:
    """The rows with a target of noughts, which nobody looks at: a label holder's table has a column for it."""
    shape = (len(rows), len(target.names)) if target.kind == "multilabel" else (len(rows),)
    kind = np.float64 if target.kind == "number" else np.int64
    return Dataset.of(replace(rows.schema, target=target), rows.features, np.zeros(shape, kind), ids=rows.ids,
                      name=rows.name)


def _table(ids: NDArray[Any], scores: NDArray[Any], target: Target) -> Table:
    table = Table()
    for identity, score in zip(ids.tolist(), scores, strict=True):
        if target.kind == "number":
            table.add({"id": identity, "prediction": float(score)})
        elif target.kind == "classes":
            best = int(np.argmax(score))
            table.add({"id": identity, "prediction": target.names[best], "probability": float(score[best])})
        else:
            table.add({"id": identity} | dict(zip(target.names, map(float, score), strict=True)))
    return table
