"""The learner contract for torch modules: descent by autograd, outputs and gradients, read batch by batch.

Torch learners differ only in the module they build.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.errors import DataError
from tequio.learners import metrics
from tequio.learners.batched import LARGEST, train_stacks
from tequio.learners.descent import (
    Optimizer,
    batch_rows,
    check_finite,
    check_memory,
    check_trainable,
    diverged,
    loss_and_slopes,
    mean_loss,
    row_losses,
    row_orders,
    scores_of,
    target_array,
)
from tequio.learners.learner import Trained
from tequio.learners.mixtures import StackJudge, judge_one_by_one
from tequio.learners.private_training import PrivateTraining, descend_privately
from tequio.learners.torch_model import check_model, fresh_model, model_for, require_torch, seeded_beside

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tequio.data.dataset import Array, Dataset, Schema
    from tequio.learners.learner import Arrays, Correction, Job, LocalTraining, Tally
    from tequio.learners.mixtures import Judge
    from tequio.learners.torch_model import TorchModel

EVALUATION_ROWS = 1_000
"""Rows that go through a module at a time where nothing is trained."""


@dataclass(frozen=True)
class TorchLearner(ABC):
    """What all torch learners share; each says which module to build for a schema."""

    device: Literal["", "cpu", "cuda", "mps", "auto"] = field(default="", kw_only=True)

    @abstractmethod
    def build(self, schema: Schema) -> nn.Module:
        """A module with fresh parameters for rows of that schema, with one output a class, label or number."""

    def initial(self, schema: Schema, rng: np.random.Generator) -> Arrays:
        """Fresh parameters, from the module's own initialisation."""
        self._ready(schema)  # a module that does not fit the rows is refused before the first round
        return fresh_model(self, schema, rng)

    def buffers(self, schema: Schema) -> frozenset[str]:
        """What travels without being trained: running means and variances."""
        return self._ready(schema).buffers

    def train(self, model: Arrays, data: Dataset, training: LocalTraining, rng: np.random.Generator, *,
              learning_rate: float | None = None, correction: Correction | None = None,
              memory: Arrays | None = None) -> Trained:
        """Train a copy of `model` on the rows by autograd, going on with the optimizer's memory where it is kept."""
        check_trainable(data)
        check_memory(training, memory)
        ready = self._loaded(model, data.schema)
        ready.module.train()
        rate = training.learning_rate if learning_rate is None else learning_rate
        optimizer = optimizer_for(ready, model, training, rate, correction)
        recall(optimizer, ready, memory or {})
        with seeded_beside(rng, ready.device, is_needed=ready.is_random):
            weights = correction.label_weights if correction else None
            if isinstance(training, PrivateTraining):
                loss = descend_privately(ready, data, training, rng, optimizer, weights)
            else:
                loss = descend(ready, data, training, rng, optimizer, weights)
        trained = ready.dump()
        check_finite(trained, data, optimizer.steps)
        return Trained(trained, optimizer.steps, loss, len(data),
                       memory_of(optimizer, ready) if training.optimizer_memory == "kept" else {})

    def predict(self, model: Arrays, data: Dataset) -> Array:
        """Probabilities of classes or labels, or predicted numbers."""
        ready = self._loaded(model, data.schema)
        scores: Array = scores_of(ready.kind, outputs_of(ready, data), data.schema.target).numpy()
        return scores

    def outputs(self, model: Arrays, data: Dataset) -> Array:
        """What the module gives before it becomes probabilities, (rows, outputs)."""
        values: Array = outputs_of(self._loaded(model, data.schema), data).numpy()
        return values

    def evaluate(self, model: Arrays, data: Dataset) -> Tally:
        """Additive counts of the rows, with the loss that the module is trained on."""
        import torch

        ready = self._loaded(model, data.schema)
        outputs, target = outputs_of(ready, data), data.schema.target
        wanted = torch.from_numpy(target_array(ready.kind, data.target))
        loss_sum = float(row_losses(ready.kind, outputs, wanted).sum(dtype=torch.float64))
        return metrics.tally(target, scores_of(ready.kind, outputs, target).numpy(), data.target, loss_sum)

    def gradient(self, model: Arrays, data: Dataset) -> tuple[Arrays, float]:
        """Gradient of the mean loss over all rows, as the module predicts (no dropout), and that loss."""
        check_trainable(data)
        ready = self._loaded(model, data.schema)
        gradients, loss = whole_gradient(ready, data)
        return ready.with_zeros_elsewhere(gradients), loss

    def mixture_judge(self, base: Arrays, directions: Sequence[Arrays], data: Dataset) -> Judge:
        """What gives the mean loss of base + shares @ directions, for each row of shares; batched for dense stacks."""
        ready = self._ready(data.schema)
        if ready.stack is None or ready.device != "cpu":
            return judge_one_by_one(self, base, directions, data)
        for model in (base, *directions):
            check_model(model, ready.stack.shapes)
        return StackJudge(ready.stack, ready.kind, [base, *directions], data)

    def trains_together(self, schema: Schema, training: LocalTraining) -> bool:
        """Whether the module is a stack of dense layers and not too large; any loss and any optimizer will do, but not
        training that looks at the gradients of single rows."""
        ready = self._ready(schema)
        return (ready.stack is not None and ready.device == "cpu" and ready.stack.parameters <= LARGEST
                and not isinstance(training, PrivateTraining))

    def train_together(self, jobs: Sequence[Job], training: LocalTraining, *,
                       learning_rate: float | None = None) -> Sequence[Trained]:
        """Train all jobs in batched matrix products; modules that are no dense stack train one by one."""
        if not jobs:
            return []
        check_memory(training, None)
        ready = self._ready(jobs[0].data.schema)
        if (ready.stack is None or isinstance(training, PrivateTraining)
                or any(job.correction and job.correction.frozen for job in jobs)):
            return [self.train(job.model, job.data, training, job.rng, learning_rate=learning_rate,
                               correction=job.correction) for job in jobs]
        rate = training.learning_rate if learning_rate is None else learning_rate
        return train_stacks(ready.stack, ready.kind, jobs, training, rate)

    def _ready(self, schema: Schema) -> TorchModel:
        require_torch(f"the learner '{type(self).__name__}'")
        return model_for(self, schema)

    def _loaded(self, model: Arrays, schema: Schema) -> TorchModel:
        ready = self._ready(schema)
        ready.load(model)
        return ready


