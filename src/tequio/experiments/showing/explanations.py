"""Explanations of a run's model: tables for a terminal, HTML for a notebook, and files of trees and rules."""

from __future__ import annotations

import io
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError
from tequio.experiments.running.store import write_whole
from tequio.experiments.running.table import Table
from tequio.experiments.showing.trees import ShownTree, tree_page, tree_svg
from tequio.learners.trees.explain import Explanation
from tequio.learners.trees.text import count_text, rows_text, rules_json, rules_text, share_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.measure import Measurement
    from rich.table import Table as RichTable

    from tequio.experiments.explaining.explaining import Decision, Explained, ExplainedRow
    from tequio.learners.trees.text import PlainRule


MOST_RULES, MOST_COLUMNS = 20, 15
"""How many rules and columns are shown; files and JSON have all."""

_MOST_DIFFERENCES, _MOST_SHARES, _BAR = 30, 4, 30


def renderables(explained: Explained, *, diff: bool = False) -> Iterator[RenderableType]:
    """Everything that a terminal shows, one part after the other."""
    from rich.text import Text

    for row in explained.rows:
        yield _title(title_of(explained, row))
        yield row_table(explained, row)
        yield Text("\n".join(["", *notes_on(explained, row), ""]))
    if diff:
        yield from _difference_parts(explained)
    if explained.rules:
        rules = len(explained.rules)
        yield _title(f"Rules with most rows behind them ({min(rules, MOST_RULES)} of {rules})")
        yield rules_table(explained)
        yield _more(rules - MOST_RULES, "rule", "--rules FILE writes all")
    yield _title("Importance of columns")
    yield importance_table(explained)
    yield _more(sum(share > 0 for share in explained.importance.values()) - MOST_COLUMNS, "column", "--json lists all")


