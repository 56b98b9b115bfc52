"""Clipping and noise: all arrays that a party sends are clipped together, as one vector, and noised on a grid.

Noise on a grid does not reveal through the last bits of a number how it was computed.
"""

from __future__ import annotations

from hashlib import blake2b
from math import isfinite
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.errors import ConfigError
from tequio.federation.stages import MOVED
from tequio.learners.private_training import grid_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.learners.learner import Arrays

Floats = NDArray[np.floating]
"""Numbers of single or double precision."""

_STRETCH = 32_768
"""Numbers that are made doubles at a time, so that they stay in the processor's cache."""

_ROW = 256
"""Numbers of single precision whose squares are summed in single precision."""

_SAFETY = 1 + 2.0 ** -16
"""Sums of so many squares are wrong by less than 256 roundings of 2^-24, and what is shortened is rounded once more."""

SILENT = ("loss", "received_loss")
"""What parties otherwise report beside their updates and what no noise covers."""

OPEN = ("rows", "steps", "effective_steps", MOVED)
"""What they report beside them all the same: how much they have to do, which is not hidden, and what a simulated attack
tells of itself."""


def clipped(payload: Payload, names: tuple[str, ...], bound: float, order: int = 2, *,
            kept: Payload | None = None) -> tuple[Payload, bool]:
    """The payload with its named arrays no longer than `bound`, all together, and whether they already were.

    Losses are left out, and arrays that are not finite become zeros. Whatever else is not named would leave the party
    unbounded, and is refused. Arrays are shortened where they lie if it is known what the party `kept`, and they are
    not part of it.
    """
    _refuse_others(payload, names)
    length = norm((values for name in names for values in payload[name].values()), order)
    quiet = {name: value for name, value in payload.items() if name not in SILENT}
    if length <= bound:
        return quiet, True
    if not isfinite(length):  # some entry is no number, or too large for its square: that must not be seen
        return {**quiet, **{name: {key: np.zeros_like(values) for key, values in payload[name].items()}
                            for name in names}}, False
    held = None if kept is None else list(_arrays_in(kept))
    return {**quiet, **{name: _shortened(payload[name], bound / length, held) for name in names}}, False


def norm(arrays: Iterable[Floats], order: int = 2) -> float:
    """Length of all entries as one vector, of order 1 or 2: never too short, and by less than one part in 50,000 too
    long."""
    if order == 1:
        return sum(_by_stretches(values.reshape(-1), order) for values in arrays)
    return float(sum(_squares(values.reshape(-1)) for values in arrays) ** 0.5)


def _squares(flat: Floats) -> float:
    """The sum of squares; of single precision in short rows, whose sums are added in double precision."""
    if flat.dtype != np.float32:
        return _by_stretches(flat, 2)
    whole = flat.size - flat.size % _ROW
    rows = flat[:whole].reshape(-1, _ROW)
    total = float(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64)) if whole else 0.0
    return (total + _by_stretches(flat[whole:], 2)) * _SAFETY ** 2


def _by_stretches(flat: Floats, order: int) -> float:
    total, room = 0.0, np.empty(min(flat.size, _STRETCH))
    for start in range(0, flat.size, _STRETCH):
        part = room[:min(_STRETCH, flat.size - start)]
        part[...] = flat[start:start + _STRETCH]
        total += float(np.abs(part).sum() if order == 1 else part @ part)
    return total


def _shortened(arrays: Arrays, factor: float, held: list[Floats] | None) -> Arrays:
    """Every entry times a factor, in its own type."""
    if held is None or not _are_free(arrays, held):
        return {name: (values * factor).astype(values.dtype, copy=False) for name, values in arrays.items()}
    for values in arrays.values():
        values *= values.dtype.type(factor)
    return arrays


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


def release_rng(party: Party, purpose: str, *, secret: bool = False) -> np.random.Generator:
    """For the noise on a reply of the party: another one for every reply of a round, so that none share their noise."""
    released = party.recall(_Released).get("numbers", {})
    round, last = released.get(purpose, (0, 0))
    number = last + 1 if round == party.round else 0
    party.keep(_Released, {"numbers": {**released, purpose: (party.round, number)}})
    return np.random.default_rng() if secret else party.rng(f"{purpose} {number}")


def keyed_by(arrays: Arrays, seed: int) -> int:
    """A seed for noise on these very numbers: others get noise that has nothing to do with it."""
    digest = blake2b(key=seed.to_bytes(16, "little"), digest_size=16)
    for values in arrays.values():
        digest.update(np.ascontiguousarray(values).tobytes())
    return int.from_bytes(digest.digest(), "little")


def precision_of(arrays: Arrays) -> type[np.float32] | type[np.float64]:
    """The type that noise for these arrays is drawn in: single precision where all of them are."""
    return np.float32 if all(values.dtype == np.float32 for values in arrays.values()) else np.float64


def gaussian(like: Arrays, spread: float, rng: np.random.Generator) -> Floats:
    """Noise for all entries of some arrays, in one vector."""
    noise: Floats = rng.standard_normal(sum(values.size for values in like.values()), dtype=precision_of(like))
    noise *= noise.dtype.type(spread)
    return noise


def laplace(like: Arrays, spread: float, rng: np.random.Generator) -> Floats:
    """The same of another shape, in double precision."""
    return rng.laplace(scale=spread, size=sum(values.size for values in like.values())) if spread else \
        np.zeros(sum(values.size for values in like.values()))


def plus_noise(arrays: Arrays, noise: Floats, spread: float, factor: float = 1.0) -> Arrays:
    """Every entry times a factor, plus its noise, on a grid. The vector of noise is used up."""
    start = 0
    for values in arrays.values():
        flat, part = values.reshape(-1), noise[start:start + values.size]
        np.add(part, flat if factor == 1 else flat * noise.dtype.type(factor), out=part, casting="same_kind")
        start += values.size
    if spread:
        to_grid(noise, grid_of(spread))
    return _cut(noise, arrays)


def to_grid(values: Floats, step: float) -> None:
    """Round to multiples of a power of two, in place."""
    values *= values.dtype.type(1 / step)
    np.rint(values, out=values)
    values *= values.dtype.type(step)


def _cut(vector: Floats, like: Arrays) -> Arrays:
    parts, start = {}, 0
    for name, values in like.items():
        kind = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        parts[name] = vector[start:start + values.size].reshape(values.shape).astype(kind, copy=False)
        start += values.size
    return parts
