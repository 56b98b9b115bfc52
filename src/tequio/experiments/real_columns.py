"""Real parties that hold different columns of the same rows: what they have together, from their greetings."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.schema import Schema, Target, schema_from_json
from tequio.errors import ConfigError, DataError
from tequio.federation.population import elsewhere

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.splits import Split
    from tequio.engines.network.wire import Hello
    from tequio.experiments.tables import Config
    from tequio.federation.population import Population


def refuse_common_preparation(config: Config) -> None:
    """Nobody could fit a step on columns of several parties."""
    if config.data.prepare:
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
