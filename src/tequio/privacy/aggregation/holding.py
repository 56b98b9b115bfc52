"""Updates that stay at their parties until somebody may learn their sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, DataError, PermissionDenied
from tequio.federation.stages import COUNTED, vectors_in
from tequio.privacy.compression.carrying import as_vector, is_encoded, layout_of, split

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays

HELD = "held updates"
LARGEST_RIDERS = 1 << 30


def forget_older(party: Party, *names: str) -> None:
    """Drop what was left of earlier rounds, in which the party did not get to the end."""
    for name in (HELD, *names):
        kept = party.state.get(name)
        if kept and kept["round"] != party.round:
            del party.state[name]


def hold(party: Party, payload: Payload, mark: str) -> Payload:
    """Keep every update of a payload at the party; only its shapes leave."""
    names = [*vectors_in(payload), *(name for name, value in payload.items() if is_encoded(value))]
    _refuse_others(payload, names, mark)
    parts = {name: split(payload[name]) for name in names}
    party.state[HELD] = {"round": party.round, "vectors": {name: as_one(arrays) for name, (arrays, _) in parts.items()}}
    told = {**payload, **{name: {"by": mark, "layout": layout_of(arrays), "rest": rest}
                          for name, (arrays, rest) in parts.items()}}
    counted = told.pop(COUNTED, {})
    return with_riders(party, told, dict.fromkeys(names, np.array(list(counted.values())))) if counted else told


def with_riders(party: Party, payload: Payload, riders: dict[str, NDArray[np.int64]]) -> Payload:
    """Small whole numbers ride along with held updates, to be summed as they are; how many is told."""
    party.state[HELD] = {**party.state[HELD], "riders": riders}
    return {**payload, **{name: {**payload[name], "riders": len(beside)} for name, beside in riders.items()}}


def held(party: Party, name: str) -> NDArray[Any]:
    """The update that the party holds under a name."""
    kept = party.state.get(HELD, {"round": -1, "vectors": {}})
    if kept["round"] != party.round or name not in kept["vectors"]:
        raise PermissionDenied(f"party '{party.name}' holds no update '{name}' of this round: it has been summed "
                               "before, or was never made", remedy="each update is summed once")
    vector: NDArray[Any] = kept["vectors"][name]
    return vector


def riders(party: Party, name: str, parties: int) -> NDArray[np.int64]:
    """Small whole numbers that another stage put beside an update, to be summed with it; they must not overflow."""
    beside: NDArray[np.int64] = party.state[HELD].get("riders", {}).get(name, np.empty(0, dtype=np.int64))
    if beside.size and int(np.abs(beside).max()) * parties >= LARGEST_RIDERS:
        raise DataError(f"sums of {parties} parties have no room for what rides along with the updates")
    return beside


def let_go(party: Party, name: str) -> None:
    """An update is summed once: a second sum with other parties would give it away by their difference."""
    kept = party.state[HELD]
    left = {other: vector for other, vector in kept["vectors"].items() if other != name}
    party.state[HELD] = {**kept, "vectors": left}
    if not left:
        del party.state[HELD]


def as_one(arrays: Arrays) -> NDArray[Any]:
    """All entries in one vector, in single precision where the update is."""
    if all(values.dtype.itemsize <= 4 for values in arrays.values()):
        return as_vector(arrays)
    return np.concatenate([values.reshape(-1).astype(np.float64) for values in arrays.values()])


def _refuse_others(payload: Payload, names: list[str], mark: str) -> None:
    if not names:
        raise ConfigError(f"the stage '{mark}' found no update in what this task sends",
                          remedy="use it with an algorithm that averages updates, such as 'fedavg'")
    open_ = [name for name, value in payload.items() if name not in names and _has_arrays(value)]
    if open_:
        raise DataError(f"'{open_[0]}' would cross in the open beside updates that the stage '{mark}' hides",
                        remedy="use another algorithm, or leave the stage out")


def _has_arrays(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return True
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(_has_arrays(part) for part in parts)
