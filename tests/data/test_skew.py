"""Skew numbers: hand-worked cases and agreement with SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition
from tequio.data.skew import gini, label_counts, measure_skew

ABC = Target("classes", ("a", "b", "c"))


def table(labels, target=ABC) -> Dataset:
    return Dataset.of(Schema.of_numbers(["x"], target), np.zeros((len(labels), 1)), np.asarray(labels))


def parts(*rows) -> Partition:
    return Partition.of([np.array(mine, int) for mine in rows])


def test_a_hand_worked_partition():
    dataset = table([0, 0, 0, 0, 1, 1, 2, 2])
    partition = parts([0, 1, 4, 5], [2, 3], [6, 7])
    skew = measure_skew(dataset, partition)
    assert label_counts(dataset, partition)[0].tolist() == [[2, 2, 0], [2, 0, 0], [0, 0, 2]]
    assert skew.entropy.tolist() == [1, 0, 0]
    assert skew.total_variation.tolist() == [0.25, 0.5, 0.75]
    assert skew.earth_mover.tolist() == skew.total_variation.tolist()
    assert skew.classes.tolist() == [2, 1, 1]
    summary = skew.summary()
    assert (summary["smallest"], summary["median"], summary["largest"]) == (2, 2, 4)
    assert summary["gini"] == pytest.approx((-2 * 2 + 0 * 2 + 2 * 4) / (3 * 8))
    assert summary["total_variation_mean"] == 0.5
    assert summary["one_class_share"] == pytest.approx(2 / 3)


def test_ordered_classes_count_the_steps():
    skew = measure_skew(table([0, 1, 2, 2]), parts([0], [2, 3]), ordered=True)
    assert skew.earth_mover == pytest.approx([0.25 * 1 + 0.5 * 2, 0.25 * 2 + 0.25 * 1])
    assert skew.total_variation == pytest.approx([0.75, 0.5])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 60), parties=st.integers(1, 8),
       scale=st.sampled_from([1e-3, 1, 1e4]))
def test_earth_mover_equals_scipy_for_every_party(seed, rows, parties, scale):
    rng = np.random.default_rng(seed)
    values = np.round(rng.normal(5, 1, rows), 1) * scale
    owners = rng.integers(0, parties, rows)
    partition = parts(*[np.flatnonzero(owners == party) for party in range(parties)])
    ours = measure_skew(table(values, Target("number")), partition).earth_mover
    for party in range(parties):
        mine = values[owners == party]
        if len(mine):
            assert ours[party] == pytest.approx(wasserstein_distance(mine, values), abs=1e-9 * scale)
        else:
            assert np.isnan(ours[party])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_earth_mover_of_ordered_classes_equals_scipy(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 30)
    partition = parts(np.arange(7), np.arange(7, 30))
    ours = measure_skew(table(labels), partition, ordered=True).earth_mover
    assert ours == pytest.approx([wasserstein_distance(labels[:7], labels), wasserstein_distance(labels[7:], labels)])


def test_a_party_without_rows_counts_in_sizes_and_not_in_means():
    summary = measure_skew(table([0, 0, 1, 1]), parts([0, 1], [], [2, 3])).summary()
    assert summary["smallest"] == 0
    assert summary["total_variation_mean"] == 0.5
    assert summary["one_class_share"] == 1


def test_multilabel_rows_count_once_for_each_label():
    dataset = table([[1, 1, 0], [0, 1, 0], [0, 0, 0]], Target("multilabel", ("p", "q", "r")))
    counts, names = label_counts(dataset, parts([0, 2], [1, 0]))
    assert counts.tolist() == [[1, 1, 0], [1, 2, 0]]
    assert names == ("p", "q", "r")
    assert measure_skew(dataset, parts([0, 2], [1])).total_variation == pytest.approx([1 / 6, 1 / 3])


def test_data_without_a_target_has_sizes_only():
    dataset = Dataset.of(Schema.of_numbers(["x"], Target("none")), np.zeros((4, 1)))
    skew = measure_skew(dataset, parts([0, 1, 2], [3]))
    assert label_counts(dataset, parts([0, 1, 2], [3]))[0].tolist() == [[3], [1]]
    assert np.isnan(skew.entropy).all()
    assert skew.summary()["largest"] == 3


def test_gini_at_its_ends():
    assert gini(np.array([5, 5, 5, 5])) == 0
    assert gini(np.array([0, 0, 0, 8])) == 0.75
    assert gini(np.array([0, 0])) == 0
