"""Steps that an algorithm takes itself, gradient by gradient, because they are more than a training of one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, DataError
from tequio.learners.batches import batch_rows, row_orders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.data.dataset import Dataset
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays, LocalTraining


def batches(rows: Dataset, how: LocalTraining, rng: np.random.Generator) -> Iterator[Dataset]:
    """The batches of a local training, the same as a learner would see them."""
    size = batch_rows(len(rows), how)
    for order in row_orders(len(rows), how, rng):
        for start in range(0, len(order), size):
            yield rows.take(order[start:start + size])


def training_rows(party: Party) -> Dataset:
    """The party's rows to train on."""
    rows = party.data.train
    if not len(rows):
        raise DataError(f"party '{party.name}' has no rows to train on",
                        remedy="raise rules.minimum_rows so that it is not chosen")
    return rows


class Descent:
    """The optimizer of a local training on named arrays: plain steps with momentum, or Adam.

    It goes on from the memory of an earlier one.
    """

    def __init__(self, how: LocalTraining, rate: float, memory: Payload | None = None) -> None:
        kept = memory or {"steps": 0, "first": {}, "second": {}}
        self._how, self._rate, self._steps = how, rate, int(kept["steps"])
        self._first: dict[str, Any] = dict(kept["first"])
        self._second: dict[str, Any] = dict(kept["second"])

    @property
    def memory(self) -> Payload:
        """What it remembers."""
        return {"steps": self._steps, "first": dict(self._first), "second": dict(self._second)}

    def step(self, model: Arrays, gradient: Arrays) -> Arrays:
        """The model after one step."""
        self._steps += 1
        gradient = {name: gradient[name] + self._how.weight_decay * model[name] for name in model}
        move = self._adam if self._how.optimizer == "adam" else self._velocity
        return {name: (values - self._rate * move(name, gradient[name])).astype(values.dtype)
                for name, values in model.items()}

    def _velocity(self, name: str, gradient: Any) -> Any:
        self._first[name] = self._how.momentum * self._first.get(name, 0.0) + gradient
        return self._first[name]

    def _adam(self, name: str, gradient: Any) -> Any:
        self._first[name] = 0.9 * self._first.get(name, 0.0) + 0.1 * gradient
        self._second[name] = 0.999 * self._second.get(name, 0.0) + 0.001 * np.square(gradient)
        mean, square = self._first[name] / (1 - 0.9**self._steps), self._second[name] / (1 - 0.999**self._steps)
        return mean / (np.sqrt(square) + 1e-8)


def require_plain_sgd(how: LocalTraining, name: str) -> None:
    """Refuse settings that an algorithm whose steps are its own has no place for."""
    asked = {"adam": how.optimizer == "adam", "momentum": how.momentum > 0, "clip_norm": how.clip_norm > 0,
             "optimizer_memory": how.optimizer_memory == "kept"}
    unknown = [setting for setting, is_asked in asked.items() if is_asked]
    if unknown:
        raise ConfigError(f"'{name}' takes plain gradient steps of its own, and has no {' and no '.join(unknown)}",
                          remedy="leave it out of [local]")
