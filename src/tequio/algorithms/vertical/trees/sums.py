"""Sums of hidden numbers over rows: the same steps in the clear (the plaintext twin) and under encryption.

The label holder hides some whole numbers of each row. Others add them up by bin, without seeing them, and hand back
what the rows on the left side of each split add up to; only the label holder, which has the key, can open that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict

import numpy as np

from tequio.errors import ConfigError, DataError, PayloadError
from tequio.federation.payload import Payload
from tequio.federation.task import Done, Reveals, record, task
from tequio.privacy.encryption.numbers import source
from tequio.privacy.encryption.paillier import Paillier
from tequio.privacy.encryption.plain import Plain
from tequio.registry import build, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.trees.offering import OwnColumns
    from tequio.federation.population import Party

ExactEncryption = Paillier | Plain
"""Encryptions that do not round: trees would differ from run to run otherwise."""

UNLIMITED = 1 << 30

_EXACT_BITS = 52
"""Whole numbers of that many bits are exact in double precision, and so are their sums in any order."""
_MOST_FRACTION_BITS = 32
_DEVIATIONS = 12
"""Room for noise: more than it ever takes."""


@record
class KeySettings:
    """The encryption."""

    encryption: ExactEncryption


class OwnKey(TypedDict, total=False):
    """The label holder's secret key."""

    key: Payload


def made_encryption(given: str | Mapping[str, Any]) -> ExactEncryption:
    """The scheme that a config names; sums have to be exact, or trees would differ from run to run."""
    table = {"name": given} if isinstance(given, str) else dict(given)
    scheme = build("encryption", table.pop("name", "paillier"), table, where="algorithm.encryption")
    if not isinstance(scheme, ExactEncryption):
        raise ConfigError(f"trees need exact sums, and the encryption '{name_of(type(scheme))}' rounds them",
                          remedy="set algorithm.encryption = 'paillier' (or 'plain', without encryption)")
    return scheme


@task("vertical trees: make keys", settings=KeySettings, reply=Done, reveals=Reveals.NOTHING)
def make_keys(party: Party, payload: Payload, settings: KeySettings) -> Done:
    """At the label holder: a new key pair, of which the secret part never leaves."""
    scheme = settings.encryption
    if isinstance(scheme, Paillier):
        party.keep(OwnKey, {"key": scheme.generate(source(scheme.randomness, party.rng("keys"))).to_payload()})
    return {}


class Adding(Protocol):
    """What a party without the key does with hidden numbers, of which each row has as many as there are channels."""

    @property
    def channels(self) -> int: ...  # noqa: D102

    def left_sums(self, columns: OwnColumns, rows: NDArray[np.intp], places: NDArray[np.int64],
                  noise: NDArray[np.int64] | None = None) -> Any:
        """For each place, what these rows that lie left of it add up to, still hidden; `noise` is added to each bin."""
        ...

    def send(self, offers: Sequence[Any]) -> Payload:
        """The left sums of several nodes as they travel."""
        ...


class Hiding(Protocol):
    """What the label holder does."""

    def hide(self, values: NDArray[np.int64]) -> Payload:
        """(rows, values) whole numbers, as they travel."""
        ...

    def open(self, payload: Payload, offers: int, whose: str) -> NDArray[np.int64]:
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
    def of_gradients(cls, rows: int, largest: float, noise: float, bins: int) -> Form:
        """For gradients up to `largest`, with noise of some deviation on the sums of so many bins of each column."""
        return cls.of_sums(rows, largest + _DEVIATIONS * noise * bins / max(rows, 1))

    @classmethod
    def of_counts(cls, rows: int) -> Form:
        """For counts of rows."""
        return cls(0, int(np.ceil(np.log2(max(rows, 1) + 1))) + 2)


def fixed_point(values: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    """Whole numbers that stand for these, in units of 2^-bits."""
    if not np.isfinite(values).all():
        raise DataError("gradients are not finite", remedy="lower learner.learning_rate")
    return np.rint(np.ldexp(values, bits)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class PlainAdding:
    """Sums in the clear."""

    values: NDArray[np.int64]

    @property
    def channels(self) -> int:
        """How many numbers a row has."""
        return int(self.values.shape[1])

    def left_sums(self, columns: OwnColumns, rows: NDArray[np.intp], places: NDArray[np.int64],
                  noise: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Numbers of up to 52 bits, so that the sums in double precision are exact."""
        sums = np.zeros((columns.bins.total if columns.bins.cuts else 0, self.values.shape[1]))
        taken = [np.ascontiguousarray(channel) for channel in self.values[rows].T.astype(np.float64)]
        looked_at = np.unique(columns.bins.column[places]) if len(places) else ()
        for column in looked_at:
            start, size = columns.bins.starts[column], columns.bins.sizes[column]
            codes = columns.codes[column, rows]
            for channel, values in enumerate(taken):
                binned = np.bincount(codes, values, size)
                if noise is not None:
                    binned += noise[start:start + size, channel]
                sums[start:start + size, channel] = binned.cumsum()
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

    def open(self, payload: Payload, offers: int, whose: str) -> NDArray[np.int64]:
        """The sums themselves, if they are what was asked for."""
        sums = payload.get("sums")
        if not isinstance(sums, np.ndarray) or sums.shape != (offers, self.channels) or sums.dtype != np.int64:
            raise PayloadError(f"{whose} sent something that is not {offers} sums of {self.channels} numbers",
                               remedy="all parties need the same version of tequio")
        return sums


def most_channels(encryption: ExactEncryption, form: Form) -> int:
    """How many values of a row fit into one hidden number."""
    if isinstance(encryption, Plain):
        return UNLIMITED
    most = (encryption.bits - 2) // form.slot
    if not most:
        raise DataError(f"numbers of {form.slot} bits do not fit under a key of {encryption.bits} bits",
                        remedy="use a longer key: algorithm.encryption.bits")
    return most
