from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.privacy.verification.proofs import (
    LIMBS,
    MODULUS,
    _dot,
    blinding_of,
    commitment,
    new_blinding,
    other_base,
    product,
    projection,
)


def is_prime(number: int) -> bool:
    """Miller and Rabin."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13):
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        if not any((power := power * power % number) == number - 1 for _ in range(twos - 1)):
            return False
    return True


def test_the_group_is_one_of_prime_order() -> None:
    order = (MODULUS - 1) // 2
    assert is_prime(MODULUS)
    assert is_prime(order)
    assert pow(4, order, MODULUS) == pow(other_base(), order, MODULUS) == 1
    assert other_base() not in (1, 4)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(-2 ** 200, 2 ** 200), min_size=1, max_size=4))
def test_commitments_add_up(numbers: list[int]) -> None:
    blindings = [new_blinding() for _ in numbers]
    parts = [commitment(number, blinding_of(limbs)) for number, limbs in zip(numbers, blindings, strict=True)]
    assert product(parts) == commitment(sum(numbers), blinding_of(np.sum(blindings, axis=0)))
    assert product(parts) != commitment(sum(numbers) + 1, blinding_of(np.sum(blindings, axis=0)))


def test_a_commitment_hides() -> None:
    assert len({commitment(5, blinding_of(new_blinding())) for _ in range(5)}) == 5
    assert len(new_blinding()) == LIMBS


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2 ** 32), st.sampled_from([2 ** 30, 2 ** 62]), st.integers(1, 40_000))
def test_products_are_exact(seed: int, largest: int, size: int) -> None:
    draw = np.random.default_rng(seed)
    whole, direction = draw.integers(-largest, largest, size), draw.integers(0, 2 ** 31, size).astype(np.uint32)
    assert _dot(direction, whole) == sum(int(one) * int(other) for one, other in zip(direction, whole, strict=True))


def test_projections_add_up_and_tell_vectors_apart() -> None:
    draw, challenge = np.random.default_rng(0), b"challenge"
    one, other = draw.integers(-2 ** 30, 2 ** 30, (2, 1000))
    assert projection(challenge, one) + projection(challenge, other) == projection(challenge, one + other)
    changed = one.copy()
    changed[17] += 1
    assert projection(challenge, changed) != projection(challenge, one)
    assert projection(b"another", one) != projection(challenge, one)
