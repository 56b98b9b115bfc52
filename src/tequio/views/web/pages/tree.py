"""The tree viewer: a run's trees to explore, and why they decide on a row as they do."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse

from tequio import registry
from tequio.errors import ConfigError, RunError, TequioError
from tequio.experiments.explaining.explaining import explain
from tequio.experiments.explaining.sources import PartyTrees
from tequio.experiments.running import store
from tequio.experiments.running.results import Result
from tequio.experiments.showing.explanations import (
    MOST_COLUMNS,
    MOST_RULES,
    cells_of,
    notes_on,
    shares_lines,
    sides_of,
    title_of,
    tree_html,
)
from tequio.experiments.showing.trees import party_page
from tequio.learners.trees.text import count_text, share_text
from tequio.views.components import NOT_HERE, facts_of, where_is
from tequio.views.web.fields import names_of_code
from tequio.views.web.guard import POLICY
from tequio.views.web.kit import dashboard_of, page
from tequio.views.web.reading import DAMAGE, read_config

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from tequio.experiments.explaining.explaining import Explained, ExplainedRow
    from tequio.experiments.running.store import Plain
    from tequio.views.web.kit import Dashboard


_MOST_REMEMBERED = 8
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def show(request: Request) -> Response:
    """The trees, a row explained if one is asked for, rules and importance."""
    row, party = (request.query_params.get(name, "").strip() for name in ("row", "party"))
    trouble = ""
    try:
        explained = _explained(request, row, party)
    except TequioError as cause:
        if not row and not party:
            raise
        trouble, explained = str(cause), _explained(request, "", "")
    if isinstance(explained, PartyTrees):
        return page(request, "vertical.html", run=request.path_params["run"], seen=explained, party=party,
                    trouble=trouble, query="" if trouble else request.url.query)
    rows = [_shown_row(explained, one) for one in explained.rows]
    columns = [(name, share, share_text(share)) for name, share in explained.importance.items() if share > 0]
    rules = [{"if": " and ".join(rule["if"]) or "anything", "then": rule["then"],
              "rows": count_text(rule["support"]), "shares": ", ".join(shares_lines(rule["shares"]))}
             for rule in explained.rules[:MOST_RULES]]
    return page(request, "tree.html", run=request.path_params["run"], explained=explained, rows=rows, row=row,
                party=party, trouble=trouble, columns=columns[:MOST_COLUMNS], rules=rules,
                query="" if trouble else request.url.query)


def drawing(request: Request) -> Response:
    """The page that draws the trees, for a frame of the viewer."""
    explained = _explained(request, *(request.query_params.get(name, "").strip() for name in ("row", "party")))
    html = party_page(explained) if isinstance(explained, PartyTrees) else tree_html(explained)
    # Its script and style stand in the page itself: exactly these may run, and only here.
    allowed = {kind: f"'sha256-{_digest(content)}'" for kind, content in _INLINE.findall(html)}
    policy = POLICY.format(script=allowed["script"], style=allowed["style"], frame="'self'")
    return HTMLResponse(html, headers={"content-security-policy": policy})


def _explained(request: Request, row: str, party: str) -> Explained | PartyTrees:
    dashboard = dashboard_of(request)
    folder = dashboard.folder(request.path_params["run"])
    if row and not (row.isdecimal() and len(row) < 10):
        raise ConfigError(f"'{row}' is not the number of a row", remedy="rows are counted from 0")
    summary = folder / store.SUMMARY
    key = (folder, summary.stat().st_mtime_ns if summary.exists() else 0, row, party)
    known: Explained | PartyTrees | None = dashboard.memory.get(key)
    if known is not None:
        return known
    _refuse_foreign_parts(folder, dashboard)
    try:
        found = explain(Result(folder), [int(row)] if row else (), party=party or None)
    except DAMAGE as cause:
        raise RunError(f"the files of this run are damaged: {type(cause).__name__}: {cause}",
                       remedy="run it again") from cause
    for old in list(dashboard.memory)[:max(len(dashboard.memory) - _MOST_REMEMBERED + 1, 0)]:
        dashboard.memory.pop(old, None)
    dashboard.memory[key] = found
    return found


def _refuse_foreign_parts(folder: Path, dashboard: Dashboard) -> None:
    """To look at a run must neither import code that its config names nor download its data."""
    given = read_config(folder)
    foreign = [plugin for plugin in given.get("plugins", ()) if plugin not in dashboard.settings.plugins]
    if foreign:
        raise ConfigError(f"this run uses the plugin '{foreign[0]}', which the dashboard does not import by itself",
                          remedy=f"start it with: tequio ui --plugin {foreign[0]}")
    named = next(names_of_code(given), None)
    if named is not None:
        raise ConfigError(f"this run's '{named[0]}' names code to import ('{named[1][:80]}'), which the dashboard does "
                          "not do by itself", remedy=f"type: tequio explain {folder.name}")
    name = given["data"]["name"]
    if name in registry.names("dataset") and where_is(facts_of(registry.find("dataset", name))) in NOT_HERE:
        raise ConfigError(f"the rows of '{name}' are not on this machine", remedy=f"type: tequio data fetch {name}")


def _shown_row(explained: Explained, row: ExplainedRow) -> Plain:
    """One row: what is told about it, side by side."""
    sides = {title: cells_of(decision, row.truth) for title, decision in sides_of(explained, row).items()}
    names = dict.fromkeys(name for cells in sides.values() for name in cells)
    lines = [(name, ["\n".join(side.get(name, [])) for side in sides.values()]) for name in names
             if any(side.get(name) for side in sides.values())]
    return {"title": title_of(explained, row), "sides": list(sides), "lines": lines, "notes": notes_on(explained, row)}


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
