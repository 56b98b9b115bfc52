"""Running what a study's table still lacks. A finished run is never run again; a stopped one goes on where it was."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.errors import TequioError
from tequio.experiments.api import run_with_baselines
from tequio.experiments.recording import ignore
from tequio.experiments.results import Result, is_finished
from tequio.experiments.store import BASELINES, SUMMARY, explained

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.experiments.recording import Listener
    from tequio.experiments.studies.plans import Plan, PlannedRun

_SHORT = 8


@dataclass(frozen=True)
class Store:
    """Where the runs of a study lie: one folder each, its name ending in seed and start of the config's hash."""

    folder: Path

    def finished(self, planned: PlannedRun) -> Result | None:
        """The stored run with this config, if it came to its end."""
        for place in self._places(planned):
            if (place / SUMMARY).is_file():
                summary = json.loads((place / SUMMARY).read_text(encoding="utf-8"))
                beside = all(is_finished(place / BASELINES / name) for name in planned.config.baselines)
                if summary["config_hash"] == planned.hash and beside:
                    return Result(place)
        return None

    def place_for(self, planned: PlannedRun) -> Path:
        """The folder to run in: that of a run that was stopped half-way, or before its baselines, else a new one."""
        unfinished = self._places(planned)
        place = unfinished[0] if unfinished else self.folder / f"{planned.run}-{planned.seed}-{planned.hash[:_SHORT]}"
        with explained(place):
            place.mkdir(parents=True, exist_ok=True)
        return place

    def _places(self, planned: PlannedRun) -> list[Path]:
        return sorted(self.folder.glob(f"*-{planned.seed}-{planned.hash[:_SHORT]}"))


def store_of(plan: Plan, out: Path) -> Store:
    """Where a study's runs lie under the folder of all runs."""
    return Store(out / (plan.study.store or plan.study.name))


def run_missing(plan: Plan, store: Store, *, pattern: str = "*", listen: Listener = ignore) -> dict[str, str]:
    """Make the runs behind the cells whose name fits; why some could not be made, by hash.

    One run that fails does not keep the others from being made. The listener hears `cell` before each run.
    """
    wanted, problems = plan.wanted(pattern), {}
    for number, planned in enumerate(wanted, start=1):
        done = store.finished(planned) is not None
        listen("cell", {"number": number, "cells": len(wanted), "label": f"{planned.run}, seed {planned.seed}",
                        "finished": done})
        if done:
            continue
        try:
            run_with_baselines(planned.config, folder=store.place_for(planned), listen=listen)
        except TequioError as cause:
            problems[planned.hash] = str(cause)
            listen("warning", {"message": f"{planned.run}, seed {planned.seed} was not run: {cause}"})
    return problems
