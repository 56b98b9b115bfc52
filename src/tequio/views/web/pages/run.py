"""One run: how far it is, its curves as they grow, its parties, its config; stop it or go on with it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

from tequio.errors import ConfigError
from tequio.experiments.running import store
from tequio.experiments.running.table import Table
from tequio.experiments.showing.results import STOPPED
from tequio.views.web.index import CORRUPT, RUNNING, log_text
from tequio.views.web.kit import Form, dashboard_of, go_to, page, posted
from tequio.views.web.reading import AXES, metric_names, read_batch, read_summary, read_table, read_text, run_curves

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from tequio.experiments.running.store import Plain
    from tequio.views.web.index import Entry
    from tequio.views.web.processes import Processes


MOST_PARTIES = 500
_FACTS = ("algorithm", "data", "seed", "parties", "seconds", "bytes_up", "bytes_down", "messages",
          "evaluation_bytes_up", "evaluation_bytes_down", "best_round")


def show(request: Request) -> Response:
    """The page of a run."""
    id, dashboard = request.path_params["run"], dashboard_of(request)
    folder = dashboard.folder(id)
    entry = dashboard.index.entry(id, folder)
    if entry.status != CORRUPT and dashboard.processes.is_running(folder):
        entry = replace(entry, status=RUNNING, trouble="")
    # The events are read before the metrics: what happens in between is told twice rather than never.
    batch = read_batch(folder / store.EVENTS, 0)
    curves = run_curves(folder, entry.algorithm or "run")
    parties = _party_table(folder, batch.chosen)
    summary = read_summary(folder) if entry.status != CORRUPT and (folder / store.SUMMARY).is_file() else {}
    return page(request, "run.html", entry=entry, facts=_facts(summary, entry), final=_numbers(summary),
                privacy=_privacy(summary), warnings=_warnings(summary), curves=curves,
                notes=[note for note in batch.notes if note.removeprefix("warning: ") not in _warnings(summary)][-20:],
                metrics=metric_names(curves, entry.metric), axes=_axes(curves), offset=batch.offset,
                parties=Table(parties.columns, parties.rows[:MOST_PARTIES]), all_parties=len(parties),
                config=read_text(folder / store.CONFIG), log=log_text(folder),
                has_trees=(folder / "model.json").is_file(), can_resume=entry.status not in (RUNNING, CORRUPT),
                corrupt=entry.status == CORRUPT, is_running=entry.status == RUNNING)


@posted
def stop(request: Request, form: Form) -> Response:
    """Ask the run's process to end; the page then shows it as stopped."""
    id, dashboard = request.path_params["run"], dashboard_of(request)
    dashboard.processes.stop(dashboard.folder(id))
    return go_to(f"/run/{id}")


@posted
def resume(request: Request, form: Form) -> Response:
    """Go on with the run, to another number of rounds if one is given."""
    id, dashboard = request.path_params["run"], dashboard_of(request)
    rounds = dict(form).get("rounds", "").strip()
    if rounds and not (rounds.isdecimal() and 0 < int(rounds) < 10 ** 9):
        raise ConfigError(f"'{rounds}' is not a number of rounds", remedy="give a whole number above 0")
    dashboard.processes.resume(dashboard.folder(id), int(rounds) if rounds else None)
    return go_to(f"/run/{id}")


def _facts(summary: Plain, entry: Entry) -> Plain:
    facts: Plain = {"algorithm": entry.algorithm, "data": entry.data, "seed": entry.seed}
    facts |= {f"training_{name}" if name.startswith("bytes") else name: summary[name] for name in _FACTS
              if name in summary}
    if "stopped" in summary:
        facts["ended"] = STOPPED.get(str(summary["stopped"]), str(summary["stopped"]))
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _numbers(summary: Plain) -> dict[str, float]:
    """All metrics that a finished run ended with."""
    return {name: value for name, value in summary.get("metrics", {}).items() if isinstance(value, int | float)}


def _privacy(summary: Plain) -> str:
    """What a run that adds noise for privacy says about it."""
    stated = [summary.get("privacy"), summary.get("privacy_over_runs")]
    return " ".join(str(one.get("words", "")) for one in stated if isinstance(one, dict))


def _warnings(summary: Plain) -> list[str]:
    """What is going wrong in a finished run; while it runs, its notes say so."""
    return [str(warning) for warning in summary.get("warnings", ())]


def _axes(curves: list[Plain]) -> dict[str, str]:
    present = {name for one in curves for name in one["columns"]} | {"round"}
    return {name: title for name, title in AXES.items() if name in present}


def _party_table(folder: Path, chosen: dict[str, int]) -> Table:
    """One row a party: what the last evaluation and the selections of the whole run say about it."""
    measured, took_part = read_table(folder / store.PARTIES), read_table(folder / store.PARTICIPATION)
    if not measured.columns and not took_part.columns:
        names = sorted(chosen, key=_place)
        return Table(["party", "chosen"], [{"party": name, "chosen": chosen[name]} for name in names])
    extra = {str(row.get("party")): row for row in took_part.rows}
    added = [name for name in ("chosen", "contribution") if name in took_part.columns]
    rows = [{**row, **{name: extra.get(str(row.get("party")), {}).get(name) for name in added}}
            for row in measured.rows or took_part.rows]
    columns = [name for name in measured.columns or took_part.columns if name not in added]
    return Table([*columns[:2], *added, *columns[2:]], rows)


def _place(name: str) -> tuple[float, str]:
    """Numbers in their order, names after them."""
    return (int(name), "") if name.isdecimal() else (inf, name)


PAUSE_SECONDS = 0.5
_LOOKS_A_CHECK = 4


async def stream(request: Request) -> Response:
    """Server-sent events from where the browser left off."""
    dashboard = dashboard_of(request)
    folder = dashboard.folder(request.path_params["run"])
    begin = request.headers.get("last-event-id") or request.query_params.get("from", "0")
    offset = int(begin) if begin.isdecimal() and len(begin) < 19 else 0
    return StreamingResponse(_grown(folder, offset, dashboard.processes), media_type="text/event-stream")


async def _grown(folder: Path, offset: int, processes: Processes) -> AsyncIterator[str]:
    looks = 0
    while True:
        # Asked before the file is read: what a run writes last is then never missed.
        over = looks % _LOOKS_A_CHECK == 0 and not processes.is_running(folder)
        batch = read_batch(folder / store.EVENTS, offset)
        offset = batch.offset
        if batch.cut:
            yield _message("reload", {}, offset)
            return
        if batch:
            yield _message("grown", {"rounds": batch.rounds, "chosen": batch.chosen, "notes": batch.notes}, offset)
        elif looks == 0:
            yield ": nothing new\n\n"
        if over:
            yield _message("over", {}, offset)
            return
        looks += 1
        await asyncio.sleep(PAUSE_SECONDS)


def _message(kind: str, facts: Plain, offset: int) -> str:
    return f"id: {offset}\nevent: {kind}\ndata: {json.dumps(facts)}\n\n"
