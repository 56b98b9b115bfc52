"""A party that is killed (SIGKILL) at a point of its work, and what is found in its folder by the one that follows.

Run as `python -m adversaries.killed FOLDER`: each party lives in a process of its own, forked from one that has loaded
what it needs.
Prints, by point, what the next party did.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adversaries.hostile import LOGISTIC, Coordinator, Refused, stage, training
from tequio.engines.network import files, journal, telemetry
from tequio.engines.network.telemetry import verify
from tequio.federation import payload as payloads
from tequio.gate.policy import Budget, Policy
from tequio.privacy import dataset_ledger, growing_file

if TYPE_CHECKING:
    from collections.abc import Callable

NOISE = stage("local-dp", clip=1.0, noise=20.0)
FACTS: dict[str, Any] = {"stages": [{"name": "local-dp", "clip": 1.0, "noise": 20.0}],
                         "components": [LOGISTIC, training(), NOISE]}


class Os:
    """The module `os` for one other module, in which writing or renaming is where the party is killed."""

    def __init__(self, write: bool) -> None:
        self._write = write

    def __getattr__(self, name: str) -> Any:
        if name == ("write" if self._write else "replace"):
            return self._half if self._write else die
        return getattr(os, name)

    def _half(self, descriptor: int, line: bytes) -> None:
        os.write(descriptor, line[:len(line) // 2])
        die()


def die(*_: Any, **__: Any) -> None:
    """As `kill -9` does it: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def after(owner: Any, name: str) -> None:
    """Die as soon as that method has done its work."""
    done = getattr(owner, name)
    setattr(owner, name, lambda *given, **more: (done(*given, **more), die()))


POINTS: dict[str, Callable[[], None]] = {
    "never": lambda: None,
    "in the middle of a line of the ledger": lambda: setattr(growing_file, "os", Os(write=True)),
    "once it was charged": lambda: after(dataset_ledger.DatasetLedger, "charge"),
    "once the reply was made": lambda: setattr(journal.Journal, "add", die),
    "before the journal has its place": lambda: setattr(files, "os", Os(write=False)),
    "before the reply left": lambda: after(journal.Journal, "add"),
    "in the middle of a line of the audit log": lambda: setattr(telemetry, "os", Os(write=True))}


def main(folder: Path) -> None:
    """Kill a party at each point, and let another go on in its folder."""
    os.environ["TEQUIO_STATE"] = str(folder / "loaded")
    train(begun(folder / "loaded" / "south"))
    for point, fault in POINTS.items():
        place = folder / point.replace(" ", "_") / "south"
        os.environ["TEQUIO_STATE"] = str(place.parent)
        if (first := os.fork()) == 0:
            party = begun(place)
            fault()
            train(party)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        if (second := os.fork()) == 0:
            print(json.dumps({"point": point, "ended": ended, **found_by(begun(place))}), flush=True)
            os._exit(0)
        assert os.waitpid(second, 0)[1] == 0


def begun(place: Path) -> Coordinator:
    """A party that takes part in the run."""
    party = Coordinator(place, Policy(budget=Budget(4.0, 1e-5), tell_rows="hundreds"))
    party.announce(**FACTS)
    return party


def train(party: Coordinator, round: int = 1) -> Any:
    """The same request each time that it is the first one."""
    return party.train(stages=[NOISE], round=round)


def found_by(party: Coordinator) -> dict[str, Any]:
    """What was paid for when the party started, and when it has answered the same again, and then another request."""
    paid, replies = [releases(party)], []
    for round in (1, 2):
        reply = train(party, round)
        assert not isinstance(reply, Refused), reply
        replies.append(sha256(payloads.encode(reply)).hexdigest())
        paid.append(releases(party))
    names = [path.name for path in party.folder.rglob("*") if path.is_file()]
    return {"paid": paid, "replies": replies, "audited": verify(party.folder / "audit.jsonl"),
            "lost": [entry["event"] for entry in party.noted].count("entry lost"),
            "records": sorted(name for name in names if name.startswith("task-"))}


def releases(party: Coordinator) -> int:
    """How many releases the ledger of the rows has."""
    return sum(entry.releases for ledger in party.site._home.ledgers() for entry in ledger.entries())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
