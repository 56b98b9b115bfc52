"""Sums of encrypted numbers by bin, with as few multiplications as there can be.

All values of a row are packed into one ciphertext. Two columns of 32 bins each are added up together: each row goes to
one of 32 x 32 cells, and the cells, of which there are fewer than rows, go to the bins of either column. That nearly
halves the work where there are many more rows than cells; columns with few bins share a table of cells by the dozen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tequio.algorithms.vertical.trees.sums import OwnKey, PlainAdding, PlainHiding
from tequio.errors import EncryptionError
from tequio.privacy.encryption.numbers import pack, source
from tequio.privacy.encryption.paillier_keys import encrypt_by_factors
from tequio.privacy.encryption.plain import Plain
from tequio.privacy.encryption.scheme import Encrypted, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.trees.offering import OwnColumns
    from tequio.algorithms.vertical.trees.sums import Adding, ExactEncryption, Form, Hiding
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.privacy.encryption.exact import ExactKey, ExactSecret
    from tequio.privacy.encryption.numbers import Source
    from tequio.privacy.encryption.paillier import Paillier, PaillierGroup
    from tequio.privacy.encryption.paillier_keys import Factors

Ciphertext = Any
"""A number of gmpy2, which declares no types."""


@dataclass(frozen=True, eq=False)
class EncryptedHiding:
    """The label holder's side: it alone has the secret key."""

    secret: ExactSecret
    draw: Source
    channels: int
    form: Form

    @classmethod
    def of(cls, party: Party, scheme: Paillier, channels: int, form: Form) -> EncryptedHiding:
        """With the key in the party's private state."""
        secret = scheme.secret_key(party.recall(OwnKey)["key"])
        return cls(secret, source(scheme.randomness, party.rng("encrypt")), channels, form)

    def hide(self, values: NDArray[np.int64]) -> Payload:
        """One ciphertext per row, and the public key that it is of."""
        public, slot = self.secret.public, self.form.slot
        bits = slot - 2 - len(values).bit_length()
        if float(np.abs(values).max(initial=0)) > 2.0 ** bits:
            raise EncryptionError(f"values overflow the fixed-point range of {bits} bits", remedy="lower "
                                  "learner.learning_rate, or standardise a target of numbers")
        factors, group = cast("Factors", self.secret.secret), cast("PaillierGroup", public.group)
        content = encrypt_by_factors(factors, [pack(row, slot) for row in values.tolist()], group.power_bits, self.draw)
        rows = Encrypted(content, len(content), self.form.fraction, bits, self.channels, slot)
        return {"key": public.to_payload(), "rows": public.send(rows, self.draw)}

    def open(self, payload: Payload, offers: int, whose: str) -> NDArray[np.int64]:
        """(offers, values) sums; what was tampered with, is of another key or has overflowed is refused."""
        if not offers:
            return np.zeros((0, self.channels), np.int64)
        given = self.secret.public.receive(payload.get("sums", {}), whose)
        if (given.count, given.columns, given.slot, given.fraction) != (offers, self.channels, self.form.slot,
                                                                        self.form.fraction):
            raise refused(whose, f"they are not {offers} sums of {self.channels} values")
        opened = [self.secret.secret.open(row) for row in given.content]
        try:
            numbers = self.secret.public.numbers(replace(given, bits=self.form.slot - 2), opened)
        except EncryptionError as cause:
            raise EncryptionError(f"the sums of {whose} cannot be used: {cause.message}", remedy=cause.remedy) from None
        return np.array(numbers, dtype=np.int64).reshape(offers, self.channels)


