"""Keys over whole numbers: all that Paillier and its twin without encryption share.

What differs is the group that numbers live in, which is handed in as `Group`. Results are exact, so they do not depend
on keys or randomness: the same inputs give the same values, bit for bit, under either group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tequio.errors import EncryptionError
from tequio.privacy.encryption.numbers import (
    FixedPoint,
    from_bytes,
    growth,
    pack,
    room,
    signed,
    slots_in,
    to_bytes,
    to_numbers,
    to_values,
    unpack,
)
from tequio.privacy.encryption.scheme import Encrypted, refused, unwrap, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from tequio.federation.payload import Payload
    from tequio.privacy.encryption.numbers import Source


# A pad this many bits longer than what it hides leaves less than 2**-40 of it to be told from noise.
HIDING_BITS = 40


class Group(Protocol):
    """Where ciphertexts live. `capacity` is how many bits the magnitude of a plaintext may have."""

    @property
    def capacity(self) -> int: ...  # noqa: D102
    @property
    def fingerprint(self) -> str: ...  # noqa: D102
    def to_payload(self) -> Payload: ...  # noqa: D102
    def encrypt(self, number: int, draw: Source) -> int:
        """A fresh ciphertext."""
        ...
    def add(self, first: int, second: int) -> int:
        """Of the sum."""
        ...
    def negate(self, given: int) -> int:
        """Of the number with the other sign."""
        ...
    def times(self, given: int, factor: int) -> int:
        """Of a multiple."""
        ...
    def combine(self, given: Sequence[int], factors: NDArray[np.int64]) -> list[int]:
        """For each column of `factors` the sum of the ciphertexts, each times its factor."""
        ...
    def zero(self) -> int:
        """What adds nothing (anybody can see that)."""
        ...
    def width(self, bits: int) -> int:
        """Bytes of a ciphertext of a plaintext of so many bits."""
        ...
    def check(self, given: Sequence[int], whose: str) -> None:
        """Refuse what cannot be ciphertexts."""
        ...
    def to_number(self, given: int) -> int:
        """The ciphertext itself as a whole number."""
        ...
    def from_number(self, number: int) -> int:
        """The ciphertext back."""
        ...


@dataclass(frozen=True)
class ExactKey:
    """The public key: `values` is the range of what is encrypted, `factors` that of what it is multiplied by."""

    group: Group
    values: FixedPoint
    factors: FixedPoint
    signed_content: bool = False

    @property
    def fingerprint(self) -> str:
        """Tells this key from others."""
        return self.group.fingerprint

    def to_payload(self) -> Payload:
        """The key as it crosses."""
        return self.group.to_payload()

    def encrypt(self, values: ArrayLike, draw: Source, form: FixedPoint | None = None) -> Encrypted:
        """One value a row, each in a ciphertext of its own, with which all can be computed."""
        form = form or self.values
        numbers = to_numbers(values, form, "values to encrypt").ravel().tolist()
        self._fit(form.bits, 0)
        return Encrypted(tuple(self.group.encrypt(number, draw) for number in numbers), len(numbers), form.fraction,
                         form.bits)

    def encrypt_rows(self, rows: ArrayLike, draw: Source, additions: int,
                     form: FixedPoint | None = None) -> Encrypted:
        """One ciphertext a row of several values, such as gradient and hessian, with room for so many additions.

        A slot has `form.bits + log2(additions) + 2` bits. One more row than allowed is an error, not a wrong sum.
        """
        form = form or self.values
        numbers = np.atleast_2d(to_numbers(rows, form, "values to encrypt"))
        slot, columns = form.bits + growth(additions) + 2, numbers.shape[1]
        if slots_in(self.group.capacity, slot) < columns:
            raise EncryptionError(f"{columns} values of {slot} bits do not fit into one ciphertext of "
                                  f"{self.group.capacity} bits", remedy="use a longer key or fewer fraction bits")
        content = tuple(self.group.encrypt(pack(row, slot), draw) for row in numbers.tolist())
        return Encrypted(content, len(content), form.fraction, form.bits, columns, slot)

    def encrypt_for_sums(self, values: ArrayLike, draw: Source, additions: int) -> Encrypted:
        """Many values to a ciphertext, with room for so many additions and for a pad: they can be added and hidden."""
        numbers = to_numbers(values, self.values, "values to encrypt").ravel().tolist()
        slot = self.values.bits + growth(additions) + HIDING_BITS + 3
        together = max(min(slots_in(self.group.capacity, slot), len(numbers)), 1)
        content = tuple(self.group.encrypt(pack(numbers[start:start + together], slot), draw)
                        for start in range(0, len(numbers), together))
        return Encrypted(content, len(numbers), self.values.fraction, self.values.bits, slot=slot, together=together)

    def add(self, *parts: Encrypted) -> Encrypted:
        """The sum, row by row."""
        first = parts[0]
        for other in parts[1:]:
            _same_layout(first, other)
        content = first.content
        for other in parts[1:]:
            content = tuple(map(self.group.add, content, other.content))
        bits = self._fit(max(part.bits for part in parts) + growth(len(parts)), first.slot)
        return replace(first, content=content, bits=bits, fresh=all(part.fresh for part in parts))

    def subtract_part(self, whole: Encrypted, part: Encrypted) -> Encrypted:
        """Sums over some rows without those over a part of the same rows: what is left is no larger than the whole."""
        _same_layout(whole, part)
        content = tuple(self.group.add(first, self.group.negate(second))
                        for first, second in zip(whole.content, part.content, strict=True))
        return replace(whole, content=content, fresh=False)

    def scale(self, given: Encrypted, factors: ArrayLike, form: FixedPoint | None = None) -> Encrypted:
        """Each row times its own known factor."""
        form = form or self.factors
        numbers = to_numbers(factors, form, "factors").ravel().tolist()
        _one_row_each(given, len(numbers))
        bits = self._fit(given.bits + form.bits, given.slot)
        return replace(given, content=tuple(map(self.group.times, given.content, numbers)),
                       fraction=given.fraction + form.fraction, bits=bits, fresh=False)

    def product(self, given: Encrypted, matrix: ArrayLike, draw: Source, form: FixedPoint | None = None) -> Encrypted:
        """The known matrix, transposed, times the rows."""
        form = form or self.factors
        numbers = to_numbers(matrix, form, "factors")
        _one_row_each(given, len(numbers))
        bits = self._fit(given.bits + form.bits + growth(len(numbers)), given.slot)
        content = tuple(self.group.combine(given.content, numbers))
        return replace(given, content=content, count=len(content), fraction=given.fraction + form.fraction, bits=bits,
                       fresh=False)

    def sums(self, given: Encrypted, places: NDArray[np.integer], groups: int) -> Encrypted:
        """The sum of the rows at each place (a row at a negative one counts nowhere): the bins of a histogram."""
        _one_row_each(given, len(places))
        found: list[int | None] = [None] * groups
        for row, place in zip(given.content, places.tolist(), strict=True):
            if place >= 0:
                found[place] = row if found[place] is None else self.group.add(found[place], row)
        content = tuple(self.group.zero() if row is None else row for row in found)
        # How full the bins are is nobody's business, so each is declared as if it held all rows.
        bits = self._fit(given.bits + growth(len(places)), given.slot)
        return replace(given, content=content, count=groups, bits=bits, fresh=False)

    def take(self, given: Encrypted, rows: NDArray[np.integer]) -> Encrypted:
        """Some of the rows."""
        _one_row_each(given, given.count)
        return replace(given, content=tuple(given.content[row] for row in rows.tolist()), count=len(rows))

    def pack(self, given: Encrypted) -> Encrypted:
        """As many rows as fit together in one ciphertext: fewer to send and to open. Sums stay possible."""
        slot = given.slot or given.bits + 2
        together = min(slots_in(self.group.capacity, slot * given.columns), given.count)
        if given.together > 1 or together < 2:
            return given
        chunks = [given.content[start:start + together] for start in range(0, given.count, together)]
        content = tuple(self._side_by_side(chunk, slot * given.columns) for chunk in chunks)
        return replace(given, content=content, slot=slot, together=together)

    def hide(self, given: Encrypted, draw: Source) -> tuple[Encrypted, Payload]:
        """Add a pad of 40 more bits than each value can have; packed and fresh. The second part is the pad."""
        bits = self._fit(given.bits + HIDING_BITS + 1, given.slot)
        packed = self.pack(replace(given, bits=bits))
        pads = [signed(given.bits + HIDING_BITS, draw) for _ in range(given.count * given.columns)]
        step = packed.together * packed.columns
        blinds = [pack(pads[start:start + step], packed.slot) for start in range(0, len(pads), step)]
        content = tuple(self.group.add(row, self.group.encrypt(blind, draw))
                        for row, blind in zip(packed.content, blinds, strict=True))
        return replace(packed, content=content, fresh=True), {"numbers": to_bytes(pads, room(bits), signed=True),
                                                              "fraction": given.fraction}

    def reveal(self, opened: Payload, pad: Payload) -> NDArray[np.float64]:
        """The values, from what the key holder opened and the pad."""
        numbers, pads = opened.get("numbers"), pad["numbers"]
        if not isinstance(numbers, np.ndarray) or len(numbers) != len(pads) or opened["fraction"] != pad["fraction"]:
            raise EncryptionError("what the key holder opened is not what it was asked to open",
                                  remedy="let it open the same ciphertexts again")
        pairs = zip(from_bytes(numbers, signed=True), from_bytes(pads, signed=True), strict=True)
        return to_values((number - blind for number, blind in pairs), pad["fraction"])

    def rerandomise(self, given: Encrypted, draw: Source) -> Encrypted:
        """The same values in ciphertexts that cannot be linked to the old ones."""
        content = tuple(self.group.add(row, self.group.encrypt(0, draw)) for row in given.content)
        return replace(given, content=content, fresh=True)

    def send(self, given: Encrypted, draw: Source) -> Payload:
        """As it crosses, re-randomised if it is not fresh."""
        given = given if given.fresh else self.rerandomise(given, draw)
        numbers = [self.group.to_number(row) for row in given.content]
        return wrap(given, self.fingerprint, to_bytes(numbers, self._width(given), signed=self.signed_content))

    def receive(self, payload: Payload, whose: str) -> Encrypted:
        """Back from what crossed; refused if of another key, of the wrong size, or tampered with."""
        given, content = unwrap(payload, self.fingerprint, whose)
        self._check_layout(given, content, whose)
        rows = [self.group.from_number(number) for number in from_bytes(content, signed=self.signed_content)]
        self.group.check(rows, whose)
        return replace(given, content=tuple(rows))

    def numbers(self, given: Encrypted, plaintexts: Sequence[int]) -> list[int]:
        """The single numbers, row after row, in opened plaintexts; one beyond its declared range is an error."""
        if given.slot:
            rows = given.count
            found: list[int] = []
            for start, plaintext in enumerate(plaintexts):
                held = min(given.together, rows - start * given.together)
                found.extend(unpack(plaintext, given.slot, held * given.columns))
        else:
            found = list(plaintexts)
        if any(abs(number) >> given.bits and abs(number) != 1 << given.bits for number in found):
            raise EncryptionError("an opened number is beyond the range that was declared for it: the ciphertext was "
                                  "tampered with, is of another key, or has overflowed",
                                  remedy="repeat the step; if it recurs, look for the party that sends wrong numbers")
        return found

    def _side_by_side(self, rows: Sequence[int], cell: int) -> int:
        packed = rows[-1]
        for row in reversed(rows[:-1]):
            packed = self.group.add(self.group.times(packed, 1 << cell), row)
        return packed

    def _fit(self, bits: int, slot: int) -> int:
        """The bits, if there is room for them."""
        room = slot - 2 if slot else self.group.capacity - 1
        if bits > room:
            raise EncryptionError(f"overflow: numbers of up to {bits} bits would not fit where {room} have room",
                                  remedy="allow for more additions, use fewer fraction bits, or a longer key")
        return bits

    def _width(self, given: Encrypted) -> int:
        return self.group.width(given.slot * given.columns * given.together if given.slot else given.bits + 1)

    def _check_layout(self, given: Encrypted, content: NDArray[np.uint8], whose: str) -> None:
        if min(given.columns, given.together) < 1 or given.bits > (given.slot - 2 if given.slot else
                                                                   self.group.capacity - 1):
            raise refused(whose, "what they say about themselves makes no sense")
        if given.slot * given.columns * given.together > self.group.capacity:
            raise refused(whose, "they claim to hold more than fits into one")
        if content.shape != (-(-given.count // given.together), self._width(given)):
            raise refused(whose, f"their content has the shape {content.shape}, which is not that of {given.count} "
                                 "rows under this key")


def _same_layout(first: Encrypted, second: Encrypted) -> None:
    layout = [(part.count, part.columns, part.slot, part.together, part.fraction) for part in (first, second)]
    if layout[0] != layout[1]:
        raise EncryptionError("ciphertexts of different layouts cannot be added: (rows, columns, slot, rows together, "
                              f"fraction bits) are {layout[0]} and {layout[1]}", remedy="encrypt both alike")


def _one_row_each(given: Encrypted, rows: int) -> None:
    if given.together > 1 or given.count != rows:
        raise EncryptionError(f"{given.count} encrypted rows ({given.together} together) do not go with {rows} known "
                              "ones",
                              remedy="give one for each row, and compute before packing")


class Secret(Protocol):
    """What opens one ciphertext."""

    def open(self, ciphertext: int) -> int:
        """The plaintext, as a signed number."""
        ...

    def to_payload(self) -> Payload:
        """As it is kept."""
        ...


@dataclass(frozen=True)
class ExactSecret:
    """Opens what was encrypted with its public part."""

    public: ExactKey
    secret: Secret

    def to_payload(self) -> Payload:
        """The whole key, for the private state of its holder only."""
        return self.secret.to_payload()

    def open(self, given: Encrypted) -> Payload:
        """The numbers as they are, exact, for `reveal`."""
        numbers = to_bytes(self._numbers(given), room(given.bits), signed=True)
        return {"numbers": numbers, "fraction": given.fraction}

    def decrypt(self, given: Encrypted) -> NDArray[np.float64]:
        """The values, one row of `columns` each; flat where there is one column."""
        values = to_values(self._numbers(given), given.fraction)
        return values.reshape(-1, given.columns) if given.columns > 1 else values

    def _numbers(self, given: Encrypted) -> list[int]:
        return self.public.numbers(given, [self.secret.open(row) for row in given.content])
