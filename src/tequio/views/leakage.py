"""The leakage report for a terminal: who saw what, who waited for whom, and how well labels could be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.experiments.table import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.table import Table as RichTable

    from tequio.experiments.table import Table

_WORDS = {"bytes_down": "bytes down", "bytes_up": "bytes up", "seconds": "worked (s)", "waiting_seconds": "waited (s)"}


def renderables(seen: Table, messages: Table, leaks: Mapping[str, Mapping[str, float]]) -> Iterator[RichTable | str]:
    """What to print, one after the other."""
    for who in dict.fromkeys(seen["who"]):
        rows = [row for row in seen if row["who"] == who]
        role = rows[0]["role"]
        title = f"what the {who} sees" if who == role else f"what {who}, the {role}, sees"
        yield plain_table(title, seen, ["task", "field", "shape", "messages", "tells"], rows)
    yield plain_table("each party's part", messages, ["party", "role", "times", *_WORDS], _by_party(messages))
    if leaks:
        rows = [{"party": party, **found} for party, found in leaks.items()]
        yield plain_table("how well labels can be told from gradients (0.5: not at all, 1: all)", messages,
                          ["party", "norm", "direction"], rows)


def plain_table(title: str, table: Table, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> RichTable:
    """Some columns and rows of a table."""
    from rich import box
    from rich.table import Table as RichTable

    drawn = RichTable(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", header_style="bold",
                      pad_edge=False)
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float) for row in rows)
        drawn.add_column(_WORDS.get(column, column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*[shown(row.get(column)) for column in columns])
    return drawn


def _by_party(messages: Table) -> list[dict[str, Any]]:
    totals: dict[Any, dict[str, Any]] = {}
    for row in messages:
        total = totals.setdefault(row["party"], {"party": row["party"], "role": row["role"]})
        for name in ("times", *_WORDS):
            total[name] = total.get(name, 0) + (row[name] or 0)
    return list(totals.values())
