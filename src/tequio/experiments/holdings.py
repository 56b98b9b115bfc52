"""What a party of a real federation brings: a table of its own, or its share of a simulated dataset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.components import build
from tequio.data.dataset import Dataset
from tequio.data.preprocessing import preparations, prepare
from tequio.data.schema import Schema, Target, schema_to_json
from tequio.engines.network.holding import OwnRows
from tequio.errors import ConfigError, DataError
from tequio.experiments.config import data_hash, load_config
from tequio.experiments.scenario import make_scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.engines.network.holding import Holding
    from tequio.federation.population import Population


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

    def population(self, facts: Mapping[str, Any]) -> Population:
        """The simulated population, in which this party has the number that the coordinator gave it."""
        if facts["index"] != self.whole.index(self.name) or facts["seed"] != self.whole.seed:
            raise DataError(f"the coordinator takes party '{self.name}' for another one than this config does",
                            remedy="give both sides the same config")
        return replace(self.whole, overrides={facts["index"]: facts["overrides"]})


def open_holding(name: str, data: Mapping[str, Any]) -> Holding:
    """The data that a party named when it joined."""
    if "config" in data:
        config = load_config(data["config"])
        population = make_scenario(config).population
        population.index(name)
        return Share(name, data_hash(config), population)
    if data.get("path") == NO_DATA:
        return OwnRows(name, Dataset.of(Schema.of_numbers([], Target("none")), np.zeros((0, 0), np.float32)))
    kind = "parquet" if str(data.get("path", "")).endswith(".parquet") else "csv"
    own = {key: value for key, value in data.items() if key != "prepare" and value not in (None, "", [])}
    loaded = build("dataset", kind, own, where="the party's data").load()
    if loaded.test is not None:
        raise ConfigError("a party brings one table; its own test rows are a share of it", remedy="leave test_path out")
    steps = preparations(data.get("prepare") or [])
    rows = prepare(steps, [loaded.train], [loaded.train])[0] if steps else loaded.train
    return OwnRows(name, rows)
