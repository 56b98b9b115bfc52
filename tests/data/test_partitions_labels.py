"""Label skew: Dirichlet, shards and class weights, for classes, numbers and multi-label targets."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import choose_classes, cut_by_weights, strata, top_up
from tequio.data.partitions.label_skew import ClassWeights, Dirichlet, Shards
from tequio.data.skew import label_counts, measure_skew
from tequio.errors import DataError

TEN = tuple("0123456789")


def table(labels, target=None) -> Dataset:
    labels = np.asarray(labels)
    schema = Schema.of_numbers(["x"], target or Target("classes", TEN))
    return Dataset.of(schema, np.zeros((len(labels), 1)), labels)


BALANCED = table(np.repeat(np.arange(10), 300))


def deal(partitioner, dataset=BALANCED, seed=0):
    return partitioner.deal(dataset, np.random.default_rng(seed))


def test_weights_cut_classes_in_proportion_and_zero_weights_deal_nothing():
    counts = cut_by_weights(np.array([10, 7, 5]), np.array([[1.0, 3.0], [0.5, 0.5], [0.0, 0.0]]))
    assert counts.tolist() == [[2, 8], [4, 3], [0, 0]]


def test_dirichlet_gives_each_class_the_shares_that_were_drawn():
    shares = np.random.default_rng(5).dirichlet(np.full(4, 1.0), size=10)
    counts = label_counts(BALANCED, deal(Dirichlet(4, alpha=1.0), seed=5))[0]
    assert np.abs(counts - 300 * shares.T).max() < 1.0001


def test_smaller_alpha_gives_more_skew():
    variations = [np.mean([measure_skew(BALANCED, deal(Dirichlet(10, alpha=alpha), seed=seed)).total_variation.mean()
                           for seed in range(5)]) for alpha in (100, 1.0, 0.5, 0.1, 0.01)]
    assert variations == sorted(variations)
    assert variations[0] < 0.06
    assert variations[-1] > 0.7


def test_topping_up_takes_from_the_largest_party_only_what_is_missing():
    before = np.array([0] * 6 + [1] * 3 + [2])
    after = top_up(before, 4, 2, np.random.default_rng(0))
    assert np.bincount(after, minlength=4).tolist() == [3, 3, 2, 2]
    assert ((after == before) | (before == 0)).all()


@pytest.mark.parametrize("make", [Shards, ClassWeights])
@pytest.mark.parametrize("held", [1, 2, 3, 7, 10])
def test_every_party_has_exactly_the_classes_it_chose(make, held):
    for seed in range(5):
        counts = label_counts(BALANCED, deal(make(parties=15, classes_per_party=held), seed=seed))[0]
        assert (np.count_nonzero(counts, axis=1) == held).all()
        holders = np.count_nonzero(counts, axis=0)
        assert holders.max() - holders.min() <= 1
        assert counts.sum() == 3000


def test_chosen_classes_vary_between_parties_even_when_they_divide_evenly():
    held = choose_classes(100, 10, 2, np.random.default_rng(0))
    pairs = {tuple(np.flatnonzero(column)) for column in held.T}
    assert len(pairs) > 25


def test_more_classes_a_party_than_there_are_is_refused():
    with pytest.raises(DataError, match=r"cannot hold 11 of 10 classes; set data.partition.classes_per_party to at"):
        deal(Shards(5, classes_per_party=11))


def test_classes_without_rows_are_not_chosen():
    three_of_ten = table(np.repeat([2, 5, 7], 40))
    counts = label_counts(three_of_ten, deal(Shards(6, classes_per_party=2), three_of_ten))[0]
    assert np.flatnonzero(counts.sum(axis=0)).tolist() == [2, 5, 7]
    assert (np.count_nonzero(counts, axis=1) == 2).all()


def test_rows_of_a_class_that_nobody_chose_are_with_nobody():
    partition = deal(ClassWeights(2, classes_per_party=2))
    assert len(partition.rows) == 4 * 300


def test_equal_shards_have_equal_sizes_and_straddle_few_classes():
    counts = label_counts(BALANCED, deal(Shards(20, equal_sizes=True)))[0]
    assert (counts.sum(axis=1) == 150).all()
    assert np.count_nonzero(counts, axis=1).max() <= 2


def test_class_weights_are_the_uniform_draws_normalised_over_the_parties():
    weights = np.random.default_rng(33).uniform(0.4, 0.6, (10, 5))
    expected = 300 * (weights / weights.sum(axis=1, keepdims=True)).T
    counts = label_counts(BALANCED, deal(ClassWeights(5), seed=33))[0]
    assert np.abs(counts - expected).max() <= 1
    assert counts.sum(axis=0).tolist() == [300] * 10


def test_class_weights_without_class_choice_are_nearly_iid():
    counts = label_counts(BALANCED, deal(ClassWeights(10)))[0]
    assert counts.min() >= 300 * 0.4 / (0.4 + 9 * 0.6) - 1
    assert counts.max() <= 300 * 0.6 / (0.6 + 9 * 0.4) + 1


def test_class_weights_with_replacement_keep_the_counts_but_share_rows():
    alone, shared = deal(ClassWeights(15, 2)), deal(ClassWeights(15, 2, replacement=True))
    assert np.array_equal(label_counts(BALANCED, alone)[0], label_counts(BALANCED, shared)[0])
    assert len(np.unique(shared.rows)) < len(shared.rows)
    assert all(len(np.unique(shared.party_rows(party))) == shared.sizes[party] for party in range(15))


def test_an_empty_range_of_weights_is_refused():
    with pytest.raises(DataError, match=r"range is empty"):
        deal(ClassWeights(5, low=0.6, high=0.4))


def test_a_party_left_without_rows_is_refused_by_name():
    one_row_a_class = table(np.arange(10))
    with pytest.raises(DataError, match=r"of 10 parties have fewer than 1 rows"):
        deal(Shards(10, classes_per_party=1), table([0] * 9 + [1]))
    assert deal(Shards(10, classes_per_party=1), one_row_a_class).sizes.tolist() == [1] * 10


def test_numbers_are_cut_at_their_deciles():
    numbers = table(np.arange(100.0), Target("number"))
    sorted_rows = strata(numbers)
    assert np.bincount(sorted_rows.codes).tolist() == [10] * 10
    assert len(sorted_rows.names) == 10
    counts = label_counts(numbers, deal(Shards(5, classes_per_party=2), numbers))[0]
    assert (np.count_nonzero(counts, axis=1) == 2).all()


def test_numbers_that_repeat_share_a_stratum():
    sorted_rows = strata(table([0.0] * 95 + [1.0, 2.0, 3.0, 4.0, 5.0], Target("number")))
    assert sorted_rows.codes.tolist() == [0] * 100
    two = strata(table([0.0] * 50 + [1.0] * 50, Target("number")))
    assert np.bincount(two.codes).tolist() == [50, 50]
    assert len(two.names) == 2


def test_a_multilabel_row_belongs_to_its_first_label():
    labels = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 1]])
    sorted_rows = strata(table(labels, Target("multilabel", ("p", "q", "r"))))
    assert sorted_rows.codes.tolist() == [1, 0, 3, 2]
    assert sorted_rows.names == ("p", "q", "r", "no label")
