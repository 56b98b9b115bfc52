"""Training of dense stacks for many parties in one go: what autograd would give each, in batched matrix products.

Every party has a slot. Parties are sorted by their number of steps, so those that have finished drop out at the end. A
party's numbers do not depend on the company it trains in, to the last bit: the shapes that enter a kernel follow from
its own rows and settings alone, and no slot lies in the leftover end of a vectorised loop.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from tequio.learners.batched_layers import Outcomes, backward, layers_of, losses_of_rows, predict_step
from tequio.learners.batched_models import collect, label_weights_of, load_constants, load_models, pulls_of
from tequio.learners.batched_rows import RowReader, plan_rows, read_targets, weights_of_rows
from tequio.learners.batched_steps import Descent, forget, make_step
from tequio.learners.batches import batch_rows, check_finite, check_trainable, diverged, steps_of_epochs
from tequio.learners.learner import Trained

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tequio.learners.batched_layers import Layer
    from tequio.learners.batched_rows import Itinerary
    from tequio.learners.learner import Arrays, Job, LocalTraining
    from tequio.learners.losses import LossKind
    from tequio.learners.stacks import DenseStack

LARGEST = 1_000_000
"""Parameters up to which training together pays."""

TOGETHER_NUMBERS = 4_000_000
"""Weights, with the optimizer's memory of them, that are worked on at a time: more no longer fit into caches."""

FEWEST, MOST = 2, 50
"""Bounds on the number of parties at a time."""

ROOM_NUMBERS = 32_000_000
"""Features, or outputs of a layer, in memory at a time: parties with large batches are fewer together."""

BLOCK_NUMBERS = 500_000
"""Outputs, and targets, that are kept at a time."""


def train_stacks(stack: DenseStack, kind: LossKind, jobs: Sequence[Job], how: LocalTraining,
                 rate: float) -> list[Trained]:
    """Train every job; result i is that of job i."""
    for job in jobs:
        check_trainable(job.data)
    results: dict[int, Trained] = {}
    for batch, company in _companies(stack, jobs, how):
        trained = _train_company(stack, kind, [jobs[position] for position in company], how, rate, batch)
        results.update(zip(company, trained, strict=True))
    return [results[position] for position in range(len(jobs))]


