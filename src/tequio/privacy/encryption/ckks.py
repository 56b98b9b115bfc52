"""CKKS through TenSEAL: approximate sums of thousands of real numbers in one ciphertext."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from importlib import import_module
from math import log2, sqrt
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import Interval

from tequio.errors import EncryptionError, MissingExtra
from tequio.privacy.encryption.ckks_layout import Layout
from tequio.privacy.encryption.flooding import LAST_PRIME, MOST_ADDED, PRIMES, RANGE_BITS, SLOT_BITS, Flooding
from tequio.privacy.encryption.numbers import FixedPoint, Origin, gaussians, growth, uniforms
from tequio.privacy.encryption.scheme import Encrypted, refused, unwrap, wrap
from tequio.registry import register

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import ArrayLike, NDArray

    from tequio.federation.payload import Payload
    from tequio.privacy.encryption.numbers import Source

    Floats = NDArray[np.float64]

# Noise and pads take up to 2**30, and a slot with all that is added to it up to the half of what it has room for.
_NOISE, _LARGEST = 2.0 ** 30, 2.0 ** (SLOT_BITS - 1)


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
        """The range of what is encrypted, and the bits after its point: CKKS errs in the last of them."""
        return FixedPoint(round(log2(self.context.global_scale)), RANGE_BITS)

    def to_payload(self) -> Payload:
        """The key as it crosses."""
        return {"context": np.frombuffer(self.content, np.uint8)}

    def encrypt(self, values: ArrayLike, draw: Source, form: FixedPoint | None = None) -> Encrypted:
        """All rows in one ciphertext, or in as few as hold them; TenSEAL draws its randomness from the system."""
        form = form or self.values
        checked, fraction = _checked(values, form.whole, "values to encrypt").ravel(), self.values.fraction
        fraction = max(form.fraction, fraction)
        content = tuple(self._vector(row, fraction) for row in Layout(len(checked), self.slots).of_rows(checked))
        return Encrypted(content, len(checked), fraction, form.whole)

    def encrypt_for_sums(self, values: ArrayLike, draw: Source, additions: int) -> Encrypted:
        """As `encrypt`: all is packed here anyhow."""
        return self.encrypt(values, draw)

    def add(self, *parts: Encrypted) -> Encrypted:
        """The sum, row by row."""
        first = parts[0]
        if len({(part.count, part.slot, part.together, part.fraction) for part in parts}) > 1:
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
        fraction = self._multiplied(given)
        content = tuple(self._times(*pair, fraction) for pair in zip(given.content, factors, strict=True))
        return replace(given, content=content, fraction=fraction, bits=given.bits + RANGE_BITS, fresh=False)

    def product(self, given: Encrypted, matrix: ArrayLike, draw: Source, form: FixedPoint | None = None) -> Encrypted:
        """The known matrix, transposed, times the rows: spread over slots, of which only sums may be told."""
        checked = _checked(matrix, (form or self.values).whole, "factors")
        layout, fraction = self._layout(given, len(checked)), self._multiplied(given)
        content = []
        for multipliers in layout.of_columns(checked):
            results = [self._times(*pair, fraction) for pair in zip(given.content, multipliers, strict=True)]
            content.append(sum(results[1:], results[0]))
        return Encrypted(tuple(content), checked.shape[1], fraction, given.bits + RANGE_BITS + growth(len(checked)),
                         slot=layout.block, together=layout.copies, fresh=False)

    def hide(self, given: Encrypted, draw: Source) -> tuple[Encrypted, Payload]:
        """Add a random pad of up to 2**30 to each value; the second part is the pad."""
        pads = _NOISE * (2 * uniforms(given.count, draw) - 1)
        layout = Layout(given.slot or given.count, self.slots)
        spread = layout.of_sums(pads) if given.slot else layout.of_rows(pads)
        content = tuple(row + self._vector(pad + self._noise(given, draw), given.fraction)
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
        content = tuple(row + self._vector(self._noise(given, draw), given.fraction) for row in given.content)
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
        size = layout.copies * layout.block
        return replace(given, content=tuple(self._load(row, size, given.fraction, whose) for row in content))

    def _layout(self, given: Encrypted, rows: int) -> Layout:
        if given.slot or given.count != rows:
            raise EncryptionError(f"{given.count} encrypted rows do not go with {rows} known ones",
                                  remedy="give one for each row, and multiply before taking products with a matrix")
        return Layout(rows, self.slots)

    def _times(self, row: Any, factor: Floats, fraction: int) -> Any:
        """A product; by noughts TenSEAL makes a ciphertext that everybody can read, so there a fresh one is made."""
        return row * factor if factor.any() else self._vector(factor, fraction)

    def _multiplied(self, given: Encrypted) -> int:
        """Bits after the point of a product; one that there is no room for is refused."""
        fraction = given.fraction + self.values.fraction
        if fraction + SLOT_BITS > sum(PRIMES[_degree(self.context)]):
            raise EncryptionError("a ciphertext cannot be multiplied once more: there would be no room for the result",
                                  remedy="set encryption.products = 2")
        return fraction

    def _noise(self, given: Encrypted, draw: Source) -> Floats:
        """What adds nothing to the values: over the slots of a product noise that sums to zero, elsewhere zeros."""
        layout = Layout(given.slot or given.count, self.slots)
        return layout.noise(_NOISE, draw) if given.slot else np.zeros(layout.copies * layout.block)

    def _vector(self, values: Floats, fraction: int) -> Any:
        return need_tenseal().ckks_vector(self.context, values, 2.0 ** fraction)

    def _load(self, row: NDArray[np.uint8], size: int, fraction: int, whose: str) -> Any:
        length = int.from_bytes(row[:8].tobytes(), "little")
        try:
            vector = need_tenseal().ckks_vector_from(self.context, row[8:8 + length].tobytes())
        except (ValueError, RuntimeError, TypeError) as cause:
            raise refused(whose, f"TenSEAL cannot read them under this key ({cause})") from cause
        if vector.size() != size:
            raise refused(whose, f"one holds {vector.size()} values instead of {size}")
        if vector.ciphertext()[0].scale != 2.0 ** fraction:
            raise refused(whose, f"one does not have {fraction} bits after the point")
        return vector


@dataclass(frozen=True)
class CkksSecret:
    """Opens what was encrypted with its public part."""

    context: Any
    public: CkksKey
    flooding: Flooding

    def to_payload(self) -> Payload:
        """The whole key, for the private state of its holder only."""
        content = _serialised(self.context, secret=True)
        return {**self.public.to_payload(), "secret": np.frombuffer(content, np.uint8)}

    def open(self, given: Encrypted) -> Payload:
        """The values with the noise that protects the key, for `reveal`. Each slot gets its own, so sums get more."""
        if given.bits > RANGE_BITS * (self.flooding.products + 1) + growth(MOST_ADDED) + growth(self.public.slots):
            raise EncryptionError("more was added up under encryption than the noise on what is opened allows for",
                                  remedy="set local.batch to fewer rows")
        deviation = self.flooding.slot_deviation * sqrt(given.slot or 1)
        return {"numbers": self.decrypt(given) + deviation * gaussians(given.count, secrets.randbits)}

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


@register("encryption", "ckks", paper="Cheon et al., 2017; Li et al., 2022")
@dataclass(frozen=True)
class Ckks:
    """Approximate sums of thousands of packed real numbers (TenSEAL): fast, right to a few digits, not repeatable.

    What a key opens carries noise that drowns what the error of CKKS says about that key. After `openings` ciphertexts
    the key holder makes another key.

    Parameters:
        degree: of the polynomials: 8192 or 16384; half as many values fit into one ciphertext
        products: how many products one after the other a ciphertext must bear: 1, or 2 where rows are masked first,
            which needs degree 16384
        openings: how many ciphertexts may be opened under one key
        security: bits by which what is opened under a key is safe from who sees all of it
        fraction_bits: how many bits after the point opened values must keep; settings that leave fewer are refused
        randomness: where pads come from; noise and TenSEAL's own randomness are always those of the operating system
    """

    degree: Literal[8192, 16384] = 8192
    products: Literal[1, 2] = 1
    openings: Annotated[int, Interval(ge=1, le=1 << 20)] = 1000
    security: Annotated[int, Interval(ge=30, le=64)] = 40
    fraction_bits: Annotated[int, Interval(ge=0, le=40)] = 10
    randomness: Origin = "system"

    def __post_init__(self) -> None:
        """Refuse settings under which what is opened would be mostly noise."""
        self.flooding.check(self.fraction_bits)

    @property
    def flooding(self) -> Flooding:
        """The noise on what is opened."""
        return Flooding(self.degree, self.products, self.openings, self.security)

    def generate(self, draw: Source) -> CkksSecret:
        """A new pair of keys."""
        tenseal = need_tenseal()
        context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, self.degree, n_threads=1,
                                  coeff_mod_bit_sizes=[*PRIMES[self.degree], LAST_PRIME])
        context.global_scale = 2.0 ** self.flooding.scale_bits
        _keep_scales(context)
        public = self.public_key({"context": np.frombuffer(_serialised(context), np.uint8)})
        return CkksSecret(context, public, self.flooding)

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
        return CkksSecret(context, self.public_key(payload), self.flooding)

    def _agreed(self, context: Any) -> None:
        if _degree(context) != self.degree:
            raise EncryptionError(f"a CKKS key of degree {_degree(context)} was received where one of {self.degree} "
                                  "was agreed on", remedy="let all parties use the same 'degree'")
        if context.global_scale != 2.0 ** self.flooding.scale_bits:
            raise EncryptionError("a CKKS key was received that is made for another number of products than agreed on",
                                  remedy="let all parties use the same 'products'")


def need_tenseal() -> ModuleType:
    """The package for CKKS."""
    try:
        return import_module("tenseal")
    except ImportError:
        raise MissingExtra("tenseal", "privacy", "the encryption 'ckks'") from None


def _keep_scales(context: Any) -> None:
    """Products keep the bits after the point of both factors: nothing is rounded away, so no error is added."""
    context.auto_rescale = context.auto_mod_switch = context.auto_relin = False


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
        context = need_tenseal().context_from(content, n_threads=1)
        _keep_scales(context)
        return context
    except (ValueError, RuntimeError) as cause:
        raise EncryptionError(f"what was received is not a CKKS key ({cause})",
                              remedy="ask the key holder for it again") from cause


@lru_cache(maxsize=8)
def _public_key(content: bytes) -> CkksKey:
    return CkksKey(_context(content), content)


def _degree(context: Any) -> int:
    return int(context.seal_context().data.key_context_data().parms().poly_modulus_degree())
