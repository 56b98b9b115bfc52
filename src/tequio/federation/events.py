"""The event queue: what is under way at the parties, by the virtual moment at which it arrives."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload


@dataclass(frozen=True, order=True)
class Event:
    """One party's work arriving. `version` is the round whose model it started from; lost work arrives empty-handed."""

    seconds: float
    ticket: int
    party: int
    version: int
    lost: bool = False


@dataclass
class EventQueue:
    """Events in order of time, then of departure. It is plain data, so a checkpoint can hold it."""

    tickets: int = 0
    _heap: list[Event] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, seconds: float, party: int, version: int, *, lost: bool = False) -> None:
        """Put work on its way."""
        self.tickets += 1
        heapq.heappush(self._heap, Event(float(seconds), self.tickets, int(party), version, lost))

    def next(self) -> Event:
        """Take the earliest event out."""
        return heapq.heappop(self._heap)

    def next_seconds(self) -> float:
        """When the earliest event happens; never, if none is under way."""
        return self._heap[0].seconds if self._heap else float("inf")

    def busy(self) -> NDArray[np.int64]:
        """The parties at work, sorted."""
        return np.unique(np.array([event.party for event in self._heap], dtype=np.int64))

    def to_plain(self) -> Payload:
        """For the state of an algorithm."""
        events = sorted(self._heap)
        return {"tickets": self.tickets, "seconds": np.array([event.seconds for event in events], dtype=np.float64),
                "ticket": np.array([event.ticket for event in events], dtype=np.int64),
                "party": np.array([event.party for event in events], dtype=np.int64),
                "version": np.array([event.version for event in events], dtype=np.int64),
                "lost": np.array([event.lost for event in events], dtype=bool)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> EventQueue:
        """Back from a state."""
        columns = (plain[name].tolist() for name in ("seconds", "ticket", "party", "version", "lost"))
        return cls(plain["tickets"], [Event(*values) for values in zip(*columns, strict=True)])
