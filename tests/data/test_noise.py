"""Noise on the parties' features: as wide as each party drew, on nothing else, and sparse where it can be."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tequio.data import noise
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.noise import FeatureNoise, with_noise
from tequio.data.partition import Partition
from tequio.errors import DataError

TARGET = Target("multilabel", ("a", "b"))


def data(rows=4000, sparse_rows=False) -> Dataset:
    draw = np.random.default_rng(0)
    features = (draw.random((rows, 5)) < 0.3).astype(np.float32)
    labels = (draw.random((rows, 2)) < 0.5).astype(np.int8)
    return Dataset.of(Schema.of_numbers("vwxyz", TARGET), sparse.csr_matrix(features) if sparse_rows else features,
                      labels, groups=np.arange(rows))


def dealt(dataset) -> Partition:
    order = np.random.default_rng(1).permutation(len(dataset))
    return Partition.of(np.split(order, [len(order) // 4]), labels=(np.array([0]), np.array([1])))


def stream(party):
    return np.random.default_rng([7, party])


def noisy(dataset, how):
    partition = dealt(dataset)
    changed, changed_partition, deviations = with_noise(dataset, partition, how, stream)
    differences = [changed_partition.view(changed, party).features - partition.view(dataset, party).features
                   for party in range(2)]
    return changed, changed_partition, deviations, differences


def test_each_party_gets_the_deviation_that_it_drew():
    dataset = data()
    changed, partition, deviations, differences = noisy(dataset, FeatureNoise(largest=0.5))
    assert ((deviations > 0) & (deviations < 0.5)).all()
    for party in range(2):
        assert differences[party].std() == pytest.approx(deviations[party], rel=0.03)
        assert abs(differences[party].mean()) < 0.03 * 0.5
        np.testing.assert_array_equal(partition.view(changed, party).target,
                                      dealt(dataset).view(dataset, party).target)
        np.testing.assert_array_equal(partition.view(changed, party).groups,
                                      dealt(dataset).view(dataset, party).groups)
    np.testing.assert_array_equal(dataset.features, data().features)


def test_absolute_noise_shifts_features_as_in_the_published_code():
    _, _, deviations, differences = noisy(data(), FeatureNoise(largest=0.5, sign="absolute"))
    for party in range(2):
        assert differences[party].min() >= 0
        assert differences[party].mean() == pytest.approx(0.798 * deviations[party], rel=0.03)


def test_the_same_streams_give_the_same_noise():
    first, second = (noisy(data(), FeatureNoise(largest=0.3))[0] for _ in range(2))
    np.testing.assert_array_equal(first.features, second.features)


def test_sparse_rows_stay_sparse_where_only_stored_entries_are_noisy():
    dataset = data(sparse_rows=True)
    changed = noisy(dataset, FeatureNoise(largest=0.5, entries="stored"))[0]
    assert changed.is_sparse
    assert changed.features.nnz == dataset.features.nnz
    assert not noisy(dataset, FeatureNoise(largest=0.5))[0].is_sparse


def test_wide_sparse_rows_are_not_made_dense(monkeypatch):
    monkeypatch.setattr(noise, "LARGEST_DENSE", 1000)
    with pytest.raises(DataError, match=r"a dense table of 20,000 numbers; set data.feature_noise.entries = 'stored'"):
        noisy(data(sparse_rows=True), FeatureNoise(largest=0.5))


def test_categories_and_columns_cannot_be_noisy():
    dataset = data(8)
    with pytest.raises(DataError, match="hold whole rows"):
        with_noise(dataset, Partition.of([np.arange(8)], columns=(np.array([0]),)), FeatureNoise(0.5), stream)
    codes = Dataset.of(Schema((Feature("c", ("low", "high")),), TARGET), np.zeros((8, 1), int), dataset.target)
    with pytest.raises(DataError, match="categorical columns"):
        with_noise(codes, Partition.of([np.arange(8)]), FeatureNoise(0.5), stream)
