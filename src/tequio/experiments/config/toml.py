"""TOML both ways: reading with errors that name the place, and writing, which Python's standard library leaves out."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


Given = dict[str, Any]
"""A table as it was written: a config with only the keys that were given, or a part of one."""

_TABLES = (".csv", ".tsv", ".gz", ".parquet", ".xlsx", ".xls", ".ods")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


def read_toml(path: Path) -> Given:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no file '{path}'", remedy=_nearest_file(path)) from None
    except IsADirectoryError:
        raise ConfigError(f"'{path}' is a folder", remedy="give the path of a .toml file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        if path.suffix.lower() in _TABLES:
            raise ConfigError(f"'{path.name}' is a table, not a config", remedy="look at it and get a config for it: "
                              f"tequio init {path}") from None
        raise ConfigError(f"{path.name} is not valid TOML: {cause}", remedy="correct that line") from None


def _nearest_file(path: Path) -> str:
    near = get_close_matches(path.name, [entry.name for entry in path.parent.glob("*")], n=1)
    return f"did you mean '{path.with_name(near[0])}'?" if near else "tequio init TABLE.csv writes a config for a table"


def parse_setting(text: str) -> tuple[str, object]:
    """A `key=value` of the command line: a dotted key and a TOML value; what is no TOML value is taken as text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"'{text}' is not a setting", remedy="write --set key=value, as in --set rounds=20")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def write_toml(table: Mapping[str, object]) -> str:
    """A nested table as TOML; keys whose value is None are left out, because TOML has no such value."""
    return "\n".join(_lines(table, ())).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    known = {key: value for key, value in table.items() if value is not None}
    plain = {key: value for key, value in known.items() if not isinstance(value, Mapping) and not _is_tables(value)}
    lines = [f"{toml_key(key)} = {toml_value(value)}" for key, value in plain.items()]
    for key in [key for key in known if key not in plain]:
        inner = (*path, toml_key(key))
        tables, brackets = ([known[key]], "[{}]") if isinstance(known[key], Mapping) else (known[key], "[[{}]]")
        for item in tables:
            lines += ["", brackets.format(".".join(inner)), *_lines(item, inner)]
    return lines


def _is_tables(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)


def toml_key(key: str) -> str:
    """A key, in quotes where it needs them."""
    return key if _BARE_KEY.match(key) else _text(key)


def toml_value(value: object) -> str:
    """A value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items()
                               if item is not None) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    # JSON's escapes are TOML's too, except for the delete character, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
