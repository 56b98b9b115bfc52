"""A trained vertical model as something to ask: each party's part by itself, and what the coordinator knows of all.

A part holds what scoring needs and nothing else: no row, no position of a row, no pad, no memory of an optimizer. With
all parts in one place, rows are scored by the protocol that parties follow among themselves, to the same digits.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tequio import registry
from tequio.data.dataset import Dataset
from tequio.data.partition import Partition
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError, PayloadError
from tequio.federation.algorithm import State
from tequio.federation.federation import Federation
from tequio.federation.population import Population, state_name
from tequio.learners.answers import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.algorithms.vertical.vertical import VerticalAlgorithm
    from tequio.data.dataset import Array, Schema
    from tequio.federation.payload import Payload


@dataclass(frozen=True, eq=False)
class Part(Answer):
    """One party's part of a model. Alone it says nothing about a row."""

    kind: ClassVar[str] = "part"
    party: str
    state: Payload = field(repr=False)

    def scores(self, rows: Dataset) -> Array:
        """No party can answer alone."""
        raise ConfigError(f"party '{self.party}' holds one part of this model, which says nothing without the others",
                          remedy="leave the party out: all parties answer together")

    def to_payload(self) -> Payload:
        """Whose it is, and what it holds."""
        return {"party": self.party, "state": self.state}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], schema: Schema) -> Part:
        """Back from plain data."""
        return cls(str(payload["party"]), dict(payload["state"]))


@dataclass(frozen=True, eq=False)
class Together(Answer):
    """What the coordinator knows of a vertical model, and the parts of the parties, where they are at hand.

    `state` is the coordinator's, `partition` says who holds which columns and the target. Streams of random numbers go
    by the run's `seed` and `round`, so that noise is that of the run.
    """

    kind: ClassVar[str] = "together"
    algorithm: VerticalAlgorithm
    state: State = field(repr=False)
    partition: Partition = field(repr=False)
    schema: Schema = field(repr=False)
    seed: int
    round: int
    parts: Mapping[str, Part] = field(default_factory=dict, repr=False)

    @property
    def names(self) -> list[str]:
        """The parties, all of which are needed."""
        return [self.partition.name(party) for party in range(len(self.partition))]

    def among(self, own: Mapping[str, Answer]) -> Together:
        """With the parties' parts; a missing one is named."""
        missing = [name for name in self.names if name not in own]
        if missing:
            raise ConfigError("every party holds a part of this model, and these are not here: "
                              f"{', '.join(repr(name) for name in missing)}",
                              remedy="put the missing parts into the model's folder under parties/, or let the parties "
                                     "answer from where they are: tequio coordinator predict RUN")
        parts = {name: part for name in self.names if isinstance(part := own[name], Part)}
        strange = [name for name in self.names if name not in parts or parts[name].party != name]
        if strange:
            raise PayloadError(f"what lies there for party '{strange[0]}' is not its part of this model")
        return replace(self, parts=parts)

    def scores(self, rows: Dataset) -> Array:
        """What the parties together make of the rows, each of its own columns of them."""
        nothing = Dataset.of(self.schema, np.zeros((0, *self.schema.shape)), None if self.schema.target.kind == "none"
                             else np.zeros(0, np.int64))
        population = Population(nothing, self.partition, seed=self.seed)
        with closing(InlineEngine()) as engine:
            engine.open(population)
            engine.restore({party: dict(self.parts[name].state) for party, name in enumerate(self.names)})
            federation = Federation(population, engine, self.seed, round=self.round)
            return self.algorithm.scores_of(federation, self.state, rows)

    def to_payload(self) -> Payload:
        """The algorithm by name and parameters, who holds what, and the coordinator's state."""
        parts = {own.name: registry.to_plain(getattr(self.algorithm, own.name)) for own in fields(self.algorithm)
                 if own.metadata.get("part")}
        columns = self.partition.columns or ()
        return {"algorithm": registry.to_plain(self.algorithm), "parts": parts, "parties": self.names,
                "columns": [[self.schema.names[column] for column in own] for own in columns],
                "label_holder": list(self.partition.holds_target or ()).index(True),
                "key_holder": self.partition.key_holder, "seed": self.seed, "round": self.round,
                "model": dict(self.state.model), "memory": dict(self.state.memory)}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], schema: Schema) -> Together:
        """The algorithm is built again by name; the parts come later."""
        columns = [np.array([schema.names.index(name) for name in own], np.int64) for own in payload["columns"]]
        return cls(algorithm_of(payload["algorithm"], payload["parts"]), State(payload["model"], payload["memory"]),
                   partition_of(payload["parties"], columns, payload["label_holder"], payload["key_holder"]), schema,
                   int(payload["seed"]), int(payload["round"]))


def algorithm_of(plain: Mapping[str, Any], parts: Mapping[str, Any]) -> VerticalAlgorithm:
    """The vertical algorithm that plain data names, with its parts; anything else is refused."""
    from tequio.algorithms.vertical.vertical import VerticalAlgorithm

    kind, name = plain["$component"]
    made = registry.build(kind, name, registry.from_plain(plain["parameters"]),
                          parts={name: registry.from_plain(part) for name, part in parts.items()})
    if not isinstance(made, VerticalAlgorithm):
        raise PayloadError(f"a model of several parties' columns names '{name}', which is no vertical algorithm")
    return made


def partition_of(names: Sequence[str], columns: Sequence[np.ndarray], label_holder: int,
                 key_holder: int | None) -> Partition:
    """Who holds which columns and the target; no rows."""
    return Partition.of([np.empty(0, np.int64)] * len(names), names=tuple(names), columns=tuple(columns),
                        holds_target=tuple(party == label_holder for party in range(len(names))),
                        key_holder=key_holder)


def needed_of(state: Payload, needed: Mapping[type, Sequence[str]]) -> Payload:
    """Of what a party keeps, some fields of typed records; 'trees/value' is what lies under 'value' in 'trees'."""
    part: Payload = {}
    for kind, names in needed.items():
        kept = state.get(state_name(kind), {})
        for name in names:
            first, _, inner = name.partition("/")
            if first not in kept or (inner and inner not in kept[first]):
                continue
            mine = part.setdefault(state_name(kind), {})
            if inner:
                mine.setdefault(first, {})[inner] = kept[first][inner]
            else:
                mine[first] = kept[first]
    return part


def together_of(algorithm: VerticalAlgorithm, federation: Federation, state: State) -> Together:
    """What the coordinator knows of a trained model."""
    partition = federation.population.partition
    bare = partition_of([federation.name(party) for party in range(len(federation))], partition.columns or (),
                        list(partition.holds_target or ()).index(True), partition.key_holder)
    memory = {name: state.memory[name] for name in algorithm.remembered_to_score if name in state.memory}
    return Together(algorithm, State(state.model, memory), bare, federation.schema, federation.population.seed,
                    federation.round)
