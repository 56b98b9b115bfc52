"""What an engine carries: orders to parties, outcomes back. The contract is small enough to fake in ten lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.federation.payload import Payload
    from tequio.federation.population import Population


@dataclass(frozen=True)
class Order:
    """Ask some parties to run one task. `settings` and `stages` are plain data; `each` holds per-party payloads."""

    ticket: int
    task: str
    parties: tuple[int, ...]
    round: int
    payload: Payload
    settings: Mapping[str, Any] = field(default_factory=dict)
    stages: tuple[Mapping[str, Any], ...] = ()
    each: tuple[Payload, ...] | None = None


@dataclass(frozen=True)
class Reply:
    """One party's answer, with what crossed to get it. `bytes_*` are the exact lengths of the encoded payloads."""

    party: int
    payload: Payload
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Failure:
    """One party could not answer: what went wrong there, and (for --debug) where in its code."""

    party: int
    cause: str
    remedy: str = ""
    trace: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of an order: replies and failures, each in party order.

    `columns` hold the payloads of the replies column by column where they lie in memory so, to be looked at in one go.
    """

    ticket: int
    replies: tuple[Reply, ...] = ()
    failures: tuple[Failure, ...] = ()
    columns: Payload | None = None


@dataclass(frozen=True)
class Announcement:
    """What parties that judge for themselves are told of a run before it begins. `facts` are plain data.

    `run` is the name under which they keep what they need to resume it.
    """

    run: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Announcing(Protocol):
    """An engine whose parties are not ours: they hear of a run before it is opened, and when it is over."""

    def announce(self, announcement: Announcement) -> None:
        """Remember what to tell them."""
        ...

    def finish(self) -> None:
        """The run came to its end and will not be resumed."""
        ...


class Engine(Protocol):
    """Carries orders to parties. `submit` may return before the work is done; `collect` waits for the next outcome."""

    def open(self, population: Population) -> None:
        """Get ready to reach these parties."""
        ...

    def submit(self, order: Order) -> None:
        """Send an order on its way."""
        ...

    def collect(self) -> Outcome:
        """The next outcome to arrive, in any order."""
        ...

    def states(self) -> dict[int, Payload]:
        """Private states of the parties this engine keeps, for a checkpoint on the same machine."""
        ...

    def restore(self, states: dict[int, Payload]) -> None:
        """Put states of a checkpoint back."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
