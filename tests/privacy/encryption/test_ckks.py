"""CKKS: vectors in slots, the noise that hides all but sums, keys of the right size only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.errors import EncryptionError
from tequio.privacy.encryption.ckks_layout import Layout
from tequio.privacy.encryption.scheme import wrap
from tequio.registry import build

from .subjects import drawing, scheme, secret


@given(st.integers(1, 40), st.integers(1, 7), st.integers(0, 50))
def test_the_sums_of_blocks_are_the_products_of_columns(rows, columns, seed):
    draw = np.random.default_rng(seed)
    values, matrix = draw.standard_normal(rows), draw.standard_normal((rows, columns))
    layout = Layout(rows, slots=16)
    tiled = layout.of_rows(values)
    slots = [sum(piece * multiplier for piece, multiplier in zip(tiled, multipliers, strict=True))
             + layout.noise(1000.0, drawing(seed)) for multipliers in layout.of_columns(matrix)]
    assert layout.sums_of(slots, columns) == pytest.approx(matrix.T @ values, abs=1e-8)
    assert layout.rows_of(tiled) == pytest.approx(values)
    assert layout.sums_of(layout.of_sums(matrix[0]), columns) == pytest.approx(matrix[0])


def test_more_rows_than_slots_and_more_columns_than_copies():
    pytest.importorskip("tenseal")
    key, draw = secret("ckks"), drawing()
    rng = np.random.default_rng(0)
    for rows, columns in ((4100, 2), (1500, 5)):
        values, matrix = rng.standard_normal(rows), rng.standard_normal((rows, columns))
        found = key.decrypt(key.public.product(key.public.encrypt(values, draw), matrix, draw))
        assert found == pytest.approx(matrix.T @ values, abs=2e-3)


def test_single_slots_of_a_product_tell_nothing_but_their_sum():
    pytest.importorskip("tenseal")
    key, draw = secret("ckks"), drawing()
    product = key.public.product(key.public.encrypt(np.ones(100), draw), np.ones((100, 1)), draw)
    product = key.public.receive(key.public.send(product, draw), "party '1'")
    slots = np.array(product.content[0].decrypt(key.context.secret_key()))[:100]
    assert np.abs(slots).min() > 1e4
    assert np.abs(slots).mean() == pytest.approx(2.0 ** 29, rel=0.2)
    assert slots.sum() == pytest.approx(100.0, abs=1e-3)


def test_zeros_are_multiplied_like_anything_else():
    pytest.importorskip("tenseal")
    key, draw = secret("ckks"), drawing()
    rows = key.public.encrypt([1.0, 2.0], draw)
    assert key.decrypt(key.public.product(rows, np.zeros((2, 3)), draw)) == pytest.approx([0.0, 0.0, 0.0], abs=1e-3)


def test_a_key_of_another_size_than_agreed_on_is_refused():
    pytest.importorskip("tenseal")
    payload = secret("ckks").public.to_payload()
    with pytest.raises(EncryptionError, match="degree 16384 was received where one of 8192 was agreed on"):
        build("encryption", "ckks").public_key(payload)
    with pytest.raises(EncryptionError, match="made for another number of products than agreed on"):
        build("encryption", "ckks", {"degree": 16384}).public_key(payload)


def test_one_product_too_many_is_refused():
    pytest.importorskip("tenseal")
    key, draw = build("encryption", "ckks").generate(drawing()), drawing()
    once = key.public.scale(key.public.encrypt([1.0, 2.0], draw), [3.0, 4.0])
    assert key.decrypt(once) == pytest.approx([3.0, 8.0], abs=1e-4)
    with pytest.raises(EncryptionError, match="products = 2"):
        key.public.scale(once, [1.0, 1.0])


def test_a_public_key_may_not_bring_the_secret_along():
    pytest.importorskip("tenseal")
    payload, context = {"context": secret("ckks").to_payload()["secret"]}, secret("ckks").public.to_payload()["context"]
    with pytest.raises(EncryptionError, match="with its secret part"):
        scheme("ckks").public_key(payload)
    with pytest.raises(EncryptionError, match="without its secret part"):
        scheme("ckks").secret_key({"secret": context})


@pytest.mark.parametrize("content", [b"", b"no key at all"])
def test_what_is_no_key_is_refused(content):
    pytest.importorskip("tenseal")
    with pytest.raises(EncryptionError, match="not a CKKS key"):
        build("encryption", "ckks").public_key({"context": np.frombuffer(content, np.uint8)})


def test_a_forged_ciphertext_is_refused_or_found_when_opened():
    pytest.importorskip("tenseal")
    key, draw = secret("ckks"), drawing()
    given = key.public.encrypt([1.0], draw)
    content = key.public.send(given, draw)["content"].copy()
    content[0, 5000:5010] ^= 255
    with pytest.raises(EncryptionError, match=r"TenSEAL cannot read|beyond the range"):
        key.decrypt(key.public.receive(wrap(given, key.public.fingerprint, content), "party '2'"))
