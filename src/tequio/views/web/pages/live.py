"""The live view: what a run writes, sent on as it grows. It only reads the end of one file, twice a second."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from tequio.experiments import store
from tequio.views.web.events import read_batch
from tequio.views.web.kit import dashboard_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from tequio.views.web.processes import Processes

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


def _message(kind: str, facts: dict[str, Any], offset: int) -> str:
    return f"id: {offset}\nevent: {kind}\ndata: {json.dumps(facts)}\n\n"
