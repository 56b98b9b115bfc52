"""Losses of many models that are mixtures of a few: base + sum of share * direction.

The first layer of a dense stack is linear, so its outputs for a mixture are the same mixture of its outputs for the
base and the directions. However many mixtures there are, the widest product is made once for each of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from tequio.learners.descent import row_losses, target_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from tequio.data.dataset import Dataset
    from tequio.learners.batched_layers import Activation, DenseStack
    from tequio.learners.descent import LossKind
    from tequio.learners.learner import Arrays, Learner

    Shares = NDArray[np.float64]
    Judge = Callable[[Shares], NDArray[np.float64]]

PIECE_ROWS = 1_000
"""Rows that go through all mixtures at a time."""

_ROWS, _NUMBERS = 8, 16
"""What rows and numbers of a product are filled up to."""

ROOM_NUMBERS = 2_000_000
"""Outputs of a layer in memory at a time: many mixtures take turns."""

KEPT_NUMBERS = 50_000_000
"""Outputs of the first layer that are kept for the next mixtures; where there are more they are made anew."""


@runtime_checkable
class MixingLearner(Protocol):
    """A learner that judges many mixtures in less time than one after the other."""

    def mixture_judge(self, base: Arrays, directions: Sequence[Arrays], data: Dataset) -> Judge:
        """A function from shares, one row a mixture, to the mixtures' mean losses."""
        ...


def mixture_judge(learner: Learner, base: Arrays, directions: Sequence[Arrays], data: Dataset) -> Judge:
    """A function that gives, for every i, the mean loss of base + sum over k of shares[i, k] * directions[k].

    What all mixtures have in common is worked out once, however often the function is called.
    """
    if isinstance(learner, MixingLearner):
        return learner.mixture_judge(base, directions, data)
    return judge_one_by_one(learner, base, directions, data)


def judge_one_by_one(learner: Learner, base: Arrays, directions: Sequence[Arrays], data: Dataset) -> Judge:
    """The same by evaluating every mixture for itself."""

    def judge(shares: Shares) -> NDArray[np.float64]:
        tallies = [learner.evaluate(mixture(base, directions, row), data) for row in shares]
        return np.array([tally["loss_sum"] / tally["rows"] for tally in tallies], dtype=np.float64)

    return judge


def mixture(base: Arrays, directions: Sequence[Arrays], shares: Sequence[float] | Shares) -> Arrays:
    """One mixture, in the base's own types."""
    mixed: Arrays = {}
    for name, values in base.items():
        total = values.astype(np.float64)
        for direction, share in zip(directions, shares, strict=True):
            if share:
                total += share * direction[name]
        mixed[name] = total.astype(values.dtype)
    return mixed


class StackJudge:
    """Judges mixtures of dense stacks, in batched matrix products."""

    def __init__(self, stack: DenseStack, kind: LossKind, models: Sequence[Arrays], data: Dataset) -> None:
        """`models` are the base and the directions."""
        import torch

        self._stack, self._kind, self._data = stack, kind, data
        self._weights = {name: _stacked(models, name) for pair in stack.names for name in pair}
        self._wanted = torch.from_numpy(target_array(kind, data.target))
        self._keeps = len(models) * len(data) * stack.widths[1] <= KEPT_NUMBERS
        self._kept: list[Tensor] = []

    def __call__(self, shares: Shares) -> NDArray[np.float64]:
        """Mean loss of each mixture."""
        import torch

        parts = torch.from_numpy(np.column_stack([np.ones(len(shares)), shares]).astype(np.float32))
        sums, start = np.zeros(len(shares)), 0
        with torch.inference_mode():
            for first in self._first_layer():
                wanted = self._wanted[start:start + first.shape[1]]
                for some in _turns(len(shares), first[0].numel()):
                    outputs = _outputs(self._stack, self._weights, first, parts[some])
                    sums[some] += _loss_sums(self._kind, outputs, wanted)
                start += first.shape[1]
        return sums / len(self._data)

    def _first_layer(self) -> Iterator[Tensor]:
        """Outputs (models, rows, width) of the first layer, piece by piece."""
        import torch

        if self._kept:
            yield from self._kept
            return
        weight, bias = (self._weights[name] for name in self._stack.names[0])
        weight = weight.transpose(1, 2).contiguous()
        for rows in _pieces(self._data):
            first = torch.baddbmm(bias[:, None], rows.expand(len(weight), *rows.shape), weight)
            if self._keeps:
                self._kept.append(first)
            yield first


def _stacked(models: Sequence[Arrays], name: str) -> Tensor:
    import torch

    return torch.from_numpy(np.stack([model[name].astype(np.float32, copy=False) for model in models]))


def _pieces(data: Dataset) -> Iterator[Tensor]:
    import torch

    for start in range(0, len(data), PIECE_ROWS):
        where = np.arange(start, min(start + PIECE_ROWS, len(data)))
        rows = np.empty((len(where), *data.schema.shape), np.float32)
        data.read(where, rows)
        yield torch.from_numpy(rows.reshape(len(where), -1))


def _turns(mixtures: int, numbers: int) -> Iterator[slice]:
    size = max(ROOM_NUMBERS // max(numbers, 1), 1)
    for start in range(0, mixtures, size):
        yield slice(start, min(start + size, mixtures))


def _outputs(stack: DenseStack, weights: dict[str, Tensor], first: Tensor, parts: Tensor) -> Tensor:
    """The outputs (mixtures, rows, outputs) of some mixtures, from those of the first layer for all models."""
    import torch

    values = _mixed(parts, first)
    for (weight, bias), activation in zip(stack.names[1:], stack.activations, strict=True):
        _activate(values, activation)
        bent, mixed = _mixed(parts, weights[bias]), _mixed(parts, weights[weight])
        values = torch.baddbmm(bent[:, None], values, mixed.transpose(1, 2))
    return values


def _mixed(parts: Tensor, models: Tensor) -> Tensor:
    """Every mixture of the models' arrays. Products take other kernels for a few rows, and round differently where a
    row does not begin at a multiple of 64 bytes: both sides are filled up, so that no mixture depends on the others."""
    from torch.nn.functional import pad

    arrays = models.flatten(1)
    filled = pad(parts, (0, 0, 0, -len(parts) % _ROWS)) @ pad(arrays, (0, -arrays.shape[1] % _NUMBERS))
    return filled[:len(parts), :arrays.shape[1]].view(len(parts), *models.shape[1:])


def _activate(values: Tensor, activation: Activation) -> None:
    if activation == "relu":
        values.relu_()
    elif activation == "tanh":
        values.tanh_()
    elif activation == "sigmoid":
        values.sigmoid_()


def _loss_sums(kind: LossKind, outputs: Tensor, wanted: Tensor) -> NDArray[np.float64]:
    import torch

    repeated = wanted.repeat(len(outputs), *[1] * (wanted.ndim - 1))
    losses = row_losses(kind, outputs.flatten(0, 1), repeated).view(len(outputs), -1)
    sums: NDArray[np.float64] = losses.sum(1, dtype=torch.float64).numpy()
    return sums
