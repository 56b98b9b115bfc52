"""Running what tables still lack, within a budget of time.

A finished run is never run again; a stopped one goes on where it was. With numbers kept from elsewhere, runs come in
the order of what a reader wants to know first: those on which open claims rest, then published numbers without any run,
then those that cannot be told yet, then the rest; in each, first seeds first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.errors import TequioError
from tequio.experiments.api import run_with_baselines
from tequio.experiments.comparing.values import fits
from tequio.experiments.running.recording import ignore
from tequio.studies.answered import from_runs
from tequio.studies.claims import parse_statement
from tequio.studies.keeping import stale_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tequio.experiments.running.recording import Listener
    from tequio.experiments.running.store import Plain
    from tequio.studies.answered import Answered
    from tequio.studies.keeping import Kept
    from tequio.studies.plans import Plan, PlannedRun, Store


@dataclass(frozen=True)
class Missing:
    """A run to make, and where it goes."""

    planned: PlannedRun
    store: Store


class BudgetSpent(KeyboardInterrupt):
    """The time is up: a run stops as it does by Ctrl-C."""


def missing_runs(plan: Plan, store: Store, pattern: str = "*") -> list[Missing]:
    """The runs behind the cells whose name fits, stored ones included."""
    return [Missing(planned, store) for planned in plan.wanted(pattern)]


def wanted_first(studies: Iterable[tuple[Plan, Store, Kept]], pattern: str = "*") -> list[Missing]:
    """The runs that neither stores nor kept numbers have, in the order in which a reader wants to know."""
    ranked = []
    for plan, store, kept in studies:
        one, stale = from_runs(plan, store, kept=kept), stale_lines(plan, kept)
        rows, claimed = {row.cell: row for row in one.rows}, _open_cells(one)
        for cell in plan.study.cells:
            row = rows[cell.name]
            done = () if cell.name in stale else row.values or range(row.seeds)
            rank = 0 if cell.name in claimed else 3 if not row.counts or not cell.comparable else \
                1 if row.verdict == "not run" else 2 if row.verdict == "cannot tell" else 3
            ranked += [(rank, runs[0].seed, Missing(planned, store)) for runs in plan.of_cell(cell)
                       if fits(cell.name, pattern) and runs[0].seed not in done for planned in runs]
    ranked.sort(key=lambda item: item[:2])
    once = {missing.planned.hash: missing for _, _, missing in reversed(ranked)}
    return [missing for missing in reversed(once.values()) if missing.store.finished(missing.planned) is None]


def run_all(wanted: Sequence[Missing], problems: dict[str, str], *, until: float | None = None,
            listen: Listener = ignore) -> None:
    """Make the runs that are not finished; `problems` gains why some could not be made, by hash.

    One run that fails does not keep the others from being made. The listener hears `cell` before each run. From the
    second `until` of the monotonic clock on no run begins, and the one at work stops after its round.
    """
    def within_budget(kind: str, facts: Plain) -> None:
        listen(kind, facts)
        if until is not None and kind in ("cell", "round") and time.monotonic() >= until:
            raise BudgetSpent

    for number, (planned, store) in enumerate(((one.planned, one.store) for one in wanted), start=1):
        done = store.finished(planned) is not None
        within_budget("cell", {"number": number, "cells": len(wanted), "label": f"{planned.run}, seed {planned.seed}",
                               "finished": done})
        if done:
            continue
        try:
            run_with_baselines(planned.config, folder=store.place_for(planned), listen=within_budget)
        except TequioError as cause:
            problems[planned.hash] = str(cause)
            listen("warning", {"message": f"{planned.run}, seed {planned.seed} was not run: {cause}"})


def _open_cells(one: Answered) -> set[str]:
    """The cells on which open claims rest; of means the cells that they are taken of."""
    names = [row.cell for row in one.rows]
    used = {cell for claim, fared in zip(one.study.claims, one.claims, strict=True) if fared.fate == "open"
            for text in claim.holds for pair in parse_statement(text, names).pairs for cell in pair}
    return used | {cell.name for mean in one.study.means if mean.name in used for cell in one.study.cells_of(mean)}
