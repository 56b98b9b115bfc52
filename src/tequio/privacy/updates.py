"""Updates on their way through stages: as one vector, encoded by a stage, or held at their party until they are summed.

Compressing stages encode an update and decode it again; a party whose reply cannot be decoded has failed. Stages that
hide updates hold them at their parties and let only their shapes cross.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.errors import ConfigError, DataError, PayloadError, PermissionDenied, TequioError
from tequio.federation.exchange import Failure
from tequio.federation.fixed_point import LARGEST_DIGITS as LARGEST_EXTRA_COUNT
from tequio.federation.fixed_point import digits_of
from tequio.federation.stages import BUFFERS, COUNTED, SUMS, vectors_in
from tequio.learners.descent import is_finite

if TYPE_CHECKING:
    from collections.abc import Callable

    from tequio.federation.exchange import Replies
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.stages import Layout
    from tequio.learners.learner import Arrays

PROTOCOL_TASKS = frozenset({
    "joint.commit", "joint.reveal", "joint.learn",
    "secure-sum.keys", "secure-sum.shares", "secure-sum.boxes", "secure-sum.masked", "secure-sum.witness",
    "secure-sum.open",
    "one-shot-sum.offer", "one-shot-sum.send", "one-shot-sum.check", "one-shot-sum.agree", "one-shot-sum.open",
    "verified.prove", "verified.check", "attested.challenge", "attested.check",
    "group-sum.hand-over",
})
"""Tasks that stages need besides the algorithm's own.

They carry no update of themselves: what a party releases in them it has held since a task whose reply passed all stages
of the run, or is a key, a share or a proof.
"""

JOINT = frozenset({"secure-sum", "one-shot-sum"})
"""Stages whose parties sign what they send by the keys of the run's roster, and make randomness together."""

Numbers = NDArray[np.floating]


class OfRound(TypedDict, total=False):
    """What is of use in one round only."""

    round: int


class Held(OfRound, total=False):
    """Updates that a party keeps until they are summed, small whole numbers that are summed with them, and how many
    rows are behind them."""

    vectors: dict[str, Numbers]
    extra_counts: dict[str, NDArray[np.int64]]
    rows: int


class NoiseShare(OfRound, total=False):
    """Of how many parties shares of noise have to add up, where this one has added its share."""

    enough: int


class OwnShares(OfRound, total=False):
    """What a party's updates of a round were multiplied with, where it weighs itself."""

    shares: dict[str, float]


class HeldSums(OfRound, total=False):
    """How many sums over rows a party has held in a round. Each has a name of its own, and is added up once."""

    count: int


class Residuals(TypedDict, total=False):
    """What compression has left out so far, by stage and array, to be added to the next update."""

    left: dict[str, Numbers]


LARGEST_MODEL = 1 << 31
"""More numbers than this are no model, whatever a reply claims."""

_KINDS = {"<f2", "<f4", "<f8"}


def sent(payload: Payload, encode: Callable[[str, Payload], Payload], mark: str) -> Payload:
    """The payload with every update in it encoded; those that an earlier stage has encoded count as updates too.

    Batch-norm statistics and other buffers go as they are: they are few, and a wrong variance ruins a model.
    """
    names = {*vectors_in(payload), *(name for name, value in payload.items() if is_encoded(value))} - {BUFFERS}
    # A code would hide values that are not finite, and what is left out of it would stay in the party's state for good.
    for name in names:
        if not is_finite(split(payload[name])[0].values()):
            raise DataError(f"'{name}' has values that are not finite", remedy="lower local.learning_rate")
    return {name: {"by": mark, **encode(name, value)} if name in names else value for name, value in payload.items()}


def is_encoded(value: object) -> bool:
    """Whether a stage made this of an update."""
    return isinstance(value, dict) and isinstance(value.get("by"), str)


def split(value: Payload) -> tuple[Arrays, Payload]:
    """The arrays of floats in an update, and whatever an earlier stage put beside them."""
    arrays = {name: item for name, item in value.items() if isinstance(item, np.ndarray) and item.dtype.kind == "f"}
    return arrays, {name: item for name, item in value.items() if name not in arrays}


