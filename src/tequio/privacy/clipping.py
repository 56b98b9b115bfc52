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

_STRETCH = 32_768
"""Numbers that are made doubles at a time, so that they stay in the processor's cache."""

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
    total, room = 0.0, np.empty(_STRETCH)
    for values in arrays:
        flat = values.reshape(-1)
        for start in range(0, flat.size, _STRETCH):
            part = room[:min(_STRETCH, flat.size - start)]
            part[...] = flat[start:start + _STRETCH]
            total += float(np.abs(part).sum() if order == 1 else part @ part)
    return total if order == 1 else total**0.5


def scaled(arrays: Arrays, factor: float) -> Arrays:
    """Every entry times a factor, in its own type."""
    return {name: (values * factor).astype(values.dtype, copy=False) for name, values in arrays.items()}


def with_noise(arrays: Arrays, noise: Iterator[NDArray[Any]], factor: float = 1.0) -> Arrays:
    """Every entry times a factor, plus noise, in its own float type."""
    return {name: _added(values, extra, factor) for (name, values), extra in zip(arrays.items(), noise, strict=True)}


def _added(values: NDArray[Any], noise: NDArray[Any], factor: float) -> NDArray[Any]:
    kind = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
    noise = noise.astype(kind, copy=False)
    total: NDArray[Any] = noise + (values if factor == 1 else values * kind.type(factor))
    return total


def _refuse_others(payload: Payload, names: tuple[str, ...]) -> None:
    for name in names:
        if not isinstance(payload.get(name), dict):
            raise ConfigError(f"the task sends no arrays called '{name}', which were to be protected",
                              remedy="use an algorithm that sends updates, such as 'fedavg'")
    for name, value in payload.items():
        if name not in names and isinstance(value, dict | list | np.ndarray):
            raise ConfigError(f"the task also sends '{name}', which nothing would clip or noise",
                              remedy="use an algorithm that sends updates only, such as 'fedavg'")
