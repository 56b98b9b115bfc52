"""Payloads: whole round trips, exact sizes, and nothing but PayloadError for what may not cross or is not whole."""

from __future__ import annotations

import struct
from contextlib import suppress
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from safetensors.numpy import save

from tequio.data.dataset import Dataset, Schema, Source, Target
from tequio.errors import PayloadError
from tequio.federation.payload import MAGIC, MAXIMUM_DEPTH, check, decode, encode, size

DTYPES = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
          "float64"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
names = texts.filter(lambda name: name != "\x00array")
numbers = st.integers(-2**63, 2**64 - 1) | st.floats(allow_nan=False) | st.booleans()
arrays = st.sampled_from(DTYPES).flatmap(
    lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)))
values = st.recursive(
    st.none() | numbers | texts | st.binary(max_size=5) | arrays,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8)
payloads = st.dictionaries(names, values, max_size=4)


def rows() -> Dataset:
    return Dataset.of(Schema.of_numbers(["age"], Target("none")), np.zeros((3, 1)))


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return (isinstance(right, np.ndarray) and left.dtype == right.dtype and left.shape == right.shape
                and left.tobytes() == right.tobytes())
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return type(left) is type(right) and left == right


def survives(data: bytes) -> None:
    """Bytes that were tampered with are refused, or (a bit inside an array) give another payload; nothing else."""
    with suppress(PayloadError):
        assert isinstance(decode(data), dict)


@settings(max_examples=150, deadline=None)
@given(payload=payloads)
def test_round_trip_and_exact_size(payload: dict[str, Any]) -> None:
    data = encode(payload)
    assert len(data) == size(payload)
    assert same(payload, decode(data))
    assert same(payload, decode(memoryview(data)))


@settings(max_examples=60, deadline=None)
@given(payload=payloads, data=st.data())
def test_truncated_bytes_are_refused(payload: dict[str, Any], data: st.DataObject) -> None:
    whole = encode(payload)
    with pytest.raises(PayloadError):
        decode(whole[:data.draw(st.integers(0, len(whole) - 1))])


@settings(max_examples=60, deadline=None)
@given(payload=payloads, extra=st.binary(min_size=1, max_size=20))
def test_bytes_after_the_end_are_refused(payload: dict[str, Any], extra: bytes) -> None:
    with pytest.raises(PayloadError):
        decode(encode(payload) + extra)


@settings(max_examples=300, deadline=None)
@given(payload=payloads, data=st.data())
def test_flipped_bits_never_escape_as_another_error(payload: dict[str, Any], data: st.DataObject) -> None:
    broken = bytearray(encode(payload))
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    survives(bytes(broken))


@settings(max_examples=200, deadline=None)
@given(skeleton=st.binary(max_size=40), tensors=st.binary(max_size=60))
def test_garbage_behind_a_good_header_never_escapes(skeleton: bytes, tensors: bytes) -> None:
    survives(MAGIC + struct.pack("<I", len(skeleton)) + skeleton + tensors)


@settings(deadline=None)
@given(garbage=st.binary(max_size=64).filter(lambda data: not data.startswith(MAGIC)))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(PayloadError):
        decode(garbage)


def framed(skeleton: Any, tensors: bytes = b"") -> bytes:
    body = msgspec.msgpack.encode(skeleton)
    return MAGIC + struct.pack("<I", len(body)) + body + tensors


@pytest.mark.parametrize(("data", "says"), [
    (framed([1, 2]), "not a table of names"),
    (framed({"model": {"\x00array": "0"}}), "does not carry"),
    (framed({"model": {"\x00array": 0}}), "does not carry"),
    (framed({"model": {"\x00array": "0", "more": 1}}, save({"0": np.ones(2)})), "does not carry"),
    (framed({"a": {"\x00array": "0"}, "b": {"\x00array": "0"}}, save({"0": np.ones(2)})), "does not carry"),
    (framed({}, save({"0": np.ones(2)})), "nothing names"),
    (framed({"model": {"\x00array": "0"}}, save({"0": np.ones(2, np.complex64)})), "may not cross"),
    (framed({"when": msgspec.msgpack.Ext(5, b"x")}), "Ext"),
    (framed({1: 2}), "names are strings"),
    (MAGIC + struct.pack("<I", 2) + msgspec.msgpack.encode({}), "its skeleton is incomplete"),
])
def test_well_formed_bytes_that_are_no_payload_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(PayloadError, match=says):
        decode(data)


def tensors(spans: list[Any], body: int = 16) -> bytes:
    plans = {str(place): {"dtype": "F64", "shape": [1], "data_offsets": span} for place, span in enumerate(spans)}
    header = msgspec.json.encode(plans)
    return struct.pack("<Q", len(header)) + header + bytes(body)


