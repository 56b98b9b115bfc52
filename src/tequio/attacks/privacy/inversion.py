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

from tequio.attacks.privacy.matching import matched_rows
from tequio.errors import ConfigError
from tequio.learners.descent import mean_loss, target_array
from tequio.learners.torch_learner import TorchLearner
from tequio.learners.torch_model import model_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Schema
    from tequio.learners.learner import Arrays, Learner

    Range = tuple[float, float]


def label_of(gradient: Arrays, classes: int) -> int:
    """The class of the row: the one whose output the gradient raises, which is the only negative entry of the last
    bias's gradient."""
    last = last_bias(gradient, classes)
    return int(last[0] < 0) if len(last) == 1 else int(np.argmin(last))


def last_bias(gradient: Arrays, classes: int) -> NDArray[Any]:
    """The gradient of the output layer's bias."""
    last = next((value for name, value in reversed(gradient.items()) if name.endswith("bias")), None)
    if last is None or last.shape not in ((classes,), (1,)):
        raise ConfigError("labels show in the bias of the output layer, and this model has none",
                          remedy="choose a learner such as 'logistic' or 'mlp'")
    return last


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


def reconstructed(learner: Learner, schema: Schema, model: Arrays, gradient: Arrays, bounds: Range,
                  rng: np.random.Generator) -> NDArray[np.float64]:
    """A row of the schema's shape from its gradient: exactly where the first layer is dense, else by a search."""
    dense = first_dense_layer(gradient, schema)
    if dense is not None:
        return np.clip(dense_row(*dense), *bounds).reshape(schema.shape)
    labels = np.array([[label_of(gradient, schema.target.size)]])
    found: NDArray[np.float64] = matched_rows(learner, schema, model, [gradient], labels, bounds, rng)[0, 0]
    return found


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
