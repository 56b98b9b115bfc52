"""The wire decoder takes nothing for a message that is not one, and raises nothing but its own error."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tequio.engines.network import wire
from tequio.engines.network.wire import Assembly, Part
from tequio.errors import PayloadError

HELLO = wire.Hello("north", 1, 1, "0.1.0", 10, "{}")
MESSAGES = [HELLO, wire.Ready("r"), wire.Waiting("r", "why"), wire.Declined("r", "why", "do"),
            wire.TaskResult("r", 3, "d", 0.5, (0, 4)), wire.TaskFailed("r", 3, "d", "why"), wire.Chunk(1, 10, 0)]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_survive(message):
    found, body = wire.from_party(wire.frame(message, b"ab", memoryview(b"cd")))
    assert found == message
    assert bytes(body) == b"abcd"


def refused_or_read(data):
    for read in (wire.from_party, wire.from_coordinator):
        try:
            message, _ = read(data)
        except PayloadError:
            continue
        assert isinstance(message, wire.Message)


@given(st.binary(max_size=300))
@example(b"tqn1" + (5).to_bytes(4, "little") + b"\x81\xa4kind")
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused(data):
    refused_or_read(data)
    refused_or_read(wire.MAGIC + len(data).to_bytes(4, "little") + data)


values = st.recursive(st.none() | st.booleans() | st.integers(-2**63, 2**64 - 1) | st.floats() | st.text(max_size=20)
                      | st.binary(max_size=20), lambda inner: st.lists(inner, max_size=4)
                      | st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=10)
fields = sorted({name for message in MESSAGES for name in message.__struct_fields__})


@given(st.sampled_from(["hello", "ready", "result", "failed", "chunk", "work", "begin", "declined"]),
       st.dictionaries(st.sampled_from(fields), values, max_size=8), st.binary(max_size=40))
@settings(max_examples=100, deadline=None)
def test_messages_of_wrong_fields_are_read_or_refused(kind, content, body):
    header = msgspec.msgpack.encode({"kind": kind, **content})
    refused_or_read(wire.MAGIC + len(header).to_bytes(4, "little") + header + body)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_message_with_flipped_bytes_is_read_or_refused(data):
    whole = bytearray(wire.frame(data.draw(st.sampled_from(MESSAGES)), b"body"))
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        whole[place] ^= data.draw(st.integers(1, 255))
    refused_or_read(bytes(whole))


@given(st.binary(max_size=3_000_000 // 1000).map(lambda seed: (seed * 1000)[:3_000_000]))
@settings(max_examples=20, deadline=None)
def test_parts_arrive_as_they_left(content):
    middle = len(content) // 3
    for lasting in (False, True):
        part, assembly = Part(content[:middle], memoryview(content)[middle:], lasting=lasting), Assembly(4_000_000)
        for data in part.frames:
            assembly.take(*wire.from_party(data))
        assert bytes(assembly.parts([part.ref], memoryview(part.inline))[0]) == content
        assert list(part.frames) == list(part.frames)  # for whoever asks again


@pytest.mark.parametrize(("chunks", "told"), [
    ([(1, 10, 0, 4), (1, 10, 5, 4)], "do not fit together"),
    ([(1, 10, 0, 4), (1, 11, 4, 4)], "do not fit together"),
    ([(1, 90, 0, 4), (2, 90, 0, 4)], "longer than the 100 allowed"),
    ([(1, 10, 0, 11)], "longer than"),
    ([(1, 200, 0, 4)], "longer than the 100 allowed"),
    ([(transfer, 10, 0, 1) for transfer in range(1, 10)], "do not fit together"),
])
def test_pieces_that_do_not_fit_are_refused(chunks, told):
    assembly = Assembly(100)

    def take_all():
        for transfer, total, offset, length in chunks:
            assembly.take(wire.Chunk(transfer, total, offset), memoryview(bytes(length)))

    with pytest.raises(PayloadError, match=told):
        take_all()


@pytest.mark.parametrize("places", [[(7, 4)], [(1, 9)], [(0, 3)], [(0, 99)]])
def test_a_message_that_refers_to_what_is_not_there_is_refused(places):
    assembly = Assembly(100)
    assembly.take(wire.Chunk(1, 10, 0), memoryview(b"12345"))
    with pytest.raises(PayloadError, match=r"did not arrive whole|longer or shorter"):
        assembly.parts(places, memoryview(b"body"))
