"""What a party of a real federation brings: a table of its own, or its share of a simulated dataset.

Where parties hold different columns of the same rows, their greetings say what they have together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset, Schema, Target, schema_from_json, schema_to_json
from tequio.data.inputs import harmonised
from tequio.data.inputs.kinds import MINIMUM_COUNT
from tequio.data.preprocessing import Fitted, fit_and_prepare, preparations
from tequio.data.preprocessing.automatic import AUTO
from tequio.data.preprocessing.categories import Discretise
from tequio.data.sharing import refuse_rare_classes
from tequio.engines.network.holding import OwnRows
from tequio.errors import ConfigError, DataError
from tequio.experiments.config.complete import data_hash, load_config
from tequio.experiments.running.scenario import make_scenario
from tequio.federation.population import elsewhere
from tequio.models.rows import Reading, asked, batches
from tequio.registry import build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.partition import Split
    from tequio.engines.network.holding import Holding
    from tequio.engines.network.wire import Hello
    from tequio.experiments.config.tables import Config
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population
    from tequio.models.rows import Unseen


NO_DATA = "none"
"""The table of a party that is there to keep a key."""


@dataclass(frozen=True, eq=False)
class Share:
    """A simulated party's share of a dataset, dealt as a config says: for trying a federation out."""

    name: str
    share: str
    whole: Population

    @property
    def rows(self) -> int:
        """How many rows the share has."""
        return int(self.whole.sizes[self.whole.index(self.name)])

    @property
    def schema(self) -> str:
        """The schema of the whole data."""
        return schema_to_json(self.whole.schema)

    def population(self, facts: Payload) -> Population:
        """The simulated population, in which this party has the number that the coordinator gave it."""
        if facts["index"] != self.whole.index(self.name) or facts["seed"] != self.whole.seed:
            raise ConfigError(f"the coordinator takes party '{self.name}' for another one than this config does",
                              remedy="give both sides the same config")
        return replace(self.whole, overrides={facts["index"]: facts["overrides"]})


def open_holding(name: str, data: Payload) -> Holding:
    """The data that a party named when it joined."""
    if "config" in data:
        config = load_config(data["config"])
        population = make_scenario(config).population
        population.index(name)
        return Share(name, data_hash(config), population)
    if data.get("path") == NO_DATA:
        return OwnRows(name, Dataset.of(Schema.of_numbers([], Target("none")), np.zeros((0, 0), np.float32)))
    raw, _, rows = _own_table(data)
    return OwnRows(name, rows, notes=raw.source.notes)


def new_rows(name: str, data: Payload, path: str, id: str = "", unseen: Unseen = "error") -> OwnRows:
    """Other rows of a party's own table, read and prepared as that was; they need no target."""
    if "config" in data or data.get("path") == NO_DATA:
        raise ConfigError("this party joined without a table of its own, so it has no new rows to bring",
                          remedy="let the parties with tables bring theirs")
    raw, fitted, _ = _own_table(data)
    reading = Reading.of(raw, fitted)
    features, ids, first = [], [], 0
    mapping = data.get("mapping_path")
    for part in [harmonised(path, mapping, partial=True)] if mapping else batches(Path(path)):
        found = asked(reading, part, id=id or data.get("id") or "", unseen=unseen, first=first)
        features.append(found.rows.features)
        ids.append(found.places + first if found.ids is None else found.ids)
        first += found.given
    stacked = sparse.vstack(features, format="csr") if reading.sparse else np.concatenate(features)
    rows = reading.prepared(reading.rows_of(stacked))
    target = None if rows.schema.target.kind == "none" else rows.target
    return OwnRows(name, Dataset.of(rows.schema, rows.features, target, ids=np.concatenate(ids), name="new rows"))


def _own_table(data: Payload) -> tuple[Dataset, Fitted, Dataset]:
    """A party's table as it is, what its own preparation was fitted to, and the table after it."""
    kind = "sql" if "connection" in data else "parquet" if str(data.get("path", "")).endswith(".parquet") else "csv"
    own = {key: value for key, value in data.items() if key != "prepare" and value not in (None, "", [])}
    loaded = build("dataset", kind, own, where="the party's data").load()
    if loaded.test is not None:
        raise ConfigError("a party brings one table; its own test rows are a share of it",
                          remedy="leave data.test_path and data.test_query out")
    if not data.get("schema_path"):  # then this table's own names are what the coordinator hears
        refuse_rare_classes(loaded.train, int(data.get("minimum_count") or MINIMUM_COUNT))
    steps = preparations(data.get("prepare") or [])
    if any(isinstance(step, Discretise) and step.method != "cuts" for step in steps):
        raise ConfigError("intervals are named by values of this party's rows, and the coordinator hears their names",
                          remedy="leave --prepare discretise out, and let the run do it: "
                                 "data.prepare = [\"discretise\"]")
    fitted, (rows,) = fit_and_prepare(steps, [loaded.train], [loaded.train])
    return loaded.train, fitted, rows


def refuse_common_preparation(config: Config) -> None:
    """Nobody could fit a step on columns of several parties."""
    if config.data.steps not in ([], [AUTO]):  # which leaves columns of several parties as they are
        raise ConfigError("no step can be fitted over columns that are with different parties",
                          remedy="leave data.prepare out (vertical algorithms standardise each party's columns "
                                 "themselves), or let each party join with --prepare")


def population_of_columns(roster: Mapping[str, Hello], split: Split, seed: int) -> Population:
    """The columns of all parties side by side in the order of the roster; one party has the target.

    A party without columns keeps a key for the others.
    """
    schemas = {name: schema_from_json(hello.schema) for name, hello in roster.items()}
    target = _target(schemas)
    features = tuple(feature for schema in schemas.values() for feature in schema.features)
    _refuse_twice(schemas)
    ends = np.cumsum([0, *(len(schema.features) for schema in schemas.values())])
    columns = tuple(np.arange(start, end) for start, end in pairwise(ends.tolist()))
    return elsewhere(Schema(features, target), list(roster), [hello.rows for hello in roster.values()], split, seed, {},
                     columns=columns, key_holder=_key_holder(schemas),
                     holds_target=tuple(schema.target.kind != "none" for schema in schemas.values()))


def _target(schemas: Mapping[str, Schema]) -> Target:
    holders = [name for name, schema in schemas.items() if schema.target.kind != "none"]
    if len(holders) != 1:
        told = f"parties {', '.join(repr(name) for name in holders)} all hold" if holders else "no party holds"
        raise DataError(f"{told} a target, and a vertical federation has one label holder",
                        remedy="let that party alone join with --target")
    return schemas[holders[0]].target


def _refuse_twice(schemas: Mapping[str, Schema]) -> None:
    owner: dict[str, str] = {}
    for name, schema in schemas.items():
        for feature in schema.features:
            if feature.name in owner:
                raise DataError(f"parties '{owner[feature.name]}' and '{name}' both hold a column '{feature.name}'",
                                remedy="rename it, or leave it out at one of them")
            owner[feature.name] = name


def _key_holder(schemas: Mapping[str, Schema]) -> int | None:
    empty = [party for party, schema in enumerate(schemas.values())
             if not schema.features and schema.target.kind == "none"]
    if len(empty) > 1:
        raise DataError(f"{len(empty)} parties hold no columns, and one key holder is enough",
                        remedy="list those that take part under data.parties")
    return empty[0] if empty else None
