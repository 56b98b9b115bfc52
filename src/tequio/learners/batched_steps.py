"""Optimizer steps of many parties at once, taken from layer inputs and deltas; models go in before and out afterwards.

A gradient is always a batched product left @ right. So plain SGD adds one product straight into the weights, and
momentum one into the velocity: neither forms a gradient first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.learners.batched_layers import Matrices
from tequio.learners.torch_model import check_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from tequio.learners.batched_layers import DenseStack, Layer
    from tequio.learners.learner import Arrays, Correction, Job, LocalTraining

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

    training: LocalTraining
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
    return Matrices.at("ones", parties, 1, rows).straight.fill_(1.0)


def make_step(layers: list[Layer], descent: Descent) -> TakeStep:
    """The function that updates all parts from inputs and deltas, given the number of the step (from 1)."""
    parts = parts_of(layers)
    update = _adam(parts, descent) if descent.training.optimizer == "adam" else \
        _momentum(parts, descent) if descent.training.momentum else _plain(parts, descent)
    if not descent.training.clip_norm:
        return update

    def clip_and_update(step: int) -> None:
        _clip(parts, layers, descent)
        update(step)

    return clip_and_update


def forget(layers: list[Layer], training: LocalTraining) -> None:
    """Start the optimizer's memory afresh."""
    purposes = ("first moment", "second moment") if training.optimizer == "adam" else \
        ("step",) if training.momentum else ()
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
    fill, steps = _gradients(parts, descent, descent.training.momentum), [part.room("step").flat for part in parts]

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
    shrink = (descent.training.clip_norm / (norms + 1e-6)).clamp_(max=1.0)[:, None, None]
    for layer in layers:
        layer.deltas.straight.mul_(shrink)


def load_models(stack: DenseStack, layers: list[Layer], jobs: Sequence[Job]) -> None:
    """Put each job's model into its slot. The usual case, one model for all, is laid out once and then copied."""
    views = _as_they_travel(stack, layers)
    own = [slot for slot, job in enumerate(jobs) if not slot or job.model is not jobs[0].model]
    for slot in own:
        _write(views, slot, jobs[slot].model)
    if len(own) == 1:
        for view in views.values():
            view[1:].copy_(view[:1].expand_as(view[1:]))
    else:
        for slot in sorted(set(range(len(jobs))).difference(own)):
            for view in views.values():
                view[slot].copy_(view[0])


def pulls_of(jobs: Sequence[Job], training: LocalTraining, slots: int) -> Tensor | None:
    """What each party's weights are multiplied with before they join its gradient: (slots, 1, 1)."""
    import torch

    pulls = [training.weight_decay + (job.correction.pull if job.correction else 0.0) for job in jobs]
    return torch.tensor(pulls + [0.0] * (slots - len(jobs)))[:, None, None] if any(pulls) else None


def label_weights_of(jobs: Sequence[Job], outputs: int, slots: int) -> Tensor | None:
    """Weights of each party's labels, (slots, 2, outputs), or None where no job has any."""
    import torch

    given = [job.correction.label_weights if job.correction else None for job in jobs]
    if all(own is None for own in given):
        return None
    weights = torch.ones(slots, 2, outputs)
    for slot, own in enumerate(given):
        if own is not None:
            weights[slot] = torch.from_numpy(np.asarray(own, np.float32))
    return weights


def load_constants(stack: DenseStack, layers: list[Layer], jobs: Sequence[Job]) -> bool:
    """Lay out offset - pull * anchor of each job for the optimizer; false where no job has any."""
    corrections = [job.correction for job in jobs]
    if not any(correction and (correction.pull or correction.offset) for correction in corrections):
        return False
    models = _as_they_travel(stack, layers)
    constants = _constants_as_they_travel(stack, layers)
    for view in constants.values():
        view.zero_()
    for slot, job in enumerate(jobs):
        if job.correction:
            _write_constant(constants, models, slot, job, job.correction)
    return True


def room_for(stack: DenseStack, jobs: int) -> Arrays:
    """Where trained models go, side by side, laid out as they travel."""
    return {name: np.empty((jobs, *shape), np.float32) for name, shape in stack.shapes.items()}


def collect(stack: DenseStack, layers: list[Layer], slots: range, places: Sequence[int], models: Arrays) -> None:
    """Copy the models of some slots to their places."""
    import torch

    for name, view in _as_they_travel(stack, layers).items():
        trained = view[slots.start:slots.stop]
        if trained.stride(-1) == 1:
            models[name][places] = trained.numpy()
        else:  # one by one is how torch turns matrices fastest
            for place, values in zip(places, trained, strict=True):
                torch.from_numpy(models[name][place]).copy_(values)


def _as_they_travel(stack: DenseStack, layers: list[Layer]) -> dict[str, Tensor]:
    """The slots' weights (slots, outputs, inputs) and biases (slots, outputs), by name."""
    views = {}
    for (weight, bias), layer in zip(stack.names, layers, strict=True):
        views[weight], views[bias] = layer.weight.turned, layer.bias.straight[:, 0]
    return views


def _constants_as_they_travel(stack: DenseStack, layers: list[Layer]) -> dict[str, Tensor]:
    rooms = [part.room("constant") for part in parts_of(layers)]
    views = {}
    for index, (weight, bias) in enumerate(stack.names):
        is_last = index == len(layers) - 1
        views[weight] = rooms[2 * index].straight if is_last else rooms[2 * index].turned
        views[bias] = rooms[2 * index + 1].straight[:, 0]
    return views


def _write(views: dict[str, Tensor], slot: int, model: Arrays) -> None:
    check_model(model, {name: tuple(view.shape[1:]) for name, view in views.items()})
    for name, view in views.items():
        np.copyto(view[slot].numpy(), model[name], casting="same_kind")


def _write_constant(constants: dict[str, Tensor], models: dict[str, Tensor], slot: int, job: Job,
                    correction: Correction) -> None:
    if correction.pull:
        if correction.anchor is None or correction.anchor is job.model:
            for name, view in constants.items():
                view[slot].copy_(models[name][slot])
        else:
            _write(constants, slot, correction.anchor)
    for view in constants.values():
        view[slot].mul_(-correction.pull)
    if correction.offset is not None:
        check_model(correction.offset, {name: tuple(view.shape[1:]) for name, view in constants.items()})
        for name, view in constants.items():
            view[slot].numpy()[...] += correction.offset[name]
