"""What the fields of messages tell whoever sees them: said beside the tasks, shown by the leakage report."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tequio.federation.task import Task

UNKNOWN = "not described"
_REQUEST = {"part": "which part of the common rows is meant", "positions": "which common rows are in the batch",
            "step": "the number of the batch", "features": "the receiver's columns of rows of the coordinator's own",
            "target": "labels of rows of the coordinator's own"}
"""Fields by which any task is told the rows it is about; see `rows.asked_rows`."""

_meanings: dict[tuple[str, str], str] = {}


def tells(task: Task, **fields: str) -> None:
    """Describe fields that go to a party or come back from it when it is asked to do a task."""
    _meanings.update({(task.name, field): meaning for field, meaning in fields.items()})


def meaning_of(task: str, field: str) -> str:
    """What a field tells; fields inside another (`gradients/1`) mean what that one does."""
    name = field.partition("/")[0]
    return _meanings.get((task, name)) or _REQUEST.get(name, UNKNOWN)