ALWAYS_ALLOWED = 1 << 20
"""An update may have this many numbers, however short the model is that it was made from."""


def received(replies: Replies, decode: Callable[[Payload], Payload], mark: str,
             claimed: Callable[[Payload], int] | None = None) -> Replies:
    """The replies with every update decoded; a party whose reply cannot be read back has failed.

    `claimed` says how many numbers an encoded update is said to have. They are bounded before anything is decoded, by
    the length of what the party was sent, in which a number took two bytes or more.
    """
    answers, failures = [], list(replies.failures)
    for reply in replies:
        most = max(reply.bytes_down, ALWAYS_ALLOWED)
        try:
            encoded = {name: value for name, value in reply.payload.items()
                       if is_encoded(value) and value["by"] == mark}
            size = sum(map(claimed or _numbers_laid_out, encoded.values()))
            if size > most:
                raise PayloadError(f"an update claims to have {size} numbers, but the model sent allows {most}")
            found = {name: decode(value) for name, value in encoded.items()}
            if not all(is_finite(split(value)[0].values()) for value in found.values()):
                raise PayloadError("its reply has values that are not finite")
            answers.append(replace(reply, payload={**reply.payload, **found}))
        except TequioError as cause:
            failures.append(Failure(reply.party, cause.message, cause.remedy))
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as cause:
            failures.append(Failure(reply.party, f"its update cannot be decompressed: {cause!r}"))
    return replace(replies, answers=tuple(answers), failures=tuple(failures))


def _numbers_laid_out(content: Payload) -> int:
    return numbers_of(content["layout"])


def as_vector(update: Arrays) -> NDArray[np.float32]:
    """All entries in one vector, in the order of the names."""
    return np.concatenate([values.reshape(-1).astype(np.float32, copy=False) for values in update.values()])


def as_one(arrays: Arrays) -> Numbers:
    """All entries in one vector, in single precision where the update is."""
    if all(values.dtype.itemsize <= 4 for values in arrays.values()):
        return as_vector(arrays)
    return np.concatenate([values.reshape(-1).astype(np.float64) for values in arrays.values()])


def layout_of(update: Arrays) -> Layout:
    """How to cut the update's vector again."""
    return [(name, values.dtype.newbyteorder("<").str, list(values.shape)) for name, values in update.items()]


def numbers_of(layout: Layout) -> int:
    """How many numbers a layout holds."""
    count = sum(prod(_whole(length) for length in shape) for _, _, shape in layout)
    if count > LARGEST_MODEL:
        raise PayloadError(f"an update claims to have {count} numbers")
    return count


def cut_again(vector: Numbers, layout: Layout) -> Arrays:
    """The named arrays back from a vector."""
    if numbers_of(layout) != len(vector):
        raise PayloadError(f"an update of {len(vector)} numbers does not have the shapes that it claims")
    parts, start = {}, 0
    for name, kind, shape in layout:
        if kind not in _KINDS:
            raise PayloadError(f"an update claims to be of type {kind!r}")
        length = prod(shape)
        parts[str(name)] = vector[start:start + length].reshape(shape).astype(np.dtype(kind))
        start += length
    return parts


