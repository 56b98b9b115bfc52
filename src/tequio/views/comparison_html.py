"""A comparison as HTML: what a notebook shows, and a section of a report."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from tequio.views.comparison import sentences, sheets_of

if TYPE_CHECKING:
    from tequio.experiments.comparing import Comparison
    from tequio.views.comparison import Sheet


def comparison_html(comparison: Comparison) -> str:
    """Tables and sentences."""
    told = "".join(f"<p><strong>{heading}:</strong> {escape(line)}</p>"
                   for heading, lines in sentences(comparison).items() for line in lines)
    return "".join(map(sheet_html, sheets_of(comparison))) + told


def sheet_html(sheet: Sheet) -> str:
    """A table; stressed rows are bold. It scrolls by itself where the page is narrow."""
    head = "".join(f"<th scope='col'>{escape(column)}</th>" for column in sheet.columns)
    body = "".join(_row(row, place in sheet.strong) for place, row in enumerate(sheet.rows))
    return (f"<div class='scroll' tabindex='0'><table><caption>{escape(sheet.title)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")


def _row(cells: tuple[str, ...], strong: bool) -> str:
    first, *rest = cells
    style = " class='strong' style='font-weight:bold'" if strong else ""
    return f"<tr{style}><th scope='row'>{escape(first)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>"
