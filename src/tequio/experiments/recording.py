"""The record of a run while it happens: events, metrics, and whoever listens."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import RunError
from tequio.experiments.store import EVENTS, METRICS, Journal, write_whole
from tequio.experiments.table import Cell, Table, read_csv

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Listener = Callable[[str, dict[str, Any]], None]
"""Hears every event of a run: its kind and its facts."""


def ignore(kind: str, facts: dict[str, Any]) -> None:
    """A listener that does not care."""


class Recorder:
    """Writes events and metrics to the run folder and passes events on to a listener."""

    def __init__(self, folder: Path, listen: Listener, kept: Mapping[str, int] | None = None) -> None:
        """Start a record, or go on with one from where a checkpoint says it was (`kept`)."""
        self._events = Journal(folder / EVENTS, kept[EVENTS] if kept else 0)
        self._listen = listen
        self._path = folder / METRICS
        self.metrics = _first_rows(self._path, kept[METRICS]) if kept else Table()
        write_whole(self._path, self.metrics.to_csv().encode() if self.metrics.columns else b"")
        self._lines = Journal(self._path)
        self._loss: dict[str, float] = {}

    def event(self, kind: str, facts: dict[str, Any]) -> None:
        """Note something that happened."""
        if kind == "exchange" and "loss" in facts:
            self._loss = {"train.loss": facts["loss"]}
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._events.add(json.dumps({"event": kind, "time": moment, **as_json(facts)}))
        self._listen(kind, facts)

    def row(self, row: Mapping[str, Cell]) -> None:
        """Add the metrics of a round."""
        if self.metrics.add(row):
            self._lines.close()
            write_whole(self._path, self.metrics.to_csv().encode())
            self._lines = Journal(self._path)
        else:
            self._lines.add(self.metrics.line(row))

    def taken_loss(self) -> dict[str, float]:
        """The training loss that parties reported last; each is handed out once."""
        loss, self._loss = self._loss, {}
        return loss

    def flush(self, *, sync: bool = False) -> dict[str, int]:
        """Write what waits; how far the record has come, for a checkpoint."""
        self._lines.flush(sync=sync)
        return {EVENTS: self._events.flush(sync=sync), METRICS: len(self.metrics)}

    def close(self) -> None:
        """Write what waits and let go."""
        try:
            self._lines.close()
        finally:
            self._events.close()


def as_json(value: Any) -> Any:
    """Plain data that JSON can hold: arrays as lists, what is not a finite number as null."""
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return as_json(value.tolist())
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _first_rows(path: Path, count: int) -> Table:
    table = read_csv(path)
    if len(table) < count:
        raise RunError(f"'{path}' has fewer rows than its checkpoint says ({len(table)} of {count})",
                       remedy="the run folder was changed by hand; start the run anew")
    return Table(table.columns, table.rows[:count])
