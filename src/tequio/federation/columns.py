"""Payloads of one chunk column by column: what 25 parties say alike is one array, not 25 of them.

A column is an array whose first axis is the parties, a list of one value a party, or a dict of columns by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import msgspec
import numpy as np

from tequio.federation.payload import PLAIN, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.federation.payload import Payload


@dataclass(frozen=True)
class Columns(Sequence["Payload"]):
    """What the vectorised form of a task may answer with: as good as a list of payloads, but handled in one go."""

    content: Payload
    parties: int

    def __len__(self) -> int:
        return self.parties

    @overload
    def __getitem__(self, index: int) -> Payload: ...
    @overload
    def __getitem__(self, index: slice) -> list[Payload]: ...
    def __getitem__(self, index: int | slice) -> Payload | list[Payload]:
        return self.payloads[index]

    def __iter__(self) -> Iterator[Payload]:
        return iter(self.payloads)

    @cached_property
    def payloads(self) -> list[Payload]:
        """One payload a party; arrays are views of the stacked ones."""
        return from_columns(self.content, self.parties)

    def sizes(self) -> list[int]:
        """Exactly the size of each payload. Where only plain values differ, so do only their own lengths."""
        if not _is_simple(self.content):
            return [size(payload) for payload in self.payloads]
        lists = [column for column in self.content.values() if isinstance(column, list)]
        lengths = [sum(map(_encoded_length, row)) for row in zip(*lists, strict=True)] or [0] * self.parties
        rest = size(self.payloads[0]) - lengths[0]
        return [rest + length for length in lengths]


def to_columns(values: Sequence[Any]) -> Any:
    """Dicts of the same names become a dict of columns, arrays of the same shape and type one stacked array."""
    first = values[0]
    if type(first) is dict and all(type(value) is dict and value.keys() == first.keys() for value in values):
        return {name: to_columns([value[name] for value in values]) for name in first}
    if isinstance(first, np.ndarray) and all(
            isinstance(value, np.ndarray) and value.shape == first.shape and value.dtype == first.dtype
            for value in values):
        return np.stack(values)
    return list(values)


def from_columns(column: Any, count: int) -> list[Any]:
    """The values back, one a party; arrays are views of the stacked one."""
    if isinstance(column, np.ndarray):
        # `[...]` keeps an array of no dimensions an array.
        return [column[index, ...] for index in range(len(column))]
    if isinstance(column, list):
        return column
    parts = [from_columns(column[name], count) for name in column]
    return [dict(zip(column, row, strict=True)) for row in zip(*parts, strict=True)] if parts else \
        [{} for _ in range(count)]


def _encoded_length(value: Any) -> int:
    return len(msgspec.msgpack.encode(value))


def _is_simple(content: Payload) -> bool:
    """Whether all that differs between the parties' payloads is plain values at the top, and what arrays hold."""
    return all(_is_stacked(column) or (isinstance(column, list) and PLAIN.issuperset(map(type, column)))
               for column in content.values())


def _is_stacked(column: Any) -> bool:
    return isinstance(column, np.ndarray) or (isinstance(column, dict) and all(map(_is_stacked, column.values())))