def as_text(explained: Explained, width: int = 100) -> str:
    """What a terminal shows, as plain text."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    for part in renderables(explained):
        console.print(part)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def title_of(explained: Explained, row: ExplainedRow) -> str:
    """Which row it is, and its true class."""
    return f"Row {row.row} of the {explained.where}, true {explained.schema.target.name}: {row.truth}"


def sides_of(explained: Explained, row: ExplainedRow) -> dict[str, Decision]:
    """The decisions on a row by the titles that they stand under, the local one first."""
    both = (("local {} of party {}", row.by_local), ("global {}", row.by_global))
    return {title.format("tree" if isinstance(decision, Explanation) else "model", explained.party): decision
            for title, decision in both if decision is not None}


def cells_of(decision: Decision, truth: str) -> dict[str, list[str]]:
    """What is told about a decision: by the name of each line, the lines below each other."""
    verdict = "" if not decision.shares else " (right)" if decision.prediction == truth else " (wrong)"
    cells = {"decides": [f"{decision.prediction}{verdict}"]}
    if isinstance(decision, Explanation):
        cells["because"] = [str(step) for step in decision.conditions] or ["it never asks"]
        cells["falls back"] = [decision.fallback] if decision.fallback else []
        cells["stands on"] = [rows_text(decision.support)]
    else:
        cells["votes"] = [f"{count} of {decision.trees} trees for {name}" for name, count in decision.votes.items()]
    cells["shares"] = shares_lines(decision.shares)
    return cells


def shares_lines(shares: Mapping[str, float]) -> list[str]:
    """Class shares, largest first; what is little or nothing is left out."""
    ranked = sorted(((name, share) for name, share in shares.items() if share > 0), key=lambda pair: -pair[1])
    return [f"{name} {share_text(share)}" for name, share in ranked[:_MOST_SHARES]]


def notes_on(explained: Explained, row: ExplainedRow) -> list[str]:
    """What there is to say below the table of a row."""
    notes = [row.comparison] if row.comparison else []
    if sum(row.local_decisions.values()) > 1:
        told = ", ".join(f"{count} {name}" for name, count in row.local_decisions.items())
        notes.append(f"The parties' own models decide: {told}.")
    if row.by_local is None:
        notes.append(f"No model of party '{explained.party}' is kept in this run." if explained.party else
                     "The run keeps no models of single parties, so only the global one is shown.")
    return notes


def row_table(explained: Explained, row: ExplainedRow) -> RichTable:
    """One row: local beside global, condition by condition."""
    sides = {title: cells_of(decision, row.truth) for title, decision in sides_of(explained, row).items()}
    table = _table()
    table.add_column("")
    for title in sides:
        table.add_column(_plain(title), overflow="fold")
    for line in dict.fromkeys(name for cells in sides.values() for name in cells):
        cells = [side.get(line, []) for side in sides.values()]
        if any(cells):
            table.add_row(_plain(line), *[_lines(own, line == "because", cells) for own in cells])
    return table


def rules_table(explained: Explained) -> RichTable:
    """The rules with most rows behind them."""
    table = _table()
    for title, justify in (("", "right"), ("if", "left"), ("then", "left"), ("rows", "right"), ("shares", "left")):
        table.add_column(title, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for number, rule in enumerate(explained.rules[:MOST_RULES], start=1):
        table.add_row(str(number), _Conditions(tuple(rule["if"])), _plain(rule["then"]),
                      count_text(rule['support']), _plain("\n".join(shares_lines(rule["shares"]))))
    return table


def importance_table(explained: Explained) -> RichTable:
    """The columns that decide most, with bars."""
    table = _table()
    for justify in ("left", "left", "right"):
        table.add_column("", justify=justify, overflow="fold")
    table.show_header = False
    shown = [(name, share) for name, share in explained.importance.items() if share > 0][:MOST_COLUMNS]
    for name, share in shown:
        table.add_row(_plain(name), "█" * max(round(_BAR * share / shown[0][1]), 1), share_text(share))
    return table


def difference_table(explained: Explained) -> RichTable:
    """Where the local tree and the global tree part."""
    table = _table()
    for title in ("at", "change", "local tree", "global tree"):
        table.add_column(title, overflow="fold")
    for found in explained.differences[:_MOST_DIFFERENCES]:
        table.add_row(_Conditions(found.path, "the root"), found.change, _plain(found.first), _plain(found.second))
    return table


def _difference_parts(explained: Explained) -> Iterator[RenderableType]:
    from rich.text import Text

    if len(explained.trees) < 2:
        raise ConfigError("there are not two trees to compare in this run",
                          remedy="compare in a run that keeps the parties' own trees, or add baselines = [\"alone\"]")
    agree = "" if explained.agreement is None else \
        f"Both give the same class to {share_text(explained.agreement)} of the {explained.where}."
    if not explained.differences:
        yield Text(f"The local tree of party {explained.party} and the global tree are the same. {agree}\n")
        return
    yield _title(f"Where the local tree of party {explained.party} and the global tree part")
    yield difference_table(explained)
    yield _more(len(explained.differences) - _MOST_DIFFERENCES, "place", "--json lists all")
    yield Text(f"{agree}\n" if agree else "")


def _more(count: int, what: str, where: str) -> RenderableType:
    from rich.text import Text

    return Text(f"... and {count} more {what}{'' if count == 1 else 's'} ({where})\n", style="dim") if count > 0 \
        else Text()


def _lines(own: Sequence[str], marks: bool, sides: Sequence[Sequence[str]]) -> RenderableType:
    """Lines below each other; where marks are wanted, those that the other side does not have are bold."""
    from rich.text import Text

    shared = set.intersection(*map(set, sides)) if marks and len(sides) > 1 else set(own)
    return Text("\n").join(Text(line, style="" if line in shared else "bold") for line in own)


def _plain(text: str) -> RenderableType:
    """Text in which square brackets mean nothing."""
    from rich.text import Text

    return Text(text)


def _title(text: str) -> RenderableType:
    from rich.text import Text

    return Text(f"{text}\n", style="bold")


def _table() -> RichTable:
    from rich import box
    from rich.table import Table as RichTable

    return RichTable(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))


@dataclass(frozen=True)
class _Conditions:
    """Conditions joined by `and`; lines break between conditions as long as one fits a line."""

    parts: tuple[str, ...]
    none: str = "anything"

    def lines(self, width: int) -> list[str]:
        lines = [""]
        for place, part in enumerate(self.parts):
            word = part if place == len(self.parts) - 1 or len(part) + 4 > width > len(part) else f"{part} and"
            longer = f"{lines[-1]} {word}".lstrip()
            lines = [*lines[:-1], longer] if len(longer) <= width or not lines[-1] else [*lines, word]
        return lines if self.parts else [self.none]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield _plain("\n".join(self.lines(options.max_width)))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        longest, together = max(map(len, self.lines(1))), max(map(len, self.lines(options.max_width)))
        return Measurement(min(longest, options.max_width), min(together, options.max_width))


def save_tree(explained: Explained, path: str | Path, form: str = "") -> None:
    """Draw the trees as `.html` or `.svg`, by the form or by the file's name."""
    path = Path(path)
    if not explained.trees:
        raise ConfigError(f"the model of '{explained.algorithm}' is an ensemble, which is not one tree to draw",
                          remedy="look at its importance of columns and at its votes")
    write = _one_of(_TREE_FORMS, form or path.suffix, path, "a drawing of a tree")
    write_whole(path, write(explained).encode())


