"""Files of your own, a made-up set, and what real parties behind a network hold, as datasets that a config can name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Interval

from tequio.data.catalogue.entry import Facts, Loaded
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.inputs import read
from tequio.errors import ConfigError
from tequio.registry import register

_YOURS = "yours"


@register("dataset", "csv", example='[data]\nname = "csv"\npath = "hospital.csv"\ntarget = "risk"\n')
@dataclass(frozen=True)
class Csv:
    """A table of your own in a CSV file (comma, semicolon or tab; may be gzipped).

    Parameters:
        path: the file; its first line names the columns
        target: the column to predict; several make a multi-label target, none is for clustering
        target_kind: classes, number, multilabel or none; auto decides by the column's values
        id: column that identifies a row across parties
        group: column that says whose row it is, for natural partitions
        missing: error, drop, median (numbers; most frequent category) or category ('?' is a category)
        categorical: columns of numbers that are really codes of categories
        schema_path: a schema file that the table has to follow
        test_path: a second file of the same columns with the test rows
    """

    facts: ClassVar[Facts] = Facts(None, None, "as you say", _YOURS, "", "a CSV file")
    path: str
    target: str | list[str] | None = None
    target_kind: Literal["auto", "classes", "multilabel", "number", "none"] = "auto"
    id: str | None = None
    group: str | None = None
    missing: Literal["error", "drop", "median", "category"] = "error"
    categorical: list[str] | None = None
    schema_path: str | None = None
    test_path: str | None = None

    def load(self) -> Loaded:
        """The file's rows; test rows have to follow the schema of the training rows."""
        return _load_files(self)


@register("dataset", "parquet", example='[data]\nname = "parquet"\npath = "hospital.parquet"\ntarget = "risk"\n')
@dataclass(frozen=True)
class Parquet:
    """A table of your own in a Parquet file.

    Parameters:
        path: the file
        target: the column to predict; several make a multi-label target, none is for clustering
        target_kind: classes, number, multilabel or none; auto decides by the column's values
        id: column that identifies a row across parties
        group: column that says whose row it is, for natural partitions
        missing: error, drop, median (numbers; most frequent category) or category ('?' is a category)
        categorical: columns of numbers that are really codes of categories
        schema_path: a schema file that the table has to follow
        test_path: a second file of the same columns with the test rows
    """

    facts: ClassVar[Facts] = Facts(None, None, "as you say", _YOURS, "", "a Parquet file")
    path: str
    target: str | list[str] | None = None
    target_kind: Literal["auto", "classes", "multilabel", "number", "none"] = "auto"
    id: str | None = None
    group: str | None = None
    missing: Literal["error", "drop", "median", "category"] = "error"
    categorical: list[str] | None = None
    schema_path: str | None = None
    test_path: str | None = None

    def load(self) -> Loaded:
        """The file's rows; test rows have to follow the schema of the training rows."""
        return _load_files(self)


@register("dataset", "synthetic")
@dataclass(frozen=True)
class Synthetic:
    """Made-up rows around one random centre a class, for benchmarks and examples; not real data.

    Parameters:
        rows: how many rows
        features: how many numeric columns
        classes: how many classes, equally frequent
        noise: share of rows whose label is drawn at random
        spread: distance of the centres from the origin, in standard deviations of a class
        seed: the same seed gives the same rows
    """

    facts: ClassVar[Facts] = Facts(None, None, "classes", "Apache-2.0", "", "synthetic: drawn at random, not real data")
    rows: Annotated[int, Ge(1)] = 1000
    features: Annotated[int, Ge(1)] = 20
    classes: Annotated[int, Ge(2)] = 2
    noise: Annotated[float, Interval(ge=0, le=1)] = 0.0
    spread: Annotated[float, Ge(0)] = 2.0
    seed: Annotated[int, Ge(0)] = 0

    def load(self) -> Loaded:
        """All rows."""
        if self.rows < self.classes:
            raise ConfigError(f"{self.rows} rows cannot have {self.classes} classes", remedy="ask for more rows")
        rng = np.random.default_rng(self.seed)
        centres = rng.standard_normal((self.classes, self.features))
        centres *= self.spread / np.linalg.norm(centres, axis=1, keepdims=True)
        labels = rng.permutation(np.arange(self.rows) % self.classes)
        values = rng.standard_normal((self.rows, self.features), dtype=np.float32)
        values += centres.astype(np.float32)[labels]
        wrong = rng.random(self.rows) < self.noise
        labels[wrong] = rng.integers(self.classes, size=int(wrong.sum()))
        schema = Schema.of_numbers((f"x{column}" for column in range(self.features)),
                                   Target("classes", tuple(str(label) for label in range(self.classes)), "class"))
        return Loaded(Dataset.of(schema, values, labels, name="synthetic"))


def _load_files(files: Csv | Parquet) -> Loaded:
    train = read(files.path, target=files.target, target_kind=files.target_kind, id=files.id, group=files.group,
                 missing=files.missing, categorical=files.categorical, schema=files.schema_path)
    if files.test_path is None:
        return Loaded(train)
    return Loaded(train, read(files.test_path, target=files.target, target_kind=files.target_kind, id=files.id,
                              group=files.group, missing=files.missing, schema=train.schema))


@register("dataset", "parties", example='[data]\nname = "parties"\nparties = ["north", "south", "east"]\n')
@dataclass(frozen=True)
class Elsewhere:
    """What real parties hold, which the coordinator never sees; only with `tequio coordinator run`.

    Parameters:
        parties: the names of those that take part, in this order (none: all that are connected when the run starts)
        minimum: how many have to be connected before the run starts, where no names are given
        columns: they hold different columns of the same rows, matched by their ids, and not different rows
        test_path: a CSV file with rows of the coordinator's own to report on; it has to follow the parties' schema
    """

    facts: ClassVar[Facts] = Facts(None, None, "as the parties say", "the parties'", "", "real parties")
    parties: list[str] = field(default_factory=list)
    minimum: Annotated[int, Ge(1)] = 2
    columns: bool = False
    test_path: str | None = None

    def load(self) -> Loaded:
        """There is nothing to load."""
        raise ConfigError("the rows of these parties are with the parties", remedy="run it where they dial in: "
                                                                                   "tequio coordinator run FILE.toml")