def with_residual(party: Party, key: str, vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vector with what the party could not send before; nothing is added where the model has changed its size."""
    left = party.recall(Residuals).get("left", {}).get(key)
    return vector if left is None or len(left) != len(vector) else (vector + left).astype(np.float32, copy=False)


def keep_residual(party: Party, key: str, left: Numbers) -> None:
    """What the party could not send this time."""
    party.keep(Residuals, {"left": {**party.recall(Residuals).get("left", {}), key: left}})


def _whole(length: object) -> int:
    if not isinstance(length, int) or length < 0:
        raise PayloadError(f"an update claims to have a side of {length!r}")
    return length


def forget_older(party: Party, *kinds: type[OfRound]) -> None:
    """Drop what was left of earlier rounds, in which the party did not get to the end."""
    every: tuple[type[OfRound], ...] = (Held, *kinds)
    for kind in every:
        if party.recall(kind).get("round", party.round) != party.round:
            party.forget(kind)


def hold(party: Party, payload: Payload, mark: str) -> Payload:
    """Keep every update of a payload, or its sums over rows, at the party; only its shapes leave."""
    if SUMS in payload:
        return _hold_sums(party, payload, mark)
    names = [*vectors_in(payload), *(name for name, value in payload.items() if is_encoded(value))]
    _refuse_others(payload, names, mark)
    parts = {name: split(payload[name]) for name in names}
    party.forget(Held)
    party.keep(Held, {"round": party.round, "vectors": {name: as_one(arrays) for name, (arrays, _) in parts.items()}})
    shown = {**payload, **{name: {"by": mark, "layout": layout_of(arrays), "rest": rest}
                           for name, (arrays, rest) in parts.items()}}
    counted = shown.pop(COUNTED, {})
    return with_extra_counts(party, shown, dict.fromkeys(names, np.array(list(counted.values())))) if counted else shown


def _hold_sums(party: Party, payload: Payload, mark: str) -> Payload:
    """Sums over rows are held as whole numbers, which are added as they are and know no weights."""
    _refuse_others(payload, [SUMS], mark)
    arrays: Arrays = payload[SUMS]
    before = party.recall(HeldSums)
    number = before.get("count", 0) + 1 if before.get("round") == party.round else 1
    name, nothing = f"{SUMS} {number}", np.zeros(0, dtype=np.float32)
    party.forget(Held)
    party.keep(HeldSums, {"round": party.round, "count": number})
    party.keep(Held, {"round": party.round, "vectors": {name: nothing}})
    digits = [digits_of(values, party.roster.parties) for values in arrays.values()]
    shown = {**payload, SUMS: {"by": mark, "name": name, "layout": layout_of(arrays)}}
    party.keep(Held, {"extra_counts": {name: np.concatenate([np.zeros(0, dtype=np.int64), *digits])}})
    return shown


def with_extra_counts(party: Party, payload: Payload, counts: dict[str, NDArray[np.int64]]) -> Payload:
    """Held updates carry extra counts: small whole numbers that are summed as they are. How many there are is shown."""
    party.keep(Held, {"extra_counts": counts})
    return {**payload, **{name: {**payload[name], "extra_counts": len(extra)} for name, extra in counts.items()}}


def held(party: Party, name: str) -> Numbers:
    """The update that the party holds under a name."""
    kept = party.recall(Held)
    if kept.get("round") != party.round or name not in kept["vectors"]:
        raise PermissionDenied(f"party '{party.name}' holds no update '{name}' of this round: it has been summed "
                               "before, or was never made", remedy="each update is summed once")
    return kept["vectors"][name]


def shares_of_noise(party: Party) -> int:
    """Of how many parties the shares of noise on the held updates have to add up; 0 where there are none."""
    noise = party.recall(NoiseShare)
    return noise["enough"] if noise.get("round") == party.round else 0


def extra_counts(party: Party, name: str, parties: int) -> NDArray[np.int64]:
    """The extra counts that another stage put beside an update; their sum over all parties must not overflow."""
    counts = party.recall(Held).get("extra_counts", {}).get(name, np.empty(0, dtype=np.int64))
    if counts.size and int(np.abs(counts).max()) * parties >= LARGEST_EXTRA_COUNT:
        raise DataError(f"extra counts of up to {np.abs(counts).max()} are too large for a sum of {parties} parties")
    return counts


def let_go(party: Party, name: str) -> None:
    """An update is summed once: a second sum with other parties would give it away by their difference."""
    left = {other: vector for other, vector in party.recall(Held)["vectors"].items() if other != name}
    if left:
        party.keep(Held, {"vectors": left})
    else:
        party.forget(Held)


def _refuse_others(payload: Payload, names: list[str], mark: str) -> None:
    if not names:
        raise ConfigError(f"the stage '{mark}' found no update in what this task sends",
                          remedy="use it with an algorithm that averages updates, such as 'fedavg'")
    open_ = [name for name, value in payload.items() if name not in names and _has_arrays(value)]
    if open_:
        raise DataError(f"'{open_[0]}' would cross in the open beside updates that the stage '{mark}' hides",
                        remedy="use another algorithm, or leave the stage out")


def _has_arrays(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return True
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(_has_arrays(part) for part in parts)
