"""What a party's table and the schema differ in, side by side."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tequio.data.inputs.harmonise import mapping_text
from tequio.engines.network.wire import printable
from tequio.experiments.running import store

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from tequio.experiments.deploying.checking import Checked
    from tequio.experiments.running.store import Plain


def show_check(console: Console, checked: Checked, path: Path, proposed: Path | None) -> None:
    """The differences as a table, or that there are none, and what to type next."""
    from rich.table import Table
    from rich.text import Text

    differences = checked.found.differences
    if not differences:
        rows = len(checked.dataset) if checked.dataset is not None else 0
        console.print(f"{path.name} follows the schema: {rows:,} rows.", highlight=False)
        if checked.incomplete:
            few = "1 row misses" if checked.incomplete == 1 else f"{checked.incomplete:,} rows miss"
            console.print(f"{few} a value: join with --missing drop, keep or median.", highlight=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("your table", "schema", "what differs"):
        table.add_column(name)
    for (here, there), group in groupby(differences, lambda one: (one.here, one.there)):
        cells = (here, there, "; ".join(one.what for one in group))
        table.add_row(*(Text(printable(cell)) for cell in cells))  # the schema's names are somebody else's
    console.print(table)
    console.print()
    if proposed is not None:
        console.print(f"A mapping to start from is in {proposed}. Look at it, then check again: --mapping {proposed}",
                      highlight=False)
    else:
        console.print("To start a mapping that says so, add: --propose map.toml", highlight=False)


def check_document(checked: Checked) -> Plain:
    """The same for programs."""
    return {"fits": not checked.found.differences,
            "rows": None if checked.dataset is None else len(checked.dataset), "incomplete": checked.incomplete,
            "differences": [{"here": one.here, "schema": one.there, "what": one.what}
                            for one in checked.found.differences],
            "proposal": checked.found.mapping}


def write_proposal(checked: Checked, path: Path) -> None:
    """Write the proposed mapping."""
    with store.explained(path):
        path.write_text(mapping_text(checked.found), encoding="utf-8")
