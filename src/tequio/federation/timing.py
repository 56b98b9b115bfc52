"""One ask on the virtual clock: who can answer in time, and who did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.federation import payload as payloads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.federation.clock import Clock, Departure
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies


@dataclass(frozen=True)
class TimedAsk:
    """An ask under way: `working` are the parties that are worth running, as the others cannot answer in time."""

    clock: Clock
    departure: Departure
    present: NDArray[np.int64]
    working: NDArray[np.int64]

    @classmethod
    def begin(cls, clock: Clock, round: int, order: NDArray[np.int64], present: NDArray[np.int64], payload: Payload,
              each: Mapping[int, Payload] | None, settings: Mapping[str, Any]) -> TimedAsk:
        """Send the payload out. What is sent to one party only is sent at the pace of the largest."""
        own = max((payloads.size(extra) for extra in each.values()), default=0) if each else 0
        rows = clock.rows(order, settings.get("local"))
        departure = clock.depart(order, round, payloads.size(payload) + own, rows)
        return cls(clock, departure, present, clock.hopeful(departure, present))

    def end(self, replies: Replies) -> Replies:
        """The replies that came in time; the clock moves on."""
        parties = self.departure.parties
        size = {reply.party: reply.bytes_up for reply in replies}
        # A party that could not be in time would have sent as much as the others.
        usual = float(np.median(list(size.values()))) if size else self.departure.bytes_down
        bytes_up = np.array([size.get(int(party), usual) for party in parties], dtype=np.float64)
        late = self.clock.too_slow(self.departure, self.present)
        arrival = self.clock.arrive(self.departure, bytes_up, np.isin(parties, list(size)) | late)
        in_time = set(arrival.parties[arrival.answered].tolist())
        missed = np.sort(arrival.parties[arrival.late])
        vanished = np.setdiff1d(self.present, np.concatenate([parties[late], self.working]))
        return replace(replies, answers=tuple(reply for reply in replies if reply.party in in_time),
                       dropped=tuple(sorted({*replies.dropped, *vanished.tolist()})),
                       late=tuple(int(party) for party in missed))
