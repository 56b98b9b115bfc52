"""Vertical trees as one party sees them: indented text, and a page to explore."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError
from tequio.experiments.store import write_whole
from tequio.views.trees import TEMPLATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.experiments.vertical_explaining import PartyTrees

_MOST_TREES = 3


def as_text(seen: PartyTrees, most: int = _MOST_TREES) -> str:
    """The first trees as indented text, and what the viewer's own columns did in all of them."""
    who = f"party {seen.party} ({seen.role})" if seen.party else "the coordinator"
    lines = [f"{len(seen.trees)} trees of '{seen.algorithm}' as {who} sees them", ""]
    for number, tree in enumerate(seen.trees[:most], start=1):
        lines += [f"tree {number}", *_lines(tree, 0, "", ""), ""]
    if len(seen.trees) > most:
        lines += [f"... and {len(seen.trees) - most} more (--json lists all, --html FILE draws all)", ""]
    lines += [f"own splits    {_counted(seen.columns)}", f"hidden splits {_counted(seen.hidden, 'party ')}"]
    return "\n".join(lines)


def save_page(seen: PartyTrees, path: str | Path) -> None:
    """Write all trees as an `.html` page on which they open and close."""
    path = Path(path)
    if path.suffix != ".html":
        raise ConfigError(f"vertical trees cannot be drawn as '{path.name}'", remedy="give the file a name that ends "
                                                                                     "in .html")
    write_whole(path, page(seen).encode())


def page(seen: PartyTrees) -> str:
    """The page. It holds nothing that the viewer does not see."""
    shares = any(node["shares"] for tree in seen.trees for node in tree)
    data = {"classes": list(seen.classes) if shares else [],
            "trees": [{"name": str(number), "nodes": tree, "rows": [], "open": _inner(tree)}
                      for number, tree in enumerate(seen.trees, start=1)]}
    who = f"party {seen.party}" if seen.party else "the coordinator"
    title = escape(f"{seen.run}: {seen.algorithm} as {who} sees it")
    # A closing tag inside a JSON string would end the script; the escaped form means the same to JavaScript.
    text = json.dumps(data).replace("<", "\\u003c")
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(title=title, data=text)


def _inner(tree: list[dict[str, Any]]) -> list[int]:
    return [node["id"] for node in tree if node["children"]]


def _lines(tree: list[dict[str, Any]], node: int, indent: str, branch: str) -> Iterator[str]:
    here = tree[node]
    told = here["title"] if here["children"] else f"{here['title']}  ({_leaf_facts(here)})"
    yield f"{indent}{f'{branch}: ' if branch else ''}{told}"
    for child, way in zip(here["children"], here["branches"], strict=True):
        yield from _lines(tree, child, indent + "  ", way)


def _leaf_facts(leaf: dict[str, Any]) -> str:
    return str(leaf["label"] if leaf["hidden"] else leaf["support"])


def _counted(counts: Any, before: str = "") -> str:
    return ", ".join(f"{before}{name}: {count}" for name, count in counts.items()) or "none"
