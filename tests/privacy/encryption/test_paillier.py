"""Paillier: the textbook's arithmetic, keys of the right size only, and numbers that cannot be ciphertexts."""

from __future__ import annotations

from dataclasses import replace
from math import gcd, lcm

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.errors import ConfigError, EncryptionError
from tequio.privacy.encryption.numbers import to_bytes
from tequio.privacy.encryption.paillier_keys import (
    expanded,
    power_from,
    products_of_powers,
    read_public,
    table_of_powers,
)
from tequio.privacy.encryption.scheme import wrap
from tequio.registry import build

from .subjects import drawing, secret

gmpy2 = pytest.importorskip("gmpy2")


def test_the_textbook_opens_the_same():
    key = secret("paillier")
    p, q, n = (int(number) for number in (key.secret.p, key.secret.q, key.secret.public.n))
    exponent = lcm(p - 1, q - 1)
    for number in (0, 1, -1, 123456789, -(1 << 900)):
        ciphertext = int(key.public.group.encrypt(number, drawing()))
        plaintext = (pow(ciphertext, exponent, n * n) - 1) // n * pow(exponent, -1, n) % n
        assert plaintext == number % n
        assert key.secret.open(gmpy2.mpz(ciphertext)) == number


def test_a_key_is_what_short_random_powers_need():
    key = secret("paillier")
    p, q = int(key.secret.p), int(key.secret.q)
    assert p % 4 == q % 4 == 3
    assert gcd(p - 1, q - 1) == 2
    assert int(key.secret.public.n).bit_length() == 1024
    # The base is an n-th power: it encrypts zero.
    assert key.secret.open(key.secret.public.base) == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(-(1 << 40), 1 << 40), min_size=2, max_size=2), min_size=1, max_size=20))
def test_products_of_powers_are_those_of_pow(exponents):
    modulus = 1009 * 2003 * 7919
    bases = [gmpy2.mpz(base) for base in range(2, 2 + len(exponents))]
    found = products_of_powers(bases, np.array(exponents), gmpy2.mpz(modulus))
    for column, power in enumerate(found):
        expected = 1
        for base, row in zip(bases, exponents, strict=True):
            expected = expected * pow(int(base), row[column], modulus) % modulus
        assert power == expected


@given(st.integers(0, (1 << 100) - 1))
def test_powers_from_a_table_are_those_of_pow(exponent):
    modulus = gmpy2.mpz((1 << 127) - 1)
    assert power_from(table_of_powers(gmpy2.mpz(3), 100, modulus), exponent, modulus) == pow(3, exponent, int(modulus))


@pytest.mark.parametrize("bits", [512, 1000, 2047, 8192])
def test_a_key_of_no_agreed_size_is_refused(bits):
    with pytest.raises(ConfigError, match="bits"):
        build("encryption", "paillier", {"bits": bits})


def test_a_key_of_another_size_than_agreed_on_is_refused():
    with pytest.raises(EncryptionError, match="of 1024 bits was received where one of 3072 was agreed on"):
        build("encryption", "paillier").public_key(secret("paillier").public.to_payload())


def test_what_is_no_key_is_refused():
    payload = secret("paillier").public.to_payload()
    even = {**payload, "n": payload["n"] & np.array([254] + [255] * 127, np.uint8)}
    for wrong, why in ((even, "not a Paillier key"), ({**payload, "roots": payload["n"]}, "without the proof"),
                       ({"n": payload["n"]}, "without the proof")):
        with pytest.raises(EncryptionError, match=why):
            read_public(wrong, 1024)


