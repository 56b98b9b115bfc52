"""Preparation of rows that are mapped because they do not fit in memory: block by block, to another mapped matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.dataset import Dataset
from tequio.data.mapped import Mapped, row_blocks, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tequio.data.dataset import Index
    from tequio.data.preprocessing.preparation import Preparation, Statistics


def apply_to_all(step: Preparation, statistics: Statistics, wholes: Sequence[Dataset],
                 parts: Sequence[Dataset]) -> tuple[list[Dataset], list[Dataset]]:
    """The prepared wholes and parts. A part of mapped rows becomes a view of what its whole became, not a copy."""
    done = {id(whole): apply(step, whole, statistics) for whole in wholes}
    places = {id(whole): _places(whole) for whole in wholes if is_mapped(whole)}
    for part in parts:
        if id(part) not in done:
            homes = (_view(part, whole, done[id(whole)], places[id(whole)]) for whole in wholes
                     if id(whole) in places and whole.source is part.source)
            done[id(part)] = next((view for view in homes if view is not None), None) or apply(step, part, statistics)
    return [done[id(whole)] for whole in wholes], [done[id(part)] for part in parts]


def apply(step: Preparation, dataset: Dataset, statistics: Statistics) -> Dataset:
    """What the step makes of a dataset; one that is mapped gives one that is mapped."""
    if not is_mapped(dataset) or dataset.columns is not None:
        return step.apply(dataset, statistics)
    first = step.apply(dataset.take(np.empty(0, np.int64)), statistics)
    if first.source is dataset.source:  # only the schema changes
        return step.apply(dataset, statistics)

    blocks = (step.apply(block, statistics).features for block in in_blocks(dataset))
    features = write_rows(blocks, first.source.features.dtype, first.schema.shape)
    source, has_target = dataset.source, first.schema.target.kind != "none"
    return Dataset(first.schema, replace(
        first.source, features=features, target=dataset.target if has_target else None,
        ids=None if source.ids is None and dataset.rows is None else dataset.ids,
        groups=None if source.groups is None else dataset.groups), name=dataset.name, labels=first.labels)


def in_blocks(dataset: Dataset) -> Iterator[Dataset]:
    """The dataset, in views of some of its rows if they are mapped."""
    if not is_mapped(dataset) or not len(dataset):
        yield dataset
        return
    for start, rows in row_blocks(np.broadcast_to(np.int8(0), (len(dataset), *dataset.schema.shape))):
        yield dataset.take(np.arange(start, start + len(rows)))


def is_mapped(dataset: Dataset) -> bool:
    """Whether the dataset's rows lie in a mapped file."""
    return isinstance(dataset.source.features, Mapped)


def _places(whole: Dataset) -> Index | None:
    """Where each row of the source is among the dataset's rows, -1 where it is not; None where all are in order."""
    if whole.rows is None:
        return None
    places = np.full(len(whole.source.features), -1, np.int64)
    places[whole.rows] = np.arange(len(whole))
    return places


def _view(part: Dataset, whole: Dataset, prepared: Dataset, places: Index | None) -> Dataset | None:
    """The part as rows of its prepared whole; None if it is no part of it."""
    if part.rows is None or part.columns is not None or prepared.source is whole.source:
        return None
    rows = part.rows if places is None else places[part.rows]
    if len(rows) and rows.min() < 0:
        return None
    same = part.schema.target is whole.schema.target
    schema = prepared.schema if same else replace(prepared.schema, target=part.schema.target)
    return Dataset(schema, prepared.source, rows, name=part.name, labels=part.labels)
