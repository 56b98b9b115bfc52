"""The batches of many parties: which rows at which step, read block by block into one piece of memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.learners.batched_layers import Outcomes
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
    numbers refer to each party's own `datasets`.
    """

    rows: NDArray[np.int64]
    counts: NDArray[np.int64]
    datasets: Sequence[Dataset]
    whole: Dataset | None


def plan_rows(jobs: Sequence[Job], how: LocalTraining, steps: int, slots: int, batch: int) -> Itinerary:
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
    return Itinerary(rows, counts, [job.data for job in jobs], whole)


def _shared_source(datasets: Sequence[Dataset]) -> Dataset | None:
    first = datasets[0]
    is_shared = all(data.source is first.source and data.columns is first.columns for data in datasets)
    return replace(first, rows=None) if is_shared else None


@dataclass(frozen=True)
class Block:
    """Some consecutive steps: rows (steps, parties, batch, inputs), targets, and weights of short batches."""

    rows: Tensor
    outcomes: Outcomes
    weights: list[Tensor | None]


def read_block(itinerary: Itinerary, kind: LossKind, outputs: int, first: int, steps: int, active: int) -> Block:
    """Read the batches of the first `active` slots."""
    import torch

    numbers = itinerary.rows[first:first + steps, :active]
    shape = itinerary.datasets[0].schema.shape
    rows = shaped(memory("rows", numbers.size * int(np.prod(shape))), (*numbers.shape, *shape))
    outcomes = Outcomes.of(steps, active, outputs, numbers.shape[2])
    targets = _read(itinerary, numbers, rows.numpy(), kind)
    outcomes.flat_targets.zero_()
    if kind == "softmax":
        outcomes.targets.scatter_(2, torch.from_numpy(targets)[:, :, None], 1.0)
    else:
        outcomes.targets.copy_(torch.from_numpy(targets).transpose(2, 3))
    weights = _weights(itinerary.counts[first:first + steps, :active], numbers.shape[2])
    return Block(rows.flatten(3), outcomes, weights)


def _read(itinerary: Itinerary, numbers: NDArray[np.int64], out: NDArray[Any], kind: LossKind) -> NDArray[Any]:
    """Features into `out`; gives the targets, (steps, parties, batch) codes or (steps, parties, batch, outputs)."""
    flat = out.reshape(numbers.size, *out.shape[3:])
    if itinerary.whole is not None:
        flat_numbers = numbers.reshape(-1)
        itinerary.whole.read(flat_numbers, flat)
        targets = target_array(kind, itinerary.whole.target[flat_numbers])
        return targets.reshape(*numbers.shape, *targets.shape[1:])
    each = []
    for slot in range(numbers.shape[1]):
        # A slot without a job only keeps another company; it may read anybody's rows.
        data = itinerary.datasets[min(slot, len(itinerary.datasets) - 1)]
        for step in range(len(numbers)):
            data.read(numbers[step, slot], out[step, slot])
        each.append(target_array(kind, data.take(numbers[:, slot].reshape(-1)).target))
    stacked = np.stack(each).reshape(numbers.shape[1], len(numbers), numbers.shape[2], *each[0].shape[1:])
    return np.ascontiguousarray(stacked.swapaxes(0, 1))


def _weights(counts: NDArray[np.int64], batch: int) -> list[Tensor | None]:
    """For each step None, or what to multiply each party's deltas with (parties, 1, batch) where a batch is short."""
    import torch

    if counts.min(initial=batch) == batch:
        return [None] * len(counts)
    counted = np.arange(batch) < counts[..., None]
    factors = torch.from_numpy((counted * (batch / counts[..., None])).astype(np.float32))
    return [factors[step][:, None] if counts[step].min() < batch else None for step in range(len(counts))]
