"""The learner contract for torch modules. Torch learners differ only in the module they build."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tequio.learners import metrics
from tequio.learners.batched import LARGEST, train_stacks
from tequio.learners.batches import check_finite, check_memory, check_trainable
from tequio.learners.learner import Trained
from tequio.learners.losses import row_losses, scores_of, target_array
from tequio.learners.mixtures import StackJudge, judge_one_by_one
from tequio.learners.private_training import PrivateTraining, descend_privately
from tequio.learners.torch_model import check_model, fresh_model, model_for
from tequio.learners.torch_state import require_torch, seeded_beside
from tequio.learners.torch_training import (
    descend,
    memory_of,
    optimizer_for,
    outputs_of,
    recall,
    whole_gradient,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from tequio.data.dataset import Dataset
    from tequio.data.schema import Schema
    from tequio.learners.learner import Arrays, Correction, Job, LocalTraining, Tally
    from tequio.learners.mixtures import Judge
    from tequio.learners.torch_model import TorchModel


@dataclass(frozen=True)
class TorchLearner(ABC):
    """What all torch learners share; each says which module to build for a schema."""

    device: Literal["", "cpu", "cuda", "mps", "auto"] = field(default="", kw_only=True)

    @abstractmethod
    def build(self, schema: Schema) -> nn.Module:
        """A module with fresh parameters for rows of that schema, with one output a class, label or number."""

    def initial(self, schema: Schema, rng: np.random.Generator) -> Arrays:
        """Fresh parameters, from the module's own initialisation."""
        require_torch(f"the learner '{type(self).__name__}'")
        return fresh_model(self, schema, rng)

    def train(self, model: Arrays, data: Dataset, how: LocalTraining, rng: np.random.Generator, *,
              learning_rate: float | None = None, correction: Correction | None = None,
              memory: Arrays | None = None) -> Trained:
        """Train a copy of `model` on the rows by autograd, going on with the optimizer's memory where it is kept."""
        check_trainable(data)
        check_memory(how, memory)
        ready = self._loaded(model, data.schema)
        ready.module.train()
        rate = how.learning_rate if learning_rate is None else learning_rate
        optimizer = optimizer_for(ready, model, how, rate, correction)
        recall(optimizer, ready, memory or {})
        with seeded_beside(rng, ready.device, is_needed=ready.is_random):
            weights = correction.label_weights if correction else None
            if isinstance(how, PrivateTraining):
                loss = descend_privately(ready, data, how, rng, optimizer, weights)
            else:
                loss = descend(ready, data, how, rng, optimizer, weights)
        trained = ready.dump()
        check_finite(trained, data, optimizer.steps)
        return Trained(trained, optimizer.steps, loss, len(data),
                       memory_of(optimizer, ready) if how.optimizer_memory == "kept" else {})

    def predict(self, model: Arrays, data: Dataset) -> NDArray[Any]:
        """Probabilities of classes or labels, or predicted numbers."""
        ready = self._loaded(model, data.schema)
        scores: NDArray[Any] = scores_of(ready.kind, outputs_of(ready, data), data.schema.target).numpy()
        return scores

    def outputs(self, model: Arrays, data: Dataset) -> NDArray[Any]:
        """What the module gives before it becomes probabilities, (rows, outputs)."""
        values: NDArray[Any] = outputs_of(self._loaded(model, data.schema), data).numpy()
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

    def trains_together(self, schema: Schema, how: LocalTraining) -> bool:
        """Whether the module is a stack of dense layers and not too large; any loss and any optimizer will do, but not
        training that looks at the gradients of single rows."""
        ready = self._ready(schema)
        return (ready.stack is not None and ready.device == "cpu" and ready.stack.parameters <= LARGEST
                and not isinstance(how, PrivateTraining))

    def train_together(self, jobs: Sequence[Job], how: LocalTraining, *,
                       learning_rate: float | None = None) -> Sequence[Trained]:
        """Train all jobs in batched matrix products; modules that are no dense stack train one by one."""
        if not jobs:
            return []
        check_memory(how, None)
        ready = self._ready(jobs[0].data.schema)
        if (ready.stack is None or isinstance(how, PrivateTraining)
                or any(job.correction and job.correction.frozen for job in jobs)):
            return [self.train(job.model, job.data, how, job.rng, learning_rate=learning_rate,
                               correction=job.correction) for job in jobs]
        rate = how.learning_rate if learning_rate is None else learning_rate
        return train_stacks(ready.stack, ready.kind, jobs, how, rate)

    def _ready(self, schema: Schema) -> TorchModel:
        require_torch(f"the learner '{type(self).__name__}'")
        return model_for(self, schema)

    def _loaded(self, model: Arrays, schema: Schema) -> TorchModel:
        ready = self._ready(schema)
        ready.load(model)
        return ready
