"""What a dataset of the catalogue is: facts about it, and a `load` that gives its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset


@dataclass(frozen=True)
class Loaded:
    """The rows to learn from, and the official test rows of sets that have them."""

    train: Dataset
    test: Dataset | None = None


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


class CatalogueDataset(Protocol):
    """A dataset by name."""

    facts: ClassVar[Facts]

    def load(self) -> Loaded:
        """Read it; files are located, checked and, where possible, downloaded first."""
        ...
