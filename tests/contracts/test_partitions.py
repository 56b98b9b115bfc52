"""Every partition deals rows that exist, the same ones for the same stream, and leaves the data as it was."""

from __future__ import annotations

import numpy as np
import pytest

from .subjects import every, labelled, make, table

REPEATS_ROWS = {"columns", "sampled"}  # say so in their docstrings
ON_LABELS = {"label-sets", "iterative"}
every_partition = every("partition")


def deal(name, seed=0):
    return make("partition", name).deal(data(name), np.random.default_rng(seed))


def data(name):
    return labelled() if name in ON_LABELS else table()


@every_partition
def test_the_same_stream_deals_the_same_rows(name):
    first, second = deal(name), deal(name)
    np.testing.assert_array_equal(first.rows, second.rows)
    np.testing.assert_array_equal(first.offsets, second.offsets)


@every_partition
def test_rows_exist_and_are_held_once(name):
    partition = deal(name)
    assert partition.rows.min() >= 0
    assert partition.rows.max() < len(table())
    if name not in REPEATS_ROWS:
        assert len(np.unique(partition.rows)) == len(partition.rows)


@every_partition
def test_every_party_has_rows_and_a_view(name):
    dataset, partition = data(name), deal(name)
    partition.check(1)
    for party in range(len(partition)):
        view = partition.view(dataset, party)
        assert len(view) == partition.sizes[party]
        assert view.features.shape[1:] == view.schema.shape


@every_partition
def test_exactly_the_right_parties_hold_the_target(name):
    partition = deal(name)
    if partition.holds_target is None:
        pytest.skip("all parties hold the target")
    assert sum(partition.holds_target) == 1


@every_partition
def test_the_data_is_not_changed(name):
    dataset = data(name)
    before = dataset.features.copy(), dataset.target.copy()
    make("partition", name).deal(dataset, np.random.default_rng(1))
    np.testing.assert_array_equal(dataset.features, before[0])
    np.testing.assert_array_equal(dataset.target, before[1])
