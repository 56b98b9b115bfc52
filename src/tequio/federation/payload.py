"""What may cross between parties and coordinator: named arrays, plain scalars, strings, lists and dicts of them.

On the wire a payload is a msgpack skeleton followed by its arrays as safetensors. No pickle is ever read.

    magic 'tq1\\0' | skeleton length (u32) | skeleton (msgpack) | safetensors bytes

The arrays are written and read here without the copies that the library would make:

    header length (u64) | header (JSON, padded to 8 bytes) | the arrays, widest type first
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, overload

import msgspec
import numpy as np
from typing_extensions import TypeVar

from tequio.data.dataset import Dataset, Source
from tequio.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Signature = tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]
    from collections.abc import Iterator


ALIGNMENT = 16
"""What numpy itself gives an array in memory."""

# In the order that the library puts arrays in, from the last to the first.
_TENSOR_TYPES = {"BOOL": np.dtype(bool), "U8": np.dtype(np.uint8), "I8": np.dtype(np.int8), "I16": np.dtype(np.int16),
                 "U16": np.dtype(np.uint16), "F16": np.dtype(np.float16), "I32": np.dtype(np.int32),
                 "U32": np.dtype(np.uint32), "F32": np.dtype(np.float32), "F64": np.dtype(np.float64),
                 "I64": np.dtype(np.int64), "U64": np.dtype(np.uint64)}
_TYPE_NAMES = {kind: name for name, kind in _TENSOR_TYPES.items()}
_RANKS = {kind: -rank for rank, kind in enumerate(_TYPE_NAMES)}
DTYPES = frozenset(_TYPE_NAMES)
"""The types of arrays that may cross."""

LARGEST_ARRAYS = 1 << 16
"""More arrays than this are refused before one of them is looked at."""

_LENGTH_BYTES = 8
_LONGEST_PLAN = 256
# Smaller arrays are copied out of what was received: that is cheap, and keeps nothing else in memory.
_WORTH_SHARING = 1 << 20


def dump_arrays(arrays: Mapping[str, NDArray[Any]]) -> list[bytes | memoryview]:
    """The arrays as pieces of bytes, to be put one behind the other; those of arrays are views of them."""
    if not arrays:
        return []
    header, order = _header(_signature(arrays))
    # np.ascontiguousarray would give an array without dimensions one.
    return [header, *(np.asarray(arrays[key], order="C").reshape(-1).view(np.uint8).data for key in order)]


def arrays_size(arrays: Mapping[str, NDArray[Any]]) -> int:
    """How many bytes `dump` gives."""
    return len(_header(_signature(arrays))[0]) + sum(array.nbytes for array in arrays.values()) if arrays else 0


def load_arrays(data: memoryview, *, shared: bool) -> dict[str, NDArray[Any]]:
    """The arrays back. With `shared`, large ones stay where they are: in memory that nobody else writes."""
    if not len(data):
        return {}
    try:
        header, body = _read_header(data)
        whole = np.frombuffer(body, np.uint8)
        plans = sorted(((_span(plan), key, plan) for key, plan in header.items()), key=lambda plan: plan[0])
        arrays, end = {}, 0
        for (start, stop), key, plan in plans:
            if start != end:
                raise ValueError("there are gaps between them")
            end, arrays[key] = stop, _array(whole[start:stop], plan, shared)
        if end != len(body):
            raise ValueError("there is more than they need")
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        raise PayloadError(f"a payload's arrays cannot be read: {cause}") from cause
    return arrays


def body_offset(data: memoryview) -> int:
    """Where the first array of what begins like this lies."""
    return _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")


def _signature(arrays: Mapping[str, NDArray[Any]]) -> Signature:
    return tuple((key, array.dtype, array.shape) for key, array in arrays.items())


@lru_cache(maxsize=4096)
def _header(signature: Signature) -> tuple[bytes, tuple[str, ...]]:
    """The header and in which order the arrays follow it."""
    told, end, ordered = {}, 0, sorted(signature, key=lambda plan: (_RANKS[plan[1]], plan[0]))
    for key, kind, shape in ordered:
        start, end = end, end + prod(shape) * kind.itemsize
        told[key] = {"dtype": _TYPE_NAMES[kind], "shape": list(shape), "data_offsets": [start, end]}
    text = msgspec.json.encode(told)
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text, tuple(key for key, *_ in ordered)


def _read_header(data: memoryview) -> tuple[dict[str, Any], memoryview]:
    start = body_offset(data) if len(data) >= _LENGTH_BYTES else len(data) + 1
    if start > len(data):
        raise ValueError("they are cut short")
    # Each array has a brace of its own in the header, however it is written.
    if start > LARGEST_ARRAYS * _LONGEST_PLAN or bytes(data[:start]).count(b"{") > LARGEST_ARRAYS + 2:
        raise ValueError(f"there are more than {LARGEST_ARRAYS} of them")
    header = msgspec.json.decode(data[_LENGTH_BYTES:start], type=dict[str, Any])
    header.pop("__metadata__", None)
    return header, data[start:]


def _span(plan: dict[str, Any]) -> tuple[int, int]:
    start, stop = plan["data_offsets"]
    if type(start) is not int or type(stop) is not int or not 0 <= start <= stop:
        raise ValueError("one of them has no place")
    return start, stop


def _array(data: NDArray[np.uint8], plan: dict[str, Any], shared: bool) -> NDArray[Any]:
    """Where nothing else is said a copy, so that it can be written to and lies in memory as arrays do."""
    kind, shape = _TENSOR_TYPES.get(plan["dtype"]), plan["shape"]
    if kind is None:
        raise ValueError("one of them is of a type that may not cross")
    if any(type(side) is not int or side < 0 for side in shape) or prod(shape) * kind.itemsize != len(data):
        raise ValueError("one of them is not as long as its shape says")
    array = data.view(kind).reshape(shape)
    as_it_is = shared and data.nbytes >= _WORTH_SHARING and array.ctypes.data % ALIGNMENT == 0
    return array if as_it_is else array.copy()


Payload = dict[str, Any]

R = TypeVar("R", default=Payload)
"""The declared type of a task's reply."""

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
    return [_HEADER.pack(MAGIC, len(skeleton)) + skeleton, *dump_arrays(arrays)]


