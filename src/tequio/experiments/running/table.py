"""A small table of results: columns, rows, CSV both ways, and a look of its own in a notebook."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, MissingExtra, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


Cell = float | int | str | None


@dataclass
class Table:
    """Rows of named cells; a row may leave columns empty (None)."""

    columns: list[str] = field(default_factory=list)
    rows: list[dict[str, Cell]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Cell]]:
        return iter(self.rows)

    def __getitem__(self, column: str) -> list[Cell]:
        if column not in self.columns:
            raise ConfigError(f"the table has no column '{column}'", remedy=nearest(column, self.columns))
        return [row.get(column) for row in self.rows]

    def add(self, row: Mapping[str, Cell]) -> bool:
        """Append a row; whether it brought new columns."""
        new = [column for column in row if column not in self.columns]
        self.columns += new
        self.rows.append(dict(row))
        return bool(new)

    def series(self, column: str, by: str = "round") -> tuple[list[float], list[float]]:
        """The filled cells of a column with their place on the axis `by`."""
        pairs = [(float(row[by] or 0), float(row[column] or 0)) for row in self.rows
                 if row.get(column) is not None]
        return [place for place, _ in pairs], [value for _, value in pairs]

    def last(self, column: str) -> Cell:
        """The last filled cell of a column."""
        return next((row[column] for row in reversed(self.rows) if row.get(column) is not None), None)

    def to_dict(self) -> dict[str, list[Cell]]:
        """Column by column."""
        return {column: self[column] for column in self.columns}

    def to_pandas(self) -> Any:
        """As a pandas data frame."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("pandas", "frames", "to_pandas()") from None
        return pandas.DataFrame(self.to_dict(), columns=self.columns)

    def header(self) -> str:
        """The CSV line of column names."""
        return _csv_line(self.columns)

    def line(self, row: Mapping[str, Cell]) -> str:
        """The CSV line of a row."""
        return _csv_line(["" if row.get(column) is None else row[column] for column in self.columns])

    def to_csv(self) -> str:
        """The whole table as CSV text."""
        return "\n".join([self.header(), *(self.line(row) for row in self.rows)]) + "\n"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        rows = ("".join(f"<td>{escape(shown(row.get(column)))}</td>" for column in self.columns) for row in self.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def read_csv(path: Path) -> Table:
    """A table back from its CSV file; a last line without its end was never whole and is left out."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = list(csv.reader(io.StringIO(text[:text.rfind("\n") + 1])))
    if not lines:
        return Table()
    columns, *rows = [list(map(_text, lines[0])), *lines[1:]]
    return Table(columns, [{column: _cell(text) for column, text in zip(columns, row, strict=True) if text != ""}
                           for row in rows])


def shown(cell: Cell, digits: int = 4) -> str:
    """A cell as people read it."""
    if cell is None:
        return ""
    return f"{cell:.{digits}g}" if isinstance(cell, float) and abs(cell) < 1e-3 and cell else (
        f"{cell:.{digits}f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell)


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet would compute: such a text has an apostrophe before it in a file."""


def _cell(text: str) -> Cell:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return _text(text)


def _text(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


def _csv_line(cells: Sequence[Cell]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(
        [f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell for cell in cells])
    return line.getvalue()
