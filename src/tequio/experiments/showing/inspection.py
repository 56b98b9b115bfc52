"""What was found in a table: for a terminal, for a notebook, and as plain data."""

from __future__ import annotations

import io
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING

from tequio.data.inspecting.columns import FEWEST_SHOWN
from tequio.errors import MissingExtra
from tequio.experiments.config.draft import party_text, plain, target_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType
    from rich.table import Table as RichTable

    from tequio.data.inspecting.columns import ColumnFacts
    from tequio.data.inspecting.facts import TableFacts
    from tequio.experiments.config.toml import Given
    from tequio.experiments.inspecting import Inspection


MOST_COLUMNS = 40
"""How many columns are listed; --json has all."""

MARKS = {"problem": "✗", "acts": "→", "check": "?"}
_LONGEST_NAME = 22


def renderables(facts: TableFacts) -> Iterator[RenderableType]:
    """Everything that a terminal shows, one part after the other."""
    from rich.table import Table
    from rich.text import Text

    yield Text(title_of(facts), style="bold")
    yield Text()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    for name, text in headings(facts).items():
        grid.add_row(name, Text(text))
    yield grid
    yield column_table(facts)
    rest = len(facts.columns) - MOST_COLUMNS
    if rest > 0:
        yield Text(f"... and {rest:,} more columns (--json lists all)", style="dim")
    if not facts.findings:
        return
    yield Text()
    grid = Table.grid(padding=(0, 1))
    for finding in facts.findings:
        grid.add_row(MARKS[finding.level], Text(plain(finding.text)))
    yield grid


def as_text(facts: TableFacts, width: int = 80) -> str:
    """What a terminal shows, as plain text."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    for part in renderables(facts):
        console.print(part)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def title_of(facts: TableFacts) -> str:
    """The table, and how large it is."""
    rows = f"{facts.rows:,} row{'s' * (facts.rows != 1)}"
    sample = f" (a sample of {facts.seen:,} is looked at)" if facts.is_sample else ""
    return f"{facts.name}: {rows}, {len(facts.columns):,} column{'s' * (len(facts.columns) != 1)}{sample}"


def headings(facts: TableFacts) -> dict[str, str]:
    """The target and the parties; where they are not said, which columns may be meant."""
    found = {"target": f"{', '.join(facts.target.names)}: {target_text(facts)}" if facts.target else
             _candidates("--target", facts.targets)}
    found["parties"] = party_text(facts) if facts.party else _candidates("--party", facts.groups)
    return {name: plain(text) for name, text in found.items()}


def _candidates(option: str, names: tuple[str, ...]) -> str:
    return f"not said; {option} " + (" or ".join(f"'{name}'" for name in names) + "?" if names else "COLUMN")


def listed(facts: TableFacts) -> list[ColumnFacts]:
    """The columns that are shown: where they are too many, those that most is to be said of, in the table's order."""
    if len(facts.columns) <= MOST_COLUMNS:
        return list(facts.columns)
    order = sorted(facts.columns, key=lambda column: (column.role not in ("target", "party", "id"), not column.reason,
                                                      -(column.score or 0.0)))
    chosen = {column.name for column in order[:MOST_COLUMNS]}
    return [column for column in facts.columns if column.name in chosen]


def column_table(facts: TableFacts) -> RichTable:
    """One row per column: kind, values, gaps, how well it alone predicts the target, and what is done with it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    heads = ("column", "kind", "values", "missing", f"alone\n{facts.metric}" if facts.metric else "", "")
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place in (2, 3, 4) else "left", no_wrap=place in (1, 2, 3, 4),
                         overflow="fold", max_width=_LONGEST_NAME if not place else None, vertical="top")
    for column in listed(facts):
        style = {"out": "dim", "target": "bold", "party": "bold"}.get(column.role, "")
        table.add_row(*(Text(cell) for cell in cells_of(column)), style=style)
    return table


def cells_of(column: ColumnFacts) -> tuple[str, ...]:
    """What the table shows of a column."""
    score = "" if column.score is None or column.kind in ("id", "ignore") else f"{column.score:.3f}"
    gaps = "" if not column.missing else f"{column.missing / column.rows:.1%}"
    return (plain(column.name) or "(no name)", column.kind, f"{column.distinct:,}", gaps, score, use_of(column))


def use_of(column: ColumnFacts) -> str:
    """What is done with a column, and why."""
    if column.role in ("target", "party"):
        return column.role
    if column.role == "id":
        return "names rows (data.id)"
    return f"out: {plain(column.reason)}" if column.role == "out" else plain(column.reason)


def as_document(facts: TableFacts) -> Given:
    """Everything as plain data; small counts of classes and parties are not in it."""
    document = asdict(facts)
    if document["target"] is not None:
        document["target"]["classes"] = _shown_counts(document["target"]["classes"])
    for party in document["parties"]:
        party |= {"rows": _shown(party["rows"]), "classes": _shown_counts(party["classes"])}
    for column in document["columns"]:
        column["plan"] = {key: value for key, value in column["plan"].items() if value}
    return document


def _shown(count: int) -> int | str:
    return count if count >= FEWEST_SHOWN else f"fewer than {FEWEST_SHOWN}"


def _shown_counts(counts: Mapping[str, int]) -> dict[str, int | str]:
    """Counts of classes; rare ones are not named."""
    shown: dict[str, int | str] = {name: count for name, count in counts.items() if count >= FEWEST_SHOWN}
    rest = len(counts) - len(shown)
    return shown | ({f"{rest} rare": _shown(0)} if rest else {})


def as_html(found: Inspection) -> str:
    """Headings, the table of columns with bars, sentences, and the picture where it can be drawn."""
    facts = found.facts
    heads = "".join(f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}"
                    "</td></tr>" for name, text in headings(facts).items())
    names = ("column", "kind", "values", "missing", f"alone ({facts.metric})" if facts.metric else "alone", "")
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in names)
    body = "".join(_html_row(column) for column in listed(facts))
    rest = len(facts.columns) - MOST_COLUMNS
    more = f"<p>... and {rest:,} more columns</p>" if rest > 0 else ""
    told = "".join(f"<li>{escape(plain(finding.text))}</li>" for finding in facts.findings)
    return (f"<b>{escape(plain(title_of(facts)))}</b><table>{heads}</table><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{more}<ul>{told}</ul>{_drawing(found)}")


def _html_row(column: ColumnFacts) -> str:
    style = "opacity:0.6" if column.role == "out" else "font-weight:bold" if column.role == "target" else ""
    cells = "".join(f"<td style='text-align:{'right' if place in (2, 3, 4) else 'left'}'>{escape(cell)}</td>"
                    for place, cell in enumerate(cells_of(column)))
    return f"<tr style='{style}'>{cells}</tr>"


def _drawing(found: Inspection) -> str:
    from tequio.experiments.showing.results import as_svg

    try:
        return as_svg(found.plot())
    except MissingExtra:
        return ""
