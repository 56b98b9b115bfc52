"""Tables in blocks of rows: a piece of each column, so that memory holds a block and not the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tequio.data.inputs.column import Column, column_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array
    from tequio.data.inputs.column import Columns


@dataclass(frozen=True, eq=False)
class Piece:
    """A column in one block of rows: numbers (NaN where missing), or codes of distinct `texts` (-1 where missing).

    `whole` says that the numbers are integers, `typed` that their type in the file says so rather than their values,
    `dated` that they count days since 1970.
    """

    values: Array
    texts: Sequence[str] | None = None
    whole: bool = False
    typed: bool = True
    dated: bool = False

    @cached_property
    def missing(self) -> NDArray[np.bool_]:
        """Which values are missing."""
        lost: NDArray[np.bool_] = np.isnan(self.values) if self.texts is None else self.values < 0
        return lost


class Sink(Protocol):
    """Takes the blocks of a table."""

    def add(self, pieces: Sequence[Piece]) -> None:
        """One more block: a piece of each column."""
        ...

    def restart(self) -> None:
        """Forget all blocks."""
        ...


def piece_of_texts(name: str, distinct: Sequence[str], codes: NDArray[np.integer[Any]], *, parse: bool) -> Piece:
    """A piece from its distinct texts and which of them each row has (-1: none), as `column_of` reads these texts."""
    column = column_of(name, np.array(distinct, dtype=object), parse=parse)
    if not column.is_text:
        return Piece(np.append(column.values, np.nan)[codes], whole=column.whole)
    known: dict[str, int] = {}
    places = [-1 if lost else known.setdefault(text, len(known))
              for text, lost in zip(column.values, column.missing, strict=True)]
    return Piece(np.array([*places, -1], np.min_scalar_type(-len(known) - 1))[codes], tuple(known))


def piece_of_values(name: str, values: Array) -> Piece:
    """A piece from an array of any type."""
    column = column_of(name, values)
    if column.is_text:
        known: dict[str, int] = {}
        codes = np.array([known.setdefault(text, len(known)) for text in column.values], np.int64)
        codes[column.missing] = -1
        return piece_of_texts(name, tuple(known), codes, parse=False)
    present = column.present
    whole = not column.dated and bool(np.isfinite(present).all() and (np.floor(present) == present).all())
    return Piece(column.values, whole=whole, typed=values.dtype.kind != "f", dated=column.dated)


@dataclass
class Kind:
    """What a column is called, and what its pieces have shown it to hold."""

    name: str
    numbers: bool = False
    texts: bool = False
    dated: bool = False
    missing: int = 0
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float64))
    _whole: bool = True
    _typed: bool = True

    def see(self, piece: Piece) -> None:
        """Take one more piece into account."""
        missing = int(piece.missing.sum())
        self.missing += missing
        if piece.texts is None:
            self.numbers, self.dated, self.dtype = True, piece.dated, piece.values.dtype
            self._whole, self._typed = self._whole and piece.whole, self._typed and piece.typed
        elif missing < len(piece.missing):  # texts that are all missing fit among numbers
            self.texts = True

    @property
    def is_text(self) -> bool:
        """Whether the column holds texts."""
        return self.texts or not self.numbers

    @property
    def whole(self) -> bool:
        """Whether all numbers are integers. Tables without a missing integer turn such columns into floats, so floats
        that are integers count as such where one is missing."""
        return self.numbers and not self.texts and self._whole and (self._typed or self.missing > 0)


def values_of(kind: Kind, piece: Piece) -> Array:
    """The values of a piece of a column: numbers, or texts (empty where missing)."""
    if not kind.is_text:
        return piece.values.astype(kind.dtype, copy=False) if piece.texts is None else np.full(
            len(piece.values), np.nan, kind.dtype)
    codes = piece.values if piece.texts is not None else np.full(len(piece.values), -1)
    return np.array([*(piece.texts or ()), ""], dtype=object)[codes]


class InMemory:
    """A sink that keeps the blocks in memory."""

    def __init__(self) -> None:
        self._blocks: list[Sequence[Piece]] = []

    def add(self, pieces: Sequence[Piece]) -> None:
        """One more block."""
        self._blocks.append(pieces)

    def restart(self) -> None:
        """Forget all blocks."""
        self._blocks.clear()

    def columns(self, kinds: Sequence[Kind]) -> Columns:
        """The columns of all blocks."""
        return {kind.name: _joined(kind, [block[place] for block in self._blocks]) for place, kind in enumerate(kinds)}


def _joined(kind: Kind, pieces: Iterable[Piece]) -> Column:
    empty = np.empty(0, object if kind.is_text else kind.dtype)
    values, missing = [empty], [np.empty(0, bool)]
    for piece in pieces:
        values.append(values_of(kind, piece))
        missing.append(piece.missing)
    return Column(kind.name, np.concatenate(values), np.concatenate(missing), kind.whole, kind.dated)
