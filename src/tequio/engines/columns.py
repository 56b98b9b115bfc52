"""Replies of one chunk column by column: what 25 parties say alike crosses as one array, not as 25 messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_TABLE, _STACK, _LIST = "table", "stack", "list"


def to_columns(values: Sequence[Any]) -> list[Any]:
    """Dicts of the same names become a dict of columns, arrays of the same shape and type one stacked array."""
    first = values[0]
    if type(first) is dict and all(type(value) is dict and value.keys() == first.keys() for value in values):
        return [_TABLE, {name: to_columns([value[name] for value in values]) for name in first}]
    if isinstance(first, np.ndarray) and all(
            isinstance(value, np.ndarray) and value.shape == first.shape and value.dtype == first.dtype
            for value in values):
        return [_STACK, np.stack(values)]
    return [_LIST, list(values)]


def from_columns(column: Sequence[Any], count: int) -> list[Any]:
    """The values back, one a party; arrays are views of the stacked one."""
    kind, content = column
    if kind == _STACK:
        # `[...]` keeps an array of no dimensions an array.
        return [content[index, ...] for index in range(count)]
    if kind == _LIST:
        return list(content)
    names = list(content)
    parts = [from_columns(content[name], count) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)] if names else \
        [{} for _ in range(count)]
