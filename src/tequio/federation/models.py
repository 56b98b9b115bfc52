"""Arithmetic on models (named arrays). Sums are taken in 64 bits, in the order given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError, PayloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.learners.learner import Arrays

_STRETCH = 32_768


def difference(after: Arrays, before: Arrays) -> Arrays:
    """after - before: an update."""
    return {name: after[name] - before[name] for name in before}


def take_off(before: Arrays, after: Arrays) -> Arrays:
    """The same in the memory of `after`, which may be several models one upon another: nobody else may need it."""
    for name, values in before.items():
        np.subtract(after[name], values, out=after[name])
    return after


def shifted(model: Arrays, update: Arrays, scale: float = 1.0) -> Arrays:
    """model + scale * update, in the model's own types."""
    return {name: (values + scale * update[name].astype(np.float64)).astype(values.dtype)
            for name, values in model.items()}


def zeros(model: Arrays) -> Arrays:
    """A model of zeros of the same shapes."""
    return {name: np.zeros_like(values) for name, values in model.items()}


def mixed(first: Arrays, second: Arrays, share: float) -> Arrays:
    """(1 - share) * first + share * second."""
    return shifted(first, difference(second, first), share) if share < 1 else second


def weighted_mean(models: Sequence[Arrays], weights: NDArray[Any] | Sequence[float]) -> Arrays:
    """Sum of weight * model over the sum of weights, name by name."""
    total_weight = np.sum(weights, dtype=np.float64)
    if not total_weight > 0:
        raise DataError(f"the weights of {len(models)} updates sum to {total_weight}, so they have no weighted mean")
    shares = np.asarray(weights, dtype=np.float64) / total_weight
    return {name: _weighted_sum([model[name] for model in models], shares) for name in models[0]}


def _weighted_sum(arrays: Sequence[NDArray[Any]], shares: NDArray[np.float64]) -> NDArray[Any]:
    """Stretch by stretch, so that what is being summed stays in the cache."""
    first, flat = arrays[0], [values.reshape(-1) for values in arrays]
    total = np.empty(first.size, first.dtype if first.dtype.kind == "f" else np.float64)
    for start in range(0, first.size, _STRETCH):
        stretch = slice(start, min(start + _STRETCH, first.size))
        summed = np.zeros(stretch.stop - start)
        part = np.empty_like(summed)
        for values, share in zip(flat, shares, strict=True):
            part[...] = values[stretch]
            part *= share
            summed += part
        total[stretch] = summed
    return total.reshape(first.shape)


def squared_norm(model: Arrays) -> float:
    """Sum of squares of all entries."""
    return float(sum(np.vdot(values.astype(np.float64), values.astype(np.float64)) for values in model.values()))


def flatten(model: Arrays) -> NDArray[np.float64]:
    """All entries in one vector, in name order of the model."""
    return np.concatenate([values.reshape(-1).astype(np.float64) for values in model.values()])


def unflatten(vector: NDArray[Any], like: Arrays) -> Arrays:
    """A vector cut back into named arrays."""
    parts, start = {}, 0
    for name, values in like.items():
        parts[name] = vector[start:start + values.size].reshape(values.shape).astype(values.dtype)
        start += values.size
    return parts


def shapes_of(model: Arrays) -> dict[str, Any]:
    """The shape of each array by name; none for what is no array."""
    return {name: getattr(values, "shape", None) for name, values in model.items()}


def check_shapes(update: Arrays, model: Arrays, whose: str) -> None:
    """Refuse an update that does not fit the model."""
    if not isinstance(update, dict):
        raise PayloadError(f"{whose} sent an update that does not fit the model: {type(update).__name__} instead of "
                           "named arrays")
    expected, found = shapes_of(model), shapes_of(update)
    if expected != found:
        wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise PayloadError(f"{whose} sent an update that does not fit the model at '{wrong[0]}': "
                           f"{found.get(wrong[0])} instead of {expected.get(wrong[0])}")
