"""Runs that wait for a person: one file a run, which says what the run is and what was decided."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tequio.engines.network.files import is_plain_name, private_folder, write_private
from tequio.errors import ConfigError, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TOLD = ("algorithm", "learner", "stages", "rounds", "parties", "name")


@dataclass(frozen=True)
class Approvals:
    """The decisions of the party's people."""

    folder: Path

    def verdict(self, run: str, facts: Mapping[str, Any]) -> str:
        """Why the run still has to wait; empty if it was approved. One that was denied is refused."""
        path = self._path(run)
        asked = {key: facts.get(key) for key in _TOLD}
        known = json.loads(path.read_bytes()) if path.exists() else {}
        # What was approved is this description: a run that comes back as something else is asked about again.
        if known.get("asked") != json.loads(json.dumps(asked, default=str)):
            write_private(path, json.dumps({"asked": asked, "decision": ""}, indent=1, default=str).encode())
            known = {}
        if known.get("decision") == "denied":
            raise PermissionDenied("a person at the party denied this run", remedy="talk to the party's owner")
        return "" if known.get("decision") == "approved" else "a person at the party has to approve the run"

    def decide(self, run: str, *, approved: bool) -> None:
        """Note what a person decided."""
        path = self._path(run)
        if not path.exists():
            raise ConfigError(f"no run '{run}' waits for approval", remedy="see: tequio party runs")
        known = json.loads(path.read_bytes())
        write_private(path, json.dumps({**known, "decision": "approved" if approved else "denied"}, indent=1).encode())

    def all(self) -> dict[str, dict[str, Any]]:
        """What was asked and decided so far, by run."""
        return {path.stem: json.loads(path.read_bytes())
                for path in sorted(private_folder(self.folder).glob("*.json"))}

    def _path(self, run: str) -> Path:
        if not is_plain_name(run):
            raise ConfigError(f"a run cannot be called {run[:80]!r}", remedy="see: tequio party runs")
        return private_folder(self.folder) / f"{run}.json"