def size(payload: Mapping[str, Any]) -> int:
    """Exactly len(encode(payload)), without copying the arrays."""
    if type(payload) is dict and not payload:
        return _EMPTY_SIZE
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    return _HEADER.size + len(_skeleton(payload, arrays)) + arrays_size(arrays)


def room(size: int, beginning: memoryview) -> memoryview:
    """Memory for an encoded payload that begins like this, in which `decode` finds its arrays as arrays should lie."""
    start = 0
    if len(beginning) >= _HEADER.size:
        start = _HEADER.size + _HEADER.unpack_from(beginning)[1]
    start += body_offset(beginning[start:])
    memory = np.empty(size + ALIGNMENT, np.uint8)
    lead = -(memory.ctypes.data + start) % ALIGNMENT
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
    arrays = load_arrays(body[skeleton_length:], shared=shared)
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
        if value.dtype not in DTYPES:
            raise PayloadError(f"'{path}' is an array of type {value.dtype}, which may not cross",
                               remedy="send numbers, not objects")
        if len(arrays) >= LARGEST_ARRAYS:
            raise PayloadError(f"a payload has more than {LARGEST_ARRAYS} arrays", remedy="send fewer and longer ones")
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


@dataclass(frozen=True)
class Columns(Sequence["Payload"]):
    """What the vectorised form of a task may answer with: as good as a list of payloads, but handled in one go."""

    content: Payload
    parties: int

    def __len__(self) -> int:
        return self.parties

    @overload
    def __getitem__(self, index: int) -> Payload: ...
    @overload
    def __getitem__(self, index: slice) -> list[Payload]: ...
    def __getitem__(self, index: int | slice) -> Payload | list[Payload]:
        return self.payloads[index]

    def __iter__(self) -> Iterator[Payload]:
        return iter(self.payloads)

    @cached_property
    def payloads(self) -> list[Payload]:
        """One payload a party; arrays are views of the stacked ones."""
        return from_columns(self.content, self.parties)

    def sizes(self) -> list[int]:
        """Exactly the size of each payload. Where only plain values differ, so do only their own lengths."""
        if not _is_simple(self.content):
            return [size(payload) for payload in self.payloads]
        lists = [column for column in self.content.values() if isinstance(column, list)]
        lengths = [sum(map(_encoded_length, row)) for row in zip(*lists, strict=True)] or [0] * self.parties
        rest = size(self.payloads[0]) - lengths[0]
        return [rest + length for length in lengths]


def to_columns(values: Sequence[Any]) -> Any:
    """Dicts of the same names become a dict of columns, arrays of the same shape and type one stacked array."""
    first = values[0]
    if type(first) is dict and all(type(value) is dict and value.keys() == first.keys() for value in values):
        return {name: to_columns([value[name] for value in values]) for name in first}
    if isinstance(first, np.ndarray) and all(
            isinstance(value, np.ndarray) and value.shape == first.shape and value.dtype == first.dtype
            for value in values):
        return np.stack(values)
    return list(values)


def from_columns(column: Any, count: int) -> list[Any]:
    """The values back, one a party; arrays are views of the stacked one."""
    if isinstance(column, np.ndarray):
        # `[...]` keeps an array of no dimensions an array.
        return [column[index, ...] for index in range(len(column))]
    if isinstance(column, list):
        return column
    parts = [from_columns(column[name], count) for name in column]
    return [dict(zip(column, row, strict=True)) for row in zip(*parts, strict=True)] if parts else \
        [{} for _ in range(count)]


def _encoded_length(value: Any) -> int:
    return len(msgspec.msgpack.encode(value))


def _is_simple(content: Payload) -> bool:
    """Whether all that differs between the parties' payloads is plain values at the top, and what arrays hold."""
    return all(_is_stacked(column) or (isinstance(column, list) and PLAIN.issuperset(map(type, column)))
               for column in content.values())


def _is_stacked(column: Any) -> bool:
    return isinstance(column, np.ndarray) or (isinstance(column, dict) and all(map(_is_stacked, column.values())))
