from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privacy.ways import Way, updates
from tequio.federation.exchange import Replies, Reply
from tequio.privacy.compression.packing import DeltaZstd, zstd
from tequio.privacy.compression.quantise import Quantise


def test_nothing_is_lost_and_exponents_shrink() -> None:
    given, way, plain = updates(1), Way(DeltaZstd()), Way()
    for name, values in way.carry(given)[0].items():
        np.testing.assert_array_equal(values, given[0][name])
        assert values.dtype == given[0][name].dtype
    plain.carry(given)
    assert way.bytes_up < 0.95 * plain.bytes_up


def test_unequally_frequent_codes_shrink_further() -> None:
    spiky = {"w": np.random.default_rng(0).laplace(size=50_000).astype(np.float32) ** 3}
    codes, packed = Way(Quantise(bits=8, block=50_000)), Way(Quantise(bits=8, block=50_000), DeltaZstd())
    np.testing.assert_array_equal(codes.carry([spiky])[0]["w"], packed.carry([spiky])[0]["w"])
    assert packed.bytes_up < 0.5 * codes.bytes_up


@pytest.mark.parametrize("packed", [b"", b"nonsense", 7, zstd().ZstdCompressor().compress(b"\0" * 50_000_000),
                                    zstd().ZstdCompressor().compress(b"not a payload")])
def test_a_forged_reply_is_the_failure_of_its_party(packed: Any) -> None:
    forged = Reply(4, {"update": {"by": "delta-zstd", "packed": packed}})
    assert [failure.party for failure in DeltaZstd().receive(Replies((forged,)), 1, 0).failures] == [4]
