"""CKKS through TenSEAL: approximate sums of thousands of real numbers in one ciphertext."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.errors import EncryptionError, MissingExtra
from tequio.privacy.encryption.ckks_layout import Layout
from tequio.privacy.encryption.numbers import FixedPoint, Origin, growth
from tequio.privacy.encryption.scheme import Encrypted, refused, unwrap, wrap
from tequio.registry import register

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import ArrayLike, NDArray

    from tequio.federation.payload import Payload
    from tequio.privacy.encryption.numbers import Source

    Floats = NDArray[np.float64]

# Each product costs a prime of 40 bits; 90 bits stay for the result, of which the scale takes 40, so a slot may hold up
# to 2**49. Noise and pads take up to 2**30 of that, data up to 2**12. The last prime is for switching keys and may be
# short, since nothing is rotated. All together are below the 218 bits that leave 128 bits of security.
_PRIMES = {1: (60, 30, 40, 40), 2: (60, 30, 40, 40, 40)}
_LEFT, _SCALE, _NOISE, _WHOLE, _LARGEST = 2, 2.0 ** 40, 2.0 ** 30, 12, 2.0 ** 40
# Opened values say something about the secret key through their error (Li and Micciancio, 2021); noise well above that
# error drowns it.
_DROWNING = 2.0 ** -14


@dataclass(frozen=True)
class CkksKey:
    """The public part: a context that encrypts and computes, and has no secret key."""

    context: Any
    content: bytes

    @cached_property
    def fingerprint(self) -> str:
        """Tells this key from others."""
        return blake2b(self.content, digest_size=16).hexdigest()

    @property
    def slots(self) -> int:
        """Values in one ciphertext."""
        return _degree(self.context) // 2

    @property
    def values(self) -> FixedPoint:
        """The range of what is encrypted; there is no fixed number of bits after the point."""
        return FixedPoint(0, _WHOLE)

    def to_payload(self) -> Payload:
        """The key as it crosses."""
        return {"context": np.frombuffer(self.content, np.uint8)}

    def encrypt(self, values: ArrayLike, draw: Source, form: FixedPoint | None = None) -> Encrypted:
        """All rows in one ciphertext, or in as few as hold them; TenSEAL draws its randomness from the system."""
        checked = _checked(values, (form or self.values).whole, "values to encrypt").ravel()
        content = tuple(map(self._vector, Layout(len(checked), self.slots).of_rows(checked)))
        return Encrypted(content, len(checked), 0, (form or self.values).whole)

    def encrypt_for_sums(self, values: ArrayLike, draw: Source, additions: int) -> Encrypted:
        """As `encrypt`: all is packed here anyhow."""
        return self.encrypt(values, draw)

    def add(self, *parts: Encrypted) -> Encrypted:
        """The sum, row by row."""
        first = parts[0]
        if any((part.count, part.slot, part.together) != (first.count, first.slot, first.together) for part in parts):
            raise EncryptionError("ciphertexts of different layouts cannot be added", remedy="encrypt both alike")
        content = first.content
        for other in parts[1:]:
            content = tuple(one + another for one, another in zip(content, other.content, strict=True))
        return replace(first, content=content, bits=max(part.bits for part in parts) + growth(len(parts)),
                       fresh=all(part.fresh for part in parts))

    def scale(self, given: Encrypted, factors: ArrayLike, form: FixedPoint | None = None) -> Encrypted:
        """Each row times its own known factor."""
        checked = _checked(factors, (form or self.values).whole, "factors").ravel()
        factors = self._layout(given, len(checked)).of_rows(checked)
        content = tuple(_times(row, factor) for row, factor in zip(given.content, factors, strict=True))
        return replace(given, content=content, bits=given.bits + _WHOLE, fresh=False)

    def product(self, given: Encrypted, matrix: ArrayLike, draw: Source, form: FixedPoint | None = None) -> Encrypted:
        """The known matrix, transposed, times the rows: spread over slots, of which only sums may be told."""
        checked = _checked(matrix, (form or self.values).whole, "factors")
        layout = self._layout(given, len(checked))
        content = []
        for multipliers in layout.of_columns(checked):
            results = [_times(rows, factor) for rows, factor in zip(given.content, multipliers, strict=True)]
            content.append(sum(results[1:], results[0]))
        return Encrypted(tuple(content), checked.shape[1], 0, given.bits + _WHOLE + growth(len(checked)),
                         slot=layout.block, together=layout.copies, fresh=False)

    def hide(self, given: Encrypted, draw: Source) -> tuple[Encrypted, Payload]:
        """Add a random pad of up to 2**30 to each value; the second part is the pad."""
        pads = np.random.default_rng(draw(256)).uniform(-_NOISE, _NOISE, given.count)
        layout = Layout(given.slot or given.count, self.slots)
        spread = layout.of_sums(pads) if given.slot else layout.of_rows(pads)
        content = tuple(row + self._vector(pad + self._noise(given, draw))
                        for row, pad in zip(given.content, spread, strict=True))
        return replace(given, content=content, fresh=True), {"numbers": pads}

    def reveal(self, opened: Payload, pad: Payload) -> Floats:
        """The values, from what the key holder opened and the pad."""
        numbers = opened.get("numbers")
        if not isinstance(numbers, np.ndarray) or numbers.shape != pad["numbers"].shape:
            raise EncryptionError("what the key holder opened is not what it was asked to open",
                                  remedy="let it open the same ciphertexts again")
        difference: Floats = numbers - pad["numbers"]
        return difference

    def rerandomise(self, given: Encrypted, draw: Source) -> Encrypted:
        """The same values in ciphertexts that cannot be linked to the old ones; slots of products tell sums only."""
        content = tuple(row + self._vector(self._noise(given, draw)) for row in given.content)
        return replace(given, content=content, fresh=True)

    def send(self, given: Encrypted, draw: Source) -> Payload:
        """As it crosses, re-randomised if it is not fresh."""
        given = given if given.fresh else self.rerandomise(given, draw)
        parts = [row.serialize() for row in given.content]
        content = np.zeros((len(parts), 8 + max(map(len, parts), default=0)), np.uint8)
        for row, part in zip(content, parts, strict=True):
            row[:8 + len(part)] = np.frombuffer(len(part).to_bytes(8, "little") + part, np.uint8)
        return wrap(given, self.fingerprint, content)

    def receive(self, payload: Payload, whose: str) -> Encrypted:
        """Back from what crossed; refused if of another key, of the wrong size, or tampered with."""
        given, content = unwrap(payload, self.fingerprint, whose)
        layout = Layout(given.slot or given.count, self.slots)
        expected = -(-given.count // layout.copies) if given.slot else layout.pieces
        if len(content) != expected or (given.slot and given.together != layout.copies):
            raise refused(whose, f"{len(content)} ciphertexts cannot hold what these say they do")
        return replace(given, content=tuple(self._load(row, layout.copies * layout.block, whose) for row in content))

    def _layout(self, given: Encrypted, rows: int) -> Layout:
        if given.slot or given.count != rows:
            raise EncryptionError(f"{given.count} encrypted rows do not go with {rows} known ones",
                                  remedy="give one for each row, and multiply before taking products with a matrix")
        return Layout(rows, self.slots)

    def _noise(self, given: Encrypted, draw: Source) -> Floats:
        """What adds nothing to the values: over the slots of a product noise that sums to zero, elsewhere zeros."""
        layout = Layout(given.slot or given.count, self.slots)
        return layout.noise(_NOISE, draw) if given.slot else np.zeros(layout.copies * layout.block)

    def _vector(self, values: Floats) -> Any:
        return need_tenseal().ckks_vector(self.context, values)

    def _load(self, row: NDArray[np.uint8], size: int, whose: str) -> Any:
        length = int.from_bytes(row[:8].tobytes(), "little")
        try:
            vector = need_tenseal().ckks_vector_from(self.context, row[8:8 + length].tobytes())
        except (ValueError, RuntimeError, TypeError) as cause:
            raise refused(whose, f"TenSEAL cannot read them under this key ({cause})") from cause
        if vector.size() != size:
            raise refused(whose, f"one holds {vector.size()} values instead of {size}")
        return vector


@dataclass(frozen=True)
class CkksSecret:
    """Opens what was encrypted with its public part."""

    context: Any
    public: CkksKey

    def to_payload(self) -> Payload:
        """The whole key, for the private state of its holder only."""
        content = _serialised(self.context, secret=True)
        return {**self.public.to_payload(), "secret": np.frombuffer(content, np.uint8)}

    def open(self, given: Encrypted) -> Payload:
        """The values with a little noise, which protects the key, for `reveal`."""
        values = self.decrypt(given)
        return {"numbers": values + np.random.default_rng().normal(0.0, _DROWNING, values.shape)}

    def decrypt(self, given: Encrypted) -> Floats:
        """The values; their error is of the order of 1e-6."""
        key = self.context.secret_key()
        opened = [np.array(row.decrypt(key)) for row in given.content]
        if not all(np.abs(slots).max(initial=0.0) < _LARGEST for slots in opened):
            raise EncryptionError("an opened value is beyond the range of the scheme: the ciphertext was tampered "
                                  "with, is of another key, or has overflowed",
                                  remedy="repeat the step; if it recurs, look for the party that sends wrong numbers")
        layout = Layout(given.slot or given.count, self.public.slots)
        return layout.sums_of(opened, given.count) if given.slot else layout.rows_of(opened)


@register("encryption", "ckks", paper="Cheon et al., 2017")
@dataclass(frozen=True)
class Ckks:
    """Approximate sums of thousands of packed real numbers (TenSEAL): fast, right to about six digits, not repeatable.

    Parameters:
        degree: of the polynomials: 8192 or 16384; half as many values fit into one ciphertext
        products: how many products one after the other a ciphertext must bear: 1, or 2 where rows are masked first
        randomness: where pads and noise come from; TenSEAL's own randomness is always that of the operating system
    """

    degree: Literal[8192, 16384] = 8192
    products: Literal[1, 2] = 1
    randomness: Origin = "system"

    def generate(self, draw: Source) -> CkksSecret:
        """A new pair of keys."""
        tenseal = need_tenseal()
        context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, self.degree, n_threads=1,
                                  coeff_mod_bit_sizes=list(_PRIMES[self.products]))
        context.global_scale = _SCALE
        return CkksSecret(context, self.public_key({"context": np.frombuffer(_serialised(context), np.uint8)}))

    def public_key(self, payload: Payload) -> CkksKey:
        """The public part back from what crossed; refused if of another degree or if it brings a secret along."""
        key = _public_key(_bytes_of(payload, "context"))
        if key.context.has_secret_key():
            raise EncryptionError("a public CKKS key was received with its secret part",
                                  remedy="the key holder must send the public part only")
        self._agreed(key.context)
        return key

    def secret_key(self, payload: Payload) -> CkksSecret:
        """The whole key back from its holder's state."""
        context = _context(_bytes_of(payload, "secret"))
        self._agreed(context)
        if not context.has_secret_key():
            raise EncryptionError("a CKKS key without its secret part cannot open anything", remedy="make a new key")
        return CkksSecret(context, self.public_key(payload))

    def _agreed(self, context: Any) -> None:
        if _degree(context) != self.degree:
            raise EncryptionError(f"a CKKS key of degree {_degree(context)} was received where one of {self.degree} "
                                  "was agreed on", remedy="let all parties use the same 'degree'")
        if (primes := _primes(context)) != len(_PRIMES[self.products]):
            raise EncryptionError(f"a CKKS key of {primes} primes was received where one of "
                                  f"{len(_PRIMES[self.products])} was agreed on",
                                  remedy="let all parties use the same 'products'")


