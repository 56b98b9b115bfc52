"""Training whose every step hides single rows: drawn batches, clipped gradients of rows, noise on their sum.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep learning with differential privacy, CCS 2016. Gradients of
rows come from Opacus (Yousefpour et al., 2021), all of a batch at once.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from math import floor, log2
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Gt

from tequio.errors import ConfigError, MissingExtra
from tequio.learners.descent import batch_rows, row_losses, steps_of_epochs, target_array
from tequio.learners.learner import LocalTraining
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opacus.grad_sample import GradSampleModule
    from torch import Tensor

    from tequio.data.dataset import Array, Dataset
    from tequio.learners.descent import Optimizer
    from tequio.learners.torch_model import TorchModel

_FINENESS = 10
"""The grid is 2^-10 times the noise wide, or less; rounding to it adds less than one part in ten million to it."""


@register("training", "dp-sgd", paper="Abadi et al., 2016")
@dataclass(frozen=True)
class PrivateTraining(LocalTraining):
    """Mini-batch descent that hides single rows: every row joins a batch by chance, is clipped, and drowned in noise.

    Needs a torch learner without layers, such as batch normalisation, that mix the rows of a batch.

    Parameters:
        epochs: expected passes over the party's training rows
        steps: take this many steps instead of counting epochs (0: count epochs)
        batch: expected rows a batch (0: all rows in every batch)
        optimizer: sgd or adam
        learning_rate: step size
        momentum: heavy-ball momentum of sgd
        weight_decay: L2 pull of every weight towards zero
        decay: factor on the learning rate after every round
        clip_norm: largest norm of a batch's gradient after noise (0: no clipping)
        shuffle: has no meaning here, batches are always drawn
        optimizer_memory: what momentum and adam remember of earlier steps: fresh (forgotten after every round) or kept
            (in the party's private state, from round to round)
        row_clip: largest norm of a row's gradient
        noise: standard deviation of the noise on a batch's sum, in units of `row_clip` (left out: as privacy.epsilon
            asks)
    """

    row_clip: Annotated[float, Gt(0)] = 1.0
    noise: Annotated[float, Ge(0)] | None = None


def batch_chance(rows: int, training: LocalTraining) -> float:
    """The chance of a row to be in a batch."""
    return min(batch_rows(rows, training) / rows, 1.0)


def refuse_private(training: LocalTraining, learner: str) -> None:
    """For learners that would train without any noise."""
    if isinstance(training, PrivateTraining):
        raise ConfigError(f"the learner '{learner}' has no gradients of single rows, which local training 'dp-sgd' "
                          "clips and noises", remedy="choose a torch learner such as 'logistic' or 'mlp'")


def descend_privately(ready: TorchModel, data: Dataset, training: PrivateTraining, rng: np.random.Generator,
                      optimizer: Optimizer, label_weights: Array | None = None) -> float:
    """Train the module's weights in place. The loss is not told: it would follow from the rows without noise."""
    if label_weights is not None:
        raise ConfigError("local training 'dp-sgd' knows no weights of labels",
                          remedy="use another algorithm, or train with 'minibatch'")
    if training.noise is None:
        raise ConfigError("the noise of local training 'dp-sgd' is not known",
                          remedy="set local.noise, or a budget: privacy.epsilon")
    wanted, chance = target_array(ready.kind, data.target), batch_chance(len(data), training)
    with _row_gradients(ready) as wrapped:
        for _ in range(sum(steps_of_epochs(len(data), training))):
            rows = np.flatnonzero(rng.random(len(data)) < chance)
            sums = _clipped_sums(ready, wrapped, data, wanted, rows, training.row_clip)
            optimizer.step(ready.weights, [_noised(total, training, rng) / (chance * len(data)) for total in sums])
    return float("nan")


@contextmanager
def _row_gradients(ready: TorchModel) -> Iterator[GradSampleModule]:
    """The module with hooks that keep the gradients of single rows, which it loses again afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of hooks where the rows themselves need no gradient, as here
        wrapped = _wrapped(ready)
        try:
            yield wrapped
        finally:
            wrapped._close()


def _wrapped(ready: TorchModel) -> GradSampleModule:
    try:
        from opacus.grad_sample import GradSampleModule
        from opacus.validators import ModuleValidator
    except ImportError as cause:
        raise MissingExtra("opacus", "privacy", "local training 'dp-sgd'") from cause
    problems = ModuleValidator.validate(ready.module, strict=False)
    if problems:
        raise ConfigError(f"this model cannot be trained by 'dp-sgd': {problems[0]}",
                          remedy="choose a model without batch normalisation")
    return GradSampleModule(ready.module, loss_reduction="sum")


def _clipped_sums(ready: TorchModel, wrapped: GradSampleModule, data: Dataset, wanted: Array, rows: Array,
                  bound: float) -> list[Tensor]:
    """The sum over a batch of the rows' gradients, each no longer than the bound, by parameter."""
    import torch

    if not len(rows):
        return [torch.zeros_like(weight) for weight in ready.weights]
    inputs = np.empty((len(rows), *data.schema.shape), np.float32)
    data.read(rows, inputs)
    outputs = wrapped(torch.from_numpy(inputs).to(ready.device))
    outputs = outputs if outputs.ndim == 2 else outputs[:, None]
    total: Any = row_losses(ready.kind, outputs, torch.from_numpy(wanted[rows]).to(ready.device)).sum()
    total.backward()
    parameters: list[Any] = list(ready.parameters)
    each = [parameter.grad_sample.detach() for parameter in parameters]
    squares = torch.stack([gradients.flatten(1).square().sum(1) for gradients in each]).sum(0)
    wild = ~torch.isfinite(squares)
    for gradients in each if bool(wild.any()) else ():
        gradients[wild] = 0.0  # one row must not show by making everything no number
    shares = (bound / squares.where(~wild, squares.new_zeros(())).sqrt().clamp_min(1e-12)).clamp_max(1.0)
    sums = [torch.einsum("r...,r->...", gradients, shares) for gradients in each]
    for parameter in parameters:
        parameter.grad_sample = parameter.grad = None
    return sums


def _noised(total: Tensor, training: PrivateTraining, rng: np.random.Generator) -> Tensor:
    import torch

    spread = (training.noise or 0.0) * training.row_clip
    if not spread:
        return total
    noise = rng.standard_normal(tuple(total.shape), dtype=np.float32) * np.float32(spread)
    step = grid_of(spread)
    return torch.round((total + torch.from_numpy(noise).to(total.device)) / step) * step


def grid_of(spread: float) -> float:
    """How far apart the values are that noised numbers are rounded to: a power of two.

    Mironov: On significance of the least significant bits for differential privacy, CCS 2012: sums of floating-point
    numbers have last digits that give the summands away. The grid is coarse beside these digits and fine beside the
    noise, and every value on it can come from any summand.
    """
    return float(2.0 ** (floor(log2(spread)) - _FINENESS))
