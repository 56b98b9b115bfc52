"""The training problems of the bench, with random values: what a round costs depends on the shapes alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from tequio.components import build
from tequio.data.dataset import Dataset
from tequio.data.partition import Partition
from tequio.data.schema import Schema
from tequio.data.splits import Split
from tequio.federation.algorithm import Parts
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.learners.learner import LocalTraining

if TYPE_CHECKING:
    from tequio.federation.algorithm import Algorithm
    from tequio.federation.exchange import Engine

_CLASSES = tuple(str(label) for label in range(10))


@dataclass(frozen=True)
class Problem:
    """Who holds what, and what a chosen party does in a round. `mark` is the ratio to the plain loop to stay below."""

    name: str
    learner: str
    parties: int
    rows: int
    shape: tuple[int, ...]
    cohort: int
    batch: int
    mark: float

    def population(self) -> Population:
        """The parties with their random rows."""
        draw = np.random.default_rng(0)
        total = self.parties * self.rows
        features = draw.random((total, *self.shape), dtype=np.float32)
        dataset = Dataset.of(Schema.of_images(self.shape, _CLASSES), features, draw.integers(0, 10, total))
        offsets = np.arange(self.parties + 1, dtype=np.int64) * self.rows
        return Population(dataset, Partition(np.arange(total), offsets), Split(validation=0.0, test=0.0))

    def local(self) -> LocalTraining:
        """One epoch of plain SGD."""
        return LocalTraining(epochs=1, batch=self.batch, learning_rate=0.1)

    def algorithm(self) -> Algorithm:
        """FedAvg with uniform weights over a random cohort."""
        parts = Parts(build("learner", self.learner), self.local(), build("selector", "random", {"count": self.cohort}))
        made: Algorithm = build("algorithm", "fedavg", {"weights": "uniform"}, parts={"parts": parts})
        return made


PROBLEMS = {problem.name: problem for problem in (
    Problem("mlp", "mlp", parties=100, rows=600, shape=(784,), cohort=20, batch=20, mark=0.20),
    Problem("cnn", "pfl_cnn", parties=1000, rows=50, shape=(3, 32, 32), cohort=50, batch=10, mark=0.60),
    Problem("logistic", "logistic", parties=1000, rows=50, shape=(784,), cohort=50, batch=10, mark=0.10),
)}


class Rounds:
    """A federation that plays one round at each call."""

    def __init__(self, algorithm: Algorithm, population: Population, engine: Engine) -> None:
        engine.open(population)
        self.engine = engine
        self.algorithm = algorithm
        self.federation = Federation(population, engine)
        self.state = algorithm.start(self.federation)

    def __call__(self) -> None:
        """Play one round."""
        self.federation.round += 1
        self.state = self.algorithm.round(self.federation, self.state)


def parameter_count(problem: Problem) -> int:
    """Size of the problem's model."""
    schema = Schema.of_images(problem.shape, _CLASSES)
    model = build("learner", problem.learner).initial(schema, np.random.default_rng(0))
    return sum(prod(values.shape) for values in model.values())
