"""Paillier's keys, with the base of short random powers of Damgård, Jurik and Nielsen (2010)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tequio.errors import EncryptionError, MissingExtra
from tequio.privacy.encryption.fixed_point import from_bytes, to_bytes
from tequio.privacy.encryption.randomness import below

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.privacy.encryption.randomness import Source

KEY_BITS = (1024, 2048, 3072, 4096)
# NIST SP 800-57: the work, in bits, to factor a modulus of each length.
STRENGTH = {1024: 80, 2048: 112, 3072: 128, 4096: 152}


def need_gmpy2() -> Any:
    """The package for long numbers."""
    try:
        import gmpy2
    except ImportError:
        raise MissingExtra("gmpy2", "privacy", "the encryption 'paillier'") from None
    return gmpy2


@dataclass(frozen=True)
class Modulus:
    """The public part: n, and an n-th power whose own powers are the randomness of ciphertexts."""

    n: Any
    base: Any

    @cached_property
    def squared(self) -> Any:
        """Ciphertexts are numbers modulo this."""
        return self.n * self.n

    @cached_property
    def fingerprint(self) -> str:
        """Tells this key from others."""
        return blake2b(_number_bytes(self.n), digest_size=16).hexdigest()

    @property
    def bits(self) -> int:
        """The key's length."""
        return int(self.n.bit_length())

    def to_payload(self) -> Payload:
        """The key as it crosses."""
        return {"n": _array(self.n, self.bits // 8), "base": _array(self.base, self.bits // 4)}


@dataclass(frozen=True)
class Factors:
    """The secret part: the two primes, with what opening by the Chinese remainder theorem needs."""

    p: Any
    q: Any
    public: Modulus

    @cached_property
    def _halves(self) -> list[tuple[Any, Any, Any]]:
        """For each prime: itself, its square, and what turns a logarithm into the plaintext."""
        from gmpy2 import invert, powmod

        halves = []
        for prime in (self.p, self.q):
            square = prime * prime
            logarithm = (powmod(1 + self.public.n, prime - 1, square) - 1) // prime
            halves.append((prime, square, invert(logarithm, prime)))
        return halves

    @cached_property
    def _q_inverse(self) -> Any:
        from gmpy2 import invert

        return invert(self.q, self.p)

    def open(self, ciphertext: Any) -> int:
        """The plaintext, as a signed number."""
        from gmpy2 import powmod

        at_p, at_q = [(powmod(ciphertext, prime - 1, square) - 1) // prime * inverse % prime
                      for prime, square, inverse in self._halves]
        plaintext = at_q + self.q * ((at_p - at_q) * self._q_inverse % self.p)
        return int(plaintext - self.public.n if 2 * plaintext > self.public.n else plaintext)

    def to_payload(self) -> Payload:
        """The whole key, for the private state of its holder only."""
        width = self.public.bits // 16
        return {**self.public.to_payload(), "p": _array(self.p, width), "q": _array(self.q, width)}


def generate(bits: int, draw: Source) -> Factors:
    """A new key: two primes of half the length, both 3 modulo 4, whose predecessors share no factor but 2."""
    gmpy2 = need_gmpy2()
    p = _prime(bits // 2, draw)
    q = _prime(bits // 2, draw)
    while p == q or gmpy2.gcd(p - 1, q - 1) != 2:
        q = _prime(bits // 2, draw)
    n = p * q
    root = gmpy2.mpz(below(int(n), draw))
    while gmpy2.gcd(root, n) != 1:
        root = gmpy2.mpz(below(int(n), draw))
    return Factors(p, q, Modulus(n, gmpy2.powmod(-root * root % n, n, n * n)))


def read_public(payload: Payload, bits: int) -> Modulus:
    """The public part back from what crossed; a key of another length, or one that is none, is refused."""
    gmpy2 = need_gmpy2()
    n, base = (_number(payload, name) for name in ("n", "base"))
    if n.bit_length() != bits:
        raise EncryptionError(f"a Paillier key of {n.bit_length()} bits was received where one of {bits} was agreed on",
                              remedy="let all parties use the same 'bits', and the key of this run's key holder")
    if n % 2 == 0 or gmpy2.is_prime(n) or gmpy2.gcd(base, n) != 1 or not 1 < base < n * n:
        raise EncryptionError("what was received is not a Paillier key", remedy="ask the key holder for it again")
    return Modulus(n, base)


def read_secret(payload: Payload, bits: int) -> Factors:
    """The whole key back from its holder's state."""
    public = read_public(payload, bits)
    p, q = (_number(payload, name) for name in ("p", "q"))
    if p * q != public.n:
        raise EncryptionError("a Paillier key's primes are not those of its modulus", remedy="make a new key")
    return Factors(p, q, public)


def _prime(bits: int, draw: Source) -> Any:
    from gmpy2 import mpz, next_prime

    # The two highest bits make the product of two such primes exactly twice as long.
    while (prime := next_prime(mpz(draw(bits)) | 3 << bits - 2)) % 4 != 3 or prime.bit_length() != bits:
        pass
    return prime


def _number(payload: Payload, name: str) -> Any:
    from gmpy2 import mpz

    rows: Any = payload.get(name)
    if getattr(rows, "ndim", 0) != 1 or str(getattr(rows, "dtype", "")) != "uint8":
        raise EncryptionError(f"a Paillier key without '{name}' was received", remedy="ask the key holder for it again")
    return mpz(from_bytes(rows[None, :])[0])


def _array(number: Any, width: int) -> NDArray[np.uint8]:
    row: NDArray[np.uint8] = to_bytes([number], width)[0]
    return row


def _number_bytes(number: Any) -> bytes:
    return int(number).to_bytes((number.bit_length() + 7) // 8, "little")
