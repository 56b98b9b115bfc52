"""Files of your own, a made-up set, and what real parties behind a network hold, as datasets that a config can name."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Interval

from tequio.data.catalogue.entry import PARTIES, YOURS, Facts, Loaded
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.inputs import read
from tequio.data.inputs.column import Missing  # noqa: TC001 - parameters are checked by their types
from tequio.data.inputs.kinds import MINIMUM_COUNT
from tequio.data.inputs.shapes import Table  # noqa: TC001 - parameters are checked by their types
from tequio.data.inputs.tables import require_file
from tequio.errors import ConfigError
from tequio.registry import register


@dataclass(frozen=True)
class OwnTable:
    """What is said of a table of your own, whatever it is read from.

    Parameters:
        target: the column to predict; several make a multi-label target, none is for clustering
        target_kind: classes, number, multilabel or none; auto decides by the column's values
        id: column that identifies a row across parties, or several as 'name + born'; they are never learned from
        group: column that says whose row it is, for natural partitions
        columns: the only columns to learn from, or what kind of thing a column holds where that is not what it looks
            like: number, category, ordered, hashed, date, text, id or ignore
        ignore: columns to leave out
        missing: error, drop (leave such rows out), keep (for learners that take missing values, or the step impute),
            median (fill in medians and most frequent categories of the training rows) or category ('?' is a category)
        minimum_count: categories with fewer rows than this are taken together as '(other)'
        categorical: columns of numbers that are really codes of categories
        schema_path: a schema file that the table has to follow
        mapping: what is called, measured or coded otherwise in this table: rename, units, codes, dates, decimal,
            encoding, missing, ignore
        mapping_path: the same as a TOML file
    """

    target: str | list[str] | None = None
    target_kind: Literal["auto", "classes", "multilabel", "number", "none"] = "auto"
    id: str | None = None
    group: str | None = None
    columns: list[str] | dict[str, Any] | None = None
    ignore: list[str] = field(default_factory=list)
    missing: Missing = "error"
    minimum_count: Annotated[int, Ge(1)] = MINIMUM_COUNT
    categorical: list[str] | None = None
    schema_path: str | None = None
    mapping: dict[str, Any] | None = None
    mapping_path: str | None = None

    def read(self, data: Table, *, like: Dataset | None = None, schema: Schema | None = None,
             name: str = "") -> Dataset:
        """A table by these rules, and by a schema: a given one, or that of a table `like` it that was read before."""
        said: dict[str, Any] = {own.name: getattr(self, own.name) for own in fields(OwnTable)
                                if own.name not in ("schema_path", "mapping_path")}
        if self.mapping is not None and self.mapping_path is not None:
            raise ConfigError("data.mapping and data.mapping_path both say how the table is read",
                              remedy="leave one of them out")
        if like is not None:  # what was left out of that one is left out here
            said |= {"columns": None, "categorical": None, "ignore": (), "spare": like.source.left_out}
        said["mapping"] = self.mapping_path or self.mapping
        return read(data, schema=schema or (self.schema_path if like is None else like.schema), name=name, **said)


@dataclass(frozen=True)
class _File(OwnTable):
    """A table in a file.

    Parameters:
        path: the file; the first line of a CSV file names the columns
        test_path: a second file of the same columns with the test rows
    """

    path: str = field(kw_only=True)
    test_path: str | None = field(default=None, kw_only=True)

    def load(self) -> Loaded:
        """The file's rows; test rows have to follow the schema of the training rows."""
        for key, path in (("data.path", self.path), ("data.test_path", self.test_path)):
            if path is not None:
                require_file(Path(path), key)
        train = self.read(self.path)
        return Loaded(train, None if self.test_path is None else self.read(self.test_path, like=train))


@register("dataset", "csv", example='[data]\nname = "csv"\npath = "hospital.csv"\ntarget = "risk"\n')
@dataclass(frozen=True)
class Csv(_File):
    """A table of your own in a CSV file (comma, semicolon or tab; may be gzipped)."""

    facts: ClassVar[Facts] = Facts(None, None, "as you say", YOURS, "", "a CSV file")


@register("dataset", "parquet", example='[data]\nname = "parquet"\npath = "hospital.parquet"\ntarget = "risk"\n')
@dataclass(frozen=True)
class Parquet(_File):
    """A table of your own in a Parquet file."""

    facts: ClassVar[Facts] = Facts(None, None, "as you say", YOURS, "", "a Parquet file")


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

    facts: ClassVar[Facts] = Facts(None, None, "as the parties say", PARTIES, "", "real parties")
    parties: list[str] = field(default_factory=list)
    minimum: Annotated[int, Ge(1)] = 2
    columns: bool = False
    test_path: str | None = None

    def load(self) -> Loaded:
        """There is nothing to load."""
        raise ConfigError("the rows of these parties are with the parties", remedy="run it where they dial in: "
                                                                                   "tequio coordinator run FILE.toml")
