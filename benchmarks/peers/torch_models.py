"""The models in PyTorch, and one party's local training, for every contestant that runs on PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from problems import Problem, make_data
from torch import Tensor, nn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def make_model(problem: Problem) -> nn.Module:
    """The model of a problem with reproducible first weights."""
    torch.manual_seed(0)
    if problem.model == "mlp":
        model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, problem.classes))
    elif problem.model == "logistic":
        model = nn.Sequential(nn.Linear(784, problem.classes))
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
    else:
        model = _pfl_research_cnn(problem.classes)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if parameters != problem.parameters:
        raise ValueError(f"{problem.name} has {parameters} parameters, expected {problem.parameters}")
    return model


def _pfl_research_cnn(classes: int) -> nn.Sequential:
    """The CIFAR-10 network of pfl-research's published comparison (arXiv 2404.06430)."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * 14 * 14, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, classes),
    )
    for module in model:
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(module.weight)
    return model


def make_tensors(problem: Problem) -> list[tuple[Tensor, Tensor]]:
    """Features and labels of every party, as views of one block of memory."""
    features, labels = make_data(problem)
    return list(zip(torch.from_numpy(features), torch.from_numpy(labels), strict=True))


def weights_of(model: nn.Module) -> list[NDArray[np.float32]]:
    """A model's weights as arrays."""
    return [parameter.detach().numpy() for parameter in model.parameters()]


def train_one_epoch(model: nn.Module, features: Tensor, labels: Tensor, problem: Problem) -> None:
    """One epoch of SGD over a party's rows in order, in batches sliced from its tensors."""
    optimizer = torch.optim.SGD(model.parameters(), lr=problem.learning_rate)
    loss_of = nn.CrossEntropyLoss()
    model.train()
    for start in range(0, problem.rows, problem.batch):
        optimizer.zero_grad()
        loss = loss_of(model(features[start : start + problem.batch]), labels[start : start + problem.batch])
        loss.backward()
        optimizer.step()
