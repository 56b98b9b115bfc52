"""Coverage-guided fuzzing of all that is read from strangers: python tests/fuzz/wire.py -runs=1000000

The first byte of a case says what it is fed to: messages of a party or of the coordinator, payloads, pieces of
transfers, join tokens, enrolment requests. Anything but a value or the error that the reader promises ends the fuzzing.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["tequio.engines.network", "tequio.federation.payload",
                                         "tequio.federation.payload"]):
    import msgspec

    from tequio.engines.network import certificates, enrolment, homes, wire
    from tequio.errors import ConfigError, PayloadError, PermissionDenied
    from tequio.federation import payload


def message(data: bytes) -> None:
    wire.from_party(data)


def order(data: bytes) -> None:
    wire.from_coordinator(data)


def headed(data: bytes) -> None:
    """With a right prefix, so that the header is reached."""
    wire.from_party(wire.MAGIC + len(data).to_bytes(4, "little") + data)


def content(data: bytes) -> None:
    payload.decode(data)


def headed_content(data: bytes) -> None:
    skeleton, _, tensors = data.partition(b"|")
    payload.decode(payload.MAGIC + len(skeleton).to_bytes(4, "little") + skeleton + tensors)


def tensors(data: bytes) -> None:
    """Any safetensors header over a body of 64 bytes."""
    skeleton = msgspec.msgpack.encode({"a": {"\x00array": "0"}})
    body = len(data).to_bytes(8, "little") + data + bytes(64)
    payload.decode(payload.MAGIC + len(skeleton).to_bytes(4, "little") + skeleton + body)


def arrived(data: bytes) -> None:
    """As it lies where a link puts it down, and is read without copies."""
    memory = payload.room(len(data), memoryview(data)[:64])
    memory[:] = data
    payload.decode(memory, shared=True)


def relayed(data: bytes) -> None:
    """A message in a message, as aggregators send them."""
    outer, body = wire.from_party(wire.frame(wire.Relayed("north"), data[:wire.LARGEST_BODY]))
    assert isinstance(outer, wire.Relayed)
    wire.from_party(bytes(body))


def renewal(data: bytes) -> None:
    certificates.requested_key(data)


def pieces(data: bytes) -> None:
    reader, assembly = atheris.FuzzedDataProvider(data), wire.Assembly(4096)
    for _ in range(8):
        chunk = wire.Chunk(reader.ConsumeIntInRange(1, 4), reader.ConsumeIntInRange(0, 5000),
                           reader.ConsumeIntInRange(0, 5000))
        assembly.take(chunk, memoryview(reader.ConsumeBytes(64)))
        assembly.parts([(reader.ConsumeIntInRange(0, 4), reader.ConsumeIntInRange(0, 64))],
                       memoryview(reader.ConsumeBytes(64)))


def token(data: bytes) -> None:
    homes.read_token(homes.PREFIX + data.decode("latin-1"))


def request(data: bytes) -> None:
    try:
        msgspec.msgpack.decode(data, type=enrolment.Request)
    except msgspec.MsgspecError:
        return


READERS = (message, order, headed, content, headed_content, tensors, pieces, token, request, arrived, relayed,
           renewal)


def one_case(data: bytes) -> None:
    """Feed a case to one of the readers."""
    if not data:
        return
    try:
        READERS[data[0] % len(READERS)](data[1:])
    except (PayloadError, ConfigError, PermissionDenied):
        return


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_case)
    atheris.Fuzz()
