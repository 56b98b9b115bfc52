"""The decisions of the party's people: one file per run, with what was asked, what it costs, and what was decided."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.engines.network.files import is_plain_name, private_folder, write_private
from tequio.errors import ConfigError, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tequio.engines.network.files import Document
    from tequio.gate.announcement import Announcement


MOST_WAITING, MOST_WAITING_BYTES = 100, 16 << 20
"""As many runs of a coordinator may wait for a person, and as large they may be together."""

_DECIDE = "let the party's owner decide about them: tequio party runs, or forget them: tequio party clean"


@dataclass(frozen=True)
class Approvals:
    """What people decided about runs. A decision is about an announcement by its hash, and about no other. All of them
    are of one coordinator: a party's folder has no other."""

    folder: Path

    def verdict(self, run: str, announcement: Announcement, tasks: Sequence[Document] = (),
                epsilon: float | None = None) -> str:
        """Why the run still has to wait; empty if it was approved. One that was denied is refused.

        A run that comes back as something else is asked about again, with what was decided about before beside it.
        `epsilon` is what all its rounds would cost, where that is known.
        """
        path = self._path(run)
        known = json.loads(path.read_bytes()) if path.exists() else {}
        if known.get("hash") != announcement.hash:
            before = known.get("asked") if known.get("decision") == "approved" else known.get("before")
            known = {"hash": announcement.hash, "asked": announcement.asked, "decision": "", "before": before,
                     "tasks": list(tasks), "epsilon": epsilon}
            content = json.dumps(known).encode()  # indented, what is nested deeply would be far longer
            self._refuse_more(path, len(content))
            write_private(path, content)
        if known.get("decision") == "denied":
            raise PermissionDenied("a person at the party denied this run", remedy="talk to the party's owner")
        return "" if known.get("decision") == "approved" else "a person at the party has to approve the run"

    def decide(self, run: str, *, approved: bool) -> None:
        """Note what a person decided."""
        path = self._path(run)
        if not path.exists():
            raise ConfigError(f"no run '{run}' waits for approval", remedy="see: tequio party runs")
        known = json.loads(path.read_bytes())
        write_private(path, json.dumps({**known, "decision": "approved" if approved else "denied"}).encode())

    def all(self) -> dict[str, Document]:
        """What was asked and decided so far, by run."""
        return {path.stem: json.loads(path.read_bytes())
                for path in sorted(private_folder(self.folder).glob("*.json"))}

    def _refuse_more(self, path: Path, length: int) -> None:
        """Keep what waits for a person to as much as a person may read, and to little of the disk."""
        waiting = [other for other in self.folder.glob("*.json")
                   if other != path and not json.loads(other.read_bytes()).get("decision")]
        if len(waiting) >= MOST_WAITING:
            raise PermissionDenied(f"{MOST_WAITING} runs wait for a person at the party already", remedy=_DECIDE)
        if length + sum(other.stat().st_size for other in waiting) > MOST_WAITING_BYTES:
            raise PermissionDenied(f"the runs that wait for a person at the party would take more than "
                                   f"{MOST_WAITING_BYTES >> 20} MB", remedy=_DECIDE)

    def _path(self, run: str) -> Path:
        if not is_plain_name(run):
            raise ConfigError(f"a run cannot be called {run[:80]!r}", remedy="see: tequio party runs")
        return private_folder(self.folder) / f"{run}.json"
