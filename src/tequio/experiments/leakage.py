"""Who saw what in a run of a vertical algorithm: read from the record of its messages.

Every message goes through the coordinator. It sees all that parties send; a party sees what it is sent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tequio import registry
from tequio.algorithms.vertical.conversation import MESSAGES as KIND
from tequio.algorithms.vertical.meaning import meaning_of
from tequio.experiments.store import EVENTS, LEAKAGE, MESSAGES, write_whole
from tequio.experiments.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COORDINATOR = "coordinator"


def write_messages(folder: Path) -> None:
    """Put both tables into the folder of a run that has such messages on record."""
    for name, table in ((MESSAGES, message_table(folder)), (LEAKAGE, leakage_table(folder))):
        if len(table):
            write_whole(folder / name, table.to_csv().encode())


def message_table(folder: Path) -> Table:
    """One row a party and task: how often it was asked, bytes both ways, and how long it worked and waited for others.

    A party that is not asked waits for those who are.
    """
    totals: dict[tuple[str, str, str], dict[str, Any]] = {}
    for event in _events(folder):
        key = (event["party"], event["role"], event["task"])
        row = totals.setdefault(key, dict.fromkeys(_SUMS, 0))
        for name in _SUMS:
            row[name] += event[name]
    table = Table()
    for (party, role, task), row in sorted(totals.items()):
        table.add({"party": party, "role": role, "task": task, **row})
    return table


def leakage_table(folder: Path) -> Table:
    """One row for each who and field: what they saw, in what form, how much of it, and what it tells."""
    registry.load_everything()  # what fields mean is said beside the tasks
    seen: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for event in _events(folder):
        for who, role, fields in ((event["party"], event["role"], event["down"]), (COORDINATOR, COORDINATOR,
                                                                                  event["up"])):
            for field, facts in _joined(fields).items():
                row = seen.setdefault((who, role, event["task"], field),
                                      {"kind": facts["kind"], "shape": facts["shape"], "numbers": 0, "messages": 0})
                row["shape"] = max(row["shape"], facts["shape"])
                row["numbers"] += facts["amount"]
                row["messages"] += event["times"]
    table = Table()
    for (who, role, task, field), row in sorted(seen.items(), key=lambda item: (item[0][0] == COORDINATOR, item[0])):
        table.add({"who": who, "role": role, "task": task, "field": field, **row,
                   "shape": " x ".join(map(str, row["shape"])) or "one", "tells": meaning_of(task, field)})
    return table


_SUMS = ("times", "bytes_down", "bytes_up", "seconds", "waiting_seconds")


def _joined(fields: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Fields inside another, such as `gradients/1` for each party, count as one, of the form of the largest of them."""
    joined: dict[str, dict[str, Any]] = {}
    for path, facts in fields.items():
        name = path.partition("/")[0]
        old = joined.get(name, {"amount": 0, "largest": -1})
        larger = facts if facts["amount"] > old["largest"] else old
        joined[name] = {"kind": larger["kind"], "shape": larger["shape"], "amount": old["amount"] + facts["amount"],
                        "largest": max(facts["amount"], old["largest"])}
    return joined


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    mark = f'{{"event": "{KIND}"'
    with (folder / EVENTS).open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(mark):
                yield json.loads(line)
