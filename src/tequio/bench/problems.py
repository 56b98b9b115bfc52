"""What the bench measures with: random problems, the plain loop as the yardstick, peers, and taking turns.

What a round costs depends on the shapes alone, so the values are random. The plain loop is FedAvg as a good engineer
writes it in PyTorch on one thread, without any framework. Peers do the same work, each in an environment of its own
under benchmarks/peers of a checkout.
"""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.data.dataset import Dataset, Schema
from tequio.data.partition import Partition, Split
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.learners.learner import LocalTraining
from tequio.registry import build

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import torch

    from tequio.federation.algorithm import Algorithm
    from tequio.federation.averaging import Averaging
    from tequio.federation.exchange import Engine


Measured = dict[str, Any]
"""What a case found: `value` against `mark` in `unit`, and whatever else is worth a line in the report."""

_CLASSES = tuple(str(label) for label in range(10))
_RATES = {"sgd": 0.1, "adam": 0.001}


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
    optimizer: Literal["sgd", "adam"] = "sgd"

    def population(self) -> Population:
        """The parties with their random rows."""
        draw = np.random.default_rng(0)
        total = self.parties * self.rows
        features = draw.random((total, *self.shape), dtype=np.float32)
        dataset = Dataset.of(Schema.of_images(self.shape, _CLASSES), features, draw.integers(0, 10, total))
        offsets = np.arange(self.parties + 1, dtype=np.int64) * self.rows
        return Population(dataset, Partition(np.arange(total), offsets), Split(validation=0.0, test=0.0))

    def local(self) -> LocalTraining:
        """One epoch."""
        return LocalTraining(epochs=1, batch=self.batch, optimizer=self.optimizer, learning_rate=_RATES[self.optimizer])

    def algorithm(self) -> Averaging:
        """FedAvg with uniform weights over a random cohort."""
        parts = {"learner": build("learner", self.learner), "local": self.local(),
                 "selector": build("selector", "random", {"count": self.cohort})}
        made: Averaging = build("algorithm", "fedavg", {"weights": "uniform"}, parts=parts)
        return made


PROBLEMS = {problem.name: problem for problem in (
    Problem("mlp", "mlp", parties=100, rows=600, shape=(784,), cohort=20, batch=20, mark=0.20),
    Problem("cnn", "pfl-cnn", parties=1000, rows=50, shape=(3, 32, 32), cohort=50, batch=10, mark=0.40),
    Problem("logistic", "logistic", parties=1000, rows=50, shape=(784,), cohort=50, batch=10, mark=0.10),
)}
"""Those that peers are measured on as well."""

DIGIT_FIVE = Problem("digit-five", "digit-five-cnn", parties=40, rows=700, shape=(3, 16, 16), cohort=10, batch=64,
                     mark=0.40, optimizer="adam")


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


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def best_in_turn(contestants: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The best time of each contestant; they take turns, so that a busy spell of the machine meets all alike."""
    for work in contestants.values():
        work()
    times = [{name: seconds(work) for name, work in contestants.items()} for _ in range(repeats)]
    return {name: min(turn[name] for turn in times) for name in contestants}


def model_of(problem: Problem) -> torch.nn.Module:
    """The problem's network, written out by hand."""
    from torch import nn

    if problem.name == "mlp":
        return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    if problem.name == "logistic":
        return nn.Linear(784, 10)
    if problem.name == "digit-five":
        blocks = [(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
                  for inputs, outputs in ((3, 16), (16, 32), (32, 32), (32, 32))]
        return nn.Sequential(
            *(layer for block in blocks for layer in block), nn.Flatten(), nn.Linear(32, 64), nn.ReLU(),
            nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 10))
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))


class PlainLoop:
    """Plays one round at each call: load the global weights, train each chosen party, average the state dicts."""

    def __init__(self, problem: Problem, population: Population) -> None:
        import torch

        self.problem = problem
        self.features = torch.from_numpy(population.dataset.source.features)
        self.labels = torch.from_numpy(population.dataset.source.target)
        self.model = model_of(problem)
        self.weights = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.draw = np.random.default_rng(0)

    def __call__(self) -> None:
        """Play one round."""
        import torch

        replies = []
        for party in self.draw.choice(self.problem.parties, self.problem.cohort, replace=False):
            self.model.load_state_dict(self.weights)
            self._train(int(party))
            replies.append({name: value.clone() for name, value in self.model.state_dict().items()})
        self.weights = {name: torch.stack([reply[name] for reply in replies]).mean(0) for name in self.weights}

    def _train(self, party: int) -> None:
        import torch

        rows = torch.randperm(self.problem.rows) + party * self.problem.rows
        features, labels = self.features[rows], self.labels[rows]
        optimizer = (torch.optim.Adam if self.problem.optimizer == "adam" else torch.optim.SGD)(
            self.model.parameters(), lr=_RATES[self.problem.optimizer])
        self.model.train()
        for start in range(0, self.problem.rows, self.problem.batch):
            batch = slice(start, start + self.problem.batch)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.model(features[batch]), labels[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def installed_peers(checkout: Path) -> dict[str, Path]:
    """The peers whose environment has been made, by `python benchmarks/peers/setup.py`."""
    environments = checkout / "benchmarks" / "peers" / ".envs"
    return {folder.name: folder / "bin" / "python" for folder in sorted(environments.glob("*"))
            if (folder / "bin" / "python").exists()}


def run_peers(checkout: Path, case: str, rounds: int, workers: int) -> Measured:
    """Seconds a round of each installed peer; a peer that fails says why."""
    return {name: _run(checkout, name, python, case, rounds, workers)
            for name, python in installed_peers(checkout).items()}


def _run(checkout: Path, name: str, python: Path, case: str, rounds: int, workers: int) -> Measured:
    script = checkout / "benchmarks" / "peers" / f"run_{name}.py"
    command = [str(python), str(script), "--case", case, "--rounds", str(rounds), "--workers", str(workers), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report: Measured = json.loads(done.stdout.strip().splitlines()[-1])
    except (json.JSONDecodeError, IndexError):
        return {"error": (done.stderr.strip().splitlines() or ["printed nothing"])[-1]}
    return report
