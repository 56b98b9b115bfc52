"""Keys that the tests of encryption share: making them is what takes the time."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tequio.privacy.encryption.numbers import seeded
from tequio.registry import build

SCHEMES = {"plain": {}, "paillier": {"bits": 1024}, "ckks": {"products": 2, "degree": 16384}}
PACKAGES = {"paillier": "gmpy2", "ckks": "tenseal"}
every_scheme = pytest.mark.parametrize("name", SCHEMES)
exact_schemes = pytest.mark.parametrize("name", ["plain", "paillier"])


@cache
def scheme(name):
    return build("encryption", name, SCHEMES[name])


@cache
def secret(name, seed=0):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    return scheme(name).generate(seeded(np.random.default_rng(seed)))


def drawing(seed=1):
    return seeded(np.random.default_rng(seed))
