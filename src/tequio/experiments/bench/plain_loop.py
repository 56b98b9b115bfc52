"""FedAvg as a good engineer writes it in plain PyTorch on one thread, without any framework: the yardstick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    from tequio.experiments.bench.problems import Problem
    from tequio.federation.population import Population


def model_of(problem: Problem) -> torch.nn.Module:
    """The problem's network, written out by hand."""
    from torch import nn

    if problem.name == "mlp":
        return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    if problem.name == "logistic":
        return nn.Linear(784, 10)
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
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.model.train()
        for start in range(0, self.problem.rows, self.problem.batch):
            batch = slice(start, start + self.problem.batch)
            optimizer.zero_grad()
            loss: Any = torch.nn.functional.cross_entropy(self.model(features[batch]), labels[batch])
            loss.backward()
            optimizer.step()
