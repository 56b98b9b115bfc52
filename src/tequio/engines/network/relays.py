"""The coordinator's side of an aggregator: its parties appear in the hub as if they had dialled in themselves."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from tequio.engines.network.hub import Link
from tequio.engines.network.wire import (
    Chunk,
    Drop,
    Hello,
    Left,
    Members,
    Merged,
    Relayed,
    Renew,
    TaskFailed,
    TaskResult,
    frame,
    from_coordinator,
    from_party,
)
from tequio.errors import PayloadError
from tequio.federation import payload as payloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tequio.engines.network.enrolment import RenewingCoordinator
    from tequio.engines.network.homes import CoordinatorHome
    from tequio.engines.network.hub import Hub
    from tequio.engines.network.telemetry import Allowance, Telemetry
    from tequio.engines.network.wire import Assembly, FromParty

_KEPT, _KEPT_BYTES = 4, 1 << 31
REMARKS, REMARKS_PER_SECOND = 1000, 20.0
"""Messages of one party that answer no task, such as that it takes part in a run: at once, and in the long run."""
MERGED = payloads.encode({"merged": True})
"""The reply of a party whose result is in that of another one of its group."""


class Relay:
    """All that comes through one aggregator's link."""

    def __init__(self, home: CoordinatorHome, hub: Hub, telemetry: Telemetry, link: Link,
                 renewing: RenewingCoordinator, remarks: Allowance) -> None:
        self._home, self._hub, self._telemetry, self._link = home, hub, telemetry, link
        self._renewing, self._remarks = renewing, remarks
        self._carrier = Carrier()
        self._parties: dict[str, Link] = {}

    @property
    def name(self) -> str:
        """What the aggregator is called."""
        return self._link.hello.name

    @property
    def names(self) -> list[str]:
        """The parties that are there through it."""
        return sorted(self._parties)

    def tell_members(self) -> None:
        """Say whom it may let in."""
        self._link.send([frame(Members(self._home.members(self.name)))])

    def take(self, message: FromParty, body: memoryview, assembly: Assembly) -> None:
        """Something that it said itself, or that it says for one of its parties."""
        if isinstance(message, Relayed):
            self._relayed(message, body, assembly)
        elif isinstance(message, Renew):
            self._renewing.answer(self._link, message)
        elif isinstance(message, Merged):
            self._merged(message, assembly.parts([message.part], body)[0])
        else:
            raise PayloadError(f"a message '{type(message).__name__}' has no place in an aggregator's link")

    def close(self) -> None:
        """Another link of the same aggregator takes its place."""
        self._link.close()

    def _relayed(self, message: Relayed, body: memoryview, assembly: Assembly) -> None:
        inner, rest = from_party(bytes(body))
        parts = assembly.parts([inner.part] if isinstance(inner, TaskResult) else [], rest)
        answers = isinstance(inner, TaskResult | TaskFailed | Left)
        if not answers and not self._remarks.spend(message.name):
            # The other parties of the aggregator need its link, so that this message is dropped and not the link.
            self._telemetry.note("unexpected message", party=message.name, via=self.name, message="too many")
            return
        link = self._parties.get(message.name)
        if isinstance(inner, Hello):
            self._greeted(message.name, inner)
        elif link is None or isinstance(inner, Chunk | Relayed | Merged):
            self._telemetry.note("unexpected message", party=message.name, via=self.name, message=type(inner).__name__)
        elif isinstance(inner, Renew):
            self._renewing.answer(link, inner)
            self.tell_members()
        elif isinstance(inner, Left):
            self._hub.disconnect(self._parties.pop(message.name))
        else:
            self._hub.receive(link, inner, parts)

    def _merged(self, message: Merged, content: bytes | memoryview) -> None:
        """One result for several parties: it is given to the first that is still waited for."""
        left: bytes | memoryview = content
        for name, position, digest in message.answers:
            link = self._parties.get(name)
            result = TaskResult(message.run, position, digest, message.seconds, (0, 0))
            if link is not None and self._hub.receive(link, result, [left]):
                left = MERGED

    def end(self) -> None:
        """The aggregator is gone, and with it the way to its parties."""
        for link in self._parties.values():
            self._hub.lose_way(link)
        self._parties.clear()

    def _greeted(self, name: str, hello: Hello) -> None:
        if name != hello.name or hello.aggregator:
            raise PayloadError(f"the aggregator '{self.name}' says that '{name[:80]}' is '{hello.name[:80]}'")
        if not self._home.is_member(name, self.name):  # it may have been sent away a moment ago
            self._telemetry.note("link refused", party=name, via=self.name, cause="it does not dial this aggregator")
            self._telemetry.count("refusals", kind="link")
            return
        self._home.confirm(name)
        link = Link(hello, self._sender(name), lambda: None, relayed=True)
        self._parties[name] = link
        self._telemetry.note("connected", party=name, via=self.name, version=hello.version)
        self._hub.connect(link)
        self._renewing.remind(link)

    def _sender(self, name: str) -> Callable[[Iterable[bytes]], None]:
        return lambda frames: self._link.send(self._carrier.wrapped(name, frames))


class Carrier:
    """Wraps messages for an aggregator; a long part that many of its parties receive is sent there once."""

    def __init__(self) -> None:
        self._there: OrderedDict[int, int] = OrderedDict()

    def wrapped(self, name: str, frames: Iterable[bytes]) -> Iterator[bytes]:
        """Messages for one party of the group; the pieces of long parts go as they are, or not at all."""
        sending, needed = set[int](), set[int]()
        for data in frames:
            message, _ = from_coordinator(data)
            if not isinstance(message, Chunk):
                yield frame(Relayed(name), data)
                continue
            transfer = message.transfer
            if transfer in self._there and transfer not in sending:
                self._there.move_to_end(transfer)
            elif transfer not in sending:
                yield from self._make_room(message.total, needed)
                self._there[transfer] = message.total
                sending.add(transfer)
            needed.add(transfer)
            if transfer in sending:
                yield data

    def _make_room(self, size: int, needed: set[int]) -> Iterator[bytes]:
        """Let the aggregator drop what was not needed for the longest time."""
        for transfer in [transfer for transfer in self._there if transfer not in needed]:
            if len(self._there) < _KEPT and sum(self._there.values()) + size <= _KEPT_BYTES:
                return
            del self._there[transfer]
            yield frame(Drop(transfer))
