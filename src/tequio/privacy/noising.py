"""Clipping and noise: all arrays that a party sends are clipped together, as one vector, and noised on a grid.

Whole numbers of steps do not reveal through their last bits how they were computed (Mironov: On significance of the
least significant bits for differential privacy, CCS 2012).
"""

from __future__ import annotations

from hashlib import blake2b
from math import frexp, inf, isfinite, sqrt
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.errors import ConfigError
from tequio.federation.aggregation import zeros
from tequio.federation.stages import MOVED
from tequio.noise.coins import Coins
from tequio.noise.grid import SLACK, add_in_steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.learners.learner import Arrays
    from tequio.noise.grid import Whole

Floats = NDArray[np.floating]
"""Numbers of single or double precision."""

_STRETCH = 32_768
"""Numbers that are made doubles at a time, so that they stay in the processor's cache."""

_SAFETY, _SMALL = 1 - 2.0 ** -22, 1e-30
"""What is shortened is rounded to single precision, twice where the factor is; smaller factors are not."""

SILENT = ("loss", "received_loss")
"""What parties otherwise report beside their updates and what no noise covers."""

OPEN = ("rows", "steps", "effective_steps", MOVED)
"""What they report beside them all the same: how much they have to do, which is not hidden, and what a simulated attack
tells of itself."""


def clipped(payload: Payload, names: tuple[str, ...], bound: float, order: int = 2, *,
            kept: Payload | None = None) -> tuple[Payload, bool]:
    """The payload with its named arrays no longer than `bound`, all together, and whether they already were.

    Losses are left out. Whatever else is not named would leave the party unbounded, and is refused. Arrays are
    shortened where they lie if it is known what the party `kept`, and they are not part of it. Where a single entry is
    not finite, the party contributes noughts, which nobody can tell from others under the noise.
    """
    _refuse_others(payload, names)
    length = norm([values for name in names for values in payload[name].values()], order)
    quiet = {name: value for name, value in payload.items() if name not in SILENT}
    if length <= bound * SLACK:
        return quiet, True
    if length == inf:
        return {**quiet, **{name: zeros(payload[name]) for name in names}}, False
    held = None if kept is None else list(_arrays_in(kept))
    return {**quiet, **{name: _shortened(payload[name], bound / length * _SAFETY, held) for name in names}}, False


def norm(arrays: Sequence[Floats], order: int = 2) -> float:
    """Length of all entries as one vector, of order 1 or 2: never too short, and infinite where one is not finite.

    Where squares would be too large or too small, entries are divided by a power of two next to the largest.
    """
    unit, total = 1.0, sum(_summed(values.reshape(-1), order) for values in arrays)
    if not 1e-200 < total < inf:
        sizes = [float(np.abs(values).max()) for values in arrays if values.size]
        if not all(map(isfinite, sizes)):
            return inf
        unit = 2.0 ** min(max(frexp(max(sizes, default=0.0))[1], -1000), 1000)
        total = sum(_summed(values.reshape(-1).astype(np.float64) / unit, order) for values in arrays)
    return unit * (total if order == 1 else sqrt(total)) * (1 + 2.0 ** -36)


def _summed(flat: Floats, order: int) -> float:
    """The sum of sizes or of squares in double precision, stretch by stretch."""
    total, room = 0.0, np.empty(min(flat.size, _STRETCH))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, flat.size, _STRETCH):
            part = room[:min(_STRETCH, flat.size - start)]
            part[...] = flat[start:start + _STRETCH]
            total += float(np.abs(part).sum() if order == 1 else part @ part)
    return total


def _shortened(arrays: Arrays, factor: float, held: list[Floats] | None) -> Arrays:
    """Every entry times a factor, in its own type; by way of double precision where single has too few digits."""
    into = arrays if held is not None and _are_free(arrays, held) else \
        {name: np.empty(values.shape, values.dtype if values.dtype.kind == "f" else np.float64)
         for name, values in arrays.items()}
    for name, values in arrays.items():
        kind = into[name].dtype.type if factor > _SMALL else np.float64
        np.multiply(values, kind(factor), out=into[name], dtype=kind, casting="same_kind")
    return into


def _are_free(arrays: Arrays, held: list[Floats]) -> bool:
    """Whether nobody else looks at these arrays."""
    return all(values.flags.writeable and values.dtype.kind == "f" and not any(
        np.may_share_memory(values, other) for other in held) for values in arrays.values())


def _arrays_in(value: object) -> Iterator[Floats]:
    if isinstance(value, np.ndarray):
        yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for part in parts:
        yield from _arrays_in(part)


def _refuse_others(payload: Payload, names: tuple[str, ...]) -> None:
    for name in names:
        if not isinstance(payload.get(name), dict):
            raise ConfigError(f"the task sends no arrays called '{name}', which were to be protected",
                              remedy="use an algorithm that sends updates, such as 'fedavg'")
    for name in payload.keys() - {*names, *SILENT, *OPEN}:
        raise ConfigError(f"the task also sends '{name}', which nothing would clip or noise",
                          remedy="use an algorithm that sends updates only, such as 'fedavg'")


class _Released(TypedDict, total=False):
    """By purpose the last round in which the party released something, and the number of that release in the round."""

    numbers: dict[str, tuple[int, int]]


def release_coins(party: Party, purpose: str, *, secret: bool = False) -> Coins:
    """For the noise on a reply of the party: others for every reply of a round, so that none share their noise."""
    released = party.recall(_Released).get("numbers", {})
    round, last = released.get(purpose, (0, 0))
    number = last + 1 if round == party.round else 0
    party.keep(_Released, {"numbers": {**released, purpose: (party.round, number)}})
    return Coins.from_system() if secret else party.coins(f"{purpose} {number}")


def keyed_by(arrays: Arrays, seed: int) -> int:
    """A seed for noise on these very numbers: others get noise that has nothing to do with it."""
    digest = blake2b(key=seed.to_bytes(32, "little"), digest_size=32)
    for values in arrays.values():
        digest.update(np.ascontiguousarray(values).tobytes())
    return int.from_bytes(digest.digest(), "little")


def size_of(arrays: Arrays) -> int:
    """How many entries all arrays have."""
    return sum(values.size for values in arrays.values())


def on_grid(arrays: Arrays, step: float, noise: Whole, factor: float = 1.0) -> Arrays:
    """Every entry times a factor, in whole steps, plus its noise in steps: in the array's own type again.

    Sums of whole steps are exact; what rounding to the type of the array does to them afterwards reveals nothing.
    """
    noised, start = {}, 0
    for name, values in arrays.items():
        found = np.empty(values.size, values.dtype if values.dtype.kind == "f" else np.float64)
        add_in_steps(values.reshape(-1), factor, noise[start:start + values.size], step, found)
        noised[name] = found.reshape(values.shape)
        start += values.size
    return noised
