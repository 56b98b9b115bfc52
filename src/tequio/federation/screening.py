"""Updates that may not enter an aggregate: of the wrong shape, absurdly long, or sent before.

Values that are not finite are refused earlier, for every kind of reply.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import TequioError
from tequio.federation.aggregation import Updates
from tequio.federation.models import check_shapes, squared_norm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.learner import Arrays

SEEN = "updates seen"
"""Under this name an aggregator's memory also holds the fingerprints of all updates so far."""

_FINGERPRINT_BYTES = 16


def screened(federation: Federation, model: Arrays, replies: Replies, name: str, weights: NDArray[Any],
             memory: Payload) -> tuple[Updates, Payload]:
    """The sound updates, and what to remember; unsound ones count as failures of their parties."""
    rules = federation.rules
    faults = {place: fault for place, reply in enumerate(replies)
              if (fault := _misfit(federation, model, reply.party, reply.payload.get(name)))}
    sound = [place for place in range(len(replies)) if place not in faults]
    updates = {place: replies[place].payload[name] for place in sound}
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
        check_shapes(update, model, f"party '{federation.name(party)}'")
    except TequioError as cause:
        return cause.message
    return ""


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
