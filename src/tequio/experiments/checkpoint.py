"""Checkpoints: all that a run needs to go on, in one file that is read whole or not at all.

    tequio-checkpoint 1 <sha256 of the rest> <bytes of the rest>\\n | payload
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tequio.errors import PayloadError, RunError
from tequio.experiments.store import CHECKPOINT, write_whole
from tequio.federation import payload
from tequio.federation.algorithm import State

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.federation.payload import Payload

_WORD = b"tequio-checkpoint 1"
# At most one part in this many of the run's time is spent on checkpoints.
_COST_SHARE = 30


@dataclass(frozen=True)
class Checkpoint:
    """The situation after a round. `kept` says how long the journals were then."""

    round: int
    state: State
    parties: dict[int, Payload]
    facts: dict[str, Any]
    kept: dict[str, int] = field(default_factory=dict)


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Replace the folder's checkpoint."""
    body = payload.encode({
        "round": checkpoint.round, "model": checkpoint.state.model, "memory": dict(checkpoint.state.memory),
        "parties": {str(party): state for party, state in sorted(checkpoint.parties.items())},
        "facts": checkpoint.facts, "kept": checkpoint.kept})
    header = b"%s %s %d\n" % (_WORD, hashlib.sha256(body).hexdigest().encode(), len(body))
    write_whole(folder / CHECKPOINT, header + body)


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The folder's checkpoint; nothing where none was written yet."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    header, _, body = path.read_bytes().partition(b"\n")
    if header != b"%s %s %d" % (_WORD, hashlib.sha256(body).hexdigest().encode(), len(body)):
        raise RunError(f"the checkpoint '{path}' is damaged or of another version", remedy="start the run anew")
    try:
        content = payload.decode(body)
    except PayloadError as cause:
        raise RunError(f"the checkpoint '{path}' cannot be read: {cause}", remedy="start the run anew") from cause
    parties = {int(party): state for party, state in content["parties"].items()}
    return Checkpoint(content["round"], State(content["model"], content["memory"]), parties, content["facts"],
                      content["kept"])


class Pace:
    """When the next checkpoint is due: every so many rounds, or (0) as often as costs a few per cent of the time."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._cost = 0.0
        self._last = time.perf_counter()

    def due(self, round: int) -> bool:
        """Whether a checkpoint should follow this round."""
        if self._every:
            return round % self._every == 0
        return time.perf_counter() - self._last >= _COST_SHARE * self._cost

    def took(self, seconds: float) -> None:
        """Note what a checkpoint cost."""
        self._cost, self._last = seconds, time.perf_counter()