def malformed(kind):
    """Moduli that share a factor with their own phi, and what their maker can offer as roots at best."""
    p = gmpy2.next_prime(1 << 340)
    if kind == "a square in it":
        q = gmpy2.next_prime((3 << 1022) // p ** 2)
        return p * p * q, p * (p - 1) * (q - 1)
    q = 2 * ((3 << 1022) // (2 * p * p)) * p + 1
    while not gmpy2.is_prime(q):
        q += 2 * p
    n = p * q
    return n, (p - 1) * (q - 1)


@pytest.mark.parametrize("kind", ["a square in it", "p divides q - 1"])
def test_a_modulus_that_is_not_well_formed_cannot_be_proved(kind):
    n, phi = malformed(kind)
    assert n.bit_length() == 1024
    inverse = gmpy2.invert(n // gmpy2.gcd(n, phi), phi // gmpy2.gcd(n, phi))
    roots = [gmpy2.powmod(expanded(n, "root", number), inverse, n) for number in range(8)]
    payload = {"n": to_bytes([n], 128)[0], "roots": to_bytes(roots, 128).ravel()}
    assert gmpy2.gcd(n, phi) > 1
    with pytest.raises(EncryptionError, match="proof does not hold"):
        read_public(payload, 1024)


def test_a_proof_is_that_of_one_key():
    first, second = (secret("paillier", seed=seed).public.to_payload() for seed in (0, 5))
    with pytest.raises(EncryptionError, match="proof does not hold"):
        read_public({**first, "roots": second["roots"]}, 1024)


def test_a_modulus_with_a_small_factor_is_refused():
    """Eight roots prove what they are to prove only where no factor of n is below 2^16."""
    n = 65521 * gmpy2.next_prime((3 << 1022) // 65521)
    payload = secret("paillier").public.to_payload()
    with pytest.raises(EncryptionError, match="not a Paillier key"):
        read_public({**payload, "n": to_bytes([n], 128)[0]}, 1024)


def test_the_default_length_is_that_of_128_bits_of_security():
    assert build("encryption", "paillier").bits == 3072


def test_primes_of_another_key_are_refused():
    first, second = secret("paillier").to_payload(), secret("paillier", seed=5).to_payload()
    with pytest.raises(EncryptionError, match="primes are not those of its modulus"):
        build("encryption", "paillier", {"bits": 1024}).secret_key({**first, "p": second["p"]})


def test_random_powers_too_short_for_the_key_are_refused():
    with pytest.raises(ConfigError, match="at least 256"):
        build("encryption", "paillier", {"power_bits": 100}).generate(drawing())


def forged(key, number):
    """A sender who knows how to make digests sends a number that cannot be a ciphertext."""
    given = key.public.encrypt([1.0], drawing())
    content = np.frombuffer(int(number).to_bytes(256, "little"), np.uint8)[None, :]
    return wrap(given, key.public.fingerprint, content)


def test_numbers_that_cannot_be_ciphertexts_are_refused():
    key = secret("paillier")
    n = key.secret.public.n
    for wrong, why in ((0, "out of the range"), (n * n, "out of the range"), (3 * n, "shares a factor"),
                       (5 * key.secret.p, "shares a factor")):
        with pytest.raises(EncryptionError, match=why):
            key.public.receive(forged(key, wrong), "party '2'")


def test_a_forged_ciphertext_is_found_when_opened():
    key = secret("paillier")
    given = key.public.receive(forged(key, 12345678901234567890), "party '2'")
    with pytest.raises(EncryptionError, match="beyond the range that was declared"):
        key.decrypt(given)


def test_ciphertexts_of_the_wrong_length_are_refused():
    key = secret("paillier")
    given = key.public.encrypt([1.0, 2.0], drawing())
    content = np.zeros((2, 128), np.uint8)
    with pytest.raises(EncryptionError, match=r"shape \(2, 128\)"):
        key.public.receive(wrap(given, key.public.fingerprint, content), "party '2'")
    wide = replace(given, slot=600, together=2)
    with pytest.raises(EncryptionError, match="more than fits into one"):
        key.public.receive(wrap(wide, key.public.fingerprint, np.zeros((1, 256), np.uint8)), "party '2'")


def test_gradients_of_many_columns_cross_in_few_ciphertexts():
    key, draw = secret("paillier"), drawing()
    product = key.public.product(key.public.encrypt(np.ones(16), draw), np.ones((16, 24)), draw)
    hidden, _ = key.public.hide(product, draw)
    # 44 bits of values, 24 of factors, 4 for 16 rows, 41 to hide them, 2 to keep them apart: 8 in 1022 bits.
    assert (hidden.slot, hidden.together, len(hidden.content)) == (115, 8, 3)
