"""Stages: things done to an update on its way (clip, noise, compress, mask, encrypt, attack)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies


@runtime_checkable
class Stage(Protocol):
    """Has a half that runs at the party, after the task, and one that runs at the coordinator, before aggregation.

    A stage may also have `enter(party)`, which runs at the party before the task.
    """

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: change what is about to leave."""
        ...

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: undo or complete what the parties' halves did."""
        ...
