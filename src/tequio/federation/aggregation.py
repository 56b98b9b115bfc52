"""Arithmetic on models (named arrays), and aggregators, which turn the updates of a cohort into one.

Sums are taken in 64 bits, in the order given. Updates that may not enter an aggregate are screened first: of the wrong
shape, absurdly long, or sent before. Values that are not finite are refused earlier, for every kind of reply.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf, sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tequio.errors import DataError, PayloadError, TequioError
from tequio.registry import contract, register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays


_STRETCH = 32_768
_ABSURD = 1e6


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
    for name, values in model.items():
        if values.dtype.kind == "f" and update[name].dtype.kind != "f":
            raise PayloadError(f"{whose} sent an update that does not fit the model at '{name}': {update[name].dtype} "
                               "instead of floats")


def sha256_of(model: Payload) -> str:
    """Over the sorted names, types, shapes and bytes of all that a model holds."""
    digest = hashlib.sha256()
    for name, value in sorted(leaves(model).items()):
        if isinstance(value, np.ndarray):
            digest.update(f"{name}\0{value.dtype.str}\0{list(value.shape)}\0".encode())
            digest.update(np.asarray(value, order="C").tobytes())
        else:
            digest.update(f"{name}\0{json.dumps(value, sort_keys=True)}\0".encode())
    return digest.hexdigest()


def leaves(value: object, path: str = "") -> dict[str, object]:
    """What a nested model holds at its ends, by names joined with '/'."""
    if isinstance(value, list | tuple):
        value = {str(index): item for index, item in enumerate(value)}
    if not isinstance(value, dict):
        return {path: value.item() if isinstance(value, np.generic) else value}
    return {name: leaf for key, item in value.items()
            for name, leaf in leaves(item, f"{path}/{key}" if path else str(key)).items()}


SUMMED = -1
"""Stands for the parties whose updates are known by their sum only."""


@dataclass(frozen=True)
class Updates:
    """What a cohort sent: one update a party, in party order, and how much each should weigh.

    `root` is the coordinator's own update on its own rows, for aggregators that have `coordinator_rows`.
    """

    parties: NDArray[np.int64]
    arrays: Sequence[Arrays]
    weights: NDArray[np.float64]
    root: Arrays | None = None

    def __len__(self) -> int:
        return len(self.arrays)

    def matrix(self) -> NDArray[np.float64]:
        """One row a party, for aggregators that compare updates with each other."""
        return np.stack([flatten(update) for update in self.arrays])

    def part(self, positions: NDArray[Any]) -> Updates:
        """The updates at some positions."""
        return Updates(self.parties[positions], [self.arrays[index] for index in positions], self.weights[positions],
                       self.root)


@dataclass(frozen=True)
class Combined:
    """The aggregate, what the aggregator remembers for the next round, and notes for the record (trust scores).

    `updates` is what it was made of, filled in by `averaging.aggregate` for whoever judges the parties afterwards.
    """

    update: Arrays
    memory: Payload = field(default_factory=dict)
    notes: Payload = field(default_factory=dict)
    updates: Updates | None = None


@contract("aggregator")
class Aggregator(ABC):
    """Turns updates into one."""

    linear: ClassVar[bool] = False
    """Whether aggregating groups first and then the groups gives the same."""

    @property
    def coordinator_rows(self) -> int:
        """How many rows of the coordinator's own it needs, to compare updates with what they make of the model."""
        return 0

    @abstractmethod
    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """The aggregate of at least one update."""


@register("aggregator", "mean", paper="McMahan et al., 2017")
@dataclass(frozen=True)
class Mean(Aggregator):
    """The weighted mean of the updates.

    Parameters:
        variance: what becomes of the running variances of batch normalisation: their mean as well, or the variance of
            all parties' rows together (pooled), to which the distances between the parties' running means add
    """

    linear: ClassVar[bool] = True

    variance: Literal["mean", "pooled"] = "mean"

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """Sum of weight times update over the sum of weights."""
        mean = weighted_mean(updates.arrays, updates.weights)
        return Combined(mean if self.variance == "mean" else {**mean, **_pooled(mean, updates)})


