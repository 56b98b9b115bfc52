"""Train, validation and test rows; folds; what the coordinator holds out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Split, hold_out, k_folds, split_rows
from tequio.errors import DataError


def rng(seed=0):
    return np.random.default_rng(seed)


@settings(max_examples=100, deadline=None)
@given(size=st.integers(0, 300), validation=st.floats(0, 0.49), test=st.floats(0, 0.5), seed=st.integers(0, 999),
       labelled=st.booleans())
def test_the_parts_are_disjoint_and_cover_and_someone_trains(size, validation, test, seed, labelled):
    labels = rng(seed).integers(0, 4, size) if labelled else None
    train, held, tested = split_rows(size, Split(validation, test), rng(seed), labels)
    assert sorted([*train, *held, *tested]) == list(range(size))
    assert len(train) >= min(size, 1)
    assert all(np.array_equal(part, np.sort(part)) for part in (train, held, tested))


@pytest.mark.parametrize(("size", "expected"), [
    (0, (0, 0, 0)), (1, (1, 0, 0)), (2, (2, 0, 0)),
    (3, (2, 0, 1)), (5, (4, 0, 1)), (10, (7, 1, 2)), (100, (70, 10, 20)),
])
def test_sizes_are_rounded_shares(size, expected):
    parts = split_rows(size, Split(validation=0.1, test=0.2), rng())
    assert tuple(len(part) for part in parts) == expected


def test_the_last_train_row_is_taken_from_validation_first():
    parts = split_rows(2, Split(validation=0.49, test=0.5), rng())
    assert tuple(len(part) for part in parts) == (1, 0, 1)
    assert tuple(len(part) for part in split_rows(1, Split(test=0.9), rng())) == (1, 0, 0)


@settings(max_examples=50, deadline=None)
@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=6), share=st.floats(0.05, 0.9), seed=st.integers(0, 99))
def test_stratified_test_parts_have_every_class_in_proportion(counts, share, seed):
    labels = rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    _, _, tested = split_rows(len(labels), Split(test=share), rng(seed), labels)
    exact = np.array(counts) * len(tested) / len(labels)
    assert (np.abs(np.bincount(labels[tested], minlength=len(counts)) - exact) < 1).all()


def test_stratifying_can_be_switched_off():
    labels = np.repeat([0, 1], 50)
    picks = {int(labels[split_rows(100, Split(test=0.2, stratify=False), rng(seed), labels)[2]].sum())
             for seed in range(20)}
    assert len(picks) > 2


def test_every_row_is_tested_equally_often():
    labels = np.array([0, 0, 0, 0, 0, 0, 0, 1, 1, 1])
    times = np.zeros(10)
    for seed in range(2000):
        times[split_rows(10, Split(test=0.3), rng(seed), labels)[2]] += 1
    assert np.abs(times / 2000 - 0.3).max() < 0.04


@pytest.mark.parametrize("split", [Split(validation=0.5, test=0.5), Split(test=1.0), Split(validation=-0.1)])
def test_splits_without_train_rows_are_refused(split):
    with pytest.raises(DataError, match=r"leaves no train rows"):
        split_rows(10, split, rng())


def test_labels_have_to_be_one_a_row():
    with pytest.raises(DataError, match=r"labels of shape \(4, 2\)"):
        split_rows(4, Split(), rng(), np.zeros((4, 2)))


@settings(max_examples=50, deadline=None)
@given(size=st.integers(2, 80), folds=st.integers(2, 12), seed=st.integers(0, 99))
def test_folds_test_every_row_once_with_even_classes(size, folds, seed):
    labels = rng(seed).integers(0, 3, size)
    pairs = k_folds(size, folds, rng(seed), labels)
    assert len(pairs) == min(folds, size)
    assert sorted(np.concatenate([tested for _, tested in pairs]).tolist()) == list(range(size))
    assert all(len(train) + len(tested) == size and not set(train) & set(tested) for train, tested in pairs)
    counts = np.array([np.bincount(labels[tested], minlength=3) for _, tested in pairs])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()
    assert np.ptp(counts.sum(axis=1)) <= 1


def test_one_row_cannot_be_cross_validated():
    with pytest.raises(DataError, match=r"1 rows cannot be cross-validated in 10 folds"):
        k_folds(1, 10, rng())


@pytest.mark.parametrize(("target", "values"), [
    (Target("classes", ("a", "b")), np.repeat([0, 1], [80, 20])),
    (Target("number"), np.arange(100.0)),
    (Target("multilabel", ("p", "q")), np.eye(2, dtype=int)[np.repeat([0, 1], [80, 20])]),
    (Target("none"), None),
])
def test_hold_out_gives_views_for_any_target(target, values):
    dataset = Dataset.of(Schema.of_numbers(["x"], target), np.arange(100.0)[:, None], values)
    rest, held = hold_out(dataset, 0.1, rng())
    assert (len(rest), len(held)) == (90, 10)
    assert sorted([*rest.ids, *held.ids]) == list(range(100))
    assert rest.source is dataset.source
    if target.kind == "classes":
        assert np.bincount(held.target).tolist() == [8, 2]
    if target.kind == "number":
        assert np.bincount((held.target // 10).astype(int)).tolist() == [1] * 10


@pytest.mark.parametrize("share", [0.0, 0.001, 1.0])
def test_holding_out_nothing_or_everything_is_refused(share):
    dataset = Dataset.of(Schema.of_numbers(["x"], Target("none")), np.zeros((10, 1)))
    with pytest.raises(DataError, match=r"less than one row|leaves no train rows"):
        hold_out(dataset, share, rng())