def need_tenseal() -> ModuleType:
    """The package for CKKS."""
    try:
        return import_module("tenseal")
    except ImportError:
        raise MissingExtra("tenseal", "privacy", "the encryption 'ckks'") from None


def _times(row: Any, factor: Floats) -> Any:
    if row.ciphertext()[0].coeff_modulus_size() <= _LEFT:
        raise EncryptionError("a ciphertext cannot be multiplied once more: there would be no room for the result",
                              remedy="set encryption.products = 2")
    return row * factor


def _checked(values: ArrayLike, whole: int, what: str) -> Floats:
    array = np.asarray(values, np.float64)
    largest = float(np.abs(array).max(initial=0.0))
    if not largest <= 2.0 ** whole:
        raise EncryptionError(f"{what} overflow the range of the scheme: the largest is {largest:.4g}, and the range "
                              f"ends at {2.0 ** whole:.4g}", remedy="standardise columns or lower the learning rate")
    return array


def _serialised(context: Any, *, secret: bool = False) -> bytes:
    content: bytes = context.serialize(save_public_key=True, save_secret_key=secret, save_galois_keys=False,
                                       save_relin_keys=False)
    return content


def _bytes_of(payload: Payload, name: str) -> bytes:
    array = payload.get(name)
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8:
        raise EncryptionError(f"a CKKS key without its '{name}' was received", remedy="ask the key holder for it again")
    return array.tobytes()


# Reading a key takes as long as computing with it, and parties live only as long as a task.
@lru_cache(maxsize=8)
def _context(content: bytes) -> Any:
    try:
        return need_tenseal().context_from(content, n_threads=1)
    except (ValueError, RuntimeError) as cause:
        raise EncryptionError(f"what was received is not a CKKS key ({cause})",
                              remedy="ask the key holder for it again") from cause


@lru_cache(maxsize=8)
def _public_key(content: bytes) -> CkksKey:
    return CkksKey(_context(content), content)


def _degree(context: Any) -> int:
    return int(context.seal_context().data.key_context_data().parms().poly_modulus_degree())


def _primes(context: Any) -> int:
    return 1 + int(context.seal_context().data.key_context_data().chain_index())
