"""The batches of many parties: which rows at which step, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.learners.batches import row_orders
from tequio.learners.losses import target_array

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from tequio.data.dataset import Dataset
    from tequio.learners.learner import Job, LocalTraining
    from tequio.learners.losses import LossKind


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


def plan_rows(jobs: Sequence[Job], how: LocalTraining, steps: int, slots: int, batch: int,
              label_weights: Tensor | None = None) -> Itinerary:
    """Draw all row orders. A short batch is filled up with a row of its own, which later counts for nothing."""
    rows, counts = np.zeros((steps, slots, batch), np.int64), np.full((steps, slots), batch)
    whole = _shared_source([job.data for job in jobs])
    for slot, job in enumerate(jobs):
        at, own = 0, job.data.rows if whole is not None else None
        for order in row_orders(len(job.data), how, job.rng):
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
    out = room.numpy().reshape(*room.shape[:2], *shape)
    if itinerary.whole is not None:
        gather, out_flat = itinerary.whole.reader(out.dtype), out.reshape(-1, *shape)
        numbers = itinerary.rows[:, :active]
        return lambda step: gather(numbers[step].reshape(-1), out_flat)

    def read_one_by_one(step: int) -> None:
        # A slot without a job only keeps another company and needs no rows.
        for data, own, place in zip(itinerary.datasets, itinerary.rows[step], out, strict=False):
            data.read(own, place)

    return read_one_by_one


def read_targets(itinerary: Itinerary, kind: LossKind, steps: range, active: int) -> NDArray[Any]:
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
