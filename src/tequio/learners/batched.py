"""Training of dense stacks for many parties in one go: what autograd would give each, in batched matrix products.

Every party has a slot. Parties are sorted by their number of steps, so those that have finished drop out at the end. A
party's numbers do not depend on the company it trains in, to the last bit: the shapes that enter a kernel follow from
its own rows and settings alone, and no slot lies in the leftover end of a vectorised loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from tequio.learners.batched_layers import Outcomes, backward, layers_of, losses_of_rows, make_prediction
from tequio.learners.batched_steps import (
    Descent,
    collect,
    forget,
    label_weights_of,
    load_constants,
    load_models,
    make_step,
    pulls_of,
    room_for,
)
from tequio.learners.descent import (
    batch_rows,
    check_finite,
    check_trainable,
    diverged,
    row_orders,
    steps_of_epochs,
    target_array,
)
from tequio.learners.learner import TrainedTogether

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from tequio.data.dataset import Array, Dataset
    from tequio.learners.batched_layers import DenseStack, Layer
    from tequio.learners.descent import LossKind
    from tequio.learners.learner import Arrays, Job, LocalTraining

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


@dataclass(frozen=True)
class _Company:
    """Jobs that train side by side, those with most steps first.

    `places` tell where each stands among all jobs; `batch` is the number of rows that batches are filled up to.
    """

    jobs: list[Job]
    places: list[int]
    rows: list[int]
    steps: list[int]
    batch: int


def train_stacks(stack: DenseStack, kind: LossKind, jobs: Sequence[Job], training: LocalTraining,
                 rate: float) -> TrainedTogether:
    """Train every job; result i is that of job i."""
    for job in jobs:
        check_trainable(job.data)
    rows = [len(job.data) for job in jobs]
    steps_of = {count: sum(steps_of_epochs(count, training)) for count in set(rows)}
    steps = [steps_of[count] for count in rows]
    models, losses = room_for(stack, len(jobs)), np.empty(len(jobs))
    for company in _companies(stack, jobs, rows, steps, training):
        losses[company.places] = _train_company(stack, kind, company, training, rate, models)
    return TrainedTogether(models, steps, losses.tolist(), rows)


def _companies(stack: DenseStack, jobs: Sequence[Job], rows: Sequence[int], steps: Sequence[int],
               training: LocalTraining) -> Iterator[_Company]:
    copies = 4 if training.optimizer == "adam" else 2 if training.momentum else 1
    cached = int(np.clip(TOGETHER_NUMBERS // (stack.parameters * copies), FEWEST, MOST))
    batches = [training.batch or _rounded_up(count) for count in rows]
    for batch in sorted(set(batches)):
        alike = [index for index in range(len(jobs)) if batches[index] == batch]
        alike.sort(key=lambda index: -steps[index])
        size = min(cached, max(ROOM_NUMBERS // (batch * max(stack.widths)), 1))
        for start in range(0, len(alike), size):
            places = alike[start:start + size]
            yield _Company([jobs[index] for index in places], places, [rows[index] for index in places],
                           [steps[index] for index in places], batch)


def _rounded_up(rows: int) -> int:
    """The next number of the form (8..15) * 2^k, so that parties of nearly equal size may train side by side."""
    unit = 1 << max(rows.bit_length() - 4, 0)
    return -(-rows // unit) * unit


def _train_company(stack: DenseStack, kind: LossKind, company: _Company, training: LocalTraining, rate: float,
                   models: Arrays) -> list[float]:
    """Train the models of a company into their places; gives the mean loss of each party's last epoch."""
    jobs, steps, batch = company.jobs, company.steps, company.batch
    fewest = _fewest_slots(stack, batch)
    slots = max(len(jobs), fewest)
    layers = layers_of(stack, slots, batch)
    load_models(stack, layers, jobs)
    forget(layers, training)
    descent = Descent(training, rate, _factor(kind, stack.widths[-1], batch), pulls_of(jobs, training, slots),
                      load_constants(stack, layers, jobs))
    itinerary = plan_rows(jobs, training, steps[0], slots, batch, label_weights_of(jobs, stack.widths[-1], slots))
    losses = np.zeros((slots, steps[0], batch), np.float32)
    done = 0
    for end in sorted(set(steps)):
        active, remaining = sum(count >= end for count in steps), sum(count > end for count in steps)
        front = layers if active == slots else layers_of(stack, max(active, fewest), batch)
        _train_stretch(front, kind, itinerary, descent, losses, range(done, end))
        collect(stack, layers, range(remaining, active), company.places[remaining:active], models)
        done = end
    _check_losses(losses, jobs)
    _check_models(layers, company, models)
    return _last_losses(losses, company.rows, training)


