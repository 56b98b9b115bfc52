"""What a dataset's columns and target mean."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from tequio.errors import DataError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

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
    """The schema as plain JSON, so that a party can hold it in a file."""
    features = [{"name": feature.name} if feature.domain is None else asdict(feature) for feature in schema.features]
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


def save_schema(schema: Schema, path: str | PathLike[str]) -> None:
    """Write a schema file."""
    Path(path).write_text(schema_to_json(schema) + "\n", encoding="utf-8")


def load_schema(path: str | PathLike[str]) -> Schema:
    """Read a schema file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise DataError(f"the schema file '{path}' cannot be read: {cause}", remedy="check data.schema") from cause
    try:
        return schema_from_json(text)
    except DataError as cause:
        raise DataError(f"the schema file '{path}' is not usable: {cause.message}", remedy=cause.remedy) from cause


def _feature_from(item: dict[str, Any]) -> Feature:
    domain = item.get("domain")
    return Feature(str(item["name"]), None if domain is None else tuple(str(value) for value in domain))


def _target_from(item: dict[str, Any]) -> Target:
    kind = item["kind"]
    if kind not in get_args(TargetKind):
        raise DataError(f"there is no target kind '{kind}'", remedy=nearest(str(kind), get_args(TargetKind)))
    return Target(kind, tuple(str(name) for name in item["names"]), str(item["name"]))
