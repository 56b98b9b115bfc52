"""One party at a torch module: descent by autograd, outputs and gradients. Rows are read batch by batch."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError
from tequio.learners.batches import batch_rows, diverged, row_orders
from tequio.learners.descent import Optimizer
from tequio.learners.losses import mean_loss, row_losses, target_array
from tequio.learners.torch_model import check_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from tequio.data.dataset import Dataset
    from tequio.learners.learner import Arrays, Correction, LocalTraining
    from tequio.learners.torch_model import TorchModel

EVALUATION_ROWS = 1_000
"""Rows that go through a module at a time where nothing is trained."""


def optimizer_for(ready: TorchModel, start: Arrays, how: LocalTraining, rate: float,
                  correction: Correction | None) -> Optimizer:
    """The optimizer of one training, with the correction's arrays on the module's device."""
    if correction is None:
        return Optimizer(how, rate)
    anchor = start if correction.anchor is None else correction.anchor
    return Optimizer(how, rate, pull=correction.pull,
                     offsets=None if correction.offset is None else ready.weights_like(correction.offset),
                     anchors=ready.weights_like(anchor) if correction.pull else None,
                     frozen=tuple(place for place, name in enumerate(ready.names) if name in correction.frozen))


def recall(optimizer: Optimizer, ready: TorchModel, kept: Arrays) -> None:
    """Let the optimizer go on where an earlier one stopped; nothing kept is a beginning."""
    import torch

    if not kept:
        return
    optimizer.age = int(kept["age"])
    check_model(kept, {f"{kind}/{name}": ready.shapes[name] for kind in _remembered(optimizer.how)
                       for name in ready.names})
    optimizer.memory = [[torch.empty_like(weight).copy_(torch.from_numpy(kept[f"{kind}/{name}"]))
                         for name, weight in zip(ready.names, ready.weights, strict=True)]
                        for kind in _remembered(optimizer.how)]


def memory_of(optimizer: Optimizer, ready: TorchModel) -> Arrays:
    """What the optimizer remembers, by name."""
    kept = {f"{kind}/{name}": np.array(tensor.cpu().numpy(), order="C")
            for kind, tensors in zip(_remembered(optimizer.how), optimizer.memory, strict=False)
            for name, tensor in zip(ready.names, tensors, strict=True)}
    return {"age": np.array(optimizer.age + optimizer.steps), **kept} if kept else {}


def _remembered(how: LocalTraining) -> tuple[str, ...]:
    return ("first", "second") if how.optimizer == "adam" else ("velocity",) if how.momentum else ()


def descend(ready: TorchModel, data: Dataset, how: LocalTraining, rng: np.random.Generator,
            optimizer: Optimizer, label_weights: NDArray[Any] | None = None) -> float:
    """Train the module's weights in place; gives the mean loss of the last epoch."""
    weights = None if label_weights is None else _tensor(_checked(label_weights, ready), ready)
    wanted = target_array(ready.kind, data.target)
    size = batch_rows(len(data), how)
    room = np.empty((min(size, len(data)), *data.schema.shape), np.float32)
    mean = float("nan")
    for order in row_orders(len(data), how, rng):
        total = 0.0
        for start in range(0, len(order), size):
            rows = order[start:start + size]
            data.read(rows, room[:len(rows)])
            loss = _step(ready, optimizer, room[:len(rows)], wanted[rows], weights)
            if not isfinite(loss):
                raise diverged(data, optimizer.steps)
            total += loss * len(rows)
        mean = total / len(order)
    return mean


def _checked(label_weights: NDArray[Any], ready: TorchModel) -> NDArray[Any]:
    """Refuse weights of labels where there are none, or other ones."""
    if ready.kind != "sigmoid" or label_weights.shape != (2, ready.width):
        raise DataError(f"weights of shape {label_weights.shape} do not fit a model with {ready.width} outputs",
                        remedy="give two rows of weights, one column a label, to a multi-label model")
    return label_weights.astype(np.float32)


def _step(ready: TorchModel, optimizer: Optimizer, rows: NDArray[Any], wanted: NDArray[Any],
          label_weights: Tensor | None) -> float:
    import torch

    loss = mean_loss(ready.kind, ready.outputs(_tensor(rows, ready)), _tensor(wanted, ready), label_weights)
    gradients = torch.autograd.grad(loss, ready.parameters, materialize_grads=True)
    optimizer.step(ready.weights, list(gradients))
    return float(loss.detach())


def outputs_of(ready: TorchModel, data: Dataset) -> Tensor:
    """The module's outputs for all rows on the CPU, as it predicts: without dropout, without learning anything."""
    import torch

    ready.module.eval()
    with torch.inference_mode():
        parts = [ready.outputs(rows).cpu() for rows, _ in _pieces(ready, data)]
        return torch.cat(parts) if parts else torch.zeros(0, ready.width)


def whole_gradient(ready: TorchModel, data: Dataset) -> tuple[list[Tensor], float]:
    """Gradient of the mean loss over all rows, as the module predicts, and that loss."""
    import torch

    ready.module.eval()
    wanted = target_array(ready.kind, data.target)
    sums, total = [torch.zeros_like(weight) for weight in ready.weights], 0.0
    for rows, where in _pieces(ready, data):
        loss = row_losses(ready.kind, ready.outputs(rows), _tensor(wanted[where], ready)).sum() / len(data)
        torch._foreach_add_(sums, torch.autograd.grad(loss, ready.parameters, materialize_grads=True))
        total += float(loss.detach())
    return sums, total


def _pieces(ready: TorchModel, data: Dataset) -> Iterator[tuple[Tensor, NDArray[np.int64]]]:
    for start in range(0, len(data), EVALUATION_ROWS):
        where = np.arange(start, min(start + EVALUATION_ROWS, len(data)))
        rows = np.empty((len(where), *data.schema.shape), np.float32)
        data.read(where, rows)
        yield _tensor(rows, ready), where


def _tensor(values: NDArray[Any], ready: TorchModel) -> Tensor:
    import torch

    return torch.from_numpy(values).to(ready.device)
