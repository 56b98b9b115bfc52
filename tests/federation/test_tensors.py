"""Arrays as safetensors: the library's own bytes, and arrays that stay in the memory they arrived in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from safetensors.numpy import load as library_load
from safetensors.numpy import save as library_save

from tequio.federation import payload
from tequio.federation import payload as tensors

arrays = st.sampled_from(sorted(tensors.DTYPES, key=str)).flatmap(
    lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)))
tables = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), arrays, min_size=1, max_size=6)
LARGE = 1_048_576


@settings(max_examples=200, deadline=None)
@given(table=tables)
def test_the_bytes_are_those_that_the_library_writes(table: dict[str, Any]) -> None:
    data = b"".join(tensors.dump_arrays(table))
    assert len(data) == tensors.arrays_size(table)
    assert data == library_save({key: np.asarray(array, order="C") for key, array in table.items()})
    assert library_load(data).keys() == table.keys()


def arrived(content: dict[str, Any]) -> memoryview:
    """An encoded payload as a link puts it down."""
    data = payload.encode(content)
    memory = payload.room(len(data), memoryview(data)[:1000])
    memory[:] = data
    return memory


@pytest.mark.parametrize("name", ["w", "we", "weights of it"])
def test_large_arrays_stay_where_they_arrived_and_lie_as_arrays_should(name: str) -> None:
    sent = {name: np.arange(LARGE, dtype=np.float32), "small": np.arange(3, dtype=np.float32)}
    memory = arrived(sent)
    got = payload.decode(memory, shared=True)
    place = np.frombuffer(memory, np.uint8)
    assert np.shares_memory(got[name], place)
    assert not np.shares_memory(got["small"], place)
    assert got[name].ctypes.data % tensors.ALIGNMENT == 0
    assert np.array_equal(got[name], sent[name])
    got[name] += 1  # it is the receiver's own
    assert payload.on_its_own(got)[name] is got[name]


def test_a_part_of_what_arrived_is_kept_without_the_rest() -> None:
    got = payload.decode(arrived({"a": np.zeros(LARGE), "b": np.ones(LARGE)}), shared=True)
    kept = payload.on_its_own({"b": got["b"]})["b"]
    assert kept.base is None
    assert np.array_equal(kept, np.ones(LARGE))


def test_arrays_that_lie_badly_are_copied() -> None:
    data = payload.encode({"a": np.arange(LARGE, dtype=np.float64)})
    memory = np.empty(len(data) + 64, np.uint8)
    for lead in range(1, 17):
        place = memory[lead:lead + len(data)]
        place[:] = np.frombuffer(data, np.uint8)
        assert payload.decode(place.data, shared=True)["a"].ctypes.data % tensors.ALIGNMENT == 0


@pytest.mark.parametrize("beginning", [b"", b"tq1", b"tq1\0\xff\xff\xff\xff", b"\xff" * 30])
def test_room_is_made_for_any_beginning(beginning: bytes) -> None:
    assert len(payload.room(100, memoryview(beginning))) == 100
