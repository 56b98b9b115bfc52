"""Trees as one self-contained HTML page to explore, as a still picture for documents, and vertical ones as text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError
from tequio.experiments.running.store import write_whole
from tequio.learners.trees.explain import answer_at, condition
from tequio.learners.trees.text import count_text
from tequio.learners.trees.tree import LEAF

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Schema
    from tequio.experiments.explaining.sources import PartyTrees
    from tequio.experiments.running.store import Plain
    from tequio.learners.trees.explain import Condition, Explanation
    from tequio.learners.trees.tree import Tree


TEMPLATE = Path(__file__).with_name("templates") / "tree.html"
"""The page that trees are put into."""
_MOST_OPEN = 40


@dataclass(frozen=True)
class ShownTree:
    """A tree of the page, and the rows by name whose paths can be lit in it."""

    name: str
    tree: Tree
    explained: Mapping[str, Explanation] = field(default_factory=dict)


def tree_page(trees: Sequence[ShownTree], schema: Schema, *, title: str = "Decision tree") -> str:
    """The page; with several trees the reader chooses between them."""
    data = {"classes": list(schema.target.names), "trees": [_plain_tree(shown, schema) for shown in trees]}
    # A closing tag inside a JSON string would end the script; the escaped form means the same to JavaScript.
    text = json.dumps(data).replace("<", "\\u003c")
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(title=escape(title), data=text)


def nodes_of(tree: Tree, schema: Schema) -> list[Plain]:
    """What a viewer needs to know of each node, in words."""
    below = _descendants(tree)
    return [_node(tree, schema, node, int(below[node])) for node in range(len(tree))]


def opened_nodes(tree: Tree, most: int, path: Iterable[int] = ()) -> set[int]:
    """Inner nodes to show with their children: the root, those of a path, then level by level and the largest first.

    A node whose children would make it more than `most` nodes in all stays closed.
    """
    held = (tree.branches != LEAF).sum(axis=1)
    opened = {node for node in (0, *path) if held[node]}
    shown = 1 + sum(int(held[node]) for node in opened)
    for node in np.lexsort((-tree.support, tree.depths)).tolist():
        if held[node] and node not in opened and tree.parents[node] in opened and shown + held[node] <= most:
            opened.add(node)
            shown += int(held[node])
    return opened


def _plain_tree(shown: ShownTree, schema: Schema) -> Plain:
    rows = [{"name": name, "nodes": list(why.nodes), "text": f"{name}: {why}"} for name, why in shown.explained.items()]
    return {"name": shown.name, "nodes": nodes_of(shown.tree, schema), "rows": rows,
            "open": sorted(opened_nodes(shown.tree, _MOST_OPEN))}


def _node(tree: Tree, schema: Schema, node: int, below: int) -> Plain:
    children = [int(child) for child in tree.branches[node] if child != LEAF]
    conditions = [condition(tree, node, child, schema) for child in children]
    leaf = tree.feature[node] == LEAF
    label = answer_at(tree, node, schema)
    return {"id": node, "depth": int(tree.depths[node]), "children": children,
            "branches": [_branch_text(step) for step in conditions],
            "title": label if leaf else schema.names[int(tree.feature[node])],
            "label": "leaf" if leaf else f"{'mostly' if tree.value is None else 'mean'} {label}",
            "support": count_text(tree.support[node]),
            "shares": [round(float(share), 4) for share in tree.probabilities[node]] if tree.value is None else [],
            "below": below}


def _branch_text(step: Condition) -> str:
    """What a branch asks, without the column that stands in the node."""
    text = step.value if step.relation == "==" else f"{step.relation} {step.value}"
    return f"{text} or missing" if step.or_missing else text


def _descendants(tree: Tree) -> NDArray[np.int64]:
    below = np.zeros(len(tree), dtype=np.int64)
    for node in range(len(tree) - 1, 0, -1):  # children come after their parents
        below[tree.parents[node]] += below[node] + 1
    return below


# The measures, the palette and the way depth runs to the right are those of the page in templates/tree.html.
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN, _LINE = 172, 58, 120, 10, 12, 20
_PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
# Boxes bring their own paper; what stands beside them is of a grey that reads on white and on black.
_STYLE = """
text { font: 12.5px system-ui, sans-serif; fill: #1b1f24; }
.small { font-size: 11px; }
.beside { font-size: 11px; fill: #6e7781; }
.title { font-size: 14px; font-weight: 600; fill: #6e7781; }
.box { fill: #f6f8fa; stroke: #8c959f; }
.edge { fill: none; stroke: #8c959f; stroke-width: 1.2; }
.box.lit { stroke: #d55e00; stroke-width: 2.5; }
.edge.lit { stroke: #d55e00; stroke-width: 3; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .box { fill: #161b22; } .beside, .title { fill: #9ea7b3; }
}
"""
_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@dataclass(frozen=True)
class _Placed:
    """A node that is shown, where it stands, and whether its children are folded away."""

    node: Plain
    x: float
    y: float
    folded: bool
    lit: bool


def tree_svg(tree: Tree, schema: Schema, *, title: str = "Decision tree", explained: Explanation | None = None,
             most: int = 60) -> str:
    """The drawing, of about `most` nodes; a folded node tells how many are below it. `explained` is a path to light."""
    path = () if explained is None else explained.nodes
    placed = _placed(nodes_of(tree, schema), opened_nodes(tree, most, path), set(path))
    legend, top = _legend(schema.target.names, _lowest(placed))
    width = max(max(place.x for place in placed.values()) + _WIDTH, 3 * _WIDTH) + _MARGIN
    parts = [f'<text class="title" x="{_MARGIN}" y="{_MARGIN + 12}">{_text(title, 80)}</text>',
             *(edge for place in placed.values() for edge in _edges(place, placed)),
             *(_box(place) for place in placed.values()), *legend]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{top:g}" '
            f'viewBox="0 0 {width:g} {top:g}" role="img" aria-label="{_text(title)}">\n'
            f"<style>{_STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n")


def _placed(nodes: Sequence[Plain], opened: set[int], path: set[int]) -> dict[int, _Placed]:
    """Leaves and folded nodes under each other, every other node beside the first of its children."""
    below, tops = float(2 * _MARGIN + _LINE), dict[int, float]()
    shown = _shown(nodes, opened)
    for node in shown:
        if node["id"] not in opened:
            tops[node["id"]] = below
            below += _HEIGHT + _GAP_Y
    for node in sorted(shown, key=lambda node: -node["depth"]):
        if node["id"] in opened:
            tops[node["id"]] = tops[node["children"][0]]
    return {node["id"]: _Placed(node, _MARGIN + node["depth"] * (_WIDTH + _GAP_X), tops[node["id"]],
                                bool(node["children"]) and node["id"] not in opened, node["id"] in path)
            for node in shown}


def _shown(nodes: Sequence[Plain], opened: set[int]) -> list[Plain]:
    """What is drawn, from top to bottom."""
    shown, waiting = [], [0]
    while waiting:
        node = nodes[waiting.pop()]
        shown.append(node)
        waiting += reversed(node["children"]) if node["id"] in opened else []
    return shown


def _lowest(placed: dict[int, _Placed]) -> float:
    return max(place.y for place in placed.values()) + _HEIGHT


def _edges(parent: _Placed, placed: dict[int, _Placed]) -> Iterator[str]:
    for child, branch in zip(parent.node["children"], parent.node["branches"], strict=True):
        if child not in placed:
            return
        end = placed[child]
        x1, y1, x2, y2 = parent.x + _WIDTH, parent.y + _HEIGHT / 2, end.x, end.y + _HEIGHT / 2
        yield (f'<path class="edge{" lit" if end.lit else ""}" d="M{x1:g},{y1:g} C{x1 + 28:g},{y1:g} '
               f'{x1 + 14:g},{y2:g} {x1 + 42:g},{y2:g} L{x2:g},{y2:g}"/>'
               f'<text class="beside" x="{x2 - 8:g}" y="{y2 - 4:g}" text-anchor="end">{_text(branch, 16)}</text>')


def _box(place: _Placed) -> str:
    node = place.node
    parts = [f'<rect class="box{" lit" if place.lit else ""}" width="{_WIDTH}" height="{_HEIGHT}" rx="7"/>',
             f'<text x="8" y="17">{_text(node["title"], 18 if place.folded else 23)}</text>',
             f'<text class="small" x="8" y="32">{_text(node["label"] + " · " + node["support"], 26)}</text>',
             *_shares(node["shares"])]
    if place.folded:
        parts.append(f'<text x="{_WIDTH - 8}" y="17" text-anchor="end">+{node["below"]}</text>')
    return f'<g transform="translate({place.x:g},{place.y:g})">{"".join(parts)}</g>'


def _shares(shares: Sequence[float]) -> Iterator[str]:
    x = 8.0
    for index, share in enumerate(shares):
        width = share * (_WIDTH - 16)
        if width > 0.3:
            yield f'<rect x="{x:.4g}" y="40" width="{width:.4g}" height="10" {_fill(index)}/>'
        x += width


def _legend(names: Sequence[str], top: float) -> tuple[list[str], float]:
    """The classes and their colours, three a line below the tree; and where the picture ends."""
    parts = []
    for index, name in enumerate(names):
        x, y = _MARGIN + index % 3 * _WIDTH, top + _MARGIN + index // 3 * _LINE
        parts.append(f'<rect x="{x}" y="{y:g}" width="11" height="11" rx="2" {_fill(index)}/>'
                     f'<text class="beside" x="{x + 16}" y="{y + 9:g}">{_text(name, 24)}</text>')
    return parts, top + _MARGIN + -(-len(names) // 3) * _LINE + _MARGIN


def _fill(index: int) -> str:
    faded = "" if index < len(_PALETTE) else ' opacity="0.5"'
    return f'fill="{_PALETTE[index % len(_PALETTE)]}"{faded}'


def _text(text: str, most: int | None = None) -> str:
    shown = text if most is None or len(text) <= most else text[:most - 1] + "…"
    return escape(_NOT_IN_XML.sub("�", shown))


_MOST_TREES = 3


def party_text(seen: PartyTrees, most: int = _MOST_TREES) -> str:
    """The first trees as indented text, and what the viewer's own columns did in all of them."""
    who = f"party {seen.party} ({seen.role})" if seen.party else "the coordinator"
    lines = [f"{len(seen.trees)} trees of '{seen.algorithm}' as {who} sees them", ""]
    for number, tree in enumerate(seen.trees[:most], start=1):
        lines += [f"tree {number}", *_lines(tree, 0, "", ""), ""]
    if len(seen.trees) > most:
        lines += [f"... and {len(seen.trees) - most} more (--json lists all, --html FILE draws all)", ""]
    lines += [f"own splits    {_counted(seen.columns)}", f"hidden splits {_counted(seen.hidden, 'party ')}"]
    return "\n".join(lines)


def save_party_page(seen: PartyTrees, path: str | Path) -> None:
    """Write all trees as an `.html` page on which they open and close."""
    path = Path(path)
    if path.suffix != ".html":
        raise ConfigError(f"vertical trees cannot be drawn as '{path.name}'", remedy="give the file a name that ends "
                                                                                     "in .html")
    write_whole(path, party_page(seen).encode())


def party_page(seen: PartyTrees) -> str:
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


def _inner(tree: list[Plain]) -> list[int]:
    return [node["id"] for node in tree if node["children"]]


def _lines(tree: list[Plain], node: int, indent: str, branch: str) -> Iterator[str]:
    here = tree[node]
    told = here["title"] if here["children"] else f"{here['title']}  ({_leaf_facts(here)})"
    yield f"{indent}{f'{branch}: ' if branch else ''}{told}"
    for child, way in zip(here["children"], here["branches"], strict=True):
        yield from _lines(tree, child, indent + "  ", way)


def _leaf_facts(leaf: Plain) -> str:
    return str(leaf["label"] if leaf["hidden"] else leaf["support"])


def _counted(counts: Any, before: str = "") -> str:
    return ", ".join(f"{before}{name}: {count}" for name, count in counts.items()) or "none"
