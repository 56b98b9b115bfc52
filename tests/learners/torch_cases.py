"""Small data for the torch learners, and training loops written in plain torch to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tequio.data.dataset import Dataset, Schema, Target
from tequio.learners.learner import Arrays, Job, LocalTraining, Trained

torch.set_num_threads(1)

TARGETS = {
    "classes": Target("classes", ("a", "b", "c", "d")),
    "two classes": Target("classes", ("no", "yes")),
    "multilabel": Target("multilabel", ("x", "y", "z")),
    "number": Target("number"),
}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def table(kind: str, rows: int = 120, columns: int = 9, seed: int = 0, dtype: Any = np.float32) -> Dataset:
    draw, target = rng(seed), TARGETS[kind]
    features = draw.standard_normal((rows, columns)).astype(dtype)
    if target.kind == "classes":
        values = draw.integers(0, len(target.names), rows)
    elif target.kind == "multilabel":
        values = draw.integers(0, 2, (rows, len(target.names)))
    else:
        values = features @ draw.standard_normal(columns)
    return Dataset.of(Schema.of_numbers([f"x{place}" for place in range(columns)], target), features, values)


def parties(data: Dataset, sizes: tuple[int, ...], seed: int = 5) -> list[Dataset]:
    draw = rng(seed)
    return [data.take(draw.choice(len(data), size, replace=False)) for size in sizes]


def jobs_for(model: Arrays, datasets: list[Dataset], correction: Any = None) -> list[Job]:
    return [Job(model, data, rng(100 + place), correction) for place, data in enumerate(datasets)]


def plain_module(model: Arrays, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """A dense stack with the values of a model, without any code of the package."""
    arrays = list(model.values())
    layers: list[nn.Module] = []
    for weight, bias in zip(arrays[::2], arrays[1::2], strict=True):
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor(bias)
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1])


def plain_loss(kind: str, outputs: torch.Tensor, target: np.ndarray) -> torch.Tensor:
    if kind == "classes":
        return functional.cross_entropy(outputs, torch.tensor(target))
    wanted = torch.tensor(target, dtype=torch.float32).reshape(outputs.shape)
    if kind == "number":
        return functional.mse_loss(outputs, wanted)
    return functional.binary_cross_entropy_with_logits(outputs, wanted)


def plain_training(kind: str, model: Arrays, data: Dataset, how: LocalTraining, seed: int, *,
                   activation: type[nn.Module] = nn.ReLU, extra: Any = None) -> list[np.ndarray]:
    """Weights and biases after local training as anybody would write it; `extra` adds to the loss."""
    module, draw = plain_module(model, activation), rng(seed)
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    options = {"momentum": how.momentum} if how.optimizer == "sgd" else {}
    optimizer = kinds[how.optimizer](module.parameters(), how.learning_rate, weight_decay=how.weight_decay, **options)
    size, taken = how.batch or len(data), 0
    for _ in range(how.epochs if not how.steps else 10**6):
        order = draw.permutation(len(data)) if how.shuffle else np.arange(len(data))
        for start in range(0, len(data), size):
            if how.steps and taken == how.steps:
                return [parameter.detach().numpy() for parameter in module.parameters()]
            rows = order[start:start + size]
            optimizer.zero_grad()
            loss = plain_loss(kind, module(torch.tensor(data.features[rows], dtype=torch.float32)), data.target[rows])
            (loss if extra is None else loss + extra(list(module.parameters()))).backward()
            if how.clip_norm:
                nn.utils.clip_grad_norm_(module.parameters(), how.clip_norm)
            optimizer.step()
            taken += 1
    return [parameter.detach().numpy() for parameter in module.parameters()]


def assert_close(model: Arrays, expected: Any, tolerance: float = 2e-5) -> None:
    values = expected.values() if isinstance(expected, dict) else expected
    for found, wanted in zip(model.values(), values, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def assert_same_bits(first: Trained, second: Trained) -> None:
    assert first.steps == second.steps
    assert first.rows == second.rows
    assert first.loss == second.loss
    for name, values in first.model.items():
        np.testing.assert_array_equal(values, second.model[name], err_msg=name)
