"""What may cross between parties and coordinator: named arrays, plain scalars, strings, lists and dicts of them.

On the wire a payload is a msgpack skeleton followed by its arrays as safetensors. No pickle is ever read.

    magic 'tq1\\0' | skeleton length (u32) | skeleton (msgpack) | safetensors bytes
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tequio.data.dataset import Dataset, Source
from tequio.errors import PayloadError
from tequio.federation import tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

Payload = dict[str, Any]

MAGIC = b"tq1\0"
MAXIMUM_DEPTH = 16
_HEADER = struct.Struct("<4sI")
_ARRAY_KEY = "\x00array"
PLAIN = frozenset({bool, int, float, str, bytes, type(None)})


def check(payload: Mapping[str, Any]) -> None:
    """Refuse anything that may not cross: a dataset, a live object, a nested structure too deep."""
    _skeleton(payload, {})


def encode(payload: Mapping[str, Any]) -> bytes:
    """The payload as bytes."""
    return b"".join(encode_pieces(payload))


def encode_pieces(payload: Mapping[str, Any]) -> list[bytes | memoryview]:
    """The same bytes in pieces to be put one behind the other, without copying the arrays."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    skeleton = _skeleton(payload, arrays)
    return [_HEADER.pack(MAGIC, len(skeleton)) + skeleton, *tensors.dump(arrays)]


def size(payload: Mapping[str, Any]) -> int:
    """Exactly len(encode(payload)), without copying the arrays."""
    if type(payload) is dict and not payload:
        return _EMPTY_SIZE
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    return _HEADER.size + len(_skeleton(payload, arrays)) + tensors.size(arrays)


def room(size: int, beginning: memoryview) -> memoryview:
    """Memory for an encoded payload that begins like this, in which `decode` finds its arrays as arrays should lie."""
    start = 0
    if len(beginning) >= _HEADER.size:
        start = _HEADER.size + _HEADER.unpack_from(beginning)[1]
    start += tensors.body_offset(beginning[start:])
    memory = np.empty(size + tensors.ALIGNMENT, np.uint8)
    lead = -(memory.ctypes.data + start) % tensors.ALIGNMENT
    return memory[lead:lead + size].data


def numbers_in(value: Any) -> int:
    """How many numbers the arrays of a payload hold."""
    if isinstance(value, np.ndarray):
        return value.size
    return sum(map(numbers_in, value.values())) if isinstance(value, dict) else 0