@dataclass(frozen=True, eq=False)
class EncryptedAdding:
    """The side of a party without the secret key."""

    public: ExactKey
    rows: Encrypted
    draw: Source

    @classmethod
    def of(cls, hidden: Payload, party: Party, scheme: Paillier) -> EncryptedAdding:
        """With what the label holder sent, once it is known to be sound."""
        public = scheme.public_key(hidden["key"])
        rows = public.receive(hidden["rows"], "the label holder")
        return cls(public, rows, source(scheme.randomness, party.rng("offers under encryption")))

    @property
    def channels(self) -> int:
        """How many numbers a ciphertext holds."""
        return self.rows.columns

    def left_sums(self, columns: OwnColumns, rows: NDArray[np.intp], places: NDArray[np.int64],
                  noise: NDArray[np.int64] | None = None) -> list[Ciphertext]:
        """Ciphertexts of what the rows left of each place add up to."""
        bins, modulus = columns.bins, cast("PaillierGroup", self.public.group).key.squared
        below: list[Ciphertext | None] = [None] * (bins.total if bins.cuts else 0)
        looked_at = np.unique(bins.column[places]) if len(places) else np.zeros(0, np.int64)
        content = [self.rows.content[row] for row in rows.tolist()]
        for group in column_groups([int(bins.sizes[column]) for column in looked_at], len(rows)):
            chosen = looked_at[group]
            sums = _sums_by_column(content, columns.codes[chosen][:, rows], bins.sizes[chosen], modulus)
            for column, found in zip(chosen.tolist(), sums, strict=True):
                if noise is not None:
                    start = bins.starts[column]
                    found = self._noised(found, noise[start:start + len(found)], modulus)
                below[bins.starts[column]:bins.starts[column] + len(found)] = _running(found, modulus)
        zero = self.public.group.zero()
        return [zero if below[index] is None else below[index] for index in places.tolist()]

    def _noised(self, values: list[Ciphertext | None], noise: NDArray[np.int64], modulus: int) -> list[Ciphertext]:
        """With a known number added to each, which takes no randomness: what is sent gets fresh one."""
        n = cast("PaillierGroup", self.public.group).key.n
        added = [1 + pack(row, self.rows.slot) * n for row in noise.tolist()]
        return [number % modulus if value is None else value * number % modulus
                for value, number in zip(values, added, strict=True)]

    def send(self, offers: Sequence[list[Ciphertext]]) -> Payload:
        """All offers, as many in a ciphertext as fit, with fresh randomness."""
        content = tuple(value for node in offers for value in node)
        if not content:
            return {}
        sums = replace(self.rows, content=content, count=len(content), bits=self.rows.slot - 2, fresh=False)
        return {"sums": self.public.send(self.public.pack(sums), self.draw)}


def adding(hidden: Payload, party: Party, encryption: ExactEncryption) -> Adding:
    """What a party without the key can do with some hidden values, once it is known that they are sound."""
    if isinstance(encryption, Plain):
        return PlainAdding(hidden["values"])
    return EncryptedAdding.of(hidden, party, encryption)


def hiding(party: Party, encryption: ExactEncryption, channels: int, form: Form) -> Hiding:
    """What the label holder does with some values of each row, of some form."""
    if isinstance(encryption, Plain):
        return PlainHiding(channels)
    return EncryptedHiding.of(party, encryption, channels, form)


def column_groups(sizes: Sequence[int], rows: int) -> list[list[int]]:
    """Which columns, of these numbers of bins, to add up together: as long as that takes fewer multiplications each."""
    groups: list[list[int]] = []
    cells, best = 1, 0.0
    for column in np.argsort(sizes, kind="stable").tolist():
        together = min(cells * sizes[column], rows)
        count = len(groups[-1]) + 1 if groups else 1
        cost = (rows + count * together) / count
        if groups and cost < best:
            groups[-1].append(column)
            cells, best = cells * sizes[column], cost
        else:
            groups.append([column])
            cells, best = sizes[column], float(rows)
    return groups


def _sums_by_column(content: list[Ciphertext], codes: NDArray[np.unsignedinteger], sizes: NDArray[np.int64],
                    modulus: int) -> list[list[Ciphertext]]:
    """For each column, the product of the ciphertexts in each bin; None in an empty one."""
    if len(codes) == 1:
        return [_products(content, codes[0].tolist(), int(sizes[0]), modulus)]
    cell = np.zeros(codes.shape[1], dtype=np.int64)
    for column, size in zip(codes, sizes, strict=True):
        cell = cell * size + column
    numbers, index = np.unique(cell, return_inverse=True)
    joint = _products(content, index.tolist(), len(numbers), modulus)
    bins = []
    for size in sizes[::-1].tolist():
        bins.append(_products(joint, (numbers % size).tolist(), size, modulus))
        numbers = numbers // size
    return bins[::-1]


def _products(content: Sequence[Ciphertext], places: list[int], count: int, modulus: int) -> list[Ciphertext]:
    found: list[Ciphertext | None] = [None] * count
    for value, index in zip(content, places, strict=True):
        held = found[index]
        found[index] = value if held is None else held * value % modulus
    return found


def _running(values: list[Ciphertext], modulus: int) -> list[Ciphertext]:
    """Products of all values up to each place."""
    found, held = [], None
    for value in values:
        if value is not None:
            held = value if held is None else held * value % modulus
        found.append(held)
    return found
