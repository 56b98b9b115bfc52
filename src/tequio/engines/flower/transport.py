"""Requests to Flower nodes and their replies: what the engine needs, and how Flower's messages carry it.

Frames are arrays of bytes in a record, which Flower cuts, stores and sends. Frames that several parties receive are the
same bytes, and Flower stores what has the same hash once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tequio.engines.network.wire import Begin, Chunk, End, TaskRequest, from_coordinator
from tequio.errors import EngineError, MissingExtra, PayloadError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from types import ModuleType

    from tequio.engines.network.wire import FromCoordinator


@dataclass(frozen=True, eq=False)
class NodeRequest:
    """Frames for one node, and the message that they carry; one that only asks who is there has none."""

    frames: list[bytes] = field(default_factory=list)
    message: FromCoordinator | None = None

    @property
    def run(self) -> str:
        """The run that it is about."""
        return self.message.run if isinstance(self.message, Begin | TaskRequest | End) else ""


@dataclass(frozen=True)
class NodeReply:
    """What came back for a request: frames, or an error. `away` says that the node was not there to answer."""

    request: str
    frames: list[bytes] = field(default_factory=list)
    error: str = ""
    away: bool = False


class Transport(Protocol):
    """Carries requests to nodes. Each is answered at most once."""

    def nodes(self) -> set[int]:
        """The nodes that can be reached now."""
        ...

    def send(self, node: int, request: NodeRequest) -> str:
        """Send a request on its way; the id under which its reply will come."""
        ...

    def fetch(self, requests: Collection[str]) -> list[NodeReply]:
        """The replies that have arrived, each of them once."""
        ...


def split_requests(frames: Iterable[bytes]) -> list[NodeRequest]:
    """Frames as a link would carry them, one request for each message with the pieces that belong to it."""
    requests: list[NodeRequest] = []
    held: list[bytes] = []
    for data in frames:
        held.append(data)
        message, _ = from_coordinator(data)
        if not isinstance(message, Chunk):
            requests.append(NodeRequest(held, message))
            held = []
    return requests


FlowerObject = Any
"""A grid, a message or a record of Flower, which is only there where the extra is installed."""

KIND = "query"
TELEMETRY = "FLWR_TELEMETRY_ENABLED"
_RECORD = "tequio"
_FORM = "tequio.frame"
_A_WEEK = 7 * 24 * 3600.0


def require_flower() -> ModuleType:
    """The package `flwr.app`, or an error that says how to get it."""
    try:
        import flwr.app
    except ImportError:
        raise MissingExtra("flwr", "flower", "the flower engine") from None
    module: ModuleType = flwr.app
    return module


def refuse_telemetry() -> None:
    """Flower reports every start of an app to its makers unless that is switched off; here it has to be."""
    if os.environ.get(TELEMETRY) != "0":
        raise EngineError("Flower's telemetry is on, and nobody else is to hear about these runs",
                          remedy=f"start the SuperLink and the SuperNodes with {TELEMETRY}=0 in their environment")


def to_record(frames: Sequence[bytes]) -> FlowerObject:
    """Frames as the content of a message. Flower is never asked to look into them."""
    app = require_flower()
    arrays = {f"{index:08d}": app.Array("uint8", (len(data),), _FORM, data) for index, data in enumerate(frames)}
    return app.RecordDict({_RECORD: app.ArrayRecord(arrays)})


def from_record(content: FlowerObject) -> list[bytes]:
    """The frames in a message's content."""
    try:
        record = content[_RECORD]
        return [record[key].data for key in sorted(record)]
    except (AttributeError, KeyError, TypeError):
        raise PayloadError("a message of Flower does not hold what tequio puts there") from None


class GridTransport:
    """The transport of a Flower app. With a deadline, tasks that have run out of time are not done."""

    def __init__(self, grid: FlowerObject, deadline: float = 0.0) -> None:
        self._grid, self._seconds, self._app = grid, deadline or _A_WEEK, require_flower()

    def nodes(self) -> set[int]:
        """The SuperNodes that are online."""
        return set(self._grid.get_node_ids())

    def send(self, node: int, request: NodeRequest) -> str:
        """Push a message."""
        task = request.message if isinstance(request.message, TaskRequest) else None
        message = self._app.Message(to_record(request.frames), dst_node_id=node, message_type=KIND,
                                    ttl=_A_WEEK if task is None else self._seconds,
                                    group_id="" if task is None else str(task.round))
        pushed = [name for name in self._grid.push_messages([message]) if name]
        if not pushed:
            raise EngineError(f"the SuperLink did not take a message for SuperNode {node}",
                              remedy="see the SuperLink's log")
        return str(pushed[0])

    def fetch(self, requests: Collection[str]) -> list[NodeReply]:
        """Pull replies."""
        return [self._decode(reply) for reply in self._grid.pull_messages(list(requests))]

    def _decode(self, reply: FlowerObject) -> NodeReply:
        from flwr.common.constant import ErrorCode

        request = reply.metadata.reply_to_message_id
        if reply.has_error():
            gone = reply.error.code == ErrorCode.NODE_UNAVAILABLE
            return NodeReply(request, error=str(reply.error.reason or f"error {reply.error.code}"), away=gone)
        try:
            return NodeReply(request, from_record(reply.content))
        except PayloadError as cause:
            return NodeReply(request, error=cause.message)
