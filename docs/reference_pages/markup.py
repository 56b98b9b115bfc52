"""Markdown from plain values."""

from __future__ import annotations

import json
import re
from typing import Any


def page(title: str, *parts: str) -> str:
    """A page of parts, leaving out empty ones."""
    return "\n\n".join([f"# {title}", *filter(None, parts)]) + "\n"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def anchor(name: str) -> str:
    """A link to the heading of that name on the same page."""
    return f"[{name}](#{name})"


def text(prose: str) -> str:
    """Prose for a table cell: one line, with nothing that Markdown would take for markup outside of code."""
    pieces = re.split(r"(`[^`]*`)", " ".join(prose.split()))
    return "".join(piece if piece.startswith("`") else re.sub(r"([|*_<\[\]])", r"\\\1", piece) for piece in pieces)


def code(value: Any) -> str:
    """A default as TOML and JSON write it."""
    plain = list(value) if isinstance(value, tuple) else value
    return f"`{json.dumps(plain, default=str)}`"


def first_line(thing: Any) -> str:
    """What a docstring says first."""
    return (thing.__doc__ or "").strip().split("\n")[0]
