"""Encryption with the primes gives what encryption with the public key gives, and it opens to the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gmpy2")

from tequio.privacy.encryption.numbers import seeded
from tequio.privacy.encryption.paillier_keys import encrypt_by_factors, powers
from tequio.registry import build


@pytest.fixture(scope="module")
def secret():
    return build("encryption", "paillier", {"bits": 1024}).generate(seeded(np.random.default_rng(0)))


def test_ciphertexts_are_those_of_the_public_key(secret):
    numbers = [0, 1, -1, 123456789, -(2**200), 2**1000]
    group = secret.public.group
    mine = encrypt_by_factors(secret.secret, numbers, group.power_bits, seeded(np.random.default_rng(5)))
    draw = seeded(np.random.default_rng(5))
    assert list(mine) == [group.encrypt(number, draw) for number in numbers]
    assert [secret.secret.open(ciphertext) for ciphertext in mine] == numbers


@pytest.mark.parametrize("count", [0, 1, 300])
def test_many_powers_are_each_a_power(count):
    draw = np.random.default_rng(1)
    exponents = [int(value) for value in draw.integers(0, 2**37, count)]
    assert powers(7, exponents, 37, 10**9 + 7) == [pow(7, exponent, 10**9 + 7) for exponent in exponents]