def optimizer_for(ready: TorchModel, start: Arrays, training: LocalTraining, rate: float,
                  correction: Correction | None) -> Optimizer:
    """The optimizer of one training, with the correction's arrays on the module's device."""
    if correction is None:
        return Optimizer(training, rate)
    anchor = start if correction.anchor is None else correction.anchor
    return Optimizer(training, rate, pull=correction.pull,
                     offsets=None if correction.offset is None else ready.weights_like(correction.offset),
                     anchors=ready.weights_like(anchor) if correction.pull else None,
                     frozen=tuple(index for index, name in enumerate(ready.names) if name in correction.frozen))


def recall(optimizer: Optimizer, ready: TorchModel, kept: Arrays) -> None:
    """Let the optimizer go on where an earlier one stopped; nothing kept is a beginning."""
    import torch

    if not kept:
        return
    optimizer.age = int(kept["age"])
    check_model(kept, {f"{kind}/{name}": ready.shapes[name] for kind in _remembered(optimizer.training)
                       for name in ready.names})
    optimizer.memory = [[torch.empty_like(weight).copy_(torch.from_numpy(kept[f"{kind}/{name}"]))
                         for name, weight in zip(ready.names, ready.weights, strict=True)]
                        for kind in _remembered(optimizer.training)]


def memory_of(optimizer: Optimizer, ready: TorchModel) -> Arrays:
    """What the optimizer remembers, by name."""
    kept = {f"{kind}/{name}": np.array(tensor.cpu().numpy(), order="C")
            for kind, tensors in zip(_remembered(optimizer.training), optimizer.memory, strict=False)
            for name, tensor in zip(ready.names, tensors, strict=True)}
    return {"age": np.array(optimizer.age + optimizer.steps), **kept} if kept else {}


def _remembered(training: LocalTraining) -> tuple[str, ...]:
    return ("first", "second") if training.optimizer == "adam" else ("velocity",) if training.momentum else ()


def descend(ready: TorchModel, data: Dataset, training: LocalTraining, rng: np.random.Generator,
            optimizer: Optimizer, label_weights: Array | None = None) -> float:
    """Train the module's weights in place; gives the mean loss of the last epoch."""
    weights = None if label_weights is None else _tensor(_checked(label_weights, ready), ready)
    wanted = target_array(ready.kind, data.target)
    size = batch_rows(len(data), training)
    room = np.empty((min(size, len(data)), *data.schema.shape), np.float32)
    mean = float("nan")
    for order in row_orders(len(data), training, rng):
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


def _checked(label_weights: Array, ready: TorchModel) -> Array:
    """Refuse weights of labels where there are none, or other ones."""
    if ready.kind != "sigmoid" or label_weights.shape != (2, ready.width):
        raise DataError(f"weights of shape {label_weights.shape} do not fit a model with {ready.width} outputs",
                        remedy="give two rows of weights, one column a label, to a multi-label model")
    return label_weights.astype(np.float32)


def _step(ready: TorchModel, optimizer: Optimizer, rows: Array, wanted: Array,
          label_weights: Tensor | None) -> float:
    import torch

    if ready.passes is not None:
        outputs, backward = ready.passes.forward(_tensor(rows, ready))
        value, slopes = loss_and_slopes(ready.kind, outputs, _tensor(wanted, ready), label_weights)
        optimizer.step(ready.weights, backward(slopes))
        return value
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
    consecutive = data.rows is None and data.columns is None and not data.is_sparse
    for start in range(0, len(data), EVALUATION_ROWS):
        where = np.arange(start, min(start + EVALUATION_ROWS, len(data)))
        rows = np.empty((len(where), *data.schema.shape), np.float32)
        if consecutive:
            rows[...] = data.source.features[start:start + len(where)]
        else:
            data.read(where, rows)
        yield _tensor(rows, ready), where


def _tensor(values: Array, ready: TorchModel) -> Tensor:
    import torch

    return torch.from_numpy(values).to(ready.device)
