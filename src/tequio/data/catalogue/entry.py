"""What a dataset of the catalogue is: facts about it, and a `load` that gives its parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset


@dataclass(frozen=True)
class Loaded:
    """The rows to learn from, and the official test rows of sets that have them."""

    train: Dataset
    test: Dataset | None = None

    def whole(self) -> Dataset:
        """All rows, training rows first, for studies that make their own splits."""
        return self.train if self.test is None else joined(self.train, self.test)


YOURS, PARTIES = "yours", "the parties'"
"""Licences of what comes from no catalogue: tables of your own, and those that real parties hold."""


Rows = Dataset | Loaded
"""Rows that are handed over, with test rows of their own or without."""


@dataclass(frozen=True)
class Facts:
    """What `tequio data list` and `describe` say about a set. Counts are None where they depend on parameters.

    `groups` says what the rows' natural groups are; `files` are paths in the manifest, none for embedded sets.
    """

    rows: int | None
    features: int | None
    target: str
    licence: str
    citation: str
    source: str
    test_rows: int = 0
    groups: str = ""
    files: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether it is a table of the user's or of the parties', and not a set that many know."""
        return self.licence in (YOURS, PARTIES)


def joined(first: Dataset, second: Dataset) -> Dataset:
    """The rows of two datasets of one schema; a view where both are views of one source."""
    if first.source is second.source:
        rows = [np.arange(first.source.features.shape[0]) if part.rows is None else part.rows
                for part in (first, second)]
        return replace(first, rows=np.concatenate(rows))
    features = [part.features for part in (first, second)]
    stack = sparse.vstack(features, format="csr") if first.is_sparse else np.concatenate(features)
    has_ids = first.source.ids is not None and second.source.ids is not None
    has_groups = first.source.groups is not None and second.source.groups is not None
    target = None if first.schema.target.kind == "none" else np.concatenate([first.target, second.target])
    return Dataset.of(first.schema, stack, target, name=first.name,
                      ids=np.concatenate([first.ids, second.ids]) if has_ids else None,
                      groups=np.concatenate([first.groups, second.groups]) if has_groups else None,
                      usual=first.source.usual, missing=first.source.missing or second.source.missing,
                      notes=first.source.notes)


@runtime_checkable
class CatalogueDataset(Protocol):
    """A dataset by name."""

    facts: ClassVar[Facts]

    def load(self) -> Loaded:
        """Read it; files are located, checked and, where possible, downloaded first."""
        ...


def facts_of(dataset: object) -> Facts | None:
    """What the catalogue says of a dataset; nothing for one that it does not describe."""
    return dataset.facts if isinstance(dataset, CatalogueDataset) else None