def _train_stretch(layers: list[Layer], kind: LossKind, itinerary: Itinerary, descent: Descent,
                   losses: NDArray[np.float32], steps: range) -> None:
    """Some steps during which the same slots are active."""
    import torch

    deltas = layers[-1].deltas.turned
    active, outputs, batch = deltas.shape
    predict, take_step = make_prediction(kind, layers), make_step(layers, descent)
    read = row_reader(itinerary, layers[0].inputs.straight)
    for block in _blocks(steps, max(BLOCK_NUMBERS // (active * outputs * batch), 1)):
        label_weights = None if itinerary.label_weights is None else itinerary.label_weights[:active]
        targets = torch.from_numpy(read_targets(itinerary, kind, block, active))
        outcomes = Outcomes.of(kind, targets, outputs, label_weights)
        weights = weights_of_rows(itinerary, block, active)
        for step, views, weight in zip(block, outcomes.steps(), weights, strict=True):
            read(step)
            predict(*views)
            if weight is not None:
                deltas.mul_(weight)
            backward(layers)
            take_step(step + 1)
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


def _check_models(layers: list[Layer], company: _Company, models: Arrays) -> None:
    """The last step has no loss after it. One sum over all parties tells that all is well, or that one must look."""
    parties = len(company.jobs)
    sums = [matrices.straight[:parties].sum() for layer in layers for matrices in (layer.weight, layer.bias)]
    if not isfinite(sum(float(each) for each in sums)):
        for job, index, step in zip(company.jobs, company.places, company.steps, strict=True):
            check_finite({name: values[index] for name, values in models.items()}, job.data, step)


def _last_losses(losses: NDArray[np.float32], rows: Sequence[int], training: LocalTraining) -> list[float]:
    """Each party's mean over the rows of its last epoch; filled-up places come after them and do not count."""
    epochs = {count: steps_of_epochs(count, training) for count in set(rows)}
    if not epochs[rows[0]]:
        return [float("nan")] * len(rows)
    last = {count: min(count, steps[-1] * batch_rows(count, training)) for count, steps in epochs.items()}
    before = {count: sum(steps[:-1]) * losses.shape[2] for count, steps in epochs.items()}
    counted = np.array([last[count] for count in rows])
    starts = np.arange(len(rows)) * losses[0].size + [before[count] for count in rows]
    # A sum over one stretch of memory a party: its rounding cannot depend on the others.
    ends = np.stack([starts, starts + counted], axis=1).reshape(-1)
    sums = np.add.reduceat(np.append(losses, np.float32(0)).astype(np.float64), ends)[::2]
    means: list[float] = (sums / counted).tolist()
    return means


@dataclass(frozen=True)
class Itinerary:
    """Row numbers of every step: `rows` is (steps, parties, batch), of which the first `counts` (steps, parties) count.

    `whole` is the dataset that all row numbers refer to, or None where the parties do not share their source and the
    numbers refer to each party's own `datasets`. `label_weights` (parties, 2, labels) weigh the labels' losses.
    """

    rows: NDArray[np.int64]
    counts: NDArray[np.int64]
    datasets: Sequence[Dataset]
    whole: Dataset | None
    label_weights: Tensor | None = None


def plan_rows(jobs: Sequence[Job], training: LocalTraining, steps: int, slots: int, batch: int,
              label_weights: Tensor | None = None) -> Itinerary:
    """Draw all row orders. A short batch is filled up with a row of its own, which later counts for nothing."""
    rows, counts = np.zeros((steps, slots, batch), np.int64), np.full((steps, slots), batch)
    whole = _shared_source([job.data for job in jobs])
    for slot, job in enumerate(jobs):
        at, own = 0, job.data.rows if whole is not None else None
        for order in row_orders(len(job.data), training, job.rng):
            drawn = order if own is None else own[order]
            batches, short = -(-len(order) // batch), -len(order) % batch
            if short:
                drawn = np.concatenate([drawn, np.repeat(drawn[:1], short)])
                counts[at + batches - 1, slot] -= short
            rows[at:at + batches, slot] = drawn.reshape(batches, batch)
            at += batches
    return Itinerary(rows, counts, [job.data for job in jobs], whole, label_weights)


def _shared_source(datasets: Sequence[Dataset]) -> Dataset | None:
    first = datasets[0]
    is_shared = all(data.source is first.source and data.columns is first.columns for data in datasets)
    return replace(first, rows=None) if is_shared else None


def row_reader(itinerary: Itinerary, room: Tensor) -> Callable[[int], None]:
    """The function that reads the features of the active slots at a step into the room (parties, batch, inputs)."""
    shape, active = itinerary.datasets[0].schema.shape, len(room)
    out = room.view(*room.shape[:2], *shape).numpy()
    if itinerary.whole is not None:
        gather, numbers = itinerary.whole.reader(out.dtype), itinerary.rows[:, :active]
        if room.is_contiguous():
            out_flat = out.reshape(-1, *shape)
            return lambda step: gather(numbers[step].reshape(-1), out_flat)

        def gather_one_by_one(step: int) -> None:
            for own, index in zip(numbers[step], out, strict=True):
                gather(own, index)

        return gather_one_by_one

    def read_one_by_one(step: int) -> None:
        # A slot without a job only keeps another company and needs no rows.
        for data, own, index in zip(itinerary.datasets, itinerary.rows[step], out, strict=False):
            data.read(own, index)

    return read_one_by_one


def read_targets(itinerary: Itinerary, kind: LossKind, steps: range, active: int) -> Array:
    """Targets of some steps: (steps, parties, batch) codes, or (steps, parties, batch, outputs)."""
    numbers, datasets = itinerary.rows[steps.start:steps.stop, :active], itinerary.datasets
    if itinerary.whole is not None and all(data.labels is datasets[0].labels for data in datasets):
        targets = target_array(kind, itinerary.whole.target[numbers.reshape(-1)])
        return targets.reshape(*numbers.shape, *targets.shape[1:])
    wholes = datasets if itinerary.whole is None else [replace(data, rows=None) for data in datasets]
    each = [target_array(kind, data.take(numbers[:, slot].reshape(-1)).target)
            for slot, data in enumerate(wholes[:active])]
    each += each[:1] * (active - len(each))
    stacked = np.stack(each).reshape(active, len(steps), numbers.shape[2], *each[0].shape[1:])
    return np.ascontiguousarray(stacked.swapaxes(0, 1))


def weights_of_rows(itinerary: Itinerary, steps: range, active: int) -> list[Tensor | None]:
    """For each step None, or what to multiply each party's deltas with (parties, 1, batch) where a batch is short."""
    import torch

    counts, batch = itinerary.counts[steps.start:steps.stop, :active], itinerary.rows.shape[2]
    if counts.min(initial=batch) == batch:
        return [None] * len(counts)
    counted = np.arange(batch) < counts[..., None]
    factors = torch.from_numpy((counted * (batch / counts[..., None])).astype(np.float32))
    return [factors[step][:, None] if counts[step].min() < batch else None for step in range(len(counts))]
