"""A plugin for tests of faults: a stage at which a party says that it came there, and waits while it is told to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tequio.federation.stages import Stage, StageSpec
from tequio.registry import register


@register("stage", "test gate")
@dataclass(frozen=True)
class Gate(Stage):
    """Waits before a reply leaves, while a file says so.

    Parameters:
        folder: where the files are
    """

    folder: str

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec()

    def send(self, party, payload):
        place = Path(self.folder)
        (place / f"reached-{party.index}-{party.round}").touch()
        while (place / f"hold-{party.index}-{party.round}").exists():
            time.sleep(0.01)
        return payload
