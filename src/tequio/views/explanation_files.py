"""Explanations of a run's model as files, trees and rules, and as HTML for a notebook."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError
from tequio.experiments.store import write_whole
from tequio.experiments.table import Table
from tequio.learners.trees.explain import Explanation
from tequio.learners.trees.text import count_text, rules_json, rules_text, share_text
from tequio.views.explanations import MOST_COLUMNS, MOST_RULES, cells_of, notes_on, shares_lines, sides_of, title_of
from tequio.views.tree_svg import tree_svg
from tequio.views.trees import ShownTree, tree_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tequio.experiments.explaining import Explained, ExplainedRow
    from tequio.learners.trees.text import PlainRule


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
