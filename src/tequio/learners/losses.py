"""The loss that fits a target, its scores, and how wide a model's output has to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from tequio.data.dataset import Array, Target

LossKind = Literal["softmax", "sigmoid", "squares"]
"""Cross-entropy over classes; mean of binary cross-entropies over outputs; mean of squared errors over outputs."""


def outputs_for(target: Target) -> int:
    """Outputs a model needs: one for a number or for two classes, else one a class or label."""
    if target.kind == "none":
        raise DataError("a model cannot be built for data without a target",
                        remedy="ask the party that holds the labels")
    return 1 if target.kind == "classes" and len(target.names) == 2 else target.size


def loss_for(target: Target, outputs: int) -> LossKind:
    """The loss of a model with that many outputs; two classes may have one output or two."""
    if target.kind == "classes" and outputs == 1 and len(target.names) == 2:
        return "sigmoid"
    if outputs != target.size:
        raise DataError(f"the model has {outputs} outputs, but the target '{target.name}' needs {outputs_for(target)}",
                        remedy="let the model's factory take the number of outputs from the schema")
    kinds: dict[str, LossKind] = {"classes": "softmax", "multilabel": "sigmoid", "number": "squares"}
    return kinds[target.kind]


def target_array(kind: LossKind, target: Array) -> Array:
    """Target values in the type the loss needs: codes (rows,), or float32 (rows, outputs).

    Writable, because torch warns of read-only arrays; those of shared memory are.
    """
    if kind == "softmax":
        return np.require(target, np.int64, ["C", "W"])
    values = np.require(target, np.float32, ["C", "W"])
    return values if values.ndim == 2 else values[:, None]


def row_losses(kind: LossKind, outputs: Tensor, target: Tensor) -> Tensor:
    """Loss of each row."""
    from torch.nn import functional

    if kind == "softmax":
        return functional.cross_entropy(outputs, target, reduction="none")
    if kind == "sigmoid":
        return functional.binary_cross_entropy_with_logits(outputs, target, reduction="none").mean(1)
    return functional.mse_loss(outputs, target, reduction="none").mean(1)


def mean_loss(kind: LossKind, outputs: Tensor, target: Tensor, label_weights: Tensor | None = None) -> Tensor:
    """Mean loss of a batch; `label_weights` are those of a `Correction`."""
    from torch.nn import functional

    if label_weights is not None:
        weights = label_weights[0] + target * (label_weights[1] - label_weights[0])
        return functional.binary_cross_entropy_with_logits(outputs, target, weights)

    if kind == "softmax":
        return functional.cross_entropy(outputs, target)
    if kind == "sigmoid":
        return functional.binary_cross_entropy_with_logits(outputs, target)
    return functional.mse_loss(outputs, target)


def scores_of(kind: LossKind, outputs: Tensor, target: Target) -> Tensor:
    """What `predict` gives: probabilities (rows, classes or labels), or numbers."""
    import torch

    if kind == "softmax":
        return torch.softmax(outputs, 1)
    if kind == "squares":
        return outputs.squeeze(1) if outputs.shape[1] == 1 else outputs
    probabilities = torch.sigmoid(outputs)
    is_two_classes = target.kind == "classes"
    return torch.cat([1 - probabilities, probabilities], 1) if is_two_classes else probabilities
