"""A message as it stands in the source: what is filled in at run time becomes ⟨a word for it⟩."""

from __future__ import annotations

import ast

Texts = dict[str, ast.expr]

_TRANSPARENT = {"sorted", "list", "tuple", "set", "str", "repr", "int", "float", "round", "abs", "next", "iter",
                "max", "min", "sum", "join", "map"}
_COUNTED = {"data": "rows", "dataset": "rows", "part": "rows", "order": "rows", "part rows": "rows"}
_PLAIN_WORDS = {"strerror": "cause", "self": ""}


def spelt(node: ast.expr, texts: Texts) -> str:
    """The text that an expression makes."""
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(spelt(part, texts) for part in node.values)
        case ast.FormattedValue():
            return _filled(node.value, texts)
        case ast.BinOp(op=ast.Add()):
            return spelt(node.left, texts) + spelt(node.right, texts)
        case ast.Name() if node.id in texts:
            return spelt(texts[node.id], {name: text for name, text in texts.items() if name != node.id})
    return _filled(node, texts)


def _filled(node: ast.expr, texts: Texts) -> str:
    """What stands in a gap: a text that is known after all, one of two texts, or a word for the value."""
    if isinstance(node, ast.IfExp) and _is_text(node.body) and _is_text(node.orelse):
        return _either(spelt(node.body, texts), spelt(node.orelse, texts))
    if isinstance(node, ast.Name) and isinstance(texts.get(node.id), ast.Constant | ast.JoinedStr | ast.IfExp):
        return spelt(node, texts)
    return f"⟨{word}⟩" if (word := _word(node)) else "…"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _either(first: str, second: str) -> str:
    if not first or not second:
        return f"({first or second})" if len(first + second) < 3 else f"[{first or second}]"
    return f"({first} | {second})"


def _word(node: ast.expr) -> str:
    """What a reader would call a value: its name, without the code around it."""
    match node:
        case ast.Name():
            return _words(node.id)
        case ast.Attribute(attr="__name__" | "__qualname__"):
            return "type" if isinstance(node.value, ast.Call) else _word(node.value)
        case ast.Attribute(attr="name" | "names" | "id" | "message", value=ast.Name() as owner) if owner.id != "self":
            return _words(owner.id)
        case ast.Attribute():
            return _words(node.attr)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return _words(key)
        case ast.Subscript() | ast.Starred() | ast.Await():
            return _word(node.value)
        case ast.GeneratorExp() | ast.ListComp() | ast.SetComp():
            return _word(node.generators[0].iter)
        case ast.Call():
            return _word_of_call(node)
        case ast.BinOp():
            return _word(node.left) or _word(node.right)
        case ast.BoolOp():
            return _word(node.values[-1])
        case ast.UnaryOp():
            return _word(node.operand)
        case ast.IfExp():
            return _word(node.body) or _word(node.orelse)
    return ""


def _word_of_call(call: ast.Call) -> str:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    inner = _word(call.args[-1] if name == "map" else call.args[0]) if call.args else ""
    if name == "len":
        return f"number of {_COUNTED.get(inner, inner)}" if inner else "number"
    if name in _TRANSPARENT or not isinstance(call.func, ast.Attribute):
        return inner or _words(name)
    return _word(call.func.value) or inner


def _words(name: str) -> str:
    plain = name.strip("_").replace("_", " ").lower()
    return _PLAIN_WORDS.get(plain, plain)
