"""Values that cross column by column come back as they were."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tequio.federation import payload as payloads
from tequio.federation.payload import Columns, from_columns, to_columns

leaves = st.one_of(st.integers(-5, 5), st.floats(allow_nan=False), st.text(max_size=3), st.none(), st.booleans(),
                   arrays(np.float32, st.sampled_from([(), (2,), (0, 3)]), elements=st.just(1.5)))
values = st.recursive(leaves, lambda inner: st.one_of(st.lists(inner, max_size=3),
                                                      st.dictionaries(st.sampled_from("abc"), inner, max_size=3)))


def same(first, second):
    if isinstance(first, np.ndarray):
        return isinstance(second, np.ndarray) and first.dtype == second.dtype and np.array_equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    if isinstance(first, list):
        return isinstance(second, list) and len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and first == second


@settings(deadline=None)
@given(rows=st.lists(st.dictionaries(st.sampled_from("xy"), values, max_size=2), min_size=1, max_size=4))
def test_round_trip(rows):
    assert all(map(same, from_columns(to_columns(rows), len(rows)), rows))


def test_equal_arrays_are_stacked_and_come_back_as_views():
    rows = [{"w": np.full((2, 2), number, np.float32), "n": number} for number in range(3)]
    columns = to_columns(rows)
    assert columns["w"].shape == (3, 2, 2)
    back = from_columns(columns, 3)
    assert back[2]["w"].base is columns["w"]
    assert [row["n"] for row in back] == [0, 1, 2]


def test_arrays_of_different_shapes_stay_apart():
    rows = [{"w": np.zeros(2)}, {"w": np.zeros(3)}]
    assert [row["w"].shape for row in from_columns(to_columns(rows), 2)] == [(2,), (3,)]


@settings(deadline=None)
@given(rows=st.lists(st.fixed_dictionaries({"n": values, "w": st.just(np.ones((2, 2)))}), min_size=1, max_size=4))
def test_sizes_are_exactly_those_of_the_payloads(rows):
    columns = Columns(to_columns(rows), len(rows))
    assert columns.sizes() == [payloads.size(row) for row in rows]
    assert len(columns) == len(list(columns)) == len(rows)


def test_sizes_follow_the_length_of_each_number():
    rows = [{"w": np.zeros(3), "rows": count, "loss": 0.5, "deep": {"v": np.zeros(2)}}
            for count in (3, 300, 70_000, 2**40)]
    sizes = Columns(to_columns(rows), 4).sizes()
    assert sizes == [payloads.size(row) for row in rows]
    assert len(set(sizes)) == 4


def test_columns_read_like_a_list_of_payloads():
    columns = Columns({"w": np.arange(6.0).reshape(3, 2), "n": [1, 2, 3]}, 3)
    assert columns[1]["w"].tolist() == [2.0, 3.0]
    assert [payload["n"] for payload in columns[1:]] == [2, 3]
