"""Sums of hidden numbers over rows: the same steps in the clear (the plaintext twin) and under encryption.

The label holder hides some whole numbers a row. Others add them up by bin, without seeing them, and hand back what the
rows on the left side of each split add up to; only the label holder can open that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tequio.components import name_of
from tequio.errors import DataError, PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.trees.columns import OwnColumns
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

_EXACT_BITS = 52
"""Whole numbers of that many bits are exact in double precision, and so are their sums in any order."""
_MOST_FRACTION_BITS = 32


class Adding(Protocol):
    """What a party without the key does with hidden numbers."""

    def left_sums(self, columns: OwnColumns, rows: NDArray[np.intp], places: NDArray[np.int64]) -> Any:
        """For each place, what these rows that lie left of it add up to, still hidden."""
        ...

    def send(self, offers: Sequence[Any]) -> Payload:
        """The left sums of several nodes as they travel."""
        ...


class Hiding(Protocol):
    """What the label holder does."""

    def hide(self, values: NDArray[np.int64]) -> Payload:
        """(rows, values) whole numbers, as they travel."""
        ...

    def open(self, payload: Mapping[str, Any], offers: int, whose: str) -> NDArray[np.int64]:
        """(offers, values) left sums that a party sent."""
        ...


class Form(NamedTuple):
    """Whole numbers that stand for real ones: in units of 2^-fraction, and with sums of fewer than `slot` bits."""

    fraction: int
    slot: int

    @classmethod
    def of_sums(cls, rows: int, largest: float) -> Form:
        """For numbers up to `largest` in size, with sums over all rows that stay exact in double precision."""
        whole = int(np.ceil(np.log2(max(rows, 1) + 1))) + max(int(np.ceil(np.log2(max(largest, 1.0)))), 0)
        fraction = min(_MOST_FRACTION_BITS, _EXACT_BITS - 1 - whole)
        return cls(fraction, fraction + whole + 2)

    @classmethod
    def of_counts(cls, rows: int) -> Form:
        """For counts of rows."""
        return cls(0, int(np.ceil(np.log2(max(rows, 1) + 1))) + 2)


def fixed_point(values: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    """Whole numbers that stand for these, in units of 2^-bits."""
    if not np.isfinite(values).all():
        raise DataError("gradients are not finite", remedy="lower the learning rate")
    return np.rint(np.ldexp(values, bits)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class PlainAdding:
    """Sums in the clear."""

    values: NDArray[np.int64]

    def left_sums(self, columns: OwnColumns, rows: NDArray[np.intp], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of up to 52 bits, so that the sums in double precision are exact."""
        sums = np.zeros((columns.bins.total if columns.bins.cuts else 0, self.values.shape[1]))
        taken = [np.ascontiguousarray(channel) for channel in self.values[rows].T.astype(np.float64)]
        looked_at = np.unique(columns.bins.column[places]) if len(places) else ()
        for column in looked_at:
            start, size = columns.bins.starts[column], columns.bins.sizes[column]
            codes = columns.codes[column, rows]
            for channel, values in enumerate(taken):
                sums[start:start + size, channel] = np.bincount(codes, values, size).cumsum()
        return sums[places].astype(np.int64)

    def send(self, offers: Sequence[NDArray[np.int64]]) -> Payload:
        """All offers one after the other."""
        return {"sums": np.concatenate(offers) if offers else np.zeros((0, self.values.shape[1]), np.int64)}


@dataclass(frozen=True)
class PlainHiding:
    """Nothing is hidden."""

    channels: int

    def hide(self, values: NDArray[np.int64]) -> Payload:
        """The numbers themselves."""
        return {"values": values}

    def open(self, payload: Mapping[str, Any], offers: int, whose: str) -> NDArray[np.int64]:
        """The sums themselves, if they are what was asked for."""
        sums = payload.get("sums")
        if not isinstance(sums, np.ndarray) or sums.shape != (offers, self.channels) or sums.dtype != np.int64:
            raise PayloadError(f"{whose} sent something that is not {offers} sums of {self.channels} numbers",
                               remedy="all parties need the same version of tequio")
        return sums


UNLIMITED = 1 << 30


def adding(hidden: Mapping[str, Any], party: Party, settings: Mapping[str, Any]) -> Adding:
    """What a party without the key can do with some hidden values, once it is known that they are sound."""
    if in_the_clear(settings):
        return PlainAdding(hidden["values"])
    from tequio.algorithms.vertical.trees.encrypted_sums import EncryptedAdding

    return EncryptedAdding.of(hidden, party, settings["encryption"])


def hiding(party: Party, settings: Mapping[str, Any], channels: int, form: Form) -> Hiding:
    """What the label holder does with so many values a row of some form."""
    if in_the_clear(settings):
        return PlainHiding(channels)
    from tequio.algorithms.vertical.trees.encrypted_sums import EncryptedHiding

    return EncryptedHiding.of(party, settings["encryption"], channels, form)


def most_channels(settings: Mapping[str, Any], form: Form) -> int:
    """How many values a row fit into one hidden number."""
    if in_the_clear(settings):
        return UNLIMITED
    most = (settings["encryption"].bits - 2) // form.slot
    if not most:
        raise DataError(f"numbers of {form.slot} bits do not fit under a key of {settings['encryption'].bits} bits",
                        remedy="use a longer key: algorithm.encryption.bits")
    return int(most)


def in_the_clear(settings: Mapping[str, Any]) -> bool:
    """Whether this is the plaintext twin."""
    return name_of(type(settings["encryption"])) == "plain"
