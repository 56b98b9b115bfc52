"""Stages: things done to an update on its way (clip, noise, compress, mask, encrypt, attack)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies


@runtime_checkable
class Stage(Protocol):
    """Has a half that runs at the party, after the task, and one that runs at the coordinator, before aggregation.

    A stage may also have `enter(party)`, which runs at the party before the task, and `now()`, which gives the stage as
    it stands at the moment of an ask, for stages that learn from round to round.
    """

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: change what is about to leave."""
        ...

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: undo or complete what the parties' halves did."""
        ...


def as_of_now(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages as they stand at this moment; most never change."""
    return tuple(stage.now() if hasattr(stage, "now") else stage for stage in stages)