def _companies(stack: DenseStack, jobs: Sequence[Job], how: LocalTraining) -> Iterator[tuple[int, list[int]]]:
    """Jobs that train side by side, those with most steps first, and the rows that their batches are filled up to."""
    copies = 4 if how.optimizer == "adam" else 2 if how.momentum else 1
    cached = int(np.clip(TOGETHER_NUMBERS // (stack.parameters * copies), FEWEST, MOST))
    batches = [how.batch or _rounded_up(len(job.data)) for job in jobs]
    for batch in sorted(set(batches)):
        alike = [position for position in range(len(jobs)) if batches[position] == batch]
        alike.sort(key=lambda position: -sum(steps_of_epochs(len(jobs[position].data), how)))
        size = min(cached, max(ROOM_NUMBERS // (batch * max(stack.widths)), 1))
        for start in range(0, len(alike), size):
            yield batch, alike[start:start + size]


def _rounded_up(rows: int) -> int:
    """The next number of the form (8..15) * 2^k, so that parties of nearly equal size may train side by side."""
    unit = 1 << max(rows.bit_length() - 4, 0)
    return -(-rows // unit) * unit


def _train_company(stack: DenseStack, kind: LossKind, jobs: Sequence[Job], how: LocalTraining, rate: float,
                   batch: int) -> list[Trained]:
    steps = [sum(steps_of_epochs(len(job.data), how)) for job in jobs]
    fewest = _fewest_slots(stack, batch)
    slots = max(len(jobs), fewest)
    layers = layers_of(stack, slots, batch)
    load_models(stack, layers, jobs)
    forget(layers, how)
    descent = Descent(how, rate, _factor(kind, stack.widths[-1], batch), pulls_of(jobs, how, slots),
                      load_constants(stack, layers, jobs))
    itinerary = plan_rows(jobs, how, steps[0], slots, batch, label_weights_of(jobs, stack.widths[-1], slots))
    losses = np.zeros((slots, steps[0], batch), np.float32)
    models: list[Arrays] = [{} for _ in jobs]
    done = 0
    for end in sorted(set(steps)):
        active, remaining = sum(count >= end for count in steps), sum(count > end for count in steps)
        front = layers if active == slots else layers_of(stack, max(active, fewest), batch)
        _train_stretch(front, kind, itinerary, descent, losses, range(done, end))
        models[remaining:active] = collect(stack, layers, remaining, active)
        done = end
    _check_losses(losses, jobs)
    _check_models(layers, models, jobs, steps)
    rows = [len(job.data) for job in jobs]
    return [Trained(*result) for result in zip(models, steps, _last_losses(losses, rows, how), rows, strict=True)]


def _train_stretch(layers: list[Layer], kind: LossKind, itinerary: Itinerary, descent: Descent,
                   losses: NDArray[np.float32], steps: range) -> None:
    """Some steps during which the same slots are active."""
    import torch

    deltas = layers[-1].deltas.turned
    active, outputs, batch = deltas.shape
    take_step = make_step(layers, replace(descent, pull=None if descent.pull is None else descent.pull[:active]))
    reader = RowReader(itinerary, active)
    for block in _blocks(steps, max(BLOCK_NUMBERS // (active * outputs * batch), 1)):
        targets = torch.from_numpy(read_targets(itinerary, kind, block, active))
        label_weights = None if itinerary.label_weights is None else itinerary.label_weights[:active]
        outcomes = Outcomes.of(kind, targets, outputs, label_weights)
        for index, weights in enumerate(weights_of_rows(itinerary, block, active)):
            rows = reader.read(block.start + index)
            predict_step(kind, layers, rows, outcomes, index)
            if weights is not None:
                deltas.mul_(weights)
            backward(layers)
            take_step(rows, block.start + index + 1)
        losses[:active, block.start:block.stop] = losses_of_rows(kind, outcomes).numpy().swapaxes(0, 1)


def _blocks(steps: range, size: int) -> Iterator[range]:
    for start in range(steps.start, steps.stop, size):
        yield range(start, min(start + size, steps.stop))


def _fewest_slots(stack: DenseStack, batch: int) -> int:
    """Products with a side of length one take another kernel for one party than for several: there, nobody is alone."""
    return 2 if batch == 1 or 1 in stack.widths else 1


def _factor(kind: LossKind, outputs: int, batch: int) -> float:
    """What turns residuals into the derivative of the mean loss of a full batch."""
    return {"softmax": 1.0, "sigmoid": 1.0 / outputs, "squares": 2.0 / outputs}[kind] / batch


def _check_losses(losses: NDArray[np.float32], jobs: Sequence[Job]) -> None:
    if np.isfinite(losses).all():
        return
    for job, own_losses in zip(jobs, losses, strict=False):
        wrong = np.flatnonzero(~np.isfinite(own_losses).all(axis=1))
        if len(wrong):
            raise diverged(job.data, int(wrong[0]) + 1)


def _check_models(layers: list[Layer], models: Sequence[Arrays], jobs: Sequence[Job], steps: Sequence[int]) -> None:
    """The last step has no loss after it. One sum over all parties tells that all is well, or that one must look."""
    sums = [matrices.straight[:len(jobs)].sum() for layer in layers for matrices in (layer.weight, layer.bias)]
    if not isfinite(sum(float(each) for each in sums)):
        for job, model, step in zip(jobs, models, steps, strict=True):
            check_finite(model, job.data, step)


def _last_losses(losses: NDArray[np.float32], rows: Sequence[int], how: LocalTraining) -> list[float]:
    """Each party's mean over the rows of its last epoch; filled-up places come after them and do not count."""
    epochs = [steps_of_epochs(count, how) for count in rows]
    if not epochs[0]:
        return [float("nan")] * len(rows)
    counted = [min(count, steps[-1] * batch_rows(count, how)) for count, steps in zip(rows, epochs, strict=True)]
    starts = np.arange(len(rows)) * losses[0].size + [sum(steps[:-1]) * losses.shape[2] for steps in epochs]
    # A sum over one stretch of memory a party: its rounding cannot depend on the others.
    ends = np.stack([starts, starts + counted], axis=1).reshape(-1)
    sums = np.add.reduceat(np.append(losses, np.float32(0)).astype(np.float64), ends)[::2]
    return [float(total) / count for total, count in zip(sums, counted, strict=True)]
