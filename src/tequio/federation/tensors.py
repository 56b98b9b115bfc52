"""The arrays of a payload as safetensors, written and read here without copies that the library would make.

    header length (u64) | header (JSON, padded to 8 bytes) | the arrays, widest type first
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tequio.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Signature = tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]

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

_LENGTH_BYTES = 8
# Smaller arrays are copied out of what was received: that is cheap, and keeps nothing else in memory.
_WORTH_SHARING = 1 << 20


def dump(arrays: Mapping[str, NDArray[Any]]) -> list[bytes | memoryview]:
    """The arrays as pieces of bytes, to be put one behind the other; those of arrays are views of them."""
    if not arrays:
        return []
    header, order = _header(_signature(arrays))
    # np.ascontiguousarray would give an array without dimensions one.
    return [header, *(np.asarray(arrays[key], order="C").reshape(-1).view(np.uint8).data for key in order)]


def size(arrays: Mapping[str, NDArray[Any]]) -> int:
    """How many bytes `dump` gives."""
    return len(_header(_signature(arrays))[0]) + sum(array.nbytes for array in arrays.values()) if arrays else 0


def load(data: memoryview, *, shared: bool) -> dict[str, NDArray[Any]]:
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