def read_only(value: Any) -> Any:
    """The same payload with arrays that cannot be written to (views, not copies)."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    if isinstance(value, dict):
        return {key: read_only(item) for key, item in value.items()}
    return [read_only(item) for item in value] if isinstance(value, list) else value


def on_its_own(value: Any) -> Any:
    """The same payload without views of parts of larger arrays, which would be kept in memory with it.

    What has no such views stays the same object.
    """
    if isinstance(value, np.ndarray):
        return value.copy() if isinstance(value.base, np.ndarray) and _is_part(value, value.base) else value
    if isinstance(value, dict):
        own = {key: on_its_own(item) for key, item in value.items()}
        return own if any(own[key] is not item for key, item in value.items()) else value
    return [on_its_own(item) for item in value] if isinstance(value, list) else value


def decode(data: bytes | bytearray | memoryview, *, maximum_bytes: int | None = None, shared: bool = False) -> Payload:
    """The payload back from bytes; anything but a whole, well-formed payload is refused.

    With `shared`, large arrays are not copied out of the bytes, which then belong to them.
    """
    if maximum_bytes is not None and len(data) > maximum_bytes:
        raise PayloadError(f"a payload of {len(data)} bytes is larger than the {maximum_bytes} allowed")
    if len(data) < _HEADER.size:
        raise PayloadError(f"a payload of {len(data)} bytes is cut short")
    magic, skeleton_length = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise PayloadError("these bytes are not a payload of this version")
    if len(data) < _HEADER.size + skeleton_length:
        raise PayloadError("a payload is cut short: its skeleton is incomplete")
    body = memoryview(data)[_HEADER.size:]
    try:
        skeleton = msgspec.msgpack.decode(body[:skeleton_length])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as cause:
        raise PayloadError(f"a payload's skeleton cannot be read: {cause}") from cause
    if not isinstance(skeleton, dict):
        raise PayloadError("a payload's skeleton is not a table of names")
    arrays = tensors.load(body[skeleton_length:], shared=shared)
    joined: Payload = put_together(skeleton, arrays, 0)
    if arrays:
        raise PayloadError(f"a payload carries arrays that nothing names: {sorted(arrays)[:3]}")
    return joined


def _is_part(value: np.ndarray[Any, Any], base: np.ndarray[Any, Any]) -> bool:
    # What came in one piece has a few names and shapes around its arrays.
    return base.nbytes > value.nbytes + value.nbytes // 8


def _skeleton(payload: Mapping[str, Any], arrays: dict[str, Any]) -> bytes:
    if not isinstance(payload, dict):
        raise PayloadError(f"a payload is a dict of names, not a {type(payload).__name__}",
                           remedy="a task returns a dict, which may be empty")
    try:
        return msgspec.msgpack.encode(take_apart(payload, arrays))
    except (OverflowError, UnicodeEncodeError) as cause:
        raise PayloadError(f"a payload holds a number or a text that cannot be sent: {cause}") from cause


def take_apart(value: Any, arrays: dict[str, Any], path: str = "", depth: int = 0) -> Any:
    """The value with its arrays moved out to `arrays`, leaving references; refuses what may not cross."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, np.ndarray):
        if value.dtype not in tensors.DTYPES:
            raise PayloadError(f"'{path}' is an array of type {value.dtype}, which may not cross",
                               remedy="send numbers, not objects")
        # Numbered, because two paths may read alike: a name can hold a slash.
        key = str(len(arrays))
        arrays[key] = value
        return {_ARRAY_KEY: key}
    if isinstance(value, np.generic) and type(value.item()) in PLAIN:
        return value.item()
    if depth > MAXIMUM_DEPTH:
        raise PayloadError(f"'{path}' is nested deeper than {MAXIMUM_DEPTH}")
    if isinstance(value, dict):
        return {_name(key, path): item if type(item) in PLAIN else
                take_apart(item, arrays, f"{path}/{key}" if path else key, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [take_apart(item, arrays, f"{path}/{index}", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, Dataset | Source):
        raise PayloadError(f"'{path}' is a dataset: rows stay home", remedy="send what the task computed from them")
    raise PayloadError(f"'{path}' is a live object of type {type(value).__name__}, which may not cross",
                       remedy="send arrays, numbers, strings, lists and dicts of them")


def _name(key: Any, path: str) -> str:
    if not isinstance(key, str) or key == _ARRAY_KEY:
        raise PayloadError(f"a name under '{path}' is {key!r}; names are strings")
    return key


def put_together(value: Any, arrays: dict[str, Any], depth: int = 0) -> Any:
    """The reverse of `take_apart`: each array is taken out of `arrays` as it finds its place."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, dict) and _ARRAY_KEY in value:
        array = arrays.pop(value[_ARRAY_KEY], None) if isinstance(value[_ARRAY_KEY], str) else None
        if array is None or len(value) != 1:
            raise PayloadError("a payload names an array that it does not carry")
        return array
    if depth > MAXIMUM_DEPTH:
        raise PayloadError(f"a payload is nested deeper than {MAXIMUM_DEPTH}")
    if isinstance(value, dict):
        return {_name(key, ""): put_together(item, arrays, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [put_together(item, arrays, depth + 1) for item in value]
    raise PayloadError(f"a payload holds a value of type {type(value).__name__}")


_EMPTY_SIZE = _HEADER.size + len(msgspec.msgpack.encode({}))
