"""The loss that fits a target, its scores, and how wide a model's output has to be.

How one party goes down: which rows each step takes, and what an optimizer makes of their gradients.

The rows are the same for one party alone and for many at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.errors import ConfigError, DataError, DivergedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from tequio.data.dataset import Array, Dataset, Target
    from tequio.learners.learner import Arrays, LocalTraining


LossKind = Literal["softmax", "sigmoid", "squares"]
"""Cross-entropy over classes; mean of binary cross-entropies over outputs; mean of squared errors over outputs."""


def outputs_for(target: Target) -> int:
    """Outputs a model needs: one for a number or for two classes, else one a class or label."""
    if target.kind == "none":
        raise DataError("there is nothing to predict: the rows have no target",
                        remedy="set data.target = \"COLUMN\" where the labels are")
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


def loss_and_slopes(kind: LossKind, outputs: Tensor, target: Tensor,
                    label_weights: Tensor | None = None) -> tuple[float, Tensor]:
    """The mean loss of a batch, and its gradient by the outputs."""
    import torch

    aten: Any = torch.ops.aten
    if kind == "softmax":  # what autograd does, without its graph
        logarithms = torch.log_softmax(outputs, 1)
        loss, rows = aten.nll_loss_forward(logarithms, target, None, 1, -100)
        slopes = aten.nll_loss_backward(torch.ones(()), logarithms, target, None, 1, -100, rows)
        return float(loss), aten._log_softmax_backward_data(slopes, logarithms, 1, outputs.dtype)
    mean = mean_loss(kind, outputs.requires_grad_(), target, label_weights)
    return float(mean.detach()), torch.autograd.grad(mean, outputs)[0]


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


def batch_rows(rows: int, training: LocalTraining) -> int:
    """Rows of a full batch."""
    return training.batch or rows


def steps_of_epochs(rows: int, training: LocalTraining) -> tuple[int, ...]:
    """How many batches each epoch has; counting steps cuts the last epoch short."""
    return _steps_of_epochs(-(-rows // batch_rows(rows, training)), training.epochs, training.steps)


@lru_cache(maxsize=1024)
def _steps_of_epochs(steps_an_epoch: int, epochs: int, steps: int) -> tuple[int, ...]:
    if not steps:
        return (steps_an_epoch,) * epochs
    whole, rest = divmod(steps, steps_an_epoch)
    return (steps_an_epoch,) * whole + (rest,) * (rest > 0)


def without_small_batches(rows: int, training: LocalTraining, least: int) -> LocalTraining:
    """The same training with the next larger batch by which the last step of an epoch has `least` rows as well."""
    if not 0 < training.batch < rows or rows % training.batch == 0 or rows % training.batch >= least:
        return training
    return replace(training, batch=next(size for size in range(training.batch, rows + 1)
                                        if rows % size == 0 or rows % size >= least))


def check_memory(training: LocalTraining, memory: Arrays | None) -> None:
    """Refuse to forget what should be kept: whoever trains must hand over what was kept so far, if only nothing yet."""
    if training.optimizer_memory == "kept" and memory is None:
        raise ConfigError("this training cannot keep what the optimizer remembers from round to round",
                          remedy="set local.optimizer_memory = 'fresh', or choose an algorithm such as 'fedavg' with a "
                                 "torch learner")


def row_orders(rows: int, training: LocalTraining, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """The rows of each epoch in the order of their batches, drawn when asked for."""
    for steps in steps_of_epochs(rows, training):
        order = rng.permutation(rows) if training.shuffle else np.arange(rows)
        yield order[:steps * batch_rows(rows, training)]


def check_trainable(data: Dataset) -> None:
    """Refuse a dataset without rows or without a target."""
    if not len(data):
        raise DataError(f"'{data.name}' has no rows to train on", remedy="raise the partition's minimum of rows")
    if data.schema.target.kind == "none":
        raise DataError(f"'{data.name}' holds no target to learn", remedy="choose a learner that needs none, or data "
                        "that has one")


def check_finite(model: Arrays, data: Dataset, step: int) -> None:
    """Refuse a model that the last step has blown up."""
    if not is_finite(model.values()):
        raise diverged(data, step)


def is_finite(arrays: Iterable[Array]) -> bool:
    """Whether no entry is NaN or infinite."""
    return all(_is_finite(values) for values in arrays if values.dtype.kind == "f")


def _is_finite(values: Array) -> bool:
    # A NaN or infinite entry makes the sum of squares so; only then (or where huge numbers overflow) look at each.
    flat = values.reshape(-1)
    return isfinite(np.vdot(flat, flat)) or bool(np.isfinite(values).all())


def diverged(data: Dataset, step: int) -> DivergedError:
    """The error of a training that leads nowhere any more; steps count from 1."""
    return DivergedError(f"training on '{data.name}': loss or weights became not finite at step {step}",
                         remedy="lower local.learning_rate, or set local.clip_norm")


@dataclass
class Optimizer:
    """How the weights of one party go down, with the optimizer's memory of this training.

    The gradient of a batch is clipped first; then each gains its offset, pull * (weights - anchor) and weight decay.
    Weights at the places `frozen` do not move. `memory` and `age`, its steps so far, may come from an earlier training.
    """

    training: LocalTraining
    rate: float
    offsets: list[Tensor] | None = None
    anchors: list[Tensor] | None = None
    pull: float = 0.0
    frozen: tuple[int, ...] = ()
    steps: int = 0
    age: int = 0
    memory: list[list[Tensor]] = field(default_factory=list)

    def step(self, weights: list[Tensor], gradients: list[Tensor]) -> None:
        """Move the weights once."""
        import torch

        self.steps += 1
        gradients = self._corrected(weights, clipped(gradients, self.training.clip_norm))
        if self.training.optimizer == "adam":
            self.memory = self.memory or [[torch.zeros_like(weight) for weight in weights] for _ in range(2)]
            first, second = self.memory
            adam_step(weights, _laid_out_like(weights, gradients), first, second, self.age + self.steps, self.rate)
        else:
            torch._foreach_add_(weights, self._velocity(gradients), alpha=-self.rate)

    def _corrected(self, weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        import torch

        if self.offsets is not None:
            gradients = list(torch._foreach_add(gradients, self.offsets))
        if self.training.weight_decay + self.pull:
            gradients = list(torch._foreach_add(gradients, weights, alpha=self.training.weight_decay + self.pull))
        if self.anchors is not None:
            gradients = list(torch._foreach_add(gradients, self.anchors, alpha=-self.pull))
        return [torch.zeros_like(gradient) if index in self.frozen else gradient
                for index, gradient in enumerate(gradients)] if self.frozen else gradients

    def _velocity(self, gradients: list[Tensor]) -> list[Tensor]:
        import torch

        if not self.training.momentum:
            return gradients
        if self.memory:
            torch._foreach_mul_(self.memory[0], self.training.momentum)
            torch._foreach_add_(self.memory[0], gradients)
        else:
            self.memory = [[gradient.clone() for gradient in gradients]]
        return self.memory[0]


def clipped(gradients: list[Tensor], bound: float) -> list[Tensor]:
    """All gradients scaled alike so that together they are no longer than the bound (0: as they are)."""
    import torch

    if not bound:
        return gradients
    length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return list(torch._foreach_mul(gradients, (bound / (length + 1e-6)).clamp(max=1.0)))


def adam_step(weights: list[Tensor], gradients: list[Tensor], first: list[Tensor], second: list[Tensor], step: int,
              rate: float) -> None:
    """Adam (Kingma and Ba, 2015) with its usual constants, in one pass over memory; `step` counts from 1."""
    import torch

    fused: Any = torch._fused_adam_
    steps = [torch.tensor(float(step), device=weights[0].device)] * len(weights)
    fused(weights, gradients, first, second, [], steps, lr=rate, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8,
          amsgrad=False, maximize=False)


def _laid_out_like(weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
    """Gradients in the memory order of their weights: the fused step goes through both as they lie in memory."""
    import torch

    return [gradient if gradient.stride() == weight.stride() else torch.empty_like(weight).copy_(gradient)
            for weight, gradient in zip(weights, gradients, strict=True)]