@pytest.mark.parametrize(("data", "says"), [
    (tensors([[0, 8], [8, 16]])[:7], "cut short"), (tensors([[0, 8], [8, 16]])[:20], "cut short"),
    (tensors([[-8, 0], [0, 8]], 8), "has no place"), (tensors([[8, 0]]), "has no place"),
    (tensors([["0", "8"]], 8), "has no place"), (tensors([[0.0, 8]], 8), "has no place"),
    (tensors([[0, 8.0]], 8), "has no place"), (tensors([[False, 8]], 8), "has no place"),
    (tensors([[8, 16]]), "gaps"), (tensors([[0, 8]]), "more than they need")])
def test_arrays_have_to_lie_one_behind_the_other(data: bytes, says: str) -> None:
    names = {str(place): {"\x00array": str(place)} for place in range(2)}
    assert decode(framed(names, tensors([[0, 8], [8, 16]])))["1"].tolist() == [0.0]
    with pytest.raises(PayloadError, match=says):
        decode(framed(names, data))


def test_a_payload_too_large_is_refused_before_it_is_read() -> None:
    data = encode({"model": np.zeros(1000)})
    assert decode(data, maximum_bytes=len(data))
    with pytest.raises(PayloadError, match="larger than"):
        decode(data, maximum_bytes=len(data) - 1)


@pytest.mark.parametrize("live", [
    rows(), Source(np.zeros((2, 1))), object(), {1, 2}, lambda: None, np.array([object()]), np.array(["text"]),
    np.zeros(2, complex), np.arange(3, dtype=">f8"), np.complex128(1), np.datetime64("2024-01-01"), 1j, bytearray(b"x"),
    IntEnum("Kind", "A").A,
    int, range(3),
])
@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: [it], lambda it: {"deep": [{"er": it}]}])
def test_datasets_and_live_objects_are_refused_by_name(live: Any, wrap: Any) -> None:
    for use in (check, encode, size):
        with pytest.raises(PayloadError, match="'model"):
            use({"model": wrap(live)})


def test_a_dataset_is_refused_with_the_reason() -> None:
    with pytest.raises(PayloadError, match="'sent/0' is a dataset: rows stay home"):
        encode({"sent": [rows()]})


@pytest.mark.parametrize("not_a_dict", [None, [], (), 3, "text", rows(), rows().take([]), np.zeros(2), np.zeros(0)])
def test_a_payload_is_a_dict(not_a_dict: Any) -> None:
    for use in (check, encode, size):
        with pytest.raises(PayloadError, match="dict of names"):
            use(not_a_dict)


@pytest.mark.parametrize("bad", [{1: 2}, {"a": {None: 1}}, {"\x00array": 1}, {"a": 2**64}, {"a": -2**63 - 1},
                                 {"a": "\ud800"}, {"\ud800": 1}])
def test_names_and_numbers_that_cannot_travel_are_refused(bad: dict[Any, Any]) -> None:
    for use in (encode, size):
        with pytest.raises(PayloadError):
            use(bad)


def test_depth_is_limited_on_both_sides() -> None:
    deepest: Any = 1
    for _ in range(MAXIMUM_DEPTH):
        deepest = [deepest]
    assert decode(encode({"a": deepest})) == {"a": deepest}
    with pytest.raises(PayloadError, match="deeper"):
        encode({"a": [deepest]})
    with pytest.raises(PayloadError, match="deeper"):
        decode(framed({"a": [[deepest]]}))
    # msgpack nested far beyond what its reader can follow
    with pytest.raises(PayloadError):
        decode(MAGIC + struct.pack("<I", 3_000_000) + b"\x91" * 3_000_000)


def test_numpy_scalars_become_plain_numbers_and_tuples_become_lists() -> None:
    sent = {"a": np.float64(1.5), "b": np.float32(0.5), "c": np.int32(7), "d": np.bool_(True), "e": (1, "x"),
            "f": np.str_("name")}
    assert decode(encode(sent)) == {"a": 1.5, "b": 0.5, "c": 7, "d": True, "e": [1, "x"], "f": "name"}
    assert len(encode(sent)) == size(sent)


def test_names_that_look_like_paths_do_not_collide() -> None:
    sent = {"a/b": np.zeros(2), "a": {"b": np.ones(3)}, "": {"a": np.full(1, 5.0)}, "__metadata__": np.arange(2),
            "list": [np.arange(4)], "list/0": np.arange(5)}
    assert same(sent, decode(encode(sent)))


@pytest.mark.parametrize("array", [np.arange(12.0).reshape(3, 4).T, np.arange(10)[::3], np.array(3.0),
                                   np.broadcast_to(np.float32(2), (2, 2)), np.zeros((0, 3), np.float32)])
def test_any_memory_layout_travels(array: Any) -> None:
    got = decode(encode({"a": array}))["a"]
    assert (got.shape, got.dtype) == (array.shape, array.dtype)
    assert (got == array).all()
    assert len(encode({"a": array})) == size({"a": array})


def test_received_arrays_are_the_receivers_own() -> None:
    sent = {"a": np.zeros(3)}
    got = decode(encode(sent))["a"]
    got += 1
    assert sent["a"].tolist() == [0, 0, 0]


def test_the_size_of_the_empty_payload_is_exact() -> None:
    assert size({}) == len(encode({})) == 9
