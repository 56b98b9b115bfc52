"""Every scheme computes under encryption what is computed in clear, and refuses what is not its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.errors import EncryptionError
from tequio.federation import payload as payloads
from tequio.privacy.encryption.numbers import FixedPoint

from .subjects import drawing, every_scheme, exact_schemes, scheme, secret

ROWS = st.integers(1, 12)


def table(rows, seed, columns=3):
    draw = np.random.default_rng(seed)
    return draw.uniform(-4, 4, rows), draw.uniform(-4, 4, rows), draw.uniform(-4, 4, (rows, columns))


@every_scheme
@settings(max_examples=15, deadline=None)
@given(rows=ROWS, seed=st.integers(0, 99))
def test_sums_and_products_are_those_of_plain_arithmetic(name, rows, seed):
    key, draw = secret(name), drawing()
    first, second, matrix = table(rows, seed)
    total = key.public.add(key.public.encrypt(first, draw), key.public.encrypt(second, draw))
    assert key.decrypt(total) == pytest.approx(first + second, abs=1e-5)
    assert key.decrypt(key.public.scale(total, second)) == pytest.approx((first + second) * second, abs=2e-4)
    assert key.decrypt(key.public.product(total, matrix, draw)) == pytest.approx(matrix.T @ (first + second), abs=1e-3)


@every_scheme
@settings(max_examples=10, deadline=None)
@given(rows=ROWS, seed=st.integers(0, 99))
def test_a_mask_of_rows_makes_them_count_for_nothing(name, rows, seed):
    key, draw = secret(name), drawing()
    first, _, matrix = table(rows, seed)
    mask = np.arange(rows) % 2
    flags = key.public.encrypt(mask, draw, FixedPoint(0, 0))
    product = key.public.product(key.public.scale(flags, first), matrix, draw)
    assert key.decrypt(product) == pytest.approx(matrix.T @ (mask * first), abs=1e-3)


@every_scheme
def test_what_is_hidden_is_nothing_like_what_it_was_and_comes_back(name):
    key, draw = secret(name), drawing()
    first, _, matrix = table(20, 3)
    product = key.public.product(key.public.encrypt(first, draw), matrix, draw)
    hidden, pad = key.public.hide(product, draw)
    assert (np.abs(key.decrypt(hidden)) > 1e5).all()
    opened = key.open(key.public.receive(key.public.send(hidden, draw), "party '1'"))
    assert key.public.reveal(opened, pad) == pytest.approx(matrix.T @ first, abs=2e-3)
    with pytest.raises(EncryptionError, match="not what it was asked to open"):
        key.public.reveal({**opened, "numbers": opened["numbers"][:-1]}, pad)


@every_scheme
def test_it_crosses_as_a_payload(name):
    key, draw = secret(name), drawing()
    first, second, _ = table(9, 1)
    crossed = payloads.decode(payloads.encode(key.public.send(key.public.encrypt(first, draw), draw)))
    read = scheme(name).public_key(payloads.decode(payloads.encode(key.public.to_payload())))
    total = read.add(read.receive(crossed, "party '1'"), read.encrypt(second, draw))
    kept = scheme(name).secret_key(payloads.decode(payloads.encode(key.to_payload())))
    assert kept.decrypt(total) == pytest.approx(first + second, abs=1e-5)


@pytest.mark.parametrize("name", ["paillier", "ckks"])
def test_the_public_part_says_nothing_of_the_secret_one(name):
    key = secret(name)
    public = payloads.encode(key.public.to_payload())
    hidden = [array for part, array in key.to_payload().items() if part not in key.public.to_payload()]
    assert hidden
    assert all(array.tobytes() not in public for array in hidden)


@pytest.mark.parametrize("name", ["paillier", "ckks"])
def test_two_encryptions_of_the_same_differ_and_products_are_sent_fresh(name):
    key, draw = secret(name), drawing()
    rows = key.public.encrypt([1.0, 2.0], draw)
    sent = [key.public.send(key.public.scale(rows, [1.0, 1.0]), draw)["content"] for _ in range(2)]
    assert not np.array_equal(sent[0], sent[1])
    kept = key.public.add(rows, rows)
    assert kept.fresh
    assert not key.public.scale(rows, [1.0, 1.0]).fresh


@every_scheme
def test_damage_on_the_way_is_found(name):
    key, draw = secret(name), drawing()
    sent = key.public.send(key.public.encrypt([1.0, 2.0], draw), draw)
    content = sent["content"].copy()
    content[0, 20 % content.shape[1]] ^= 1
    with pytest.raises(EncryptionError, match=r"party '1' are refused: they were changed on the way"):
        key.public.receive({**sent, "content": content}, "party '1'")
    with pytest.raises(EncryptionError, match="are refused"):
        key.public.receive({**sent, "bits": sent["bits"] - 1}, "party '1'")
    with pytest.raises(EncryptionError, match="they are not ciphertexts"):
        key.public.receive({"content": content}, "party '1'")


@pytest.mark.parametrize("name", ["paillier", "ckks"])
def test_ciphertexts_of_another_key_are_refused(name):
    draw = drawing()
    sent = secret(name, seed=5).public.send(secret(name, seed=5).public.encrypt([1.0], draw), draw)
    with pytest.raises(EncryptionError, match=r"they are of the key .*, not of"):
        secret(name).public.receive(sent, "party '1'")


@every_scheme
def test_more_than_the_range_holds_is_refused(name):
    key, draw = secret(name), drawing()
    with pytest.raises(EncryptionError, match="overflow"):
        key.public.encrypt([1e9], draw)
    with pytest.raises(EncryptionError, match="overflow"):
        key.public.product(key.public.encrypt([1.0], draw), [[1e9]], draw)


@every_scheme
def test_rows_that_do_not_go_together_are_refused(name):
    key, draw = secret(name), drawing()
    rows = key.public.encrypt([1.0, 2.0], draw)
    with pytest.raises(EncryptionError, match="cannot be added"):
        key.public.add(rows, key.public.encrypt([1.0], draw))
    with pytest.raises(EncryptionError, match="do not go with"):
        key.public.product(rows, np.ones((3, 1)), draw)


@exact_schemes
def test_exact_schemes_open_to_the_same_bits(name):
    first, second, matrix = table(30, 7)
    results = []
    for chosen in ("plain", name):
        key, draw = secret(chosen), drawing()
        total = key.public.add(key.public.encrypt(first, draw), key.public.encrypt(second, draw))
        results.append(key.decrypt(key.public.product(total, matrix, draw)))
    assert results[0].tobytes() == results[1].tobytes()


@exact_schemes
@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 40), seed=st.integers(0, 99))
def test_histograms_of_pairs_are_exact_sums(name, rows, seed):
    key, draw = secret(name), drawing()
    rng = np.random.default_rng(seed)
    pairs, bins = rng.uniform(-1, 1, (rows, 2)), rng.integers(-1, 4, rows)
    encrypted = key.public.encrypt_rows(pairs, draw, additions=rows)
    whole = key.public.sums(encrypted, np.where(bins < 0, -1, 0), 5)
    packed = key.public.pack(key.public.sums(encrypted, bins, 5))
    expected = np.array([pairs[bins == place].sum(axis=0) for place in range(5)])
    assert len(packed.content) == 1
    assert key.decrypt(packed) == pytest.approx(expected, abs=1e-7)
    left = key.public.subtract_part(key.public.take(whole, np.array([0])), key.public.take(
        key.public.sums(encrypted, bins, 5), np.array([1])))
    assert key.decrypt(left)[0] == pytest.approx(pairs[(bins >= 0) & (bins != 1)].sum(axis=0), abs=1e-7)


@exact_schemes
def test_one_addition_too_many_is_an_error_and_not_a_wrong_sum(name):
    key, draw = secret(name), drawing()
    encrypted = key.public.encrypt_rows(np.ones((8, 2)), draw, additions=8)
    once = key.public.sums(encrypted, np.zeros(8, int), 1)
    assert key.decrypt(once).tolist() == [[8.0, 8.0]]
    with pytest.raises(EncryptionError, match="overflow: numbers of up to 48 bits"):
        key.public.add(once, once)


@exact_schemes
def test_a_lie_about_the_range_is_found_when_opened(name):
    key, draw = secret(name), drawing()
    sent = key.public.encrypt([3000.0], draw)
    lying = type(sent)(sent.content, sent.count, sent.fraction, sent.bits - 2)
    with pytest.raises(EncryptionError, match="beyond the range that was declared"):
        key.decrypt(lying)