def _pooled(mean: Arrays, updates: Updates) -> Arrays:
    """Variances of all rows: the mean variance, and the variance of the means; changes of means have the same one."""
    shares = updates.weights / updates.weights.sum()
    means = {name: name.removesuffix(RUNNING_VARIANCE) + "running_mean" for name in mean
             if name.endswith(RUNNING_VARIANCE)}
    apart = {name: np.square([update[own] - mean[own] for update in updates.arrays], dtype=np.float64)
             for name, own in means.items()}
    return {name: (mean[name] + np.tensordot(shares, squares, 1)).astype(mean[name].dtype)
            for name, squares in apart.items()}


RUNNING_VARIANCE = "running_var"
"""How names of running variances end; those of the running means beside them end in `running_mean`."""


SEEN = "updates seen"
"""Under this name an aggregator's memory also holds the fingerprints of all updates so far."""

_FINGERPRINT_BYTES = 16


def screened(federation: Federation, model: Arrays, replies: Replies, name: str, weights: NDArray[Any],
             memory: Payload) -> tuple[Updates, Payload]:
    """The sound updates, and what to remember; unsound ones count as failures of their parties."""
    rules = federation.rules
    faults = {place: cause for place, reply in enumerate(replies)
              if (cause := _misfit(federation, model, reply.party, reply.payload.get(name)))}
    sound = [place for place in range(len(replies)) if place not in faults]
    updates = {place: replies[place].payload[name] for place in sound}
    faults |= _beyond_measure(updates, model)
    if rules.largest_update:
        faults |= _too_long(updates, rules.largest_update)
    remembered: Payload = {}
    if rules.replays == "refuse":
        seen: NDArray[np.uint8] = memory.get(SEEN, np.empty((0, _FINGERPRINT_BYTES), dtype=np.uint8))
        prints = {place: _fingerprint(update) for place, update in updates.items()}
        known = {row.tobytes() for row in seen}
        faults |= {place: "its update was sent before" for place, print_ in prints.items() if print_ in known}
        remembered[SEEN] = _with(seen, {print_ for print_ in prints.values() if print_} - known)
    if faults:
        federation.refuse(replies, {replies[place].party: cause for place, cause in sorted(faults.items())})
    kept = [place for place in sound if place not in faults]
    return Updates(replies.parties[kept], [updates[place] for place in kept], weights[kept]), remembered


def _misfit(federation: Federation, model: Arrays, party: int, update: Any) -> str:
    try:
        check_shapes(update, model, f"party '{federation.name(party)}'" if party >= 0 else "nobody")
    except TequioError as cause:
        return cause.message
    return ""


def _beyond_measure(updates: dict[int, Arrays], model: Arrays) -> dict[int, str]:
    """Updates that would leave nothing of the model: a million times as long as the others', and longer than the model.

    An honest party does not get there, and no other rule would be asked: the next training would fail everywhere.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norms, own = {place: _norm(update) for place, update in updates.items()}, _norm(model)
    usual = sorted(norm for norm in norms.values() if norm)
    bound = max(_ABSURD * usual[(len(usual) - 1) // 2], 1.0 + own) if usual else 0.0
    return {place: f"its update has a norm of {norm:.3g}, and one of {bound:.3g} would do away with the model"
            for place, norm in norms.items() if norm > bound or norm == inf}


def _norm(arrays: Arrays) -> float:
    """In the arrays' own precision, where squares of entries that have none are infinite."""
    flat = [values.reshape(-1) if values.dtype.itemsize > 2 else values.reshape(-1).astype(np.float64)
            for values in arrays.values()]
    return sqrt(sum(float(np.vdot(values, values)) for values in flat))


def _too_long(updates: dict[int, Arrays], factor: float) -> dict[int, str]:
    """Updates longer than so many times the median of the cohort."""
    norms = {place: squared_norm(update) ** 0.5 for place, update in updates.items()}
    bound = factor * float(np.median(list(norms.values()))) if norms else 0.0
    return {place: f"its update has a norm of {norm:.3g}, and {bound:.3g} is the largest allowed in this round"
            for place, norm in norms.items() if norm > bound}


def _fingerprint(update: Arrays) -> bytes:
    """Of the values; nothing for an update of noughts, which says nothing twice."""
    if not any(values.any() for values in update.values()):
        return b""
    digest = blake2b(digest_size=_FINGERPRINT_BYTES)
    for values in update.values():
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.digest()


def _with(seen: NDArray[np.uint8], new: set[bytes]) -> NDArray[np.uint8]:
    rows = np.frombuffer(b"".join(sorted(new)), dtype=np.uint8).reshape(-1, _FINGERPRINT_BYTES)
    return np.concatenate([seen, rows])
