"""Training whose every step hides single rows: drawn batches, clipped gradients of rows, noise on their sum.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep learning with differential privacy, CCS 2016. Gradients of
rows come from Opacus (Yousefpour et al., 2021), all of a batch at once.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Gt

from tequio.errors import ConfigError, MissingExtra
from tequio.learners.descent import batch_rows, row_losses, steps_of_epochs, target_array
from tequio.learners.learner import LocalTraining
from tequio.noise.coins import Coins
from tequio.noise.grid import SLACK, step_for
from tequio.noise.sampling import rounded_gaussian
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opacus.grad_sample import GradSampleModule
    from torch import Tensor

    from tequio.data.dataset import Array, Dataset
    from tequio.learners.descent import Optimizer
    from tequio.learners.torch_model import TorchModel

_AT_ONCE = 8
"""Rows whose gradients are made doubles at a time, so that they stay in the processor's cache."""


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
        secret: seed batches and noise from the operating system rather than from the run's seed; runs then differ
    """

    row_clip: Annotated[float, Gt(0)] = 1.0
    noise: Annotated[float, Ge(0)] | None = None
    secret: bool = False


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
    coins = Coins.from_system() if training.secret else Coins(rng.bytes(32))
    with _row_gradients(ready) as wrapped:
        for _ in range(sum(steps_of_epochs(len(data), training))):
            rows = np.flatnonzero(coins.heads(chance, len(data)))
            sums = _clipped_sums(ready, wrapped, data, wanted, rows, training.row_clip)
            optimizer.step(ready.weights, [noised / (chance * len(data)) for noised in _noised(sums, training, coins)])
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
    """The sum over a batch of the rows' gradients, each no longer than the bound, by parameter; in double precision.

    A row whose gradient has an entry that is not finite counts for noughts.
    """
    import torch

    if not len(rows):
        return [torch.zeros_like(weight, dtype=torch.float64) for weight in ready.weights]
    inputs = np.empty((len(rows), *data.schema.shape), np.float32)
    data.read(rows, inputs)
    outputs = wrapped(torch.from_numpy(inputs).to(ready.device))
    outputs = outputs if outputs.ndim == 2 else outputs[:, None]
    total: Any = row_losses(ready.kind, outputs, torch.from_numpy(wanted[rows]).to(ready.device)).sum()
    total.backward()
    parameters: list[Any] = list(ready.parameters)
    each = [parameter.grad_sample.detach() for parameter in parameters]
    blocks = zip(*(torch.split(gradients, _AT_ONCE) for gradients in each), strict=True)
    lengths = torch.cat([sum(part.flatten(1).double().square_().sum(1) for part in parts) for parts in blocks]).sqrt()
    sound = torch.isfinite(lengths)
    shares = (bound / lengths.clamp_min(1e-300)).clamp_max(1.0)[sound]
    if not sound.all():
        each = [gradients[sound] for gradients in each]
    sums = [torch.zeros_like(weight, dtype=torch.float64) for weight in ready.weights]
    for total, gradients in zip(sums, each, strict=True):
        for share, part in zip(torch.split(shares, _AT_ONCE), torch.split(gradients, _AT_ONCE), strict=True):
            total += torch.tensordot(share, part.double(), 1)
    for parameter in parameters:
        parameter.grad_sample = parameter.grad = None
    return sums


def _noised(sums: list[Tensor], training: PrivateTraining, coins: Coins) -> list[Tensor]:
    """The sums as whole steps of a grid, with noise in whole steps."""
    import torch

    noise = training.noise or 0.0
    if not noise:
        return [total.float() for total in sums]
    step = step_for(noise * training.row_clip, training.row_clip)
    # Sums with and without a row are rounded each, so that every entry may differ by one step more.
    spread = noise * (training.row_clip * SLACK / step + sqrt(sum(total.numel() for total in sums)))
    drawn = [torch.from_numpy(rounded_gaussian(coins, spread, tuple(total.shape))).to(total.device) for total in sums]
    return [((torch.trunc(total / step) + whole) * step).float() for total, whole in zip(sums, drawn, strict=True)]
