"""Federations on the virtual clock whose devices are given number by number, so that rounds can be worked by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.clock import Clock
from tequio.federation.devices import Mobile, Resources
from tequio.federation.federation import Federation, Rules
from tequio.federation.payload import Payload
from tequio.federation.population import Population
from tequio.federation.task import Reveals, TimedSettings, record, task
from tequio.learners.learner import LocalTraining

if TYPE_CHECKING:
    from collections.abc import Mapping

BYTES = 1000
"""What the task `send` sends, give or take the frame of a payload."""


@dataclass(frozen=True)
class Given(Mobile):
    """Devices whose bytes and rows a second are told for each party."""

    bytes_a_second: tuple[float, ...] = ()
    rows_a_second: tuple[float, ...] = ()

    def resources(self, seed: int, round: int, parties: Any, purpose: str = "") -> Resources:
        return Resources(8.0 * np.array(self.bytes_a_second)[parties], np.array(self.rows_a_second)[parties])


def phones(sending: list[float], training: list[float], *, rules: Rules | None = None, schedule: Any = None,
           labels: list[list[int]] | None = None, overrides: Mapping[int, Mapping[str, Any]] | None = None,
           record: Any = None, target: Target | None = None, seed: int = 0, **devices: Any) -> Federation:
    """Party i sends `sending[i]` bytes and trains `training[i]` rows a second; it has 10 rows, or its labels."""
    held = labels or [[0, 1] * 5 for _ in sending]
    schema = Schema.of_numbers(["x"], target or Target("classes", tuple("ab" if labels is None else "abcdefghij")))
    dataset = Dataset.of(schema, np.arange(sum(map(len, held)), dtype=float)[:, None], np.concatenate(held))
    ends = np.cumsum([0, *map(len, held)])
    partition = Partition(np.arange(len(dataset)), ends.astype(np.int64))
    population = Population(dataset, partition, Split(0.0, 0.0), seed, overrides or {})
    engine = InlineEngine()
    engine.open(population)
    given = Given(bytes_a_second=tuple(map(float, sending)), rows_a_second=tuple(map(float, training)), **devices)
    federation = Federation(population, engine, seed, rules or Rules(),
                            clock=Clock(given, population.sizes.astype(float), schedule, seed))
    return federation if record is None else replace(federation, record=record)


@record
class SendSettings(TimedSettings):
    local: LocalTraining = LocalTraining()


@task("test.send", settings=SendSettings, reply=Payload, reveals=Reveals.NOTHING)
def send(party: Any, payload: Any, settings: SendSettings) -> Payload:
    """Answer with as many bytes as came."""
    return {"model": np.zeros(payload["model"].shape, dtype=np.uint8)}


MODEL = {"model": np.zeros(BYTES - 97, dtype=np.uint8)}
"""A payload of exactly 1,000 bytes, and so is its answer."""
