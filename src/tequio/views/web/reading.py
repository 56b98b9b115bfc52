"""The files of a run as plain data, without believing that they are whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tequio.errors import RunError
from tequio.experiments import store
from tequio.experiments.table import Table, read_csv
from tequio.experiments.toml import read_toml

if TYPE_CHECKING:
    from pathlib import Path

DAMAGE = (OSError, ValueError, TypeError, LookupError, AttributeError)
"""What reading a file can end in that someone has damaged."""


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a finished run; an error that says so where it is damaged."""
    try:
        summary = json.loads((folder / store.SUMMARY).read_text(encoding="utf-8"))
    except ValueError as cause:
        raise RunError(f"{store.SUMMARY} is damaged: {cause}", remedy="run it again") from None
    if not isinstance(summary, dict) or not isinstance(summary.get("metrics"), dict):
        raise RunError(f"{store.SUMMARY} is not that of a run", remedy="run it again")
    return summary


def read_config(folder: Path) -> dict[str, Any]:
    """The config of a run as its file says it; an error where it is not that of a run."""
    given = read_toml(folder / store.CONFIG)
    tables = [given.get(name) for name in ("data", "algorithm")]
    if not all(isinstance(table, dict) and isinstance(table.get("name"), str) for table in tables):
        raise RunError(f"{store.CONFIG} is not that of a run", remedy="run it again")
    return given


def read_table(path: Path) -> Table:
    """A table of a run; empty where it is not there or damaged."""
    try:
        return read_csv(path)
    except (OSError, ValueError):
        return Table()


def read_text(path: Path, most: int = 200_000) -> str:
    """The start of a text file; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
