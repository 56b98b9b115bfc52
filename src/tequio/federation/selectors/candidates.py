"""What the selectors that look at time share: drawing candidates, asking what they have, and giving up in good time."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, QuorumError
from tequio.federation import payload as payloads
from tequio.federation.scheduling import Candidates
from tequio.federation.selection import Choice
from tequio.federation.task import task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.federation.clock import Clock
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.federation.selection import Turn

MOST_EMPTY_ROUNDS = 20


def clock_of(turn: Turn, selector: str) -> Clock:
    """The clock, without which selectors of this family cannot choose."""
    if turn.federation.clock is None:
        raise ConfigError(f"the selector '{selector}' looks at the parties' times, and this run has no virtual clock",
                          remedy="add a [devices] table, such as: devices = \"mobile\"")
    return turn.federation.clock


def draw(turn: Turn, count: int, fraction: float) -> NDArray[np.int64]:
    """Some eligible parties at random, in random order: a number of them, or a fraction, rounded up."""
    wanted = count or ceil(fraction * (len(turn.federation.eligible())))
    return turn.rng.choice(turn.eligible, size=min(wanted, len(turn.eligible)), replace=False)


def expected(turn: Turn, clock: Clock, parties: NDArray[np.int64]) -> Candidates:
    """The candidates' expected times in this round, for the model as it is now."""
    local = turn.parts.local if turn.parts is not None else None
    return Candidates.of(parties, clock.resources(parties, turn.federation.round),
                         payloads.size({"model": turn.model}), clock.rows(parties, local))


@task("report classes")
def report_classes(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """How many training rows of each class the party has, how large a row is, and whether it would hand rows over."""
    rows = party.data.train
    target = rows.schema.target
    if target.kind != "classes":
        raise ConfigError("the classes of these rows cannot be counted: the target is not one class a row",
                          remedy="choose a selector that does not look at classes, such as 'fedcs'")
    features = rows.source.features
    return {"classes": np.bincount(rows.target, minlength=target.size),
            "row_bytes": int(np.prod(features.shape[1:])) * features.dtype.itemsize + rows.target.dtype.itemsize,
            "shares": bool(party.settings.get("share_rows"))}


def ask_classes(turn: Turn, parties: NDArray[np.int64]) -> Replies:
    """Ask candidates for their classes; that takes no virtual time, as the sources have it."""
    return turn.federation.off_the_clock().ask(parties, report_classes)


def chosen(turn: Turn, selector: str, candidates: Candidates, places: NDArray[np.int64], deadline: float,
           **memory: Any) -> Choice:
    """The choice, with the deadline on the record; nobody in many rounds on end is an error that says why."""
    clock, empty = clock_of(turn, selector), 0
    clock.notes["deadline"] = deadline
    if not len(places):
        empty = int(turn.memory.get("empty", 0)) + 1
        needed = candidates.training + candidates.upload + candidates.download
        fastest = float(needed.min()) if len(needed) else float("inf")
        why = f"the fastest of {len(needed)} candidates needs {fastest:.1f} s and the deadline is {deadline:.1f} s"
        turn.federation.record("warning", {"message": f"the selector '{selector}' chose nobody in round "
                                                      f"{turn.federation.round}: {why}"})
        if empty >= MOST_EMPTY_ROUNDS:
            raise QuorumError(f"the selector '{selector}' chose nobody in {empty} rounds in a row: {why}",
                              remedy="raise selector.deadline, ask more candidates, or use a smaller model")
    return Choice(candidates.parties[places], {**memory, "empty": empty})
