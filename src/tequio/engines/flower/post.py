"""What the engine needs of a federation that carries letters: who is there, sending, and fetching answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tequio.engines.network.wire import Chunk, from_coordinator

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tequio.engines.network.wire import FromCoordinator


@dataclass(frozen=True, eq=False)
class Letter:
    """Frames for one node, and the message that they are there for; a roll call is empty and has none."""

    frames: list[bytes] = field(default_factory=list)
    message: FromCoordinator | None = None

    @property
    def run(self) -> str:
        """The run that it is about."""
        return getattr(self.message, "run", "")


@dataclass(frozen=True)
class Answer:
    """What came back for a letter: frames, or an error. `away` says that the node was not there to answer."""

    letter: str
    frames: list[bytes] = field(default_factory=list)
    error: str = ""
    away: bool = False


class Post(Protocol):
    """A federation's mail. Each letter is answered at most once."""

    def nodes(self) -> set[int]:
        """Who can be written to now."""
        ...

    def send(self, node: int, letter: Letter) -> str:
        """Send a letter on its way; the name under which its answer will come."""
        ...

    def fetch(self, letters: Collection[str]) -> list[Answer]:
        """The answers that have arrived, each of them once."""
        ...


def sorted_out(frames: Iterable[bytes]) -> list[Letter]:
    """Frames as a link would carry them, one letter for each message with the pieces that belong to it."""
    letters: list[Letter] = []
    held: list[bytes] = []
    for data in frames:
        held.append(data)
        message, _ = from_coordinator(data)
        if not isinstance(message, Chunk):
            letters.append(Letter(held, message))
            held = []
    return letters
