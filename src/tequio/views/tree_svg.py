"""A tree as a still picture for documents: SVG that reads on light and on dark paper, deeper levels folded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from tequio.views.trees import nodes_of, opened_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tequio.data.schema import Schema
    from tequio.learners.trees.explain import Explanation
    from tequio.learners.trees.tree import Tree

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

    node: dict[str, Any]
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


def _placed(nodes: Sequence[dict[str, Any]], opened: set[int], path: set[int]) -> dict[int, _Placed]:
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


def _shown(nodes: Sequence[dict[str, Any]], opened: set[int]) -> list[dict[str, Any]]:
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
