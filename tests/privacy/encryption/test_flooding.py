"""The noise on what CKKS opens: by formula, refused where it leaves too little, and more than the true error."""

from __future__ import annotations

from math import log2, sqrt
from pathlib import Path

import numpy as np
import pytest

from tequio.errors import ConfigError
from tequio.privacy.encryption.flooding import Flooding
from tequio.registry import build

from .subjects import drawing, scheme, secret


@pytest.mark.parametrize(("openings", "security", "bits"), [(1000, 30, 21.8), (100, 40, 25.1), (1000, 40, 26.8)])
def test_the_noise_is_the_bound_times_the_published_factor(openings, security, bits):
    flooding = Flooding(8192, 1, openings, security)
    assert log2(flooding.deviation / flooding.error) == pytest.approx(bits, abs=0.05)


def test_the_bound_by_hand():
    """A fresh ciphertext errs by 2^11 at most; 1,024 of them, times a factor of 2^12, and two that are added."""
    fresh = 6 * 3.2 * sqrt(4 * 8192 / 3 + 1)
    assert log2(fresh) == pytest.approx(10.97, abs=0.01)
    expected = fresh * (32 * sqrt(8192) * 4096 + 2)
    assert Flooding(8192, 1, 1000, 40).error == pytest.approx(expected)
    slots = sqrt(12000) * 2 ** 20 * expected * 64 / 2 ** 82
    assert Flooding(8192, 1, 1000, 40).slot_deviation == pytest.approx(slots)
    assert Flooding(8192, 1, 1000, 40).kept_bits == int(-log2(6 * slots)) == 12


@pytest.mark.parametrize("how", [{"products": 2}, {"fraction_bits": 13}, {"security": 46}, {"openings": 1 << 20}])
def test_settings_that_would_keep_too_few_bits_are_refused_before_anything_is_encrypted(how):
    with pytest.raises(ConfigError, match=r"bits after the point .* asked for .*encryption.degree = 16384"):
        build("encryption", "ckks", how)
    build("encryption", "ckks", {"degree": 16384, **how})


def test_the_true_error_is_far_below_the_bound_and_the_noise_far_above_it():
    """Of a value that is nought, what is decrypted is the error itself: too small for doubles to hide."""
    pytest.importorskip("tenseal")
    key, draw = secret("ckks"), drawing()
    flooding, noughts = scheme("ckks").flooding, np.zeros(8192)
    rows = np.random.default_rng(0).uniform(-1, 1, 8192)
    product = key.public.scale(key.public.scale(key.public.encrypt(noughts, draw), rows), rows)
    in_coefficients = np.abs(key.decrypt(product)).max() / sqrt(flooding.degree / 2) * 2.0 ** flooding.scale_bits
    assert 0 < in_coefficients < flooding.error
    opened = key.open(product)["numbers"]
    assert opened.std() == pytest.approx(flooding.slot_deviation, rel=0.05)


def test_sums_over_slots_carry_the_noise_of_each_slot():
    pytest.importorskip("tenseal")
    key, draw = secret("ckks"), drawing()
    product = key.public.product(key.public.encrypt(np.zeros(16), draw), np.ones((16, 2048)), draw)
    noise = key.open(product)["numbers"] - key.decrypt(product)
    assert noise.std() == pytest.approx(4 * scheme("ckks").flooding.slot_deviation, rel=0.1)


def test_the_page_on_encryption_shows_these_numbers():
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "encryption.md").read_text(encoding="utf-8")
    for degree, products in ((8192, 1), (8192, 2), (16384, 2)):
        flooding = Flooding(degree, products, 1000, 40)
        left = flooding.kept_bits if flooding.kept_bits >= 10 else "refused"
        assert (f"| {degree} | {products} | {flooding.scale_bits} | 2^{log2(flooding.slot_deviation):.1f} | {left} |"
                in page)
