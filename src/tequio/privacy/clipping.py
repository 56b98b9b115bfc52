"""Bounding what one party can add: all arrays that it sends are clipped together, as one vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays

SILENT = ("loss", "received_loss")
"""What parties otherwise report beside their updates and what no noise covers."""


def clipped(payload: Payload, names: tuple[str, ...], bound: float, order: int = 2) -> tuple[Payload, bool]:
    """The payload with its named arrays no longer than `bound`, all together, and whether they already were.

    Losses are left out. An array that is not named would leave the party unbounded, and is refused.
    """
    _refuse_others(payload, names)
    length = norm((values for name in names for values in payload[name].values()), order)
    quiet = {name: value for name, value in payload.items() if name not in SILENT}
    if length <= bound:
        return quiet, True
    return {**quiet, **{name: scaled(payload[name], bound / length) for name in names}}, False


def norm(arrays: Iterable[NDArray[Any]], order: int = 2) -> float:
    """Length of all entries as one vector, summed in double precision; of order 1 or 2."""
    flat = (values.reshape(-1).astype(np.float64) for values in arrays)
    return float(sum(np.abs(values).sum() for values in flat)) if order == 1 else \
        float(sum(values @ values for values in flat)) ** 0.5


def scaled(arrays: Arrays, factor: float) -> Arrays:
    """Every entry times a factor, in its own type."""
    return {name: (values * factor).astype(values.dtype, copy=False) for name, values in arrays.items()}


def with_noise(arrays: Arrays, noise: Iterator[NDArray[np.float64]], factor: float = 1.0) -> Arrays:
    """Every entry times a factor, plus noise, in its own float type."""
    return {name: (values * factor + extra).astype(values.dtype if values.dtype.kind == "f" else np.float64)
            for (name, values), extra in zip(arrays.items(), noise, strict=True)}


def _refuse_others(payload: Payload, names: tuple[str, ...]) -> None:
    for name in names:
        if not isinstance(payload.get(name), dict):
            raise ConfigError(f"the task sends no arrays called '{name}', which were to be protected",
                              remedy="use an algorithm that sends updates, such as 'fedavg'")
    for name, value in payload.items():
        if name not in names and isinstance(value, dict | list | np.ndarray):
            raise ConfigError(f"the task also sends '{name}', which nothing would clip or noise",
                              remedy="use an algorithm that sends updates only, such as 'fedavg'")
