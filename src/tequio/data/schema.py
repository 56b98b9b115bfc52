"""What a dataset's columns and target mean."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Literal

from tequio.errors import DataError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TargetKind = Literal["classes", "multilabel", "number", "none"]


@dataclass(frozen=True)
class Feature:
    """A named column: numeric, or categorical when it has a domain. Categories are stored as codes into the domain."""

    name: str
    domain: tuple[str, ...] | None = None

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

    def column(self, name: str) -> int:
        """Position of a feature."""
        if name not in self.names:
            raise DataError(f"there is no column '{name}'", remedy=nearest(name, self.names))
        return self.names.index(name)

    def select(self, columns: Sequence[int], *, with_target: bool = True) -> Schema:
        """The schema of some columns; without the target for a party that does not hold it."""
        target = self.target if with_target else Target("none")
        return Schema(tuple(self.features[column] for column in columns), target)
