"""Optimizer steps of many parties at once, taken from layer inputs and deltas.

A gradient is always a batched product left @ right. So plain SGD adds one product straight into the weights, and
momentum one into the velocity: neither forms a gradient first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.learners.batched_memory import Matrices, memory, shaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tequio.learners.batched_layers import Layer
    from tequio.learners.learner import LocalTraining

    TakeStep = Callable[[Tensor, int], None]


@dataclass(frozen=True)
class Part:
    """A weight or a bias of the active parties as it lies in memory, and the product that gives its gradient.

    `left` or `right` is None where it is the batch itself, which is another one at every step.
    """

    name: str
    values: Tensor
    flat: Tensor
    left: Tensor | None
    right: Tensor | None

    def operands(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Both sides of the product for a batch of rows (parties, rows, inputs)."""
        left = rows.transpose(1, 2) if self.left is None else self.left
        return left, rows if self.right is None else self.right

    def room(self, purpose: str) -> Matrices:
        """Memory of the same layout for a purpose."""
        return Matrices.at(f"{purpose} of {self.name}", *self.values.shape)


@dataclass(frozen=True)
class Descent:
    """How the active parties go down.

    `factor` turns a product into the gradient of the mean loss. Each gradient gains `pull` (one number a party) times
    the weights and, where `corrected`, the constant that lies in the part's memory.
    """

    how: LocalTraining
    rate: float
    factor: float
    pull: Tensor | None
    corrected: bool


def parts_of(layers: list[Layer]) -> list[Part]:
    """Weight and bias of each layer, in the order in which they travel."""
    ones = _ones(layers[0])
    parts = []
    for index, layer in enumerate(layers):
        parts.append(_weight_part(layers, index))
        parts.append(Part(f"bias{index}", layer.bias.straight, layer.bias.flat, ones, layer.deltas.straight))
    return parts


def _weight_part(layers: list[Layer], index: int) -> Part:
    layer, below = layers[index], layers[index - 1].outputs if index else None
    name, flat = f"weight{index}", layer.weight.flat
    if index == len(layers) - 1:
        return Part(name, layer.weight.turned, flat, layer.deltas.turned, below.straight if below else None)
    return Part(name, layer.weight.straight, flat, below.turned if below else None, layer.deltas.straight)


def _ones(layer: Layer) -> Tensor:
    parties, rows, _ = layer.deltas.straight.shape
    return shaped(memory("ones", parties * rows), (parties, 1, rows)).fill_(1.0)


def make_step(layers: list[Layer], descent: Descent) -> TakeStep:
    """The function that updates all parts, given a batch and the number of the step (from 1)."""
    parts = parts_of(layers)
    update = _adam(parts, descent) if descent.how.optimizer == "adam" else \
        _momentum(parts, descent) if descent.how.momentum else _plain(parts, descent)
    if not descent.how.clip_norm:
        return update

    def clip_and_update(rows: Tensor, step: int) -> None:
        _clip(parts, layers, rows, descent)
        update(rows, step)

    return clip_and_update


def forget(layers: list[Layer], how: LocalTraining) -> None:
    """Start the optimizer's memory afresh."""
    purposes = ("first moment", "second moment") if how.optimizer == "adam" else ("step",) if how.momentum else ()
    for part in parts_of(layers):
        for purpose in purposes:
            part.room(purpose).flat.zero_()


def _plain(parts: list[Part], descent: Descent) -> TakeStep:
    constants = [part.room("constant").flat if descent.corrected else None for part in parts]

    def update(rows: Tensor, step: int) -> None:
        for part, constant in zip(parts, constants, strict=True):
            if descent.pull is not None:
                part.values.addcmul_(part.values, descent.pull, value=-descent.rate)
            if constant is not None:
                part.flat.add_(constant, alpha=-descent.rate)
            part.values.baddbmm_(*part.operands(rows), alpha=-descent.rate * descent.factor)

    return update


def _gradients(parts: list[Part], descent: Descent, keep: float) -> Callable[[Tensor], None]:
    """Fill each part's "step": `keep` times what it held, plus the gradient."""
    steps = [part.room("step") for part in parts]
    constants = [part.room("constant").flat if descent.corrected else None for part in parts]

    def fill(rows: Tensor) -> None:
        for part, step, constant in zip(parts, steps, constants, strict=True):
            step.straight.baddbmm_(*part.operands(rows), beta=keep, alpha=descent.factor)
            if descent.pull is not None:
                step.straight.addcmul_(part.values, descent.pull)
            if constant is not None:
                step.flat.add_(constant)

    return fill


def _momentum(parts: list[Part], descent: Descent) -> TakeStep:
    fill, steps = _gradients(parts, descent, descent.how.momentum), [part.room("step").flat for part in parts]

    def update(rows: Tensor, step: int) -> None:
        fill(rows)
        for part, velocity in zip(parts, steps, strict=True):
            part.flat.add_(velocity, alpha=-descent.rate)

    return update


def _adam(parts: list[Part], descent: Descent) -> TakeStep:
    from tequio.learners.descent import adam_step

    fill = _gradients(parts, descent, 0.0)
    values, gradients, first, second = [part.flat for part in parts], *(
        [part.room(purpose).flat for part in parts] for purpose in ("step", "first moment", "second moment"))

    def update(rows: Tensor, step: int) -> None:
        fill(rows)
        adam_step(values, gradients, first, second, step, descent.rate)

    return update


def _clip(parts: list[Part], layers: list[Layer], rows: Tensor, descent: Descent) -> None:
    """Scale the deltas so that no party's gradient is longer than the bound; gradients are linear in the deltas."""
    import torch

    squares = torch.zeros(len(rows))
    for part in parts:
        gradient = part.room("clipped").straight
        torch.bmm(*part.operands(rows), out=gradient)
        squares += torch.linalg.vector_norm(gradient.flatten(1), dim=1).square_()
    norms = squares.sqrt_().mul_(descent.factor)
    shrink = (descent.how.clip_norm / (norms + 1e-6)).clamp_(max=1.0)[:, None, None]
    for layer in layers:
        layer.deltas.straight.mul_(shrink)
