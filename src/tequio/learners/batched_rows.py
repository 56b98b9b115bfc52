"""The batches of many parties: which rows at which step, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.learners.batched_memory import memory, shaped
from tequio.learners.batches import row_orders
from tequio.learners.losses import target_array

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        at = 0
        for order in row_orders(len(job.data), how, job.rng):
            own = order if whole is None or job.data.rows is None else job.data.rows[order]
            batches, short = -(-len(order) // batch), -len(order) % batch
            filled = np.concatenate([own, np.repeat(own[:1], short)]) if short else own
            rows[at:at + batches, slot] = filled.reshape(batches, batch)
            at += batches
            counts[at - 1, slot] -= short
    return Itinerary(rows, counts, [job.data for job in jobs], whole, label_weights)


def _shared_source(datasets: Sequence[Dataset]) -> Dataset | None:
    first = datasets[0]
    is_shared = all(data.source is first.source and data.columns is first.columns for data in datasets)
    return replace(first, rows=None) if is_shared else None


class RowReader:
    """Reads the features of the first `active` slots, one step at a time, into memory that stays in the cache."""

    def __init__(self, itinerary: Itinerary, active: int) -> None:
        batch, shape = itinerary.rows.shape[2], itinerary.datasets[0].schema.shape
        room = memory("rows", active * batch * prod(shape))
        self._itinerary = itinerary
        self._active = active
        self._out = shaped(room, (active, batch, *shape)).numpy()
        self._out_flat = self._out.reshape(active * batch, *shape)
        self.rows = shaped(room, (active, batch, prod(shape)))

    def read(self, step: int) -> Tensor:
        """Rows (parties, batch, inputs) of a step; the next call overwrites them."""
        numbers, whole = self._itinerary.rows[step, :self._active], self._itinerary.whole
        if whole is not None:
            whole.read(numbers.reshape(-1), self._out_flat)
        else:
            # A slot without a job only keeps another company and needs no rows.
            for data, own, out in zip(self._itinerary.datasets, numbers, self._out, strict=False):
                data.read(own, out)
        return self.rows


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
