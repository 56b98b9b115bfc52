"""Inversion: the row that a party's gradient came from, and what a class looks like from the model alone.

Zhu, Liu, Han: Deep leakage from gradients, NeurIPS 2019 (look for a row with the same gradient). Zhao, Mopuri, Bilen:
iDLG: Improved deep leakage from gradients, 2020 (the label shows in the signs). Geiping, Bauermeister, Droege, Moeller:
Inverting gradients, NeurIPS 2020 (match directions; exact for a dense first layer).

Gradients may come at any positive scale: an update of one plain step is minus the learning rate times the gradient, and
clipping shortens it. Neither hides a direction.

Fredrikson, Jha, Ristenpart: Model inversion attacks that exploit confidence information, CCS 2015. Where a class is one
person, or rows of a class are alike, a class's look is about rows; else it is about their mean.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError
from tequio.learners.descent import mean_loss, target_array
from tequio.learners.torch_learner import TorchLearner
from tequio.learners.torch_model import model_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from tequio.data.dataset import Schema
    from tequio.learners.learner import Arrays, Learner
    from tequio.learners.torch_model import TorchModel

    Range = tuple[float, float]


def label_of(gradient: Arrays, classes: int) -> int:
    """The class of the row: the one whose output the gradient raises, which is the only negative entry of the last
    bias's gradient."""
    last = next((value for name, value in reversed(gradient.items()) if name.endswith("bias")), None)
    if last is None or last.shape not in ((classes,), (1,)):
        raise ConfigError("labels are told by the bias of the output layer, and this model has none",
                          remedy="choose a learner such as 'logistic' or 'mlp'")
    return int(last[0] < 0) if len(last) == 1 else int(np.argmin(last))


def first_dense_layer(gradient: Arrays, schema: Schema) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Gradients of the weights and biases of a dense layer that the rows enter; nothing where there is no such."""
    name, weights = next(iter(gradient.items()))
    bias = gradient.get(name.removesuffix("weight") + "bias")
    if bias is None or weights.ndim != 2 or weights.shape[1] != prod(schema.shape):
        return None
    return weights, bias


def dense_row(weights: NDArray[Any], bias: NDArray[Any]) -> NDArray[np.float64]:
    """The row exactly: unit by unit the weights' gradient is the row times the bias's gradient.

    Of all units the least squares, which is the best guess where noise was added to every entry.
    """
    shares = bias.astype(np.float64)
    length = float(shares @ shares)
    row: NDArray[np.float64] = shares @ weights.astype(np.float64) / max(length, 1e-300)
    return row


def matched_row(learner: Learner, schema: Schema, model: Arrays, gradient: Arrays, label: int, bounds: Range,
                rng: np.random.Generator, *, steps: int = 300, starts: int = 2) -> NDArray[np.float64]:
    """The row, within bounds, whose gradient points most nearly the same way; the best of some random starts."""
    if not isinstance(learner, TorchLearner):
        raise ConfigError(f"the learner '{type(learner).__name__}' has no gradient to match",
                          remedy="choose a torch learner such as 'mlp'")
    ready = model_for(learner, schema)
    ready.load(model)
    ready.module.eval()
    wanted = ready.weights_like({name: gradient[name] for name in ready.names})
    found = [_descended(ready, schema, wanted, label, bounds, rng, steps) for _ in range(starts)]
    return min(found, key=lambda pair: pair[0])[1]


def reconstructed(learner: Learner, schema: Schema, model: Arrays, gradient: Arrays, bounds: Range,
                  rng: np.random.Generator) -> NDArray[np.float64]:
    """A row of the schema's shape from its gradient: exactly where the first layer is dense, else by matching."""
    dense = first_dense_layer(gradient, schema)
    if dense is not None:
        return np.clip(dense_row(*dense), *bounds).reshape(schema.shape)
    return matched_row(learner, schema, model, gradient, label_of(gradient, schema.target.size), bounds, rng)


def _descended(ready: TorchModel, schema: Schema, wanted: Sequence[Tensor], label: int, bounds: Range,
               rng: np.random.Generator, steps: int) -> tuple[float, NDArray[np.float64]]:
    """Adam on one random start: how far the directions are apart in the end, and the row."""
    import torch

    low, high = bounds
    start = rng.uniform(low, high, (1, *schema.shape)).astype(np.float32)
    row = torch.from_numpy(start).to(ready.device).requires_grad_()
    target = torch.from_numpy(target_array(ready.kind, np.array([label]))).to(ready.device)
    optimizer = torch.optim.Adam([row], lr=0.05 * (high - low))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    distance = torch.tensor(float("inf"))
    for _ in range(steps):
        optimizer.zero_grad()
        distance = _angle(ready, row, target, wanted)
        row.grad = torch.autograd.grad(distance, row)[0]
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            row.clamp_(low, high)
    return float(distance.detach()), row.detach().cpu().numpy()[0].astype(np.float64)


def _angle(ready: TorchModel, row: Tensor, target: Tensor, wanted: Sequence[Tensor]) -> Tensor:
    """One minus the cosine between the row's gradient and the wanted one."""
    import torch

    from tequio.learners.descent import mean_loss

    loss = mean_loss(ready.kind, ready.outputs(row), target)
    gradients = torch.autograd.grad(loss, ready.parameters, create_graph=True)
    shared = torch.stack([(ours * theirs).sum() for ours, theirs in zip(gradients, wanted, strict=True)]).sum()
    lengths = [torch.stack([part.square().sum() for part in parts]).sum() for parts in (gradients, wanted)]
    return 1 - shared / (lengths[0] * lengths[1]).sqrt().clamp_min(1e-30)


def representatives(learner: Learner, schema: Schema, model: Arrays, bounds: tuple[float, float], *, steps: int = 200,
                    restraint: float = 0.01) -> NDArray[np.float64]:
    """One row a class that the model is most sure of, found by descent from the middle of the bounds.

    `restraint` pulls towards that middle, so that entries which do not matter to the model stay where they were.
    """
    if not isinstance(learner, TorchLearner):
        raise ConfigError(f"the learner '{type(learner).__name__}' has no gradient to follow",
                          remedy="choose a torch learner such as 'mlp'")
    import torch

    ready = model_for(learner, schema)
    ready.load(model)
    ready.module.eval()
    (low, high), classes = bounds, len(schema.target.names)
    middle = (low + high) / 2
    rows = torch.full((classes, *schema.shape), middle, device=ready.device, requires_grad=True)
    target = torch.from_numpy(target_array(ready.kind, np.arange(classes))).to(ready.device)
    optimizer = torch.optim.Adam([rows], lr=0.02 * (high - low))
    for _ in range(steps):
        optimizer.zero_grad()
        pull = ((rows - middle) / (high - low)).square().sum() / classes
        rows.grad = torch.autograd.grad(mean_loss(ready.kind, ready.outputs(rows), target) + restraint * pull, rows)[0]
        optimizer.step()
        with torch.no_grad():
            rows.clamp_(low, high)
    return rows.detach().cpu().numpy().astype(np.float64)
