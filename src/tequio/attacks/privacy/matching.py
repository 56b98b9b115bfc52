"""The rows of a batch from its gradient: look for rows whose gradient points the same way.

Geiping, Bauermeister, Droege, Moeller: Inverting gradients - how easy is it to break privacy in federated learning?,
NeurIPS 2020: one minus the cosine between both gradients, total variation for images, Adam on the signs of the rows'
gradient, several random starts, the best objective kept. Where a party took several steps on its rows, the steps are
replayed inside of the objective. The labels are restored first, from the bias of the output layer (Yin et al.: See
through gradients, CVPR 2021; Wainakh et al.: User-level label leakage from gradients, PoPETs 2022).

A batch has no order, and so rows that were found are compared with the true ones after an optimal matching.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError
from tequio.learners.descent import mean_loss, target_array
from tequio.learners.torch_learner import TorchLearner
from tequio.learners.torch_model import own_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from tequio.data.dataset import Schema
    from tequio.learners.learner import Arrays, Learner
    from tequio.learners.torch_model import TorchModel

    Range = tuple[float, float]
    Gradients = Callable[[Tensor, Tensor], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Search:
    """How long to look, from how many random starts, and how smooth images should be (0 for tables)."""

    iterations: int = 2400
    restarts: int = 4
    smoothness: float = 1e-4


def matched_rows(learner: Learner, schema: Schema, model: Arrays, gradients: Sequence[Arrays],
                 labels: NDArray[np.int64], bounds: Range, rng: np.random.Generator, search: Search | None = None, *,
                 steps: int = 1, rate: float = 0.0) -> NDArray[np.float64]:
    """(victims, batch, *shape) rows within bounds, one batch for each gradient and line of `labels`.

    `gradients` may be of any positive length. Each is that of one step, or the sum of `steps` plain steps at a learning
    rate. All victims and starts are searched for side by side.
    """
    if not isinstance(learner, TorchLearner):
        raise ConfigError(f"the learner '{type(learner).__name__}' has no gradient to match",
                          remedy="choose a torch learner such as 'mlp'")
    import torch

    how, ready, (low, high) = search or Search(), own_model(learner, schema, model), bounds
    wanted = [torch.stack(parts).repeat_interleave(how.restarts, 0) for parts in
              zip(*(ready.weights_like({name: one[name] for name in ready.names}) for one in gradients), strict=True)]
    target = torch.from_numpy(np.stack([target_array(ready.kind, line) for line in labels]))
    target = target.to(ready.device).repeat_interleave(how.restarts, 0)
    start = rng.uniform(low, high, (len(target), labels.shape[1], *schema.shape)).astype(np.float32)
    rows = torch.from_numpy(start).to(ready.device).requires_grad_()
    optimizer = torch.optim.Adam([rows], lr=0.1 * (high - low))
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [round(how.iterations * part / 8) for part in (3, 5, 7)])
    smoothness = how.smoothness / (high - low) if len(schema.shape) > 1 else 0.0
    replay = torch.vmap(_replay(ready, steps, rate))
    for _ in range(how.iterations):
        apart = _apart(replay(rows, target), wanted)
        slope = torch.autograd.grad(apart.sum() + smoothness * _variation(rows), rows)[0]
        rows.grad = slope.sign()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            rows.clamp_(low, high)
    with torch.no_grad():
        best = _apart(replay(rows, target), wanted).reshape(-1, how.restarts).argmin(1)
    found = rows.detach().reshape(len(labels), how.restarts, *rows.shape[1:])[torch.arange(len(labels)), best]
    return np.asarray(found.cpu().numpy(), np.float64)


def _replay(ready: TorchModel, steps: int, rate: float) -> Gradients:
    """What a party's plain steps on a batch add up to, as a function of the batch; differentiable in it."""
    import torch
    from torch.func import functional_call, grad

    own = dict(zip(ready.names, ready.weights, strict=True))
    buffers = dict(ready.module.named_buffers())

    def loss(weights: dict[str, Tensor], rows: Tensor, target: Tensor) -> Tensor:
        outputs = functional_call(ready.module, {**weights, **buffers}, (rows,))
        return mean_loss(ready.kind, outputs if outputs.ndim == 2 else outputs[:, None], target)

    def summed(rows: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        weights, total = own, {name: torch.zeros_like(value) for name, value in own.items()}
        for _ in range(steps):
            gradient = grad(loss)(weights, rows, target)
            weights = {name: weights[name] - rate * gradient[name] for name in weights}
            total = {name: total[name] + gradient[name] for name in total}
        return tuple(total.values())

    return summed


def _apart(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> Tensor:
    """(candidates,) one minus the cosine between two gradients."""
    import torch

    def product(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
        return torch.stack([(one * other).flatten(1).sum(1) for one, other in zip(first, second, strict=True)]).sum(0)

    return 1 - product(ours, theirs) / (product(ours, ours) * product(theirs, theirs)).sqrt().clamp_min(1e-30)


def _variation(rows: Tensor) -> Tensor:
    """Total variation of images, summed over candidates: how much neighbouring entries differ, on average."""
    batch = rows.shape[1]
    down, right = rows.diff(dim=-2).abs(), rows.diff(dim=-1).abs()
    return (down.flatten(2).mean(2) + right.flatten(2).mean(2)).sum() / batch


def label_counts(bias: NDArray[np.floating], expected: NDArray[np.floating], rows: int,
                 scale: float = 1.0) -> NDArray[np.int64]:
    """How many rows of each class are in a batch, from the gradient of the output layer's bias.

    That gradient is the mean of the predicted shares, `expected`, less the share of each class. Its length is that of a
    gradient times `scale`, unless there are more classes than rows: then the class that is least likely to be there
    tells the scale, and clipping hides nothing.
    """
    seen, shares = _as_classes(bias.astype(np.float64)), expected.astype(np.float64)
    ratio = float((seen / np.maximum(shares, 1e-12)).max())
    scale = ratio if len(shares) > rows and ratio > 0 else scale
    wished = np.clip(rows * (shares - seen / scale), 0, None)
    wished *= rows / max(float(wished.sum()), 1e-12)
    counts = np.floor(wished).astype(np.int64)
    left = np.argsort(counts - wished, kind="stable")[:max(rows - int(counts.sum()), 0)]
    counts[left] += 1
    return counts


def _as_classes(bias: NDArray[np.float64]) -> NDArray[np.float64]:
    """A gradient entry a class; two classes may share one output."""
    return np.array([-bias[0], bias[0]]) if len(bias) == 1 else bias


def in_best_order(truth: NDArray[np.floating], guess: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rows that were guessed, each in the place of the true row that it fits best, over all rows together."""
    from scipy.optimize import linear_sum_assignment

    mine, theirs = (rows.reshape(len(rows), -1).astype(np.float64) for rows in (truth, guess))
    distances = np.square(mine[:, None] - theirs[None]).sum(axis=2)
    ordered: NDArray[np.float64] = guess[linear_sum_assignment(distances)[1]]
    return ordered


def nearest_of_all(truth: NDArray[np.floating], guess: NDArray[np.floating],
                   decoys: NDArray[np.floating]) -> NDArray[np.bool_]:
    """For each guess whether no other row, of the batch or among decoys, is as near as its own true row."""
    pool = np.concatenate([rows.reshape(len(rows), -1) for rows in (truth, decoys)]).astype(np.float64)
    distances = np.square(guess.reshape(len(guess), -1)[:, None] - pool[None]).sum(axis=2)
    own = np.diag(distances).copy()
    np.fill_diagonal(distances, np.inf)
    return np.asarray(own < distances.min(axis=1))
