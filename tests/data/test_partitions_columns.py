"""Partitions by column (vertical) and by row and column (transfer)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partitions.columns import Columns, RowsAndColumns
from tequio.errors import ConfigError, DataError

NAMES = tuple("abcdefg")
ROWS = 20
CREDIT = Dataset.of(Schema.of_numbers(NAMES, Target("classes", ("pays", "owes"))),
                    np.arange(ROWS * 7.0).reshape(ROWS, 7), np.arange(ROWS) % 2,
                    ids=[f"id{row}" for row in range(ROWS)])


def deal(partitioner, dataset=CREDIT, seed=0):
    return partitioner.deal(dataset, np.random.default_rng(seed))


def held(partition) -> list[str]:
    return ["".join(partition.view(CREDIT, party).schema.names) for party in range(len(partition))]


def test_named_columns_with_the_target_at_one_party():
    partition = deal(Columns(names=(("c", "a"), ("b",)), target_party=1))
    host, guest = partition.view(CREDIT, 0), partition.view(CREDIT, 1)
    assert held(partition) == ["ca", "b"]
    assert host.features[0].tolist() == [2, 0]
    assert host.schema.target.kind == "none"
    assert guest.target.tolist() == CREDIT.target.tolist()
    with pytest.raises(DataError, match=r"holds no target here"):
        _ = host.target


def test_all_parties_hold_the_same_rows_in_the_same_order():
    partition = deal(Columns(parties=3))
    for party in range(3):
        assert partition.view(CREDIT, party).ids.tolist() == CREDIT.ids.tolist()


@pytest.mark.parametrize(("partitioner", "expected"), [
    (Columns(), ["abcd", "efg"]),
    (Columns(parties=3), ["abc", "de", "fg"]),
    (Columns(counts=(2, 4)), ["ab", "cdef"]),
    (Columns(shares=(0.5, 0.3, 0.2)), ["abcd", "ef", "g"]),
    (Columns(shares=(0.3, 0.4)), ["ab", "cde"]),
])
def test_counted_and_shared_columns(partitioner, expected):
    assert held(deal(partitioner)) == expected


@settings(max_examples=40, deadline=None)
@given(parties=st.integers(1, 7), overlap=st.floats(0.4, 1), shuffle=st.booleans(), seed=st.integers(0, 1000))
def test_columns_are_disjoint_and_cover_and_one_party_has_the_target(parties, overlap, shuffle, seed):
    partition = deal(Columns(parties=parties, overlap=overlap, shuffle=shuffle), seed=seed)
    assert sorted(np.concatenate(partition.columns).tolist()) == list(range(7))
    assert sum(partition.holds_target) == 1


def test_shuffled_columns_differ_from_the_order_of_the_table():
    assert any(held(deal(Columns(shuffle=True), seed=seed)) != ["abcd", "efg"] for seed in range(3))


def test_overlap_below_one_leaves_rows_that_only_one_party_has():
    partition = deal(Columns(parties=3, overlap=0.4))
    ids = [set(partition.view(CREDIT, party).ids) for party in range(3)]
    common = ids[0] & ids[1] & ids[2]
    assert len(common) == 8
    assert [len(mine) for mine in ids] == [12, 12, 12]
    assert len(ids[0] | ids[1] | ids[2]) == 20
    assert (ids[0] & ids[1]) == common


@pytest.mark.parametrize(("partitioner", "error", "message"), [
    (Columns(names=(("a", "b"), ("b",))), DataError, "column 'b' is listed more than once"),
    (Columns(names=(("a",), ("limit",))), DataError, "no column 'limit'"),
    (Columns(names=(("a",), ())), DataError, "party 1 has no columns"),
    (Columns(counts=(5, 5)), DataError, "want 10 columns, there are 7"),
    (Columns(shares=(0.9, 0.9)), DataError, "sum to 1.8"),
    (Columns(shares=(0.99, 0.01)), DataError, "party 1 has no columns"),
    (Columns(parties=8), DataError, "8 parties cannot share 7 columns"),
    (Columns(target_party=2), DataError, "party 2 cannot hold the target: there are parties 0 to 1"),
    (Columns(counts=(1, 2), shares=(0.1, 0.2)), ConfigError, "counts and shares; keep one"),
    (Columns(parties=3, counts=(1, 2)), ConfigError, "counts is for 2 parties, but data.partition.parties is 3"),
    (Columns(overlap=0.0, minimum_rows=11), DataError, "2 of 2 parties have fewer than 11 rows"),
    (Columns(minimum_rows=21), DataError, "has 20 rows"),
    (RowsAndColumns(parties=8), DataError, "8 parties cannot share 7 columns"),
    (RowsAndColumns(parties=3, minimum_rows=7), DataError, "need 21"),
    (RowsAndColumns(target_parties=(0, 5)), DataError, "party 5 cannot hold the target"),
    (RowsAndColumns(names=(("a",),)), ConfigError, "names is for 1 parties"),
])
def test_impossible_requests_are_refused(partitioner, error, message):
    with pytest.raises(error, match=message):
        deal(partitioner)


def test_images_are_refused_before_any_view_is_made():
    images = Dataset.of(Schema.of_images((1, 2, 2), ("0", "1")), np.zeros((4, 1, 2, 2)), np.zeros(4, int))
    for partitioner in (Columns(), RowsAndColumns()):
        with pytest.raises(DataError, match=r"only flat tables split by column; set data.flatten = true"):
            deal(partitioner, images)


def test_data_without_a_target_has_no_holder():
    unlabelled = Dataset.of(Schema.of_numbers(NAMES, Target("none")), np.zeros((4, 7)))
    assert deal(Columns(), unlabelled).holds_target == (False, False)


def test_transfer_parties_share_neither_rows_nor_columns():
    partition = deal(RowsAndColumns(parties=3))
    assert np.array_equal(np.sort(partition.rows), np.arange(ROWS))
    assert sorted(np.concatenate(partition.columns).tolist()) == list(range(7))
    assert partition.holds_target == (True, False, False)
    view = partition.view(CREDIT, 1)
    assert view.features.shape == (7, len(partition.columns[1]))


def test_transfer_parties_share_what_they_are_told_to():
    partition = deal(RowsAndColumns(row_overlap=0.1, column_overlap=0.3, target_parties=(0, 1)))
    first, second = (set(partition.party_rows(party).tolist()) for party in range(2))
    assert len(first & second) == 2
    assert len(first | second) == 20
    assert len(set(partition.columns[0]) & set(partition.columns[1])) == 2
    assert partition.holds_target == (True, True)


def test_transfer_columns_by_name_may_be_in_common():
    assert held(deal(RowsAndColumns(names=(("a", "b"), ("b", "c"))))) == ["ab", "bc"]
