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

    TakeStep = Callable[[int], None]


@dataclass(frozen=True)
class Part:
    """A weight or a bias of the active parties as it lies in memory, and the product that gives its gradient."""

    name: str
    values: Tensor
    flat: Tensor
    left: Tensor
    right: Tensor

    def room(self, purpose: str) -> Matrices:
        """Memory of the same layout for a purpose."""
        return Matrices.at(f"{purpose} of {self.name}", *self.values.shape)


@dataclass(frozen=True)
class Descent:
    """How the parties go down.

    `factor` turns a product into the gradient of the mean loss. Each gradient gains `pull` (one number a slot) times
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
        parts.append(_weight_part(index, layer, is_last=layer is layers[-1]))
        parts.append(Part(f"bias{index}", layer.bias.straight, layer.bias.flat, ones, layer.deltas.straight))
    return parts


def _weight_part(index: int, layer: Layer, *, is_last: bool) -> Part:
    name, flat = f"weight{index}", layer.weight.flat
    if is_last:
        return Part(name, layer.weight.turned, flat, layer.deltas.turned, layer.inputs.straight)
    return Part(name, layer.weight.straight, flat, layer.inputs.turned, layer.deltas.straight)


def _ones(layer: Layer) -> Tensor:
    parties, rows, _ = layer.deltas.straight.shape
    return shaped(memory("ones", parties * rows), (parties, 1, rows)).fill_(1.0)


def make_step(layers: list[Layer], descent: Descent) -> TakeStep:
    """The function that updates all parts from inputs and deltas, given the number of the step (from 1)."""
    parts = parts_of(layers)
    update = _adam(parts, descent) if descent.how.optimizer == "adam" else \
        _momentum(parts, descent) if descent.how.momentum else _plain(parts, descent)
    if not descent.how.clip_norm:
        return update

    def clip_and_update(step: int) -> None:
        _clip(parts, layers, descent)
        update(step)

    return clip_and_update


def forget(layers: list[Layer], how: LocalTraining) -> None:
    """Start the optimizer's memory afresh."""
    purposes = ("first moment", "second moment") if how.optimizer == "adam" else ("step",) if how.momentum else ()
    for purpose in purposes:
        for part in parts_of(layers):
            part.room(purpose).flat.zero_()


def _plain(parts: list[Part], descent: Descent) -> TakeStep:
    constants = [part.room("constant").flat for part in parts] if descent.corrected else []
    pull, rate, pace = _pull(parts, descent), descent.rate, -descent.rate * descent.factor

    def update(step: int) -> None:
        if pull is not None:
            for part in parts:
                part.values.addcmul_(part.values, pull, value=-rate)
        for part, constant in zip(parts, constants, strict=False):
            part.flat.add_(constant, alpha=-rate)
        for part in parts:
            part.values.baddbmm_(part.left, part.right, alpha=pace)

    return update


def _pull(parts: list[Part], descent: Descent) -> Tensor | None:
    return None if descent.pull is None else descent.pull[:len(parts[0].values)]


def _gradients(parts: list[Part], descent: Descent, keep: float) -> Callable[[], None]:
    """Fill each part's "step": `keep` times what it held, plus the gradient."""
    steps = [part.room("step") for part in parts]
    constants = [part.room("constant").flat if descent.corrected else None for part in parts]
    pull = _pull(parts, descent)

    def fill() -> None:
        for part, step, constant in zip(parts, steps, constants, strict=True):
            step.straight.baddbmm_(part.left, part.right, beta=keep, alpha=descent.factor)
            if pull is not None:
                step.straight.addcmul_(part.values, pull)
            if constant is not None:
                step.flat.add_(constant)

    return fill


def _momentum(parts: list[Part], descent: Descent) -> TakeStep:
    fill, steps = _gradients(parts, descent, descent.how.momentum), [part.room("step").flat for part in parts]

    def update(step: int) -> None:
        fill()
        for part, velocity in zip(parts, steps, strict=True):
            part.flat.add_(velocity, alpha=-descent.rate)

    return update


def _adam(parts: list[Part], descent: Descent) -> TakeStep:
    from tequio.learners.descent import adam_step

    fill = _gradients(parts, descent, 0.0)
    values, gradients, first, second = [part.flat for part in parts], *(
        [part.room(purpose).flat for part in parts] for purpose in ("step", "first moment", "second moment"))

    def update(step: int) -> None:
        fill()
        adam_step(values, gradients, first, second, step, descent.rate)

    return update


def _clip(parts: list[Part], layers: list[Layer], descent: Descent) -> None:
    """Scale the deltas so that no party's gradient is longer than the bound; gradients are linear in the deltas."""
    import torch

    squares = torch.zeros(len(parts[0].values))
    for part in parts:
        gradient = part.room("clipped").straight
        torch.bmm(part.left, part.right, out=gradient)
        squares += torch.linalg.vector_norm(gradient.flatten(1), dim=1).square_()
    norms = squares.sqrt_().mul_(descent.factor)
    shrink = (descent.how.clip_norm / (norms + 1e-6)).clamp_(max=1.0)[:, None, None]
    for layer in layers:
        layer.deltas.straight.mul_(shrink)
