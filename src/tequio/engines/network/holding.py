"""What a party brings to a run: rows of its own, seen as the one party that it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tequio.data.preprocessing import preparations
from tequio.data.schema import Target, schema_from_json, schema_to_json
from tequio.data.splits import Split
from tequio.errors import DataError
from tequio.federation.population import alone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.data.dataset import Dataset
    from tequio.data.schema import Schema
    from tequio.federation.population import Population


class Holding(Protocol):
    """A party's data."""

    @property
    def name(self) -> str:
        """What the party is called."""
        ...

    @property
    def share(self) -> str:
        """Which simulated share it is; empty for data of the party's own."""
        ...

    @property
    def rows(self) -> int:
        """How many rows there are."""
        ...

    @property
    def schema(self) -> str:
        """What the columns and the target mean, as JSON."""
        ...

    def population(self, facts: Mapping[str, Any]) -> Population:
        """The party in a run, with the number that it has there."""
        ...


@dataclass(frozen=True, eq=False)
class OwnRows:
    """A table of the party's own."""

    name: str
    dataset: Dataset
    share: str = ""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.dataset)

    @property
    def schema(self) -> str:
        """The table's schema."""
        return schema_to_json(self.dataset.schema)

    def population(self, facts: Mapping[str, Any]) -> Population:
        """The party's rows after the run's preparation, if there is one."""
        wanted = schema_from_json(facts["schema"])
        if not (self._is_part_of(wanted, facts["columns"]) if "columns" in facts else wanted == self.dataset.schema):
            raise DataError("the run is about other columns, categories or classes than this party's table has",
                            remedy="agree on one schema file and join with --schema")
        dataset, preparation = self.dataset, facts.get("preparation", {})
        for step, statistics in zip(preparations(preparation.get("steps", [])), preparation.get("statistics", []),
                                    strict=False):
            dataset = step.apply(dataset, statistics)
        return alone(dataset, facts["index"], self.name, Split(**facts["split"]), facts["seed"], facts["overrides"])

    def _is_part_of(self, whole: Schema, columns: Sequence[str]) -> bool:
        """Whether a run over columns of several parties takes this party's for what they are."""
        own, known = self.dataset.schema, {feature.name: feature for feature in whole.features}
        return (tuple(known.get(name) for name in columns) == own.features
                and own.target in (whole.target, Target("none")))
