"""Adding noise to arrays, on a grid, so that what comes out does not tell how it was computed."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.learners.noise_grid import grid_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.party import Party
    from tequio.learners.learner import Arrays


def release_rng(party: Party, purpose: str, *, secret: bool = False) -> np.random.Generator:
    """For the noise on a reply of the party: another one for every reply of a round, so that none share their noise."""
    asked, number = party.state.get(purpose, (0, 0))
    number = number + 1 if asked == party.round else 0
    party.state[purpose] = [party.round, number]
    return np.random.default_rng() if secret else party.rng(f"{purpose} {number}")


def keyed_by(arrays: Arrays, seed: int) -> int:
    """A seed for noise on these very numbers: others get noise that has nothing to do with it."""
    digest = blake2b(key=seed.to_bytes(16, "little"), digest_size=16)
    for values in arrays.values():
        digest.update(np.ascontiguousarray(values).tobytes())
    return int.from_bytes(digest.digest(), "little")


def precision_of(arrays: Arrays) -> Any:
    """The type that noise for these arrays is drawn in: single precision where all of them are."""
    return np.float32 if all(values.dtype == np.float32 for values in arrays.values()) else np.float64


def gaussian(like: Arrays, spread: float, rng: np.random.Generator) -> NDArray[Any]:
    """Noise for all entries of some arrays, in one vector."""
    noise: NDArray[Any] = rng.standard_normal(sum(values.size for values in like.values()), dtype=precision_of(like))
    noise *= noise.dtype.type(spread)
    return noise


def laplace(like: Arrays, spread: float, rng: np.random.Generator) -> NDArray[Any]:
    """The same of another shape, in double precision."""
    return rng.laplace(scale=spread, size=sum(values.size for values in like.values())) if spread else \
        np.zeros(sum(values.size for values in like.values()))


def plus_noise(arrays: Arrays, noise: NDArray[Any], spread: float, factor: float = 1.0) -> Arrays:
    """Every entry times a factor, plus its noise, on a grid. The vector of noise is used up."""
    start = 0
    for values in arrays.values():
        flat, part = values.reshape(-1), noise[start:start + values.size]
        np.add(part, flat if factor == 1 else flat * noise.dtype.type(factor), out=part, casting="same_kind")
        start += values.size
    if spread:
        to_grid(noise, grid_of(spread))
    return _cut(noise, arrays)


def to_grid(values: NDArray[Any], step: float) -> None:
    """Round to multiples of a power of two, in place."""
    values *= values.dtype.type(1 / step)
    np.rint(values, out=values)
    values *= values.dtype.type(step)


def _cut(vector: NDArray[Any], like: Arrays) -> Arrays:
    parts, start = {}, 0
    for name, values in like.items():
        kind = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        parts[name] = vector[start:start + values.size].reshape(values.shape).astype(kind, copy=False)
        start += values.size
    return parts
