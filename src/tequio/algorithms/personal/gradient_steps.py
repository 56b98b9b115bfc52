"""Steps that an algorithm takes itself, gradient by gradient, because they are more than a training of one model."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tequio.errors import ConfigError, DataError
from tequio.federation.aggregation import squared_norm
from tequio.learners.descent import batch_rows, row_orders
from tequio.learners.learner import Arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.population import Party
    from tequio.learners.learner import LocalTraining


def batches(rows: Dataset, local: LocalTraining, rng: np.random.Generator) -> Iterator[Dataset]:
    """The batches of a local training, the same as a learner would see them."""
    size = batch_rows(len(rows), local)
    for order in row_orders(len(rows), local, rng):
        for start in range(0, len(order), size):
            yield rows.take(order[start:start + size])


def training_rows(party: Party) -> Dataset:
    """The party's rows to train on."""
    rows = party.data.train
    if not len(rows):
        raise DataError(f"party '{party.name}' has no rows to train on",
                        remedy="raise rules.minimum_rows so that it is not chosen")
    return rows


class DescentMemory(TypedDict):
    """What an optimizer remembers of its steps: how many, and momentum or both moments of adam."""

    steps: int
    first: Arrays
    second: Arrays


class Descent:
    """The optimizer of a local training on named arrays: plain steps with momentum, or Adam.

    It goes on from the memory of an earlier one. Arrays that have no gradient stay as they are.
    """

    def __init__(self, local: LocalTraining, rate: float, memory: DescentMemory | None = None) -> None:
        self._local, self._rate = local, rate
        self._steps = memory["steps"] if memory else 0
        self._first: Arrays = dict(memory["first"]) if memory else {}
        self._second: Arrays = dict(memory["second"]) if memory else {}

    @property
    def memory(self) -> DescentMemory:
        """What it remembers."""
        return {"steps": self._steps, "first": dict(self._first), "second": dict(self._second)}

    def step(self, model: Arrays, gradient: Arrays) -> Arrays:
        """The model after one step; the gradient is clipped first, then weight decay is added."""
        self._steps += 1
        if self._local.clip_norm:
            scale = min(1.0, self._local.clip_norm / max(sqrt(squared_norm(gradient)), 1e-12))
            gradient = {name: scale * values for name, values in gradient.items()}
        move = self._adam if self._local.optimizer == "adam" else self._velocity
        return {name: values if name not in gradient else
                (values - self._rate * move(name, gradient[name] + self._local.weight_decay * values)).astype(
                    values.dtype) for name, values in model.items()}

    def _velocity(self, name: str, gradient: NDArray[Any]) -> NDArray[Any]:
        self._first[name] = self._local.momentum * self._first.get(name, 0.0) + gradient
        return self._first[name]

    def _adam(self, name: str, gradient: NDArray[Any]) -> NDArray[Any]:
        self._first[name] = 0.9 * self._first.get(name, 0.0) + 0.1 * gradient
        self._second[name] = 0.999 * self._second.get(name, 0.0) + 0.001 * np.square(gradient)
        mean, square = self._first[name] / (1 - 0.9**self._steps), self._second[name] / (1 - 0.999**self._steps)
        return np.asarray(mean / (np.sqrt(square) + 1e-8))


def require_plain_sgd(local: LocalTraining, name: str, *, weight_decay: bool = True) -> None:
    """Refuse settings that an algorithm whose steps are its own has no place for."""
    asked = {"adam": local.optimizer == "adam", "momentum": local.momentum > 0, "clip_norm": local.clip_norm > 0,
             "optimizer_memory": local.optimizer_memory == "kept",
             "weight_decay": local.weight_decay > 0 and not weight_decay}
    unknown = [setting for setting, is_asked in asked.items() if is_asked]
    if unknown:
        raise ConfigError(f"'{name}' takes plain gradient steps of its own, and has no {' and no '.join(unknown)}",
                          remedy="leave it out of [local]")
