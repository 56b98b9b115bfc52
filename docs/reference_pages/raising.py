"""Where the package makes its errors, and what they say: read from the source, without running it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tequio
from reference_pages.spelling import Texts, spelt

if TYPE_CHECKING:
    from collections.abc import Iterator

_NEAREST = "the message names the nearest one that there is"
_EXTRA = ("needed_for", "package", "extra")


class Raised(NamedTuple):
    """One message, the folder or file of the package that it comes from, and what it says to do."""

    error: str
    area: str
    message: str
    remedy: str


def raised_errors(names: set[str]) -> list[Raised]:
    """Every message of the named errors, each once an area, sorted."""
    root = Path(tequio.__file__).parent
    found: set[Raised] = set()
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        area = path.relative_to(root).parts[0].removesuffix(".py")
        found.update(_told(call, texts, area) for call, texts in _calls(tree, names) if area != "errors")
    return sorted((one for one in found if one.message.strip("…⟨⟩ ")), key=_without_holes_first)


def _without_holes_first(raised: Raised) -> tuple[str, str, bool, str]:
    return raised.error, raised.area, raised.message.lstrip("'").startswith("⟨"), raised.message.lstrip("'").lower()


def _calls(tree: ast.AST, names: set[str]) -> Iterator[tuple[ast.Call, Texts]]:
    """Calls that make one of the errors, with what names of texts stand for there."""
    everywhere = _texts(tree.body if isinstance(tree, ast.Module) else [])
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    seen: set[ast.Call] = set()
    for scope in [*reversed(functions), tree]:  # inner functions before those around them
        texts = everywhere | _texts(ast.walk(scope)) if scope is not tree else everywhere
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and _called(node) in names and node.args and node not in seen:
                seen.add(node)
                yield node, texts


def _texts(nodes: Iterator[ast.AST] | list[ast.stmt]) -> Texts:
    """Names that hold a text which is written out."""
    return {node.targets[0].id: node.value for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant | ast.JoinedStr | ast.BinOp | ast.IfExp)}


def _told(call: ast.Call, texts: Texts, area: str) -> Raised:
    name = _called(call)
    if name == "MissingExtra":
        given = dict(zip(("package", "extra", "needed_for"), (spelt(one, texts) for one in call.args), strict=False))
        needed_for, package, extra = (given[key] for key in _EXTRA)
        return Raised(name, area, f"{needed_for} needs the package '{package}', which is not installed",
                      f"type: pip install 'tequio[{extra}]'")
    remedy = next((_remedy(one.value, texts) for one in call.keywords if one.arg == "remedy"), "")
    return Raised(name, area, spelt(call.args[0], texts), remedy)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _remedy(node: ast.expr, texts: Texts) -> str:
    if isinstance(node, ast.Name) and isinstance(texts.get(node.id), ast.IfExp):
        node = texts[node.id]
    if isinstance(node, ast.IfExp):
        return ", or ".join(filter(None, (_remedy(node.body, texts), _remedy(node.orelse, texts))))
    if isinstance(node, ast.Call) and _called(node).lstrip("_") in ("nearest", "hint"):
        return _NEAREST
    written = spelt(node, texts)
    return written if written.strip("…⟨⟩ ") and not (written.startswith("⟨") and written.endswith("⟩")) else ""
