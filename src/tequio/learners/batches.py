"""Which rows a party trains on, step by step: the same for one party alone and for many at once."""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, DataError, TequioError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.learners.learner import Arrays, LocalTraining


def batch_rows(rows: int, how: LocalTraining) -> int:
    """Rows of a full batch."""
    return how.batch or rows


def steps_of_epochs(rows: int, how: LocalTraining) -> tuple[int, ...]:
    """How many batches each epoch has; counting steps cuts the last epoch short."""
    return _steps_of_epochs(-(-rows // batch_rows(rows, how)), how.epochs, how.steps)


@lru_cache(maxsize=1024)
def _steps_of_epochs(steps_an_epoch: int, epochs: int, steps: int) -> tuple[int, ...]:
    if not steps:
        return (steps_an_epoch,) * epochs
    whole, rest = divmod(steps, steps_an_epoch)
    return (steps_an_epoch,) * whole + (rest,) * (rest > 0)


def check_memory(how: LocalTraining, memory: Arrays | None) -> None:
    """Refuse to forget what should be kept: whoever trains must hand over what was kept so far, if only nothing yet."""
    if how.optimizer_memory == "kept" and memory is None:
        raise ConfigError("this training cannot keep what the optimizer remembers from round to round",
                          remedy="set local.optimizer_memory = 'fresh', or choose an algorithm such as 'fedavg' with a "
                                 "torch learner")


def row_orders(rows: int, how: LocalTraining, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """The rows of each epoch in the order of their batches, drawn when asked for."""
    for steps in steps_of_epochs(rows, how):
        order = rng.permutation(rows) if how.shuffle else np.arange(rows)
        yield order[:steps * batch_rows(rows, how)]


def check_trainable(data: Dataset) -> None:
    """Refuse a dataset without rows or without a target."""
    if not len(data):
        raise DataError(f"'{data.name}' has no rows to train on", remedy="raise the partition's minimum of rows")
    if data.schema.target.kind == "none":
        raise DataError(f"'{data.name}' holds no target to learn", remedy="choose a learner that needs none, or data "
                        "that has one")


def check_finite(model: Arrays, data: Dataset, step: int) -> None:
    """Refuse a model that the last step has blown up."""
    if not is_finite(model.values()):
        raise diverged(data, step)


def is_finite(arrays: Iterable[NDArray[Any]]) -> bool:
    """Whether no entry is NaN or infinite."""
    return all(_is_finite(values) for values in arrays if values.dtype.kind == "f")


def _is_finite(values: NDArray[Any]) -> bool:
    # A NaN or infinite entry makes the sum of squares so; only then (or where huge numbers overflow) look at each.
    flat = values.reshape(-1)
    return isfinite(np.vdot(flat, flat)) or bool(np.isfinite(values).all())


def diverged(data: Dataset, step: int) -> TequioError:
    """The error of a training that leads nowhere any more; steps count from 1."""
    return TequioError(f"training on '{data.name}': loss or weights became not finite at step {step}",
                       remedy="lower local.learning_rate, or set local.clip_norm")
