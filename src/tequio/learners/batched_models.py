"""Models and corrections into the slots of a batched training, and trained models out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tequio.learners.batched_steps import parts_of
from tequio.learners.torch_model import check_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tequio.learners.batched_layers import Layer
    from tequio.learners.learner import Arrays, Correction, Job, LocalTraining
    from tequio.learners.stacks import DenseStack


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


def pulls_of(jobs: Sequence[Job], how: LocalTraining, slots: int) -> Tensor | None:
    """What each party's weights are multiplied with before they join its gradient: (slots, 1, 1)."""
    import torch

    pulls = [how.weight_decay + (job.correction.pull if job.correction else 0.0) for job in jobs]
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
        if trained.is_contiguous():
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
