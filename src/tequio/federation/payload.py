"""What may cross between parties and coordinator: named arrays, plain scalars, strings, lists and dicts of them.

On the wire a payload is a msgpack skeleton followed by its arrays as safetensors. No pickle is ever read.

    magic 'tq1\\0' | skeleton length (u32) | skeleton (msgpack) | safetensors bytes
"""

from __future__ import annotations

import struct
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tequio.data.dataset import Dataset, Source
from tequio.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping

Payload = dict[str, Any]

MAGIC = b"tq1\0"
MAXIMUM_DEPTH = 16
_HEADER = struct.Struct("<4sI")
_LENGTH = struct.Struct("<Q")
_ARRAY_KEY = "\x00array"
PLAIN = frozenset({bool, int, float, str, bytes, type(None)})
_DTYPES = {np.dtype(name) for name in ("bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
                                       "float16", "float32", "float64")}
_TENSOR_TYPES = {"BOOL": np.dtype(bool), **{f"{letter}{8 * kind.itemsize}": kind for kind in _DTYPES
                                            for letter in [{"u": "U", "i": "I", "f": "F"}.get(kind.kind)] if letter}}


def check(payload: Mapping[str, Any]) -> None:
    """Refuse anything that may not cross: a dataset, a live object, a nested structure too deep."""
    _skeleton(payload, {})


def encode(payload: Mapping[str, Any]) -> bytes:
    """The payload as bytes."""
    from safetensors.numpy import save

    arrays: dict[str, np.ndarray[Any, Any]] = {}
    skeleton = _skeleton(payload, arrays)
    # np.ascontiguousarray would give an array without dimensions one.
    tensors = save({key: np.asarray(array, order="C") for key, array in arrays.items()}) if arrays else b""
    return _HEADER.pack(MAGIC, len(skeleton)) + skeleton + tensors


def size(payload: Mapping[str, Any]) -> int:
    """Exactly len(encode(payload)), without copying the arrays."""
    if type(payload) is dict and not payload:
        return _EMPTY_SIZE
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    skeleton = _skeleton(payload, arrays)
    signature = tuple((key, array.dtype.str, array.shape) for key, array in arrays.items())
    return _HEADER.size + len(skeleton) + (_tensors_size(signature) if arrays else 0)


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
        return value.copy() if isinstance(value.base, np.ndarray) and value.base.size > value.size else value
    if isinstance(value, dict):
        own = {key: on_its_own(item) for key, item in value.items()}
        return own if any(own[key] is not item for key, item in value.items()) else value
    return [on_its_own(item) for item in value] if isinstance(value, list) else value


def decode(data: bytes | bytearray | memoryview, *, maximum_bytes: int | None = None) -> Payload:
    """The payload back from bytes; anything but a whole, well-formed payload is refused."""
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
    arrays = _load_tensors(body[skeleton_length:])
    joined: Payload = put_together(skeleton, arrays, 0)
    if arrays:
        raise PayloadError(f"a payload carries arrays that nothing names: {sorted(arrays)[:3]}")
    return joined


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
        if value.dtype not in _DTYPES:
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


def _load_tensors(data: memoryview) -> dict[str, Any]:
    """The arrays of a safetensors body, each copied once; read here because the library copies the whole body first."""
    if not len(data):
        return {}
    try:
        header, body = _tensor_header(data)
        plans = sorted(((_span(plan), key, plan) for key, plan in header.items()), key=lambda plan: plan[0])
        arrays, end = {}, 0
        for (start, stop), key, plan in plans:
            if start != end:
                raise ValueError("there are gaps between them")
            end, arrays[key] = stop, _array(body[start:stop], plan)
        if end != len(body):
            raise ValueError("there is more than they need")
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        raise PayloadError(f"a payload's arrays cannot be read: {cause}") from cause
    return arrays


def _tensor_header(data: memoryview) -> tuple[dict[str, Any], memoryview]:
    length = int.from_bytes(data[:_LENGTH.size], "little") if len(data) >= _LENGTH.size else len(data)
    if length > len(data) - _LENGTH.size:
        raise ValueError("they are cut short")
    header = msgspec.json.decode(data[_LENGTH.size:_LENGTH.size + length], type=dict[str, Any])
    header.pop("__metadata__", None)
    return header, data[_LENGTH.size + length:]


def _span(plan: dict[str, Any]) -> tuple[int, int]:
    start, stop = plan["data_offsets"]
    if type(start) is not int or type(stop) is not int or not 0 <= start <= stop:
        raise ValueError("one of them has no place")
    return start, stop


def _array(data: memoryview, plan: dict[str, Any]) -> np.ndarray[Any, Any]:
    """A copy, so that it can be written to and lies in memory as arrays do."""
    kind, shape = _TENSOR_TYPES.get(plan["dtype"]), plan["shape"]
    if kind is None:
        raise ValueError("one of them is of a type that may not cross")
    if any(type(side) is not int or side < 0 for side in shape) or prod(shape) * kind.itemsize != len(data):
        raise ValueError("one of them is not as long as its shape says")
    return np.frombuffer(data, kind).reshape(shape).copy()


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


@lru_cache(maxsize=4096)
def _tensors_size(signature: tuple[tuple[str, str, tuple[int, ...]], ...]) -> int:
    from safetensors.numpy import save

    # The header names dtypes, shapes and offsets only, so its length does not depend on the values.
    return len(save({key: np.zeros(shape, np.dtype(kind)) for key, kind, shape in signature}))


_EMPTY_SIZE = _HEADER.size + len(msgspec.msgpack.encode({}))
