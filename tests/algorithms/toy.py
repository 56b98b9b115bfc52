"""Least squares by hand in double precision, and small federations, on which algorithms can be checked exactly."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from parts import Parts
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation, Rules
from tequio.federation.population import Population, state_name
from tequio.federation.stages import Stage
from tequio.learners.learner import Arrays, Correction, Job, LocalTraining, Tally, Trained
from tequio.learners.metrics import tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tequio.federation.algorithm import Algorithm, State
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

FULL_BATCH = LocalTraining(batch=0, shuffle=False, learning_rate=0.5)
NO_SPLIT = Split(validation=0.0, test=0.0)


@dataclass(frozen=True)
class LeastSquares:
    """Weights w that minimise the mean of (x w - y)^2 / 2.

    Parameters:
        initial_weight: value of every weight at the start
        batched: whether to ask for batched calls, in which each party gets the numbers it would get alone
    """

    initial_weight: float = 0.0
    batched: bool = False

    def initial(self, schema: Schema, rng: np.random.Generator) -> Arrays:
        return {"w": np.full(len(schema.features), self.initial_weight)}

    def train(self, model: Arrays, data: Dataset, how: LocalTraining, rng: np.random.Generator, *,
              learning_rate: float | None = None, correction: Correction | None = None) -> Trained:
        rate = how.learning_rate if learning_rate is None else learning_rate
        features, target = data.features, data.target
        w, velocity, steps = model["w"].copy(), np.zeros_like(model["w"]), 0
        with np.errstate(over="ignore", invalid="ignore"):
            for rows in _batches(len(data), how, rng):
                gradient = features[rows].T @ (features[rows] @ w - target[rows]) / len(rows)
                velocity = how.momentum * velocity + gradient + how.weight_decay * w + _extra(correction, w)
                w, steps = w - rate * velocity, steps + 1
            loss = float(np.mean((features @ w - target) ** 2) / 2)
        return Trained({"w": w}, steps, loss, len(data))

    def gradient(self, model: Arrays, data: Dataset) -> tuple[Arrays, float]:
        residual = data.features @ model["w"] - data.target
        return {"w": data.features.T @ residual / len(data)}, float(residual @ residual / len(data) / 2)

    def predict(self, model: Arrays, data: Dataset) -> Any:
        return data.features @ model["w"]

    def evaluate(self, model: Arrays, data: Dataset) -> Tally:
        return tally(data.schema.target, self.predict(model, data), data.target)

    def trains_together(self, schema: Schema, how: LocalTraining) -> bool:
        return self.batched

    def train_together(self, jobs: Sequence[Job], how: LocalTraining, *,
                       learning_rate: float | None = None) -> list[Trained]:
        batched_calls.append(len(jobs))
        return [self.train(job.model, job.data, how, job.rng, learning_rate=learning_rate, correction=job.correction)
                for job in jobs]


batched_calls: list[int] = []
"""How many jobs came in each batched call."""


def _batches(rows: int, how: LocalTraining, rng: np.random.Generator) -> Iterator[np.ndarray]:
    size, left = how.batch or rows, how.steps or how.epochs * -(-rows // (how.batch or rows))
    while left > 0:
        order = rng.permutation(rows) if how.shuffle else np.arange(rows)
        for first in range(0, rows, size)[:left]:
            yield order[first:first + size]
        left -= -(-rows // size)


def _extra(correction: Correction | None, w: np.ndarray) -> Any:
    if correction is None:
        return 0.0
    offset = 0.0 if correction.offset is None else correction.offset["w"]
    return offset + (correction.pull * (w - correction.anchor["w"]) if correction.anchor is not None else 0.0)


@dataclass(frozen=True)
class Spoil(Stage):
    """Makes one party send an update that is not a number.

    Parameters:
        party: number of the party
    """

    party: int = 0

    def send(self, party: Party, payload: Payload) -> Payload:
        if party.index != self.party:
            return payload
        return {**payload, "update": {name: values * np.nan for name, values in payload["update"].items()}}


def dataset(features: Any, target: Any) -> Dataset:
    features = np.asarray(features, dtype=np.float64)
    features = features[:, None] if features.ndim == 1 else features
    schema = Schema.of_numbers([f"x{column}" for column in range(features.shape[1])], Target("number"))
    return Dataset.of(schema, features, np.asarray(target, dtype=np.float64))


def federation(rows_of: Sequence[tuple[Any, Any]], *, seed: int = 0, rules: Rules | None = None,
               split: Split = NO_SPLIT, overrides: Mapping[int, Mapping[str, Any]] | None = None) -> Federation:
    """A federation in which party i holds the features and targets of entry i."""
    parts = [dataset(features, target) for features, target in rows_of]
    whole = dataset(np.concatenate([part.features for part in parts]), np.concatenate([part.target for part in parts]))
    bounds = np.cumsum([0] + [len(part) for part in parts])
    partition = Partition.of([np.arange(start, end) for start, end in itertools.pairwise(bounds)])
    population = Population(whole, partition, split, seed, overrides or {})
    engine = InlineEngine()
    engine.open(population)
    return Federation(population, engine, seed, rules or Rules())


def targets(*values: Sequence[float] | float) -> list[tuple[Any, Any]]:
    """Parties with one feature that is always 1, so that a party's loss is the mean of (w - target)^2 / 2."""
    return [(np.ones(np.size(value)), np.atleast_1d(value)) for value in values]


def random_parties(sizes: Sequence[int], columns: int = 3, seed: int = 5) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(size, columns)), rng.normal(size=size)) for size in sizes]


def parts(local: LocalTraining = FULL_BATCH, learner: LeastSquares | None = None, **extra: Any) -> dict[str, Any]:
    return Parts(learner=learner or LeastSquares(), local=local, **extra)


def run(algorithm: Algorithm, federation: Federation, rounds: int = 1) -> State:
    state = algorithm.start(federation)
    for _ in range(rounds):
        state = one_more(algorithm, federation, state)
    return state


def one_more(algorithm: Algorithm, federation: Federation, state: State) -> State:
    federation.round += 1
    return algorithm.round(federation, state)


def weights(state: State) -> np.ndarray:
    return state.model["w"]


def kept(federation: Federation, kind: type) -> dict[int, Any]:
    """What each party keeps under a typed record."""
    return {party: state[state_name(kind)] for party, state in federation.engine.states().items()
            if state_name(kind) in state}
