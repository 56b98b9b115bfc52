"""What the compressing stages share: updates as one vector, error feedback, and replies that cannot be read back."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import PayloadError, TequioError
from tequio.federation.exchange import Failure
from tequio.federation.stages import vectors_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.learner import Arrays

LARGEST_MODEL = 1 << 31
"""More numbers than this are no model, whatever a reply claims."""

_KINDS = {"<f2", "<f4", "<f8"}


def sent(payload: Payload, encode: Callable[[str, Payload], Payload], mark: str) -> Payload:
    """The payload with every update in it encoded; those that an earlier stage has encoded count as updates too."""
    names = {*vectors_in(payload), *(name for name, value in payload.items() if is_encoded(value))}
    return {name: {"by": mark, **encode(name, value)} if name in names else value for name, value in payload.items()}


def is_encoded(value: Any) -> bool:
    """Whether a stage made this of an update."""
    return isinstance(value, dict) and isinstance(value.get("by"), str)


def split(value: Payload) -> tuple[Arrays, Payload]:
    """The arrays of floats in an update, and whatever an earlier stage put beside them."""
    arrays = {name: item for name, item in value.items() if isinstance(item, np.ndarray) and item.dtype.kind == "f"}
    return arrays, {name: item for name, item in value.items() if name not in arrays}


def received(replies: Replies, decode: Callable[[Payload], Payload], mark: str) -> Replies:
    """The replies with every update decoded; a party whose reply cannot be read back has failed."""
    answers, failures = [], list(replies.failures)
    for reply in replies:
        try:
            content = {name: decode(value) if is_encoded(value) and value["by"] == mark else value
                       for name, value in reply.payload.items()}
            answers.append(replace(reply, payload=content))
        except TequioError as cause:
            failures.append(Failure(reply.party, cause.message, cause.remedy))
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as cause:
            failures.append(Failure(reply.party, f"its update cannot be decompressed: {cause!r}"))
    return replace(replies, answers=tuple(answers), failures=tuple(failures))


def as_vector(update: Arrays) -> NDArray[np.float32]:
    """All entries in one vector, in the order of the names."""
    return np.concatenate([values.reshape(-1).astype(np.float32, copy=False) for values in update.values()])


def layout_of(update: Arrays) -> list[list[Any]]:
    """Names, types and shapes: all that is needed to cut the vector again."""
    return [[name, values.dtype.newbyteorder("<").str, list(values.shape)] for name, values in update.items()]


def numbers_of(layout: list[list[Any]]) -> int:
    """How many numbers a layout holds."""
    count = sum(prod(_whole(length) for length in shape) for _, _, shape in layout)
    if count > LARGEST_MODEL:
        raise PayloadError(f"an update claims to have {count} numbers")
    return count


def cut_again(vector: NDArray[Any], layout: list[list[Any]]) -> Arrays:
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
    left = party.state.get(key)
    return vector if left is None or len(left) != len(vector) else vector + left


def _whole(length: Any) -> int:
    if not isinstance(length, int) or length < 0:
        raise PayloadError(f"an update claims to have a side of {length!r}")
    return length
