"""What time costs: Oort among a million parties whose times it knows, and a thousand rounds of timing only."""

from __future__ import annotations

from typing import Any

import numpy as np

from tequio.components import build
from tequio.data.dataset import Dataset
from tequio.data.partition import Partition
from tequio.data.schema import Schema, Target
from tequio.data.splits import Split
from tequio.engines.inline import InlineEngine
from tequio.experiments.bench.clock import seconds
from tequio.federation.algorithm import Parts
from tequio.federation.clock import Clock
from tequio.federation.devices import Mobile
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.selection import Turn
from tequio.learners.learner import LocalTraining

_MILLION, _COHORT = 1_000_000, 100
_PARTIES, _ROUNDS, _PLAYED = 10_000, 1000, 50


def oort_among_a_million(repeats: int, workers: int) -> dict[str, Any]:
    """The slower of Oort's choices: when it knows nobody, and when every party has answered once."""
    federation = _federation(_MILLION)
    times = {name: min(_choosing(federation, memory) for _ in range(repeats))
             for name, memory in (("nobody known", {}), ("everybody known", _everyone_known()))}
    return {"seconds": max(times.values()), "value": max(times.values()), "mark": 0.5, "unit": "s", "by_memory": times}


def timing_only(repeats: int, workers: int) -> dict[str, Any]:
    """What 1,000 rounds of all 10,000 parties take, from the best of some tens of rounds."""
    parts = Parts(local=LocalTraining(epochs=5, batch=20), selector=build("selector", "scheduled-random",
                                                                          {"fraction": 1.0}))
    algorithm = build("algorithm", "timing", {"parameters": 101_770}, parts={"parts": parts})
    federation = _federation(_PARTIES)
    state = algorithm.start(federation)

    def round() -> None:
        nonlocal state
        federation.round += 1
        state = algorithm.round(federation, state)

    best = min(seconds(round) for _ in range(_PLAYED))
    return {"seconds": best * _ROUNDS, "value": best * _ROUNDS, "mark": 60.0, "unit": "s for 1,000 rounds"}


def _federation(parties: int) -> Federation:
    """One row a party, on the clock."""
    schema = Schema.of_numbers(["x"], Target("classes", ("no", "yes")))
    dataset = Dataset.of(schema, np.zeros((parties, 1), dtype=np.float32), np.arange(parties) % 2)
    partition = Partition(np.arange(parties), np.arange(parties + 1))
    engine = InlineEngine()
    population = Population(dataset, partition, Split(0.0, 0.0))
    engine.open(population)
    return Federation(population, engine, clock=Clock(Mobile(), population.sizes.astype(np.float64)))


def _choosing(federation: Federation, memory: dict[str, Any]) -> float:
    federation.round = 300
    turn = Turn(federation, federation.eligible(), memory, np.random.default_rng(0))
    selector = build("selector", "oort", {"count": _COHORT})
    return seconds(lambda: selector.choose(turn))


def _everyone_known() -> dict[str, Any]:
    """Oort's memory after every party has answered once."""
    draw = np.random.default_rng(0)
    return {"parties": np.arange(_MILLION), "utility": draw.random(_MILLION), "seconds": draw.random(_MILLION) * 100,
            "round": draw.integers(1, 300, _MILLION), "times": np.ones(_MILLION, dtype=np.int64)}