def save_rules(explained: Explained, path: str | Path) -> None:
    """Write all rules as `.txt`, `.json` or `.csv`, by the file's name."""
    path = Path(path)
    if not explained.rules:
        raise ConfigError(f"the model of '{explained.algorithm}' is an ensemble, which has no list of rules",
                          remedy="look at its importance of columns and at its votes")
    write = _one_of(_RULE_FORMS, path.suffix, path, "rules")
    write_whole(path, (write(explained.rules).rstrip("\n") + "\n").encode())


def rules_csv(rules: Sequence[PlainRule]) -> str:
    """Rules as CSV: a line a rule, a column a class with its share."""
    table = Table()
    for number, rule in enumerate(rules, start=1):
        table.add({"rule": number, "if": " and ".join(rule["if"]), "then": rule["then"], "support": rule["support"],
                   **{f"share of {name}": share for name, share in rule["shares"].items()}})
    return table.to_csv()


def as_html(explained: Explained) -> str:
    """Rows, rules and importance as HTML tables."""
    rows = "".join(_html_row(explained, row) for row in explained.rows)
    rules = [[" and ".join(rule["if"]) or "anything", rule["then"], count_text(rule['support']),
              ", ".join(shares_lines(rule["shares"]))] for rule in explained.rules[:MOST_RULES]]
    columns = [[name, share_text(share)] for name, share in explained.importance.items() if share > 0]
    listed = _html_table(f"Rules with most rows behind them ({len(rules)} of {len(explained.rules)})",
                         ["if", "then", "rows", "shares"], rules) if rules else ""
    return rows + listed + _html_table("Importance of columns", ["", ""], columns[:MOST_COLUMNS])


def _html_row(explained: Explained, row: ExplainedRow) -> str:
    sides = {title: cells_of(decision, row.truth) for title, decision in sides_of(explained, row).items()}
    names = dict.fromkeys(name for cells in sides.values() for name in cells)
    lines = [[name, *("\n".join(side.get(name, [])) for side in sides.values())] for name in names
             if any(side.get(name) for side in sides.values())]
    notes = "".join(f"<p>{escape(note)}</p>" for note in notes_on(explained, row))
    return _html_table(title_of(explained, row), ["", *sides], lines) + notes


def _html_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    style = "style='text-align:left;vertical-align:top;white-space:pre-line'"
    headings = "".join(f"<th {style}>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td {style}>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><tr>{headings}</tr>{body}</table>"


def tree_html(explained: Explained) -> str:
    """The trees as one page to explore, with the paths of the explained rows."""
    shown = [ShownTree(name, tree, _paths(explained, name)) for name, tree in explained.trees.items()]
    return tree_page(shown, explained.schema, title=f"{explained.run}: {explained.algorithm}")


def _picture(explained: Explained) -> str:
    name, tree = next(iter(explained.trees.items()))
    path = next(iter(_paths(explained, name).values()), None)
    return tree_svg(tree, explained.schema, title=f"{name} of {explained.run}", explained=path)


def _paths(explained: Explained, tree: str) -> dict[str, Explanation]:
    decisions = {f"row {row.row}": sides_of(explained, row).get(tree) for row in explained.rows}
    return {name: decision for name, decision in decisions.items() if isinstance(decision, Explanation)}


_TREE_FORMS: dict[str, Callable[[Explained], str]] = {".html": tree_html, ".svg": _picture}
_RULE_FORMS: dict[str, Callable[[Sequence[PlainRule]], str]] = {
    ".txt": rules_text, ".json": rules_json, ".csv": rules_csv}


def _one_of(forms: Mapping[str, Any], form: str, path: Path, what: str) -> Any:
    if form not in forms:
        raise ConfigError(f"{what} cannot be written as '{path.name}'",
                          remedy=f"give the file a name that ends in {', '.join(forms)}")
    return forms[form]
