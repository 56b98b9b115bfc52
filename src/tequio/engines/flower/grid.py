"""Letters as messages of Flower: frames are arrays of bytes in a record, which Flower cuts, stores and sends.

Frames that several parties receive are the same bytes, and Flower stores what has the same hash once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tequio.engines.flower.post import Answer, Letter
from tequio.engines.network.wire import Work
from tequio.errors import EngineError, MissingExtra, PayloadError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

KIND = "query"
TELEMETRY = "FLWR_TELEMETRY_ENABLED"
_RECORD = "tequio"
_FORM = "tequio.frame"
_A_WEEK = 7 * 24 * 3600.0


def require_flower() -> Any:
    """The package `flwr.app`, or an error that says how to get it."""
    try:
        import flwr.app
    except ImportError:
        raise MissingExtra("flwr", "flower", "the flower engine") from None
    return flwr.app


def refuse_telemetry() -> None:
    """Flower tells its makers of every start of an app unless it is told not to; here it has to be told."""
    if os.environ.get(TELEMETRY) != "0":
        raise EngineError("Flower's telemetry is on, and nobody else is to hear about these runs",
                          remedy=f"start the SuperLink and the SuperNodes with {TELEMETRY}=0 in their environment")


def to_record(frames: Sequence[bytes]) -> Any:
    """Frames as the content of a message. Flower is never asked to look into them."""
    app = require_flower()
    arrays = {f"{place:08d}": app.Array("uint8", (len(data),), _FORM, data) for place, data in enumerate(frames)}
    return app.RecordDict({_RECORD: app.ArrayRecord(arrays)})


def from_record(content: Any) -> list[bytes]:
    """The frames in a message's content."""
    try:
        record = content[_RECORD]
        return [record[key].data for key in sorted(record)]
    except (AttributeError, KeyError, TypeError):
        raise PayloadError("a message of Flower does not hold what tequio puts there") from None


class GridPost:
    """The post of a Flower app. With a deadline, what nobody waits for any more is not done."""

    def __init__(self, grid: Any, deadline: float = 0.0) -> None:
        self._grid, self._seconds, self._app = grid, deadline or _A_WEEK, require_flower()

    def nodes(self) -> set[int]:
        """The SuperNodes that are online."""
        return set(self._grid.get_node_ids())

    def send(self, node: int, letter: Letter) -> str:
        """Push a message."""
        work = letter.message if isinstance(letter.message, Work) else None
        message = self._app.Message(to_record(letter.frames), dst_node_id=node, message_type=KIND,
                                    ttl=_A_WEEK if work is None else self._seconds,
                                    group_id="" if work is None else str(work.round))
        pushed = [name for name in self._grid.push_messages([message]) if name]
        if not pushed:
            raise EngineError(f"the SuperLink did not take a message for SuperNode {node}",
                              remedy="see the SuperLink's log")
        return str(pushed[0])

    def fetch(self, letters: Collection[str]) -> list[Answer]:
        """Pull replies."""
        return [self._answer(reply) for reply in self._grid.pull_messages(list(letters))]

    def _answer(self, reply: Any) -> Answer:
        from flwr.common.constant import ErrorCode

        letter = reply.metadata.reply_to_message_id
        if reply.has_error():
            gone = reply.error.code == ErrorCode.NODE_UNAVAILABLE
            return Answer(letter, error=str(reply.error.reason or f"error {reply.error.code}"), away=gone)
        try:
            return Answer(letter, from_record(reply.content))
        except PayloadError as cause:
            return Answer(letter, error=cause.message)
