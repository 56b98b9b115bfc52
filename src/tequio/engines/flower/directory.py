"""Which party is behind which node: a name counts while one node claims it, and never while two do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tequio.engines.network.hub import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tequio.engines.network.hub import Hub, Note
    from tequio.engines.network.wire import Hello


FIRST_LOOK = 60.0


@dataclass(eq=False)
class _Claim:
    number: int
    link: Link
    connected: bool = False


@dataclass(eq=False)
class NodeDirectory:
    """Nodes that were asked who they are, and the names that they gave.

    Before anybody is let in, all nodes of the first look have to answer, so that a run does not begin with whichever of
    two claimants was quicker; one that stays silent is not waited for longer than `FIRST_LOOK` seconds.
    """

    hub: Hub
    note: Note
    send: Callable[[int, Iterable[bytes]], None]
    _silent: set[int] = field(default_factory=set)
    _claims: dict[int, _Claim] = field(default_factory=dict)
    _open_at: float | None = None
    _opened: bool = False

    def expect(self, number: int) -> None:
        """A node was asked who it is."""
        self._silent.add(number)

    def claim(self, number: int, hello: Hello) -> None:
        """A node says which party it is."""
        self._silent.discard(number)
        self.hub.trouble.pop(_called(number), None)
        self._claims[number] = _Claim(number, Link(hello, lambda frames: self.send(number, frames), lambda: None))

    def reject(self, number: int, cause: str) -> None:
        """A node answers, but not as a party."""
        self._silent.discard(number)
        self.hub.trouble[_called(number)] = f"{_called(number)} is no party of tequio: {cause}"

    def leave(self, number: int) -> None:
        """A node is gone."""
        self._silent.discard(number)
        self.hub.trouble.pop(_called(number), None)
        claim = self._claims.pop(number, None)
        if claim is not None:
            self.hub.trouble.pop(claim.link.hello.name, None)
            self._disconnect(claim)

    def link(self, number: int) -> Link | None:
        """The link of a node whose claim is accepted."""
        claim = self._claims.get(number)
        return claim.link if claim is not None and claim.connected else None

    def settle(self, now: float) -> None:
        """Let in those whose name nobody else claims, and send away those that are two."""
        if not self._opened and not self._is_complete(now):
            return
        self._opened = True
        names: dict[str, list[_Claim]] = {}
        for claim in self._claims.values():
            names.setdefault(claim.link.hello.name, []).append(claim)
        for name, claims in names.items():
            self._settle_name(name, claims)

    def _is_complete(self, now: float) -> bool:
        if not self._claims and not self._silent:
            return False
        self._open_at = now + FIRST_LOOK if self._open_at is None else self._open_at
        return not self._silent or now >= self._open_at

    def _settle_name(self, name: str, claims: list[_Claim]) -> None:
        held = any(claim.connected for claim in claims)
        if len(claims) == 1:
            self.hub.trouble.pop(name, None)
            if not held:
                claims[0].connected = True
                self.note("connected", party=name, node=str(claims[0].number), version=claims[0].link.hello.version)
                self.hub.connect(claims[0].link)
            return
        if name not in self.hub.trouble:
            both = " and ".join(_called(claim.number) for claim in claims)
            self.hub.trouble[name] = f"{both} both say that they are party '{name}'"
            self.note("claim refused", party=name, cause=self.hub.trouble[name])
        if held and not self.hub.engaged(name):  # a run that is under way keeps the node that it began with
            for claim in claims:
                self._disconnect(claim)

    def _disconnect(self, claim: _Claim) -> None:
        if claim.connected:
            claim.connected = False
            self.note("disconnected", party=claim.link.hello.name, node=str(claim.number))
            self.hub.disconnect(claim.link)


def _called(number: int) -> str:
    return f"SuperNode {number}"
